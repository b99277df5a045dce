"""A model that records its replies: after a crash, it answers from the record instead of paying again.

It is independent of journals: the caller passes a function that executes a step once and stores the result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, cast

import msgspec
from msgspec.structs import replace

from camel.core.errors import RequestRejected
from camel.core.message import Usage, well_formed
from camel.core.model import Model, Reply, Request, WrappedModel

Once = Callable[[bytes, Callable[[], Awaitable[bytes]]], Awaitable[bytes]]
"""Takes an identifier and a function; returns the function's result, computed now or recorded before."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Reply | str).decode


class _Paid(msgspec.Struct):
    """The fields of a recorded reply that count its cost."""

    usage: Usage = Usage(calls=1, unknown=1)
    by: str = ""


_Other: TypeAlias = list[bytes | float]
"""The record of a step that is not a model call: a list, unlike the record of a call. That of a tool call has its seconds."""
_paid = msgspec.msgpack.Decoder(_Paid | str | _Other).decode
_other = msgspec.msgpack.Decoder(_Other).decode


def usage_in(record: bytes) -> tuple[str, Usage]:
    """Return the model's name (if the run has several) and the usage of a recorded step. Both are empty for other steps."""
    paid = _paid(record)
    return (paid.by, paid.usage) if isinstance(paid, _Paid) else ("", Usage())


def tool_seconds_in(record: bytes) -> float | None:
    """Return the duration of a recorded tool call. None for other steps."""
    found = _paid(record)
    parts = cast("list[Any]", found) if isinstance(found, list) else []
    return parts[1] if len(parts) > 1 else None


async def once_uncounted(once: Once, check: bytes, make: Callable[[], Awaitable[bytes]]) -> bytes:
    """Return the result of a step that is not a model call, recorded so that it is not counted as one."""

    async def take() -> bytes:
        return uncounted(await make())

    return uncounted_result(await once(check, take))


def uncounted(result: bytes, *seconds: float) -> bytes:
    """Return the record of a step that is not a model call. `seconds` is the duration of a tool call."""
    return _encode((result, *seconds))


def uncounted_result(record: bytes) -> bytes:
    """Return the result in a record that `uncounted` made."""
    return cast("bytes", _other(record)[0])


class RecordedModel(WrappedModel):
    """Sends each call through `once`."""

    def __init__(self, model: Model, once: Once) -> None:
        super().__init__(model)
        self._once = once
        self.usage = Usage()
        """Usage of its replies, including recorded ones."""

    async def reply(self, request: Request) -> Reply:
        """Answer from the record, or from the model and record it."""

        async def ask() -> bytes:
            try:
                reply = await self.inner.reply(request)
            except RequestRejected as error:
                # After this rejection a critic asks for one choice at a time; record it, so that a replay takes the same steps.
                if request.sampling.n > 1 and type(error) is RequestRejected:
                    return _encode(well_formed(str(error)))
                raise
            try:
                return _encode(reply)
            except UnicodeEncodeError:
                # A plug-in's model may return half a surrogate pair; keep the paid reply.
                choices = tuple(replace(one, content=well_formed(one.content)) for one in reply.choices)
                return _encode(replace(reply, choices=choices))

        recorded = _decode(await self._once(request.digest(), ask))
        if isinstance(recorded, str):
            raise RequestRejected(recorded)
        self.usage += recorded.usage
        return recorded
