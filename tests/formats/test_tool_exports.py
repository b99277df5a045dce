"""Tool calls in exports: the format of OpenAI, what comes back after an import, and what `datasets` reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

pytest.importorskip("pyarrow")

from camel.core.acting import read_by_model
from camel.core.message import Action, Deliberation, Message, Proposal
from camel.core.model import ToolSchema
from camel.core.task import Task
from camel.core.transcript import Score, Speaker, Transcript
from camel.formats.dataset import dataset
from camel.formats.documents import IMPORTERS
from camel.formats.exporters import FORMATS

ADD = ToolSchema("add", "Add two numbers.", {"type": "object", "properties": {"a": {"type": "integer"}}})
FUZZ = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
arguments = st.dictionaries(texts, values, max_size=3)
steps = st.lists(
    st.tuples(
        st.just("") | texts, st.lists(st.tuples(arguments, texts, st.booleans()), min_size=1, max_size=3)
    ),
    max_size=3,
)


def acted(steps: list[tuple[str, list[tuple[dict[str, Any], str, bool]]]], start: int = 0) -> list[Action]:
    """Actions of a message: each step has the text of a reply, and its calls with arguments and outcomes."""
    found: list[Action] = []
    for step, (said, calls) in enumerate(steps):
        for place, (input, text, failed) in enumerate(calls):
            outcome: dict[str, Any] = {"error": text} if failed else {"result": text}
            id = f"call-{start + len(found)}"
            found.append(
                Action("add", json.dumps(input), **outcome, call=id, step=step, said="" if place else said)
            )
    return found


def chat(*turns: tuple[str, list[Action]], form: str = "native", id: str = "a") -> Transcript:
    """A chat whose assistant has a tool."""
    said: list[Message] = []
    for question, (text, actions) in enumerate(turns):
        said.append(Message(len(said), "user", "User", f"Question {question}"))
        said.append(Message(len(said), "assistant", "Assistant", text, actions=actions))
    speakers = [
        Speaker("user", "User"),
        Speaker("assistant", "Assistant", "Be kind.", tools=[ADD], tool_form=form),
    ]
    return Transcript(id, Task("Question 0"), speakers, said)


def exported(name: str, given: list[Transcript], folder: Path, **options: Any) -> list[dict[str, Any]]:
    path = folder / f"{name}.jsonl"
    path.unlink(missing_ok=True)
    FORMATS[name].write(given, path, **options)
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@FUZZ
@given(first=steps, second=steps, said=st.lists(texts, min_size=2, max_size=2))
def test_actions_are_exported_as_the_chat_has_them_and_come_back(
    tmp_path_factory: pytest.TempPathFactory, first: Any, second: Any, said: list[str]
):
    folder = tmp_path_factory.mktemp("chat")
    before = acted(first)
    given = chat((said[0], before), (said[1], acted(second, len(before))))
    (row,) = exported("messages", [given], folder)
    expected = given.to_messages("assistant")
    names = {one.call: one.tool for message in given.messages for one in message.actions}
    for message in expected:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        if message["role"] == "tool":
            message["name"] = names[message["tool_call_id"]]
    assert row["messages"] == expected
    assert json.loads(row["tools"])[0]["function"]["name"] == "add"
    for name in ("messages", "sharegpt"):
        bytes_before = (exported(name, [given], folder), (folder / f"{name}.jsonl").read_bytes())[1]
        (back,) = IMPORTERS[name](folder / f"{name}.jsonl")
        assert back.speakers[1].tools == [ADD]
        for one, other in zip(given.messages, back.messages, strict=True):
            assert other.content == one.content
            for action, read in zip(one.actions, other.actions, strict=True):
                assert json.loads(read.arguments) == json.loads(action.arguments)
                assert read_by_model(read) == read_by_model(action)
                assert (read.tool, read.call, read.step) == (action.tool, action.call, action.step)
                assert read.said == (action.said if name == "messages" else "")
        exported(name, [back], folder)
        assert (folder / f"{name}.jsonl").read_bytes() == bytes_before


CALLS = acted([("Wait.", [({"a": 1}, "1", False), ({"a": 2, "b": [1]}, "broken", True)])])


def test_sharegpt_alternates_and_has_calls_as_json(tmp_path: Path):
    (row,) = exported("sharegpt", [chat(("Done.", CALLS))], tmp_path)
    assert [turn["from"] for turn in row["conversations"]] == [
        "system",
        "human",
        "function_call",
        "observation",
        "gpt",
    ]
    assert json.loads(row["conversations"][2]["value"])[0] == {"name": "add", "arguments": {"a": 1}}
    assert json.loads(row["conversations"][3]["value"]) == ["1", "Error: broken"]


def test_calls_as_text_remain_text(tmp_path: Path):
    for name in ("messages", "sharegpt"):
        (row,) = exported(name, [chat(("Done.", CALLS), form="text")], tmp_path)
        assert "tools" not in row
        turns = row.get("messages") or row["conversations"]
        assert {turn.get("role") or turn["from"] for turn in turns} <= {
            "system",
            "user",
            "assistant",
            "human",
            "gpt",
        }
        assert "<tool_call>" in json.dumps(turns)


def test_calls_after_a_message_of_the_same_seat_are_one_turn(tmp_path: Path):
    given = chat(("One.", []))
    given.messages.append(Message(2, "assistant", "Assistant", "Two.", actions=CALLS, reasoning="hm"))
    (row,) = exported("messages", [given], tmp_path)
    assert [one["role"] for one in row["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]
    assert row["messages"][2]["content"] == "One.\n\nWait."


def test_a_conversation_without_tools_has_rows_as_before(tmp_path: Path):
    plain = chat(("Fine.", []))
    plain.speakers[1] = replace(plain.speakers[1], tools=[])
    exported("messages", [plain], tmp_path)
    assert (tmp_path / "messages.jsonl").read_bytes() == (
        b'{"messages":[{"role":"system","content":"Be kind."},{"role":"user","content":"Question 0"},'
        b'{"role":"assistant","content":"Fine."}],"metadata":{"id":"a","run":"","inputs":"{}","scores":"{}","result":"null"}}\n'
    )


def test_preferences_have_the_calls_of_both_answers(tmp_path: Path):
    better, worse = (
        replace(chat((text, CALLS), id=text), scores={"good": Score(value)})
        for text, value in (("Yes.", 2.0), ("No.", 1.0))
    )
    (row,) = exported("preferences", [better, worse], tmp_path, by="score.good")
    assert [one["role"] for one in row["prompt"]] == ["system", "user", "assistant", "tool", "tool"]
    assert (row["chosen"], row["rejected"]) == (
        [{"role": "assistant", "content": "Yes."}],
        [{"role": "assistant", "content": "No."}],
    )
    assert json.loads(row["tools"])[0]["type"] == "function"


def test_a_critics_choice_has_no_calls_that_only_one_proposal_made(tmp_path: Path):
    given = chat(("Yes.", CALLS))
    weighed = Deliberation("c", (Proposal("Yes."), Proposal("No.")), 0)
    given.messages[1] = replace(given.messages[1], deliberation=weighed)
    (row,) = exported("preferences", [given], tmp_path)
    assert [one["role"] for one in row["prompt"]] == ["system", "user"]


def test_a_call_whose_arguments_are_not_an_object_is_exported_as_text(tmp_path: Path):
    (row,) = exported("messages", [chat(("x", [Action("add", "[1]", "1", call="c")]))], tmp_path)
    assert row["messages"][2]["tool_calls"][0]["function"]["arguments"] == "[1]"


def test_calls_without_a_message_are_imported(tmp_path: Path):
    call = {"role": "assistant", "tool_calls": [{"id": "x", "function": {"name": "add", "arguments": "{}"}}]}
    turns = [
        {"role": "user", "content": "A"},
        call,
        {"role": "tool", "content": "1"},
        {"role": "user", "content": "B"},
        call,
    ]
    (tmp_path / "in.jsonl").write_text(json.dumps({"messages": turns}))
    (one,) = IMPORTERS["messages"](tmp_path / "in.jsonl")
    assert [(said.speaker, said.content, len(said.actions)) for said in one.messages] == [
        ("user", "A", 0),
        ("assistant", "", 1),
        ("user", "B", 0),
    ]
    assert one.unspoken == [Action("add", call="x")]


def test_datasets_reads_rows_with_and_without_tools(tmp_path: Path):
    """Arguments of calls have other keys and types in each row, and come back as they were."""
    datasets = pytest.importorskip("datasets")
    plain = chat(("Fine.", []), id="plain")
    plain.speakers[1] = replace(plain.speakers[1], tools=[])
    other = acted([("", [({"c": {"d": [1, "x"]}}, "1", False)])])
    given = [plain, chat(("Done.", CALLS), id="b"), chat(("Done.", other), id="c"), plain]
    rows = exported("messages", given, tmp_path)
    loaded = datasets.load_dataset(
        "json", data_files=str(tmp_path / "messages.jsonl"), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert [row["messages"] for row in loaded] == [row["messages"] for row in rows]
    assert [row["tools"] for row in loaded] == [row.get("tools") for row in rows]


def test_a_dataset_keeps_actions_and_its_card_lists_the_tools(tmp_path: Path):
    given = chat(("Done.", CALLS))
    given.unspoken, given.hear_actions = CALLS[:1], True
    dataset([given], tmp_path / "set")
    assert list(IMPORTERS["dataset"](tmp_path / "set")) == [given]
    assert "- Tools, by calls: `add` (2)" in (tmp_path / "set" / "README.md").read_text()
