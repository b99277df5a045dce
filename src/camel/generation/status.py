"""How a run is doing: of one that is going on here, and of any folder as it lies there.

The one decision to know: a folder's state is read from its markers, `run.json` and the log alone, so that it can be asked
about a run of any size, while another process works on it, without opening its data.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import msgspec

from camel.core.errors import CamelError
from camel.core.message import Usage
from camel.generation.campaign import (
    ANSWERS,
    CONVERSATIONS,
    LISTS_PER_SHARD,
    Campaign,
    dearer,
    stops_of,
    usage_of,
)
from camel.generation.config import Figure
from camel.generation.plan import ONE_START, CallRate, Plan, committed_in, make_plan, read_committed
from camel.generation.retry import open_retry
from camel.generation.translate import STAGE as TRANSLATED
from camel.models.catalogue import ModelPrice
from camel.models.replica import ReplicaState
from camel.runs.again import StageName, named
from camel.runs.control import read_wish
from camel.runs.reader import LAST_STAGES
from camel.runs.run import RunFolder, open_folder
from camel.runs.verify import Planned
from camel.scenarios import load
from camel.storage.store import is_remote, open_store

LOG, NOW = "log.jsonl", "now.json"
"""What happened, a line each; and the figures of a run that is going on, written anew every few seconds."""
WINDOW = 15.0
"""Seconds over which rates are averaged."""
FRESH = 120.0
"""Seconds for which a rate in the log says something about now."""
TELLING_CALLS, TELLING_SECONDS = 20, 5.0
"""What a start must at least have done for its rate to say something."""
EXPECT_EVERY = 2.0
"""Seconds between two estimates of a run that is going on."""

T = TypeVar("T")
State = Literal["working", "complete", "stopped", "new"]


class StageState(msgspec.Struct, frozen=True):
    """How far a stage is."""

    name: str
    planned: int
    committed: int
    finished: int
    """Committed, or ended in a shard that is not whole yet."""
    open: int = 0
    failed: int = 0
    tokens: int = 0
    """Of its items; those of a translation are not part of the run's, for another model may have made it."""

    @property
    def title(self) -> str:
        """Its name, for people."""
        return named(self.name).words

    @property
    def is_translation(self) -> bool:
        """Whether it came after the run."""
        return self.name.startswith(TRANSLATED)


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A run at a moment."""

    run: str
    state: State
    journals: str = ""
    """Which folder has its journals, where not the one that is looked at: who works on it is known only there."""
    as_of: str = ""
    """When tokens, rates, money and endpoints were so; items that are committed are counted now."""
    age: float | None = None
    """Seconds since then; None where nothing is known of it."""
    paused: bool = False
    """Whether whoever works on it waits for a word to go on."""
    workers: int = 0
    """Processes at work, as far as is known."""
    scenario: str
    model: str
    stages: tuple[StageState, ...]
    stops: dict[str, int]
    """Why conversations ended."""
    usage: Usage
    """Of all starts."""
    money: float | None = None
    expected: Usage | None = None
    """What the whole run is expected to use."""
    expected_money: float | None = None
    calls_per_second: float | None = None
    tokens_per_second: float | None = None
    in_flight: int = 0
    retries: int = 0
    rate_limited: int = 0
    errors: dict[str, int] = {}
    replicas: tuple[ReplicaState, ...] = ()
    """The model's endpoints."""
    elapsed: float = 0.0
    """Seconds of this start."""
    eta: float | None = None
    """Seconds to go, at the rate of now."""
    why: str = ""
    """Why it stopped, if it did."""
    forked_from: str = ""
    resume: str = ""
    log: str = ""

    @property
    def failed(self) -> int:
        """Items that ended in an error."""
        return sum(stage.failed for stage in self.stages)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**msgspec.to_builtins(self), "failed": self.failed}


class RunLog:
    """The run's log: one JSON object a line, with a time. Holds figures and reasons; no prompts, no replies, no keys.

    For people, and never the truth about what was done: a line that cannot be written, on a full disk, is left out.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._torn = False

    def write(self, event: str, **fields: Any) -> dict[str, Any]:
        """Add an event and give it back."""
        entry = {"time": _time(), "event": event, **fields}
        # After half a line, the next one begins on a line of its own.
        line = b"\n" * self._torn + msgspec.json.encode(entry) + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(line)
            self._torn = False
        except OSError:
            self._torn = True
        return entry

    def write_now(self, **figures: Any) -> None:
        """Put the figures of this moment where `camel status` finds them."""
        new = self.path.with_name(f".{NOW}")
        with contextlib.suppress(OSError):
            new.write_bytes(msgspec.json.encode({"time": _time(), **figures}))
            new.replace(self.path.with_name(NOW))

    def forget_now(self) -> None:
        """Take them away: the run has ended, and its log says how."""
        with contextlib.suppress(OSError):
            self.path.with_name(NOW).unlink(missing_ok=True)


def read_log(folder: RunFolder) -> Iterator[dict[str, Any]]:
    """What has been written to a run's log, as far as it is whole."""
    for line in folder.read_beside(LOG).splitlines():
        try:
            entry: Any = msgspec.json.decode(line)
        except msgspec.MsgspecError:
            continue
        if isinstance(entry, dict) and "event" in entry:
            yield entry


