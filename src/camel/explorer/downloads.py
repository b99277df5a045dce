"""Downloads of what a filter selects: CSV with one line per conversation, JSONL with whole conversations.

The one decision to know: a download is streamed page by page, so its size is not limited by memory. An error in the middle
cuts the connection, and the browser reports a failed download instead of storing a part as if it were all.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from starlette.responses import Response, StreamingResponse

from camel.explorer.charts import csv_cell
from camel.explorer.home import labels_in
from camel.explorer.routing import PageRequest, Site
from camel.query.answers import NotThere, Page, Row
from camel.query.catalogue import Catalogue
from camel.query.where import Query
from camel.record.release import RESTRICTED, Release, check_labels, marks
from camel.runs.canary import canary_of

ROWS = 200
"""Conversations that are read at a time."""
COLUMNS = (
    "run",
    "id",
    "scenario",
    "user",
    "assistant",
    "others",
    "task",
    "stop",
    "model",
    "labels",
    "findings",
    "messages",
    "tokens",
    "completion",
    "calls",
    "cost",
)
Releases = Mapping[str, Release]
"""By run, what a download of its conversations declares."""


def add_downloads(site: Site) -> None:
    """Add the route."""

    @site.get("/download/{file}")
    def download(asked: PageRequest) -> Response:
        file = asked.request.path_params["file"]
        if file not in FILES:
            raise NotThere(f"there is no such download: there are {', '.join(FILES)}")
        media, write = FILES[file]
        catalogue, query = asked.catalogue, asked.state.query
        releases = releases_of(catalogue, query, asked.allowed)
        first = catalogue.page(query, limit=ROWS)
        headers = {"content-disposition": f'attachment; filename="{file}"'}
        lines = write(catalogue, _pages(catalogue, query, first), releases)
        return StreamingResponse(lines, media_type=media, headers=headers)


def releases_of(catalogue: Catalogue, query: Query, allowed: frozenset[str]) -> Releases:
    """What a download declares. Restricted conversations need consent and their run's canary, as in an export."""
    chosen = [one for one in catalogue.runs if not query.runs or one.name in query.runs]
    restricted = [one for one in chosen if labels_in(one) & RESTRICTED & allowed]
    with_canary = {one.name: Release(True, canary_of(one.folder), reasoning=True) for one in restricted}
    return {one.name: with_canary.get(one.name, Release(reasoning=True)) for one in chosen}


def _pages(catalogue: Catalogue, query: Query, page: Page) -> Iterator[Sequence[Row]]:
    yield page.rows
    while page.next is not None:
        page = catalogue.page(query, after=page.next, limit=ROWS)
        yield page.rows


def _csv(catalogue: Catalogue, pages: Iterator[Sequence[Row]], releases: Releases) -> Iterator[str]:
    canary = any(release.canary for release in releases.values())
    yield _csv_lines([[*COLUMNS, *(["canary"] if canary else [])]])
    for rows in pages:
        lines: list[list[object]] = []
        for row in rows:
            release = releases[row.run]
            restricted = check_labels(row.id, row.labels, release)
            values = [_joined(getattr(row, name)) for name in COLUMNS]
            lines.append([*values, *([release.canary if restricted else ""] if canary else [])])
        yield _csv_lines(lines)


def _csv_lines(lines: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([csv_cell(value) for value in line] for line in lines)
    return text.getvalue()


def _joined(value: object) -> object:
    return "; ".join(map(str, value)) if isinstance(value, tuple) else value


def _jsonl(catalogue: Catalogue, pages: Iterator[Sequence[Row]], releases: Releases) -> Iterator[bytes]:
    for rows in pages:
        lines = [
            {"run": row.run, **msgspec.to_builtins(transcript), **marks(transcript, releases[row.run])}
            for row, transcript in zip(rows, catalogue.conversations(rows), strict=True)
        ]
        yield msgspec.json.Encoder().encode_lines(lines)


FILES: Mapping[str, tuple[str, Callable[..., Iterator[str] | Iterator[bytes]]]] = {
    "conversations.csv": ("text/csv; charset=utf-8", _csv),
    "conversations.jsonl": ("application/jsonl", _jsonl),
}
"""By file name: media type, and what writes it."""
