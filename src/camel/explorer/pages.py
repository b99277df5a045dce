"""The templates: one environment for the app, and one for pages that are written to a folder.

The one decision to know: whatever a template is given is escaped. What a model wrote becomes HTML in `renderer` alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from camel.explorer import renderer, views
from camel.explorer.markup import as_plain

HERE = Path(__file__).parent
TEMPLATES, STATIC = HERE / "templates", HERE / "static"


def environment(*folders: Path) -> Environment:
    """The templates; those of `folders` take the place of ours of the same name."""
    renderer.start()  # ready by the time the first page is asked for
    pages = Environment(
        loader=FileSystemLoader([*folders, TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters["words"] = views.words
    shared: dict[str, Any] = pages.globals  # pyright: ignore[reportAssignmentType] - it names only its own
    shared.update(html=renderer.as_html, plain=as_plain, boost=views.BOOST)
    return pages
