"""A recorded model gives back what was paid for, whatever the model said."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from camel.core.history import History
from camel.core.message import Sampling, Usage
from camel.core.model import Choice, Model, Reply, Request
from camel.models.recorded import RecordedModel


class Said(Model):
    """A model that has one thing to say."""

    def __init__(self, reply: Reply) -> None:
        self.asked, self._reply = 0, reply

    async def reply(self, request: Request) -> Reply:
        self.asked += 1
        return self._reply


def asked(text: str) -> Request:
    history = History()
    history.add("user", text)
    return Request(history, Sampling(), "session", "user")


async def replayed(reply: Reply) -> tuple[Reply, Reply, int]:
    """What comes back at first and from the record, and how often the model was asked."""
    kept: dict[bytes, bytes] = {}

    async def once(check: bytes, make: Callable[[], Awaitable[bytes]]) -> bytes:
        if check not in kept:
            kept[check] = await make()
        return kept[check]

    model = Said(reply)
    first = await RecordedModel(model, once).reply(asked("what?"))
    again = await RecordedModel(model, once).reply(asked("what?"))
    return first, again, model.asked


async def test_the_record_is_the_reply():
    reply = Reply(
        (Choice("a", "length"), Choice("b", logprobs=[{"token": "b"}])), Usage(3, 4, calls=1), "m", 0.5, 2
    )
    assert await replayed(reply) == (reply, reply, 1)


async def test_half_a_surrogate_pair_is_paid_for_and_kept():
    first, again, times = await replayed(Reply((Choice("half \ud83d of it"), Choice("😀"))))
    assert first == again
    assert [choice.content for choice in first.choices] == ["half ? of it", "😀"]
    assert times == 1
