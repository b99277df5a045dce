"""`Item`: the argument of a stage's work function. Everything that is paid for, or has an effect, goes through it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from camel.core.message import Usage
from camel.core.model import Model
from camel.engine.halt import Halted, Tell
from camel.engine.site import ToolUse
from camel.engine.stage import Steps
from camel.jobs.budget import Meter, MeteredModel, ModelMeter
from camel.models.recorded import RecordedModel, once_uncounted, tool_seconds_in, uncounted, uncounted_result


class Seat(NamedTuple):
    """A seat of a job with its open model."""

    model: MeteredModel
    meter: ModelMeter
    opened: Model
    """The model itself."""


class Item:
    """One item of a stage: its index, its id and its models."""

    __slots__ = ("_meter", "_seats", "_steps", "_tell", "_used", "draft", "halt", "id", "index", "tools")

    def __init__(
        self, index: int, id: str, steps: Steps, seats: Callable[[str], Seat], meter: Meter, tell: Tell
    ) -> None:
        self.index, self.id, self.halt = index, id, meter.halt
        self._meter = meter
        self.tools = ToolUse()
        """Its tool calls, including journaled ones."""
        self.draft: Any = None
        """The record so far. The work function sets it, so that a failed item keeps it."""
        self._steps, self._seats, self._tell = steps, seats, tell
        self._used: list[_ItemModel] = []

    def model(self, seat: str = "") -> Model:
        """Return the model of a seat. Its calls are journaled, metered, traced, and retried by the failure policy."""
        made = _ItemModel(self._seats(seat), self._steps)
        self._used.append(made)
        return made

    async def once(self, check: bytes, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """Return the result of the item's next step: from the journal if it is there, otherwise from `make`, journaled.

        `check` identifies the step. Use this for everything expensive that is not a model call.
        """
        return await once_uncounted(self._steps.once, check, make)

    async def act(self, check: bytes, make: Callable[[bool], Awaitable[bytes]], repeatable: bool) -> bytes:
        """Return the result of a step with an effect, such as a tool call, which is journaled before and after it is executed.

        The argument of `make` is whether an earlier process may have executed it. If it is `repeatable`, this does not matter.
        """

        async def take(interrupted: bool) -> bytes:
            begun = time.monotonic()
            result = await make(interrupted)
            seconds = round(time.monotonic() - begun, 6)
            self._meter.tools += ToolUse(0, seconds)
            return uncounted(result, seconds)

        self.tools += ToolUse(1)
        record = await self._steps.act(check, take, repeatable=repeatable, begin=self._meter.begin_tool)
        self.tools += ToolUse(0, tool_seconds_in(record) or 0.0)
        return uncounted_result(record)

    def check(self) -> None:
        """Raise `Halted` if the job is stopping; call it in long computations."""
        if self.halt.reason:
            raise Halted(self.halt.reason)

    def say(self, text: str) -> None:
        """Show a line to users who watch the job."""
        self._tell("note", text)

    @property
    def usage(self) -> Usage:
        """Usage of the item's replies, including journaled and unusable ones."""
        return sum((one.usage for one in self._used), Usage())

    @property
    def by_model(self) -> dict[str, Usage]:
        """Usage of the item's replies, by the names of its models."""
        used: dict[str, Usage] = {}
        for one in self._used:
            used[one.meter.name] = used.get(one.meter.name, Usage()) + one.usage
        return used

    @property
    def money(self) -> float | None:
        """The item's cost in dollars, or None if a price is unknown or no call was made."""
        if not self._used or any(one.meter.price is None for one in self._used):
            return None
        return self.usage.usd

    def release(self, session: str = "") -> None:
        """Report the end of the item, or of another session of it, to its models, so that their replicas can accept another."""
        for one in self._used:
            one.inner.release(session or self.id)


def item_seed(seed: int | None, index: int) -> int | None:
    """Return the seed of an item's calls, derived from the job's seed, or None if the job has no seed."""
    return None if seed is None else (seed * 1_000_003 + index) % 2**31


def id_number(id: str) -> int:
    """Return a number for an id, from which the seeds of a table's row are derived."""
    return int(hashlib.sha256(id.encode()).hexdigest()[:8], 16)


class _ItemModel(RecordedModel):
    """The model of a seat in one item."""

    def __init__(self, seat: Seat, steps: Steps) -> None:
        super().__init__(seat.model, steps.once)
        self.meter = seat.meter
