"""The progress of a job that runs in this process, and its display."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Literal

import msgspec

from camel.core.message import Usage
from camel.core.model import Price
from camel.jobs.ledger import stops_of
from camel.jobs.log import last_events, part_of, time_of_day
from camel.jobs.runner import Runner
from camel.jobs.state import JobState, name_of
from camel.models.replica import ReplicaState, ReplicaTotals, worst_replicas
from camel.reports.numbers import counted, money, short
from camel.runs.again import named
from camel.runs.layout import Layout
from camel.runs.run import RunFolder

WINDOW = 15.0
"""Seconds over which rates are averaged."""
EXPECT_EVERY = 2.0
"""Seconds between two estimates of a running job."""
State = Literal["working", "complete", "stopped", "new"]


class StageState(msgspec.Struct, frozen=True):
    """The progress of a stage."""

    name: str
    planned: int
    committed: int
    finished: int
    """Items that are committed, or have ended in a shard that is not complete yet."""
    open: int = 0
    failed: int = 0
    tokens: int = 0
    """Tokens used by the stage's items."""
    extra: bool = False
    """Whether it was added after the run, such as a translation; its model may differ, and its tokens are not the run's."""

    @property
    def title(self) -> str:
        """The readable name of the stage."""
        return named(self.name).words


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a run at one time."""

    run: str
    state: State
    journals: str = ""
    """The folder with the run's journals, if it is elsewhere. Only there is it known whether a process is running."""
    as_of: str = ""
    """Time of the tokens, rates, costs and endpoint states; committed items are counted now."""
    age: float | None = None
    """Seconds since `as_of`; None if unknown."""
    paused: bool = False
    """Whether it is paused."""
    workers: int = 0
    """Number of running processes, as far as known."""
    scenario: str
    """The scenario, or the title of another job."""
    model: str
    stages: tuple[StageState, ...]
    stops: dict[str, int]
    """Number of conversations by stop reason."""
    usage: Usage
    """Total usage over all processes."""
    models: dict[str, Usage] = {}
    """Total usage over all processes by model, if there are several."""
    tool_calls: int = 0
    money: float | None = None
    expected: Usage | None = None
    """Estimated total usage of the run."""
    expected_money: float | None = None
    calls_per_second: float | None = None
    tokens_per_second: float | None = None
    in_flight: int = 0
    retries: int = 0
    rate_limited: int = 0
    errors: dict[str, int] = {}
    replicas: tuple[ReplicaState, ...] = ()
    """The models' endpoints. If there are many, those with most failures and the highest load."""
    replica_totals: ReplicaTotals = ReplicaTotals()
    """Sums over all endpoints."""
    elapsed: float = 0.0
    """Seconds since this process started."""
    eta: float | None = None
    """Remaining seconds at the current rate."""
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
        """Return a dict for JSON."""
        return {**msgspec.to_builtins(self), "failed": self.failed}


def progress_of(snapshot: Snapshot) -> dict[str, Any]:
    """Return the changing fields of a snapshot, for the log and `--json`."""
    left_out = ("run", "scenario", "model", "resume", "log", "forked_from", "as_of", "age")
    return {name: value for name, value in snapshot.to_dict().items() if name not in left_out}


class View:
    """Shows a running job. This base class shows nothing."""

    every = 60.0
    """Seconds between two snapshots."""

    def __enter__(self) -> View:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def show(self, now: Snapshot) -> None:
        """Show the current state."""

    def event(self, entry: dict[str, Any]) -> None:
        """Show an event of the log."""

    def note(self, text: str) -> None:
        """Show a line."""


class Printed(View):
    """Prints a line from time to time, for programs and notebooks."""

    every = 10.0

    def show(self, now: Snapshot) -> None:
        """Print the progress."""
        stages = [one for one in now.stages if one.committed < one.planned] or list(now.stages[-1:])
        parts = [f"{one.title} {one.finished:,} of {one.planned:,}" for one in stages[:1]]
        parts += [counted(now.usage.calls, "call")] if now.usage.calls else []
        parts += [money(now.money)] if now.money else []
        parts += [f"{now.failed:,} failed"] if now.failed else []
        self.note(" · ".join(parts))

    def event(self, entry: dict[str, Any]) -> None:
        """Print an event, if it has a text."""
        if text := entry.get("text"):
            self.note(text)

    def note(self, text: str) -> None:
        """Print a line."""
        print(text, flush=True)  # noqa: T201


