"""Rows made column by column equal those of a simple implementation that reads one message at a time."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camel.core.errors import InputError
from camel.core.message import Message
from camel.core.role_playing import RolePlaying
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.models.scripted import ScriptedModel
from camel.record.arrow import to_table
from camel.training.shaping import AROUND, Shape, shape, stripped

pa = pytest.importorskip("pyarrow")
DONE = "<CAMEL_TASK_DONE>"


def without_markers(text: str) -> str:
    """Return a message without the format's markers, if it has the format that the prompts require."""
    if text.startswith("Instruction:"):
        instruction, found, given = text[12:].partition("\nInput:")
        given = "" if given.strip().rstrip(".").lower() in ("none", "n/a") else given
        return f"{instruction.strip()}\n{given.strip()}".strip() if found else instruction.strip()
    return re.sub(r"\s*Next request\.$", "", re.sub(r"^Solution:", "", text)).strip()


def reference(transcript: Transcript, seat: str, how: Shape) -> tuple[list[list[tuple[str, str]]], int]:
    """Return the rows of one conversation, and the number of turns that were too long."""
    own = next((one for one in transcript.speakers if one.name == seat), Speaker(seat, ""))
    heard: str | None = own.opening or transcript.task.text
    parts: list[list[tuple[str, str]]] = [[]]
    previous_own = False
    for place, message in enumerate(transcript.messages):
        last = place == len(transcript.messages) - 1
        over = transcript.stop is not None and transcript.stop.reason == "done"
        gone = message.content.strip() == DONE or (last and over and DONE in message.content)
        text = "" if gone else (message.content if how.markers else without_markers(message.content))
        if message.speaker != seat:
            if not previous_own:  # two messages in a row from the other seat, of which a row has only one
                parts.append([])
            heard, previous_own = (text if text.strip() else None), False
            continue
        if previous_own or heard is None or not heard.strip() or not text.strip():
            parts.append([])
        else:
            parts[-1].append((heard, text))
        heard, previous_own = None, True
    rows: list[list[tuple[str, str]]] = []
    too_long = 0
    system = own.system if how.system else ""
    head = _tokens(system, how) if system else 0
    for part in parts:
        row: list[tuple[str, str]] = []
        size = head
        for turn in part:
            more = sum(_tokens(text, how) for text in turn)
            if head + more > how.length:
                too_long += 1
                rows, row, size = [*rows, row], [], head
                continue
            if size + more > how.length:
                rows, row, size = [*rows, row], [], head
            row, size = [*row, turn], size + more
        rows.append(row)
    made = [
        ([("system", system)] if system else [])
        + [(role, text) for turn in row for role, text in zip(("user", "assistant"), turn, strict=True)]
        for row in rows
        if row
    ]
    return made, too_long


