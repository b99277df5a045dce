"""How a run is doing: of one that is going on here, and of any folder as it lies there.

The one decision to know: a folder's state is read from its markers, `run.json` and the log alone, so that it can be asked
about a run of any size, while another process works on it, without opening its data.
"""

from __future__ import annotations

import fcntl
import time
from collections import Counter, deque
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from camel.core.errors import CamelError
from camel.core.message import Usage
from camel.generation.campaign import ANSWERS, CONVERSATIONS, LISTS_PER_SHARD, Campaign, stops_of, usage_of
from camel.generation.plan import committed_in, make_plan, read_committed
from camel.generation.translate import STAGE as TRANSLATED
from camel.models.catalogue import Entry
from camel.models.pool import ReplicaState
from camel.scenarios import load
from camel.storage.control import read_wish
from camel.storage.reader import LAST_STAGES
from camel.storage.run import RunFolder, open_folder
from camel.storage.store import is_remote, open_store
from camel.storage.verify import Planned

LOG = "log.jsonl"
WINDOW = 15.0
"""Seconds over which rates are averaged."""
FRESH = 120.0
"""Seconds for which a rate in the log says something about now."""
EXPECT_EVERY = 2.0
"""Seconds between two estimates of a run that is going on."""

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
    """Of a translation, whose tokens are not part of the run's: another model may have made it."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A run at a moment."""

    run: str
    state: State
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
    """The model's endpoints, where there are several."""
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
        entry = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **fields}
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

    def committed(self, stage: str, shard: int) -> None:
        """Take note of a finished shard."""
        folder = self._campaign.folder
        self._shards.setdefault(stage, []).append(read_committed(folder, folder.marker(stage, shard)))

    def now(self, state: State = "working") -> Snapshot:
        """The campaign at this moment."""
        campaign, meter = self._campaign, self._campaign.meter
        clock = time.monotonic()
        used = meter.before + meter.usage
        calls, tokens = self._rates(clock, meter.usage)
        if self._expected is None or clock - self._expected_at > EXPECT_EVERY or state == "complete":
            self._expected, self._expected_at = self._estimate(), clock
        expected = self._expected if state != "complete" else used
        left = max(0, expected.calls - used.calls)
        return Snapshot(
            run=campaign.folder.address,
            state=state,
            paused=campaign.halt.paused and state == "working",
            workers=campaign.workers if state == "working" else 0,
            scenario=campaign.scenario.name,
            model=campaign.config.model.name,
            stages=tuple(
                StageState(name, tally.planned, tally.committed, tally.finished, tally.open, tally.failed)
                for name, tally in campaign.tallies.items()
            ),
            stops=dict(campaign.stops.most_common()),
            usage=used,
            money=meter.money,
            expected=expected,
            expected_money=None if meter.price is None else meter.price.cost(expected),
            calls_per_second=calls,
            tokens_per_second=tokens,
            in_flight=meter.in_flight,
            retries=meter.retries,
            rate_limited=meter.rate_limited,
            errors=dict(meter.errors),
            replicas=tuple(replicas) if len(replicas := campaign.replicas()) > 1 else (),
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
        expected = make_plan(self._campaign.config, committed=self._shards).need.likely.usage()
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
    ended = _finished(last)
    for name, count in planned.items():
        rows = failed = tokens = 0
        for marker in folder.markers(name, folder.committed(name)):
            rows += marker.rows
            failed += int(marker.totals.get("failed", 0))
            if name.startswith(TRANSLATED):
                tokens += usage_of(marker.totals).total
                continue
            used += usage_of(marker.totals)
            stops.update(stops_of(marker.totals))
        finished = min(count or rows, max(rows, ended.get(name, 0)))
        stages.append(StageState(name, count or rows, rows, finished, failed=failed, tokens=tokens))
    own = [stage for stage in stages if not stage.name.startswith(TRANSLATED)]
    complete = bool(own) and all(stage.committed == stage.planned for stage in own)
    working = is_locked(folder.root)
    # The log knows of calls in shards that are not committed yet; the markers of those after its last line.
    logged = msgspec.convert((last or {}).get("usage", {}), Usage)
    used = logged if logged.calls > used.calls else used
    model = str(settings.config.get("model.name", ""))
    price = msgspec.convert(start["price"], Entry) if start and start.get("price") else None
    recent = bool(last) and working and _age(last) < FRESH
    now = last if recent and last else {}
    return Snapshot(
        run=folder.address,
        state="working" if working else "complete" if complete else "stopped" if start else "new",
        paused=working and read_wish(folder) == "pause",
        workers=int((last or {}).get("workers", 1)) if working else 0,
        scenario=str(settings.config.get("scenario", "")),
        model=model,
        stages=tuple(stages),
        stops=dict(stops.most_common()),
        usage=used,
        money=None if price is None else price.cost(used),
        calls_per_second=now.get("calls_per_second"),
        tokens_per_second=now.get("tokens_per_second"),
        in_flight=now.get("in_flight", 0),
        retries=(last or {}).get("retries", 0),
        rate_limited=(last or {}).get("rate_limited", 0),
        errors=(last or {}).get("errors", {}),
        elapsed=float((last or {}).get("elapsed", 0.0)),
        eta=now.get("eta"),
        why="" if working or complete else (end or {}).get("why", "") or ("it was cut off" if start else ""),
        forked_from=settings.forked_from,
        resume=(start or {}).get("resume", ""),
        log=str(folder.root / LOG) if start else "",
    )


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
    left_out = ("run", "scenario", "model", "resume", "log", "forked_from")
    return {name: value for name, value in snapshot.to_dict().items() if name not in left_out}


def _last_events(
    folder: RunFolder,
) -> tuple[dict[str, Any] | None, dict[str, Any] | None, dict[str, Any] | None]:
    """The last start, and the last progress and end that followed it."""
    start = last = end = None
    for event in read_log(folder):
        match event["event"]:
            case "start":
                start, last, end = event, None, None
            case "progress" | "stage":
                last = event
            case "end":
                last = end = event
            case _:
                pass
    return start, last, end


def _finished(last: dict[str, Any] | None) -> dict[str, int]:
    """Items that had ended by the last line of the log, in shards that may not be committed: their journals have them."""
    try:
        return {
            stage.name: stage.finished
            for stage in msgspec.convert((last or {}).get("stages", []), list[StageState])
        }
    except msgspec.ValidationError:  # of another version
        return {}


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
    size = int(config.get("shard_size", 0)) or 1
    return {
        name: Planned(count, size if name in (CONVERSATIONS, ANSWERS) else LISTS_PER_SHARD)
        for name, count in items.items()
    }


def _age(event: dict[str, Any] | None) -> float:
    try:
        then = datetime.fromisoformat((event or {})["time"])
    except (KeyError, TypeError, ValueError):
        return FRESH
    return (datetime.now(UTC) - then).total_seconds()
