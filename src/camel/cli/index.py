"""`camel index`: make a large run quick to explore."""

from __future__ import annotations

from typing import Annotated

import typer


def index(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder, or s3://bucket/prefix.")],
    text: Annotated[bool, typer.Option("--text", help="Also index every word, for searching.")] = False,
    stage: Annotated[str, typer.Option(help="The stage; left out: that of the conversations.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Put the indexes of a run together, make those that are missing, and count the facets.

    A run is indexed while it is generated, so that this is for large ones, and for those that come from elsewhere. It can be
    stopped and begun again at any time, also while the run goes on.
    """
    import msgspec
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from camel.explorer.text_index import TextMade, make_text_index
    from camel.models.catalogue import cost
    from camel.storage.index import merge
    from camel.storage.reader import Run

    records = Run(run, stage)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    made = TextMade(0, 0, 0)
    with Progress(*columns, console=console, disable=as_json or not console.is_terminal) as progress:
        tasks: dict[str, object] = {}

        def note(what: str, done: int, of: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=of)
            progress.update(tasks[what], completed=done, total=of)  # pyright: ignore[reportArgumentType]

        merged = merge(records.folder, records.stage, cost=cost, note=note)
        if text:
            made = make_text_index(records.folder, records.stage, note=note)
    if as_json:
        said = {**merged._asdict(), **({"text": made._asdict()} if text else {})}
        typer.echo(msgspec.json.encode(said).decode())
        return
    typer.echo(
        f"{merged.rows:,} {records.stage} in {merged.files:,} index files, {merged.made:,} of them new"
    )
    if merged.built:
        typer.echo(f"{merged.built:,} shards had no index")
    if text:
        typer.echo(
            f"{made.rows:,} {records.stage} in {made.indexes:,} text indexes, {made.made:,} of them new"
        )
