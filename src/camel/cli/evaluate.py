"""`camel evaluate`: the experiments behind the paper's tables."""

from __future__ import annotations

import typer

from camel.cli.cooperation import cooperation
from camel.cli.emergence import emergence
from camel.cli.evaluate_agents import agents
from camel.cli.help import HelpCommand, HelpGroup
from camel.cli.humaneval import humaneval

app = typer.Typer(name="evaluate", cls=HelpGroup, no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def evaluate() -> None:
    """Run the evaluations of the CAMEL paper on your data."""


for command in (agents, humaneval, cooperation, emergence):
    app.command(cls=HelpCommand)(command)
