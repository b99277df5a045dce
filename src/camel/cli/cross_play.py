"""`camel evaluate cross-play`: whether outcomes depend on the model of the user, of the assistant, or on the pair."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from camel.cli import options as shared
from camel.cli.command import LOCAL_OPTIONS, Invocation, long_command
from camel.cli.options import argument, complete_runs, option
from camel.cli.output import echo, table

if TYPE_CHECKING:
    from camel.evaluation.cross_play_report import CrossPlayFigures

RunsArgument = Annotated[list[str], argument("RUN...", "Runs in which several models play user and assistant.", autocompletion=complete_runs)]  # fmt: skip
OutcomeOption = Annotated[list[str] | None, option("Outcome to compare: an ending, a finding, messages, tokens or score.NAME.", "NAME")]  # fmt: skip
WidthOption = Annotated[float, option("Half-width of intervals for which to compute the number of conversations.", "NUMBER")]  # fmt: skip


@long_command(LOCAL_OPTIONS)
def cross_play(
    call: Invocation,
    runs: RunsArgument,
    outcome: OutcomeOption = None,
    half_width: WidthOption = 0.05,
    where: shared.Where = "",
    out: shared.Out = "",
) -> None:
    """Compare the models that play user and assistant."""
    from camel.library.cross_play import cross_play_job

    job = cross_play_job(runs, outcome or (), half_width, where, out)
    call.run(job, call.options(), show=lambda made: _show(made, Path(job.place)))


def _show(made: CrossPlayFigures, folder: Path) -> None:
    from camel.evaluation.cross_play_report import NAME, effects_table
    from camel.reports.blocks import plain_table

    table(*plain_table(effects_table(made)))
    echo(f"models  user: {', '.join(made.users)}; assistant: {', '.join(made.assistants)}")
    echo(f"page    {folder / NAME}.html")
    echo(f"figures {folder / NAME}.json")