class Watcher:
    """Observes a job that runs in this process."""

    def __init__(self, runner: Runner, *, resume: str = "") -> None:
        self._runner, self._resume = runner, resume
        folder = runner.folder
        self._seen: deque[tuple[float, int, int]] = deque([(time.monotonic(), 0, 0)])
        self._estimator = runner.job.estimator(folder)
        self._expected: Usage | None = None
        self._expected_at = 0.0
        told = part_of(last_events(folder, runner.job.log).progress, "stages", list[StageState], [])
        self._ended = {stage.name: stage.finished for stage in told if stage.finished}
        """Number of items that had ended before this process started, by stage. They may be in journals only."""
        self._in_journals: dict[str, int] = {}

    def forecast(self) -> Iterable[str]:
        """Return the estimate as lines to show before the first call."""
        return () if self._estimator is None else self._estimator.forecast()

    def committed(self, state: JobState, stage: str, shard: int) -> None:
        """Add a finished shard to the estimate."""
        if self._estimator is not None and state.job is self._runner.job and not named(stage).retry:
            self._estimator.add(state.folder.marker(stage, shard))

    def now(self, state: State = "working") -> Snapshot:
        """Return the current state of the job."""
        runner, meter, clock = self._runner, self._runner.meter, time.monotonic()
        usage = meter.usage
        used = meter.before + usage
        calls, tokens = self._rates(clock, usage)
        if self._estimator is not None and (
            self._expected is None or clock - self._expected_at > EXPECT_EVERY or state != "working"
        ):
            made = self._estimator.expected()
            self._expected, self._expected_at = made if made.total > used.total else used, clock
        expected = used if state == "complete" and self._expected else self._expected
        left = max(0, expected.calls - used.calls) if expected else None
        working = state == "working"
        tallies, replicas = runner.state.tallies, runner.replicas()
        counts: Counter[str] = sum((tally.counts for tally in tallies.values()), Counter[str]())
        return Snapshot(
            run=runner.state.folder.address,
            state=state,
            as_of=time_of_day(),
            age=0.0,
            paused=runner.halt.paused and working,
            workers=runner.workers if working else 0,
            scenario=runner.state.job.title,
            model=", ".join(dict.fromkeys(map(name_of, runner.state.job.models.values()))),
            stages=tuple(
                StageState(
                    name,
                    tally.planned,
                    tally.committed,
                    max(tally.finished, self._ended_before(name)),
                    tally.open,
                    tally.failed,
                    tally.usage.total,
                )
                for name, tally in tallies.items()
            ),
            stops=stops_of(dict(counts.most_common())),
            usage=used,
            models={name: one.before + one.usage for name, one in meter.models.items()}
            if len(meter.models) > 1
            else {},
            tool_calls=(meter.tools_before + meter.tools).calls,
            money=meter.money,
            expected=expected,
            expected_money=None if expected is None or meter.money is None else expected.usd,
            calls_per_second=calls if meter.models else None,
            tokens_per_second=tokens if meter.models else None,
            in_flight=meter.in_flight,
            retries=sum(one.retries for one in meter.models.values()),
            rate_limited=sum(one.rate_limited for one in meter.models.values()),
            errors=dict(meter.errors),
            replicas=tuple(worst_replicas(replicas)),
            replica_totals=ReplicaTotals.of(replicas),
            elapsed=clock - meter.started,
            eta=left / calls if left is not None and calls and working else None,
            why=runner.halt.reason,
            resume=self._resume,
            log=str(runner.folder.root / runner.job.log),
        )

    def _ended_before(self, name: str) -> int:
        """Return the number of items that had ended before this process started, if their journals still exist."""
        state = self._runner.state
        if name not in self._ended or state.folder is not self._runner.folder:
            return 0
        if name not in self._in_journals:
            stage = state.stages[name]
            most = items_in_journals(state.folder, name, stage.layout)
            self._in_journals[name] = min(self._ended[name], state.tallies[name].committed + most)
        return self._in_journals[name]

    def _rates(self, clock: float, usage: Usage) -> tuple[float | None, float | None]:
        self._seen.append((clock, usage.calls, usage.total))
        while len(self._seen) > 2 and clock - self._seen[0][0] > WINDOW:
            self._seen.popleft()
        then, calls, tokens = self._seen[0]
        if clock - then < 0.05:
            return None, None
        return (usage.calls - calls) / (clock - then), (usage.total - tokens) / (clock - then)


def expect_line(word: str, model: str, need: Usage, price: Price | None) -> str:
    """Return a line with the estimated tokens and cost of a step."""
    cost = "price unknown" if price is None else money(price.cost(need))
    return f"{word:<6}  {need.calls:,} calls of {model}, about {short(need.total)} tokens, {cost}"


def items_in_journals(folder: RunFolder, stage: str, layout: Layout) -> int:
    """Return the number of items in open shards that have journals. At most this many can have ended there."""
    return sum(len(layout.items(shard)) for shard in folder.journaled(stage))
