"""The governor: learns how many concurrent calls an endpoint accepts.

After a cut, the limit grows along a cubic function (like TCP CUBIC): fast back to the limit of the last cut, slowly around
it, fast again beyond it. So a full endpoint is probed rarely, and new capacity is found within seconds.

A single refusal (429) delays only its own call. The limit is cut when the share of refusals among recent calls is too
high, because some endpoints refuse a few calls at random. A governor does no I/O and reads no clock: the caller passes the
time.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from camel.core.errors import InputError

CUT, DEEPER = 0.8, 0.6
"""Factors by which a cut reduces the limit: the first cut, and a second one before a call sent after the first was served."""
FORGIVEN = 0.05
"""Part of a refusal that each served call compensates: more than 1 refusal in 20 calls always leads to a cut."""
IN_USE = 0.6
"""Share of the limit that must be in flight for a cut to start from the limit. Otherwise it starts from the calls in flight."""
LEAST = 0.05
"""Lowest limit. Below 1 there are pauses between calls."""
SLACK, BURST = 1.1, 0.02
"""After a cut calls are also spaced: at most `SLACK` times as many per second as the limit allows on average, with a
burst of two calls or of `BURST` seconds. Calls end in bunches, and an endpoint with a rate limit refuses bunches."""
STEEPNESS, SMALL = 0.4, 10
"""Coefficient of the cubic, as in TCP CUBIC, with time in seconds or, if calls take longer, in durations of a call; and the limit
below which it is less steep in proportion."""
PROBED, PATIENCE, NEAR = 70, 12.0, 0.2
"""Around the last cut, within the share `NEAR` of it, time passes more slowly if there are fewer than `PROBED` calls in a
unit of it, by at most the factor `PATIENCE`: each probe of a full endpoint costs refusals, and among few calls they
weigh more."""
SLOW, SLOW_SECONDS = 4.0, 1.0
"""A round of calls is too slow if it takes this factor times the usual time of replies of this length, and more seconds than
this."""
USELESS, FASTER = 0.5, 0.8
"""When cuts because of slow rounds have reduced the limit to the first share, rounds must take at most the second share of
their time. Otherwise load is not the reason: the cuts are undone, and this time counts as usual from then on."""
STORM, VAGUE = 3, 1.0
"""Cuts with no success between them after which nothing is sent until the endpoint's `Retry-After` is over. After two it is
if no call sent since was served and `Retry-After` is longer than these seconds; some endpoints send it without reason."""
LONGEST_PAUSE = 60.0
BUSY = 1 / 3
"""Share of about the last 12 answers that must be 503 to count as overload; below it, a 503 is a fault like any
other. If one call in twenty fails at random, a cut for each would reduce the limit to a tenth."""
EXPIRED = 0.25
"""Share of an expired `Share` that may still be used for a while. After that, no call may be sent."""
FIRST_PAUSE = 0.5
"""Seconds for which a slot stays empty after a second refusal in a row, if the coordinator sets the limit; doubles with each
further one."""


class Rates(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits of an endpoint. `None`: no limit except the one that the endpoint's own refusals show."""

    ceiling: float | None = None
    """Maximum number of calls in flight."""
    start: float | None = None
    """Calls in flight at first; grows by half with each round until the first refusal. `None`: starts at the ceiling."""
    rpm: float | None = None
    """Requests per minute."""
    tpm: float | None = None
    """Tokens per minute, prompt and completion together."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value: Any = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not value > 0):
                raise InputError(f"{name} must be above zero, not {value!r}")


class Share(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One worker's part of an endpoint's limits, assigned by the coordinator."""

    ceiling: float = math.inf
    """Maximum number of calls in flight. If it is finite, the worker learns no limit of its own. Below 1, there are pauses
    between calls."""
    rpm: float | None = None
    tpm: float | None = None
    seconds: float = 5.0
    """Seconds for which the share is valid. For as many seconds after that, only a part of it is."""
    scarce: bool = False
    """Whether other workers wait for calls that this worker does not make."""


