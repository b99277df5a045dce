"""The pool: which replica a call goes to, and when.

The one decision to know: a conversation stays on its replica, whose prefix cache holds its prompt. Load decides only where
a conversation *starts* (rendezvous hashing of its session over the healthy replicas, none with more than 1.25 times its
fair part), and only a failure moves it. The session is the conversation, not the speaker: both agents' prompts contain the
same messages, and a failing replica should move a conversation once.

The pool is passive: it sends and retries nothing. The client takes a slot for each attempt and reports how it ended.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping

from camel.core.errors import (
    DeadlineExceeded,
    MalformedReply,
    ModelError,
    RateLimited,
    ServerFailed,
    Unreachable,
)
from camel.core.message import Usage
from camel.core.model import Request
from camel.models.discovery import Source
from camel.models.governor import EndpointReport, Share
from camel.models.replica import (
    PoolSettings,
    Replica,
    ReplicaState,
    Session,
    Slot,
    Waiter,
    by_affinity,
    give_back,
    is_misplaced,
    running_loop,
)

IDLE = 30.0
"""Seconds without a call after which an unreleased conversation counts as ended."""
REMEMBERED = 65_536
"""Maximum number of conversations whose replica is remembered."""

_NOTHING = Share(ceiling=0)


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
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        """Open conversations, least recently used first."""
        self._ended: OrderedDict[str, Session] = OrderedDict()
        """Conversations that have been idle, whose replica is remembered in case they continue."""
        self._stranded: deque[Waiter] = deque()
        """Waiting calls of started conversations, while no replica is healthy."""
        self._fresh: deque[Waiter] = deque()
        """Waiting first calls of conversations. They start only when no other call waits."""
        self._counts_tokens = self.settings.rates.tpm is not None
        self.gate: Callable[[], None] | None = None
        """Raises if nothing may be sent any more. Called before every attempt, and again when its bytes are written: a
        process that was suspended in between must not send them."""
        self._shared = False
        """Whether a coordinator assigns shares."""
        self._timer: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None
        # Several threads, each with an event loop, may use a model.
        self._lock = threading.Lock()
        self.look_at = math.inf if math.isinf(source.every) else 0.0
        """Time of the next update of the list of replicas."""
        self._set(source.first)

    # --- the client's side ----------------------------------------------------------------------------------------

    def take(self, request: Request, body: bytes) -> Slot | None:
        """Return a slot for an attempt if one is free now, or None."""
        now = self._clock()
        with self._lock:
            name = request.session
            guess = self._guess(request, body) if self._counts_tokens else 0.0
            session = self._sessions.get(name) or self._ended.get(name) if name else None
            if session is None:
                if self._fresh or self._stranded:
                    return None
                replica = self._start(by_affinity(name, self._replicas), now, guess)
                return None if replica is None else self._admit(replica, name, None, now, guess)
            replica = self._home(session, now)
            if replica is None or replica.queue or replica.governor.wait(now, guess) > 0:
                return None
            return self._admit(replica, name, session, now, guess)

    async def wait(self, request: Request, body: bytes, deadline: float) -> Slot:
        """Wait for a slot. Raise `DeadlineExceeded` at `deadline`, a time of the event loop's clock."""
        loop = asyncio.get_running_loop()
        with self._lock:
            waiter = Waiter(request.session, self._guess(request, body), loop.create_future())
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
                        f"no endpoint had capacity for the call within its deadline: {self.described()}"
                    )
            return future.result()
        except BaseException:
            if future.done() and not future.cancelled():
                self.left(future.result())
            raise
        finally:
            future.cancel()

    def served(self, slot: Slot, usage: Usage, speaker: str = "") -> None:
        """Record a successful attempt."""
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
        """Record a failed attempt. `hung` is true if it timed out without an answer."""
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
                    # This says nothing about its health: the next call may probe again.
                    replica.probing = False
                else:
                    replica.answered(str(error) if isinstance(error, RateLimited) else "")
            else:
                if replica.failure(now, f"{type(error).__name__}: {error}", alone):
                    self._strand(replica)
                if session is not None and not alone and session.replica is replica:
                    session.failures += 1
                    if hung or misplaced or session.failures >= 2:
                        session.fled = replica
            self._pump(self._replicas if broken else (replica,))

    def has_other(self, replica: Replica) -> bool:
        """Return whether a call that failed at a replica can go to another one."""
        now = self._clock()
        with self._lock:
            return any(one is not replica and one.usable(now) for one in self._replicas)

    def left(self, slot: Slot) -> None:
        """Record an attempt that the caller abandoned."""
        with self._lock:
            give_back(slot)
            self._pump((slot.replica,))

    def release(self, name: str) -> None:
        """Forget a conversation that has ended, so that its replica can accept another one."""
        with self._lock:
            session = self._sessions.pop(name, None)
            self._ended.pop(name, None)
            if session is not None and session.open:
                session.open = False
                session.replica.open -= 1
                if self._fresh:
                    self._pump((session.replica,))

    async def refresh(self) -> None:
        """Update the list of replicas if it is due."""
        now = self._clock()
        if now < self.look_at:
            return
        self.look_at = now + self._source.every  # set before the update, so that only one caller does it
        try:
            async with asyncio.timeout(self._source.every):
                urls = await asyncio.to_thread(self._source.look)
        except TimeoutError:
            return
        with self._lock:
            self._set(urls)

    # --- the coordinator's side -----------------------------------------------------------------------------------

    def report(self) -> dict[str, EndpointReport]:
        """Return a report on each endpoint for the coordinator."""
        now = self._clock()
        with self._lock:
            spread = math.ceil((len(self._fresh) + len(self._stranded)) / max(1, len(self._replicas)))
            return {replica.url: replica.report(now, spread) for replica in self._replicas}

    def allow(self, shares: Mapping[str, Share]) -> None:
        """Set this worker's share of each endpoint. A worker of a cluster begins with `allow({})`, which allows no call."""
        now = self._clock()
        with self._lock:
            self._shared = True
            for replica in self._replicas:
                share = shares.get(replica.url)
                if share is not None or replica.governor.share is None:
                    replica.governor.allow(share or _NOTHING, now)
            self._counts_tokens = self._counts_tokens or any(share.tpm for share in shares.values())
            self._pump(self._replicas)

    @property
    def size(self) -> int:
        """Number of known replicas."""
        return len(self._replicas)

    @property
    def unreached(self) -> bool:
        """Whether every replica was tried and none was ever reached."""
        return all(replica.failures and not replica.reached for replica in self._replicas)

    def states(self) -> list[ReplicaState]:
        """Return the current state of the replicas."""
        now = self._clock()
        with self._lock:
            return [replica.state(now) for replica in self._replicas]

    def described(self) -> str:
        """Return the replicas with their last errors, in one line."""
        told = [
            f"{s.url} ({'healthy' if s.state == 'closed' else s.state}, {s.in_flight} in flight"
            f"{f', {s.said}' if s.said else ''})"
            for s in self.states()[:8]
        ]
        return "; ".join(told) or "no replica is known: the DNS name or the list is empty"

    # --- placement ------------------------------------------------------------------------------------------------

    def _guess(self, request: Request, body: bytes) -> float:
        """Estimate the tokens of a call, prompt and completion together."""
        if not self._counts_tokens:
            return 0.0
        return len(body) / 4 + (request.sampling.max_tokens or 256) * request.sampling.n

    def _bound(self, usable: list[Replica]) -> int:
        total = sum(replica.open for replica in usable)
        return math.ceil(self.settings.load * (total + 1) / len(usable))

    def _start(self, order: list[Replica], now: float, guess: float) -> Replica | None:
        """Return the first replica in `order` that can accept a new conversation now, or None."""
        usable = [replica for replica in order if replica.usable(now)]
        if not usable:
            return None
        bound = self._bound(usable)
        for replica in usable:
            if replica.open < min(bound, replica.room.most) and replica.governor.wait(now, guess) <= 0:
                return replica
        return None

    def _home(self, session: Session, now: float) -> Replica | None:
        """Return the replica of a conversation in progress. If it is unhealthy, the conversation moves to the next healthy one."""
        home = session.replica
        if home.usable(now) and home is not session.fled:
            return home
        usable = [one for one in by_affinity(session.name, self._replicas) if one.usable(now)]
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

    def _admit(self, replica: Replica, name: str, session: Session | None, now: float, guess: float) -> Slot:
        if name:
            if session is None:
                session = Session(name, replica)
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
        """Treat conversations that have been idle for too long as ended."""
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
            if self._shared and replica.governor.share is None:
                replica.governor.allow(_NOTHING, now)
        for waiter in self._fresh:
            waiter.order = None
        for replica in known.values():
            replica.gone = True
            self._strand(replica)
        self._pump(self._replicas)

    # --- queues ---------------------------------------------------------------------------------------------------

    def _enqueue(self, waiter: Waiter, now: float) -> None:
        name = waiter.name
        session = self._sessions.get(name) or self._ended.get(name) if name else None
        if session is None:
            self._fresh.append(waiter)
        elif (home := self._home(session, now)) is None:
            self._stranded.append(waiter)
        else:
            home.queue.append(waiter)

    def _strand(self, replica: Replica) -> None:
        """Move the calls that wait for an unusable replica to the common queue."""
        self._stranded.extend(replica.queue)
        replica.queue.clear()

    def _pump(self, replicas: Iterable[Replica]) -> None:
        """Send waiting calls to replicas that can accept them. Conversations in progress come first."""
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
                if session is None:  # released while waiting
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
                # Another call has started its conversation meanwhile.
                self._fresh.popleft()
                self._enqueue(waiter, now)
                if known.replica.queue and known.replica.queue[-1] is waiter and known.replica.usable(now):
                    self._give(known.replica.queue, known.replica, now)
                continue
            if waiter.order is None:
                waiter.order = by_affinity(waiter.name, self._replicas)
            home = self._start(waiter.order, now, waiter.guess)
            if home is None or not self._give(self._fresh, home, now):
                break
        if self._stranded or self._fresh or any(replica.queue for replica in self._replicas):
            self._arm(now)

    def _give(self, queue: deque[Waiter], replica: Replica, now: float) -> bool:
        """Give the first call in a queue a slot on the replica. Return False if the replica can accept no call now."""
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
        if loop is running_loop():
            waiter.future.set_result(slot)
            return True
        try:
            loop.call_soon_threadsafe(self._hand_over, waiter.future, slot)
        except RuntimeError:  # its event loop has ended, and the call with it
            give_back(slot)
        return True

    def _hand_over(self, future: asyncio.Future[Slot], slot: Slot) -> None:
        if future.done():
            self.left(slot)
        else:
            future.set_result(slot)

    def _arm(self, now: float) -> None:
        """Set the timer to the next time at which a waiting call may become possible."""
        loop = running_loop()
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
        """Yield the seconds until each event that may make a waiting call possible."""
        for replica in self._replicas:
            if replica.until > now:
                yield replica.until - now
            guess = replica.queue[0].guess if replica.queue else self._fresh[0].guess if self._fresh else 0.0
            if 0 < (wait := replica.governor.wait(now, guess)) < math.inf:
                yield wait
        if self._fresh and self._sessions:
            yield next(iter(self._sessions.values())).used_at + IDLE - now
