"""A small index file with only the annotated conversations, and with columns for their annotations.

The one decision to know: queries about annotations use this file instead of the index. Its size depends on the number of
annotations, so such queries are fast in a run of any size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from camel.index.build import complete
from camel.index.facets import FACETS, Facet, joined
from camel.index.files import Header, Indexed
from camel.query.parts import IndexPart
from camel.record.parquet import arrow
from camel.runs.annotations import Annotation
from camel.runs.markers import new_attempt

YES = "yes"
ANNOTATED = {"starred": Facet("starred"), "noted": Facet("noted"), "tag": Facet("tags", many=True)}
"""Facets that filter by annotations. `starred` and `noted` have the value `yes` or are empty."""
FILTERS = {**FACETS, **ANNOTATED}


def annotated_part(
    parts: Sequence[IndexPart], annotations: Mapping[str, Annotation], scratch: Path
) -> IndexPart | None:
    """Write an index file of the annotated rows, if any. Its column `looked` is true where detectors have scanned the row."""
    pa, pq = arrow(), arrow("pyarrow.parquet")
    tables = [
        complete(table).append_column("looked", pa.array([not part.unknown]))
        for part in parts
        for table in part.rows_with(annotations)
    ]
    if not tables:
        return None
    table = pa.concat_tables(tables).sort_by([("shard", "ascending"), ("row", "ascending")])
    rows: Counter[int] = Counter(table.column("shard").to_pylist())
    said = [annotations[id] for id in table.column("id").to_pylist()]
    columns = {
        "starred": [YES if one.star else "" for one in said],
        "noted": [YES if one.note else "" for one in said],
        "tags": [joined(one.tags) for one in said],
    }
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values, pa.string()))
    path = scratch / f"annotated-{new_attempt()}.parquet"
    scratch.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    made = IndexPart(path, Header("", "", [Indexed(shard, "", rows[shard]) for shard in sorted(rows)], None))
    places = zip(table.column("shard").to_pylist(), table.column("row").to_pylist(), strict=True)
    made.places = {place: position for position, place in enumerate(places)}
    return made
