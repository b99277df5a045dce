"""`camel evaluate emergence`: what each added dataset teaches a model, the paper's Table 2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from camel.cli.command import ASKING, How, long_command
from camel.cli.options import CommonUrl, DryRun, argument, option

if TYPE_CHECKING:
    from rich.console import Console

    from camel.training.emergence.experiment import Emergence
    from camel.training.emergence.results import Figures


@long_command(ASKING)
def emergence(
    how: How,
    config: Annotated[Path, argument("CONFIG.toml", "The chain of models, the domains and the judges.")],
    judge: Annotated[
        list[str] | None,
        option("Who judges: a model's name, as for camel play; repeatable.", "MODEL"),
    ] = None,
    writer: Annotated[str, option("Who writes the questions; the first judge unless given.", "MODEL")] = "",
    base_url: CommonUrl = "",
    out: Annotated[str, option("Where it is written.", "FOLDER")] = "",
    humaneval: Annotated[
        int | None,
        option("Also HumanEval(+) of each model, N samples of each problem.", "N", min=0, max=10_000),
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Train a model on growing data and judge each step (the paper's Table 2). The same command continues after a stop."""
    from camel.cli.command import announce_needs
    from camel.training.emergence.emergence_config import read_config
    from camel.training.emergence.emergence_report import EmergenceJob

    given: dict[str, Any] = {"judges": judge, "writer": writer, "out": out, "humaneval": humaneval}
    settings, in_flight = read_config(config, **given), how.concurrency or 16
    job = EmergenceJob(settings, base_url=base_url, say=how.say, concurrency=in_flight)

    def announce() -> Iterator[str]:
        if not how.as_json:
            _announce(how.console, job)
            announce_needs(how.console, job.estimate(), job.price)
        return iter(())

    if dry_run:
        announce()
        return
    how.run(
        job, how.options(in_flight), announce=announce, show=lambda made: _show(how.console, made, job.out)
    )


def _announce(console: Console, study: Emergence) -> None:
    """Say what is asked of whom, and what is trained."""
    from camel.cli.panel import say
    from camel.reports.numbers import counted
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


def _show(console: Console, made: Figures, folder: Path) -> None:
    from camel.cli.panel import say, table
    from camel.reports.blocks import plain_table
    from camel.training.emergence import emergence_report

    head, rows = plain_table(emergence_report.table(made))
    table(console, head, rows, right=range(1, len(head)))
    for one in emergence_report.points(made):
        say(console, f"· {one}")
    say(console, f"page    {folder / emergence_report.PAGE}")
    say(console, f"report  {folder / emergence_report.MARKDOWN}")
    say(console, f"figures {folder / emergence_report.FIGURES}")
