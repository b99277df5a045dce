"""`camel evaluate agents`: agents against single-shot answers, the paper's Table 1."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from camel.cli.command import SPREAD, How, long_command
from camel.cli.options import Acknowledge, Batch, CommonUrl, DryRun, Local, acknowledged, argument, option
from camel.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from camel.evaluation.agents import AgentsEvaluation
    from camel.evaluation.results import Evaluation


@long_command(SPREAD)
def agents(
    how: How,
    runs: Annotated[
        list[str], argument("RUN…", "Runs' folders, or s3://bucket/prefix; a row of the table each.")
    ],
    against: Annotated[
        list[str] | None,
        option(
            "single-shot (the run's own model), single-shot=MODEL, or another run of the same tasks; repeatable.",
            "SYSTEM",
        ),
    ] = None,
    judge: Annotated[
        list[str] | None, option("Who judges: a model's name, as for camel play; repeatable.", "MODEL")
    ] = None,
    summariser: Annotated[
        str, option("Who writes down what a conversation arrived at; the first judge unless given.", "MODEL")
    ] = "",
    model: Annotated[str, option("The base model of single-shot; the run's own unless given.", "NAME")] = "",
    base_url: CommonUrl = "",
    local: Local = False,
    batch: Batch = False,
    guided: Annotated[
        str, option("What holds judges to JSON: llama.cpp, vllm or openai, if their server can.", "SERVER")
    ] = "",
    sample: Annotated[int, option("Tasks of each run.", "N", min=1, max=100_000)] = 100,
    seed: Annotated[int, option("Of the draw of the tasks.")] = 0,
    repeats: Annotated[
        int, option("Tasks about which each judge is asked twice.", "N", min=0, max=100_000)
    ] = 20,
    judge_prompt: Annotated[
        str, option("A judge's prompt of your own, with <TASK>, <FIRST> and <SECOND>.", "FILE")
    ] = "",
    acknowledge: Acknowledge = None,
    out: Annotated[Path | None, option("Where it is written; RUN/evaluation unless given.", "FOLDER")] = None,
    dry_run: DryRun = False,
) -> None:
    """Compare agents with single-shot answers (the paper's Table 1). The same command continues after a stop."""
    from camel.cli.showing import guide
    from camel.evaluation.agents import AgentsEvaluation
    from camel.evaluation.competitors import (
        evaluation_folder,
        find_groups,
        find_models,
        single_shots,
    )  # fmt: skip
    from camel.evaluation.contest_records import JUDGE_PROMPT, AgentsConfig

    against = against or []
    config = AgentsConfig(
        tasks=sample,
        seed=seed,
        repeats=repeats,
        judge_prompt=judge_prompt or JUDGE_PROMPT,
        acknowledge=acknowledged(acknowledge),
        **(_brief() if local else {}),
    )
    groups, folder = find_groups(runs, against), out or evaluation_folder(runs[0])
    in_flight = how.concurrency or (2 if local else 16)
    if local:
        if judge or summariser or batch or any("=" in name for name in single_shots(against)):
            raise InputError("with --local the tiny model does everything: leave out names and --batch")
        judge, model = ["local"], "local"
    asked = find_models(
        groups,
        judge or [],
        summariser=summariser,
        base=model,
        against=against,
        base_url=base_url,
        guided=guide(guided),
        batch=batch,
    )
    job = AgentsEvaluation(str(folder), groups, config, *asked)

    def announce() -> Iterator[str]:
        if not how.as_json:
            _announce(how.console, job)
        return iter(())

    if dry_run:
        announce()
        return
    how.run(
        job, how.options(in_flight), announce=announce, show=lambda made: _show(how.console, made, folder)
    )


def _brief() -> dict[str, Any]:
    """The tiny model seldom comes to an end by itself, and writes a few dozen tokens a second."""
    from camel.core.message import Sampling

    brief = Sampling(temperature=0.2, max_tokens=256)
    return {"summary_sampling": brief, "single_shot_sampling": brief, "cut_replies": "keep"}


def _announce(console: Console, job: AgentsEvaluation) -> None:
    """Say what is compared, and what it will cost."""
    from camel.cli.command import announce_needs
    from camel.cli.panel import say
    from camel.evaluation.report_table import STEPS
    from camel.jobs.state import price_of
    from camel.reports.numbers import counted

    contest = job.contest
    for group in contest.groups:
        sample = contest.samples[group.name]
        left = f"; {sample.excluded:,} labelled ones are left out (--acknowledge)" if sample.excluded else ""
        say(
            console,
            f"{group.name}: {counted(len(sample.tasks), 'task')} of {sample.of:,} conversations{left}",
        )
        say(console, f"  {' / '.join(contest.systems(group.name))}")
    asked = [job.summariser, *job.writers.values(), *job.judges]
    seats = {one.name: job.models[one.seat] for one in asked}
    steps = [(STEPS[need.kind], need) for need in contest.estimate()]
    announce_needs(console, steps, lambda name: price_of(seats[name]))


def _show(console: Console, made: Evaluation, folder: Path) -> None:
    from camel.cli.panel import say, table
    from camel.evaluation.report import FIGURES, MARKDOWN, PAGE
    from camel.evaluation.report_table import points, share
    from camel.evaluation.report_table import table as lines

    rows: list[tuple[str, ...]] = []
    for row in lines(made):
        shares = [share(value) for value in (row.draws, row.losses, row.wins)]
        rows.append((row.dataset, row.evaluation, f"{row.a} / {row.b}", *shares, f"{row.of:,}"))
    head = ("dataset", "evaluation", "first / second", "draw", "second wins", "first wins", "verdicts")
    table(console, head, rows, right=range(3, 7))
    for one in points(made):
        say(console, f"· {one}")
    for one in made.ratings:
        say(
            console,
            f"{one.rank}. {one.system}  {one.rating.value:+.0f} ({one.rating.low:+.0f} – {one.rating.high:+.0f})",
        )
    say(console, f"page    {folder / PAGE}")
    say(console, f"report  {folder / MARKDOWN}")
    say(console, f"figures {folder / FIGURES}")
