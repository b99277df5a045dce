"""`camel evaluate humaneval`: how many of HumanEval's problems a model's programs solve (the paper's Table 3)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from camel.cli.command import SPREAD, How, long_command
from camel.cli.options import BaseUrl, DryRun, Local, ModelName, Seed, flag, option
from camel.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from camel.core.message import Sampling
    from camel.evaluation.humaneval.report import HumanEvalReport

UNCONTAINED = "--run-programs-of-the-model-without-a-sandbox"


@long_command(SPREAD)
def humaneval(
    how: How,
    model: ModelName = "",
    base_url: BaseUrl = "",
    local: Local = False,
    n: Annotated[int, option("Samples of each problem.", "N", "-n", min=1, max=10_000)] = 200,
    k: Annotated[
        list[int] | None,
        option("pass@k for this k, up to N; repeatable. 1, 10 and 100 unless given.", "K", "-k"),
    ] = None,
    problems: Annotated[int, option("The first so many problems, for a trial.", "N", min=1, max=164)] = 164,
    temperature: Annotated[float | None, option("Of the samples; 0.8 unless given.")] = None,
    top_p: Annotated[float | None, option("Of the samples; 0.95 unless given.")] = None,
    answer_tokens: Annotated[
        int | None, option("Tokens of an answer at most; 1024, with --local 300.", "N", min=1)
    ] = None,
    seed: Seed = None,
    out: Annotated[
        Path | None, option("Where it is kept; runs/humaneval-MODEL unless given.", "FOLDER")
    ] = None,
    processes: Annotated[
        int | None, option("Programs at a time; one for each core unless given.", "N", min=1)
    ] = None,
    dry_run: DryRun = False,
    uncontained: Annotated[
        bool,
        flag(
            UNCONTAINED,
            "Run what the model wrote as you, with all that you may do, where there is no bubblewrap.",
        ),
    ] = False,
) -> None:
    """Solve HumanEval and HumanEval+ with a model (the paper's Table 3). The same command continues after a stop."""
    from camel.cli.panel import say
    from camel.evaluation.humaneval.records import HumanEvalConfig, prompt_text
    from camel.evaluation.humaneval.report import check_extra
    from camel.evaluation.humaneval.solving import HumanEval
    from camel.jobs.progress import expect_line
    from camel.jobs.state import price_of
    from camel.models.spec import find_spec

    console = how.console
    ks = tuple(sorted(set(k or ())))
    if wrong := [one for one in ks if not 1 <= one <= n]:
        raise InputError(f"pass@{wrong[0]} needs as many samples: give -k from 1 to {n}, or a larger -n")
    check_extra()
    in_flight, local = how.concurrency or (2 if local else 64), local or model == "local"
    sampling = _sampling(temperature, top_p, answer_tokens or (300 if local else None))
    chat = find_spec("local" if local else model, base_url=base_url)
    folder = out or Path("runs") / f"humaneval-{_file_name(chat.name)}"
    config = HumanEvalConfig(chat.name, prompt_text(), sampling, seed, problems)
    job = HumanEval(str(folder), config, n, chat, contained=not uncontained, processes=processes, ks=ks)

    def announce() -> Iterator[str]:
        if left := job.left():
            yield expect_line("expect", config.model, job.estimate(left), price_of(chat))

    if dry_run:
        for line in announce():
            say(console, line)
        say(console, f"\n── {job.problems[0].name}", "bold")
        say(console, job.question(job.problems[0]))
        return
    how.run(job, how.options(in_flight), announce=announce, show=lambda made: _show(console, made, folder))


def _sampling(temperature: float | None, top_p: float | None, answer_tokens: int | None) -> Sampling:
    from msgspec.structs import replace

    from camel.evaluation.humaneval.records import SAMPLING

    given = {"temperature": temperature, "top_p": top_p, "max_tokens": answer_tokens}
    return replace(SAMPLING, **{name: value for name, value in given.items() if value is not None})


def _file_name(name: str) -> str:
    """A model's name as that of a folder."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:80] or "model"


def _show(console: Console, made: HumanEvalReport, folder: Path) -> None:
    from camel.cli.panel import say, table
    from camel.evaluation.humaneval import report
    from camel.reports.blocks import plain_table

    head, rows = plain_table(report.table({made.model: (made.humaneval, made.plus)}))
    table(console, head, rows, right=range(1, len(head)))
    for note in report.notes(made):
        say(console, note)
    say(console, f"page    {folder / report.PAGE}")
    say(console, f"text    {folder / report.MARKDOWN}")
    say(console, f"figures {folder / report.FIGURES}")