class Watcher:
    """Looks at a campaign that is going on in this process."""

    def __init__(self, campaign: Campaign, *, resume: str = "") -> None:
        self._campaign, self._resume = campaign, resume
        self._forked_from = campaign.folder.settings().forked_from
        self._seen: deque[tuple[float, int, int]] = deque([(time.monotonic(), 0, 0)])
        self._expected: Usage | None = None
        self._expected_at = 0.0
        self._shards = committed_in(campaign.folder, campaign.config)
        told = _of(_last_events(campaign.folder)[1], "stages", list[StageState], [])
        known = {stage.name: stage.finished for stage in told}
        # A start that ends at once, as at a budget that is used up, does not get to all that is in the journals.
        self._ended = {
            stage.name: min(
                known[stage.name],
                sum(len(stage.indices(shard)) for shard in campaign.folder.committed(stage.name))
                + _in_journals(campaign.folder, stage.name, stage.shard_size, stage.count),
            )
            for stage in campaign.stages
            if known.get(stage.name)
        }
        """Items that had ended when this start began, by stage."""

    def committed(self, stage: str, shard: int) -> None:
        """Take note of a finished shard."""
        folder = self._campaign.folder
        self._shards.setdefault(stage, []).append(read_committed(folder, folder.marker(stage, shard)))

    def plan(self) -> Plan:
        """What the run takes, by what it has committed."""
        return make_plan(self._campaign.config, committed=self._shards)

    def now(self, state: State = "working") -> Snapshot:
        """The campaign at this moment."""
        campaign, meter = self._campaign, self._campaign.meter
        clock = time.monotonic()
        used = meter.before + meter.usage
        calls, tokens = self._rates(clock, meter.usage)
        if self._expected is None or clock - self._expected_at > EXPECT_EVERY or state != "working":
            self._expected, self._expected_at = self._estimate(), clock
        expected = self._expected if state != "complete" else used
        left = max(0, expected.calls - used.calls)
        return Snapshot(
            run=campaign.folder.address,
            state=state,
            as_of=_time(),
            age=0.0,
            paused=campaign.halt.paused and state == "working",
            workers=campaign.workers if state == "working" else 0,
            scenario=campaign.scenario.name,
            model=campaign.config.model.name,
            stages=tuple(
                StageState(
                    name,
                    tally.planned,
                    tally.committed,
                    max(tally.finished, self._ended.get(name, 0)),
                    tally.open,
                    tally.failed,
                    tally.usage.total,
                )
                for name, tally in campaign.tallies.items()
            ),
            stops=dict(campaign.stops.most_common()),
            usage=used,
            money=meter.money,
            expected=expected,
            expected_money=None if meter.price is None else meter.price.cost(expected) + meter.dearer,
            calls_per_second=calls,
            tokens_per_second=tokens,
            in_flight=meter.in_flight,
            retries=meter.retries,
            rate_limited=meter.rate_limited,
            errors=dict(meter.errors),
            replicas=tuple(campaign.replicas()),
            elapsed=clock - meter.started,
            eta=left / calls if calls and state == "working" else None,
            why=campaign.halt.reason,
            forked_from=self._forked_from,
            resume=self._resume,
            log=str(campaign.folder.root / LOG),
        )

    def _rates(self, clock: float, usage: Usage) -> tuple[float | None, float | None]:
        self._seen.append((clock, usage.calls, usage.total))
        while len(self._seen) > 2 and clock - self._seen[0][0] > WINDOW:
            self._seen.popleft()
        then, calls, tokens = self._seen[0]
        if clock - then < 0.05:
            return None, None
        return (usage.calls - calls) / (clock - then), (usage.total - tokens) / (clock - then)

    def _estimate(self) -> Usage:
        """What the whole run will have used, as a plan made now says: items that are not committed tell nothing, for
        those that end first are short."""
        expected = self.plan().need.likely.usage()
        used = self._campaign.meter.before + self._campaign.meter.usage
        return expected if expected.total > used.total else used


