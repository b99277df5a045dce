"""The rate of a run's calls, assumed or measured, and the lines with an estimate that are shown before the first call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import chain
from typing import Literal, NamedTuple

from msgspec.structs import replace

from camel.core.message import Usage
from camel.generation.config import Figure, GenerateConfig
from camel.generation.guesses import case_of
from camel.generation.opening import EARLIER
from camel.generation.plan import (
    Plan,
    Range,
    ShardSums,
    committed_in,
    in_words,
    is_alike,
    limits,
    make_plan,
    read_committed,
)
from camel.generation.reuse import Reused, look
from camel.generation.table_plan import count_rows
from camel.generation.toolboxes import RunTools
from camel.jobs.log import last_events, part_of, read_log
from camel.reports.numbers import counted, duration, money, short
from camel.runs.markers import Marker
from camel.runs.run import RunFolder, open_folder

ONE_START = 0.25
"""Assumed relative error of a measured rate, because the speed of endpoints varies."""
TELLING_CALLS, TELLING_SECONDS = 20, 5.0
"""Minimum number of calls, and of seconds, for a measured rate."""


class CallRate(NamedTuple):
    """Calls per second, and where the number comes from."""

    calls_per_second: Figure
    source: Literal["given", "measured", "assumed"]
    words: str
    in_flight: int = 0
    """Maximum number of conversations in flight while it was measured."""

    def hours(self, need: Range) -> Figure:
        """Return the hours that the calls take. The low estimate assumes few calls at the highest rate."""
        slow, likely, fast = self.calls_per_second
        cases = zip(need, (fast, likely, slow), strict=True)
        return Figure(*(max(0.0, case.calls) / rate / 3600 for case, rate in cases))


def assumed_rate(config: GenerateConfig) -> CallRate:
    """Return the rate from assumptions."""
    # A conversation has one call in flight at a time.
    seconds, most = config.plan.seconds_per_call, config.run.concurrency
    if config.inputs is None:
        most = min(most, config.loaded_scenario().count)
    rates = Figure(*(most / case_of(seconds, case) for case in (2, 1, 0)))
    return CallRate(rates, "assumed", f"{most:,} in flight, {in_words(seconds)} s per call, assumed")


def measured_rate(folder: RunFolder) -> CallRate | None:
    """Return the rate measured in the last process of a run that lasted long enough, or None."""
    found: tuple[float, float, int] | None = None
    first: tuple[int, float] | None = None
    last: tuple[int, float] | None = None
    newest = last_events(folder).progress  # may be newer than the log
    with contextlib.closing(read_log(folder)) as events:
        for event in chain([{**newest, "event": "progress"}] if newest else [], events):
            if event["event"] != "start" and "elapsed" in event:
                first = part_of(event, "usage", Usage, Usage()).calls, float(event["elapsed"])
                last = last or first
            if first and last:
                calls, seconds = last[0] - first[0], last[1] - first[1]
                if calls >= TELLING_CALLS and seconds >= TELLING_SECONDS:
                    found = calls / seconds, seconds, 0
            if event["event"] == "start":
                if found:
                    found = *found[:2], int(event.get("concurrency", 0))
                    break
                first = last = None
    if found is None:
        return None
    rate, seconds, most = found
    lasted = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    return CallRate(
        Figure(rate * (1 - ONE_START), rate, rate * (1 + ONE_START)),
        "measured",
        f"{rate:,.3g} calls/s, measured over {lasted} with {most:,} in flight",
        most,
    )


class PlanEstimator:
    """Estimates a run from its committed shards as it proceeds. It ignores other finished items, because those that end
    first are short."""

    def __init__(self, folder: RunFolder, config: GenerateConfig, lists_of: str = "") -> None:
        self._folder, self._config, self._lists_of = folder, config, lists_of
        self._shards = committed_in(folder, config)
        self._items = count_rows(config) if config.inputs else None

    def add(self, marker: Marker) -> None:
        """Add a finished shard."""
        self._shards.setdefault(marker.stage, ShardSums()).add(read_committed(self._folder, marker))

    def plan(self) -> Plan:
        """Return the current plan."""
        return make_plan(self._config, committed=self._shards, items=self._items)

    def expected(self) -> Usage:
        """Return the estimated total usage over all processes."""
        plan = self.plan()
        usage, money = plan.need.likely.usage(), plan.money
        return usage if money is None else replace(usage, usd=money.likely)

    def forecast(self) -> Iterator[str]:
        """Yield lines about what the run reuses from another one, its estimated cost, and whether the budget suffices."""
        plan, config, source = self.plan(), self._config, self._lists_of
        if source:
            yield from reuse_lines(source, look(config, source), plan)
        if self._folder.store.folders(EARLIER) and not plan.stages[-1].done:
            yield "again   the settings have changed since the preview: its conversations are made again"
        yield f"expect  {summary(plan)}"
        for line in warnings(plan, config, rate_of(config).hours(plan.left)):
            yield f"budget  {line}"


def reuse_lines(source: str, reused: Reused, plan: Plan) -> list[str]:
    """Return lines about what a new run reuses of another, what is asked again and why, and the estimate."""
    kept, why = reused
    what = f"reuses its lists of {', '.join(kept)}" if kept else "reuses nothing"
    lines = [f"lists of {source}: {what}"]
    for reason in dict.fromkeys(why.values()):
        levels = ", ".join(level for level in why if why[level] == reason)
        lines.append(f"  asked again: the lists of {levels} ({reason})")
    last = plan.stages[-1]
    if not last.done:
        lines.append(f"  asked again: all {last.name}; total: {summary(plan)}")
    return lines


def summary(plan: Plan) -> str:
    """Return a plan as one line."""
    need, cost, direct = plan.need, plan.money, plan.direct
    tokens = [case.prompt + case.completion for case in need]
    parts = [
        counted(plan.items, plan.stages[-1].name.removesuffix("s")),
        f"about {short(need.likely.calls)} calls",
        f"{short(tokens[1])} tokens{span(*map(short, (tokens[0], tokens[2], tokens[1])), gap=' ')}",
    ]
    if cost is not None and cost.high:
        parts.append(f"{money(cost.likely)}{span(*map(money, (cost.low, cost.high, cost.likely)), gap=' ')}")
        parts += [f"{money(direct.likely)} without --batch"] if direct and plan.batched else []
    return ", ".join(parts)


def span(low: str, high: str, likely: str, *, gap: str = "   ") -> str:
    """Return the range of an estimate as text. Return an empty string if all three values are equal."""
    return "" if low == high == likely else f"{gap}({low} to {high})"


def warnings(plan: Plan, config: GenerateConfig, hours: Figure) -> list[str]:
    """Return a line for each limit of the budget that will or may be reached before the run is complete."""
    tools = RunTools(config, config.loaded_scenario())
    lines = ["calls of tools, and the replies after them, are not in this estimate"] if tools else []
    for one in limits(plan, config.budget, hours):
        limit, likely, high = (_amount(one.name, value) for value in (one.limit, *one.expected[1:]))
        if one.enough == "no":
            share = one.limit / one.expected.likely
            # Hours apply to one process; the other limits apply to the run and have to be raised.
            more = "" if one.name == "hours" else "raise [budget], and "
            lines.append(
                f"{limit} will not suffice: about {likely} are expected, so the run stops after about {share:.0%}; "
                f"{more}the same command resumes it"
            )
        elif one.enough == "perhaps":
            lines.append(f"{limit} may not suffice: {likely} are likely, and up to {high} possible")
    if config.budget.usd is not None and plan.price is None:
        lines.append(
            "budget.usd needs the model's price: set model.price, or limit tokens instead; `camel generate` will not start"
        )
    return lines


def rate_of(config: GenerateConfig, given: float | None = None, source: str = "") -> CallRate:
    """Return the expected rate of calls: `given`, or measured in this run or the one whose lists it reuses, or assumed."""
    if given is not None:
        return CallRate(Figure(given, given, given), "given", f"at the {given:,.6g} calls/s of --rate")
    folder = open_folder(config.where)
    source = source or (folder.settings().forked_from if folder.exists else "")
    for place in (folder, *([open_folder(source)] if source else ())):
        if is_alike(place, config) and (rate := measured_rate(place)):
            return rate
    return assumed_rate(config)


def _amount(name: str, value: float) -> str:
    if name == "usd":
        return money(value)
    return duration(3600 * value) if name == "hours" else f"{short(value)} {name}"
