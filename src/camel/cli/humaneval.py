"""`camel evaluate humaneval`: how many HumanEval problems a model solves (the paper's Table 3)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from camel.cli import options as shared
from camel.cli.command import CLUSTER_OPTIONS, Invocation, long_command
from camel.cli.options import flag, option
from camel.cli.output import echo, table
from camel.core.errors import InputError

if TYPE_CHECKING:
    from camel.core.message import Sampling
    from camel.evaluation.humaneval.report import HumanEvalReport

UNCONTAINED = "--run-programs-of-the-model-without-a-sandbox"


@long_command(CLUSTER_OPTIONS)
def humaneval(
    call: Invocation,
    model: shared.ModelName = "",
    base_url: shared.BaseUrl = "",
    local: shared.Local = False,
    n: shared.Number = 200,
    k: Annotated[list[int] | None, option("Report pass@k for this value of k.", "K", "-k")] = None,
    problems: Annotated[int, option("Solve only the first N problems.", "N", min=1, max=164)] = 164,
    temperature: shared.Temperature = None,
    top_p: Annotated[float | None, option("Cumulative probability for top-p sampling.", "NUMBER")] = None,
    max_tokens: shared.MaxTokens = None,
    seed: shared.Seed = None,
    out: shared.Out = "",
    processes: shared.Processes = None,
    dry_run: shared.DryRun = False,
    uncontained: Annotated[bool, flag(UNCONTAINED, "The programs then have all your permissions.")] = False,
) -> None:
    """Let a model solve HumanEval and HumanEval+ (Table 3)."""
    from camel.evaluation.humaneval.records import HumanEvalConfig, prompt_text
    from camel.evaluation.humaneval.report import check_extra
    from camel.evaluation.humaneval.solving import HumanEval
    from camel.jobs.progress import expect_line
    from camel.jobs.state import price_of
    from camel.models.spec import find_spec

    ks = tuple(sorted(set(k or ())))
    if wrong := [one for one in ks if not 1 <= one <= n]:
        raise InputError(f"-k must be between 1 and the samples per problem (-n {n}), not {wrong[0]}")
    check_extra()
    in_flight, local = call.concurrency or (2 if local else 64), local or model == "local"
    sampling = _sampling(temperature, top_p, max_tokens or (300 if local else None))
    chat = find_spec("local" if local else model, base_url=base_url)
    folder = Path(out) if out else Path("runs") / f"humaneval-{_file_name(chat.name)}"
    config = HumanEvalConfig(chat.name, prompt_text(), sampling, seed, problems)
    job = HumanEval(str(folder), config, n, chat, contained=not uncontained, processes=processes, ks=ks)

    def announce() -> Iterator[str]:
        if remaining := job.left():
            yield expect_line("expect", config.model, job.estimate(remaining), price_of(chat))

    if dry_run:
        for line in announce():
            echo(line)
        echo(f"\n── {job.problems[0].name}", "bold")
        echo(job.question(job.problems[0]))
        return
    call.run(job, call.options(in_flight), announce=announce, show=lambda made: _show(made, folder))


def _sampling(temperature: str | None, top_p: float | None, max_tokens: int | None) -> Sampling:
    from msgspec.structs import replace

    from camel.cli.session import read_temperature
    from camel.evaluation.humaneval.records import SAMPLING

    given = {"top_p": top_p, "max_tokens": max_tokens}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if temperature is not None:
        changes["temperature"] = read_temperature(temperature)
    return replace(SAMPLING, **changes)


def _file_name(name: str) -> str:
    """Return a model's name in a form that is valid as a folder name."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:80] or "model"


def _show(made: HumanEvalReport, folder: Path) -> None:
    from camel.evaluation.humaneval import report
    from camel.reports.blocks import plain_table

    head, rows = plain_table(report.table({made.model: (made.humaneval, made.plus)}))
    table(head, rows, range(1, len(head)))
    for note in report.notes(made):
        echo(note)
    echo(f"page    {folder / report.PAGE}")
    echo(f"text    {folder / report.MARKDOWN}")
    echo(f"figures {folder / report.FIGURES}")
