"""The status of a job, read from its folder.

The one decision to know: the status comes only from markers, `run.json` and the log. So it works for a run of any size,
while another process works on it, without opening its data.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from camel.core.errors import InputError
from camel.core.message import Usage
from camel.jobs.job import KEPT
from camel.jobs.ledger import Counted, stops_of
from camel.jobs.log import LOG, age_of, last_events, part_of
from camel.jobs.progress import Snapshot, StageState, items_in_journals
from camel.jobs.retry import open_retry
from camel.models.prices import ModelPrice
from camel.models.replica import ReplicaState, ReplicaTotals
from camel.runs.again import StageName
from camel.runs.control import read_wish
from camel.runs.layout import Layout, Segment
from camel.runs.plan import planned_layouts
from camel.runs.run import RunFolder, open_folder
from camel.runs.scores import SCORE_STAGE
from camel.runs.settings import Settings
from camel.storage import inside
from camel.storage.store import is_remote, open_store
from camel.storage.system import fcntl

FRESH = 120.0
"""Maximum age in seconds of a rate in the log that is still shown."""
LISTS_BEFORE = 256
"""Lists per shard in older runs, which do not record it."""


def job_folder(where: str | Path) -> RunFolder:
    """Return the folder of a run or another job; the folder of a report contains the job's folder."""
    folder = open_folder(where)
    inner = RunFolder(folder.root / KEPT)
    if folder.on_disk and not folder.exists and inner.read_local(LOG):
        return inner
    return folder


def read_status(where: str | Path) -> Snapshot:
    """Read the state of the run or job at a folder or an address."""
    folder = job_folder(where)
    start, last, end = last_events(folder)
    settings = _settings(folder, start)
    working = is_locked(folder.root)
    told = {stage.name: stage for stage in part_of(last, "stages", list[StageState], [])}
    planned = planned_shards(folder, settings, start) or {
        name: Layout([]) for name in folder.stages() if not folder.has_own_settings(name)
    }
    extra = {name: _begun(folder, name) for name in folder.stages() if name not in planned}
    price = part_of(start, "price", ModelPrice | None, None)

    def priced(usage: Usage) -> Usage:
        return replace(usage, usd=price.cost(usage)) if price else usage

    stages: list[StageState] = []
    whole = Counted()
    for name, plan in {**planned, **extra}.items():
        counted, rows = Counted(), 0
        for marker in folder.markers(name, folder.committed(name)):
            rows += marker.rows
            for one in (counted, whole) if name in planned else (counted,):
                one.add(marker, priced)
        known = told.get(name, StageState(name, 0, 0, 0))
        count = plan.active or max(rows, known.planned)
        # Items that had ended in open shards are in their journals.
        finished = min(count, max(rows, known.finished))
        if not working and folder.on_disk and finished > rows:
            # Only if the journals exist: committed files may have been removed.
            finished = min(finished, rows + items_in_journals(folder, name, plan))
        open_now = known.open if working else 0
        tokens = max(counted.usage.total, known.tokens)
        stages.append(
            StageState(name, count, rows, finished, open_now, counted.failed, tokens, name in extra)
        )
    stages += _retried(folder, told, working)
    own = [stage for stage in stages if not stage.extra]
    complete = bool(own) and all(stage.committed == stage.planned for stage in own)
    begun = bool(start) or any(stage.committed for stage in own)
    # The log includes calls of open shards; the markers include calls after its last line.
    logged, used = part_of(last, "usage", Usage, Usage()), whole.usage
    if logged.calls > used.calls:
        used = logged if logged.usd else priced(logged)
    age = age_of(last, FRESH) if last else None
    now = last if last and working and age is not None and age < FRESH else {}
    before = last or {}
    return Snapshot(
        run=folder.address,
        state="working" if working else "complete" if complete else "stopped" if begun else "new",
        journals=next((str(other) for name in planned if (other := folder.held_elsewhere(name))), ""),
        as_of=str(before.get("time", "")),
        age=age,
        paused=working and read_wish(folder) == "pause",
        workers=int(before.get("workers", 1)) if working else 0,
        scenario=str(settings.config.get("scenario", "") or (start or {}).get("title", "")),
        model=str(settings.config.get("model.name", "") or (start or {}).get("model", "")),
        stages=tuple(stages),
        stops=stops_of(dict(whole.counts.most_common())),
        usage=used,
        models=part_of(last, "models", dict[str, Usage], whole.by_model)
        if logged.calls >= used.calls
        else whole.by_model,
        tool_calls=max(whole.tools.calls, part_of(last, "tool_calls", int, 0)),
        money=used.usd if used.usd or price else None,
        expected=part_of(now, "expected", Usage | None, None),
        expected_money=part_of(now, "expected_money", float | None, None),
        calls_per_second=now.get("calls_per_second"),
        tokens_per_second=now.get("tokens_per_second"),
        in_flight=now.get("in_flight", 0),
        retries=before.get("retries", 0),
        rate_limited=before.get("rate_limited", 0),
        errors=before.get("errors", {}),
        replicas=part_of(now, "replicas", tuple[ReplicaState, ...], ()),
        replica_totals=part_of(now, "replica_totals", ReplicaTotals, ReplicaTotals()),
        elapsed=float(before.get("elapsed", 0.0)),
        eta=now.get("eta"),
        why="" if working or complete or not start else _why(end),
        forked_from=settings.forked_from,
        resume=(start or {}).get("resume", ""),
        log=str(folder.root / LOG) if start else "",
    )