def read_status(where: str | Path) -> Snapshot:
    """The state of the run at a folder or an address."""
    folder = open_folder(where)
    settings = folder.settings()
    start, last, end = _last_events(folder)
    planned = planned_items(settings.config, start) or dict.fromkeys(folder.stages(), 0)
    stages: list[StageState] = []
    stops: Counter[str] = Counter()
    used = Usage()
    talk = max((count for name, count in planned.items() if name in LAST_STAGES), default=0)
    planned |= {name: talk for name in folder.stages() if name.startswith(TRANSLATED)}
    working = is_locked(folder.root)
    price = msgspec.convert(start["price"], ModelPrice) if start and start.get("price") else None
    told = {stage.name: stage for stage in _of(last, "stages", list[StageState], [])}
    more = 0.0
    for name, count in planned.items():
        rows = failed = tokens = 0
        for marker in folder.markers(name, folder.committed(name)):
            rows += marker.rows
            failed += int(marker.totals.get("failed", 0))
            tokens += usage_of(marker.totals).total
            if name.startswith(TRANSLATED):
                continue
            used += usage_of(marker.totals)
            more += dearer(marker.totals, price)
            stops.update(stops_of(marker.totals))
        # Items that had ended in shards that may not be committed: their journals have them.
        known = told.get(name, StageState(name, 0, 0, 0))
        finished = min(count or rows, max(rows, known.finished))
        if not working and folder.on_disk and finished > rows:
            # As long as those are there: somebody may have removed what was committed once.
            finished = min(finished, rows + _in_journals(folder, name, _size(settings.config, name), count))
        stages.append(
            StageState(
                name,
                count or rows,
                rows,
                finished,
                known.open if working else 0,
                failed,
                max(tokens, known.tokens),
            )
        )
    if retry := open_retry(folder):
        for name, shards in retry.stages.items():
            own_name = str(StageName(name, retry.number))
            done = sum(len(shards[shard]) for shard in folder.committed(own_name) & shards.keys())
            known = told.get(own_name, StageState(own_name, 0, 0, 0))
            items = sum(map(len, shards.values()))
            stages.append(
                StageState(own_name, items, done, max(done, known.finished), known.open if working else 0)
            )
    own = [stage for stage in stages if not stage.is_translation]
    complete = bool(own) and all(stage.committed == stage.planned for stage in own)
    begun = bool(start) or any(stage.committed for stage in own)
    # The log knows of calls in shards that are not committed yet; the markers of those after its last line.
    logged = _of(last, "usage", Usage, Usage())
    used = logged if logged.calls > used.calls else used
    model = str(settings.config.get("model.name", ""))
    age = _age(last) if last else None
    now = last if last and working and age is not None and age < FRESH else {}
    expected = _of(now, "expected", Usage | None, None)
    return Snapshot(
        run=folder.address,
        state="working" if working else "complete" if complete else "stopped" if begun else "new",
        journals=next((str(other) for name in planned if (other := folder.held_elsewhere(name))), ""),
        as_of=str((last or {}).get("time", "")),
        age=age,
        paused=working and read_wish(folder) == "pause",
        workers=int((last or {}).get("workers", 1)) if working else 0,
        scenario=str(settings.config.get("scenario", "")),
        model=model,
        stages=tuple(stages),
        stops=dict(stops.most_common()),
        usage=used,
        money=None if price is None else price.cost(used) + more,
        expected=expected,
        expected_money=None if price is None or expected is None else price.cost(expected) + more,
        calls_per_second=now.get("calls_per_second"),
        tokens_per_second=now.get("tokens_per_second"),
        in_flight=now.get("in_flight", 0),
        retries=(last or {}).get("retries", 0),
        rate_limited=(last or {}).get("rate_limited", 0),
        errors=(last or {}).get("errors", {}),
        replicas=_of(now, "replicas", tuple[ReplicaState, ...], ()),
        elapsed=float((last or {}).get("elapsed", 0.0)),
        eta=now.get("eta"),
        why="" if working or complete or not start else _why(end),
        forked_from=settings.forked_from,
        resume=(start or {}).get("resume", ""),
        log=str(folder.root / LOG) if start else "",
    )


def _in_journals(folder: RunFolder, stage: str, size: int, count: int) -> int:
    """Items of the shards that have journals and are not committed: no more can have ended there."""
    return sum(max(0, min(size, count - shard * size)) for shard in folder.journaled(stage))


def _size(config: dict[str, Any], stage: str) -> int:
    """Items that a stage commits together."""
    return int(config.get("shard_size", 0)) or 1 if stage in (CONVERSATIONS, ANSWERS) else LISTS_PER_SHARD


