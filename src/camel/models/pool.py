"""The pool: which replica a call goes to, and when.

The one decision to know: a conversation stays on its replica, whose prefix cache holds its prompt. Load decides only where
a conversation *starts* (a consistent hash of its session over the healthy replicas, none with more than 1.25 times its
fair part), and only a failure moves it. The session is the conversation, not the speaker: both agents' prompts contain the
same messages, and a failing replica should move a conversation once.

The pool is passive: it sends and retries nothing. The client takes a slot for each attempt and reports how it ended. No
call looks at all replicas: replicas that cannot accept a conversation now are set aside until an event or a timer.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

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
from camel.models.placement import OpenSessions, Placement
from camel.models.replica import (
    PoolSettings,
    Replica,
    ReplicaState,
    Session,
    Slot,
    Waiter,
    give_back,
    is_misplaced,
    running_loop,
)
from camel.models.sharing import PoolShare
from camel.models.subsets import FEW, ReplicaList, Subset, digest_of, pack

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
        self.source, self._clock = source, clock
        self._urls: tuple[str, ...] = ()
        """The current list of replicas."""
        self._known: dict[str, Replica] = {}
        """Replicas of the list on which a conversation could start at any time so far, by address."""
        self._placement = Placement(self.settings.load)
        self._queued: set[Replica] = set()
        """Replicas for which calls wait."""
        self._sessions = OpenSessions(self._placement)
        self._stranded: deque[Waiter] = deque()
        """Waiting calls of started conversations, while no replica is healthy."""
        self._fresh: deque[Waiter] = deque()
        """Waiting first calls of conversations. They start only when no other call waits."""
        self._counts_tokens = self.settings.rates.tpm is not None
        self.gate: Callable[[], None] | None = None
        """Raises if nothing may be sent any more. Called before every attempt, and again when its bytes are written: a
        process that was suspended in between must not send them."""
        self.is_shared = False
        """Whether a coordinator assigns shares."""
        self._shares: dict[str, Share] = {}
        self._default: Share | None = None
        """The share of a replica without one."""
        self._subset: Subset | None = None
        self._scarce: list[tuple[Replica, float]] = []
        """Replicas for whose slots other workers wait, with the number of slots in the last report."""
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
            if self._placement.next_timer <= now:
                self._pump(self._placement.due(now))
            name = request.session
            guess = self._guess(request, body) if self._counts_tokens else 0.0
            session = self._sessions.find(name)
            if session is None:
                if self._fresh or self._stranded:
                    return None
                replica = self._placement.start(name, now, guess)
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
            home = self._enqueue(waiter, self._clock())
            self._pump((home,) if home else ())
        future = waiter.future
        try:
            while not future.done():
                await self.refresh()
                until = min(deadline, loop.time() + max(0.01, self.look_at - self._clock()))
                await asyncio.wait((future,), timeout=max(0.0, until - loop.time()))
                if loop.time() >= deadline and not future.done():
                    told = f"no endpoint had capacity for the call within its deadline: {self.described()}"
                    raise DeadlineExceeded(told)
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
                self._placement.recount(replica)
            if session is not None:
                session.busy -= 1
                session.failures = 0
                if usage.prompt:
                    if expected := session.prompts.get(speaker, 0):
                        replica.room.note(min(expected, usage.prompt), usage.cached, replica.open)
                    session.prompts[speaker] = usage.prompt
            self._pump((replica,))

    def failed(self, slot: Slot, error: ModelError, *, hung: bool = False) -> None:
        """Record a failed attempt. `hung` is true if it timed out without an answer."""
        now, replica, session = self._clock(), slot.replica, slot.session
        unavailable = isinstance(error, ServerFailed) and error.status == 503
        alone = len(self._placement.replicas) <= 1
        misplaced = not alone and is_misplaced(error)
        broken = hung or misplaced or isinstance(error, Unreachable | ServerFailed)
        with self._lock:
            replica.reached |= not (hung or isinstance(error, Unreachable | DeadlineExceeded))
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
                    self._placement.recount(replica)
            else:
                replica.misplaced = misplaced
                if replica.failure(now, f"{type(error).__name__}: {error}", alone):
                    self._placement.recount(replica)
                    self._strand(replica)
                    self._placement.wake(replica, replica.until)
                if session is not None and not alone and session.replica is replica:
                    session.failures += 1
                    if hung or misplaced or session.failures >= 2:
                        session.fled = replica
            self._pump((replica,))

    def has_other(self, replica: Replica) -> bool:
        """Return whether a call that failed at a replica can go to another one."""
        now = self._clock()
        with self._lock:
            if self._placement.healthy > replica.counted:
                return True
            return any(one is not replica and one.usable(now) for one in self._placement.replicas)

    def others_are_out(self, replica: Replica) -> bool:
        """Return whether another replica has answered before, and now fails without rejecting calls."""
        with self._lock:
            others = (one for one in self._placement.replicas if one is not replica)
            return any(one.failures and one.reached and not one.misplaced for one in others)

    def left(self, slot: Slot) -> None:
        """Record an attempt that the caller abandoned."""
        with self._lock:
            give_back(slot)
            self._pump((slot.replica,))

    def release(self, name: str) -> None:
        """Forget a conversation that has ended, so that its replica can accept another one."""
        with self._lock:
            session = self._sessions.release(name)
            if session is not None and self._fresh:
                self._pump((session.replica,))

    async def refresh(self) -> None:
        """Update the list of replicas if it is due."""
        now = self._clock()
        if now < self.look_at:
            return
        self.look_at = now + self.source.every  # set before the update, so that only one caller does it
        try:
            async with asyncio.timeout(self.source.every):
                urls = await asyncio.to_thread(self.source.look)
        except TimeoutError:
            return
        with self._lock:
            self._set(urls)

    # --- the coordinator's side -----------------------------------------------------------------------------------

    def join(self) -> None:
        """Become the pool of a worker in a cluster. It sends nothing until the coordinator has assigned a share."""
        self.allow(PoolShare(closed=True))

    def report(self) -> dict[str, EndpointReport]:
        """Return a report on each endpoint for the coordinator."""
        now = self._clock()
        with self._lock:
            waiting = len(self._fresh) + len(self._stranded)
            spread = math.ceil(waiting / max(1, len(self._placement.replicas)))
            known = self._known.values()
            self._scarce = [(one, one.used(now)) for one in known if one.governor.is_scarce]
            return {url: one.report(now, spread if one.inside else 0) for url, one in self._known.items()}

    @property
    def has_freed_slots(self) -> bool:
        """Whether this worker uses fewer slots than it has reported, and others wait for them."""
        with self._lock:
            waiting, now = len(self._fresh) + len(self._stranded), self._clock()
            return any(one.used(now, waiting) < reported for one, reported in self._scarce)

    def listed(self, packed: bool) -> ReplicaList | None:
        """Return the list of replicas for the coordinator, or None if it is short."""
        return ReplicaList(self._digest, pack(self._urls) if packed else b"") if self._digest else None

    def allow(self, given: PoolShare) -> None:
        """Apply this worker's share of the endpoints, and renew what has not changed."""
        with self._lock:
            joins, self.is_shared = not self.is_shared, True
            self._default = _NOTHING if given.closed else None
            for url, share in given.shares.items():
                if share is None:
                    self._shares.pop(url, None)
                else:
                    self._shares[url] = share
                    self._counts_tokens = self._counts_tokens or share.tpm is not None
            self._subset = given.subset or self._subset
            if given.subset or joins:
                self._set(self._urls)
            now = self._clock()
            for url, replica in self._known.items():
                replica.governor.allow(self._shares.get(url, self._default), now)
                replica.governor.divide_start(round(1 / replica.weight) if self._subset else given.workers)
            self._pump(self._placement.replicas)

    @property
    def in_flight(self) -> int:
        """Number of calls in flight."""
        return sum(replica.governor.in_flight for replica in self._known.values())

    @property
    def size(self) -> int:
        """Number of known replicas."""
        return len(self._urls)

    @property
    def unreached(self) -> bool:
        """Whether every replica was tried and none was ever reached."""
        return all(replica.failures and not replica.reached for replica in self._placement.replicas)

    def states(self) -> list[ReplicaState]:
        """Return the current state of the replicas."""
        now = self._clock()
        with self._lock:
            return [replica.state(now) for replica in self._known.values()]

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

    def _home(self, session: Session, now: float) -> Replica | None:
        """Return the replica of a conversation in progress. If it is unhealthy, the conversation moves to the next healthy one."""
        home, fled = session.replica, session.fled
        if home.usable(now) and home is not fled:
            return home
        new = None
        for one in self._placement.candidates(session.name):
            if one is not fled and one.usable(now):
                new = new or one
                if one.open < self._placement.bound(one):
                    new = one
                    break
        if new is None:
            if home.usable(now):
                return home
            if fled is None or not fled.usable(now):
                return None
            new = fled
        if session.open:
            self._placement.add_open(home, -1)
            self._placement.add_open(new, 1)
        session.replica, session.failures, session.prompts = new, 0, {}
        return new

    def _admit(self, replica: Replica, name: str, session: Session | None, now: float, guess: float) -> Slot:
        if name:
            if session is None:
                session = Session(name, replica)
            self._sessions.use(session, now)
        if replica.until:
            replica.probing = True
        return Slot(replica, session, now, guess, replica.governor.begin(guess, now))

    def _set(self, urls: Iterable[str]) -> None:
        """Use a list of replicas, or the worker's subset of it."""
        self._urls = tuple(urls)
        self._digest = digest_of(self._urls) if len(self._urls) > FEW else ""
        now, weights = self._clock(), dict.fromkeys(self._urls, 1.0)
        listed, joined = set(self._urls), self.is_shared and self._digest
        if joined:
            found = self._subset.weights(weights) if self._subset else {}
            # Until the coordinator knows the list, use what is left of the last subset.
            kept = self._placement.replicas if self._subset else ()
            weights = found or {one.url: 1.0 for one in kept if one.url in weights}
        for url in weights:
            if url not in self._known:
                replica = self._known[url] = Replica(url, self.settings, now)
                replica.governor.allow(self._shares.get(url, self._default), now)
        for url, replica in list(self._known.items()):
            if url not in listed or (joined and url not in weights and replica.is_unused):
                del self._known[url]
                replica.gone = True
                self._strand(replica)
        for url, replica in self._known.items():
            replica.inside, replica.weight, replica.counted = url in weights, weights.get(url, 1.0), False
        self._placement.set(self._known[url] for url in weights)
        self._pump(self._placement.replicas)

    # --- queues ---------------------------------------------------------------------------------------------------

    def _enqueue(self, waiter: Waiter, now: float) -> Replica | None:
        """Let a call wait. Return the replica that it waits for, if that is known."""
        name = waiter.name
        session = self._sessions.find(name)
        home = None if session is None else self._home(session, now)
        if home is not None:
            home.queue.append(waiter)
            self._queued.add(home)
        else:
            (self._fresh if session is None else self._stranded).append(waiter)
        return home

    def _strand(self, replica: Replica) -> None:
        """Move the calls that wait for an unusable replica to the common queue."""
        self._stranded.extend(replica.queue)
        replica.queue.clear()
        self._queued.discard(replica)

    def _drain(self, replica: Replica, now: float) -> None:
        """Send the calls that wait for a replica, as far as it can accept them."""
        while replica.queue and replica.usable(now):
            if not self._give(replica.queue, replica, now):
                if (wait := replica.governor.wait(now, replica.queue[0].guess)) < math.inf:
                    self._placement.wake(replica, now + wait)
                return
        if not replica.queue:
            self._queued.discard(replica)

    def _pump(self, replicas: Iterable[Replica]) -> None:
        """Send waiting calls to replicas that can accept them. Conversations in progress come first."""
        now = self._clock()
        for replica in replicas:
            self._placement.mark_ready(replica)
            self._drain(replica, now)
        while self._stranded:
            waiter = self._stranded[0]
            if waiter.future.done():
                self._stranded.popleft()
                continue
            session = self._sessions.find(waiter.name)
            home = self._home(session, now) if session else None
            if home is None:
                if session is None:  # released while waiting
                    self._fresh.append(self._stranded.popleft())
                    continue
                break
            home.queue.append(self._stranded.popleft())
            self._queued.add(home)
            self._drain(home, now)
        while self._fresh:
            waiter = self._fresh[0]
            if waiter.future.done():
                self._fresh.popleft()
                continue
            if waiter.name in self._sessions.open:
                # Another call has started its conversation meanwhile.
                self._fresh.popleft()
                if (home := self._enqueue(waiter, now)) is not None:
                    self._drain(home, now)
                continue
            home = self._placement.start(waiter.name, now, waiter.guess)
            if home is None or not self._give(self._fresh, home, now):
                break
        if self._stranded or self._fresh or self._queued:
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
        session = self._sessions.find(waiter.name)
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
        wait = self._placement.next_timer - now
        if self._fresh:
            wait = min(wait, self._sessions.next_end - now)
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
            now = self._clock()
            self._sessions.sweep(now)
            self._pump(self._placement.due(now))
