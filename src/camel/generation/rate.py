"""The rate of a run's calls: assumed from its configuration, or measured in its log."""

from __future__ import annotations

import contextlib
from itertools import chain
from typing import Literal, NamedTuple

from camel.core.message import Usage
from camel.generation.config import Figure, GenerateConfig
from camel.generation.guesses import case_of
from camel.generation.plan import Range, in_words
from camel.jobs.log import last_events, part_of, read_log
from camel.runs.run import RunFolder

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
