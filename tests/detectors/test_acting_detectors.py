"""Faults of speakers with tools: planted traces, and the cases that the rules must leave alone."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.detectors import corpus
from camel.core.message import Action, Message
from camel.core.model import ToolSchema
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.detectors import detect
from tests.support.acting_traces import Trace, traces

NAMES = ["repeated_call", "ignored_error", "claimed_action"]
TRACES = traces()
PRECISION, RECALL = 0.95, 0.9
WRITTEN = Path(__file__).parent.parent / "data" / "acting_traces.jsonl"
"""Conversations by writers who had the definitions of the faults and not the rules, with their labels."""


def rates(given: list[Trace]) -> dict[str, tuple[float, float]]:
    """Precision and recall of each detector over messages."""
    right, found, planted = Counter[str](), Counter[str](), Counter[str]()
    for trace in given:
        hits = {(one.detector, one.index) for one in detect(trace.transcript, NAMES)}
        right.update(name for name, _ in hits & trace.faults)
        found.update(name for name, _ in hits)
        planted.update(name for name, _ in trace.faults)
    return {name: (right[name] / found[name], right[name] / planted[name]) for name in NAMES}


@pytest.mark.parametrize("held_out", [False, True])
def test_the_detectors_are_right_about_planted_traces(held_out: bool):
    given = [trace for trace in TRACES if trace.held_out is held_out]
    assert len(TRACES) == 300
    assert len(given) >= 90
    for name, (precision, recall) in rates(given).items():
        assert precision >= PRECISION, name
        assert recall >= RECALL, name


def written(line: str, number: int) -> Trace:
    """Read a conversation and its labels."""
    given = json.loads(line)
    tools = [ToolSchema(name) for name in given["tools"]]
    speakers = [Speaker("user", "Client"), Speaker("assistant", "Helper", tools=tools)]
    messages = [
        Message(
            at,
            one["speaker"],
            one["speaker"],
            one["content"],
            actions=[
                Action(
                    call["tool"],
                    json.dumps(call["arguments"]),
                    call["result"] if isinstance(call["result"], str) else json.dumps(call["result"]),
                    call["error"],
                    step=step,
                )
                for step, call in enumerate(one["actions"])
            ],
        )
        for at, one in enumerate(given["messages"])
    ]
    faults = frozenset((name, at) for name, at in given["faults"])
    return Trace(Transcript(f"written-{number}", Task("x"), speakers, messages), faults, held_out=False)


@pytest.mark.parametrize(("half", "claims"), [(0, RECALL), (1, 0.75)])
def test_the_detectors_are_right_about_traces_of_other_writers(half: int, claims: float):
    """The rules were developed on the first half. On the second, `claimed_action` misses a quarter: 0.76."""
    lines = WRITTEN.read_text().splitlines()
    assert len(lines) == 300
    given = [written(line, number) for number, line in enumerate(lines)][150 * half :][:150]
    for name, (precision, recall) in rates(given).items():
        assert precision >= PRECISION, name
        assert recall >= (claims if name == "claimed_action" else RECALL), name


def test_a_conversation_without_tools_has_no_finding():
    assert [detect(example.transcript(), NAMES) for example in corpus("tune")] == [[]] * len(corpus("tune"))


RUN, READ, ADD = ToolSchema("python", "Run code."), ToolSchema("read_file"), ToolSchema("add_item")


def found(
    *said: tuple[str, str, list[Action]], tools: tuple[ToolSchema, ...] = (RUN, READ, ADD)
) -> list[tuple[str, int]]:
    speakers = [Speaker("user", "User"), Speaker("assistant", "Helper", tools=list(tools))]
    messages = [
        Message(at, name, name, text, actions=actions) for at, (name, text, actions) in enumerate(said)
    ]
    return [
        (one.detector, one.index) for one in detect(Transcript("a", Task("t"), speakers, messages), NAMES)
    ]


def test_a_repeated_call_that_changed_the_shared_state_is_not_counted():
    add = Action("add_item", '{"id": 1}', "ok", change='{"basket": [1]}')
    assert found(("assistant", "Both are in the basket.", [add, add])) == []
    same = Action("add_item", '{"id": 1}', "ok")
    assert found(("assistant", "It is in the basket.", [same, same])) == [("repeated_call", 0)]


def test_a_retry_that_succeeds_is_not_counted():
    calls = [Action("python", '{"code": "1"}', error="busy"), Action("python", '{"code": "1"}', "1")]
    assert found(("assistant", "It is one.", calls)) == []


def test_a_state_that_another_speaker_changed_may_be_read_again():
    read = Action("read_file", '{"path": "a"}', "x")
    write = Action("add_item", '{"id": 2}', "ok")
    assert (
        found(("assistant", "It has x.", [read]), ("user", "Fine.", [write]), ("assistant", "x", [read]))
        == []
    )
    assert found(("assistant", "It has x.", [read]), ("user", "Fine.", []), ("assistant", "x", [read])) == [
        ("repeated_call", 2)
    ]


def test_a_claim_counts_if_the_speaker_has_any_tool():
    claim = ("assistant", "I ran the code and it prints 42.", list[Action]())
    assert found(claim) == [("claimed_action", 0)]
    assert found(claim, tools=(READ,)) == [("claimed_action", 0)]
    assert found(claim, tools=()) == []
    assert found(("assistant", "```\nI ran the code.\n```\nThat is the text.", [])) == []
    assert found(("user", "I ran the code.", [])) == []


def test_a_claim_is_backed_by_an_earlier_call_of_the_same_kind():
    add, read = Action("add_item", '{"id": 1}', "ok"), Action("read_file", '{"path": "a"}', "x")
    claim = ("assistant", "I added the item.", list[Action]())
    assert found(("assistant", "Fine.", [add]), claim) == []
    assert found(("assistant", "Fine.", [read]), claim) == [("claimed_action", 1)]


def test_an_error_next_to_a_result_is_not_counted():
    calls = [Action("python", '{"code": "1"}', error="busy"), Action("read_file", '{"path": "a"}', "42")]
    assert found(("assistant", "The file contains 42.", calls)) == []
    assert found(("assistant", "The file contains 42.", calls[:1])) == [("ignored_error", 0)]


def test_arguments_that_are_not_json_are_compared_as_text():
    calls = [Action("python", "print(1)", "1"), Action("python", "print(1)", "1")]
    assert found(("assistant", "It prints one.", calls)) == [("repeated_call", 0)]
