"""The pool: which replica a call goes to, and when.

The one decision to know: a conversation stays where it began. What is worth keeping is the replica's prefix cache, so load
decides where a conversation *starts* (rendezvous hashing of its session over the healthy replicas, none with more than
1.25 times its fair part) and only failure moves it. The session is the conversation, not the speaker: both agents' prompts
hold the same messages, and a replica that fails should move one conversation once.

The pool is passive: it sends nothing and retries nothing. The client takes a slot for each attempt and says how it ended.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from camel.core.errors import (
    DeadlineExceeded,
    InputError,
    MalformedReply,
    ModelError,
    NotAuthorised,
    RateLimited,
    RequestRejected,
    ServerFailed,
    Unreachable,
)
from camel.core.message import Usage
from camel.core.model import Request
from camel.models.discovery import Source
from camel.models.endpoint import proxy_for
from camel.models.governor import Governor, Rates, Share

FAILURES = 5
"""In a row, after which a replica is left alone for a while."""
PAUSE, LONGEST_PAUSE = 2.0, 30.0
"""Seconds that the first such while takes; each further one twice as long, up to the longest."""
IDLE = 30.0
"""Seconds without a call after which a conversation that nobody released counts as ended."""
REMEMBERED = 65_536
"""Sessions whose replica is known, at most."""
WARM, COLD = 0.9, 0.6
"""Shares of the prefix that a started conversation finds cached, above and below which a replica's cache is, or is not,
large enough for the conversations open on it."""

_NOTHING = Share(ceiling=0)

State = Literal["closed", "open", "half-open"]


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How calls are spread over replicas."""

    rates: Rates = Rates()
    """Of each replica."""
    open_per_replica: int | None = None
    """Conversations open on a replica at a time; `None` learns it from the cached tokens in replies."""
    load: float = 1.25
    """How many times its fair part of the conversations a replica may have."""

    def __post_init__(self) -> None:
        if self.open_per_replica is not None and self.open_per_replica < 1:
            raise InputError(f"open_per_replica must be at least 1, not {self.open_per_replica!r}")
        if not self.load >= 1:
            raise InputError(f"load must be at least 1, not {self.load!r}")


class ReplicaState(msgspec.Struct, frozen=True, kw_only=True):
    """A replica at a moment, for people."""

    url: str
    state: State
    limit: float | None
    """Calls in flight at most; `None` is no limit."""
    in_flight: int
    waiting: int
    """Calls of its conversations that wait for a place."""
    open: int
    """Conversations."""
    most_open: int | None
    calls: int
    refused: int
    """429 and 503."""
    failed: int
    cached: float
    """Share of the prompt tokens that it had in its cache."""
    failing: int = 0
    """Failures in a row."""
    said: str = ""
    """Its last failure."""


class Replica:
    """One server of the model."""

    def __init__(self, url: str, settings: PoolSettings, now: float) -> None:
        self.url, self.endpoint = url, f"{url}/chat/completions"
        self.proxy = proxy_for(url)
        self.governor = Governor(settings.rates, now=now)
        self.room = _Room(settings.open_per_replica)
        self.open = 0
        self.queue: deque[_Waiter] = deque()
        """Calls of started conversations that wait for a place here."""
        self.gone = False
        """No longer in the list."""
        self.failures = self.trips = 0
        self.until = 0.0
        """Left alone until then; 0 while it is healthy."""
        self.probing = False
        self.said = ""
        self.reached = False
        """Whether it ever answered, whatever it said."""

    def usable(self, now: float) -> bool:
        """Whether a call may be sent to it, as far as its health goes."""
        return not self.gone and (not self.until or (now >= self.until and not self.probing))

    def state(self, now: float) -> State:
        """Of its circuit breaker."""
        if not self.until:
            return "closed"
        return "open" if now < self.until else "half-open"

    def answered(self) -> None:
        """It is there, whatever it said."""
        self.failures = self.trips = 0
        self.until, self.probing = 0.0, False

    def failure(self, now: float, said: str, alone: bool) -> bool:
        """Count a failure; true if the replica is left alone from now on."""
        self.failures += 1
        self.said = said
        # A single endpoint is never left alone: the client's own pauses are all there is to do.
        if alone or not (self.probing or (not self.until and self.failures >= FAILURES)):
            return False
        pause = min(LONGEST_PAUSE, PAUSE * 2 ** min(self.trips, 10))
        self.trips += 1
        self.probing = False
        # Jitter: the workers of a cluster must not all come back at once.
        self.until = now + pause * random.uniform(0.5, 1.5)  # noqa: S311 - not for secrets
        return True


