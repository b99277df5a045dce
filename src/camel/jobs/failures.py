"""The failure policy of all jobs: what a failed call means for its item, and for the run.

| class     | recognized by                                                   | what happens                               |
|-----------|-----------------------------------------------------------------|--------------------------------------------|
| item      | moderation, context overflow, an unusable reply                 | the item fails, with its reason; the rest continues |
| unclear   | a 400 or 422 with an unknown message                            | a short plain request is sent: if it succeeds, the item fails; otherwise a rejection |
| rejection | 401, 402, 403, 404: the endpoint rejects everything             | five in a row without a success halt the run; nothing is committed for them |
| outage    | no connection, 5xx, garbage, all after the client's own retries | calls wait, and a short request is repeated until one succeeds |

The pool handles a single failing replica (`camel.models.pool`): its calls go to the others.

The one decision to know: one process never halts the run of a cluster. Without a cluster the policy decides here; on a
cluster the workers report failures and wait, and `ClusterFailures` decides for all of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from camel.core.errors import (
    BadReply,
    ContentRejected,
    ContextOverflow,
    DeadlineExceeded,
    ModelError,
    NotAuthorized,
    NotUnderstood,
    QuotaExhausted,
    ReplyTooLarge,
    RequestRejected,
    Unreachable,
)
from camel.core.history import History
from camel.core.model import Reply, Request
from camel.engine.halt import Halt, Halted, Tell, Unfinished, ignore_notice
from camel.engine.site import ModelReport, WorkerReport
from camel.models.replica import FAILURES, ReplicaState
from camel.reports.numbers import duration

IN_A_ROW = 5
"""Number of rejected calls in a row that halt a run."""
NEVER_ANSWERED = 50.0
"""Seconds after which a run stops if its endpoint was never reached: its address is probably wrong."""
PATIENCE = 1800.0
"""Seconds that a run waits for an endpoint that does not answer."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds between two requests to an endpoint that does not answer."""
AGAIN = 2
"""Number of retries of a call if the endpoint answers other calls."""
PLAIN = "Say OK."
SETTINGS = ("temperature", "top_p", "max_tokens", "seed")
"""Sampling settings that some models reject."""

Class = Literal["item", "unclear", "rejection", "outage"]
Send = Callable[[Request], Awaitable[Reply]]


def class_of(error: ModelError) -> Class:
    """Return the class of a failure, as far as the error alone determines it."""
    if isinstance(error, ContextOverflow | ContentRejected | BadReply | NotUnderstood | ReplyTooLarge):
        return "item"
    if isinstance(error, RequestRejected):
        return "unclear" if error.status in (None, 400, 422) else "rejection"
    return "rejection" if isinstance(error, NotAuthorized | QuotaExhausted) else "outage"


def failure_of(error: ModelError, halt: Halt, *, last: bool = False) -> str:
    """Return the text of a failure for the item's record. Raises `Unfinished` if a retry may help, unless `last` is true."""
    if halt.reason or not (last or class_of(error) == "item"):
        raise Unfinished(str(error)) from None
    return f"{type(error).__name__}: {error}"


class FailedItems(msgspec.Struct, frozen=True):
    """Items of a stage that failed with the same class of error."""

    stage: str
    name: str
    """Name of the class."""
    count: int
    example: str
    """The id of one of them."""
    words: str
    """Why that item failed."""

    def __str__(self) -> str:
        return f"{self.count:,} of {self.stage} with {self.name}, for example {self.example}: {self.words}"


