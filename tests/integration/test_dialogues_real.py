"""The shipped natural dialogues with the real small model: short, and each ends by a rule of its own. Never what the model says."""

from __future__ import annotations

import asyncio
import importlib.util

import msgspec
import pytest

from camel import ChatModel, Dialogue, Transcript
from camel.core.stops import MaxMessages
from camel.formats.conversation import default_seat, turns_of
from camel.models.local import LOCAL_SAMPLING
from camel.scenarios import load

pytestmark = [
    pytest.mark.real_model,
    pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="needs the extra 'local'"),
]
SHORT = msgspec.structs.replace(LOCAL_SAMPLING, max_tokens=16)
MESSAGES = 3


@pytest.mark.parametrize("name", ["customer_support", "socratic_tutor", "persona_interview"])
def test_a_short_dialogue_of_each_scenario(name: str, small_model: ChatModel):
    scenario = load(name)
    assert isinstance(scenario.end, Dialogue)
    goal = scenario.end.stops.goal
    stops = msgspec.structs.replace(
        scenario.end.stops, goal=goal and msgspec.structs.replace(goal, sampling=SHORT)
    )
    short = msgspec.structs.replace(scenario.end, max_messages=MESSAGES, sampling=SHORT, stops=stops)

    async def converse() -> Transcript:
        async with small_model as model:
            return await short.fill(scenario.facts(0, lambda level, number: ())).play(model, seed=3).finish()

    transcript = asyncio.run(converse())
    assert transcript.stop
    assert transcript.stop.reason in ("max_messages", "goal", "goodbye", "message_loop")
    assert 1 <= len(transcript.messages) <= MESSAGES
    judged = [message for message in transcript.messages if goal and message.speaker == goal.after]
    assert transcript.usage.calls == len(transcript.messages) + len(judged)
    assert all(message.content and message.usage.completion for message in transcript.messages)
    roles = [turn.role for turn in turns_of(transcript, default_seat(transcript), system=True)]
    assert roles in ([], ["system", "user", "assistant"])
    assert not any(
        isinstance(rule, MaxMessages) and rule.limit != MESSAGES for rule in short.rules(small_model)
    )
