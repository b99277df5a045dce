"""`camel credit`: which message of a conversation made the difference."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from camel.cli import options as shared
from camel.cli.command import CLUSTER_OPTIONS, Invocation, long_command
from camel.cli.fork import rules_of, using_of
from camel.cli.options import option
from camel.cli.output import echo

if TYPE_CHECKING:
    from camel.evaluation.credit_report import CreditFigures

CheckOption = Annotated[str, option("Success: gsm8k, answer (the input of that name), or an ending or finding such as done.", "CHECK")]  # fmt: skip
SamplesOption = Annotated[int, option("Maximum number of continuations per conversation.", "N", min=8)]
RowsOption = Annotated[str, option("Also write training rows: process_reward, step_preferences or advantages.", "FORMAT")]  # fmt: skip


@long_command(CLUSTER_OPTIONS)
def credit(
    call: Invocation,
    run: shared.RunPlace,
    check: CheckOption,
    samples: SamplesOption = 96,
    rows: RowsOption = "",
    model: shared.ModelName = "",
    base_url: shared.BaseUrl = "",
    local: shared.Local = False,
    where: shared.Where = "",
    max_messages: shared.MaxMessages = None,
    seed: shared.Seed = None,
    out: shared.Out = "",
    dry_run: shared.DryRun = False,
) -> None:
    """Measure which message made the difference."""
    from camel.core.checks import shown
    from camel.core.errors import InputError
    from camel.evaluation.credit_report import FORMATS
    from camel.library.credit import credit_job
    from camel.library.run import Run
    from camel.reports.numbers import counted

    if rows and rows not in FORMATS:
        raise InputError(f"--rows must be {', '.join(FORMATS)}, not {shown(rows)}")
    source = Run(run)
    job = credit_job(
        source.where(where) if where else source,
        check,
        samples=samples,
        using=using_of(call, model, base_url, local),
        rules=rules_of(max_messages),
        out=out,
        seed=seed or 0,
    )
    if dry_run:
        of = counted(len(job.known()), "conversation")
        call.expect(job, f"{of}, at most {samples:,} continuations of each, from its middle on average")
        return
    options = call.options(call.concurrency or (2 if local else 64))
    call.run(job, options, show=lambda made: _show(made, Path(job.place), rows))


def _show(made: CreditFigures, folder: Path, rows: str) -> None:
    import msgspec

    from camel.evaluation.credit_report import summary
    from camel.storage import inside

    for line in summary(made):
        echo(line)
    if rows:
        lines = b"".join(msgspec.json.encode(one) + b"\n" for one in made.rows(rows))  # pyright: ignore[reportArgumentType] - checked
        inside.write(folder, f"{rows}.jsonl", lines)
        echo(f"rows    {folder / rows}.jsonl")
