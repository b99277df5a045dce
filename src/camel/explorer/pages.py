"""Templates and static files, for the app and for pages that are written to a folder.

The one decision to know: templates escape every value. Only `renderer` turns text of models into HTML.
"""

from __future__ import annotations

from pathlib import Path
from posixpath import basename
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from camel import reports
from camel._version import __version__
from camel.core.action_text import action_texts, call_line, failure_line, laid_out, one_line
from camel.explorer import renderer, views
from camel.explorer.charts import count_ticks
from camel.explorer.colors import ending
from camel.explorer.markup import as_plain
from camel.explorer.measured import day
from camel.reports.numbers import duration, money, short

HERE = Path(__file__).parent
TEMPLATES, STATIC = HERE / "templates", HERE / "static"
LOOK = Path(reports.__file__).parent / "look"
"""The folder with the styles that all pages and reports share: design tokens, components and fonts."""


def environment(*folders: Path) -> Environment:
    """Return the environment that renders templates. Templates in `folders` override those with the same name."""
    renderer.start()  # now, so that the first page does not have to wait for it
    pages = Environment(
        loader=FileSystemLoader([*folders, TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters |= {"words": views.words, "basename": basename}
    shared: dict[str, Any] = pages.globals  # pyright: ignore[reportAssignmentType] - it names only its own
    shared.update(html=renderer.as_html, plain=as_plain, boost=views.BOOST)
    shared.update(version=__version__, count_ticks=count_ticks, url=views.url, run_url=views.run_url, day=day)
    shared.update(short=short, money=money, duration=duration, limit_words=views.limit_words, ending=ending)
    shared.update(facet_name=views.facet_name, toggled=views.toggled, failure_line=failure_line)
    shared.update(action_texts=action_texts, call_line=call_line, laid_out=laid_out, one_line=one_line)
    return pages
