"""`camel study`: how often which behaviour occurs in a run, as a table, figures, plots and a page."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from camel.cli.options import FiguresAsJson, RunPlace

if TYPE_CHECKING:
    from rich.console import Console

    from camel.core.model import Model
    from camel.engine.halt import Halt
    from camel.evaluation.findings import Looker
    from camel.evaluation.study import Gatherer, Study
    from camel.jobs.budget import Budget
    from camel.record.release import Release
    from camel.runs.reader import RunReader

PAGE = "study.html"
KEPT = "kept"
"""The folder, in that of a study, of what is kept from one to the next."""


def study(
    run: RunPlace,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where it is written; RUN/study unless given.")
    ] = None,
    judge: Annotated[
        bool, typer.Option("--judge", help="Ask a model whether conversations declared done were. It costs.")
    ] = False,
    sample: Annotated[
        int, typer.Option(metavar="N", help="How many of them to ask about.", min=1, max=5_000)
    ] = 100,
    model: Annotated[
        str, typer.Option(envvar="CAMEL_MODEL", metavar="NAME", help="The model that judges.")
    ] = "",
    base_url: Annotated[
        str, typer.Option(envvar="OPENAI_BASE_URL", metavar="URL", help="Its endpoint.")
    ] = "",
    local: Annotated[
        bool, typer.Option("--local", help="Judge with the tiny real model on this machine; no key.")
    ] = False,
    max_calls: Annotated[
        int | None, typer.Option(metavar="N", help="Calls that the judging may take.")
    ] = None,
    max_money: Annotated[
        float | None, typer.Option(metavar="DOLLARS", help="What the judging may cost.")
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(metavar="N", help="Processes that look; one for each core unless given.", min=1),
    ] = None,
    acknowledge: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL", help="Study conversations with this label too: misalignment."),
    ] = None,
    as_json: FiguresAsJson = False,
) -> None:
    """Find behaviours in a run and measure them. What was looked through once is kept; the same command goes on."""
    from msgspec.structs import replace
    from rich.console import Console

    from camel.cli.asking import acknowledged, check_finished, chosen_model
    from camel.cli.export import canary_of
    from camel.cli.progress import leave
    from camel.core.errors import InputError
    from camel.engine.halt import Halt
    from camel.jobs.budget import Budget
    from camel.record.release import Release
    from camel.runs.reader import RunReader
    from camel.storage import inside

    # Progress must not get into the figures.
    console, halt = Console(highlight=False, stderr=as_json), Halt()
    if not judge and (local or max_calls or max_money):
        raise InputError("a model is asked only with --judge: add it, or leave out --local and the limits")
    records = RunReader(run)
    if not len(records):
        raise InputError(f"{run} has no finished conversations yet: camel status {run} says how far it is")
    known = bool(acknowledged(acknowledge))
    release = Release(known, canary_of(records.folder) if known else "")
    labels = _labels(records, release)
    folder = out or beside(records)
    kept = inside.path(folder, KEPT)
    made = asyncio.run(_looked(console, records, kept, halt, processes or os.cpu_count() or 1))
    if made is not None and judge:
        check_finished(run, "judged")
        budget = Budget(money=max_money, calls=max_calls)
        in_flight = 2 if local else 16
        with chosen_model(console, model, base_url, local, in_flight) as chat:
            judging = _Judging(records, kept, made, chat, sample, budget, halt)
            made = asyncio.run(judging.judged(console, in_flight))
    if made is None:
        leave(console, halt.reason)
    made = made._replace(study=replace(made.study, labels=labels, canary=release.canary if labels else ""))
    write(made.study, folder)
    if as_json:
        typer.echo(made.study.to_json().decode())
    else:
        _show(console, made.study, folder)


def _labels(run: RunReader, release: Release) -> list[str]:
    """The restricted labels in a run; raises unless they are acknowledged, before anything is read, shown or sent."""
    from camel.record.arrow import read_shard
    from camel.record.release import check_labels

    found: set[str] = set()
    with run.folder.opened(part.file for part in run.parts) as files:
        for file in files:
            table = read_shard(file, ["id", "labels"])
            for id, labels in zip(table["id"].to_pylist(), table["labels"].to_pylist(), strict=True):
                found |= check_labels(id, labels or (), release)
    return sorted(found)


class _Made(NamedTuple):
    study: Study
    gathered: Gatherer


async def _looked(console: Console, run: RunReader, kept: Path, halt: Halt, processes: int) -> _Made | None:
    """Look through the run and gather what was seen; None when something stopped it."""
    from camel.evaluation.findings import Looker
    from camel.evaluation.study import study_of

    looker = Looker(run, kept, processes=processes, halt=halt)
    if not await look(console, looker):
        return None
    settings = run.settings
    scenario = Path(str(settings.config.get("scenario", ""))).name
    return _Made(
        *study_of(
            looker.tables(), run=run.folder.address, scenario=scenario, fingerprint=settings.fingerprint
        )
    )


async def look(console: Console, looker: Looker) -> bool:
    """Look through a run, and show how far that is; False when something stopped it."""
    from camel.cli.panel import duration
    from camel.cli.progress import worked

    def line(seconds: float) -> str:
        return f"looked through {looker.done:,} of {looker.total:,} conversations · {duration(seconds)} gone"

    note = "stopping: shards being looked through end first"
    return await worked(console, looker.halt, note, line, looker.look())


class _Judging:
    """A judge being asked, within a budget."""

    def __init__(
        self,
        run: RunReader,
        kept: Path,
        made: _Made,
        chat: Model,
        sample: int,
        budget: Budget,
        halt: Halt,
    ) -> None:
        from camel.cli.spending import metered
        from camel.evaluation.deserved import Judging
        from camel.jobs.budget import MeteredModel

        self._made, self._chat = made, chat
        self._meter = metered(budget, chat.name, halt)
        self._judging = Judging(
            run,
            kept,
            made.gathered.done[:sample],
            MeteredModel(chat, self._meter),
            name=chat.name,
            halt=halt,
        )
        self._meter.before = self._judging.spent()

    async def judged(self, console: Console, concurrency: int) -> _Made | None:
        """Say what it will cost, ask, and add what the verdicts come to; None when something stopped it."""
        from msgspec.structs import replace

        from camel.cli.panel import money, say
        from camel.cli.progress import CALLS_END, worked
        from camel.cli.spending import expect

        judging, meter = self._judging, self._meter
        if not judging.sample:
            say(console, "no conversation ended as done: there is nothing to judge")
            return self._made
        if left := judging.left():
            expect(console, "judge", self._chat.name, judging.estimate(left), meter.price)

        def line(seconds: float) -> str:
            cost = f" · {money(meter.money)}" if meter.money else ""
            return f"judged {judging.finished:,} of {len(judging.sample):,} conversations · {meter.usage.calls:,} calls{cost}"

        work = judging.judge(concurrency=concurrency)
        if not await worked(console, judging.halt, CALLS_END, line, work, self._chat):
            return None
        deserved = judging.result(self._made.gathered.ended_done, meter.money)
        return self._made._replace(study=replace(self._made.study, deserved=deserved))


def beside(run: RunReader) -> Path:
    """The folder of a study: in that of its run, where that is on a disk."""
    if run.folder.on_disk:
        return run.folder.path("study")
    return Path("studies") / run.folder.address.rstrip("/").rpartition("/")[2]


def write(made: Study, folder: Path) -> None:
    """Write the figures, the plots and the page."""
    from camel.evaluation.study_page import page
    from camel.evaluation.study_plots import plots
    from camel.reports.plots import svg, write_plots
    from camel.storage import inside

    pictures = [(plot, svg(plot)) for plot in plots(made)]
    write_plots(folder, pictures)
    inside.write(folder, "study.json", made.to_json())
    inside.write(folder, PAGE, page(made, pictures))


def _show(console: Console, made: Study, folder: Path) -> None:
    from camel.cli.panel import counted, say, table
    from camel.evaluation.study import SEEN, UNSEEN, shown
    from camel.reports.html import interval, percent

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