class Failures:
    """The failure policy of one process. Use it on one event loop."""

    def __init__(
        self, halt: Halt, *, patience: float = PATIENCE, shared: bool = False, tell: Tell = ignore_notice
    ) -> None:
        """If `shared` is true, this process is a worker of a cluster, where the coordinator decides whether the run stops."""
        self.halt, self.patience, self.shared, self.tell = halt, patience, shared, tell
        self.served = self.rejected = 0
        """Number of successful and of rejected calls in this process."""
        self.answered = False
        """Whether the endpoint was ever reached."""
        self.words = ""
        """Text of the last rejection, or of the last failure in an outage."""
        self.unreached = 0
        """Number of calls in a row, one after the other, that could not reach the endpoint."""
        self._row = 0
        self._kind: tuple[str, int | None] = "", None
        """Class of the last rejection."""
        self._first = -1.0
        """Time of the first call."""
        self._down = -1.0
        """Start of the outage; -1 if there is none."""
        self._over: asyncio.Future[None] | None = None
        self._plain: asyncio.Future[ModelError | None] | None = None

    async def handled(self, send: Send, request: Request) -> Reply:
        """Send a request with retries, and return the reply. Raise an error if only this item is affected."""
        loop = asyncio.get_running_loop()
        if self._first < 0:
            self._first = loop.time()
        tries = 0
        while True:
            await self._wait()
            before = self.served
            try:
                reply = await send(request)
            except ModelError as error:
                if request.sampling.n > 1 and type(error) is RequestRejected:
                    raise  # the critic then asks for one choice at a time
                tries += 1
                await self._failed(error, send, request, tries, others=self.served > before)
                continue
            self._serve()
            return reply

    def all_rejected(self) -> str:
        """Return why all calls so far were rejected, or an empty string if one succeeded."""
        return rejection(0, self.words) if self.rejected and not self.served else ""

    def down(self) -> float:
        """Return the seconds since the current outage began, or 0 if there is none."""
        return max(1e-3, asyncio.get_running_loop().time() - self._down) if self._down >= 0 else 0.0

    def _serve(self) -> None:
        self.served += 1
        self.answered, self._row, self.unreached = True, 0, 0

    async def _failed(
        self, error: ModelError, send: Send, request: Request, tries: int, *, others: bool
    ) -> None:
        """Handle a failed call. Return when the call can be retried, or raise the error if the item fails."""
        self.answered = self.answered or not isinstance(error, Unreachable | DeadlineExceeded)
        kind = class_of(error)
        if kind == "unclear":
            if await self._is_served(send, request):
                raise ContentRejected(
                    f"{error} (other requests succeed)", status=error.status, attempts=error.attempts
                ) from None
            kind = "rejection"
        if kind == "item":
            raise error
        if kind == "rejection":
            await self._reject(error)
            raise error
        if others or tries > AGAIN:
            raise error  # the endpoint answers other calls: the item is retried in a later pass
        await self._outage(error, send, request)

    async def _reject(self, error: ModelError) -> None:
        kind = type(error).__name__, error.status
        self._row = self._row + 1 if kind == self._kind else 1
        self._kind, self.words = kind, f"{type(error).__name__}: {error}"
        self.rejected += 1
        if self._row < IN_A_ROW:
            return
        if self.shared:
            await self._sleep(min(LONGEST_PAUSE, 2.0 ** min(10, self._row - IN_A_ROW)))
        else:
            self.halt.set(rejection(self._row, self.words))

    async def _is_served(self, send: Send, request: Request) -> bool:
        """Return whether a short plain request with the same settings succeeds. All waiting calls share one such request."""
        if self._plain is None:
            self._plain = asyncio.ensure_future(self._ask_plainly(send, request))
            self._plain.add_done_callback(lambda _: setattr(self, "_plain", None))
        return await asyncio.shield(self._plain) is None

    async def _ask_plainly(self, send: Send, request: Request) -> ModelError | None:
        try:
            await send(plain(request))
        except ModelError as error:
            return error
        self._serve()
        return None

    async def _outage(self, error: ModelError, send: Send, request: Request) -> None:
        """Wait until the endpoint answers again; raises `Halted` if that takes too long."""
        if self._over is not None:
            await self._wait()
            return
        loop = asyncio.get_running_loop()
        self._over, self._down = loop.create_future(), loop.time()
        pause, told = FIRST_PAUSE, False
        try:
            while True:
                self.words = f"{type(error).__name__}: {error}"
                self.unreached = self.unreached + 1 if isinstance(error, Unreachable) else 0
                limit = self.patience if self.answered else min(NEVER_ANSWERED, self.patience)
                until = limit + (self._down if self.answered else self._first)
                left = until - loop.time()
                if left <= 0 and not self.shared:
                    self.halt.set(outage(limit, self.words, self.answered))
                if not told:
                    told = True
                    self.tell(
                        "outage", f"endpoint does not answer, calls wait: {self.words}", words=self.words
                    )
                await self._sleep(pause if self.shared else max(0.0, min(pause, left)))
                pause = min(LONGEST_PAUSE, 2 * pause)
                try:
                    async with asyncio.timeout(None if self.shared else max(1.0, until - loop.time())):
                        failed = await self._ask_plainly(send, request)
                except TimeoutError:
                    continue
                if failed is None or class_of(failed) != "outage":
                    break  # it answers; the calls handle the error
                error = failed
        finally:
            lasted = loop.time() - self._down
            self._over.set_result(None)
            self._over, self._down, self.unreached = None, -1.0, 0
        self.tell("outage", f"the endpoint answers again after {lasted:,.0f} s", seconds=lasted)

    async def _wait(self) -> None:
        """Wait until calls may be sent; raises `Halted` if the run stops."""
        while self._over is not None and not self.halt.reason:
            await asyncio.wait((self._over,), timeout=0.5)
        if self.halt.reason:
            raise Halted(self.halt.reason)

    async def _sleep(self, seconds: float) -> None:
        """Sleep until the time is over or the run stops."""
        end = asyncio.get_running_loop().time() + seconds
        while (left := end - asyncio.get_running_loop().time()) > 0 and not self.halt.reason:  # noqa: ASYNC110
            await asyncio.sleep(min(0.5, left))
        if self.halt.reason:
            raise Halted(self.halt.reason)


