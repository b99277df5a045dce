"""What was found in conversations, in their index: by name for facets and filters, by message and seat for plots.

The one decision to know: finding costs ten times as much as indexing (3.5 ms a conversation), so that it is not done where
conversations are made. Whoever has looked through a run (`camel run index --findings`, which keeps what it finds where
`camel study` does) passes in what was found, and index files are written anew with it; each says by whom its shards were
looked through, so that after an upgrade of the detectors it is done again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from msgspec.structs import replace

from camel.detectors.marks import Mark
from camel.index.build import Writer, count, merge_counts
from camel.index.facets import NUMBERS, joined
from camel.index.files import Header, Indexed, Readable, merged_name
from camel.index.sorted import ordered_name
from camel.record.parquet import arrow

_BATCH = 65_536


def names_of(marks: Sequence[Mark]) -> str:
    """What was found, as the column of a facet."""
    return joined(mark.detector for mark in marks)


def places_of(marks: Sequence[Mark]) -> str:
    """What was found, with its message and who said it: `3 role_flipping assistant`."""
    return joined(f"{mark.message} {mark.detector} {mark.seat}" for mark in marks)


def marked(table: Any, found: Sequence[Sequence[Mark]]) -> Any:
    """An index with what was found in its rows."""
    for name, text in (("findings", names_of), ("marks", places_of)):
        column = arrow().array([text(marks) for marks in found], arrow().string())
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


def put_in(
    files: Readable,
    indexes: Sequence[tuple[str, Header]],
    looking: Looking,
    note: Callable[[str, int, int], None],
) -> int:
    """Write those index files anew that do not know what was found; says how many they were.

    A new file takes the place of the old one, which goes last: whoever is stopped in between leaves both, and either is good.
    """
    wanted = [one for one in indexes if any(shard.looked != looking.by for shard in one[1].shards)]
    for number, (name, header) in enumerate(wanted):
        _rewrite(files, name, header, looking)
        note("findings put in", number + 1, len(wanted))
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
            table = arrow().Table.from_batches([batch]).replace_schema_metadata(None)
            table = marked(table, list(islice(found, table.num_rows)))
            counts.append(Header(header.stage, header.fingerprint, [], count(table)))
            writer.add(table)
        assert not list(found)
        writer.header = Header(header.stage, header.fingerprint, shards, merge_counts(counts))
    if old.rpartition("/")[2].startswith("m"):
        files.folder.store.remove([old, *(ordered_name(old, number) for number in NUMBERS)])


class Looking(NamedTuple):
    """What detectors found in a run, for its index. Which detectors these are, the index does not know."""

    by: str
    """Tells these detectors and their versions from others."""
    found: Callable[[int], Sequence[Sequence[Mark]] | None]
    """By shard: what was found in each of its rows; None where it was not looked through."""