def check_finished(run: str, what: str) -> None:
    """Raise an `InputError` for an incomplete run, because data made from it must not change."""
    now = read_status(run)
    own = [stage for stage in now.stages if not stage.extra]
    if not own or any(stage.committed < stage.planned for stage in own):
        how = f": {now.resume}" if now.resume and now.state == "stopped" else ""
        raise InputError(f"'{run}' is unfinished, and only complete runs can be {what}: finish it{how}")


def _settings(folder: RunFolder, start: dict[str, Any] | None) -> Settings:
    """Return the settings of a run; empty for other jobs."""
    try:
        return folder.settings()
    except InputError:
        if start is None or folder.exists:
            raise
        return Settings("", {}, "")


def _retried(folder: RunFolder, told: dict[str, StageState], working: bool) -> list[StageState]:
    """Return the state of the stages of an unfinished retry."""
    retry, found = open_retry(folder), list[StageState]()
    for name, shards in retry.stages.items() if retry else ():
        own_name = str(StageName(name, retry.number if retry else 0))
        done = sum(len(shards[shard]) for shard in folder.committed(own_name) & shards.keys())
        known = told.get(own_name, StageState(own_name, 0, 0, 0))
        items = sum(map(len, shards.values()))
        found.append(
            StageState(own_name, items, done, max(done, known.finished), known.open if working else 0)
        )
    return found


def _begun(folder: RunFolder, stage: str) -> Layout:
    """Return the planned size of a stage that was added after the run."""
    if stage.startswith(SCORE_STAGE):  # as many as there are conversations
        return Layout([])
    begun = folder.begun_with(stage)
    count = int(begun.get("count", 0) or begun.get("conversations", 0))
    return Layout([Segment(count, int(begun.get("shard_size", 1)))])


def planned_shards(
    folder: RunFolder, settings: Settings | None = None, start: dict[str, Any] | None = None
) -> dict[str, Layout]:
    """Return the planned size of each stage; empty if unknown, as for an import."""
    settings = settings or folder.settings()
    if settings.planned or {"imported", "inputs"} & settings.config.keys():
        return planned_layouts(folder, settings.planned)
    # For a run of an earlier version, the log has the number of items and the settings have the size of shards.
    counts = (start or last_events(folder).start or {}).get("stages")
    size = int(settings.config.get("shard_size", 0)) or 1
    if not isinstance(counts, dict):
        return {}
    items = msgspec.convert(counts, dict[str, int])
    last = list(items)[-1:]
    return {
        name: Layout([Segment(count, size if name in last else LISTS_BEFORE)])
        for name, count in items.items()
    }


def _why(end: dict[str, Any] | None) -> str:
    """Return why an incomplete run has stopped."""
    if end is None:
        return "its process ended unexpectedly"
    if end.get("state") == "complete":
        return "it was complete, but files were removed since; resuming makes and pays for them again"
    return end.get("why") or end.get("error") or "its process ended unexpectedly"


def find_runs(where: str | Path) -> list[str]:
    """Return the runs at and below a folder or address; does not search inside a run."""
    store = open_store(where)
    try:
        if store.exists("run.json"):
            return [store.address]
        below = store.folders("")
    except OSError:
        return []
    found: list[str] = []
    for name in below:
        found += find_runs(f"{where}/{name}" if is_remote(where) else Path(where) / name)
    return found


def is_locked(root: Path) -> bool:
    """Return whether a process on this machine is working on the run."""
    try:
        with inside.open_file(root, ".lock") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
