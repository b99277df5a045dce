"""Findings of detectors in the index: by name for facets and filters, by message and seat for plots.

The one decision to know: detectors cost ten times as much as indexing (3.5 ms per conversation), so they do not run while
conversations are generated. `camel run index --findings` runs them, stores their findings where `camel study` does, and
rewrites the index files. Each file records the version of the detectors, so that an upgrade runs them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from msgspec.structs import replace

from camel.detectors.marks import Mark
from camel.index.build import Writer, complete, count, merge_counts
from camel.index.facets import NUMBERS, joined
from camel.index.files import Header, Indexed, Readable, merged_name
from camel.index.sorted import ordered_name
from camel.record.parquet import arrow

_BATCH = 65_536


def marked(table: Any, found: Sequence[Sequence[Mark]]) -> Any:
    """Return an index table with the findings of each row filled in: by name, and as `3 role_flipping assistant`."""
    columns = {
        "findings": [joined(mark.detector for mark in marks) for marks in found],
        "marks": [joined(f"{mark.message} {mark.detector} {mark.seat}" for mark in marks) for marks in found],
    }
    for name, texts in columns.items():
        column = arrow().array(texts, arrow().string())
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


def add_findings(
    files: Readable,
    indexes: Sequence[tuple[str, Header]],
    looking: Looking,
    note: Callable[[str, int, int], None],
) -> int:
    """Rewrite the index files that lack findings of the current detectors. Return the number of rewritten files.

    The old file is removed after the new one is complete: an interruption leaves both, and either is valid.
    """
    wanted = [one for one in indexes if any(shard.looked != looking.by for shard in one[1].shards)]
    for number, (name, header) in enumerate(wanted):
        _rewrite(files, name, header, looking)
        note("findings added", number + 1, len(wanted))
    return len(wanted)


def _rewrite(files: Readable, old: str, header: Header, looking: Looking) -> None:
    shards: list[Indexed] = []

    def rows() -> Iterator[Sequence[Mark]]:
        for one in header.shards:
            found = looking.found(one.shard)
            if found is None or len(found) != one.rows:
                shards.append(replace(one, looked=""))
                yield from ((),) * one.rows
            else:
                shards.append(replace(one, looked=looking.by))
                yield from found

    name = merged_name(header.stage, header.shards[0].shard, header.shards[-1].shard)
    counts: list[Header] = []
    found = rows()
    with (
        files.writing(name) as writing,
        arrow("pyarrow.parquet").ParquetFile(files.path(old)) as file,
        Writer(writing, header) as writer,
    ):
        for batch in file.iter_batches(_BATCH):
            table = complete(arrow().Table.from_batches([batch]))
            table = marked(table, list(islice(found, table.num_rows)))
            counts.append(Header(header.stage, header.fingerprint, [], count(table)))
            writer.add(table)
        assert not list(found)
        writer.header = Header(header.stage, header.fingerprint, shards, merge_counts(counts))
    if old.rpartition("/")[2].startswith("m"):
        files.folder.store.remove([old, *(ordered_name(old, number) for number in NUMBERS)])


class Looking(NamedTuple):
    """Access to the findings of a run, so that the index does not depend on the detectors."""

    by: str
    """A text that identifies the detectors and their versions."""
    found: Callable[[int], Sequence[Sequence[Mark]] | None]
    """Returns the findings of each row of a shard. Returns None if the detectors have not run on the shard."""
