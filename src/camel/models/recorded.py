"""A model whose replies are recorded: asked again after a crash, it answers from what was paid for before.

It knows nothing of journals: its caller passes a function that takes a step once and remembers the result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from camel.core.errors import RequestRejected
from camel.core.message import Usage, well_formed
from camel.core.model import Model, Reply, Request, WrappedModel

Once = Callable[[bytes, Callable[[], Awaitable[bytes]]], Awaitable[bytes]]
"""Takes (what identifies the step, how to take it) and gives its result, taken now or before."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Reply | str).decode


class _Paid(msgspec.Struct):
    """As much of a recorded reply as counts."""

    usage: Usage = Usage(calls=1, unknown=1)
    by: str = ""


_Other: TypeAlias = tuple[bytes]
"""The record of a step that is no call: a list, as the record of a call is none."""
_paid = msgspec.msgpack.Decoder(_Paid | str | _Other).decode
_other = msgspec.msgpack.Decoder(_Other).decode


def usage_in(record: bytes) -> tuple[str, Usage]:
    """Which model a recorded step asked, where there are several, and what it used; nothing, where it is no call."""
    paid = _paid(record)
    return (paid.by, paid.usage) if isinstance(paid, _Paid) else ("", Usage())


async def once_uncounted(once: Once, check: bytes, make: Callable[[], Awaitable[bytes]]) -> bytes:
    """The result of a step that is no call of a model, recorded so that it is not counted as one."""

    async def take() -> bytes:
        return _encode((await make(),))

    return _other(await once(check, take))[0]


class RecordedModel(WrappedModel):
    """Sends each call through `once`."""

    def __init__(self, model: Model, once: Once) -> None:
        super().__init__(model)
        self._once = once
        self.usage = Usage()
        """What its replies took, those answered from the record included."""

    async def reply(self, request: Request) -> Reply:
        """Answer from the record, or from the model and record it."""

        async def ask() -> bytes:
            try:
                reply = await self.inner.reply(request)
            except RequestRejected as error:
                # A caller that is refused several choices asks for one at a time: other steps, which must recur.
                if request.sampling.n > 1 and type(error) is RequestRejected:
                    return _encode(well_formed(str(error)))
                raise
            try:
                return _encode(reply)
            except UnicodeEncodeError:
                # A model of a plug-in may let half a surrogate pair through; the reply is paid for all the same.
                choices = tuple(replace(one, content=well_formed(one.content)) for one in reply.choices)
                return _encode(replace(reply, choices=choices))

        recorded = _decode(await self._once(request.digest(), ask))
        if isinstance(recorded, str):
            raise RequestRejected(recorded)
        self.usage += recorded.usage
        return recorded
