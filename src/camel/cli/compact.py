"""`camel compact`: many small files of a run into few."""

from __future__ import annotations

from typing import Annotated

import typer

from camel.cli.options import AsJson, RunPlace, Stage, option, print_json


def compact(
    run: RunPlace,
    size: Annotated[int, option("How large a file may get.", "MB", min=1)] = 256,
    stage: Stage = "",
    as_json: AsJson = False,
) -> None:
    """Put small shards together into larger files. The small ones stay until `camel gc --compacted`."""
    from camel.reports.numbers import counted
    from camel.runs.compact import Compaction
    from camel.runs.compact import compact as put_together
    from camel.runs.reader import RunReader

    records = RunReader(run, stage)

    def note(made: Compaction) -> None:
        if not as_json:
            typer.echo(f"shards {made.first:,} to {made.last:,}: {made.size:,} bytes")

    done = put_together(records.folder, records.stage, target=size * 10**6, note=note)
    if as_json:
        print_json(done._asdict())
        return
    shards, files = counted(done.shards, "shard"), counted(done.files, "file")
    typer.echo(f"{shards} of {records.stage} in {files}, {done.made:,} of them new")
