"""`camel evaluate emergence`: what each added dataset teaches a model, the paper's Table 2."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from camel.cli.options import FiguresAsJson, MaxCalls, MaxMoney, MaxTokens

if TYPE_CHECKING:
    from rich.console import Console

    from camel.cli.spending import Purse
    from camel.training.emergence.results import Figures
    from camel.training.emergence.study import Emergence


def register(app: typer.Typer) -> None:
    """Add the command to `camel evaluate`."""
    app.command()(emergence)


def emergence(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG.toml", help="The chain of models, the domains and the judges.")
    ],
    judge: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL", help="Who judges: NAME, NAME@URL, a GGUF file or local; repeatable."),
    ] = None,
    writer: Annotated[
        str,
        typer.Option(metavar="MODEL", help="Who writes the questions; the first judge unless given."),
    ] = "",
    base_url: Annotated[
        str,
        typer.Option(
            envvar="OPENAI_BASE_URL", metavar="URL", help="The endpoint of all models that name none."
        ),
    ] = "",
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Where it is written.")] = "",
    humaneval: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Also HumanEval(+) of each model, N samples of each problem.", min=0, max=10_000
        ),
    ] = None,
    concurrency: Annotated[
        int, typer.Option(metavar="N", help="Calls in flight at an endpoint.", min=1)
    ] = 16,
    max_calls: MaxCalls = None,
    max_tokens: MaxTokens = None,
    max_money: MaxMoney = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it will take; ask nobody, train nothing.")
    ] = False,
    as_json: FiguresAsJson = False,
) -> None:
    """Train a model on growing data and judge each step (the paper's Table 2). The same command goes on after a stop."""
    from rich.console import Console

    from camel.cli.panel import say
    from camel.cli.progress import leave
    from camel.cli.spending import Purse
    from camel.core.model import Model
    from camel.engine.halt import Halt
    from camel.jobs.budget import Budget, MeteredModel
    from camel.models.catalogue import ModelPrice
    from camel.training.emergence.config import read_config
    from camel.training.emergence.report import write_report
    from camel.training.emergence.results import figures
    from camel.training.emergence.study import Emergence

    # Progress must not get into the figures.
    console, halt = Console(highlight=False, stderr=as_json), Halt()
    given: dict[str, Any] = {"judges": judge, "writer": writer, "out": out, "humaneval": humaneval}
    settings = read_config(config, **given)
    purse = Purse(Budget(money=max_money, tokens=max_tokens, calls=max_calls), halt)

    def metered(name: str, model: Model, price: ModelPrice | None) -> Model:
        return MeteredModel(model, purse.share(name, price))

    study = Emergence(
        settings,
        base_url=base_url,
        metered=metered,
        say=lambda line: say(console, line),
        halt=halt,
        concurrency=concurrency,
    )
    purse.earlier(study.spent())
    _announce(console, study, purse)
    if dry_run:
        return
    if not asyncio.run(_work(console, study, purse)):
        leave(console, halt.reason)
    made, pairs, verdicts = figures(study)
    write_report(study, made, pairs, verdicts)
    if as_json:
        typer.echo(made.to_json().decode())
    else:
        _show(console, made, study.out)


def _announce(console: Console, study: Emergence, purse: Purse) -> None:
    """Say what is asked of whom, what is trained, and what it will cost."""
    from camel.cli.panel import counted, say
    from camel.cli.spending import announce_needs
    from camel.training.stored_rows import Rows

    config = study.config
    say(console, f"chain      {' → '.join(one.label for one in study.members())}")
    say(console, f"questions  {' · '.join(f'{one.label} {one.questions:,}' for one in config.domains)}")
    say(console, f"judged by  {', '.join(study.judges)}, in both orders")
    for one in study.untrained():
        rows = sum(len(Rows(path)) for path in one.rows)
        much = counted(one.steps, "step") if one.steps else f"{one.epochs:g} epochs"
        say(console, f"train      {Path(one.out).name}: {much} of {one.batch:,} on {counted(rows, 'row')}")
    if config.humaneval:
        say(console, f"HumanEval  {config.humaneval:,} samples of {config.problems:,} problems of each model")
    announce_needs(console, study.estimate(), purse)


async def _work(console: Console, study: Emergence, purse: Purse) -> bool:
    from camel.cli.panel import duration
    from camel.cli.progress import worked

    def line(seconds: float) -> str:
        return " · ".join([study.line(), *purse.parts, f"{duration(seconds)} gone"])

    note = "stopping: what is in flight ends first; again to leave at once"
    return await worked(console, study.halt, note, line, study.run())


def _show(console: Console, made: Figures, folder: Path) -> None:
    from camel.cli.panel import say, table
    from camel.training.emergence import report

    head, rows = report.table(made)
    table(console, tuple(head), [tuple(row) for row in rows], right=range(3, len(head)))
    for one in report.points(made):
        say(console, f"· {one}")
    say(console, f"page    {folder / report.PAGE}")
    say(console, f"report  {folder / report.MARKDOWN}")
    say(console, f"figures {folder / report.FIGURES}")
