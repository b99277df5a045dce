"""A person in a seat, by a function: what is said, what the record says of it, how turns are handed over and back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel import HandOver, InputError, Person, RolePlaying, ScriptedModel, Transcript, Usage, parse
from camel.core.grammar import DONE_TOKEN
from camel.core.model import Request
from camel.models.person import PERSON, as_move


def said(*lines: Any) -> Callable[[Request], Any]:
    """A person who says these lines and then leaves."""
    left = iter(lines)
    return lambda request: next(left, None)


def talk(user: Person, model: Any, **options: Any) -> Transcript:
    return RolePlaying(
        assistant="Poet", user="Editor", task="Verse", model=model, user_model=user, **options
    ).run()


def solver() -> ScriptedModel:
    return ScriptedModel(
        lambda request: (
            "Solution: Roses are red. Next request."
            if request.speaker == "assistant"
            else f"Instruction: Continue, {len(request.history)}.\nInput: None"
        ),
        name="machine",
    )


def test_what_a_person_says_is_recorded_as_a_persons_and_costs_nothing():
    model = solver()
    transcript = talk(Person(said("write a verse", DONE_TOKEN)), model, specifier=None)
    assert [message.model for message in transcript.messages] == [PERSON, "machine", PERSON]
    assert transcript.messages[0].content == "Instruction: write a verse\nInput: None"
    assert [message.usage == Usage() for message in transcript.messages] == [True, False, True]
    assert transcript.usage.calls == len(model.requests) == 1
    assert transcript.stop is not None
    assert transcript.stop.reason == "done"
    assert model.heard[0][-1].content == transcript.messages[0].content
    assert Transcript.from_json(transcript.to_json()) == transcript


def test_turns_are_handed_to_the_model_and_come_back():
    model = solver()
    transcript = talk(
        Person(said("begin", HandOver(2), "continue", None), model=model), model, specifier=None
    )
    users = [message for message in transcript.messages if message.speaker == "user"]
    assert [message.model for message in users] == [PERSON, "machine", "machine", PERSON]
    assert transcript.stop is not None
    assert (transcript.stop.reason, transcript.stop.speaker) == ("stopped", "user")
    assert "left" in transcript.stop.detail
    assert transcript.usage.calls == len(model.requests)


async def test_a_seat_can_be_taken_back_while_the_model_has_turns():
    model = solver()
    person = Person(said(HandOver(50), "I am back", None), model=model)
    role_playing = RolePlaying(
        assistant="Poet", user="Editor", task="Verse", model=model, user_model=person, specifier=None
    )
    assert not person.take_back()
    async for message in role_playing:
        if message.index == 3:
            assert person.take_back()
    assert [m.model for m in role_playing.transcript.messages if m.speaker == "user"] == [
        "machine",
        "machine",
        PERSON,
    ]


async def test_two_conversations_share_a_person_but_not_the_turns_handed_over():
    model, asked = solver(), []

    def ask(request: Request) -> Any:
        asked.append(request.session)
        return HandOver(3) if request.session == "a" and asked.count("a") == 1 else None

    person = Person(ask, model=model)
    for name in "ab":
        play = RolePlaying(
            assistant="P", user="E", task="V", model=model, user_model=person, specifier=None, id=name
        )
        await play.finish()
        assert len(play.transcript.messages) == (6 if name == "a" else 0)


def test_in_the_assistants_seat():
    model = ScriptedModel(["Instruction: Write.\nInput: None", DONE_TOKEN])
    transcript = RolePlaying(
        assistant="Poet", user="Editor", task="V", model=Person(said("A rose")), user_model=model
    ).run()
    assert transcript.messages[1].content == "Solution: A rose\nNext request."
    # Nobody is asked to specify the task that they gave.
    assert transcript.task.specified == ""
    assert len(model.requests) == 2


def test_the_model_of_a_person_specifies_the_task():
    model = ScriptedModel(["A verse about rain", DONE_TOKEN])
    transcript = RolePlaying(
        assistant="Poet", user="Editor", task="V", model=Person(said(), model=model), user_model=model
    ).run()
    assert transcript.task.specified == "A verse about rain"


@pytest.mark.parametrize("kind", ["plain", "async", "object", "lambda"])
def test_any_kind_of_function_may_ask(kind: str):
    lines = iter(["Hello", None])

    async def later(request: Request) -> str | None:
        await asyncio.sleep(0)
        return next(lines)

    class Asker:
        async def __call__(self, request: Request) -> str | None:
            return await later(request)

    ask: Any = {
        "plain": lambda request: next(lines),
        "async": later,
        "object": Asker(),
        "lambda": lambda request: later(request),
    }[kind]
    assert talk(Person(ask), solver(), specifier=None).messages[0].move.instruction == "Hello"


async def test_other_tasks_continue_while_a_person_thinks():
    thinking, done = threading.Event(), threading.Event()

    def ask(request: Request) -> str:
        thinking.set()
        assert done.wait(60)
        return DONE_TOKEN

    play = RolePlaying(
        assistant="P", user="E", task="V", model=solver(), user_model=Person(ask), specifier=None
    )
    task = asyncio.create_task(play.finish())
    assert await asyncio.to_thread(thinking.wait, 60)  # the loop turns although the function waits
    done.set()
    assert (await task).messages[0].latency > 0


async def test_who_is_cancelled_waits_for_nobody():
    """A function that never returns must keep neither the task nor the process."""
    asked, released = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def ask(request: Request) -> str:
        loop.call_soon_threadsafe(asked.set)
        released.wait()
        return ""

    play = RolePlaying(
        assistant="P",
        user="E",
        task="V",
        model=solver(),
        user_model=Person(ask),
        specifier=None,
    )
    task = asyncio.create_task(play.finish())
    try:
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 60)
    finally:
        released.set()


def test_the_end_of_input_and_silence_are_leaving():
    def ended(request: Request) -> str:
        raise EOFError

    for ask in (ended, lambda request: "  \n"):
        transcript = talk(Person(ask), solver(), specifier=None)
        assert transcript.messages == []
        assert transcript.stop is not None
        assert transcript.stop.reason == "stopped"


async def test_a_look_ahead_asks_the_model_and_not_the_person():
    model = solver()
    play = RolePlaying(
        assistant="P",
        user="E",
        task="V",
        model=model,
        user_model=Person(said("begin"), model=model),
        specifier=None,
    )
    conversation = await play.prepare()
    imagined = conversation.fork()
    async for message in imagined:
        if message.index == 3:
            break
    assert [m.model for m in imagined.transcript.messages] == ["machine"] * 4
    message = await anext(aiter(conversation))
    assert (message.index, message.model) == (0, PERSON)


def test_half_a_surrogate_pair_is_replaced_before_it_is_shown_or_recorded():
    seen: list[str] = []
    transcript = talk(
        Person(said("caf\udce9")), solver(), specifier=None, watch=lambda event: seen.append(event.text)
    )
    assert transcript.messages[0].content == seen[0] == "Instruction: caf?\nInput: None"


def test_mistakes_raise_errors_that_name_them():
    with pytest.raises(InputError, match="function"):
        Person("me")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="HandOver"):
        talk(Person(lambda request: 3), solver(), specifier=None)  # type: ignore[arg-type,return-value]
    with pytest.raises(InputError, match="model="):
        talk(Person(said(HandOver())), solver(), specifier=None)
    for turns in (0, -1, True, "2"):
        with pytest.raises(InputError, match="turns"):
            HandOver(turns)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="mine"):
        talk(Person(said_badly), solver(), specifier=None)


def said_badly(request: Request) -> str:
    raise RuntimeError("mine")


@pytest.mark.parametrize(
    ("typed", "seat", "sent"),
    [
        ("list it", "instruction", "Instruction: list it\nInput: None"),
        ("list it\nInput: the shelf", "instruction", "Instruction: list it\nInput: the shelf"),
        ("Instruction: a\nInput: b", "instruction", "Instruction: a\nInput: b"),
        ("**Instruction:** a", "instruction", "**Instruction:** a"),
        (DONE_TOKEN, "instruction", DONE_TOKEN),
        ("the word instruction alone", "instruction", "Instruction: the word instruction alone\nInput: None"),
        ("x = 1", "solution", "Solution: x = 1\nNext request."),
        ("x = 1\nNext request.", "solution", "Solution: x = 1\nNext request."),
        ("Solution: x", "solution", "Solution: x"),
        ("as it is", None, "as it is"),
        ("价格", "instruction", "Instruction: 价格\nInput: None"),
    ],
)
def test_words_become_moves(typed: str, seat: Any, sent: str):
    assert as_move(typed, seat) == sent


_WORDS = (
    st.text(min_size=1)
    .map(str.strip)
    .filter(
        lambda text: (
            any(char.isalnum() for char in text) and parse(f"Instruction: {text}").instruction is not None
        )
    )
)


@given(_WORDS)
def test_whatever_is_typed_instructs_and_loses_nothing(text: str):
    sent = as_move(text, "instruction")
    move = parse(sent)
    assert text in sent
    assert move.instruction is not None or move.done or parse(text).solution is not None
    assert as_move(sent, "instruction") == sent or move.instruction is None


@given(st.text(min_size=1).map(str.strip).filter(bool))
def test_whatever_is_typed_solves_and_loses_nothing(text: str):
    sent = as_move(text, "solution")
    assert text in sent
    if any(char.isalnum() for char in text) and parse(text).instruction is None and not parse(text).done:
        move = parse(sent)
        assert move.solution is not None or parse(f"Solution: {text}").solution is None
