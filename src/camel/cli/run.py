"""`camel run`: operate runs. Pause, resume and stop write a control file that reaches a run on any machine."""

from __future__ import annotations

import shlex
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camel.cli import options as shared
from camel.cli.help import HelpCommand, HelpGroup
from camel.cli.options import argument, flag, option
from camel.cli.output import echo, print_json, table, visible
from camel.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from camel.index.merge import Looking
    from camel.runs.control import Wish
    from camel.runs.garbage import Garbage
    from camel.runs.reader import RunReader

OLD = 15.0
"""Seconds after which the figures of a run in progress are shown as outdated."""
SHOWN = 20
"""Maximum number of files that a command lists."""
FIX = (
    "To fix it: restore the file from a copy. Without a copy, delete the file and its marker and rerun the command that "
    "wrote it; the shard is generated and paid for again. Then delete the folders index and text, and run camel run index."
)

FindingsOption = Annotated[bool, flag("--findings", "Also find behaviors such as role flipping, for the explorer's filters and plots.")]  # fmt: skip

app = typer.Typer(name="run", cls=HelpGroup, no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def run() -> None:
    """Pause, resume, stop, check and clean up runs."""


def pause(run: shared.RunPlace) -> None:
    """Pause a run: it makes no new calls until you resume it."""
    _request(run, "pause", f"paused: no new calls until camel run resume {shlex.quote(run)}", "pauses")


def resume(run: shared.RunPlace) -> None:
    """Resume a paused run."""
    _request(run, "go", "resumed", "resumes")


def stop(run: shared.RunPlace) -> None:
    """Stop a run when its current calls finish, as Ctrl-C does."""
    _request(run, "stop", "stopping after the calls in flight", "stops after its calls in flight")


def _request(run: str, what: Wish, here: str, elsewhere: str) -> None:
    """Write a request to pause, resume or stop to the run's folder, and report it. `here` is printed if a process works on the
    run now. `elsewhere` completes the report if that is not known here."""
    from camel.engine.controlled import EVERY_REMOTE
    from camel.jobs.status import job_folder, read_status
    from camel.runs.control import CONTROL, wish

    folder = job_folder(run)
    working = read_status(run).state == "working"
    if folder.on_disk and not working and what == "stop":
        raise InputError(f"no process is working on '{run}': there is nothing to stop")
    wish(folder, what)
    if working:
        typer.echo(here)
    elif folder.on_disk:
        typer.echo(f"no process is working on {run}: this applies when it is restarted")
    else:
        # Whether a process on another machine works on a run in an object store is not known here.
        later = "" if what == "stop" else "; otherwise this applies when it is restarted"
        typer.echo(
            f"requested in {run}/{CONTROL}: a process that works on the run {elsewhere} within {EVERY_REMOTE:g} s{later}"
        )


def status(run: shared.RunPlace, as_json: shared.AsJson = False) -> None:
    """Show a run's progress, cost and the command to continue it."""
    from rich.console import Console

    from camel.cli.panel import line, panel, stage_notes, stopped
    from camel.jobs.status import read_status
    from camel.reports.numbers import duration
    from camel.runs.run import JOURNALS

    now = read_status(run)
    console = Console(highlight=False)
    if as_json:
        print_json(now.to_dict())
        return

    if console.is_terminal:
        console.print(panel(now, min(96, console.width)))
    else:
        state = stopped(now.why, now.state) if now.why else "paused" if now.paused else now.state
        echo(f"{now.scenario} · {now.model} · {state}")
        for stage in now.stages:
            committed = f"{stage.committed:,} of {stage.planned:,} committed"
            echo(f"stage {stage.title}: {', '.join([committed, *stage_notes(now, stage)])}")
        echo(line(now))
        if now.stops:
            ends = ", ".join(f"{reason} {count:,}" for reason, count in now.stops.items())
            echo(f"ended: {ends}")
    echo(f"run     {now.run}{' (in progress)' if now.state == 'working' else ''}")
    if now.state == "working" and (now.age is None or now.age > OLD):
        old = "unknown" if now.age is None else f"{duration(now.age)} old"
        echo(
            f"figures {old}: only committed results are visible from this machine. "
            f"Run camel run status {shlex.quote(now.run)} where the run is executing for live figures.",
        )
    for replica in now.replicas:
        if now.state == "working" and replica.state != "closed":
            echo(f"endpoint {replica.url} does not answer; it gets no calls for a while")
    if now.journals and now.state != "complete":
        echo(
            f"journal {now.journals} ({JOURNALS}): only this folder shows whether a process is working on the run",
        )
    if now.paused:
        echo(f"paused  continue with camel run resume {shlex.quote(now.run)}")
    if now.forked_from:
        echo(f"forked  from {now.forked_from}")
    if now.log:
        echo(f"log     {now.log}")
    if now.resume and now.state in ("stopped", "new"):
        echo(f"resume  {now.resume}")


def list_(
    folder: Annotated[str, argument("FOLDER", "Folder to search, or s3://bucket/prefix.")] = "runs",
    as_json: shared.AsJson = False,
) -> None:
    """List the runs in a folder."""
    from camel.cli.panel import current, spent
    from camel.jobs.status import find_runs, read_status
    from camel.storage.store import is_remote

    if not is_remote(folder) and not Path(folder).is_dir():
        raise InputError(f"there is no folder '{folder}': give an existing folder with runs")
    rows: list[tuple[str, ...]] = []
    for path in find_runs(folder):
        try:
            now = read_status(path)
        except InputError as error:
            if as_json:
                print_json({"run": str(path), "state": "damaged", "error": str(error)})
            rows.append((str(path), "damaged", "", "", str(error)[:60], "", ""))
            continue
        if as_json:
            print_json(now.to_dict())
            continue
        stage = current(now)
        done = f"{stage.title} {stage.committed:,}/{stage.planned:,}" if stage else ""
        rows.append((now.run, now.state, now.scenario, now.model, done, f"{now.failed:,}", spent(now)))
    if as_json:
        return
    if not rows:
        typer.echo(f"no runs in {folder}")
        return
    head = ("run", "state", "scenario", "model", "stage", "failed", "spent")
    table(head, rows)


def verify(
    run: shared.RunPlace,
    unfinished: Annotated[bool, flag("--unfinished", "Accept a run that is not finished yet.")] = False,
    processes: shared.Processes = None,
    address: shared.Address = "",
    as_json: shared.AsJson = False,
) -> None:
    """Check the files of a run for damage."""
    import msgspec
    from rich.console import Console

    from camel.jobs.status import planned_shards
    from camel.runs.run import open_folder
    from camel.runs.verify import verify as verify_files

    folder = open_folder(run)
    console = Console(stderr=True, highlight=False)
    with shared.started(processes, address) as count, console.status("") as bar:

        def progress(done: int, of: int) -> None:
            bar.update(f"{done:,} of {of:,} files")

        report = verify_files(folder, planned_shards(folder), processes=count, progress=progress)
    fine = report.sound and (report.complete or unfinished)
    if as_json:
        print_json({**msgspec.to_builtins(report), "sound": report.sound, "complete": report.complete})
    else:
        problems: dict[str, list[str]] = {}
        for problem in report.problems:
            marked = f" (marker {problem.marker})" if problem.marker not in ("", problem.file) else ""
            problems.setdefault(f"{problem.stage}: {problem.file}{marked}", []).append(problem.what)
        for place, whats in list(problems.items())[:SHOWN]:
            typer.echo(visible(f"{place}: {'; '.join(whats)}"))
        if len(problems) > SHOWN:
            typer.echo(f"and {len(problems) - SHOWN:,} more: --json lists all")
        if any(problem.marker for problem in report.problems):
            typer.echo(FIX)
        for stage, count in report.missing.items():
            if count:
                missing = "1 shard is" if count == 1 else f"{count:,} shards are"
                typer.echo(visible(f"{stage}: {missing} not generated yet: rerun camel generate"))
        for note in report.notes:
            typer.echo(visible(f"note: {note}"))
        state = "all files are as committed" if fine else "problems found"
        typer.echo(f"{report.files:,} files, {report.rows:,} rows, {report.bytes:,} bytes: {state}")
    if not fine:
        raise typer.Exit(1)


def compact(
    run: shared.RunPlace,
    file_size: Annotated[int, option("Maximum size of a merged file, in megabytes.", "MB", min=1)] = 256,
    stage: shared.Stage = "",
    processes: shared.Processes = None,
    address: shared.Address = "",
    as_json: shared.AsJson = False,
) -> None:
    """Merge small files of a run into larger ones."""
    from camel.reports.numbers import counted
    from camel.runs.compact import Compaction
    from camel.runs.compact import compact as merge_shards
    from camel.runs.reader import RunReader

    records = RunReader(run, stage)

    def note(made: Compaction) -> None:
        if not as_json:
            typer.echo(f"shards {made.first:,} to {made.last:,}: {made.size:,} bytes")

    with shared.started(processes, address) as count:
        done = merge_shards(
            records.folder, records.stage, target=file_size * 10**6, processes=count, note=note
        )
    if as_json:
        print_json(done._asdict())
        return
    shards, files = counted(done.shards, "shard"), counted(done.files, "file")
    typer.echo(f"{shards} of {records.stage} in {files}, {done.made:,} of them new")


def gc(
    run: shared.RunPlace,
    yes: shared.Yes = False,
    dry_run: shared.DryRun = False,
    compacted: Annotated[
        bool, flag("--compacted", "Also remove small files that `camel run compact` has merged.")
    ] = False,
    as_json: shared.AsJson = False,
) -> None:
    """List files that a run does not need, and remove them."""
    import msgspec

    from camel.index.merge import unused
    from camel.runs.garbage import collect_garbage
    from camel.runs.run import open_folder

    # A question among lines of JSON could not be parsed.
    asks = not as_json and sys.stdin.isatty() and sys.stdout.isatty()

    def confirm(found: Garbage) -> bool:
        if not as_json:
            _show_garbage(found, SHOWN)
        return yes or (asks and typer.confirm("Remove them?"))

    found = collect_garbage(
        open_folder(run), dry_run=dry_run, compacted=compacted, derived=unused, confirm=confirm
    )
    if as_json:
        print_json({**msgspec.to_builtins(found), "dry_run": dry_run})
    else:
        if dry_run:
            _show_garbage(found, None)
        elif found.removed or not found.files:
            typer.echo(f"{_size(found)} removed")
        if found.kept:
            why = (
                "a process is working on the run"
                if found.working
                else "a process may be about to commit them"
            )
            young = f"they are less than {found.age / 60:,.0f} minutes old"
            typer.echo(f"{found.kept:,} uncommitted files are kept: {young}, and {why}")
    if found.files and not (dry_run or found.removed):
        if not asks:
            raise InputError("nothing was removed, because there is no terminal to confirm it: add --yes")
        typer.echo("nothing was removed")


def _show_garbage(found: Garbage, most: int | None) -> None:
    names = [*found.losers, *found.journals, *found.copies, *found.compacted, *found.indexes]
    for name in names[:most]:
        typer.echo(visible(name))
    if len(names) > len(names[:most]):
        typer.echo(f"and {len(names) - len(names[:most]):,} more: --dry-run lists all")
    typer.echo(f"{_size(found)} can be removed from {visible(found.run)}")


def _size(found: Garbage) -> str:
    from camel.reports.numbers import counted

    return f"{counted(found.files, 'file')}, {counted(found.bytes, 'byte')}"


def index(
    run: shared.RunPlace,
    text: Annotated[bool, flag("--text", "Also build an index for full-text search.")] = False,
    findings: FindingsOption = False,
    stage: shared.Stage = "",
    processes: shared.Processes = None,
    address: shared.Address = "",
    as_json: shared.AsJson = False,
) -> None:
    """Build the indexes that make a large run quick to explore."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from camel.index.merge import merge
    from camel.index.text import TextMade, make_text_index
    from camel.models.prices import cost
    from camel.reports.numbers import counted
    from camel.runs.reader import RunReader

    records = RunReader(run, stage)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    view = (console := Console(stderr=True)).is_terminal and not as_json
    made = TextMade(0, 0, 0)
    folder, stage = records.folder, records.stage
    with ExitStack() as stack:
        count = stack.enter_context(shared.started(processes, address))
        looking = _detect(console, records, count) if findings else None
        progress = stack.enter_context(Progress(*columns, console=console, disable=not view))
        tasks: dict[str, object] = {}

        def note(what: str, done: int, of: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=of)
            progress.update(tasks[what], completed=done, total=of)  # pyright: ignore[reportArgumentType]

        merged = merge(folder, stage, cost=cost, looking=looking, processes=count, note=note)
        if text:
            # The text index of a run in an object store is on the machine that searches.
            here = 1 if address and not folder.on_disk else count
            made = make_text_index(folder, stage, processes=here, note=note)
    if as_json:
        print_json({**merged._asdict(), **({"text": made._asdict()} if text else {})})
        return
    typer.echo(f"{merged.rows:,} {stage} in {merged.files:,} index files, {merged.made:,} of them new")
    if merged.built:
        typer.echo(f"{counted(merged.built, 'shard')} had no index")
    if text:
        typer.echo(f"{made.rows:,} {stage} in {made.indexes:,} text indexes, {made.made:,} of them new")


def _detect(console: Console, run: RunReader, processes: int) -> Looking:
    """Run the detectors on all conversations that have no results yet."""
    from camel.cli.panel import choose_view, stopped
    from camel.evaluation.findings import Findings, Looker, study_folder
    from camel.index.merge import Looking
    from camel.jobs.job import KEPT
    from camel.jobs.launch import JobOptions, Launch
    from camel.storage import inside

    kept = inside.path(study_folder(run.folder), KEPT)
    job = Findings(str(kept), run.folder.address, processes=processes)
    outcome = Launch(job, JobOptions(), choose_view(console, False)).run()
    if not outcome.complete:
        typer.echo(f"{stopped(outcome.reason)}; run the same command to continue", err=True)
        raise typer.Exit(outcome.exit_status)
    looker = Looker(run, kept)
    return Looking(looker.name, looker.found)


for command in (pause, resume, stop, status, list_, verify, compact, gc, index):
    app.command(command.__name__.rstrip("_"), cls=HelpCommand)(command)
