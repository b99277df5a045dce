"""`camel run compact`: merge many small files of a run into few large ones."""

from __future__ import annotations

from typing import Annotated

import typer

from camel.cli import options as shared
from camel.cli.options import option
from camel.cli.output import print_json


def compact(
    run: shared.RunPlace,
    file_size: Annotated[int, option("Maximum size of a merged file, in megabytes.", "MB", min=1)] = 256,
    stage: shared.Stage = "",
    processes: shared.Processes = None,
    address: shared.Address = "",
    as_json: shared.AsJson = False,
) -> None:
    """Merge small files of a run into larger ones."""
    from camel.reports.numbers import counted
    from camel.runs.compact import Compaction
    from camel.runs.compact import compact as merge_shards
    from camel.runs.reader import RunReader

    records = RunReader(run, stage)

    def note(made: Compaction) -> None:
        if not as_json:
            typer.echo(f"shards {made.first:,} to {made.last:,}: {made.size:,} bytes")

    with shared.started(processes, address) as count:
        done = merge_shards(
            records.folder, records.stage, target=file_size * 10**6, processes=count, note=note
        )
    if as_json:
        print_json(done._asdict())
        return
    shards, files = counted(done.shards, "shard"), counted(done.files, "file")
    typer.echo(f"{shards} of {records.stage} in {files}, {done.made:,} of them new")