class EndpointReport(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One worker's report on one endpoint, or the sum of all reports; counts are since the worker started."""

    in_flight: int = 0
    waiting: int = 0
    """Number of waiting calls."""
    allowed: int = 0
    """Number of calls that the worker may have in flight. -1: no limit."""
    calls: int = 0
    refused: int = 0
    failed: int = 0
    prompt: int = 0
    cached: int = 0
    open: int = 0
    """Number of open conversations on the endpoint."""
    failing: int = 0
    """Number of workers whose circuit breaker for the endpoint is open, or that had as many failures in a row."""
    broken: bool = False
    """Whether that is so for most of the workers that use it."""


class _Bucket:
    """A token bucket with a rate per minute and a capacity of ten seconds."""

    def __init__(self, per_minute: float, now: float) -> None:
        self.now = now
        self.level = math.inf
        self.set_rate(per_minute)

    def set_rate(self, per_minute: float) -> None:
        self.rate = per_minute / 60
        self.most = max(1.0, self.rate * 10)
        self.level = min(self.level, self.most)

    def wait(self, amount: float, now: float) -> float:
        """Return the seconds until `amount` can be taken. An amount above the capacity is taken as soon as the bucket is full,
        and the level becomes negative."""
        self.level = min(self.most, self.level + (now - self.now) * self.rate)
        self.now = now
        missing = min(amount, self.most) - self.level
        return missing / self.rate if missing > 1e-9 else 0.0

    def take(self, amount: float) -> None:
        self.level -= amount


class Governor:
    """Limits the calls to one endpoint, and counts them."""

    def __init__(self, rates: Rates | None = None, *, now: float = 0.0) -> None:
        rates = rates or Rates()
        self.ceiling = math.inf if rates.ceiling is None else max(1.0, rates.ceiling)
        self._start = rates.start
        self.limit = min(self.ceiling, math.inf if rates.start is None else max(1.0, rates.start))
        self.in_flight = 0
        self.calls = self.refused_calls = self.failed_calls = 0
        self.tokens = self.prompt = self.cached = 0
        self.seconds = 0.0
        """Sum of the latencies of served calls."""
        self.paused_until = 0.0
        self._paused = math.inf
        """Number of slots that stay empty until then."""
        self._requests = _Bucket(rates.rpm, now) if rates.rpm else None
        self._tokens = _Bucket(rates.tpm, now) if rates.tpm else None
        self.share: Share | None = None
        """This worker's share, if a coordinator has assigned one."""
        self._share_at = 0.0
        self._top: float | None = None
        """The limit at the last cut; None before the first, while the limit grows by half with each round."""
        self._age = self._rise = self._steepness = 0.0
        self._proven = 0.0
        """Recent number of calls in flight while calls were served."""
        self._grown_at = now
        self._epoch = 0
        self._in_a_row = 0
        self._refusals = 0.0
        """Refusals that served calls have not compensated."""
        self._busy = 0.0
        self._unserved_cuts = 0
        """Cuts since a call that was sent after the last cut was served."""
        self._spacing = self._spaced_until = 0.0
        """Seconds between calls (0 without a refusal), and the time of the next call at that spacing."""
        self._latency = 0.0
        self._usual = self._usual_per_token = math.inf
        self._window_calls, self._window_seconds, self._window_tokens = 0, 0.0, 0
        """The current round: calls sent since the last cut."""
        self._slow_mean = self._limit_before = math.inf

    # --- asking ---------------------------------------------------------------------------------------------------

    @property
    def is_governed(self) -> bool:
        """Whether the coordinator sets the limit."""
        return self.share is not None and self.share.ceiling < math.inf

    @property
    def is_scarce(self) -> bool:
        """Whether other workers wait for what this one does not use."""
        return self.share is not None and self.share.scarce

    def allowed(self, now: float) -> float:
        """Return how many calls may be in flight now."""
        share = self.share
        if share is None:
            return self.limit
        most, late = (
            math.ceil(share.ceiling) if share.ceiling < math.inf else self.limit,
            now - self._share_at,
        )
        if late <= share.seconds:
            return most
        # Not renewed: the coordinator may have assigned this share to others, or be dead.
        if late <= 2 * share.seconds:
            return min(most, math.floor(most * EXPIRED) if self.is_governed else 1)
        return 0.0

    def wait(self, now: float, tokens: float = 0.0) -> float:
        """Return the seconds until a call may be sent. 0 means now, infinity means not before another call has ended."""
        allowed = self.limit if self.share is None else self.allowed(now)
        if self.in_flight >= allowed:
            return math.inf
        paused = self.paused_until > now and self.in_flight + self._paused >= allowed
        wait = self.paused_until - now if paused else 0.0
        if self._spacing:
            wait = max(wait, self._spaced_until - max(BURST, 2 * self._spacing) - now)
        if self._requests:
            wait = max(wait, self._requests.wait(1, now))
        if self._tokens:
            wait = max(wait, self._tokens.wait(tokens, now))
        return wait

    def begin(self, tokens: float = 0.0, now: float = 0.0) -> int:
        """Count a call that is sent now. Return the number of the current round, to be passed as `epoch` when the call ends."""
        self.in_flight += 1
        if self._spacing:
            self._spaced_until = max(self._spaced_until, now) + self._spacing
        if self._requests:
            self._requests.take(1)
        if self._tokens:
            self._tokens.take(tokens)
        return self._epoch

    # --- results -------------------------------------------------------------------------------------------------

    def left(self) -> None:
        """Count the end of an abandoned call. It does not affect the limit."""
        self.in_flight -= 1

    def failed(self) -> None:
        """Count a call that failed for a reason other than overload."""
        self.in_flight -= 1
        self.calls += 1
        self.failed_calls += 1

    def unavailable(self, now: float, epoch: int, *, others_wait: bool = True) -> None:
        """Count a 503 without `Retry-After`. It counts as overload if there are many, otherwise as a failure."""
        self._busy += (1 - self._busy) * 0.1
        if self._busy > BUSY:
            self.refused(now, epoch, others_wait=others_wait)
        else:
            self.failed()

    def served(
        self, now: float, epoch: int, latency: float, prompt: int, completion: int, cached: int, guess: float
    ) -> None:
        """Count a served call. `guess` is the number of tokens that was passed to `begin`."""
        self.calls += 1
        self.seconds += latency
        self.prompt += prompt
        self.cached += cached
        self.tokens += prompt + completion
        if self._tokens and prompt + completion:
            self._tokens.take(prompt + completion - guess)
        if self._busy:
            self._busy *= 0.9
        if self._refusals > 0:
            self._refusals -= FORGIVEN
        self._in_a_row = 0
        if epoch == self._epoch:
            self._unserved_cuts = 0
            self._window_calls += 1
            self._window_seconds += latency
            self._window_tokens += completion
            full = self._window_calls >= 20 and self._window_calls >= self.in_flight
            if full and not self.is_governed:
                self._judge_latency(now)
        self._proven = max(self.in_flight, self._proven + (self.in_flight - self._proven) * 0.01)
        self._latency += (latency - self._latency) * 0.05 if self._latency else latency
        if self.limit < math.inf and not self.is_governed:
            self._grow(now)
        self.in_flight -= 1

    def refused(
        self, now: float, epoch: int, retry_after: float | None = None, *, others_wait: bool = True
    ) -> None:
        """Count a call that the endpoint refused because of overload: 429, or 503 with `Retry-After`."""
        self.calls += 1
        self.refused_calls += 1
        if self.is_governed:
            # The coordinator cuts the limit. Until then, more calls in this slot may be refused, too.
            if epoch == self._epoch:
                self._epoch += 1
                self._in_a_row += 1
            if others_wait and self._in_a_row > 1:
                asked = max(FIRST_PAUSE * 2 ** min(7, self._in_a_row - 2), retry_after or 0.0)
                self._paused = 1 + (self._paused if self.paused_until > now else 0)
                self.paused_until = max(self.paused_until, now + min(LONGEST_PAUSE, asked))
            self.in_flight -= 1
            return
        if epoch == self._epoch:  # calls sent before the last cut say nothing new
            self._refusals += 1
            if self._refusals > tolerated(self.in_flight):
                self._in_a_row += 1
                self._cut(now)
                self._refusals = tolerated(self.limit) / 2
                self._spacing = min(LONGEST_PAUSE, self._latency / (SLACK * self.limit))
        # The call itself waits in the client; this delays the calls that would take its place.
        closed = self._unserved_cuts >= 2 and (retry_after or 0.0) > VAGUE
        if others_wait and (closed or self._in_a_row >= STORM):
            asked = 0.5 * 2 ** min(7, self._in_a_row - STORM) if retry_after is None else retry_after
            self._paused = math.inf
            self.paused_until = max(self.paused_until, now + min(LONGEST_PAUSE, asked))
        self.in_flight -= 1

    def allow(self, share: Share | None, now: float) -> None:
        """Set or renew this worker's share. `None`: the coordinator sets no limit."""
        before, self.share, self._share_at = self.share, share, now
        if before is share:
            return
        if share is not None and self.is_governed:
            self._spacing = max(self._latency, 0.1) / share.ceiling if 0 < share.ceiling < 1 else 0.0
        elif before is not None and 0 < before.ceiling < math.inf:
            self._spacing = 0.0
            self.limit, self._top = min(self.ceiling, max(1.0, before.ceiling)), None
        for name, rate in (("_requests", share.rpm), ("_tokens", share.tpm)) if share else ():
            bucket: _Bucket | None = getattr(self, name)
            if rate is not None and bucket is None:
                setattr(self, name, _Bucket(max(rate, 1e-6), now))
            elif rate is not None and bucket is not None:
                bucket.set_rate(max(rate, 1e-6))

    def divide_start(self, workers: int) -> None:
        """Begin with a part of the calls in flight at first, because so many workers begin at the endpoint together."""
        if not self.calls and not self.in_flight and self._start:
            self.limit = min(self.ceiling, max(1.0, self._start / workers))

    def report(self, now: float, waiting: int = 0) -> EndpointReport:
        """Return a report for the coordinator."""
        allowed = self.allowed(now)
        return EndpointReport(
            self.in_flight,
            waiting,
            math.ceil(allowed) if allowed < math.inf else -1,
            self.calls,
            self.refused_calls,
            self.failed_calls,
            self.prompt,
            self.cached,
        )

    # --- the limit ------------------------------------------------------------------------------------------------

    def _grow(self, now: float) -> None:
        passed, self._grown_at = now - self._grown_at, now
        if self.in_flight < 0.8 * self.limit - 1 or self.limit >= self.ceiling:
            return  # nothing to learn from a limit that is not reached
        # Bounded per call, not by time alone: calls end in bunches, and the calls sent in their place are a bunch,
        # too. So at most 50 % more per round, and 20 % beyond the last cut.
        step = 0.5 if self._top is None or self.limit < self._top else 0.2
        most = self.limit + step * min(1.0, self.limit)
        if self._top is not None:
            unit = max(1.0, self._latency)
            if abs(self.limit - self._top) < NEAR * self._top + 1:
                calls = self.limit * unit / max(self._latency, 1e-3)
                unit *= min(PATIENCE, max(1.0, PROBED / calls))
            self._age += min(passed / unit, 0.25)
            most = min(most, max(self.limit, self._top + self._steepness * (self._age - self._rise) ** 3))
        self.limit = min(self.ceiling, most)
        if self._spacing:
            full = self.limit >= self.ceiling
            self._spacing = 0.0 if full else min(LONGEST_PAUSE, self._latency / (SLACK * self.limit))

    def _cut(self, now: float) -> None:
        at = self.limit if self.in_flight > IN_USE * self.limit else float(self.in_flight)
        again = self._unserved_cuts > 0
        if not again:
            # In a series of refusals only the first shows the limit, and none that comes at a small fraction of
            # the recent load: then the endpoint has a problem and will recover.
            below = at - min(1.0, 0.1 * at)
            self._top = max(LEAST, below, self._proven if 1 <= at < 0.5 * self._proven else 0.0)
        # While nothing is served, the limit stays near one call, so that a recovery is noticed soon.
        self.limit = max(min(at, 0.5) if again else LEAST, at * (DEEPER if again else CUT))
        top = self._top or LEAST
        self._steepness = STEEPNESS * min(1.0, top / SMALL)
        self._rise = max(0.0, (top - self.limit) / self._steepness) ** (1 / 3)
        self._age, self._grown_at = 0.0, now
        self._epoch += 1
        self._window_calls, self._window_seconds, self._window_tokens = 0, 0.0, 0
        self._unserved_cuts += 1

    def _judge_latency(self, now: float) -> None:
        """Cut if a round took much longer than usual: an endpoint that queues calls never refuses any."""
        mean, length = self._window_seconds / self._window_calls, self._window_tokens / self._window_calls
        self._window_calls, self._window_seconds, self._window_tokens = 0, 0.0, 0
        # Both may drift up, because prompts grow during conversations.
        usual = self._usual = min(mean, self._usual * 1.02)
        if length:  # many endpoints do not report the length of a reply
            self._usual_per_token = min(mean / length, self._usual_per_token * 1.02)
            usual = max(usual, length * self._usual_per_token)
        if mean <= SLOW * usual or mean <= SLOW_SECONDS or self.in_flight <= 1:
            self._slow_mean = math.inf
        elif mean >= FASTER * self._slow_mean and self.limit < USELESS * self._limit_before:
            self._usual, self._usual_per_token = mean, mean / length if length else math.inf
            self.limit, self._slow_mean = self._limit_before, math.inf
        else:
            if mean < FASTER * self._slow_mean:
                self._slow_mean, self._limit_before = mean, self.limit
            self._cut(now)


def tolerated(in_flight: float) -> float:
    """Return the number of refusals that do not lead to a cut. The last term allows for calls sent at once."""
    return min(2.5, 0.5 + in_flight / 4) + 0.03 * in_flight
