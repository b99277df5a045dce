"""Divides the limits of a model's endpoints among the workers of a cluster; runs in the coordinator.

The one decision to know: an endpoint without a limit in the configuration is divided only while it refuses calls. Then its
limit is learned here, once for all workers, and handed out as whole calls in flight (slots). If there are fewer slots than
workers that want one, they take turns. A slot is free for another worker only when its holder has reported that it no
longer uses it, or has lost its lease. The caller passes the time, so it runs on any clock.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec

from camel.models.governor import FORGIVEN, EndpointReport, Rates, Share, tolerated
from camel.models.subsets import ReplicaList, Subset, assign_subsets, subset_size

K = TypeVar("K")
V = TypeVar("V")


class Outbox(Generic[K, V]):
    """A table that is sent as changes. A row is in every message until one with it is acknowledged, so none is lost."""

    def __init__(self) -> None:
        self._rows: dict[K, V | None] = {}
        self._unsure: dict[K, int] = {}
        """Rows that are not acknowledged, with the number of the first message that has their present value."""
        self.number = 0
        """The number of the last message."""

    def put(self, key: K, value: V | None) -> None:
        """Set a row. `None` removes it."""
        if self._rows.get(key) != value:
            self._rows[key] = value
            self._unsure[key] = self.number + 1

    def replace(self, rows: Mapping[K, V]) -> None:
        """Set all rows, and remove the others."""
        for key in [*rows, *(self._rows.keys() - rows.keys())]:
            self.put(key, rows.get(key))

    def message(self) -> tuple[int, dict[K, V | None]]:
        """Return the number of the next message and the rows that it must contain."""
        self.number += 1
        return self.number, {key: self._rows[key] for key in self._unsure}

    def acknowledge(self, number: int) -> None:
        """Note that the receiver has the message with this number."""
        for key in [key for key, first in self._unsure.items() if first <= number]:
            del self._unsure[key]
            if self._rows[key] is None:
                del self._rows[key]


RENEWED = 5.0
"""Seconds for which a share is valid."""
SETTLE = 3.0
"""Seconds after a change of a limit until all workers have received it and have reported its effect."""
STORM = 1.5
"""Seconds from the first refusals until the limit is set to the number of calls that the endpoint has accepted."""
HOLD, LONGEST_HOLD = 3.0, 30.0
"""Seconds between two attempts to raise a learned limit. Doubles with each attempt that leads to refusals."""
PROBED = 60
"""Calls between two such attempts, or they come half as often."""
REFUSED = 0.03
"""Share of refusals that leads to no further cut, because some endpoints refuse a few calls at random."""
CUT, HEAVY = 0.95, 0.7
"""Factors by which a learned limit is cut; the second if most calls are refused."""
LEAST = 0.05
"""Lowest limit. Below 1 there are pauses between calls."""
CYCLE, SHORTEST_TURN, LONGEST_TURN = 200.0, 2.0, 15.0
"""Seconds within which every waiting worker should have had a turn, and the limits of a turn's length."""
UNUSED, UNUSED_SECONDS = 0.5, 30.0
"""If workers want less than this share of a learned limit for so many seconds, the endpoint is not divided any more."""
ASSIGN_EVERY = 0.5
"""Least seconds between two changes of the workers' subsets."""
ASK_AGAIN = 3.0
"""Seconds to wait for a worker's list of replicas before another worker is asked."""

_NO_REPORT = EndpointReport()


