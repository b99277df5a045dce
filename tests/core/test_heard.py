"""The record shows what each speaker heard, for every choice of listeners and of simultaneous speakers."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel import (
    Agent,
    Conversation,
    Edges,
    Groups,
    MaxMessages,
    Member,
    Message,
    RoundRobin,
    Rounds,
    ScriptedModel,
    Society,
    Star,
    Transcript,
)
from camel.core.errors import InputError
from camel.core.graphs import Everyone, Graph, Ring
from camel.core.heard import by_name, heard_by
from camel.core.society import Ending
from camel.core.task import Task
from camel.core.turns import Policy
from camel.formats.conversation import turns_of
from camel.record.arrow import rows, to_table

NAMES = ("Ada", "Bob", "Cleo", "Dan")
pairs = st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES))
groups = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True).map(tuple)
graphs: st.SearchStrategy[Graph] = st.one_of(
    st.just(Everyone()),
    st.integers(1, 3).map(Ring),
    st.sampled_from(NAMES).map(Star),
    st.lists(groups, min_size=1, max_size=3).map(lambda found: Groups(tuple(found))),
    st.lists(pairs, max_size=8).map(lambda found: Edges(tuple(found))),
)
orders: st.SearchStrategy[Policy] = st.one_of(
    st.just(RoundRobin()), st.lists(groups, min_size=1, max_size=3).map(lambda found: Rounds(tuple(found)))
)


@given(graphs, orders, st.integers(1, 14), st.integers(2, 4))
def test_what_was_heard_is_what_was_sent(graph: Graph, turns: Policy, limit: int, count: int):
    names = NAMES[:count] if isinstance(graph, Everyone | Ring) and isinstance(turns, RoundRobin) else NAMES
    society = Society(
        members=tuple(Member(name) for name in names),
        hears=graph,
        turns=turns,
        stop=Ending(max_messages=limit),
        task="a task",
    )
    models = {name: ScriptedModel([f"{name} {n}\nand more" for n in range(limit + 1)]) for name in names}
    transcript = asyncio.run(society.play(models).finish())
    (back,) = rows(to_table([transcript]))
    for name, model in models.items():
        said = [message.content for message in transcript.messages if message.speaker == name]
        sent = [(entry.role, entry.content) for entry in model.heard[len(said) - 1]] if said else []
        expected = [*sent, ("assistant", said[-1])] if said else []
        assert [(entry.role, entry.content) for entry in heard_by(back, name)] == expected
        last = [(entry.role, entry.content) for entry in turns_of(back, name, system=True)][-1:]
        assert last == expected[-1:]


async def test_a_wording_without_a_name_is_not_taken_for_the_usual_one():
    def whispered(volume: int, message: Message) -> str:
        return message.content.lower()

    agents = [Agent(name, name, ScriptedModel(["Hello", "Hi"])) for name in ("Ada", "Bob")]
    transcript = Transcript("t", Task("a task"))
    wording = partial(whispered, 3)
    async for _ in Conversation(agents, transcript, rules=[MaxMessages(2)], wording=wording):
        pass
    with pytest.raises(InputError, match="partial"):
        heard_by(transcript, "Bob")


def test_a_wording_of_a_programs_own_is_refused():
    with pytest.raises(InputError, match="whispered"):
        heard_by(Transcript("t", Task("a task"), wording="whispered"), "Ada")
    assert heard_by(Transcript("t", Task("a task"), wording=by_name.__name__), "Ada") == []