def plain(request: Request) -> Request:
    """Return a short request with the settings of `request`. It fails only if all requests with these settings fail."""
    history = History()
    history.add("user", PLAIN)
    sampling = replace(request.sampling, n=1)
    if sampling.max_tokens is not None:
        sampling = replace(sampling, max_tokens=min(16, sampling.max_tokens))
    return Request(history, sampling, speaker=request.speaker)


def rejection(times: int, words: str) -> str:
    """Return why a run halts after `times` rejections in a row. If `times` is 0, all calls were rejected."""
    what = f"{times} calls in a row" if times else "all calls"
    named = next((name for name in SETTINGS if name in words), "")
    where = f" (in the configuration: sampling.{named})" if named else ""
    return f"the endpoint rejected {what}: {words}{where}; fix this and rerun the command to continue"


def outage(seconds: float, words: str, answered: bool) -> str:
    """Return why a run halts after an outage."""
    if not answered:
        return f"the endpoint could not be reached within {seconds:.0f} s: {words}; check model.base_url or OPENAI_BASE_URL"
    return (
        f"the endpoint did not answer for {duration(seconds)}: {words}; when it is back, run the same command to continue "
        "(run.outage_patience sets how long a run waits)"
    )


class ClusterFailures:
    """Decides from the reports of all workers of a cluster whether the run stops. Runs in the coordinator."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._seen: dict[str, tuple[int, int]] = {}
        """By model: the number of successful calls, and of rejected calls at the last success."""

    def __call__(self, reports: Mapping[str, WorkerReport], live: Collection[str]) -> str:
        """Return the reason to stop the run, or an empty string."""
        names = {name for report in reports.values() for name in report.models}
        reasons = (self._of_model(name, reports, live) for name in sorted(names))
        return next(filter(None, reasons), "")

    def _of_model(self, name: str, reports: Mapping[str, WorkerReport], live: Collection[str]) -> str:
        told = {worker: report.models.get(name, ModelReport()) for worker, report in reports.items()}
        served = sum(one.served for one in told.values())
        rejected = sum(one.rejected for one in told.values())
        seen = self._seen.get(name, (0, 0))
        if served > seen[0]:
            seen = self._seen[name] = served, rejected
        # An idle worker sees no outage, which must not hide what the others see.
        busy = [
            worker
            for worker in live
            if worker in reports and any(stage.open for stage in reports[worker].stages.values())
        ]
        living = [told[worker] if worker in told else ModelReport() for worker in busy or live]
        words = next((one.words for one in living if one.words), "")
        if rejected - seen[1] >= IN_A_ROW:
            return rejection(rejected - seen[1], words)
        answered = any(one.answered for one in told.values())
        limit = self._patience if answered else min(NEVER_ANSWERED, self._patience)
        down = [one.down for one in living]
        return outage(limit, words, answered) if down and min(down) >= limit else ""


class EndpointNotices:
    """Reports endpoints that stop answering, or answer again.

    It compares their states about once a second, so that the path of a call needs no code for this.
    """

    def __init__(self, tell: Tell, now: Callable[[], float] = time.monotonic) -> None:
        self._tell, self._now = tell, now
        self._down: dict[str, float] = {}
        """Endpoints that do not answer, with the start of the outage."""

    def look(self, endpoints: Sequence[ReplicaState]) -> None:
        """Compare the endpoints with their previous states, and report changes."""
        for one in endpoints:
            known = one.url in self._down
            if _is_down(one) and not known:
                self._down[one.url] = self._now()
                what = (
                    "it gets no calls for a while, and its conversations continue at the others"
                    if len(endpoints) > 1
                    else "retrying; if it stays down, the run stops, and the same command resumes it"
                )
                said = f" ({one.said[:300]})" if one.said else ""
                self._tell("endpoint", f"no answer from {one.url}: {what}{said}", url=one.url, state="down")
            elif known and one.state == "closed" and not one.failing:
                gone = self._now() - self._down.pop(one.url)
                self._tell(
                    "endpoint", f"{one.url} answers again, after {gone:.0f} s", url=one.url, state="up"
                )


def _is_down(one: ReplicaState) -> bool:
    # A single endpoint is never skipped; one that never answered counts as down after its first failure.
    return one.state == "open" or one.failing >= FAILURES or (one.failing > 0 and one.calls == one.failed)