def _why(end: dict[str, Any] | None) -> str:
    """Why a run that is not complete has stopped."""
    if end is None:
        return "it was cut off"
    if end.get("state") == "complete":
        return "it was complete, and something of it was removed since; it is made again, and paid for again"
    return end.get("why") or end.get("error") or "it was cut off"


def find_runs(where: str | Path) -> list[str]:
    """The runs below a folder or an address, itself included; a run itself is not searched further."""
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
    """Whether a process on this machine is working on the run."""
    try:
        with (root / ".lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def progress_of(snapshot: Snapshot) -> dict[str, Any]:
    """What of a snapshot changes from line to line: for the log and for `--json`."""
    left_out = ("run", "scenario", "model", "resume", "log", "forked_from", "as_of", "age")
    return {name: value for name, value in snapshot.to_dict().items() if name not in left_out}


def _last_events(
    folder: RunFolder,
) -> tuple[dict[str, Any] | None, dict[str, Any] | None, dict[str, Any] | None]:
    """The last start, and the last progress and end that followed it."""
    return _last_of(read_log(folder), _read_now(folder))


def _last_of(
    events: Iterable[dict[str, Any]], now: dict[str, Any] | None
) -> tuple[dict[str, Any] | None, dict[str, Any] | None, dict[str, Any] | None]:
    start = last = end = None
    for event in events:
        match event["event"]:
            case "start":
                start, last, end = event, None, None
            case "progress" | "stage":
                last = event
            case "end":
                last = end = event
            case _:
                pass
    # Of this start, and newer than its last line: times are all of one form, so that they compare as texts.
    if start and end is None and now and str(now["time"]) >= str((last or start)["time"]):
        last = now
    return start, last, end


def measured_rate(folder: RunFolder) -> CallRate | None:
    """How fast the last start of a run was that lasted long enough to say so."""
    found: tuple[float, float, int] | None = None
    first: tuple[int, float] | None = None
    in_flight = 0
    events, now = list(read_log(folder)), _read_now(folder)
    if now and _last_of(events, now)[1] is now:
        events.append({"event": "progress", **now})
    for event in events:
        if event["event"] == "start":
            first, in_flight = None, int(event.get("concurrency", 0))
            continue
        if "elapsed" not in event:
            continue
        here = _of(event, "usage", Usage, Usage()).calls, float(event["elapsed"])
        first = first or here
        calls, seconds = here[0] - first[0], here[1] - first[1]
        if calls >= TELLING_CALLS and seconds >= TELLING_SECONDS:
            found = calls / seconds, seconds, in_flight
    if found is None:
        return None
    rate, seconds, most = found
    lasted = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    return CallRate(
        Figure(rate * (1 - ONE_START), rate, rate * (1 + ONE_START)),
        "measured",
        f"{rate:,.3g} calls/s, measured over {lasted} with {most:,} in flight",
    )


def _read_now(folder: RunFolder) -> dict[str, Any] | None:
    """The figures that a run that is going on, or was killed, has left."""
    try:
        now: Any = msgspec.json.decode(folder.read_beside(NOW))
    except msgspec.MsgspecError:
        return None
    return cast("dict[str, Any]", now) if isinstance(now, dict) and "time" in now else None


def _of(entry: dict[str, Any] | None, name: str, kind: Any, otherwise: T) -> T:
    """A part of an entry of the log; `otherwise` where it has none, or one of another version."""
    try:
        return msgspec.convert(entry[name], kind) if entry and name in entry else otherwise
    except msgspec.ValidationError:
        return otherwise


def _time() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def planned_items(config: dict[str, Any], start: dict[str, Any] | None) -> dict[str, int]:
    """Items by stage, from the log; else from the scenario where it still lies where it lay. An import has as many as it has."""
    if "imported" in config:
        return {}
    if start and isinstance(start.get("stages"), dict):
        return dict(start["stages"])
    try:
        scenario = load(str(config.get("scenario", ""))).resized(config.get("counts", {}))
    except CamelError:
        return {}
    planned = {level.name: scenario.lists(level.name) for level in scenario.asked}
    return planned | {CONVERSATIONS if scenario.talks else ANSWERS: scenario.count}


def planned_shards(folder: RunFolder) -> dict[str, Planned]:
    """What each stage of a run is to have; empty where that cannot be known, as of an import."""
    config = folder.settings().config
    start, _, _ = _last_events(folder)
    items = planned_items(config, start)
    return {name: Planned(count, _size(config, name)) for name, count in items.items()}


def _age(event: dict[str, Any] | None) -> float:
    try:
        then = datetime.fromisoformat((event or {})["time"])
    except (KeyError, TypeError, ValueError):
        return FRESH
    return (datetime.now(UTC) - then).total_seconds()
