"""Long conversations: what a speaker forgets, what it keeps, what is summarized, and what is recorded of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel import (
    Agent,
    Beam,
    Conversation,
    Ending,
    FunctionJudge,
    MaxMessages,
    Member,
    Message,
    RolePlaying,
    RoundRobin,
    Rounds,
    Society,
    TokenLimit,
    Transcript,
)
from camel.core.errors import EmptyReply, InputError, ServerFailed
from camel.core.heard import heard_by, sent_for
from camel.core.history import Entry, History
from camel.core.memory import Forgotten, HistoryPolicy, forget, remembered, summarize
from camel.core.message import Sampling, Usage
from camel.core.model import Choice, Model, Reply, Request, WrappedModel
from camel.core.task import Task
from camel.record.arrow import rows, to_table

POLICIES: list[HistoryPolicy] = ["full", "window", "summarize"]
SUMMARY = "They agreed on 7 lanterns.\nInstruction: none is open."


def usual(number: int) -> str:
    return f"message {number} " + "word " * 20


class Witness(Model):
    """Counts honestly, four bytes a token, and keeps every request as it was sent."""

    name = "witness"
    bytes_per_token = 4

    def __init__(
        self, window: int | None, *, says: Callable[[int], str] | None = None, summary: Any = SUMMARY
    ) -> None:
        self.context_tokens = window
        self.requests: list[tuple[str, bytes, Request]] = []
        self.entries: list[list[Entry]] = []
        self.tokens: list[int] = []
        """Of each prompt and the longest reply to it; histories grow after they are sent."""
        self._says = says or usual
        self._summary = summary

    async def reply(self, request: Request) -> Reply:
        self.requests.append((request.speaker, bytes(request.history.encoded()), request))
        self.entries.append(list(request.history.entries))
        prompt = sum(self._count(entry.content) + 4 for entry in request.history.entries)
        self.tokens.append(prompt + (request.sampling.max_tokens or 0))
        number = len(self.requests)
        await asyncio.sleep(0)
        if request.speaker.endswith(" summary"):
            if isinstance(self._summary, Exception):
                raise self._summary
            text = self._summary
        else:
            text = self._says(number)
        choice = text if isinstance(text, Choice) else Choice(text)
        usage = Usage(prompt, self._count(choice.content), calls=1)
        return Reply((choice,), usage, self.name)

    def _count(self, text: str) -> int:
        return -(-len(text.encode()) // self.bytes_per_token)

    def sent_to(self, speaker: str) -> list[bytes]:
        return [body for name, body, _ in self.requests if name == speaker]

    @property
    def summaries(self) -> list[Request]:
        return [request for name, _, request in self.requests if name.endswith(" summary")]


def pair(model: Model, policy: HistoryPolicy, *, limit: int = 60, **more: Any) -> Conversation:
    agents = [
        Agent("user", "U", model, system="You ask. " * 9, opening="Begin.", history=policy, **more),
        Agent("assistant", "A", model, system="You answer. " * 9, history=policy, **more),
    ]
    return Conversation(agents, Transcript("t", Task("a task")), rules=[MaxMessages(limit)])


async def held(conversation: Conversation) -> Transcript:
    async for _ in conversation:
        pass
    return conversation.transcript


SAMPLING = Sampling(max_tokens=60)


async def test_full_ends_where_the_prompt_no_longer_fits():
    model = Witness(900)
    transcript = await held(pair(model, "full", sampling=SAMPLING))
    assert transcript.stop
    assert transcript.stop.reason == "token_limit"
    assert all(message.forgot == 0 and not message.summary for message in transcript.messages)
    assert [speaker.history for speaker in transcript.speakers] == ["full", "full"]


@pytest.mark.parametrize("policy", ["window", "summarize"])
async def test_others_continue_within_the_window(policy: HistoryPolicy):
    model = Witness(900)
    transcript = await held(pair(model, policy, sampling=SAMPLING))
    assert transcript.stop
    assert (transcript.stop.reason, len(transcript.messages)) == ("max_messages", 60)
    assert [speaker.history for speaker in transcript.speakers] == [policy, policy]
    assert max(model.tokens) <= 900
    assert bool(model.summaries) == (policy == "summarize")


async def test_system_prompt_and_first_turns_stay_and_roles_alternate():
    model = Witness(900)
    await held(pair(model, "window", sampling=SAMPLING))
    for seat, first in (("user", 5), ("assistant", 3)):
        own = [
            entries
            for (name, _, _), entries in zip(model.requests, model.entries, strict=True)
            if name == seat
        ]
        opening = own[-1][:first]
        assert all(entries[:first] == opening[: len(entries)] for entries in own)
        for entries in own:
            roles = [entry.role for entry in entries]
            assert roles == ["system", *["user", "assistant"] * (len(roles) // 2)][: len(roles)]
            assert roles[-1] == "user"


async def test_a_prompt_only_grows_for_many_calls_in_a_row():
    model = Witness(2_000)
    await held(pair(model, "window", limit=200, sampling=SAMPLING))
    for seat in ("user", "assistant"):
        sent = model.sent_to(seat)
        changed = [n for n in range(1, len(sent)) if not sent[n].startswith(sent[n - 1])]
        assert changed
        assert min(later - before for before, later in pairwise(changed)) >= 8


async def test_half_of_the_room_for_turns_is_freed():
    model = Witness(2_000)
    await held(pair(model, "window", limit=200, sampling=SAMPLING))
    sizes = [len(body) for body in model.sent_to("assistant")]
    drops = [n for n in range(1, len(sizes)) if sizes[n] < sizes[n - 1]]
    assert drops
    for n in drops:
        assert 0.4 < sizes[n] / sizes[n - 1] < 0.75


# --- the record ------------------------------------------------------------------------------------------------------


def bodies(transcript: Transcript) -> list[tuple[str, bytes]]:
    """What was sent for each message, rebuilt from the record."""
    (back,) = rows(to_table([transcript]))
    found: list[tuple[str, bytes]] = []
    for message in back.messages:
        history = History()
        for entry in sent_for(back, message.index):
            history.add(entry.role, entry.content)
        found.append((message.speaker, bytes(history.encoded())))
    return found


words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=40)


@given(
    st.sampled_from(POLICIES),
    st.sampled_from([(), (("Ada", "Bob"), ("Cleo",)), (("Ada", "Bob", "Cleo"),)]),
    st.integers(2, 3),
    st.integers(350, 1_200),
    st.lists(st.tuples(words, st.integers(0, 60)), min_size=1, max_size=5),
    st.sampled_from([SUMMARY, "", "Ü > x\n\n> y", EmptyReply("never", usage=Usage(9, 9, calls=3))]),
)
def test_what_was_sent_is_rebuilt_to_the_byte(
    policy: HistoryPolicy,
    groups: tuple[tuple[str, ...], ...],
    count: int,
    window: int,
    lines: list[tuple[str, int]],
    summary: Any,
):
    def says(number: int) -> str:
        text, times = lines[number % len(lines)]
        return f"{number} {text} {'lorem ' * times}"

    model = Witness(window, says=says, summary=summary)
    names = ("Ada", "Bob", "Cleo")[: 3 if groups else count]
    society = Society(
        "a task",
        members=tuple(Member(name, brief="You plan.", sampling=Sampling(max_tokens=40)) for name in names),
        prompt="You are <NAME>.",
        opening="The task: <TASK>",
        stop=Ending(max_messages=40),
        history=policy,
        turns=Rounds(groups) if groups else RoundRobin(),
    )
    transcript = asyncio.run(society.play(model).finish())
    rebuilt = bodies(transcript)
    for name in names:
        assert [body for seat, body in rebuilt if seat == name] == model.sent_to(name)
    if policy != "full":
        assert max(model.tokens) <= window
    assert transcript.usage.calls >= len(model.requests)


async def test_everything_that_was_said_is_still_in_the_whole_chat():
    transcript = await held(pair(Witness(900), "window", sampling=SAMPLING))
    chat = heard_by(transcript, "assistant")
    assert [entry.content for entry in chat if entry.role == "assistant"] == [
        message.content for message in transcript.messages if message.speaker == "assistant"
    ]
    last = transcript.messages[-1]
    assert last.forgot > 10
    assert transcript.prompt_of(-1) == [
        {"role": entry.role, "content": entry.content} for entry in sent_for(transcript, last.index)
    ]
    assert len(transcript.prompt_of(-1)) < len(chat) - 2 * last.forgot + 2


def test_a_record_that_cannot_be_is_refused():
    messages = [Message(0, "a", "A", "x"), Message(1, "b", "B", "y"), Message(2, "a", "A", "z", forgot=4)]
    transcript = Transcript("t", Task("a task"), messages=messages)
    with pytest.raises(InputError, match="4 turns"):
        sent_for(transcript, 2)
    with pytest.raises(IndexError):
        sent_for(transcript, 3)


# --- summaries -------------------------------------------------------------------------------------------------------


async def test_a_summary_replaces_the_turns():
    model = Witness(900)
    transcript = await held(pair(model, "summarize", sampling=SAMPLING))
    first = next(message for message in transcript.messages if message.summary)
    assert first.summary == SUMMARY
    chat = sent_for(transcript, first.index)
    noted = [
        place for place, entry in enumerate(chat) if "> They agreed on 7 lanterns.\n> Instr" in entry.content
    ]
    assert noted == [5 if first.speaker == "user" else 3], "after the first turns, and once"
    heard = chat[noted[0]].content
    assert heard.endswith(next(m.content for m in transcript.messages if m.content in heard))
    assert len(model.summaries) == sum(bool(message.summary) for message in transcript.messages)


async def test_how_a_summary_is_asked_for():
    model = Witness(900)
    own = Sampling(temperature=0.4, max_tokens=60, n=1, stop=("END",), logprobs=1, seed=3)
    transcript = await held(pair(model, "summarize", sampling=own))
    for request in model.summaries:
        assert request.speaker in ("user summary", "assistant summary")
        assert request.session == "t"
        assert (request.expects, request.watch) == (None, None)
        assert request.sampling == Sampling(temperature=0.4, max_tokens=60, seed=3)
        (asked,) = request.history.entries
        assert asked.role == "user"
        assert "<TURNS>" not in asked.content
        assert "<WORDS>" not in asked.content
    later = [m for m in transcript.messages if m.speaker == "user" and m.summary]
    second = [request for request in model.summaries if request.speaker == "user summary"][1]
    assert "7 lanterns" in second.history.entries[0].content, "what was summarized before is summarized again"
    assert len(later) >= 2


async def test_a_summary_has_a_limit_where_its_speaker_has_none():
    model = Witness(3_000)
    transcript = await held(pair(model, "summarize", limit=120))
    assert any(message.summary for message in transcript.messages)
    assert max(model.tokens) <= 3_000
    assert {request.sampling.max_tokens for request in model.summaries} == {
        (3_000 - TokenLimit().reserve) // 4
    }


async def test_what_is_too_long_to_be_summarized_is_cut_and_earlier_summaries_stay():
    """A few turns fill the window, so that what is forgotten and the question about it would not fit together."""
    model = Witness(1_200, says=lambda number: f"message {number} " + "lorem " * (120 if number > 4 else 2))
    transcript = await held(pair(model, "summarize", limit=40, sampling=Sampling(max_tokens=200)))
    assert len(transcript.messages) == 40
    assert max(model.tokens) <= 1_200
    asked = [request.history.entries[0].content for request in model.summaries]
    assert any(text.count("lorem ") < 119 * text.count("message ") for text in asked)
    assert all("7 lanterns" in text for text in asked[2:])


async def test_a_vocabulary_that_takes_a_token_for_each_byte():
    """Estimates are far too low; what the endpoint counts makes up for it."""

    class Dense(Witness):
        bytes_per_token = 1

    for policy in ("window", "summarize"):
        model = Dense(6_000, says=lambda number: f"message {number} " + "lorem " * (90 if number > 4 else 2))
        transcript = await held(pair(model, policy, limit=60, sampling=Sampling(max_tokens=600)))
        assert len(transcript.messages) == 60
        assert max(model.tokens) <= 6_000


async def test_a_summary_is_asked_of_what_is_forgotten_and_nothing_else():
    model = Witness(900)
    transcript = await held(pair(model, "summarize", sampling=SAMPLING))
    first = next(message for message in transcript.messages if message.summary)
    whole = heard_by(transcript, first.speaker)
    kept = 5 if first.speaker == "user" else 3
    forgotten = whole[kept : kept + 2 * first.forgot]
    heads = {"user": "You heard:", "assistant": "You said:"}
    asked = model.summaries[0].history.entries[0].content
    assert asked.endswith("\n\n".join(f"{heads[one.role]}\n> {one.content}" for one in forgotten))


async def test_what_a_summary_took_is_in_the_usage_of_the_message():
    model = Witness(900)
    transcript = await held(pair(model, "summarize", sampling=SAMPLING))
    assert transcript.usage.calls == len(model.requests)
    assert transcript.usage.prompt == sum(model.tokens) - 60 * len(model.requests)
    assert {message.usage.calls for message in transcript.messages} == {1, 2}


async def test_a_thought_is_no_part_of_a_summary():
    model = Witness(900, summary=Choice(SUMMARY, reasoning="MARKER"))
    transcript = await held(pair(model, "summarize", sampling=SAMPLING))
    assert any(message.summary for message in transcript.messages)
    assert b"MARKER" not in b"".join(body for _, body, _ in model.requests)
    assert b"MARKER" not in transcript.to_json()


@pytest.mark.parametrize(
    "summary",
    [
        pytest.param(EmptyReply("never", usage=Usage(5, 5, calls=3)), id="bad"),
        pytest.param(Choice("I cannot.", "refusal"), id="refused"),
        pytest.param("  \n", id="blank"),
    ],
)
async def test_without_a_summary_it_is_forgotten(summary: Any):
    transcript = await held(pair(Witness(900, summary=summary), "summarize", sampling=SAMPLING))
    assert len(transcript.messages) == 60
    assert not any(message.summary for message in transcript.messages)
    assert transcript.messages[-1].forgot


async def test_a_long_summary_is_cut():
    model = Witness(900, summary="ü" * 9_000)
    transcript = await held(pair(model, "summarize", sampling=SAMPLING))
    assert len(transcript.messages) == 60
    longest = max(len(message.summary.encode()) for message in transcript.messages)
    assert 80 < longest <= 3 * 60 // 2, "half of the longest reply"


async def test_a_summary_without_room_is_left_out():
    history = History("You ask.")
    for text in ("one", "two", "three"):
        history.add("user", text * 100)
        history.add("assistant", text)
    history.add("user", "now")
    pending = (Entry("user", "before"), Entry("assistant", "yes"))
    request = Request(history, Sampling(max_tokens=60), "t", "a")
    for room, summary in ((history.tokens + 20, ""), (history.tokens + 60, SUMMARY)):
        found, forgotten = await summarize(Witness(None), request, "", Forgotten(2, pending, room))
        assert forgotten._replace(usage=Usage()) == Forgotten(2, (), room, summary)
        assert forgotten.usage.calls == 1
        assert (found is history) == (not summary)
        assert found.tokens <= room


async def test_a_summary_that_fails_fails_the_conversation():
    conversation = pair(Witness(900, summary=ServerFailed("down")), "summarize", sampling=SAMPLING)
    with pytest.raises(ServerFailed):
        await held(conversation)
    stop = conversation.transcript.stop
    assert stop
    assert (stop.reason, stop.failure) == ("error", "ServerFailed")


async def test_summaries_of_several_speakers_are_begun_in_the_same_order_however_long_they_take():
    class Slow(WrappedModel):
        """Answers the one or the other first."""

        def __init__(self, inner: Model, fast: str) -> None:
            super().__init__(inner)
            self.fast = fast
            self.begun: list[str] = []

        async def reply(self, request: Request) -> Reply:
            self.begun.append(request.speaker)
            for _ in range(1 if self.fast in request.speaker else 9):
                await asyncio.sleep(0)
            return await self.inner.reply(request)

    orders: list[list[str]] = []
    for fast in ("Ada", "Bob", "Cleo"):
        model = Slow(Witness(700), fast)
        society = Society(
            "a task",
            members=(Member("Ada"), Member("Bob"), Member("Cleo")),
            prompt="You are <NAME>.",
            turns=Rounds(),
            stop=Ending(max_messages=60),
            sampling=SAMPLING,
            history="summarize",
        )
        transcript = await society.play(model).finish()
        assert len(transcript.messages) == 60
        orders.append(model.begun)
    assert orders[0] == orders[1] == orders[2]
    together = [n for n, name in enumerate(orders[0]) if name.endswith(" summary")]
    assert len(together) > 5


async def test_one_seat_may_forget_and_the_other_not():
    model = Witness(900)
    play = RolePlaying(
        "A menu",
        assistant="Chef",
        user="Guest",
        model=model,
        specify=False,
        history="window",
        user_history="full",
        rules=[MaxMessages(60), TokenLimit(2_000, reserve=60)],
    )
    assert [(agent.name, agent.history) for agent in (await play.prepare()).agents.values()] == [
        ("user", "full"),
        ("assistant", "window"),
    ]
    society = Society("a task", members=(Member("Ada", history="full"), Member("Bob")), history="summarize")
    conversation = await society.play(model).prepare()
    assert [agent.history for agent in conversation.agents.values()] == ["full", "summarize"]


# --- forks, and what is said unasked ---------------------------------------------------------------------------------


async def test_a_fork_forgets_and_never_summarizes():
    model = Witness(900)
    conversation = pair(model, "summarize", limit=40, sampling=SAMPLING)
    while not any(message.summary for message in conversation.transcript.messages):
        await conversation.step()
    fork, before = conversation.fork(), len(model.summaries)
    said = len(conversation.transcript.messages)
    forked = await held(fork)
    assert len(forked.messages) == 40
    assert len(model.summaries) == before
    assert len(conversation.transcript.messages) == said
    sent = [(name, body) for name, body, _ in model.requests if not name.endswith(" summary")]
    assert bodies(forked) == sent
    await held(conversation)
    assert len(model.summaries) > before


async def test_a_critic_that_looks_ahead_sees_what_its_speaker_remembers():
    model = Witness(900)
    critic = Beam(judge=FunctionJudge(lambda case: 0), proposals=2, depth=1, width=2)
    conversation = pair(model, "summarize", limit=40, sampling=SAMPLING, critic=critic)
    transcript = await held(conversation)
    assert len(transcript.messages) == 40
    assert max(model.tokens) <= 900
    assert 0 < len(model.summaries) == sum(bool(message.summary) for message in transcript.messages)
    assert transcript.usage.calls == len(model.requests)
    sent = {body for _, body, _ in model.requests}
    assert all(body in sent for _, body in bodies(transcript))


async def test_what_is_said_unasked_is_forgotten_in_its_time():
    model = Witness(900)
    conversation = pair(model, "window", sampling=SAMPLING)
    for number in range(40):
        conversation.say("assistant" if number % 2 else "user", Reply((Choice("word " * 25),)))
    await conversation.step()
    last = conversation.transcript.messages[-1]
    assert last.forgot > 3
    assert bodies(conversation.transcript)[-1] == (last.speaker, model.requests[-1][1])


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["", "Window", None, 3, ["full"]])
def test_a_policy_that_is_none_is_refused(policy: Any):
    with pytest.raises(InputError, match="summarize"):
        Agent("a", "A", Witness(None), history=policy)


def test_a_conversation_without_a_window_forgets_nothing():
    transcript = asyncio.run(held(pair(Witness(None), "summarize")))
    assert len(transcript.messages) == 60
    assert not any(message.forgot for message in transcript.messages)


def test_the_usual_history_is_in_no_identity():
    plain = RolePlaying("A menu", assistant="Chef", user="Guest")
    given = {"history": "window"}, {"user_history": "full"}, {"history": "window", "user_history": "full"}
    assert not {"history", "user_history"} & plain.identity().keys()
    identities = [plain.again(**one).identity() for one in given]
    assert len({msgspec.json.encode(one) for one in (plain.identity(), *identities)}) == 4
    society = Society("a task", members=(Member("Ada"), Member("Bob")))
    assert b"history" not in msgspec.json.encode(society.identity())
    changed = msgspec.structs.replace(society, history="full", members=(Member("Ada", history="window"),))
    assert b'"history":"window"' in msgspec.json.encode(changed.identity())
    assert changed.identity()["history"] == "full"


def chat_of(turns: int, *, opened: bool) -> History:
    """Every entry is estimated to have 20 tokens, what surrounds it included."""
    history = History("s" * 33)
    for number in range(turns):
        history.add("user", "o" * 33 if opened and not number else f"{number:33}")
        history.add("assistant", f"{number:33}")
    history.add("user", "now".ljust(33))
    assert history.tokens == 20 * len(history)
    return history


@pytest.mark.parametrize(
    ("turns", "opened", "room", "summarizes", "forgot", "left"),
    [
        # 3 entries stay at the beginning and 1 at the end, of 20 tokens each; a turn has 40.
        (11, False, 480, False, 5, 5),  # free: 480 - 80 = 400, half: 200
        (11, False, 479, False, 6, 4),
        (11, False, 400, False, 6, 4),  # half: 160
        (11, True, 480, False, 5, 4),  # the first two stay: half of 360
        (11, False, 480, True, 6, 4),  # with room for 60 tokens of a summary: half of 340
        (11, False, 120, False, 10, 0),  # half: 20
        (11, False, 40, False, 10, 0),  # what stays does not fit either
        (2, False, 80, False, 1, 0),
        (2, True, 80, False, None, None),
        (1, False, 60, False, None, None),
        (0, False, 30, False, None, None),
    ],
)
def test_how_much_is_forgotten(
    turns: int, opened: bool, room: int, summarizes: bool, forgot: int | None, left: int | None
):
    history = chat_of(turns, opened=opened)
    found = forget(history, "o" * 33, room, Forgotten(3), summarizes=summarizes)
    if forgot is None or left is None:
        assert found is None
        return
    assert found
    shorter, forgotten = found
    first = 5 if opened else 3
    assert (forgotten.turns, forgotten.room) == (3 + forgot, room)
    assert shorter.entries == history.entries[:first] + history.entries[first + 2 * forgot :]
    assert len(shorter) == first + 2 * left + 1
    assert shorter.tokens == 20 * len(shorter)
    assert forgotten.pending == (tuple(history.entries[first : first + 2 * forgot]) if summarizes else ())


@pytest.mark.parametrize(("room", "asked"), [(91, True), (90, False)])
def test_a_summary_is_asked_for_only_where_there_is_room_for_it(room: int, asked: bool):
    """What stays has 80 tokens, the summary an eighth of the room."""
    found = forget(chat_of(4, opened=False), "", room, Forgotten(), summarizes=True)
    assert found
    assert found[0].tokens == 80
    assert bool(found[1].pending) == asked


def test_lengths_are_those_that_the_endpoint_counts():
    history = chat_of(11, opened=False)
    history.measured(3 * history.tokens)
    found = forget(history, "", 3 * 480, Forgotten(), summarizes=False)
    assert found
    assert (found[1].turns, found[0].tokens) == (5, 3 * 20 * len(found[0]))


def test_a_chat_without_what_was_forgotten():
    chat = [Entry("system", "s"), Entry("user", "o"), Entry("assistant", "1")]
    chat += [Entry("user", "h2"), Entry("assistant", "2"), Entry("assistant", "3"), Entry("user", "h4")]
    assert remembered(chat, "", 0) == chat
    assert remembered(chat, "o", 0) == chat
    assert [one.content for one in remembered(chat, "o", 1)] == ["s", "o", "1", "h2", "2", "h4"]
    assert [one.content for one in remembered(chat, "", 1)] == ["s", "o", "1", "3", "h4"]
    noted = remembered(chat, "", 1, "S")
    assert [one.role for one in noted] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert noted[3].content.endswith("\n> S")
    assert remembered(chat, "", 2, "S")[3].content.endswith("\n> S\n\nh4")
    with pytest.raises(InputError, match="3 turns"):
        remembered(chat, "", 3)
    with pytest.raises(InputError, match="2 turns"):
        remembered(chat, "o", 2)
    assert [one.content for one in remembered(chat[1:], "o", 1)] == ["o", "1", "h2", "2", "h4"]
