"""`camel evaluate`: the paper's tables, a command each."""

from __future__ import annotations

import typer

from camel.cli.emergence import emergence
from camel.cli.evaluate_agents import agents
from camel.cli.humaneval import humaneval

app = typer.Typer(
    name="evaluate",
    help="Measure what agents and models can do, as the paper's tables do.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def evaluate() -> None:
    """Measure what agents and models can do, as the paper's tables do."""


app.command()(agents)
app.command()(humaneval)
app.command()(emergence)
