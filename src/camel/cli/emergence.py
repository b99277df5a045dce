"""`camel evaluate emergence`: how each added dataset changes a model's answers (the paper's Table 2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from camel.cli import options as shared
from camel.cli.command import MODEL_OPTIONS, Invocation, long_command
from camel.cli.options import argument, option
from camel.cli.output import echo, table

if TYPE_CHECKING:
    from camel.training.emergence.experiment import Emergence
    from camel.training.emergence.results import Figures


ConfigArgument = Annotated[Path, argument("STUDY.toml", "File that lists the base model, the datasets to add one by one, the subjects of the test questions, and the judges.")]  # fmt: skip
HumanevalOption = Annotated[int | None, option("Also let each model solve HumanEval, with N samples per problem.", "N", min=0, max=10_000)]  # fmt: skip


@long_command(MODEL_OPTIONS)
def emergence(
    call: Invocation,
    config: ConfigArgument,
    judge: shared.Judge = None,
    writer: Annotated[str, option("Model that writes test questions where the file has none.", "MODEL")] = "",
    base_url: shared.BaseUrl = "",
    out: shared.Out = "",
    humaneval: HumanevalOption = None,
    dry_run: shared.DryRun = False,
) -> None:
    """Measure what each added dataset teaches a model (Table 2)."""
    from camel.cli.command import announce_needs
    from camel.training.emergence.emergence_config import read_config
    from camel.training.emergence.experiment import Emergence

    given: dict[str, Any] = {"judges": judge, "writer": writer, "out": out, "humaneval": humaneval}
    settings, in_flight = read_config(config, **given), call.concurrency or 16
    job = Emergence(settings, base_url=base_url, say=call.print, concurrency=in_flight)

    def announce() -> Iterator[str]:
        if not call.as_json:
            _announce(job)
            announce_needs(job.estimate(), job.price)
        return iter(())

    if dry_run:
        announce()
        return
    call.run(job, call.options(in_flight), announce=announce, show=lambda made: _show(made, job.out))


def _announce(study: Emergence) -> None:
    """Print the models, the questions, the judges and what is trained."""
    from camel.reports.numbers import counted
    from camel.training.stored_rows import Rows

    config = study.config
    echo(f"chain      {' → '.join(one.label for one in study.members())}")
    echo(f"questions  {' · '.join(f'{one.label} {one.questions:,}' for one in config.domains)}")
    echo(f"judged by  {', '.join(one.label for one in study.judges)}, in both orders")
    for one in study.untrained():
        rows = sum(len(Rows(path)) for path in one.rows)
        much = counted(one.steps, "step") if one.steps else f"{one.epochs:g} epochs"
        echo(f"train      {Path(one.out).name}: {much} of {one.batch:,} on {counted(rows, 'row')}")
    if config.humaneval:
        echo(f"HumanEval  {config.humaneval:,} samples of {config.problems:,} problems of each model")


def _show(made: Figures, folder: Path) -> None:
    from camel.reports.blocks import plain_table
    from camel.training.emergence import emergence_report

    head, rows = plain_table(emergence_report.table(made))
    table(head, rows, range(1, len(head)))
    for one in emergence_report.points(made):
        echo(f"· {one}")
    echo(f"page    {folder / emergence_report.PAGE}")
    echo(f"report  {folder / emergence_report.MARKDOWN}")
    echo(f"figures {folder / emergence_report.FIGURES}")
