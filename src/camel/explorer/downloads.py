"""Downloads of filtered conversations: CSV with one line per conversation, or JSONL with complete conversations.

The one decision to know: a download is streamed page by page, so its size is not limited by memory. An error closes the
connection, so that the browser reports a failed download instead of storing an incomplete file.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, cast

import msgspec
from starlette.responses import Response, StreamingResponse

from camel.explorer.charts import csv_cell
from camel.explorer.home import labels_in
from camel.explorer.routing import PageRequest, Site
from camel.query.answers import NotThere, Row
from camel.query.catalogue import Catalogue
from camel.query.where import Query
from camel.record.release import RESTRICTED, Release, check_labels, marks
from camel.runs.canary import canary_of

Releases = Mapping[str, Release]
COLUMNS = tuple(name for name in Row.__struct_fields__ if name not in ("shard", "row", "hit"))


def add_downloads(site: Site) -> None:
    """Add the route for downloads."""

    @site.get("/download/{file}")
    def download(asked: PageRequest) -> Response:
        file, catalogue = asked.request.path_params["file"], asked.catalogue
        if file not in FILES:
            raise NotThere(f"there is no such download. Choose from {', '.join(FILES)}")
        media, rows, write = FILES[file]
        # Errors are raised here, before the response begins.
        releases = releases_of(catalogue, asked.state.query, asked.allowed)
        pages = (page.rows for page in catalogue.pages(asked.state.query, rows))
        lines = write(catalogue, releases, chain([next(pages)], pages))
        headers = {"content-disposition": f'attachment; filename="{file}"'}
        return StreamingResponse(lines, media_type=media, headers=headers)


def releases_of(catalogue: Catalogue, query: Query, allowed: frozenset[str]) -> Releases:
    """Return the release settings of each run. Restricted conversations need consent and a canary, as in an export."""
    chosen = [one for one in catalogue.runs if not query.runs or one.name in query.runs]
    restricted = {one.name for one in chosen if labels_in(one) & RESTRICTED & allowed}
    return {
        one.name: Release(True, canary_of(one.folder)) if one.name in restricted else Release()
        for one in chosen
    }


def _csv(catalogue: Catalogue, releases: Releases, pages: Iterable[Sequence[Row]]) -> Iterator[str]:
    yield ",".join((*COLUMNS, "canary")) + "\n"
    for rows in pages:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        for row in rows:
            restricted = check_labels(row.id, row.labels, releases[row.run])
            values: list[Any] = [getattr(row, name) for name in COLUMNS]
            cells = ["; ".join(cast("Any", value)) if isinstance(value, tuple) else value for value in values]
            writer.writerow([*map(csv_cell, cells), releases[row.run].canary if restricted else ""])
        yield text.getvalue()


def _jsonl(catalogue: Catalogue, releases: Releases, pages: Iterable[Sequence[Row]]) -> Iterator[bytes]:
    for rows in pages:
        yield msgspec.json.Encoder().encode_lines(
            {"run": row.run, **msgspec.to_builtins(one), **marks(one, releases[row.run])}
            for row, one in zip(rows, catalogue.conversations(rows), strict=True)
        )


FILES: Mapping[str, tuple[str, int, Callable[..., Iterator[str] | Iterator[bytes]]]] = {
    "conversations.csv": ("text/csv; charset=utf-8", 1_000, _csv),
    "conversations.jsonl": ("application/jsonl", 200, _jsonl),
}
"""By file name: media type, number of conversations to read at a time, and the function that writes them."""