def _tokens(text: str, how: Shape) -> int:
    return -int(-len(text) // how.characters_per_token) + AROUND


def made(table: Any) -> list[list[tuple[str, str]]]:
    return [[(one["role"], one["content"]) for one in row["messages"]] for row in table.to_pylist()]


words = st.text("ab é", min_size=1, max_size=30).map(lambda text: text.strip() or "x")
asked = st.builds(lambda a, b: f"Instruction: {a}\nInput: {b}", words, st.one_of(st.just("None"), words))
solved = st.builds(lambda a: f"Solution: {a}\nNext request.", words)
anything = st.one_of(
    words, st.just(""), st.just("  "), st.just(DONE), words.map(lambda text: f"{text} {DONE}")
)


@st.composite
def transcripts(draw: st.DrawFn) -> Transcript:
    messages: list[Message] = []
    for index in range(draw(st.integers(0, 9))):
        seat = ("user", "assistant")[index % 2] if draw(st.integers(0, 9)) else "user"
        text = draw(st.one_of(asked if seat == "user" else solved, anything))
        messages.append(Message(index, seat, "R", text))
    speakers = [
        Speaker(
            "user", "Trader", draw(st.sampled_from(["", "You ask."])), draw(st.sampled_from(["", "Begin."]))
        ),
        Speaker("assistant", "Coder", draw(st.sampled_from(["", "You solve."]))),
    ]
    stop = draw(st.sampled_from([None, Stop("done", "", "user"), Stop("max_messages", "", "")]))
    return Transcript(f"c{draw(st.integers(0, 999)):03}", Task("a task", ""), speakers, messages, stop)


shapes = st.builds(
    Shape,
    seat=st.sampled_from(["assistant", "user", "both"]),
    markers=st.booleans(),
    system=st.booleans(),
    length=st.sampled_from([12, 20, 30, 60, 2048]),
    characters_per_token=st.sampled_from([1.0, 4.0]),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(transcripts(), max_size=6), shapes)
def test_rows_equal_those_of_the_reference(conversations: list[Transcript], how: Shape):
    table = to_table(conversations)
    found = shape(table, how)
    wanted = [reference(one, seat, how) for seat in how.seats for one in conversations]
    assert made(found.rows) == [row for rows, _ in wanted for row in rows]
    assert found.too_long == sum(count for _, count in wanted)
    for row in found.rows.to_pylist():
        assert row["tokens"] <= how.length
        assert row["tokens"] == sum(_tokens(one["content"], how) for one in row["messages"])
        assert row["messages"][-1]["role"] == "assistant"


@settings(max_examples=50, deadline=None)
@given(st.lists(transcripts(), min_size=3, max_size=8), st.integers(0, 3), st.integers(1, 4))
def test_a_slice_of_a_table_gives_the_rows_of_its_conversations(
    conversations: list[Transcript], start: int, size: int
):
    how = Shape(seat="both", system=True)
    part = to_table(conversations).slice(start, size)
    assert made(shape(part, how).rows) == made(shape(to_table(conversations[start : start + size]), how).rows)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Instruction: Sort it.\nInput: None", "Sort it."),
        ("**Instruction:** Sort it.\n**Input:** None.", "Sort it."),
        ("Instruction: Sort it.\nInput: 3, 1, 2", "Sort it.\n3, 1, 2"),
        ("Solution: 1, 2, 3\n\nNext request.", "1, 2, 3"),
        (
            "Solution: The program reads\nInput: 3\nand prints 4.\nNext request.",
            "The program reads\nInput: 3\nand prints 4.",
        ),
        ("The instruction: none of this is a marker", "The instruction: none of this is a marker"),
        ("Ask for the next request. Then wait", "Ask for the next request. Then wait"),
    ],
)
def test_markers_are_removed_only_where_the_prompts_require_them(text: str, expected: str):
    assert stripped(pa.array([text])).to_pylist() == [expected]


def test_a_conversation_of_one_answer_has_the_task_as_its_question():
    table = to_table(
        [
            Transcript(
                "m",
                Task("What is 1 + 1?"),
                [Speaker("assistant", "Maths")],
                [Message(0, "assistant", "Maths", "2")],
            )
        ]
    )
    assert made(shape(table, Shape()).rows) == [[("user", "What is 1 + 1?"), ("assistant", "2")]]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["Poet", "<TASK>", r"C:\1 & Co."]),
    st.sampled_from(["Sell it.", "Wait...", " a $1 <USER_ROLE> ", "Go\n"]),
)
def test_a_conversation_without_prompts_gets_those_of_role_playing(role: str, task: str):
    """A model is trained with the prompts that it gets later, when it plays the role."""
    speakers = [Speaker("user", "Trader"), Speaker("assistant", role)]
    messages = [
        Message(0, "user", "Trader", "Instruction: Go.\nInput: None"),
        Message(1, "assistant", role, "Yes"),
    ]
    own = Transcript("own", Task(task), [Speaker("user", "", "Mine.", "Now."), speakers[1]], messages[:1])
    table = to_table([Transcript("a", Task(task), speakers, messages), own])
    rows = made(shape(table, Shape(seat="both", system=True, inception=True, markers=True)).rows)
    play = RolePlaying(assistant=role, user="Trader", task=task, model=ScriptedModel([]), specifier=None)
    user, assistant = asyncio.run(play.prepare()).agents.values()
    assert rows == [
        [("system", assistant.system), ("user", messages[0].content), ("assistant", "Yes")],
        [("system", user.system), ("user", user.opening), ("assistant", messages[0].content)],
        [("system", "Mine."), ("user", "Now."), ("assistant", messages[0].content)],
    ]
    with pytest.raises(InputError, match="system"):
        Shape(inception=True)
