"""Looking ahead: where the calls go, that they are never more than allowed, and that the record explains the choice."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camel.core.conversation import Agent, Conversation
from camel.core.critic import Case
from camel.core.judge import ModelJudge
from camel.core.message import Deliberation
from camel.core.search import Beam, BestFirst, TreeSearch
from camel.core.stops import MaxMessages
from camel.core.task import Task
from camel.core.transcript import Transcript
from tests.support.deliberating import Speaker, check_record, play


def root(found: Deliberation, place: int) -> int:
    while found.proposals[place].parent >= 0:
        place = found.proposals[place].parent
    return place


async def deliberated(critic: TreeSearch, model: Speaker, messages: int = 40) -> tuple[Deliberation, int]:
    """What a search for the assistant's first message came to, and the calls it made."""
    role_playing = play(model, critic, messages=messages)
    count = 0
    async for message in role_playing:
        if message.speaker == "assistant":
            check_record(role_playing.transcript)
            assert message.deliberation
            assert message.usage.calls == model.calls - count
            return message.deliberation, message.usage.calls
        count = model.calls
    raise AssertionError("the assistant did not speak")


def by_word(word: str):
    """A judge that counts a word over all that would follow."""

    def judge(case: Case) -> list[float]:
        return [
            float(sum(text.count(word) for text in (o.content, *(p.content for p in o.then))))
            for o in case.options
        ]

    return judge


async def test_a_beam_goes_round_by_round():
    model = Speaker()
    found, calls = await deliberated(Beam(judge=ModelJudge(model, "score"), width=2, depth=2), model)
    first = [p for p in found.proposals if p.parent < 0]
    answers = [p for p in found.proposals if p.speaker == "user"]
    assert len(first) == 3
    # In each round two branches are answered and proposed upon, unless all that are left lead to the same.
    assert len(answers) in (2, 4)
    assert len(found.proposals) == 3 + len(answers) * 4
    assert calls == 2 + len(answers) // 2 * 5
    assert all(p.score is not None for p in found.proposals if not p.speaker)
    last = [p for p in found.proposals if p.score is not None][-6:]
    best = max(last, key=lambda p: p.score or 0.0)
    assert found.choice == root(found, found.proposals.index(best))


async def test_best_first_follows_the_best():
    model = Speaker()
    found, calls = await deliberated(BestFirst(judge=by_word("bridge"), depth=4, calls=15), model)
    assert calls == 15
    parents = {p.parent for p in found.proposals}
    leaves = [
        (p.score, place)
        for place, p in enumerate(found.proposals)
        if place not in parents and p.score is not None
    ]
    best = max(score for score, _ in leaves)
    assert found.choice in {root(found, place) for score, place in leaves if score == best}


@pytest.mark.parametrize("search", ["beam", "best_first"])
@settings(max_examples=60, deadline=None)
@given(
    calls=st.integers(2, 40),
    proposals=st.integers(1, 4),
    width=st.integers(1, 4),
    depth=st.integers(1, 4),
    most=st.sampled_from([0, 1, 2, 100]),
    mute=st.sampled_from([0, 2, 1]),
    mode=st.sampled_from(["score", "choose"]),
    messages=st.integers(2, 9),
)
async def test_no_search_passes_its_budget(
    search: str,
    calls: int,
    proposals: int,
    width: int,
    depth: int,
    most: int,
    mute: int,
    mode: str,
    messages: int,
):
    model = Speaker(most=most, mute=mute)
    judge = ModelJudge(model, mode)  # type: ignore[arg-type]
    if search == "beam":
        critic: TreeSearch = Beam(judge=judge, proposals=proposals, width=width, depth=depth, calls=calls)
    else:
        critic = BestFirst(judge=judge, proposals=proposals, depth=depth, calls=calls)
    found, spent = await deliberated(critic, model, messages)
    assert spent <= calls
    assert all(p.score is None or 0 <= p.score <= 10 for p in found.proposals)


@pytest.mark.parametrize("calls", range(2, 40))
@pytest.mark.parametrize("most", [1, 100])
async def test_a_search_that_wants_more_spends_all_it_may(calls: int, most: int):
    model = Speaker(most=most)
    critic = BestFirst(judge=ModelJudge(model, "score"), depth=100, calls=calls)
    _, spent = await deliberated(critic, model, messages=200)
    assert spent == calls
    model = Speaker(most=most)
    # As wide as this, every first proposal stays in the running.
    critic = Beam(judge=ModelJudge(model, "score"), depth=100, width=1000, calls=calls)
    _, spent = await deliberated(critic, model, messages=200)
    assert spent == calls


async def test_branches_share_their_prefix_to_the_byte():
    model = Speaker()
    await deliberated(Beam(judge=ModelJudge(model, "score"), depth=2, calls=40), model)
    for speaker in ("user", "assistant"):
        sent = sorted({text for name, text in model.sent if name == speaker}, key=len)
        assert len(sent) > 2
        assert all(later.startswith(sent[0]) for later in sent)
        assert {r.session for r in model.asked} == {"a conversation"}


async def test_a_branch_that_ends_is_judged_as_it_is():
    model = Speaker()
    found, _ = await deliberated(
        Beam(judge=ModelJudge(model, "score"), depth=5, width=3, calls=100), model, messages=4
    )
    # After the assistant's second message the conversation is at its limit.
    assert len([p for p in found.proposals if p.speaker == "user"]) == 3
    assert len(found.proposals) == 3 + 3 + 9


async def test_what_is_only_looked_at_is_not_said():
    model = Speaker()
    critic = BestFirst(judge=ModelJudge(model, "score"), calls=20)
    transcript = await play(model, critic, critic, messages=6).finish()
    check_record(transcript)
    assert [m.index for m in transcript.messages] == list(range(6))
    assert transcript.usage.calls == model.calls <= 6 * 20
    for message in transcript.messages:
        assert message.usage.calls <= 20


async def test_a_mute_judge_leaves_the_first():
    model = Speaker(mute=1)
    found, spent = await deliberated(Beam(judge=ModelJudge(model, "score", retries=1), calls=12), model)
    assert found.choice == 0
    assert found.fallback.startswith("first: ")
    assert spent <= 12


async def test_among_many_who_speak_one_after_the_other_or_at_once():
    names = ["a", "b", "c", "d"]
    for together in (False, True):
        model = Speaker(jitter=random.Random(1))
        critic = Beam(judge=by_word("atlas"), depth=2, calls=31)
        agents = [Agent(n, n, model, opening="Go.", critic=critic if n == "a" else None) for n in names]

        def turns(messages: object, together: bool = together) -> list[str]:
            said = len(messages)  # type: ignore[arg-type]
            if together:
                return ["a"] if said % 4 == 0 else ["b", "c", "d"]
            return [names[said % 4]]

        conversation = Conversation(agents, Transcript("t", Task("t")), rules=[MaxMessages(40)], turns=turns)
        message = await anext(aiter(conversation))
        found = message.deliberation
        assert found
        assert message.usage.calls == model.calls <= 31
        assert {p.speaker for p in found.proposals} == {"", "b", "c", "d"}
