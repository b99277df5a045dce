"""Writes a site: selected conversations as a folder of pages that need no server.

    index.html                        the list
    conversations/<name>.html         one conversation each, with .json and .md next to it
    fonts/                            with their licenses

The one decision to know: every page contains its style and its scripts, and its policy allows only these, by their hashes. A
page works from a disk, on any host, and as a single file (with the system's fonts), and it cannot load a URL that a model
wrote. The pages use the explorer's templates in another frame, which names the models and the license. Costs are not shown.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
import shutil
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment
from markupsafe import Markup

from camel._version import __version__
from camel.core.checks import shown
from camel.core.errors import InputError
from camel.core.message import in_one_line
from camel.core.transcript import Transcript
from camel.explorer import views
from camel.explorer.routing import LOOK, STATIC, TEMPLATES, environment
from camel.explorer.views import PageState
from camel.query.answers import NotThere, Row
from camel.query.catalogue import LARGEST, Catalogue
from camel.query.where import Query
from camel.record.release import RESTRICTED, Exported, Release, marks, without_reasoning
from camel.reports.html import policy
from camel.reports.numbers import counted
from camel.storage.files import new_folder

MOST = 10_000
"""Maximum number of conversations of a site, because its list is one page."""
_PLAIN = re.compile(r"[0-9][a-z0-9_-]{0,99}")
_FOLDER = "conversations"


def chosen(
    catalogue: Catalogue,
    query: Query = Query(),  # noqa: B008 - frozen
    *,
    ids: Sequence[str] = (),
    first: int = 100,
    sample: int = 0,
    seed: int = 0,
) -> list[Row]:
    """Choose the conversations of a site: those with these ids, or `sample` at random, or the `first` of a query."""
    if ids:
        return [_named(catalogue, id) for id in dict.fromkeys(ids)]
    wanted = sample or first
    if not 1 <= wanted <= MOST:
        raise InputError(f"a site must have 1 to {MOST:,} conversations, not {wanted:,}")
    if sample:
        if sample > LARGEST:
            raise InputError(f"a sample can have at most {LARGEST:,} conversations, not {sample:,}")
        return catalogue.sample(query, sample, seed)
    pages = catalogue.pages(query, min(LARGEST, wanted))
    return list(islice(chain.from_iterable(page.rows for page in pages), wanted))


def _named(catalogue: Catalogue, id: str) -> Row:
    for run in catalogue.runs:
        with contextlib.suppress(NotThere):
            return catalogue.row(run.name, id)
    raise NotThere(f"there is no conversation {shown(id)}")


def write_site(
    catalogue: Catalogue,
    rows: Sequence[Row],
    path: Path,
    *,
    title: str = "",
    license: str = "",
    release: Release = Release(),  # noqa: B008 - frozen
) -> Exported:
    """Write the pages of these conversations to the folder `path`. The folder appears only when it is complete."""
    if not rows:
        raise InputError("no conversation matches, so the site would be empty. Change --id or --where")
    rows = [msgspec.structs.replace(row, cost=None) for row in rows]
    site = _Site(catalogue, title or path.name, license, rows, release)
    with new_folder(path) as folder:
        (folder / _FOLDER).mkdir()
        for number, row in enumerate(rows):
            site.write_conversation(folder, number, row)
        shutil.copytree(LOOK / "fonts", folder / "fonts")
        # Last, so that the index never links to a missing page.
        _write(folder / "index.html", site.index())
    return Exported(path, len(rows), len(rows) + 1)


class _Site:
    def __init__(
        self, catalogue: Catalogue, title: str, license: str, rows: Sequence[Row], release: Release
    ) -> None:
        self.catalogue, self.rows, self.release = catalogue, rows, release
        self.pages: Environment = environment(TEMPLATES / "site")
        self.names = _names(rows)
        runs = list(dict.fromkeys(row.run for row in rows))
        self.several_runs = len(runs) > 1
        look = [LOOK / "tokens.css", LOOK / "components.css", STATIC / "style.css"]
        self.style = "\n".join(path.read_text("utf-8") for path in look)
        self.early, self.late = _script("theme.js"), _script("app.js", "site.js")
        icon = "data:image/svg+xml;base64," + base64.b64encode((STATIC / "camel.svg").read_bytes()).decode()
        self.frame: dict[str, Any] = {
            "early": self.early,
            "late": self.late,
            "icon": icon,
            "site": title,
            "total": counted(len(rows), "conversation"),
            "run_names": ", ".join(runs),
            "models": _models(rows),
            "license": license,
            "version": __version__,
            "canary": release.canary,
        }

    def index(self) -> str:
        labels = {label for row in self.rows for label in row.labels}
        shown = [
            views.list_row(row, number, PageState(Query()), [])
            | {
                "link": f"{_FOLDER}/{name}.html" + (views.at_message(row.hit.message) if row.hit else ""),
                "pin": "",
            }
            for number, (row, name) in enumerate(zip(self.rows, self.names, strict=True))
        ]
        return self._page(
            "index.html",
            labels,
            home="index.html",
            rows=shown,
            several_runs=self.several_runs,
            summary=self._summary(),
        )

    def _summary(self) -> str:
        """Return the number of conversations on the site and, if it is larger, in the runs."""
        here, there = len(self.rows), self.catalogue.count(Query())
        return (
            f"{here:,} of {counted(there, 'conversation')}" if here < there else counted(here, "conversation")
        )

    def write_conversation(self, folder: Path, number: int, row: Row) -> None:
        self.catalogue.check(row.run, row.id)
        transcript = without_reasoning(self.catalogue.conversation(row.run, row.id))
        # Check the labels in the row itself, independently of the catalogue.
        marked = marks(transcript, self.release)
        name = self.names[number]
        around = [self.names[at] if 0 <= at < len(self.names) else "" for at in (number - 1, number + 1)]
        page = self._page(
            "reading.html",
            transcript.labels,
            home="../index.html",
            conversation=views.conversation(row.run, transcript),
            terms=(),
            raw=False,
            previous=around[0] and f"{around[0]}.html",
            next=around[1] and f"{around[1]}.html",
            json=f"{name}.json",
            markdown=f"{name}.md",
        )
        place = folder / _FOLDER
        _write(place / f"{name}.html", page)
        _write(place / f"{name}.md", _as_markdown(transcript, marked))
        data = msgspec.to_builtins(transcript) | marked
        (place / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(data), indent=2))

    def _page(self, template: str, labels: Iterable[str], home: str, **values: Any) -> str:
        style = _ours(self.style.replace('url("fonts/', f'url("{home.removesuffix("index.html")}fonts/'))
        page = {
            "home": home,
            "style": style,
            "policy": policy(style, self.early, self.late, fonts="'self'"),
            "restricted": sorted(RESTRICTED.intersection(labels)),
        }
        return self.pages.get_template(template).render(**self.frame, **page, **values)


def _as_markdown(transcript: Transcript, marked: dict[str, Any]) -> str:
    """Return the conversation as Markdown, with its labels at the top."""
    if not marked:
        return transcript.to_markdown()
    values = marked | {"labels": ", ".join(transcript.labels)}
    above = "".join(f"{name}: {in_one_line(str(value))}\n" for name, value in values.items())
    return f"---\n{above}---\n\n{transcript.to_markdown()}"


def _models(rows: Sequence[Row], most: int = 8) -> str:
    """Return the names of the models that wrote the conversations. One conversation may have several."""
    names = list(dict.fromkeys(name for row in rows for name in row.model.split(" + ") if name))
    more = [f"{len(names) - most:,} more"] if len(names) > most else []
    return ", ".join([*names[:most], *more]) or "language models that are not recorded"


def _names(rows: Sequence[Row]) -> list[str]:
    """Return file names that every disk and host accepts: the id if it is plain, else a readable part and a hash."""
    taken: set[str] = set()
    names: list[str] = []
    for row in rows:
        name = row.id
        if not _PLAIN.fullmatch(name) or name in taken:
            digest = hashlib.sha256(f"{row.run}/{row.id}".encode("utf-8", "replace")).hexdigest()[:12]
            readable = re.sub(r"[^a-z0-9]+", "-", row.id.lower()).strip("-")[:60]
            name = f"c-{readable}-{digest}" if readable else f"c-{digest}"
        if name in taken:
            raise InputError(f"two conversations have the id {shown(row.id)}")
        taken.add(name)
        names.append(name)
    return names


def _script(*files: str) -> Markup:
    """Join scripts, each in its own block scope, because they use the same names."""
    return _ours("\n".join(f"{{\n{(STATIC / name).read_text('utf-8').strip()}\n}}" for name in files))


def _ours(text: str) -> Markup:
    if "</" in text:
        raise AssertionError("a style or script would end its own element")
    return Markup(text)  # noqa: S704 - ours


def _write(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-8", "replace"))
