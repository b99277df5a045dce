"""`camel evaluate`: the paper's tables, a command each."""

from __future__ import annotations

import typer

from camel.cli import emergence, evaluate_agents, humaneval

app = typer.Typer(
    name="evaluate",
    help="Measure what agents and models can do, as the paper's tables do.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def evaluate() -> None:
    """Measure what agents and models can do, as the paper's tables do."""


evaluate_agents.register(app)
humaneval.register(app)
emergence.register(app)