class _Room:
    """How many conversations a replica's cache can hold."""

    def __init__(self, given: int | None) -> None:
        self.most: float = math.inf if given is None else given
        self._learns = given is None
        self._expected = self._cached = self._calls = 0
        self._cuts = self._rest = self._good = 0
        self._patience = 1
        self._before: float = self.most
        self._reported = False

    def note(self, expected: int, cached: int, open_now: int) -> None:
        """Note how much of the prefix that a started conversation had sent before was still cached."""
        if not self._learns:
            return
        self._reported = self._reported or cached > 0  # many endpoints say nothing of their cache
        if open_now > self.most:
            self._expected = self._cached = self._calls = 0  # until those that are too many have ended
            return
        self._expected += expected
        self._cached += min(cached, expected)
        self._calls += 1
        if self._calls < max(20, 2 * open_now):
            return
        warmth = self._cached / max(1, self._expected)
        self._expected = self._cached = self._calls = 0
        self._judge(warmth, open_now)

    def _judge(self, warmth: float, open_now: int) -> None:
        if self._rest:
            self._rest -= 1
        elif warmth > WARM:
            self._cuts = 0
            self._good += open_now >= self.most
            if self._good >= self._patience:
                self.most, self._good = self.most + 1, 0
        elif warmth < COLD and self._reported:
            if self._cuts == 6 or open_now <= 1:
                # Ever fewer conversations did not help, so it is not their number.
                self.most, self._cuts, self._rest = self._before, 0, 50
                return
            if not self._cuts:
                # One conversation too many can cost the cache of all: the more often, the rarer it is tried.
                self._before, self._patience = self.most, min(64, 2 * self._patience)
            self._good = 0
            self.most = max(1, int(open_now * (0.5 if self._cuts else 0.75)))
            self._cuts += 1


class _Session(msgspec.Struct, gc=False, eq=False):
    """A conversation as the pool knows it. Kept out of the garbage collector, as its slots are: there are many."""

    name: str
    replica: Replica
    open: bool = False
    busy: int = 0
    used_at: float = 0.0
    failures: int = 0
    fled: Replica | None = None
    """The replica that its last calls failed on, which it leaves if there is another."""
    prompts: dict[str, int] = {}
    """Length of each speaker's last prompt, which the replica may have cached."""


class Slot(msgspec.Struct, gc=False, eq=False):
    """The right to send one attempt to a replica, until its end is noted."""

    replica: Replica
    session: _Session | None
    sent_at: float
    guess: float
    epoch: int


def is_misplaced(error: ModelError) -> bool:
    """Whether the fault may be that of one replica of several: another model is behind it, another key, or no model."""
    rejected = isinstance(error, RequestRejected) and error.status in (404, 405)
    return rejected or isinstance(error, MalformedReply | NotAuthorised)


class _Waiter:
    __slots__ = ("future", "guess", "name", "order")

    def __init__(self, name: str, guess: float, future: asyncio.Future[Slot]) -> None:
        self.name, self.guess, self.future = name, guess, future
        self.order: list[Replica] | None = None


