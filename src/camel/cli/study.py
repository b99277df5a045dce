"""`camel study`: how often which behaviour occurs in a run, as a table, figures, plots and a page."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from camel.cli.command import SPREAD, How, long_command
from camel.cli.options import (
    Acknowledge,
    BaseUrl,
    Batch,
    Local,
    ModelName,
    RunPlace,
    acknowledged,
    flag,
    option,
)
from camel.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from camel.evaluation.study import Study


@long_command(SPREAD)
def study(
    how: How,
    run: RunPlace,
    out: Annotated[Path | None, option("Where it is written; RUN/study unless given.", "FOLDER")] = None,
    judge: Annotated[
        bool, flag("--judge", "Ask a model whether conversations declared done were. It costs.")
    ] = False,
    sample: Annotated[int, option("How many of them to ask about.", "N", min=1, max=5_000)] = 100,
    model: ModelName = "",
    base_url: BaseUrl = "",
    local: Local = False,
    batch: Batch = False,
    processes: Annotated[
        int | None, option("Processes that look; one for each core unless given.", "N", min=1)
    ] = None,
    acknowledge: Acknowledge = None,
) -> None:
    """Find behaviours in a run and measure them. What was looked through once is kept; the same command continues."""
    from camel.evaluation.findings import study_folder
    from camel.evaluation.study_job import StudyJob
    from camel.evaluation.windows import AskedModel
    from camel.jobs.progress import expect_line
    from camel.jobs.state import price_of
    from camel.models.spec import find_spec
    from camel.runs.run import open_folder

    if not judge and (local or batch or how.budget.counts):
        raise InputError("only --judge asks a model: add it, or leave out --local, --batch and the budget")
    in_flight = how.concurrency or (2 if local else 16)
    folder = out or study_folder(open_folder(run))
    chat = find_spec("local" if local else model, base_url=base_url, batch=batch) if judge else None
    job = StudyJob(
        str(folder),
        run,
        processes=processes or (1 if how.address else os.cpu_count() or 1),
        judge=None if chat is None else AskedModel(chat.name, "", chat.window, chat.weights),
        sample=sample,
        acknowledge=acknowledged(acknowledge),
        models={} if chat is None else {"": chat},
    )

    def announce() -> Iterator[str]:
        if chat is not None and (judging := job.judging_known()) and (left := judging.left()):
            yield expect_line("judge", chat.name, judging.estimate(left), price_of(chat))

    how.run(
        job,
        how.options(in_flight),
        announce=announce,
        show=lambda made: _show(how.console, made, folder),
    )


def _show(console: Console, made: Study, folder: Path) -> None:
    from camel.cli.panel import say, table
    from camel.evaluation.study import SEEN, UNSEEN, shown
    from camel.evaluation.study_report import PAGE
    from camel.reports.numbers import counted, interval, percent

    rows: list[tuple[str, ...]] = []
    for one in shown(made.behaviours):
        seat = max(one.by_seat.items(), key=lambda item: item[1].rate)[0]
        rows.append(
            (
                one.title,
                percent(one.conversations.rate),
                interval(one.conversations),
                percent(one.messages.rate),
                interval(one.messages),
                seat,
            )
        )
    say(console, f"{counted(made.conversations, 'conversation')}, {counted(made.messages, 'message')}")
    if rows:
        head = ("behaviour", "of conversations", "95%", "of messages", "95%", "most in")
        table(console, head, rows, right={1, 3})
    absent = [one for one in made.behaviours if not one.conversations.count]
    if absent:
        most = percent(max(one.conversations.high for one in absent))
        names = ", ".join(one.title.lower() for one in absent)
        say(console, f"not found (each in at most {most}): {names}")
    ends = ", ".join(f"{stop} {percent(rate.rate)} ({interval(rate)})" for stop, rate in made.stops.items())
    say(console, f"ended   {ends}")
    if made.deserved:
        done = made.deserved
        more = f", {done.undecided:,} undecided" if done.undecided else ""
        say(
            console,
            f"done    deserved in {percent(done.rate.rate)} ({interval(done.rate)}) of {done.rate.of:,} judged{more}"
            if done.rate.of
            else f"done    not one could be judged{more}: the judge answers neither yes nor no",
        )
    say(console, f"note    {SEEN} {UNSEEN}")
    judge = (
        "" if made.deserved else f"camel study {made.run} --judge asks a model whether “done” was deserved; "
    )
    say(
        console,
        f"judges  {judge}camel evaluate agents {made.run} lets models compare the work, camel vote lets people; "
        f"camel explore {made.run} to read",
    )
    say(console, f"page    {folder / PAGE}")
    say(console, f"figures {folder / 'study.json'}")
    say(console, f"plots   {folder / 'plots'}")
