"""Branches of recorded conversations: what their models are sent, and what a change changes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel.core.branches import Change, Continuation
from camel.core.conversation import Agent, Conversation
from camel.core.errors import InputError
from camel.core.heard import sent_for
from camel.core.message import Message, Sampling
from camel.core.model import Choice, Model, Reply, Request, Usage
from camel.core.role_playing import RolePlaying
from camel.core.society import Ending, Society
from camel.core.stops import MaxMessages
from camel.core.task import Task
from camel.core.transcript import Transcript
from camel.core.turns import Addressed, Moderated, Policy, RoundRobin, Rounds
from camel.models.scripted import ScriptedModel


class Counting(Model):
    """Says a different text each time, and keeps the requests."""

    name = "counting"

    def __init__(self, words: int = 3, window: int | None = None) -> None:
        self.requests: list[Request] = []
        self.chats: list[list[dict[str, Any]]] = []
        self._words, self.context_tokens = words, window

    async def reply(self, request: Request) -> Reply:
        self.requests.append(request)
        self.chats.append([entry.to_dict() for entry in request.history.entries])
        number = len(self.requests)
        text = (
            f"{'Instruction:' if request.speaker == 'user' else 'Solution:'} {'word ' * self._words}{number}"
        )
        return Reply((Choice(text),), Usage(10 * number, self._words, calls=1))


def play(model: Model, messages: int, **more: Any) -> Transcript:
    made = RolePlaying("Bake bread", assistant="Baker", user="Guest", model=model, specify=False, **more)
    return made.again(rules=[MaxMessages(messages)]).run()


def branch(
    record: Transcript, at: int, model: Model, change: Change | None = None, messages: int = 8
) -> Transcript:
    return Continuation(record, at, {"": model}, change, rules=[MaxMessages(messages)]).run()


@given(st.integers(1, 9), st.sampled_from(["full", "window", "summarize"]))
def test_a_branch_sends_what_the_conversation_had_sent(at: int, history: str):
    first = Counting(40, 700) if history != "full" else Counting()
    record = play(first, 9, history=history, sampling=Sampling(max_tokens=50))
    second = Counting(40, 700) if history != "full" else Counting()
    made = branch(record, at, second, messages=9)
    assert [one.content for one in made.messages[: at - 1]] == [
        one.content for one in record.messages[: at - 1]
    ]
    assert len(made.messages) == 9
    spoken = [
        chat
        for request, chat in zip(second.requests, second.chats, strict=True)
        if "summary" not in request.speaker
    ]
    if history == "full":
        assert spoken[0] == [entry.to_dict() for entry in sent_for(record, at - 1)]
    for index in range(at - 1, 9):
        assert spoken[index - at + 1] == [entry.to_dict() for entry in sent_for(made, index)]
    assert made.usage.calls == len(second.requests), "what came before is not paid for again"


@pytest.mark.parametrize("at", range(1, 8))
def test_a_society_whose_members_speak_together_is_continued(at: int):
    society = Society("Plan", members=("Ada", "Bob", "Cy"), turns=Rounds(), stop=Ending(max_messages=7))
    record = society.play(Counting()).run()
    again = Counting()
    made = Continuation(record, at, {"": again}, rules=[MaxMessages(7)]).run()
    assert [one.seen for one in made.messages] == [one.seen for one in record.messages]
    assert [one.content for one in made.messages[: at - 1]] == [
        one.content for one in record.messages[: at - 1]
    ]
    assert made.usage.calls == len(again.requests) == 8 - at
    for chat, index in zip(again.chats, range(at - 1, 7), strict=False):
        assert chat == [entry.to_dict() for entry in sent_for(made, index)]


def test_a_changed_message_is_heard_and_the_next_speaker_continues():
    record = play(Counting(), 6)
    again = Counting()
    made = branch(record, 3, again, Change(message="Instruction: Stop."), messages=6)
    assert made.messages[2].content == "Instruction: Stop."
    assert made.messages[2].speaker == "user"
    assert again.requests[0].speaker == "assistant"
    assert again.chats[0][-1]["content"] == "Instruction: Stop."
    assert [one.content for one in made.messages[:2]] == [one.content for one in record.messages[:2]]


def test_role_sentence_sampling_and_model_change_only_their_seat():
    record = play(Counting(), 4)
    usual, other = Counting(), ScriptedModel(["Solution: other."])
    change = Change(
        seat="assistant", role="Chef", without="Never flip roles!", sampling=Sampling(temperature=1.5)
    )
    made = Continuation(record, 2, {"": usual, "assistant": other}, change, rules=[MaxMessages(3)]).run()
    user, assistant = made.speakers
    assert assistant.role == "Chef"
    assert "Chef" in user.system
    assert "Baker" not in user.system + assistant.system
    assert "Never flip roles!" not in assistant.system
    assert "Never flip roles!" in user.system
    assert (assistant.sampling.temperature, user.sampling.temperature) == (1.5, 0.2)
    assert made.messages[1].content == "Solution: other."
    assert made.stop is not None
    assert made.stop.reason == "max_messages"


def test_a_branch_that_cannot_be_restored_says_why():
    record = play(Counting(), 4)
    for at in (0, 6):
        with pytest.raises(InputError, match="4 messages"):
            Continuation(record, at, {"": Counting()})
    with pytest.raises(InputError, match="no seat"):
        Continuation(record, 2, {"": Counting()}, Change(seat="cook", role="Chef"))
    with pytest.raises(InputError, match="needs the seat"):
        Change(role="Chef")
    agents = [Agent(name, name, Counting()) for name in ("Ada", "Bob", "Cy")]
    own = Conversation(agents, Transcript("own", Task("Plan")), rules=[MaxMessages(4)], turns=backwards)
    restored = asyncio.run(finished(own))
    with pytest.raises(InputError, match="Pass turns"):
        Continuation(restored, 3, {"": Counting()}).run()
    made = Continuation(restored, 3, {"": Counting()}, turns=backwards, rules=[MaxMessages(4)]).run()
    assert [one.speaker for one in made.messages] == [one.speaker for one in restored.messages]
    restored.turns = {"policy": "rounds", "groups": [[]]}
    with pytest.raises(InputError, match="unknown turns"):
        Continuation(restored, 3, {"": Counting()}).run()


def backwards(messages: Sequence[Message]) -> str:
    return ("Cy", "Bob", "Ada")[len(messages) % 3]


async def finished(conversation: Conversation) -> Transcript:
    async for _ in conversation:
        pass
    return conversation.transcript


@pytest.mark.parametrize(
    "turns",
    [
        RoundRobin(("Cy", "Ada", "Cy", "Bob")),
        Addressed("Bob"),
        Moderated("Bob"),
        Rounds((("Ada", "Cy"), ("Bob",))),
    ],
)
def test_a_society_is_continued_in_its_own_turns(turns: Policy):
    """Each message calls another member, so that the next speaker depends on what was said."""
    members = ["Ada", "Bob", "Cy"]
    said = [f"I agree.\nNext: {members[(3 * number + 1) % 7 % 3]}" for number in range(9)]
    society = Society("Plan", members=members, turns=turns, stop=Ending(max_messages=9))
    record = society.play(ScriptedModel(said)).run()
    record = Transcript.from_json(record.to_json())
    for at in range(1, 10):
        again = ScriptedModel(said[at - 1 :])
        made = Continuation(record, at, {"": again}, rules=[MaxMessages(9)]).run()
        assert [one.speaker for one in made.messages] == [one.speaker for one in record.messages]
        assert [one.seen for one in made.messages] == [one.seen for one in record.messages]
