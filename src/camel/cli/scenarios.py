"""`camel scenarios`: what can be generated, and help with making more of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camel.cli.options import ScenarioPlace, argument, option
from camel.core.errors import InputError

if TYPE_CHECKING:
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
    from rich.console import Console

    from camel.cli.panel import table
    from camel.scenarios import known, load

    rows: list[tuple[str, ...]] = []
    for name in known():
        try:
            scenario = load(name)
        except InputError as error:  # one broken plug-in hides no other scenario
            rows.append((name, str(error), "", ""))
            continue
        rows.append((name, scenario.title, scenario.shape, ", ".join(scenario.labels)))
    table(Console(highlight=False), ("name", "title", "shape", "labels"), rows)


@app.command()
def new(
    path: Annotated[str, argument("NAME", "The folder to make: a name or a path.")],
    title: Annotated[str, option("Its title. Left out: made from the name.")] = "",
) -> None:
    """Make the folder of a new scenario, ready to be changed."""
    from camel.scenarios import scaffold

    folder = scaffold(Path(path) if "/" in path else path, title)
    made = "".join(f"\n  {file}" for file in sorted(folder.iterdir()))
    _say(f"made {folder}:{made}\nchange them as you like, then: camel scenarios check {folder}")


@app.command()
def check(
    path: ScenarioPlace,
) -> None:
    """Say what is wrong with a scenario, or show its prompts. Exits with 1 when there are errors."""
    from camel.reports.numbers import counted
    from camel.scenarios import check as problems_of
    from camel.scenarios import load

    problems = problems_of(path)
    for problem in problems:
        _say(str(problem))
    errors = sum(1 for problem in problems if problem.severity == "error")
    if errors:
        _say(counted(errors, "error"))
        raise typer.Exit(1)
    scenario = load(path)
    _show_samples(scenario)
    _say(f"{scenario.title}: {scenario.shape}. No errors.")


@app.command()
def show(
    name: ScenarioPlace,
) -> None:
    """Show a scenario: its levels, and one prompt of each kind."""
    from rich.console import Console

    from camel.cli.panel import table
    from camel.scenarios import load

    scenario = load(name)
    _say(f"{scenario.title}: {scenario.shape}")
    if scenario.labels:
        _say(f"labels: {', '.join(scenario.labels)}")
    if scenario.gated:
        _say("runs only when acknowledged; see the comments in its scenario.toml")
    rows: list[tuple[str, ...]] = []
    for level in scenario.levels:
        given = "shipped" if level.prompt else "given"
        lists = given if level.given else f"{scenario.lists(level.name):,}"
        rows.append((level.name, f"{level.count:,}", lists, ", ".join(scenario.needs(level.name))))
    if rows:
        table(Console(highlight=False), ("level", "count", "lists", "depends on"), rows)
    _show_samples(scenario)


def _show_samples(scenario: Scenario) -> None:
    from camel.scenarios import sample

    for prompt in sample(scenario):
        _say(f"\n── {prompt.title}", "bold")
        _say(prompt.text)
    _say("")


def _say(text: str, style: str = "") -> None:
    from rich.console import Console

    from camel.cli.panel import say

    say(Console(highlight=False), text, style)
