"""`camel scenarios`: list the scenarios that datasets are made from, and make your own."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camel.cli import options as shared
from camel.cli.help import HelpCommand, HelpGroup
from camel.cli.options import argument
from camel.cli.output import echo, table
from camel.core.errors import InputError

if TYPE_CHECKING:
    from camel.scenarios import Scenario

app = typer.Typer(name="scenarios", cls=HelpGroup, invoke_without_command=True, rich_markup_mode=None)


@app.callback()
def scenarios(context: typer.Context) -> None:
    """List scenarios (kinds of datasets), or make your own."""
    if context.invoked_subcommand is not None:
        return
    from camel.scenarios import known, load

    rows: list[tuple[str, ...]] = []
    for name in known():
        try:
            scenario = load(name)
        except InputError as error:  # a broken plug-in must not hide the others
            rows.append((name, str(error), "", ""))
            continue
        rows.append((name, scenario.title, scenario.shape, ", ".join(scenario.labels)))
    table(("name", "title", "shape", "labels"), rows)


@app.command(cls=HelpCommand)
def new(
    path: Annotated[str, argument("NAME", "Name or path of the new folder.")], title: shared.Title = ""
) -> None:
    """Create the folder of a new scenario."""
    from camel.scenarios import scaffold

    folder = scaffold(Path(path) if "/" in path else path, title)
    made = "".join(f"\n  {file}" for file in sorted(folder.iterdir()))
    echo(f"created {folder}:{made}\nedit them, then run camel scenarios check {shlex.quote(str(folder))}")


@app.command(cls=HelpCommand)
def check(path: shared.ScenarioPlace) -> None:
    """Check a scenario and show its prompts."""
    from camel.reports.numbers import counted
    from camel.scenarios import check as problems_of
    from camel.scenarios import load

    problems = problems_of(path)
    for problem in problems:
        echo(str(problem))
    errors = sum(1 for problem in problems if problem.severity == "error")
    if errors:
        echo(counted(errors, "error"))
        raise typer.Exit(1)
    scenario = load(path)
    _show_samples(scenario)
    echo(f"{scenario.title}: {scenario.shape}. No errors.")


@app.command(cls=HelpCommand)
def show(name: shared.ScenarioPlace) -> None:
    """Show a scenario's lists and one prompt of each kind."""
    from camel.scenarios import load

    scenario = load(name)
    echo(f"{scenario.title}: {scenario.shape}")
    if scenario.labels:
        echo(f"labels: {', '.join(scenario.labels)}")
    if scenario.gated:
        echo("it runs only after an acknowledgment: see the comments in its scenario.toml")
    rows: list[tuple[str, ...]] = []
    for level in scenario.levels:
        given = "shipped" if level.prompt else "given"
        lists = given if level.given else f"{scenario.lists(level.name):,}"
        rows.append((level.name, f"{level.count:,}", lists, ", ".join(scenario.needs(level.name))))
    if rows:
        table(("level", "count", "lists", "depends on"), rows)
    _show_samples(scenario)


def _show_samples(scenario: Scenario) -> None:
    from camel.scenarios import sample

    for prompt in sample(scenario):
        echo(f"\n── {prompt.title}", "bold")
        echo(prompt.text)
    echo("")
