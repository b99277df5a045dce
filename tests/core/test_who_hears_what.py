"""Edge cases of the loop: who hears whom and in which words, what a rule receives, and what a fork shares."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any

import pytest

from camel.core.conversation import Agent, Conversation
from camel.core.errors import ContextOverflow, InputError, Left, ServerFailed
from camel.core.heard import by_name, everyone
from camel.core.history import PER_ENTRY_TOKENS, History, estimate_tokens
from camel.core.message import Deliberation, Message, Usage
from camel.core.model import Choice, Event, Model, Reply, Request
from camel.core.stops import MaxMessages, NextCall, Stop
from camel.core.task import Task
from camel.core.transcript import Transcript
from camel.models.scripted import ScriptedModel


def said(text: str, usage: Usage | None = None, **more: Any) -> Reply:
    return Reply((Choice(text),), usage or Usage(calls=1, unknown=1), **more)


def agents(**lines: Sequence[Any]) -> list[Agent]:
    return [Agent(name, name.upper(), ScriptedModel(its)) for name, its in lines.items()]


def talk(members: Sequence[Agent], limit: int = 6, **settings: Any) -> Conversation:
    transcript = settings.pop("transcript", None) or Transcript("t", Task("a task"))
    rules = [*settings.pop("rules", ()), MaxMessages(limit)]
    return Conversation(members, transcript, rules=rules, **settings)


async def contents(conversation: Conversation) -> list[str]:
    return [message.content async for message in conversation]


def heard(agent: Agent, call: int = -1) -> list[tuple[str, str]]:
    assert isinstance(agent.model, ScriptedModel)
    return [(entry.role, entry.content) for entry in agent.model.heard[call]]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("hello", "Ada: hello"),
        ("", "Ada: "),
        ("one\ntwo", "Ada:\n> one\n> two"),
        ("one\n\nBob: three", "Ada:\n> one\n> \n> Bob: three"),
        ("one\n", "Ada: one\n"),
    ],
)
def test_how_a_message_reads_after_its_speakers_name(content: str, text: str):
    assert by_name(Message(0, "Ada", "A", content)) == text


def test_everyone_hears_everyone():
    assert everyone("a", "b") is True


async def test_edges_may_be_a_table():
    a, b, c = agents(a=["a0", "a1"], b=["b0", "b1"], c=["c0", "c1"])
    conversation = talk([a, b, c], hears={"a": ["b", "a"], "b": ("c",)})
    assert await contents(conversation) == ["a0", "b0", "c0", "a1", "b1", "c1"]
    assert heard(a) == [("assistant", "a0")], "nobody is heard by a, not even a"
    assert heard(b) == [("user", "a0"), ("assistant", "b0"), ("user", "a1")]
    assert heard(c) == [("user", "b0"), ("assistant", "c0"), ("user", "b1")]


@pytest.mark.parametrize("hears", [{"a": ["x"]}, {"x": ["a"]}, {"a": ["b"], "x": []}])
def test_edges_to_strangers_are_refused(hears: dict[str, list[str]]):
    with pytest.raises(InputError, match="'x'"):
        talk(agents(a=[], b=[]), hears=hears)


async def test_nobody_hears_itself_whatever_the_edges_say():
    a, b = agents(a=["a0", "a1"], b=["b0"])
    assert await contents(talk([a, b], limit=3, hears=lambda speaker, listener: True)) == ["a0", "b0", "a1"]
    assert heard(a) == [("assistant", "a0"), ("user", "b0")]


async def test_only_listeners_with_several_speakers_get_names():
    a, b, c = agents(a=["a0", "a1"], b=["b0", "b1"], c=["c0", "c1"])
    await contents(talk([a, b, c], hears={"a": ["c"], "b": ["c"], "c": ["a"]}))
    assert heard(c) == [("user", "a: a0\n\nb: b0"), ("assistant", "c0"), ("user", "a: a1\n\nb: b1")]
    assert heard(a) == [("assistant", "a0"), ("user", "c0")]


async def test_a_wording_of_ones_own_is_for_all():
    a, b = agents(a=["a0", "a1"], b=["b0"])
    conversation = talk([a, b], limit=3, wording=lambda message: f"[{message.speaker}] {message.content}")
    await contents(conversation)
    assert heard(b) == [("user", "[a] a0")]
    assert heard(a) == [("assistant", "a0"), ("user", "[b] b0")]


async def test_turns_that_name_a_stranger_are_an_error():
    with pytest.raises(InputError, match="'x'"):
        await contents(talk(agents(a=["a0"]), turns=lambda messages: "x"))


async def test_turns_that_name_nobody_are_an_error():
    with pytest.raises(InputError):
        await asyncio.wait_for(contents(talk(agents(a=["a0"]), turns=lambda messages: [])), 60)


async def test_what_a_rule_receives_for_each_call():
    calls: list[NextCall] = []

    class Note:
        def check(self, messages: Sequence[Message], call: NextCall) -> Stop | None:
            calls.append(call)
            return None

    class Window(ScriptedModel):
        context_tokens = 4096

    a, b = agents(a=["a0", "a1"], b=["b0"])
    c = Agent("c", "C", Window(["c0"]), system="You are C.")
    await contents(
        talk([a, b, c], limit=3, turns=lambda messages: [*"abc"][len(messages) % 3 :], rules=[Note()])
    )
    assert [(call.speaker, call.together, call.context_tokens, call.max_tokens) for call in calls[:3]] == [
        ("a", 0, None, None),
        ("b", 1, None, None),
        ("c", 2, 4096, None),
    ]
    assert [call.prompt_tokens for call in calls[:3]] == [
        0,
        0,
        estimate_tokens("You are C.") + PER_ENTRY_TOKENS,
    ]


async def test_rules_are_asked_in_order_and_the_first_that_stops_counts():
    class Always:
        def __init__(self, detail: str) -> None:
            self.detail = detail

        def check(self, messages: Sequence[Message], call: NextCall) -> Stop | None:
            return Stop("done", self.detail) if messages else None

    conversation = talk(agents(a=["a0"]), rules=[Always("first"), Always("second")])
    assert await contents(conversation) == ["a0"]
    assert conversation.transcript.stop == Stop("done", "first")


@pytest.mark.parametrize(
    ("line", "stop"),
    [
        (Left("gone"), Stop("stopped", "gone", "a")),
        (ContextOverflow("too long"), Stop("token_limit", "the a's prompt no longer fits: too long", "a")),
    ],
)
async def test_some_errors_are_ends(line: Exception, stop: Stop):
    class Raises(Model):
        async def reply(self, request: Request) -> Reply:
            raise line

    conversation = talk([Agent("a", "A", Raises())])
    assert await contents(conversation) == []
    assert conversation.transcript.stop == stop


async def test_an_end_in_a_round_keeps_what_the_others_said():
    a, b, c = agents(a=["a0"], b=[ContextOverflow("long")], c=["c0"])
    conversation = talk([a, b, c], turns=lambda messages: [*"abc"][len(messages) % 3 :])
    assert await contents(conversation) == ["a0", "c0"]
    assert conversation.transcript.stop
    assert conversation.transcript.stop.speaker == "b"


async def test_critics_of_one_round_take_turns():
    """Their calls are numbered by a journal, so the order of one must not depend on the other."""
    order: list[str] = []

    class Slow:
        async def reply(self, conversation: Conversation, agent: Agent, request: Request) -> Reply:
            for _ in range(3):
                order.append(agent.name)
                await asyncio.sleep(0)
            return said(f"{agent.name}0")

    members = [Agent(name, name.upper(), ScriptedModel([]), critic=Slow()) for name in "ab"]
    conversation = talk(members, limit=2, turns=lambda messages: [*"ab"][len(messages) % 2 :])
    assert await contents(conversation) == ["a0", "b0"]
    assert order == ["a", "a", "a", "b", "b", "b"]


async def test_a_transcript_that_has_begun_is_not_told_again():
    transcript = Transcript("t", Task("a task"), messages=[Message(0, "a", "A", "before")])
    conversation = talk(agents(a=[], b=["b0"]), limit=2, transcript=transcript)
    assert await contents(conversation) == ["b0"]
    assert [message.index for message in transcript.messages] == [0, 1]


# --- lengths ---------------------------------------------------------------------------------------------------------


def prompt_tokens(conversation: Conversation, name: str) -> int:
    """What the next prompt of a speaker is taken to be long."""
    return conversation._opened(name).tokens


async def test_a_reply_is_as_long_as_its_endpoint_says():
    model = ScriptedModel([said("x" * 300, Usage(50, 7, 0, 1))])
    members = [Agent("a", "A", model), Agent("b", "B", model)]
    conversation = talk(members)
    await conversation.step()
    assert prompt_tokens(conversation, "a") == 50 + 7 + PER_ENTRY_TOKENS
    assert prompt_tokens(conversation, "b") == 7 + PER_ENTRY_TOKENS


ESTIMATED = estimate_tokens("x" * 300)


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(said("x" * 300, Usage(50, 7, 0, 1, unknown=1)), id="unknown"),
        pytest.param(said("x" * 300, Usage(50, 0, 0, 1)), id="none"),
        pytest.param(Reply((Choice("x" * 300), Choice("y")), Usage(50, 7, 0, 1)), id="several"),
        pytest.param(
            said("x" * 300, Usage(0, 7, 0, 1), deliberation=Deliberation("c", (), 0)), id="deliberated"
        ),
    ],
)
async def test_a_count_that_is_not_of_this_reply_is_estimated(reply: Reply):
    model = ScriptedModel([reply])
    conversation = talk([Agent("a", "A", model), Agent("b", "B", model)])
    await conversation.step()
    assert prompt_tokens(conversation, "a") == reply.usage.prompt + ESTIMATED + PER_ENTRY_TOKENS
    assert prompt_tokens(conversation, "b") == ESTIMATED + PER_ENTRY_TOKENS


async def test_a_prompt_of_many_calls_is_not_that_of_one():
    reply = said("x", Usage(5000, 7, 0, 3), deliberation=Deliberation("c", (), 0))
    conversation = talk([Agent("a", "A", ScriptedModel([reply]))])
    await conversation.step()
    assert prompt_tokens(conversation, "a") == estimate_tokens("x") + PER_ENTRY_TOKENS


async def test_several_messages_are_as_long_as_their_sum_where_all_are_known():
    model, other = ScriptedModel([said("x" * 90, Usage(5, 7, 0, 1))] * 2), ScriptedModel([said("y" * 90)])
    known = talk([Agent("a", "A", model), Agent("b", "B", model)], turns=lambda messages: "a")
    await known.step()
    await known.step()
    assert prompt_tokens(known, "b") == 14 + PER_ENTRY_TOKENS
    mixed = talk([Agent("a", "A", other), Agent("b", "B", model)], turns=lambda messages: "a")
    await mixed.step()
    mixed.say("a", said("z" * 90, Usage(5, 7, 0, 1)))
    assert prompt_tokens(mixed, "b") == estimate_tokens("y" * 90 + "\n\n" + "z" * 90) + PER_ENTRY_TOKENS


# --- forks -----------------------------------------------------------------------------------------------------------


async def test_a_fork_and_its_origin_do_not_hear_each_other():
    events: list[Event] = []
    a, b = agents(a=["a0", "a-fork", "a1"], b=["b-fork", "b0"])
    conversation = talk([a, b], limit=3, watch=events.append)
    await conversation.step()
    fork = conversation.fork()
    before = len(events)
    assert await contents(fork) == ["b-fork", "a-fork"], "what was said before the fork is not told again"
    assert len(events) == before, "nobody watches a fork"
    assert fork.transcript.stop is not None
    assert conversation.transcript.stop is None
    assert await contents(conversation) == ["a0", "b0", "a1"]
    assert heard(a) == [("assistant", "a0"), ("user", "b0")]


async def test_a_fork_that_fails_leaves_its_origin_alone():
    a, b = agents(a=["a0"], b=[ServerFailed("down"), "b0"])
    conversation = talk([a, b], limit=2)
    await conversation.step()
    with pytest.raises(ServerFailed):
        await contents(conversation.fork())
    assert await contents(conversation) == ["a0", "b0"]


async def test_what_is_said_unasked_is_heard_and_told():
    a, b = agents(a=["a0"], b=["b0"])
    conversation = talk([a, b], limit=3)
    message = conversation.say("a", said("unasked", Usage(3, 4, 0, 1), model="m"))
    assert (message.index, message.speaker, message.role, message.content) == (0, "a", "A", "unasked")
    assert (message.model, message.usage) == ("m", Usage(3, 4, 0, 1))
    assert await contents(conversation) == ["unasked", "b0", "a0"]
    assert heard(b) == [("user", "unasked")]


# --- histories -------------------------------------------------------------------------------------------------------


def test_a_history_is_known_by_its_bytes():
    history = History("You trade.")
    first = history.digest()
    assert first == history.digest() == hashlib.blake2b(bytes(history.encoded()), digest_size=16).digest()
    history.add("user", "Hello.")
    history.add("assistant", "Hi.")
    assert history.digest() == hashlib.blake2b(bytes(history.encoded()), digest_size=16).digest() != first
    assert len(history) == 3


def test_a_history_can_always_be_sent():
    history = History("half \ud800")
    history.add("user", "\udfff ü")
    assert [entry.content for entry in history.entries] == ["half ?", "? ü"]
    assert history.encoded().decode() == (
        '{"role":"system","content":"half ?"},{"role":"user","content":"? ü"}'
    )


def test_a_copy_of_a_history_grows_on_its_own():
    history = History("You trade.")
    history.measured(40)
    history.add("user", "Hello.", tokens=3)
    history.digest()
    other = history.copy()
    assert (other.tokens, other.digest(), len(other)) == (history.tokens, history.digest(), 2)
    assert other.encoded() == history.encoded()
    other.add("assistant", "Hi.", tokens=5)
    assert (len(history), len(other)) == (2, 3)
    assert other.tokens == history.tokens + 5 + PER_ENTRY_TOKENS
    assert other.digest() == hashlib.blake2b(bytes(other.encoded()), digest_size=16).digest()
    assert history.digest() == hashlib.blake2b(bytes(history.encoded()), digest_size=16).digest()


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 1), ("ab", 1), ("abc", 2), ("a" * 30, 11), ("ü" * 30, 21), ("価" * 30, 31)]
)
def test_three_bytes_are_taken_for_a_token(text: str, tokens: int):
    assert estimate_tokens(text) == tokens
    assert PER_ENTRY_TOKENS == 8
    history = History()
    assert history.tokens == 0
    history.add("user", text)
    assert history.tokens == tokens + 8
