"""A model whose replies are kept: asked again after a crash, it answers from what was paid for before.

Knows nothing of journals: whoever runs it hands it a function that takes a step once and remembers its result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from msgspec.structs import replace

from camel.core.message import Usage, well_formed
from camel.core.model import Model, Reply, Request

Once = Callable[[bytes, Callable[[], Awaitable[bytes]]], Awaitable[bytes]]
"""Takes (what identifies the step, how to take it) and gives its result, taken now or before."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Reply).decode


class _Paid(msgspec.Struct):
    """As much of a recorded reply as counts."""

    usage: Usage = Usage(calls=1, unknown=1)


_paid = msgspec.msgpack.Decoder(_Paid).decode


def usage_in(record: bytes) -> Usage:
    """What a recorded call used, without reading the rest of it."""
    return _paid(record).usage


class RecordedModel:
    """Sends each call through `once`."""

    def __init__(self, model: Model, once: Once) -> None:
        self._model, self._once = model, once
        self.context_tokens: int | None = getattr(model, "context_tokens", None)

    async def reply(self, request: Request) -> Reply:
        """Answer from the record, or from the model and record it."""

        async def ask() -> bytes:
            reply = await self._model.reply(request)
            try:
                return _encode(reply)
            except UnicodeEncodeError:
                # A model of somebody's own may let half a surrogate pair through; it is paid for all the same.
                choices = tuple(replace(one, content=well_formed(one.content)) for one in reply.choices)
                return _encode(replace(reply, choices=choices))

        return _decode(await self._once(request.digest(), ask))
