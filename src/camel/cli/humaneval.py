"""`camel evaluate humaneval`: how many of HumanEval's problems a model's programs solve (the paper's Table 3)."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camel.cli.options import BaseUrl, FiguresAsJson, Local, MaxCalls, MaxMoney, MaxTokens, ModelName

if TYPE_CHECKING:
    from rich.console import Console

    from camel.core.message import Sampling
    from camel.core.model import Model
    from camel.evaluation.humaneval.campaign import HumanEval
    from camel.evaluation.humaneval.report import HumanEvalReport
    from camel.jobs.budget import Meter
    from camel.sandbox.process import Sandbox

UNCONTAINED = "--run-programs-of-the-model-without-a-sandbox"


def register(app: typer.Typer) -> None:
    """Add the command to `camel evaluate`."""
    app.command()(humaneval)


def humaneval(
    model: ModelName = "",
    base_url: BaseUrl = "",
    local: Local = False,
    n: Annotated[
        int, typer.Option("-n", metavar="N", help="Samples of each problem.", min=1, max=10_000)
    ] = 200,
    k: Annotated[
        list[int] | None,
        typer.Option(
            "-k", metavar="K", help="pass@k for this k, up to N; repeatable. 1, 10 and 100 unless given."
        ),
    ] = None,
    problems: Annotated[
        int, typer.Option(metavar="N", help="The first so many problems, for a trial.", min=1, max=164)
    ] = 164,
    temperature: Annotated[float | None, typer.Option(help="Of the samples; 0.8 unless given.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Of the samples; 0.95 unless given.")] = None,
    answer_tokens: Annotated[
        int | None,
        typer.Option(metavar="N", help="Tokens of an answer at most; 1024, with --local 300.", min=1),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Gives each sample a seed, for endpoints that can repeat themselves.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where it is kept; runs/humaneval-MODEL unless given."),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", help="Calls in flight: 64, with --local 2.", min=1)
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(metavar="N", help="Programs at a time; one for each core unless given.", min=1),
    ] = None,
    max_calls: MaxCalls = None,
    max_tokens: MaxTokens = None,
    max_money: MaxMoney = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it will take and show a question; ask nobody.")
    ] = False,
    as_json: FiguresAsJson = False,
    uncontained: Annotated[
        bool,
        typer.Option(
            UNCONTAINED,
            help="Run what the model wrote as you, with all that you may do, where there is no bubblewrap.",
        ),
    ] = False,
) -> None:
    """Solve HumanEval and HumanEval+ with a model (the paper's Table 3). The same command goes on after a stop."""
    from rich.console import Console

    from camel.cli.asking import chosen_model
    from camel.cli.progress import leave
    from camel.cli.spending import metered
    from camel.core.errors import InputError
    from camel.engine.halt import Halt
    from camel.evaluation.humaneval.campaign import Config, HumanEval, prompt_text
    from camel.evaluation.humaneval.report import check_extra, default_ks
    from camel.jobs.budget import Budget, MeteredModel
    from camel.sandbox.process import Sandbox

    # Progress must not get into the figures.
    console, halt = Console(highlight=False, stderr=as_json), Halt()
    ks = sorted(set(k or default_ks(n)))
    if wrong := [one for one in ks if not 1 <= one <= n]:
        raise InputError(f"pass@{wrong[0]} needs as many samples: give -k from 1 to {n}, or a larger -n")
    check_extra()
    budget = Budget(money=max_money, tokens=max_tokens, calls=max_calls)
    in_flight = concurrency or (2 if local else 64)
    sampling = _sampling(temperature, top_p, answer_tokens or (300 if local else None))
    with Sandbox(contained=not uncontained) as sandbox:
        if not dry_run:
            # Before anything is paid for.
            sandbox.check()
        with chosen_model(console, model, base_url, local, in_flight) as chat:
            folder = out or Path("runs") / f"humaneval-{_file_name(chat.name)}"
            meter = metered(budget, chat.name, halt)
            config = Config(chat.name, prompt_text(), sampling, seed, problems)
            if dry_run:
                _announce(console, HumanEval(folder, config, n, chat, kept=False), meter, show=True)
                return
            evaluation = HumanEval(folder, config, n, MeteredModel(chat, meter), halt=halt)
            meter.before = evaluation.spent()
            made = asyncio.run(_work(console, evaluation, meter, chat, sandbox, in_flight, processes, ks))
    if made is None:
        leave(console, halt.reason)
    if as_json:
        typer.echo(made.to_json().decode())
    else:
        _show(console, made, folder)


def _sampling(temperature: float | None, top_p: float | None, answer_tokens: int | None) -> Sampling:
    from msgspec.structs import replace

    from camel.evaluation.humaneval.campaign import SAMPLING

    given = {"temperature": temperature, "top_p": top_p, "max_tokens": answer_tokens}
    return replace(SAMPLING, **{name: value for name, value in given.items() if value is not None})


def _file_name(name: str) -> str:
    """A model's name as that of a folder."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:80] or "model"


def _announce(console: Console, evaluation: HumanEval, meter: Meter, *, show: bool = False) -> None:
    from camel.cli.panel import say
    from camel.cli.spending import expect

    if left := evaluation.left():
        expect(console, "expect", evaluation.config.model, evaluation.estimate(left), meter.price)
    if show:
        say(console, f"\n── {evaluation.problems[0].name}", "bold")
        say(console, evaluation.question(evaluation.problems[0]))


async def _work(
    console: Console,
    evaluation: HumanEval,
    meter: Meter,
    chat: Model,
    sandbox: Sandbox,
    in_flight: int,
    processes: int | None,
    ks: list[int],
) -> HumanEvalReport | None:
    """Ask, judge and write the report; None when something stopped it."""
    from camel.cli.panel import duration, money, say, short
    from camel.cli.progress import worked
    from camel.evaluation.humaneval.judging import ProgramJudge
    from camel.evaluation.humaneval.report import report_of, write_report

    say(console, f"folder  {evaluation.folder.address}")
    _announce(console, evaluation, meter)

    def asking(seconds: float) -> str:
        cost = f" · {money(meter.money)}" if meter.money else ""
        return (
            f"asked {evaluation.asked:,} of {evaluation.total:,} samples · {meter.usage.calls:,} calls · "
            f"{short(meter.usage.total)} tokens{cost} · {duration(seconds)} gone"
        )

    def judging(seconds: float) -> str:
        return (
            f"judged {evaluation.judged:,} different programs, {evaluation.settled:,} of {len(evaluation.problems):,} "
            f"problems · {duration(seconds)} gone"
        )

    note = "stopping: what is in flight ends first; again to leave at once"
    work = evaluation.sample(concurrency=in_flight)
    if not await worked(console, evaluation.halt, note, asking, work, chat):
        return None
    work = evaluation.judge(ProgramJudge(sandbox), threads=processes)
    if not await worked(console, evaluation.halt, note, judging, work):
        return None
    made = report_of(
        evaluation.config,
        evaluation.n,
        ks,
        evaluation.samples(),
        evaluation.verdicts(contained=sandbox.contained),
        price=meter.price,
        contained=sandbox.contained,
    )
    write_report(made, evaluation.folder.root)
    return made


def _show(console: Console, made: HumanEvalReport, folder: Path) -> None:
    from camel.cli.panel import say, table
    from camel.evaluation.humaneval import report

    head, rows = report.table(made)
    table(console, tuple(head), [tuple(row) for row in rows], right=range(1, len(head)))
    for note in report.notes(made):
        say(console, note)
    say(console, f"page    {folder / report.PAGE}")
    say(console, f"text    {folder / report.MARKDOWN}")
    say(console, f"figures {folder / report.FIGURES}")
