"""`camel scenarios`: what can be generated, and help with making more of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camel.cli.options import ScenarioPlace, argument, option

if TYPE_CHECKING:
    from rich.console import Console

    from camel.scenarios import Scenario

app = typer.Typer(
    name="scenarios",
    help="List the scenarios that datasets are made from, and make your own.",
    invoke_without_command=True,
    rich_markup_mode=None,
)


@app.callback()
def scenarios(context: typer.Context) -> None:
    """List the scenarios that datasets are made from, and make your own."""
    if context.invoked_subcommand is not None:
        return
    from camel.cli.panel import table
    from camel.core.errors import InputError
    from camel.scenarios import known, load

    rows: list[tuple[str, ...]] = []
    for name in known():
        try:
            scenario = load(name)
        except InputError as error:  # one broken plug-in hides no other scenario
            rows.append((name, str(error), "", ""))
            continue
        rows.append((name, scenario.title, scenario.shape, ", ".join(scenario.labels)))
    table(_console(), ("name", "title", "shape", "labels"), rows)


@app.command()
def new(
    path: Annotated[str, argument("NAME", "The folder to make: a name or a path.")],
    title: Annotated[str, option("Its title. Left out: made from the name.")] = "",
) -> None:
    """Make the folder of a new scenario, ready to be changed."""
    from camel.scenarios import scaffold

    folder = scaffold(Path(path) if "/" in path else path, title)
    console = _console()
    _print(console, f"made {folder}:")
    for file in sorted(folder.iterdir()):
        _print(console, f"  {file}")
    _print(console, f"change them as you like, then: camel scenarios check {folder}")


@app.command()
def check(
    path: ScenarioPlace,
) -> None:
    """Say what is wrong with a scenario, or show its prompts. Exits with 1 when there are errors."""
    from camel.reports.numbers import counted
    from camel.scenarios import check as problems_of
    from camel.scenarios import load

    console = _console()
    problems = problems_of(path)
    for problem in problems:
        _print(console, str(problem))
    errors = sum(1 for problem in problems if problem.severity == "error")
    if errors:
        _print(console, counted(errors, "error"))
        raise typer.Exit(1)
    scenario = load(path)
    _samples(console, scenario)
    _print(console, f"{scenario.title}: {scenario.shape}. No errors.")


@app.command()
def show(
    name: ScenarioPlace,
) -> None:
    """Show a scenario: its levels, and one prompt of each kind."""
    from camel.scenarios import load

    scenario = load(name)
    console = _console()
    _print(console, f"{scenario.title}: {scenario.shape}")
    if scenario.labels:
        _print(console, f"labels: {', '.join(scenario.labels)}")
    if scenario.gated:
        _print(console, "runs only when acknowledged; see the comments in its scenario.toml")
    rows = [
        (
            level.name,
            f"{level.count:,}",
            "given" if level.items else f"{scenario.lists(level.name):,}",
            ", ".join(scenario.needs(level.name)),
        )
        for level in scenario.levels
    ]
    if rows:
        from camel.cli.panel import table

        table(console, ("level", "count", "lists", "depends on"), rows)
    _samples(console, scenario)


def _samples(console: Console, scenario: Scenario) -> None:
    from camel.scenarios import sample

    for prompt in sample(scenario):
        _print(console, f"\n── {prompt.title}", "bold")
        _print(console, prompt.text)
    _print(console, "")


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def _print(console: Console, text: str, style: str = "") -> None:
    from camel.cli.panel import say

    say(console, text, style)