class Pool:
    """Replicas of one model, and the conversations on them."""

    def __init__(
        self,
        source: Source,
        settings: PoolSettings | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings or PoolSettings()
        self._source, self._clock = source, clock
        self._replicas: list[Replica] = []
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        """Conversations that are open, the one that was silent longest first."""
        self._ended: OrderedDict[str, _Session] = OrderedDict()
        """Those that seemed to have ended, should they go on."""
        self._stranded: deque[_Waiter] = deque()
        """Calls of started conversations while no replica is healthy."""
        self._fresh: deque[_Waiter] = deque()
        """First calls of conversations: they wait until no other call does."""
        self._counts_tokens = self.settings.rates.tpm is not None
        self.gate: Callable[[], None] | None = None
        """Raises once nothing may be sent any more. Asked before every attempt, and again where its bytes are written:
        a process that was stopped in between must not send them when it wakes up."""
        self._shared = False
        """Whether a coordinator says how much may be used."""
        self._timer: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None
        # A model may be used by event loops in several threads.
        self._lock = threading.Lock()
        self.look_at = math.inf if math.isinf(source.every) else 0.0
        """When the list of replicas is to be looked at again."""
        self._set(source.first)

    # --- the client's side ----------------------------------------------------------------------------------------

    def take(self, request: Request, body: bytes) -> Slot | None:
        """A slot for an attempt, if there is one now."""
        now = self._clock()
        with self._lock:
            name = request.session
            guess = self._guess(request, body) if self._counts_tokens else 0.0
            session = self._sessions.get(name) or self._ended.get(name) if name else None
            if session is None:
                if self._fresh or self._stranded:
                    return None
                replica = self._start(_order(name, self._replicas), now, guess)
                return None if replica is None else self._admit(replica, name, None, now, guess)
            replica = self._home(session, now)
            if replica is None or replica.queue or replica.governor.wait(now, guess) > 0:
                return None
            return self._admit(replica, name, session, now, guess)

    async def wait(self, request: Request, body: bytes, deadline: float) -> Slot:
        """A slot as soon as there is one; raises `DeadlineExceeded` at `deadline`, by the event loop's clock."""
        loop = asyncio.get_running_loop()
        with self._lock:
            waiter = _Waiter(request.session, self._guess(request, body), loop.create_future())
            self._enqueue(waiter, self._clock())
            self._pump(self._replicas)
        future = waiter.future
        try:
            while not future.done():
                await self.refresh()
                until = min(deadline, loop.time() + max(0.01, self.look_at - self._clock()))
                await asyncio.wait((future,), timeout=max(0.0, until - loop.time()))
                if loop.time() >= deadline and not future.done():
                    raise DeadlineExceeded(
                        f"no endpoint had a place for the call within its deadline: {self.described()}"
                    )
            return future.result()
        except BaseException:
            if future.done() and not future.cancelled():
                self.left(future.result())
            raise
        finally:
            future.cancel()

    def served(self, slot: Slot, usage: Usage, speaker: str = "") -> None:
        """The attempt brought a reply."""
        now, replica, session = self._clock(), slot.replica, slot.session
        with self._lock:
            replica.governor.served(
                now, slot.epoch, now - slot.sent_at, usage.prompt, usage.completion, usage.cached, slot.guess
            )
            replica.failures = 0
            replica.reached = True
            if replica.until:
                replica.answered()
            if session is not None:
                session.busy -= 1
                session.failures = 0
                if usage.prompt:
                    if expected := session.prompts.get(speaker, 0):
                        replica.room.note(min(expected, usage.prompt), usage.cached, replica.open)
                    session.prompts[speaker] = usage.prompt
            if replica.queue or self._fresh or self._stranded:
                self._pump((replica,))

    def failed(self, slot: Slot, error: ModelError, *, hung: bool = False) -> None:
        """The attempt failed; `hung` if there was no answer in all the time that one may take."""
        now, replica, session = self._clock(), slot.replica, slot.session
        unavailable = isinstance(error, ServerFailed) and error.status == 503
        alone = len(self._replicas) <= 1
        misplaced = not alone and is_misplaced(error)
        broken = hung or misplaced or isinstance(error, Unreachable | ServerFailed)
        with self._lock:
            replica.reached = replica.reached or not (
                hung or isinstance(error, Unreachable | DeadlineExceeded)
            )
            asked = error.retry_after if isinstance(error, RateLimited | ServerFailed) else None
            others = bool(replica.queue or self._stranded or self._fresh)
            if isinstance(error, RateLimited) or (unavailable and asked is not None):
                replica.governor.refused(now, slot.epoch, asked, others_wait=others)
            elif unavailable:
                replica.governor.unavailable(now, slot.epoch, others_wait=others)
            else:
                replica.governor.failed()
            if session is not None:
                session.busy -= 1
            if not broken:
                if isinstance(error, MalformedReply | DeadlineExceeded):
                    replica.probing = False  # it says nothing of its health: the next call may ask again
                else:
                    replica.answered()
            else:
                if replica.failure(now, f"{type(error).__name__}: {error}", alone):
                    self._strand(replica)
                if session is not None and not alone and session.replica is replica:
                    session.failures += 1
                    if hung or misplaced or session.failures >= 2:
                        session.fled = replica
            self._pump(self._replicas if broken else (replica,))

    def has_other(self, replica: Replica) -> bool:
        """Whether a call that failed at a replica can be sent to another one."""
        now = self._clock()
        with self._lock:
            return any(one is not replica and one.usable(now) for one in self._replicas)

    def left(self, slot: Slot) -> None:
        """The attempt was abandoned by the caller."""
        with self._lock:
            _give_back(slot)
            self._pump((slot.replica,))

    def release(self, name: str) -> None:
        """A conversation has ended: its place is free, and it is forgotten."""
        with self._lock:
            session = self._sessions.pop(name, None)
            self._ended.pop(name, None)
            if session is not None and session.open:
                session.open = False
                session.replica.open -= 1
                if self._fresh:
                    self._pump((session.replica,))

    async def refresh(self) -> None:
        """Look where the replicas are, if it is time to."""
        now = self._clock()
        if now < self.look_at:
            return
        self.look_at = now + self._source.every  # before looking: one caller does it
        try:
            async with asyncio.timeout(self._source.every):
                urls = await asyncio.to_thread(self._source.look)
        except TimeoutError:
            return
        with self._lock:
            self._set(urls)

    # --- the coordinator's side -----------------------------------------------------------------------------------

    def report(self) -> dict[str, dict[str, float]]:
        """What a coordinator wants to know of each endpoint."""
        now = self._clock()
        with self._lock:
            spread = math.ceil((len(self._fresh) + len(self._stranded)) / max(1, len(self._replicas)))
            return {
                r.url: {
                    **r.governor.report(now, len(r.queue) + spread),
                    "open": r.open,
                    "broken": float(not r.usable(now)),
                    "failing": r.failures,
                }
                for r in self._replicas
            }

    def allow(self, shares: Mapping[str, Share]) -> None:
        """Take this worker's shares; a worker of a cluster begins with `allow({})`, which allows nothing."""
        now = self._clock()
        with self._lock:
            self._shared = True
            for replica in self._replicas:
                share = shares.get(replica.url)
                if share is not None or not replica.governor.shared:
                    replica.governor.allow(share or _NOTHING, now)
            self._counts_tokens = self._counts_tokens or any(share.tpm for share in shares.values())
            self._pump(self._replicas)

    @property
    def size(self) -> int:
        """How many replicas are known."""
        return len(self._replicas)

    @property
    def unreached(self) -> bool:
        """Whether every replica was tried, and none was ever reached."""
        return all(replica.failures and not replica.reached for replica in self._replicas)

    def states(self) -> list[ReplicaState]:
        """The replicas as they are now."""
        now = self._clock()
        with self._lock:
            return [_described(replica, now) for replica in self._replicas]

    def described(self) -> str:
        """The replicas and what they said, in one line."""
        told = [
            f"{s.url} ({'healthy' if s.state == 'closed' else s.state}, {s.in_flight} in flight"
            f"{f', {s.said}' if s.said else ''})"
            for s in self.states()[:8]
        ]
        return "; ".join(told) or "none is known, the name or list names nobody"

    # --- where to -------------------------------------------------------------------------------------------------

    def _guess(self, request: Request, body: bytes) -> float:
        """The tokens of a call, before anybody has counted them."""
        if not self._counts_tokens:
            return 0.0
        return len(body) / 4 + (request.sampling.max_tokens or 256) * request.sampling.n

    def _usable(self, replicas: Iterable[Replica], now: float) -> list[Replica]:
        return [replica for replica in replicas if replica.usable(now)]

    def _bound(self, usable: list[Replica]) -> int:
        total = sum(replica.open for replica in usable)
        return math.ceil(self.settings.load * (total + 1) / len(usable))

    def _start(self, order: list[Replica], now: float, guess: float) -> Replica | None:
        """Where a new conversation may begin: the first in its order with a place, free or to be had soon."""
        usable = self._usable(order, now)
        if not usable:
            return None
        bound = self._bound(usable)
        for replica in usable:
            if replica.open < min(bound, replica.room.most) and replica.governor.wait(now, guess) <= 0:
                return replica
        return None

    def _home(self, session: _Session, now: float) -> Replica | None:
        """Where a started conversation goes on: where it is, else at the next in its order that is healthy."""
        home = session.replica
        if home.usable(now) and home is not session.fled:
            return home
        usable = self._usable(_order(session.name, self._replicas), now)
        others = [replica for replica in usable if replica is not session.fled]
        if not others:
            if home.usable(now):
                return home
            others = usable
        if not others:
            return None
        bound = self._bound(others)
        new = next((replica for replica in others if replica.open < bound), others[0])
        if session.open:
            home.open -= 1
            new.open += 1
        session.replica, session.failures, session.prompts = new, 0, {}
        return new

    def _admit(self, replica: Replica, name: str, session: _Session | None, now: float, guess: float) -> Slot:
        if name:
            if session is None:
                session = _Session(name, replica)
            session.busy += 1
            session.used_at = now
            if session.open:
                self._sessions.move_to_end(name)
            else:
                self._ended.pop(name, None)
                session.open = True
                replica.open += 1
                self._sessions[name] = session
                self._sweep(now)
        if replica.until:
            replica.probing = True
        return Slot(replica, session, now, guess, replica.governor.begin(guess, now))

    def _sweep(self, now: float) -> None:
        """Take conversations that have been silent for long as ended."""
        for _ in range(len(self._sessions)):
            name, session = next(iter(self._sessions.items()))
            full = len(self._sessions) > REMEMBERED
            if not full and session.used_at > now - IDLE:
                break
            if session.busy:
                session.used_at = now
                self._sessions.move_to_end(name)
                continue
            del self._sessions[name]
            session.open = False
            session.replica.open -= 1
            self._ended[name] = session
            if len(self._ended) > REMEMBERED:
                self._ended.popitem(last=False)

    def _set(self, urls: Iterable[str]) -> None:
        known = {replica.url: replica for replica in self._replicas}
        now = self._clock()
        self._replicas = [known.pop(url, None) or Replica(url, self.settings, now) for url in urls]
        for replica in self._replicas:
            if self._shared and not replica.governor.shared:
                replica.governor.allow(_NOTHING, now)
        for waiter in self._fresh:
            waiter.order = None
        for replica in known.values():
            replica.gone = True
            self._strand(replica)
        self._pump(self._replicas)

    # --- queues ---------------------------------------------------------------------------------------------------

    def _enqueue(self, waiter: _Waiter, now: float) -> None:
        name = waiter.name
        session = self._sessions.get(name) or self._ended.get(name) if name else None
        if session is None:
            self._fresh.append(waiter)
        elif (home := self._home(session, now)) is None:
            self._stranded.append(waiter)
        else:
            home.queue.append(waiter)

    def _strand(self, replica: Replica) -> None:
        """Free those who wait for a replica that is not to be used."""
        self._stranded.extend(replica.queue)
        replica.queue.clear()

    def _pump(self, replicas: Iterable[Replica]) -> None:
        """Give places that have become free to those who wait: started conversations first."""
        now = self._clock()
        for replica in replicas:
            while replica.queue and replica.usable(now):
                if not self._give(replica.queue, replica, now):
                    break
        while self._stranded:
            waiter = self._stranded[0]
            if waiter.future.done():
                self._stranded.popleft()
                continue
            session = self._sessions.get(waiter.name) or self._ended.get(waiter.name)
            home = self._home(session, now) if session else None
            if home is None:
                if session is None:  # released while it waited
                    self._fresh.append(self._stranded.popleft())
                    continue
                break
            if home.governor.wait(now, waiter.guess) > 0:
                home.queue.append(self._stranded.popleft())
            else:
                self._give(self._stranded, home, now)
        while self._fresh:
            waiter = self._fresh[0]
            if waiter.future.done():
                self._fresh.popleft()
                continue
            if (known := self._sessions.get(waiter.name)) is not None:
                # Its conversation has begun through another call meanwhile.
                self._fresh.popleft()
                self._enqueue(waiter, now)
                if known.replica.queue and known.replica.queue[-1] is waiter and known.replica.usable(now):
                    self._give(known.replica.queue, known.replica, now)
                continue
            if waiter.order is None:
                waiter.order = _order(waiter.name, self._replicas)
            home = self._start(waiter.order, now, waiter.guess)
            if home is None or not self._give(self._fresh, home, now):
                break
        if self._stranded or self._fresh or any(replica.queue for replica in self._replicas):
            self._arm(now)

    def _give(self, queue: deque[_Waiter], replica: Replica, now: float) -> bool:
        """Give the first of a queue a place on a replica, if it has one."""
        waiter = queue[0]
        if waiter.future.done():
            queue.popleft()
            return True
        if replica.governor.wait(now, waiter.guess) > 0:
            return False
        queue.popleft()
        session = self._sessions.get(waiter.name) or self._ended.get(waiter.name) if waiter.name else None
        slot = self._admit(replica, waiter.name, session, now, waiter.guess)
        loop = waiter.future.get_loop()
        if loop is _running():
            waiter.future.set_result(slot)
            return True
        try:
            loop.call_soon_threadsafe(self._hand_over, waiter.future, slot)
        except RuntimeError:  # its loop has ended, and with it the call
            _give_back(slot)
        return True

    def _hand_over(self, future: asyncio.Future[Slot], slot: Slot) -> None:
        if future.done():
            self.left(slot)
        else:
            future.set_result(slot)

    def _arm(self, now: float) -> None:
        """See to it that those who wait are looked at again when something is to change by itself."""
        loop = _running()
        wait = min(self._changes(now), default=math.inf)
        if loop is None or math.isinf(wait):
            return
        if self._timer is not None:
            its_loop, timer = self._timer
            if its_loop is loop:
                if timer.when() <= loop.time() + wait and timer.when() > loop.time():
                    return
                timer.cancel()
            elif not its_loop.is_closed() and timer.when() > loop.time():
                return
        self._timer = loop, loop.call_later(max(0.001, wait), self._alarm)

    def _alarm(self) -> None:
        with self._lock:
            self._timer = None
            self._sweep(self._clock())
            self._pump(self._replicas)

    def _changes(self, now: float) -> Iterator[float]:
        """Seconds until something changes by itself, for each thing that may."""
        for replica in self._replicas:
            if replica.until > now:
                yield replica.until - now
            guess = replica.queue[0].guess if replica.queue else self._fresh[0].guess if self._fresh else 0.0
            if 0 < (wait := replica.governor.wait(now, guess)) < math.inf:
                yield wait
        if self._fresh and self._sessions:
            yield next(iter(self._sessions.values())).used_at + IDLE - now


def _give_back(slot: Slot) -> None:
    """Undo an admission that came to nothing; a probe that was not made can be made by the next."""
    slot.replica.governor.left()
    slot.replica.probing = False
    if slot.session is not None:
        slot.session.busy -= 1


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _order(name: str, replicas: list[Replica]) -> list[Replica]:
    """Replicas in a session's rendezvous order, the same in every process; without a session, the idle first."""
    if len(replicas) == 1:
        return replicas
    if not name:
        return sorted(replicas, key=lambda replica: replica.governor.in_flight)
    key = name.encode("utf-8", "replace")
    return sorted(
        replicas,
        key=lambda replica: hashlib.blake2b(key, digest_size=8, key=_key(replica.url)).digest(),
        reverse=True,
    )


def _key(url: str) -> bytes:
    encoded = url.encode("utf-8", "replace")
    return encoded if len(encoded) <= 64 else hashlib.blake2b(encoded, digest_size=32).digest()


def _described(replica: Replica, now: float) -> ReplicaState:
    governor, most = replica.governor, replica.room.most
    allowed = governor.allowed(now)
    return ReplicaState(
        url=replica.url,
        state=replica.state(now),
        limit=None if math.isinf(allowed) else allowed,
        in_flight=governor.in_flight,
        waiting=len(replica.queue),
        open=replica.open,
        most_open=None if math.isinf(most) else int(most),
        calls=governor.calls,
        refused=governor.refused_calls,
        failed=governor.failed_calls,
        cached=governor.cached / governor.prompt if governor.prompt else 0.0,
        failing=replica.failures,
        said=replica.said,
    )
