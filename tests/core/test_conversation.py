"""The one loop: who speaks, who hears what, and how it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from camel.core.conversation import Agent, Conversation, round_robin
from camel.core.errors import ContextOverflow, InputError, ModelError, ServerFailed
from camel.core.history import PER_ENTRY_TOKENS, History, estimate_tokens
from camel.core.message import Deliberation, Message, Proposal, Sampling, Usage
from camel.core.model import Choice, Model, Reply, Request, Text
from camel.core.stops import DoneToken, MaxMessages, Stop, StopRule, TokenLimit
from camel.core.task import Task
from camel.core.transcript import Transcript
from camel.models.scripted import ScriptedModel

Line = str | Reply | Exception


class Recorder(Model):
    """Says its lines and keeps what it had heard at each call, as entries and as bytes."""

    def __init__(self, *lines: Line, author: Callable[[Request], str] | None = None) -> None:
        self.lines = list(lines)
        self.author = author
        self.heard: list[list[tuple[str, str]]] = []
        self.sent: list[bytes] = []

    async def reply(self, request: Request) -> Reply:
        self.heard.append([(entry.role, entry.content) for entry in request.history.entries])
        self.sent.append(bytes(request.history.encoded()))
        line = self.author(request) if self.author else self.lines.pop(0)
        if isinstance(line, Exception):
            raise line
        return line if isinstance(line, Reply) else Reply((Choice(line),), model="recorder")


def talk(
    *agents: Agent, limit: int = 6, rules: Sequence[StopRule] = (), **settings: object
) -> tuple[Conversation, Transcript]:
    transcript = Transcript("t", Task("a task"))
    rules = [*rules, MaxMessages(limit)]
    return Conversation(agents, transcript, rules=rules, **settings), transcript  # type: ignore[arg-type]


async def contents(conversation: Conversation) -> list[str]:
    return [message.content async for message in conversation]


def pair(user: Recorder, assistant: Recorder) -> tuple[Agent, Agent]:
    return (
        Agent("user", "Trader", user, system="You trade.", opening="Begin."),
        Agent("assistant", "Programmer", assistant, system="You code."),
    )


async def test_turns_alternate_and_histories_mirror_each_other():
    user, assistant = Recorder("u0", "u1", "u2"), Recorder("a0", "a1", "a2")
    conversation, transcript = talk(*pair(user, assistant))
    assert await contents(conversation) == ["u0", "a0", "u1", "a1", "u2", "a2"]
    assert [(m.index, m.speaker, m.role) for m in transcript.messages] == [
        (0, "user", "Trader"),
        (1, "assistant", "Programmer"),
        (2, "user", "Trader"),
        (3, "assistant", "Programmer"),
        (4, "user", "Trader"),
        (5, "assistant", "Programmer"),
    ]
    opening = [("system", "You trade."), ("user", "Begin.")]
    assert user.heard == [
        opening,
        [*opening, ("assistant", "u0"), ("user", "a0")],
        [*opening, ("assistant", "u0"), ("user", "a0"), ("assistant", "u1"), ("user", "a1")],
    ]
    assert assistant.heard == [
        [("system", "You code."), ("user", "u0")],
        [("system", "You code."), ("user", "u0"), ("assistant", "a0"), ("user", "u1")],
        [("system", "You code."), ("user", "u0"), ("assistant", "a0"), ("user", "u1"), ("assistant", "a1"), ("user", "u2")],
    ]  # fmt: skip
    assert transcript.stop == Stop("max_messages", "the conversation reached its limit of 6 messages")


async def test_what_is_sent_only_grows():
    texts = ['with "quotes"', "ünïcode 価格 🎉", "line\nbreak\ttab", "\x00\x1b[31m</s>", "{}[],", "\u2028"]
    user, assistant = Recorder(*texts), Recorder(*reversed(texts))
    conversation, _ = talk(*pair(user, assistant), limit=12)
    await contents(conversation)
    for model in (user, assistant):
        assert len(model.sent) == 6
        for earlier, later in zip(model.sent, model.sent[1:], strict=False):
            assert later.startswith(earlier + b",")
        for heard, sent in zip(model.heard, model.sent, strict=True):
            assert json.loads(b"[" + sent + b"]") == [{"role": r, "content": c} for r, c in heard]


async def test_the_request_carries_what_the_endpoint_needs():
    user, assistant = ScriptedModel(["u"]), ScriptedModel(["a"])
    events: list[object] = []
    conversation, _ = talk(
        Agent("user", "U", user, sampling=Sampling(temperature=0.7), expects="instruction"),
        Agent("assistant", "A", assistant, sampling=Sampling(max_tokens=9), expects="solution"),
        limit=2,
        watch=events.append,
    )
    await contents(conversation)
    asked, answered = user.requests[0], assistant.requests[0]
    assert (asked.session, asked.speaker, asked.expects) == ("t", "user", "instruction")
    assert (asked.sampling.temperature, answered.sampling.max_tokens) == (0.7, 9)
    assert (answered.session, answered.speaker, answered.expects) == ("t", "assistant", "solution")
    assert events == [Text("user", "u"), Text("assistant", "a")]


async def test_the_message_records_the_reply():
    reply = Reply((Choice("hi", "length"),), Usage(7, 3, 2, 1), "model-x", 1.5, 2, "vllm:solution")
    conversation, transcript = talk(Agent("solo", "Role", Recorder(reply)), limit=1)
    await contents(conversation)
    assert transcript.messages == [
        Message(0, "solo", "Role", "hi", "model-x", "length", Usage(7, 3, 2, 1), 1.5, 2, "vllm:solution")
    ]


async def test_the_last_offending_message_is_kept():
    user = Recorder("Instruction: go", "<CAMEL_TASK_DONE>")
    conversation, transcript = talk(*pair(user, Recorder("Solution: gone")), rules=[DoneToken()])
    await contents(conversation)
    assert transcript.messages[-1].content == "<CAMEL_TASK_DONE>"
    assert transcript.stop is not None
    assert transcript.stop.reason == "done"


async def test_a_loop_that_was_left_can_be_resumed():
    user, assistant = Recorder("u0", "u1", "u2"), Recorder("a0", "a1", "a2")
    conversation, transcript = talk(*pair(user, assistant))
    async for message in conversation:
        if message.content == "u1":
            break
    assert transcript.stop is None
    assert len(transcript.messages) == 3
    assert await contents(conversation) == ["a1", "u2", "a2"]
    assert assistant.heard[1][-1] == ("user", "u1")
    assert await contents(conversation) == [], "what has ended stays ended"
    assert len(user.heard) + len(assistant.heard) == 6


async def test_a_model_error_is_recorded_and_raised():
    conversation, transcript = talk(*pair(Recorder("u0"), Recorder(ServerFailed("boom", status=500))))
    with pytest.raises(ServerFailed, match="boom"):
        await contents(conversation)
    assert [m.content for m in transcript.messages] == ["u0"]
    assert transcript.stop == Stop("error", "ServerFailed: boom", "assistant", "ServerFailed")
    assert await contents(conversation) == []


async def test_context_overflow_is_the_token_limit():
    conversation, transcript = talk(*pair(Recorder("u0"), Recorder(ContextOverflow("5,000 of 4,096"))))
    assert await contents(conversation) == ["u0"]
    assert transcript.stop is not None
    assert (transcript.stop.reason, transcript.stop.speaker) == ("token_limit", "assistant")
    assert "5,000 of 4,096" in transcript.stop.detail


async def test_a_cancelled_call_leaves_no_trace():
    asked = asyncio.Event()

    class Slow(Model):
        async def reply(self, request: Request) -> Reply:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError("not reached")

    conversation, transcript = talk(Agent("solo", "Role", Slow()))
    call = asyncio.create_task(contents(conversation))
    await asked.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (transcript.messages, transcript.stop) == ([], None)


async def test_lone_surrogates_are_replaced_before_others_hear_them():
    user, assistant = Recorder("half \ud800 of one"), Recorder("a0")
    conversation, transcript = talk(*pair(user, assistant), limit=2)
    assert await contents(conversation) == ["half ? of one", "a0"]
    assert assistant.heard[0][-1] == ("user", "half ? of one")
    assert Transcript.from_json(transcript.to_json()) == transcript


# --- larger societies ------------------------------------------------------------------------------------------------


async def test_three_speakers_in_a_ring_hear_their_neighbor():
    models = {name: Recorder(f"{name}0", f"{name}1") for name in "abc"}
    after = {"a": "b", "b": "c", "c": "a"}
    conversation, transcript = talk(
        *(Agent(name, name.upper(), model) for name, model in models.items()),
        hears=lambda speaker, listener: after[speaker] == listener,
    )
    assert await contents(conversation) == ["a0", "b0", "c0", "a1", "b1", "c1"]
    assert models["b"].heard == [[("user", "a0")], [("user", "a0"), ("assistant", "b0"), ("user", "a1")]]
    assert models["a"].heard == [[], [("assistant", "a0"), ("user", "c0")]]
    assert [speaker.name for speaker in transcript.speakers] == ["a", "b", "c"]


async def test_a_star_is_chaired_from_its_middle():
    chair, left, right = Recorder("c0", "c1", "c2"), Recorder("l0", "l1"), Recorder("r0")

    def turns(messages: Sequence[Message]) -> str:
        return "chair" if len(messages) % 2 == 0 else ("left", "right")[len(messages) // 2 % 2]

    conversation, transcript = talk(
        Agent("chair", "Chair", chair),
        Agent("left", "Left", left),
        Agent("right", "Right", right),
        turns=turns,
        hears=lambda speaker, listener: "chair" in (speaker, listener),
    )
    assert await contents(conversation) == ["c0", "l0", "c1", "r0", "c2", "l1"]
    assert [m.speaker for m in transcript.messages] == ["chair", "left", "chair", "right", "chair", "left"]
    assert right.heard == [[("user", "c0\n\nc1")]], "the leaves do not hear each other"
    assert chair.heard[2] == [
        ("assistant", "c0"),
        ("user", "left: l0"),
        ("assistant", "c1"),
        ("user", "right: r0"),
    ], "a listener with several speakers gets their names"


async def test_what_was_heard_since_one_last_spoke_is_one_entry():
    models = {name: Recorder(f"{name}0", f"{name}1") for name in "abc"}
    conversation, _ = talk(*(Agent(name, name.upper(), model) for name, model in models.items()))
    await contents(conversation)
    assert models["c"].heard[0] == [("user", "a: a0\n\nb: b0")]
    assert models["a"].heard[1] == [("assistant", "a0"), ("user", "b: b0\n\nc: c0")]


def rounds_of(*names: str) -> Callable[[Sequence[Message]], Sequence[str]]:
    return lambda messages: names[len(messages) % len(names) :]


async def test_agents_that_speak_together_hear_each_other_afterwards():
    models = {name: Recorder(f"{name}0", f"{name}1") for name in "abc"}
    agents = [Agent(name, name.upper(), model) for name, model in models.items()]
    conversation, transcript = talk(*agents, turns=rounds_of(*"abc"))
    assert await contents(conversation) == ["a0", "b0", "c0", "a1", "b1", "c1"]
    assert [message.index for message in transcript.messages] == list(range(6))
    assert models["b"].heard == [[], [("assistant", "b0"), ("user", "a: a0\n\nc: c0")]]


@pytest.mark.parametrize("limit", range(1, 8))
async def test_a_round_never_passes_the_limit(limit: int):
    models = {name: Recorder(author=lambda request: "said") for name in "abc"}
    agents = [Agent(name, name.upper(), model) for name, model in models.items()]
    conversation, transcript = talk(*agents, turns=rounds_of(*"abc"), limit=limit)
    await contents(conversation)
    assert len(transcript.messages) == limit == sum(len(model.heard) for model in models.values())
    assert transcript.stop
    assert transcript.stop.reason == "max_messages"


async def test_what_was_paid_for_in_a_round_is_kept_when_one_of_it_fails():
    agents = [
        Agent("a", "A", Recorder("a0")),
        Agent("b", "B", Recorder(ServerFailed("down"))),
        Agent("c", "C", Recorder("c0")),
    ]
    conversation, transcript = talk(*agents, turns=rounds_of(*"abc"))
    with pytest.raises(ServerFailed):
        await contents(conversation)
    assert [message.content for message in transcript.messages] == ["a0", "c0"]
    assert transcript.stop
    assert (transcript.stop.reason, transcript.stop.speaker) == ("error", "b")


async def test_a_round_that_was_interrupted_is_completed_later():
    agents = [Agent(name, name.upper(), Recorder(f"{name}0", f"{name}1")) for name in "abc"]
    conversation, _ = talk(*agents, turns=rounds_of(*"abc"))
    async for message in conversation:
        assert message.content == "a0"
        break
    assert await contents(conversation) == ["b0", "c0", "a1", "b1", "c1"]


async def test_a_fork_goes_another_way_from_the_same_prefix():
    user = Recorder(author=lambda request: f"u{len(request.history)}")
    assistant = Recorder(author=lambda request: f"a{len(request.history)}")
    conversation, transcript = talk(*pair(user, assistant), limit=6)
    async for message in conversation:
        if message.index == 2:
            break
    branch = conversation.fork()
    said = branch.say("assistant", Reply((Choice("something else"),)))
    assert (said.index, said.content) == (3, "something else")
    follow = await contents(branch)
    assert follow[0] == "something else"
    assert len(follow) == 3
    assert user.heard[2][-1] == ("user", "something else")
    assert len(transcript.messages) == 3, "the conversation itself has not moved"
    before = bytes(assistant.sent[0])
    assert await contents(conversation) == ["a4", "u6", "a6"]
    assert assistant.sent[-1].startswith(before)
    assert [m.content for m in transcript.messages] == ["u2", "a2", "u4", "a4", "u6", "a6"]


async def test_a_critic_decides_what_is_said_and_a_fork_has_none():
    class Contrary:
        async def reply(self, conversation: Conversation, agent: Agent, request: Request) -> Reply:
            drafts = [await agent.model.reply(request), await agent.model.reply(request)]
            ahead = conversation.fork()
            ahead.say(agent.name, drafts[1])
            looked = [message.content async for message in ahead]
            proposals = tuple(Proposal(draft.content) for draft in drafts)
            return Reply(
                drafts[1].choices,
                Usage(10**6, 10**6, 0, 2 + len(looked) - 1),
                deliberation=Deliberation("contrary", proposals, 1, f"saw {looked}"),
            )

    user, assistant = Recorder("no", "u0", "u1"), Recorder("a-ahead", "a0")
    first, second = pair(user, assistant)
    conversation, transcript = talk(replace(first, critic=Contrary()), second, limit=2)
    assert await contents(conversation) == ["u0", "a0"]
    chosen = transcript.messages[0].deliberation
    assert chosen
    assert chosen.reason == "saw ['u0', 'a-ahead']"
    assert [proposal.content for proposal in chosen.proposals] == ["no", "u0"]
    assert Transcript.from_json(transcript.to_json()) == transcript
    assert conversation._histories["user"].tokens < 1000, "the count of all calls is not that of the prompt"


async def test_a_single_speaker_continues_its_own_messages():
    model = Recorder("one", "two")
    conversation, _ = talk(Agent("solo", "Role", model, opening="Go."), limit=2)
    assert await contents(conversation) == ["one", "two"]
    assert model.heard[1] == [("user", "Go."), ("assistant", "one")]


async def test_a_person_is_a_model():
    typed = iter(["Instruction: Sort it", "Instruction: And back"])

    class Person(Model):
        """No window, no count of tokens, nothing but an answer."""

        async def reply(self, request: Request) -> Reply:
            return Reply((Choice(await asyncio.to_thread(next, typed)),))

    assistant = Recorder("Solution: 1", "Solution: 2")
    conversation, transcript = talk(
        Agent("user", "Person", Person()), Agent("assistant", "A", assistant), limit=4, rules=[TokenLimit()]
    )
    assert await contents(conversation) == [
        "Instruction: Sort it",
        "Solution: 1",
        "Instruction: And back",
        "Solution: 2",
    ]
    assert transcript.messages[0].usage.unknown == 1
    assert transcript.usage.calls == 4


async def test_others_hear_only_what_a_critic_chose():
    """A critic needs no loop of its own: it wraps the model whose proposals it judges."""

    class Criticised(Model):
        def __init__(self, inner: Recorder, choose: Callable[[Reply], int]) -> None:
            self.inner, self.choose = inner, choose

        async def reply(self, request: Request) -> Reply:
            proposals = await self.inner.reply(request)
            return Reply((proposals.choices[self.choose(proposals)],), proposals.usage, proposals.model)

    proposals = Reply((Choice("first"), Choice("second"), Choice("third")), Usage(10, 30, 0, 1))
    inner, listener = Recorder(proposals), Recorder("heard")
    conversation, transcript = talk(
        Agent("a", "A", Criticised(inner, lambda reply: 1), sampling=Sampling(n=3)),
        Agent("b", "B", listener),
        limit=2,
    )
    assert await contents(conversation) == ["second", "heard"]
    assert listener.heard == [[("user", "second")]]
    assert transcript.usage.completion == 30


async def test_without_a_critic_the_first_of_several_is_said_and_its_length_estimated():
    several = Reply((Choice("x" * 300), Choice("y" * 30_000)), Usage(10, 10_000, 0, 1))
    model = Recorder(several, "end")
    conversation, _ = talk(Agent("a", "A", model), limit=1)
    assert await contents(conversation) == ["x" * 300]
    assert conversation._histories["a"].tokens < 10 + 300


# --- tokens ----------------------------------------------------------------------------------------------------------


def test_a_history_counts_high_until_it_is_measured():
    history = History("You are a trader.")
    history.add("user", "Begin.")
    assert (
        history.tokens
        == estimate_tokens("You are a trader.") + estimate_tokens("Begin.") + 2 * PER_ENTRY_TOKENS
    )
    history.measured(9)
    assert history.tokens == 9
    history.add("assistant", "Fine.", tokens=2)
    assert history.tokens == 9 + 2 + PER_ENTRY_TOKENS
    history.add("user", "x" * 299)
    assert history.tokens == 9 + 2 + PER_ENTRY_TOKENS + 100 + PER_ENTRY_TOKENS
    history.measured(50)
    assert history.tokens == 50


@pytest.mark.parametrize("text", ["", "a", "word " * 50, "価格は上がる", "naïve", "\ud800", "🎉" * 9])
def test_an_estimate_is_never_nothing(text: str):
    assert estimate_tokens(text) >= max(1, len(text) // 3)


class Counting(Model):
    """A model with a window that counts tokens in its own way, and would notice if it were overrun."""

    def __init__(self, window: int, per_character: float, overhead: int, lines: Callable[[int], str]) -> None:
        self.context_tokens, self._rate, self._overhead, self._lines = window, per_character, overhead, lines
        self.most, self.calls = 0, 0

    def _count(self, text: str) -> int:
        return int(len(text) * self._rate) + 1

    async def reply(self, request: Request) -> Reply:
        prompt = sum(self._count(entry.content) + self._overhead for entry in request.history.entries)
        text = self._lines(self.calls)
        self.calls += 1
        self.most = max(self.most, prompt + (request.sampling.max_tokens or 0))
        assert self._count(text) <= (request.sampling.max_tokens or 10**9)
        return Reply((Choice(text),), Usage(prompt, self._count(text), 0, 1), "counting")


@pytest.mark.parametrize("rate", [0.1, 0.25, 0.33, 0.5, 1.0])
@pytest.mark.parametrize("overhead", [0, 4, 7])
async def test_the_window_is_never_overrun(rate: float, overhead: int):
    # At one token a character the estimate is three times too low: what was counted must take its place.
    model = Counting(2000, rate, overhead, lambda call: "word " * (7 + call % 5))
    conversation, transcript = talk(
        Agent("user", "U", model, system="s" * 300, opening="o" * 30, sampling=Sampling(max_tokens=200)),
        Agent("assistant", "A", model, system="s" * 300, sampling=Sampling(max_tokens=200)),
        limit=1000,
        rules=[TokenLimit()],
    )
    await contents(conversation)
    assert transcript.stop is not None
    assert transcript.stop.reason == "token_limit"
    assert model.most <= 2000
    assert model.most > 1700, "nor is much of it left unused"


async def test_a_reply_that_claims_no_tokens_is_estimated():
    claim = Reply((Choice("x" * 3000),), Usage(10, 0, 0, 1))
    model = Recorder(claim, claim)
    conversation, _ = talk(Agent("a", "A", model), limit=1)
    await contents(conversation)
    assert conversation._histories["a"].tokens >= 1000


async def test_a_count_by_another_vocabulary_is_not_trusted():
    dense = Recorder(Reply((Choice("x" * 3000),), Usage(10, 5, 0, 1)))
    conversation, _ = talk(Agent("a", "A", dense), Agent("b", "B", Recorder("end")), limit=1)
    await contents(conversation)
    assert conversation._histories["b"].tokens >= 1000
    assert conversation._histories["a"].tokens < 100


# --- the record ------------------------------------------------------------------------------------------------------


async def test_the_record_survives_a_round_trip():
    conversation, transcript = talk(*pair(Recorder("u0 ünïcode\n", "u1"), Recorder("a0", "a1")), limit=4)
    await contents(conversation)
    again = Transcript.from_json(transcript.to_json())
    assert again == transcript
    assert again.to_json() == transcript.to_json()
    assert [m.move for m in again.messages] == [m.move for m in transcript.messages]


def test_the_schema_number_is_always_written():
    assert json.loads(Transcript("x", Task("t")).to_json())["schema"] == 2


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b'{"id": 1, "task": {}}', b'{"id":"x","task":{"original":3}}']
)
def test_what_is_no_record_is_refused(data: bytes):
    with pytest.raises(InputError):
        Transcript.from_json(data)


FORGED = "fine\n# Forged\n\n### 9. Boss (user)\nText\r---\r\n\u2028## Also forged\x0b# And this\x85# This too\n\n---\n\nEnded because of me."


async def test_the_reader_cannot_be_fooled_by_headings():
    user = Agent("user", f"Trader\n\n# {FORGED}", Recorder(FORGED), opening="Go.")
    conversation, transcript = talk(user, Agent("assistant", "Coder", Recorder(ServerFailed(FORGED))))
    transcript.task = Task(FORGED, FORGED)
    with pytest.raises(ModelError):
        await contents(conversation)
    lines = transcript.to_markdown().splitlines()
    assert [line[:5] for line in lines if line.startswith("#")] == ["# Tra", "### 1"]
    assert [line for line in lines if line.startswith("---")] == ["---"]
    assert [line[:21] for line in lines if line.startswith("Ended")] == ["Ended because ServerF"]
    # And nothing of what was said is lost.
    assert [line for line in lines if line == "> # Forged"] == ["> # Forged"] * 3


def test_round_robin():
    turns = round_robin(["a", "b", "c"])
    said: list[Message] = []
    for i, name in enumerate("abcabc"):
        assert turns(said) == name
        said.append(Message(i, name, "", ""))


@pytest.mark.parametrize("names", [[], ["a", "a"], ["a", "b", "a"]])
def test_speakers_need_names_of_their_own(names: list[str]):
    model = ScriptedModel(["x"])
    with pytest.raises(InputError):
        talk(*(Agent(name, "R", model) for name in names))
    assert model.requests == []
