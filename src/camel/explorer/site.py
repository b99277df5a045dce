"""A site: chosen conversations as a folder of pages that need nothing but themselves.

    index.html                        the list
    conversations/<name>.html         one conversation each, with .json and .md beside it

The one decision to know: every page is whole. Its style and its few lines of script stand in it, named by their hashes in
a policy that allows nothing else, so that a page looks the same from a disk, from any host, and passed on alone; and it
cannot fetch anything, whatever a model wrote. The pages are the explorer's own templates with another frame: it names the
models and the licence, and what the calls cost is not shown, which is nobody's business but the publisher's.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
from collections.abc import Iterable, Sequence
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
from camel.explorer.pages import STATIC, TEMPLATES, environment
from camel.explorer.views import PageState
from camel.query.answers import NotThere, Row
from camel.query.catalogue import LARGEST, Catalogue
from camel.query.where import Query
from camel.record.release import RESTRICTED, Exported, Release, marks, without_reasoning
from camel.reports.numbers import counted
from camel.storage.files import new_folder

MOST = 10_000
"""Conversations of a site: the list is one page."""
_PLAIN = re.compile(r"[0-9][a-z0-9_-]{0,99}")
_TALKS = "conversations"


def chosen(
    catalogue: Catalogue,
    query: Query = Query(),  # noqa: B008 - frozen
    *,
    ids: Sequence[str] = (),
    first: int = 100,
    sample: int = 0,
    seed: int = 0,
) -> list[Row]:
    """The conversations of a site: those with these ids, or `sample` at random, or the `first` of a query."""
    if ids:
        return [_named(catalogue, id) for id in dict.fromkeys(ids)]
    wanted = sample or first
    if not 1 <= wanted <= MOST:
        raise InputError(f"a site has from 1 to {MOST:,} conversations, not {wanted:,}")
    if sample:
        if sample > LARGEST:
            raise InputError(f"a sample has at most {LARGEST:,} conversations, not {sample:,}")
        return catalogue.sample(query, sample, seed)
    rows: list[Row] = []
    cursor: str | None = None
    while len(rows) < wanted:
        page = catalogue.page(query, cursor, limit=min(LARGEST, wanted - len(rows)))
        rows += page.rows
        cursor = page.next
        if cursor is None:
            break
    return rows


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
    licence: str = "",
    terms: Sequence[str] = (),
    release: Release = Release(),  # noqa: B008 - frozen
) -> Exported:
    """Write the pages of these conversations; the folder appears when all of it is there."""
    if not rows:
        raise InputError("no conversation fits: there is nothing to make a site of")
    rows = [msgspec.structs.replace(row, cost=None) for row in rows]
    site = _Site(catalogue, title or path.name, licence, rows, terms, release)
    with new_folder(path) as folder:
        (folder / _TALKS).mkdir()
        for number, row in enumerate(rows):
            site.write_talk(folder, number, row)
        # Last: whoever finds an index finds everything that it names.
        _write(folder / "index.html", site.index())
    return Exported(path, len(rows), len(rows) + 1)


class _Site:
    def __init__(
        self,
        catalogue: Catalogue,
        title: str,
        licence: str,
        rows: Sequence[Row],
        terms: Sequence[str],
        release: Release,
    ) -> None:
        self.catalogue, self.rows, self.terms, self.release = catalogue, rows, terms, release
        self.pages: Environment = environment(TEMPLATES / "site")
        self.names = _names(rows)
        runs = list(dict.fromkeys(row.run for row in rows))
        self.several_runs = len(runs) > 1
        style, early, late = (
            _asset(*files) for files in (["style.css"], ["theme.js"], ["app.js", "site.js"])
        )
        icon = "data:image/svg+xml;base64," + base64.b64encode((STATIC / "camel.svg").read_bytes()).decode()
        self.frame: dict[str, Any] = {
            "policy": "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
            f"style-src {_hash(style)}; script-src {_hash(early)} {_hash(late)}",
            "style": style,
            "early": early,
            "late": late,
            "icon": icon,
            "site": title,
            "total": counted(len(rows), "conversation"),
            "run_names": ", ".join(runs),
            "models": _models(rows),
            "licence": licence,
            "version": __version__,
            "canary": release.canary,
        }

    def index(self) -> str:
        labels = {label for row in self.rows for label in row.labels}
        shown = [
            views.list_row(row, number, PageState(Query()), [])
            | {
                "link": f"{_TALKS}/{name}.html" + (views.at_message(row.hit.message) if row.hit else ""),
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
        """How many there are here, and of how many."""
        here, there = len(self.rows), self.catalogue.count(Query())
        return (
            f"{here:,} of {counted(there, 'conversation')}" if here < there else counted(here, "conversation")
        )

    def write_talk(self, folder: Path, number: int, row: Row) -> None:
        self.catalogue.check(row.run, row.id)
        transcript = without_reasoning(self.catalogue.conversation(row.run, row.id))
        # Refused here whatever the catalogue allows: it goes by what is in the row.
        marked = marks(transcript, self.release)
        name = self.names[number]
        beside = [self.names[at] if 0 <= at < len(self.names) else "" for at in (number - 1, number + 1)]
        page = self._page(
            "talk.html",
            transcript.labels,
            home="../index.html",
            conversation=views.conversation(row.run, transcript),
            terms=self.terms,
            raw=False,
            previous=beside[0] and f"{beside[0]}.html",
            next=beside[1] and f"{beside[1]}.html",
            json=f"{name}.json",
            markdown=f"{name}.md",
        )
        place = folder / _TALKS
        _write(place / f"{name}.html", page)
        _write(place / f"{name}.md", _as_markdown(transcript, marked))
        data = msgspec.to_builtins(transcript) | marked
        (place / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(data), indent=2))

    def _page(self, template: str, labels: Iterable[str], **values: Any) -> str:
        restricted = sorted(RESTRICTED.intersection(labels))
        return self.pages.get_template(template).render(**self.frame, restricted=restricted, **values)


def _as_markdown(transcript: Transcript, marked: dict[str, Any]) -> str:
    """For reading elsewhere; its labels stand above it."""
    if not marked:
        return transcript.to_markdown()
    values = marked | {"labels": ", ".join(transcript.labels)}
    above = "".join(f"{name}: {in_one_line(str(value))}\n" for name, value in values.items())
    return f"---\n{above}---\n\n{transcript.to_markdown()}"


def _models(rows: Sequence[Row], most: int = 8) -> str:
    """Who wrote it; a conversation may have several."""
    names = list(dict.fromkeys(name for row in rows for name in row.model.split(" + ") if name))
    more = [f"{len(names) - most:,} more"] if len(names) > most else []
    return ", ".join([*names[:most], *more]) or "language models that are not recorded"


def _names(rows: Sequence[Row]) -> list[str]:
    """Names for files, which every disk and host takes: small letters, digits, `_` and `-`; a hash tells others apart."""
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


def _asset(*files: str) -> Markup:
    """Our own files as they stand in a page. Each script has names of its own."""
    parts = [(STATIC / name).read_text("utf-8").strip() for name in files]
    text = "\n".join(f"{{\n{part}\n}}" for part in parts) if len(parts) > 1 else parts[0]
    if "</" in text:
        raise AssertionError(f"{files[0]} would end the element that it stands in")
    return Markup(text)  # noqa: S704 - ours


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _write(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-8", "replace"))