class PoolShare(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker's part of one model's endpoints: what has changed since the last message that it acknowledged."""

    shares: dict[str, Share | None] = {}
    """Shares by address. `None`: the coordinator sets no limit."""
    subset: Subset | None = None
    """The replicas that the worker uses; None: unchanged."""
    workers: int = 1
    """Number of workers that use the model."""
    send_list: bool = False
    """Whether the coordinator does not know the worker's list of replicas."""
    closed: bool = False
    """Whether endpoints without a share may not be called."""


Boxes = Mapping[str, "Outbox[tuple[str, str], Share | Subset]"]
"""What each worker does not know yet: shares and subsets by model and address."""


class SharedLimit:
    """Learns how many concurrent calls an endpoint accepts from all workers together."""

    def __init__(self, ceiling: float = math.inf) -> None:
        self.ceiling = self.limit = ceiling
        self.served = self.refused = 0
        """Calls since the last judgment."""
        self._score = 0.0
        """Refusals that served calls have not compensated."""
        self._blind_until = self._next = 0.0
        self._probe_until = 0.0
        """End of the observation of a raised limit. 0: it is not being observed."""
        self._seen_served = self._seen_refused = 0
        """Calls since the last change."""
        self.storm_until = self._accepted = 0.0
        """Until when the calls in flight of an endpoint that begins to refuse calls are observed, and the most so far."""
        self._before = ceiling
        self._hold, self._step = HOLD, 1.0
        self._unused_since = math.inf

    def judge(self, now: float, in_flight: int, wanted: int) -> None:
        """Update the limit by the calls since the last judgment."""
        served, refused, self.served, self.refused = self.served, self.refused, 0, 0
        if now < self._blind_until:
            return  # workers do not have the new limit yet
        forgiven = FORGIVEN if math.isinf(self.limit) else REFUSED
        self._score = max(0.0, self._score + refused - forgiven * served)
        self._seen_served, self._seen_refused = self._seen_served + served, self._seen_refused + refused
        if self._probe_until:
            if self._seen_refused > max(1.0, REFUSED * self._seen_served):
                self._hold = min(LONGEST_HOLD, 2 * self._hold)
                self._change(now, self._before)
            elif now >= self._probe_until + (0 if self._seen_served * REFUSED >= 1 else 2 * SETTLE):
                self._probe_until, self._hold = 0.0, HOLD
                self._step = min(2 * self._step, max(1.0, self.limit / 2))
        elif self._score > tolerated(in_flight):
            if math.isinf(self.limit):
                # What it accepts, once all workers have reported that.
                self._accepted = max(self._accepted, in_flight)
                self.storm_until = self.storm_until or now + STORM
                if now >= self.storm_until:
                    self._change(now, max(1.0, self._accepted))
                    self.storm_until = self._accepted = 0
            elif refused > served:
                self._change(now, max(LEAST, min(self.limit * HEAVY, max(1.0, in_flight))))
            else:
                self._change(now, max(LEAST, self.limit * CUT))
        else:
            self.storm_until = self._accepted = 0
        if self.limit < self.ceiling:
            self._relax(now, in_flight, wanted)

    def _change(self, now: float, limit: float) -> None:
        """Set a lower limit, and wait until it has an effect."""
        self.limit, self._score, self._probe_until, self._step = limit, 0.0, 0.0, 1.0
        self._seen_served = self._seen_refused = 0
        self._blind_until, self._next = now + SETTLE, now + self._hold

    def _relax(self, now: float, in_flight: int, wanted: int) -> None:
        """Raise the limit a little if it is used and was not raised recently. Forget it if it is not used for long."""
        if wanted >= UNUSED * self.limit:
            self._unused_since = math.inf
        elif now - (since := min(self._unused_since, now)) >= UNUSED_SECONDS:
            self.limit, self._unused_since = self.ceiling, math.inf
            return
        else:
            self._unused_since = since
        used = wanted > self.limit and in_flight >= 0.9 * self.limit - 1 and self._seen_served > 0
        # Among few calls, those that a raise costs weigh more.
        wait = 0.0 if self._seen_served >= PROBED else self._hold
        if self._probe_until or not used or now < self._next + wait:
            return
        self._before = self.limit
        self.limit = min(self.ceiling, self.limit + (self._step if self.limit >= 1 else self.limit))
        self._seen_served = self._seen_refused = 0
        self._probe_until, self._next = now + SETTLE, now + self._hold


class SharedEndpoint:
    """One endpoint: the reports of all workers on it, their sum, and who may use it."""

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self.limit = SharedLimit(math.inf if rates.ceiling is None else rates.ceiling)
        self._reports: dict[str, EndpointReport] = {}
        self._sums = [0] * (len(EndpointReport.__struct_fields__) - 1)
        self._summed: EndpointReport | None = None
        self._given: dict[str, int] = {}
        """Slots in the last share of each worker."""
        self._held: dict[str, int] = {}
        """Slots that each worker may be using."""
        self._all_held = 0
        self._since: dict[str, float] = {}
        """Start of each worker's turn, or of its wait for one."""
        self._called: set[str] = set()
        """Workers whose turn is next."""
        self._level = math.inf
        """Maximum number of slots of a worker, on average over time."""
        self._spare = 0.0
        self._turn = LONGEST_TURN
        self._others_wait = False
        self._parts: dict[str, tuple[float | None, float | None]] = {}
        """Each worker's requests and tokens per minute."""
        self._stale = True

    @property
    def is_divided(self) -> bool:
        """Whether workers need a share of it."""
        return self.limit.limit < math.inf or bool(self._rates.rpm or self._rates.tpm)

    @property
    def is_empty(self) -> bool:
        """Whether no worker reports on it."""
        return not self._reports

    @property
    def sum(self) -> EndpointReport:
        """The sum of all reports."""
        if self._summed is None:
            broken = 2 * self._sums[-1] > len(self._reports)
            self._summed = EndpointReport(*self._sums, broken=broken)
        return self._summed

    def hear(self, worker: str, report: EndpointReport | None) -> None:
        """Take a worker's report. `None`: it does not use the endpoint any more."""
        old = self._reports.get(worker, _NO_REPORT)
        new = report or _NO_REPORT
        if report is None:
            self._reports.pop(worker, None)
            self._hold(worker, 0)
            for table in (self._given, self._held, self._since, self._parts):
                table.pop(worker, None)
            self._called.discard(worker)
        else:
            self._reports[worker] = report
            refused = new.refused - old.refused
            self.limit.refused += refused
            self.limit.served += new.calls - old.calls - refused - new.failed + old.failed
            self._hold(worker, max(new.allowed, new.in_flight))
        sums = self._sums
        for place, (after, before) in enumerate(zip(_figures(new), _figures(old), strict=True)):
            if after != before:
                sums[place] += after - before
        self._summed = None
        # A change of demand by less than a half is not worth a message.
        self._stale = self._stale or _demand(new).bit_length() != _demand(old).bit_length() or report is None

    def tick(self, now: float) -> None:
        """Update the limit, and what each worker may have of it. Called about twice a second while it is divided."""
        total = self.sum
        self.limit.judge(now, total.in_flight, total.in_flight + total.waiting)
        if self._stale and (self._rates.rpm or self._rates.tpm):
            demand = {worker: 1 + _demand(report) for worker, report in self._reports.items()}
            rpm, tpm = _parts(self._rates.rpm, demand), _parts(self._rates.tpm, demand)
            self._parts = {worker: (rpm.get(worker), tpm.get(worker)) for worker in demand}
        self._stale = False
        if self.limit.limit < math.inf:
            self._plan(now)
        else:
            self._given.clear()
            self._others_wait = False

    def share(self, worker: str, now: float) -> Share | None:
        """Return the share of a worker, which has just reported."""
        if not self.is_divided:
            return None
        slots = self._slots(worker, now) if self.limit.limit < math.inf else math.inf
        rpm, tpm = self._parts.get(worker, (None, None))
        if (self._rates.rpm and rpm is None) or (self._rates.tpm and tpm is None):
            slots = 0
        return Share(ceiling=slots, rpm=rpm, tpm=tpm, seconds=RENEWED, scarce=self._others_wait)

    def _plan(self, now: float) -> None:
        """Divide the slots max-min fairly: small demands are met, and the others get equal parts."""
        wants = {worker: _demand(report) for worker, report in self._reports.items()}
        slots, left, self._level = self._whole, self._whole, math.inf
        hungry = sorted(filter(None, wants.values()))
        for place, want in enumerate(hungry):
            rest = len(hungry) - place
            if want * rest > left:
                self._level = left / rest
                break
            left -= want
        self._others_wait = self._level < math.inf
        self._spare = 0.0 if self._others_wait or not wants else left / len(wants)
        waiting = sorted(
            (self._since.setdefault(worker, now), worker)
            for worker, want in wants.items()
            if want > (have := self._given.get(worker, 0)) and have < self._level
        )
        self._turn = max(SHORTEST_TURN, min(LONGEST_TURN, CYCLE * slots / max(1, len(waiting))))
        soon = max(0, slots - self._all_held) + len(waiting) // 10 + 2
        self._called = {worker for _, worker in waiting[:soon]}

    @property
    def _whole(self) -> int:
        return max(1, int(self.limit.limit + 1e-9))

    def _slots(self, worker: str, now: float) -> float:
        """Return how many slots the worker has from now on."""
        report = self._reports.get(worker, _NO_REPORT)
        # Its last share has reached it or never will, so this is exact.
        held = max(report.allowed, report.in_flight)
        have = self._given.get(worker, report.in_flight)
        target = min(_demand(report), self._level) + self._spare
        low, high = math.floor(target + 1e-9), math.ceil(target - 1e-9)
        room = self._whole - self._all_held + self._held.get(worker, 0)
        wanted = low
        if have >= high > low and (not self._others_wait or now < self._since.get(worker, 0.0) + self._turn):
            wanted = high
        elif have < high > low and (worker in self._called or not self._others_wait) and room > low:
            wanted = high
            self._called.discard(worker)
            # Turns that end together would leave many slots unused for a moment.
            self._since[worker] = now + self._turn * random.uniform(-0.25, 0.25)  # noqa: S311 - not a secret
        if wanted > have:
            wanted = max(have, min(wanted, room))
        if wanted < have:
            self._since[worker] = now  # it waits from now on
        self._given[worker] = wanted
        self._hold(worker, max(held, wanted))
        return min(wanted, self.limit.limit) if wanted == 1 else wanted

    def _hold(self, worker: str, slots: int) -> None:
        self._all_held += slots - self._held.get(worker, 0)
        self._held[worker] = slots


def _figures(report: EndpointReport) -> tuple[int, ...]:
    return msgspec.structs.astuple(report)[:-1]


def _demand(report: EndpointReport) -> int:
    return report.in_flight + report.waiting


def _parts(total: float | None, demand: Mapping[str, int]) -> dict[str, float]:
    """Divide a rate among workers, half of it evenly and half by demand."""
    if total is None or not demand:
        return {}
    asked = sum(demand.values())
    return {worker: total * (0.5 / len(demand) + 0.5 * wants / asked) for worker, wants in demand.items()}


class SharedEndpoints:
    """All endpoints of one model, and which of them each worker uses."""

    def __init__(self, model: str, rates: Rates, boxes: Boxes) -> None:
        self._model, self._rates, self._boxes = model, rates, boxes
        self._endpoints: dict[str, SharedEndpoint] = {}
        self._active: set[str] = set()
        """Endpoints that are divided or were refused calls."""
        self._used: dict[str, set[str]] = {}
        """The endpoints on which each worker reports."""
        self._lists: dict[str, tuple[str, ...]] = {}
        """Lists of replicas by their digest."""
        self._list_of: dict[str, str] = {}
        """The digest of each worker's list. Empty: all workers use all of its few replicas."""
        self._subsets: dict[str, set[str]] = {}
        self._unassigned = False
        self._asked_at = self._assigned_at = -ASK_AGAIN
        self._is_limited = any((rates.rpm, rates.tpm, rates.ceiling))

    @property
    def sums(self) -> dict[str, EndpointReport]:
        """The sum of all workers' reports, by address."""
        return {url: endpoint.sum for url, endpoint in self._endpoints.items()}

    def hear(
        self, worker: str, reports: Mapping[str, EndpointReport | None], listed: ReplicaList | None
    ) -> None:
        """Take a worker's changed reports, and its list of replicas if it has many."""
        used = self._used.setdefault(worker, set())
        for url, report in reports.items():
            if (endpoint := self._endpoints.get(url)) is None:
                endpoint = self._endpoints[url] = SharedEndpoint(self._rates)
            endpoint.hear(worker, report)
            if report is not None:
                used.add(url)
                if self._is_limited or endpoint.limit.refused:
                    self._active.add(url)
                continue
            used.discard(url)
            if endpoint.is_empty:
                del self._endpoints[url]
                self._active.discard(url)
        digest = listed.digest if listed else ""
        if listed and listed.packed and digest not in self._lists:
            self._lists[digest] = listed.unpack()
            self._unassigned = True
        if self._list_of.get(worker, "") != digest:
            self._unassigned = True
        self._list_of[worker] = digest

    def is_used_by(self, worker: str) -> bool:
        """Return whether a worker uses the model."""
        return worker in self._used

    def leave(self, worker: str) -> None:
        """Free what a worker without a lease had."""
        if worker in self._used:
            self.hear(worker, dict.fromkeys(self._used[worker]), None)
            for table in (self._used, self._list_of, self._subsets):
                table.pop(worker, None)
            self._unassigned = True

    def tick(self, now: float, expected: int) -> None:
        """Divide the endpoints that need it. `expected` is the number of workers that will be there soon."""
        for url in list(self._active):
            endpoint = self._endpoints[url]
            endpoint.tick(now)
            if not endpoint.is_divided and not endpoint.limit.storm_until:
                self._active.discard(url)
                for worker in self._used:
                    self._boxes[worker].put((self._model, url), None)
        if self._unassigned and now - self._assigned_at >= ASSIGN_EVERY:
            self._assigned_at = now
            self._assign(max(expected, len(self._used)))

    def share(self, worker: str, now: float) -> PoolShare:
        """Put what has changed for a worker that has just reported into its box, and return the rest of its share."""
        digest, box = self._list_of.get(worker, ""), self._boxes[worker]
        # Without a list the worker has few replicas, and may learn of one after the others.
        mine = self._used[worker] | self._subsets.get(worker, set()) if digest else self._active
        for url in self._active & mine:
            box.put((self._model, url), self._endpoints[url].share(worker, now))
        asks = bool(digest) and digest not in self._lists and now - self._asked_at >= ASK_AGAIN
        if asks:
            self._asked_at = now
        return PoolShare({}, workers=len(self._used), send_list=asks, closed=self._is_limited)

    def _assign(self, workers: int) -> None:
        """Give workers with the same list of replicas subsets of it."""
        self._unassigned = False
        groups: dict[str, list[str]] = {}
        for worker, digest in self._list_of.items():
            if digest in self._lists:
                groups.setdefault(digest, []).append(worker)
        self._lists = {digest: self._lists[digest] for digest in groups}
        for digest, group in groups.items():
            urls = self._lists[digest]
            found = assign_subsets(group, urls, subset_size(workers, len(urls)), self._subsets)
            self._subsets.update(found)
            places = {url: place for place, url in enumerate(urls)}
            counts = Counter(url for its in found.values() for url in its)
            for worker, its in found.items():
                positions = tuple(sorted(places[url] for url in its))
                subset = Subset(digest, positions, tuple(counts[urls[place]] for place in positions))
                self._boxes[worker].put((self._model, ""), subset)
