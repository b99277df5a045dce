"""`camel evaluate agents`: compare agents with single-shot answers (the paper's Table 1)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from camel.cli import options as shared
from camel.cli.command import CLUSTER_OPTIONS, Invocation, long_command
from camel.cli.completion import runs as complete_runs
from camel.cli.options import acknowledged, argument, option, typed_model
from camel.cli.output import echo, table
from camel.core.errors import InputError

if TYPE_CHECKING:
    from camel.evaluation.agents import AgentsEvaluation
    from camel.evaluation.results import Evaluation


RunsArgument = Annotated[list[str], argument("RUN", "Runs to evaluate. Each has its own rows in the table of results.", autocompletion=complete_runs)]  # fmt: skip
AgainstOption = Annotated[list[str] | None, option("System to compare the agents with: single-shot (answers of --model), single-shot=MODEL (of another model), or a run with the same tasks.", "SYSTEM")]  # fmt: skip
SummarizerOption = Annotated[str, option("Model that extracts the solution from each conversation.", "MODEL")]  # fmt: skip
SummaryTokensOption = Annotated[int | None, option("Maximum length of a summary. Default: a quarter of the summarizer's context window.", "TOKENS", min=1)]  # fmt: skip
RepeatsOption = Annotated[int, option("Number of tasks to judge twice, to measure how often a judge agrees with itself.", "N", min=0, max=100_000)]  # fmt: skip
JudgePromptOption = Annotated[str, option("File with your own prompt for the judge. It contains <TASK>, <FIRST> and <SECOND>.", "FILE")]  # fmt: skip


@long_command(CLUSTER_OPTIONS)
def agents(
    call: Invocation,
    runs: RunsArgument,
    against: AgainstOption = None,
    judge: shared.Judge = None,
    summarizer: SummarizerOption = "",
    summary_tokens: SummaryTokensOption = None,
    model: shared.ModelName = "",
    base_url: shared.BaseUrl = "",
    local: shared.Local = False,
    batch: shared.Batch = False,
    guided: shared.Guided = "",
    sample: shared.Sample = 100,
    seed: shared.Seed = 0,
    repeats: RepeatsOption = 20,
    judge_prompt: JudgePromptOption = "",
    acknowledge: shared.Acknowledge = None,
    where: shared.Where = "",
    out: shared.Out = "",
    dry_run: shared.DryRun = False,
) -> None:
    """Compare agents with single-shot answers (Table 1)."""
    from msgspec.structs import replace

    from camel.cli.session import read_guide
    from camel.evaluation.agents import (
        AgentsEvaluation,
        evaluation_folder,
        find_groups,
        find_models,
        single_shots,
    )
    from camel.evaluation.contest_records import JUDGE_PROMPT, AgentsConfig
    from camel.library.studies import read_judges

    against, usual = against or [], AgentsConfig()
    lengths: dict[str, Any] = _short_replies() if local else {"summary_sampling": usual.summary_sampling}
    if summary_tokens:
        lengths["summary_sampling"] = replace(lengths["summary_sampling"], max_tokens=summary_tokens)
    config = AgentsConfig(
        tasks=sample,
        seed=seed or 0,
        repeats=repeats,
        judge_prompt=judge_prompt or JUDGE_PROMPT,
        acknowledge=acknowledged(acknowledge),
        where=where,
        **lengths,
    )
    groups, folder = find_groups(runs, against), Path(out) if out else evaluation_folder(runs[0])
    in_flight = call.concurrency or (2 if local else 16)
    if local:
        if judge or summarizer or batch or any("=" in name for name in single_shots(against)):
            raise InputError("--local uses the small model for everything: remove model names and --batch")
        judge, model = ["local"], "local"
    model = model if local else typed_model(call.context, model, "")[0]
    judges, budget = read_judges(judge or (), batch=batch)
    asked = find_models(
        groups,
        judges,
        summarizer=summarizer,
        base=model,
        against=against,
        base_url=base_url,
        guided=read_guide(guided),
        batch=batch,
    )
    job = AgentsEvaluation(str(folder), groups, config, *asked)

    def announce() -> Iterator[str]:
        if not call.as_json:
            _announce(job)
        return iter(())

    if dry_run:
        announce()
        return
    call.run(
        job,
        call.options(in_flight, budget=call.budget if call.budget.counts else budget),
        announce=announce,
        show=lambda made: _show(made, folder),
    )


def _short_replies() -> dict[str, Any]:
    """Return reply limits for the small local model, which rarely stops by itself and writes a few dozen tokens per second."""
    from camel.core.message import Sampling

    brief = Sampling(temperature=0.2, max_tokens=256)
    return {"summary_sampling": brief, "single_shot_sampling": brief, "cut_replies": "keep"}


def _announce(job: AgentsEvaluation) -> None:
    """Print what is compared and the expected cost."""
    from camel.cli.command import announce_needs
    from camel.evaluation.report_table import STEPS
    from camel.jobs.state import price_of
    from camel.reports.numbers import counted

    contest = job.contest
    for group in contest.groups:
        sample = contest.samples[group.name]
        excluded = f"; {sample.excluded:,} labeled ones excluded (--acknowledge)" if sample.excluded else ""
        tasks = counted(len(sample.tasks), "task")
        echo(f"{group.name}: {tasks} of {sample.of:,} conversations{excluded}")
        echo(f"  {' / '.join(contest.systems(group.name))}")
    asked = [job.summarizer, *job.writers.values(), *job.judges]
    seats = {one.name: job.models[one.seat] for one in asked}
    steps = [(STEPS[need.kind], need) for need in contest.estimate()]
    announce_needs(steps, lambda name: price_of(seats[name]))


def _show(made: Evaluation, folder: Path) -> None:
    from camel.evaluation.report import FIGURES, MARKDOWN, PAGE
    from camel.evaluation.report_table import points, share
    from camel.evaluation.report_table import table as lines

    rows: list[tuple[str, ...]] = []
    for row in lines(made):
        shares = [share(value) for value in (row.draws, row.losses, row.wins)]
        rows.append((row.dataset, row.evaluation, f"{row.a} / {row.b}", *shares, f"{row.of:,}"))
    head = ("dataset", "evaluation", "first / second", "draw", "second wins", "first wins", "verdicts")
    table(head, rows, range(3, 7))
    for one in points(made):
        echo(f"· {one}")
    for one in made.ratings:
        span = f"{one.rating.low:+.0f} – {one.rating.high:+.0f}"
        echo(f"{one.rank}. {one.system}  {one.rating.value:+.0f} ({span})")
    echo(f"page    {folder / PAGE}")
    echo(f"report  {folder / MARKDOWN}")
    echo(f"figures {folder / FIGURES}")
