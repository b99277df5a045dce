"""`camel reproduce`: the commands that reproduce a result of the CAMEL paper, planned, priced and run in order."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camel.cli import options as shared
from camel.cli.command import resume_line
from camel.cli.options import acknowledged, argument, flag, typed, typed_model
from camel.cli.output import echo
from camel.core.errors import CamelError, InputError

if TYPE_CHECKING:
    from camel.library.reproduction import Reproduction

ResultArgument = Annotated[str, argument("RESULT", "table-1, table-2, table-3, ai-society, code, math, science or misalignment.")]  # fmt: skip
SmallOption = Annotated[bool, flag("--small", "Make only a few conversations, questions and programs, to try it out.")]  # fmt: skip
COMPLETE, STOPPED, SOME_FAILED = 0, 3, 4


def reproduce(
    context: typer.Context,
    result: ResultArgument,
    model: shared.ModelName = "",
    base_url: shared.BaseUrl = "",
    local: shared.Local = False,
    judge: shared.Judge = None,
    base_model: shared.BaseModel = "",
    small: SmallOption = False,
    acknowledge: shared.Acknowledge = None,
    out: shared.Out = "",
    budget_usd: shared.BudgetUsd = None,
    yes: shared.Yes = False,
    dry_run: shared.DryRun = False,
) -> None:
    """Reproduce a table or a dataset of the CAMEL paper."""
    from camel.library.reproduction import Reproduction

    if local and {"--model", "--base-url"} & {*typed(context)}:
        raise InputError("--local uses the small model: remove --model and --base-url")
    if "://" in out or any(one.endswith(".toml") for one in judge or ()):
        raise InputError("--out must be a folder on this machine, and --judge the name of a model")
    model, base_url = "local" if local else model, typed_model(context, "", base_url)[1]
    folder = Path(out or f"reproduction{'-small' * small}{'-local' * local}")
    labels = acknowledged(acknowledge)
    made = Reproduction(result, folder, model, base_url, judge or (), base_model, labels, small)
    _show(made)
    if dry_run:
        return
    if budget_usd is not None and any(step.cost is None for step in made.steps):
        raise InputError("--budget-usd needs the price of every model, and one is unknown: remove it")
    if not yes:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise InputError("nothing was run, because there is no terminal to confirm it: add --yes")
        if not typer.confirm(f"Run these {len(made.steps)} commands?"):
            return
    made.write()
    _run(made, budget_usd, resume_line(context))


def _show(made: Reproduction) -> None:
    """Print the commands with their estimates, and the sum of the costs."""
    from camel.reports.numbers import money

    echo(f"{made.result}: {made.title}", "bold")
    for number, step in enumerate(made.steps, 1):
        echo(f"{number:>2}. {step.title}\n    camel {shlex.join(step.arguments)}")
        echo(f"    {step.estimate or 'calls no model'}", "dim")
    costs = [step.cost for step in made.steps]
    known = "unknown, because a price is unknown" if None in costs else money(sum(one or 0 for one in costs))
    echo(f"Likely remaining cost: {known}. Each command shows its own estimate when it starts.")


def _run(made: Reproduction, budget: float | None, resume: str) -> None:
    """Run the commands in this process, and stop at the first one that does not finish."""
    from camel.cli import app
    from camel.jobs.status import read_status

    status = COMPLETE
    for number, step in enumerate(made.steps, 1):
        words, place = [*step.arguments], f"step {number} of {len(made.steps)}"
        echo(f"\n{place}: camel {shlex.join(words)}", "bold")
        if budget is not None and step.estimate:
            others = [Path(one.result) for one in made.steps if one.estimate and one is not step]
            left = budget - sum(read_status(one).money or 0 for one in others if one.exists())
            if left <= 0:
                echo(f"the budget of ${budget:g} is used up: raise --budget-usd to continue")
                raise typer.Exit(STOPPED)
            words += ["--budget-usd", f"{left:.6g}"]
        try:
            ended = int(app(words, prog_name="camel", standalone_mode=False) or COMPLETE)
        except (CamelError, OSError):
            typer.echo(f"camel: {place} failed. To continue after a fix: {resume}", err=True)
            raise
        status = max(status, ended)
        if ended not in (COMPLETE, SOME_FAILED):
            echo(f"stopped at {place}. To continue: {resume}")
            raise typer.Exit(ended)
    echo("")
    for step in made.steps:
        echo(f"result  {step.result}")
    if status:
        raise typer.Exit(status)
