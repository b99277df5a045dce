"""Recorded calls: what is written down, what is raised again, and what they have used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from camel.core.errors import ContextOverflow, ModelError, RequestRejected
from camel.core.history import History
from camel.core.message import Sampling, Usage
from camel.core.model import Choice, Model, Reply, Request
from camel.models.recorded import RecordedModel, usage_in


class Answers(Model):
    """Gives or raises what it was made with, and counts how often it was asked."""

    context_tokens = 4096

    def __init__(self, answer: Reply | ModelError) -> None:
        self.asked, self._answer = 0, answer

    async def reply(self, request: Request) -> Reply:
        self.asked += 1
        if isinstance(self._answer, ModelError):
            raise self._answer
        return self._answer


class Steps:
    """Keeps results in memory, as a journal keeps them on disk."""

    def __init__(self) -> None:
        self.kept: dict[bytes, bytes] = {}

    async def once(self, check: bytes, make: Callable[[], Awaitable[bytes]]) -> bytes:
        if check not in self.kept:
            self.kept[check] = await make()
        return self.kept[check]


def asked(n: int = 1) -> Request:
    history = History()
    history.add("user", "what?")
    return Request(history, Sampling(n=n), "session", "user")


async def test_a_refusal_of_several_choices_is_the_same_on_replay():
    model, steps = Answers(RequestRejected("n must be 1 \ud83d")), Steps()
    for _ in range(2):
        with pytest.raises(RequestRejected, match="must be 1"):
            await RecordedModel(model, steps.once).reply(asked(n=2))
    assert model.asked == 1
    assert [usage_in(record)[1] for record in steps.kept.values()] == [Usage()], "a refusal costs nothing"


@pytest.mark.parametrize(
    ("error", "n"), [(RequestRejected("no"), 1), (ContextOverflow("long"), 2), (ModelError("x"), 2)]
)
async def test_other_failures_are_raised_and_not_recorded(error: ModelError, n: int):
    model, steps = Answers(error), Steps()
    with pytest.raises(type(error)):
        await RecordedModel(model, steps.once).reply(asked(n))
    assert steps.kept == {}


async def test_what_a_recorded_call_used():
    steps = Steps()
    reply = Reply((Choice("a"),), Usage(3, 4, 1, 1), "m")
    await RecordedModel(Answers(reply), steps.once).reply(asked())
    assert [usage_in(record)[1] for record in steps.kept.values()] == [Usage(3, 4, 1, 1)]


def test_a_recorded_call_without_a_count_is_one_call_of_unknown_size():
    assert usage_in(msgspec.msgpack.encode({"choices": []})) == ("", Usage(calls=1, unknown=1))


async def test_an_item_counts_all_its_calls():
    steps = Steps()
    model = RecordedModel(Answers(Reply((Choice("a"),), Usage(3, 4, 1, 1))), steps.once)
    assert model.usage == Usage()
    for _ in range(2):
        assert (await model.reply(asked())).content == "a"
    assert model.usage == Usage(6, 8, 2, 2)


def test_the_window_of_the_model_is_known():
    class Plain(Model):
        async def reply(self, request: Request) -> Reply:
            raise NotImplementedError

    model = Answers(ModelError("x"))
    assert RecordedModel(model, Steps().once).context_tokens == 4096
    assert RecordedModel(Plain(), Steps().once).context_tokens is None
