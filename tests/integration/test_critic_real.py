"""Critics and searches with the real small model: they end, within their budgets, and the record says how."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from camel import (
    Beam,
    BestFirst,
    BestOf,
    ChatModel,
    ModelJudge,
    RolePlaying,
    Sampling,
    Transcript,
)
from camel.core.conversation import Critic
from camel.core.model import Model, Reply, Request
from camel.core.stops import paper_rules

pytestmark = pytest.mark.real_model
SAMPLING = Sampling(temperature=0.8, max_tokens=32, seed=3)


class Counted(Model):
    """Counts what the model is asked for, and what it answered."""

    def __init__(self, model: ChatModel) -> None:
        self.model, self.calls = model, 0
        self.context_tokens = model.context_tokens

    async def reply(self, request: Request) -> Reply:
        reply = await self.model.reply(request)
        self.calls += 1
        return reply


def critics(model: Any) -> dict[str, Critic]:
    def judge(mode: Any) -> ModelJudge:
        return ModelJudge(model, mode, sampling=Sampling(temperature=0.5, max_tokens=160, seed=3))

    return {
        "choose": BestOf(judge=judge("choose")),
        "score": BestOf(judge=judge("score"), proposals=2),
        "feedback": BestOf(judge=judge("feedback"), proposals=2),
        "beam": Beam(judge=judge("score"), proposals=2, depth=1, calls=5),
        "best_first": BestFirst(judge=judge("score"), proposals=2, depth=2, calls=5),
    }


@pytest.mark.parametrize(
    "kind",
    [
        "choose",
        *(
            pytest.param(kind, marks=pytest.mark.thorough)
            for kind in ("beam", "score", "feedback", "best_first")
        ),
    ],
)
def test_a_critic_decides(kind: str, small_model: ChatModel):
    model = small_model
    counted = Counted(model)
    critic = critics(counted)[kind]

    async def talk() -> Transcript:
        async with model:
            return await RolePlaying(
                assistant="Poet",
                user="Editor",
                task="Write a short poem",
                model=counted,
                sampling=SAMPLING,
                critic=critic,
                specifier=None,
                rules=paper_rules(max_messages=3 if kind in ("beam", "best_first") else 2),
                id=f"real-{kind}",
            ).finish()

    transcript = asyncio.run(talk())
    assert transcript.stop
    assert transcript.usage.calls == counted.calls
    criticised = [message for message in transcript.messages if message.speaker == "assistant"]
    assert criticised
    for message in criticised:
        found = message.deliberation
        assert found
        assert found.proposals[found.choice].content == message.content
        # Held to JSON, even this model answers so that it can be read.
        # Now and then all proposals are the same, and nobody is asked.
        alike = len({one.content for one in found.proposals}) == 1
        assert found.critic == ("critic" if alike and kind == "choose" else model.name)
        assert not found.fallback or "budget" in found.fallback
        assert message.guided == "llama.cpp:solution"
        assert message.usage.calls <= {"beam": 5, "best_first": 5}.get(kind, 8)
    assert Transcript.from_json(transcript.to_json()) == transcript
