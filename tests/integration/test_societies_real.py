"""The worked societies with the real small model: short, and each ends by a rule. Never what the model says."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path

import msgspec
import pytest

from camel import ChatModel, Transcript, assign_roles, load_society, plan_task
from camel.core.society import Ending, Society
from camel.models.local import LOCAL_SAMPLING
from camel.models.recorded import RecordedModel

pytestmark = [
    pytest.mark.real_model,
    pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="needs the extra 'local'"),
]

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "societies"
SHORT = msgspec.structs.replace(LOCAL_SAMPLING, max_tokens=16)


def shortened(name: str) -> Society:
    """An example that ends after a few messages, to keep CI short; its members, turns and prompts as they are."""
    society = load_society(EXAMPLES / f"{name}.toml")
    limits = {"debate": society.stop, "town_hall": Ending(vote=society.stop.vote, max_rounds=1)}
    stop = limits.get(name) or msgspec.structs.replace(society.stop, max_messages=3)
    return msgspec.structs.replace(society, stop=stop)


@pytest.mark.parametrize(
    ("name", "longest"),
    [
        ("software_team", 3),
        pytest.param("debate", 7, marks=pytest.mark.thorough),
        pytest.param("town_hall", 12, marks=pytest.mark.thorough),
    ],
)
def test_a_worked_society_ends_by_a_rule_and_replays(name: str, longest: int, small_model: ChatModel):
    model = small_model
    society, journal = shortened(name), list[bytes]()

    def play(ask_model: bool) -> Transcript:
        number = -1

        async def once(check: bytes, ask: object) -> bytes:
            nonlocal number
            number += 1
            at = number
            if ask_model:
                journal.extend([b""] * (at + 1 - len(journal)))
                journal[at] = await ask()  # type: ignore[operator]
            return journal[at]

        async def talk() -> Transcript:
            async with model:
                return await society.play(RecordedModel(model, once), sampling=SHORT, seed=3, id="t").finish()

        return asyncio.run(talk())

    transcript = play(ask_model=True)
    assert transcript.stop
    assert transcript.stop.reason in (
        "max_rounds",
        "max_messages",
        "done",
        "agreed",
        "message_loop",
        "token_limit",
    )
    assert 0 < len(transcript.messages) <= longest
    assert transcript.usage.calls == len(transcript.messages) == len(journal)
    assert {message.speaker for message in transcript.messages} <= set(society.names)
    assert all(message.usage.completion for message in transcript.messages)
    assert Transcript.from_json(transcript.to_json()) == transcript
    assert play(ask_model=False) == transcript, "the record replays to the same conversation without a call"


@pytest.mark.thorough
def test_roles_and_a_plan(small_model: ChatModel):
    model = small_model

    async def ask() -> None:
        async with model:
            cast = await assign_roles(model, "Build a footbridge over the river", 2)
            assert len({member.name for member in cast.members}) == 2
            plan = await plan_task(model, "Build a footbridge over the river", 3)
            assert len(plan.steps) <= 3
            assert cast.usage.calls + plan.usage.calls <= 6

    asyncio.run(ask())
