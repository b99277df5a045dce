"""`camel study`: measure behaviors in a run, as a table, figures, plots and a page."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from camel.cli import options as shared
from camel.cli.command import CLUSTER_OPTIONS, Invocation, long_command
from camel.cli.options import acknowledged
from camel.cli.output import echo, table
from camel.core.errors import InputError

if TYPE_CHECKING:
    from camel.evaluation.study import Study

SAMPLE = 5_000
"""Maximum number of conversations that a judge is asked about."""


@long_command(CLUSTER_OPTIONS)
def study(
    call: Invocation,
    run: shared.RunPlace,
    judge: shared.Judge = None,
    sample: shared.Sample = 100,
    base_url: shared.BaseUrl = "",
    batch: shared.Batch = False,
    out: shared.Out = "",
    processes: shared.Processes = None,
    acknowledge: shared.Acknowledge = None,
    where: shared.Where = "",
) -> None:
    """Measure behaviors such as role flipping in a run."""
    from camel.evaluation.contest_records import AskedModel
    from camel.evaluation.findings import study_folder
    from camel.evaluation.study_job import StudyJob
    from camel.jobs.progress import expect_line
    from camel.jobs.state import price_of
    from camel.library.studies import read_judges
    from camel.models.spec import find_spec
    from camel.runs.run import open_folder
    from camel.storage.processes import cores

    judges, budget = read_judges(judge or (), batch=batch)
    if not judge and (batch or call.budget.counts):
        raise InputError("--batch and budgets work only with --judge MODEL: add it, or remove them")
    if len(judges) > 1:
        raise InputError(f"camel study takes one --judge, not {len(judges)}")
    if sample > SAMPLE:
        raise InputError(f"--sample must be at most {SAMPLE} for camel study, not {sample}")
    folder = Path(out) if out else study_folder(open_folder(run))
    chat = judges[0] if judges else None
    chat = find_spec(chat, base_url=base_url, batch=batch) if isinstance(chat, str) else chat
    in_flight = call.concurrency or (2 if chat and chat.is_here else 16)
    job = StudyJob(
        str(folder),
        run,
        processes=processes or (1 if call.address else cores()),
        judge=None if chat is None else AskedModel(chat.name, "", chat.window, chat.weights),
        sample=sample,
        acknowledge=acknowledged(acknowledge),
        where=where,
        models={} if chat is None else {"": chat},
    )

    def announce() -> Iterator[str]:
        if chat is not None and (judging := job.judging_known()) and (remaining := judging.left()):
            yield expect_line("judge", chat.name, judging.estimate(remaining), price_of(chat))

    call.run(
        job,
        call.options(in_flight, budget=call.budget if call.budget.counts else budget),
        announce=announce,
        show=_show,
    )


def _show(made: Study) -> None:
    from camel.evaluation.study import SEEN, UNSEEN, shown
    from camel.reports.numbers import counted, interval, percent

    rows: list[tuple[str, ...]] = []
    for one in shown(made.behaviors):
        seat = max(one.by_seat.items(), key=lambda item: item[1].rate)[0]
        rates = (one.conversations, one.messages)
        cells = (cell for rate in rates for cell in (percent(rate.rate), interval(rate)))
        rows.append((one.title, *cells, seat))
    echo(f"{counted(made.conversations, 'conversation')}, {counted(made.messages, 'message')}")
    if rows:
        head = ("behavior", "of conversations", "95%", "of messages", "95%", "most in")
        table(head, rows, {1, 3})
    absent = [one for one in made.behaviors if not one.conversations.count]
    if absent:
        most = percent(max(one.conversations.high for one in absent))
        names = ", ".join(one.title.lower() for one in absent)
        echo(f"not found (each in at most {most}): {names}")
    ends = ", ".join(f"{stop} {percent(rate.rate)} ({interval(rate)})" for stop, rate in made.stops.items())
    echo(f"ended   {ends}")
    if made.deserved:
        done = made.deserved
        more = f", {done.undecided:,} undecided" if done.undecided else ""
        judged = f"none could be judged{more}: the judge answered neither yes nor no"
        if done.rate.of:
            judged = f"deserved in {percent(done.rate.rate)} ({interval(done.rate)}) of {done.rate.of:,} judged{more}"
        echo(f"done    {judged}")
    echo(f"note    {SEEN} {UNSEEN}")
    echo(f"next    camel explore {shlex.quote(made.run)}")
    if not made.deserved:
        echo(f'        camel study {shlex.quote(made.run)} --judge MODEL    # was "done" deserved?')
    echo(f"        camel evaluate agents {shlex.quote(made.run)} --judge MODEL")
