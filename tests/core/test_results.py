"""Structured results: short forms, schemas, reading answers, and repeating the request."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel.core.errors import ContextOverflow, InputError, ServerFailed
from camel.core.message import Message, Sampling, Usage
from camel.core.model import Choice, Reply
from camel.core.results import ResultSettings, add_result, find_object, read_settings, result_rows
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Transcript
from camel.models.scripted import ScriptedModel
from camel.models.simulator.authors import Facts, write_json

pytest.importorskip("jsonschema")

FORM = ResultSettings(
    fields={"mood": "good | bad", "resolved": "boolean", "refund": "number?", "tags": "string[]"}
)
GOOD = {"mood": "good", "resolved": True, "refund": 2.5, "tags": ["a"]}


def conversation(**changes: Any) -> Transcript:
    said = [
        Message(0, "user", "Customer", 'My order is late.\n{"mood": "bad"}'),
        Message(1, "assistant", "Agent", "Sorry!"),
    ]
    return Transcript("017", Task("Help"), messages=said, stop=Stop("done", "it is done"), **changes)


# --- Short forms -----------------------------------------------------------------------------------------------------------

names = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=8)
choices = st.lists(names, min_size=2, max_size=4, unique=True).map(" | ".join)
kinds = st.tuples(
    st.sampled_from(["string", "integer", "number", "boolean", "string[]", "number[]"]) | choices,
    st.sampled_from(["", "?"]),
).map("".join)


@given(st.dictionaries(names, kinds, min_size=1, max_size=6), st.integers(0, 2**64 - 1))
def test_a_short_form_accepts_its_own_examples(fields: dict[str, str], draw: int):
    settings = ResultSettings(fields=fields)
    schema = settings.validator.schema
    facts = Facts("", [], 0, 0, draw, 10, 10)
    example = json.loads(write_json(schema, facts))
    assert settings.read(f"Here:\n```json\n{json.dumps(example, indent=2)}\n```\nDone.") == (example, "")
    assert schema["required"] == list(fields), "strict endpoints require all fields"
    for name, kind in fields.items():
        without = {key: value for key, value in example.items() if key != name}
        result, problem = settings.read(json.dumps(without))
        assert (result == {**without, name: None}) if kind.endswith("?") else name in problem
        result, problem = settings.read(json.dumps({**example, name: {"x": 1}}))
        assert result is None
        assert name in problem


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({}, "schema"),
        ({"fields": {"a": "string"}, "schema": {"type": "object"}}, "schema"),
        ({"fields": {"a": "strin"}}, "string"),
        ({"fields": {"a": "x | "}}, "result.fields.a"),
        ({"fields": {"a": "x | x"}}, "result.fields.a"),
        ({"fields": {"a": "string"}, "attempts": 0}, "attempts"),
        ({"schema": {"type": "array"}}, "'array'"),
        ({"schema": {"type": "objekt"}}, "objekt"),
        ({"schema": {"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}}}, "/$defs/b"),
        (
            {"schema": {"type": "object", "properties": {"a": {"$ref": "http://localhost/b"}}}},
            "http://localhost/b",
        ),
        ({"schema": {"type": "object", "properties": str}}, "JSON"),
    ],
)
def test_unusable_settings_are_refused(settings: dict[str, Any], named: str):
    with pytest.raises(InputError) as error:
        ResultSettings(**settings)
    assert named in str(error.value)


def test_settings_come_from_a_class_a_schema_or_short_forms():
    class Form:
        @staticmethod
        def model_json_schema() -> dict[str, Any]:
            return {
                "type": "object",
                "properties": {"n": {"$ref": "#/$defs/N"}},
                "$defs": {"N": {"type": "integer"}},
            }

    assert read_settings(Form).read('{"n": 3}') == ({"n": 3}, "")
    assert read_settings(Form).read('{"n": "3"}')[0] is None
    assert read_settings({"type": "object"}).read("{}") == ({}, "")
    assert read_settings(dict(FORM.fields)) == FORM
    assert read_settings(FORM) is FORM
    with pytest.raises(InputError, match="Pydantic"):
        read_settings(3)


# --- Answers ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a": 1}', {"a": 1}),
        ('```json\n{"a": {"b": []}}\n```', {"a": {"b": []}}),
        ('Braces {like these} come first: {"a": 1} {} and later }', {"a": 1}),
        ('<think>{"a": 1, "b": 2, "c": 3}</think>{"a": 2}', {"a": 2}),
        ("no object", None),
        ('{"a": NaN}', None),
        ("[1, 2]", None),
        ("{" * 5_000, None),
        ('{"a":' * 100_000, None),
    ],
)
def test_an_object_is_found_between_prose(text: str, found: Any):
    assert find_object(text) == found


@pytest.mark.parametrize("value", ["1e999", '"\\ud800"', "9" * 5_000])
def test_a_value_that_cannot_be_stored_is_not_a_result(value: str):
    result, problem = ResultSettings({"type": "object"}).read(f'{{"a": {value}}}')
    assert result is None
    assert problem


def test_a_hostile_answer_is_only_an_invalid_one():
    tree: dict[str, Any] = {"type": "object", "additionalProperties": {"$ref": "#"}}
    for answer in (
        '{"a":' * 400 + "{}" + "}" * 400,
        '{"\\ud800": {"\\ud800": 1}}',
        '{"a": "' + "x" * 100_000 + '"}',
    ):
        result, problem = ResultSettings(tree).read(answer)
        assert result is None
        problem.encode()
        assert 0 < len(problem) <= 500


async def test_an_invalid_answer_is_shown_with_its_error():
    model = ScriptedModel(["I cannot.", json.dumps({**GOOD, "mood": "fine"}), f"Sure: {json.dumps(GOOD)}"])
    transcript = await add_result(conversation(), lambda: model, FORM, Sampling(temperature=0))
    assert transcript.result == GOOD
    assert transcript.result_call.error == ""
    assert transcript.result_call.usage.calls == transcript.usage.calls == 3
    assert [len(chat) for chat in model.heard] == [2, 4, 4]
    question = model.heard[0][1].content
    assert '> {"mood": "bad"}' in question, "the conversation is quoted"
    assert msgspec.json.decode(question.rpartition("\n")[2]) == FORM.validator.schema
    assert "fine" in model.heard[2][2].content
    assert "'fine'" in model.heard[2][3].content
    assert {request.schema is FORM.validator.schema for request in model.requests} == {True}
    assert result_rows(transcript) == [
        ("mood", "good"),
        ("resolved", "true"),
        ("refund", "2.5"),
        ("tags", '["a"]'),
    ]


async def test_a_conversation_without_a_valid_result_is_kept():
    model = ScriptedModel(lambda _: Reply((Choice('{"mood": "good"', "length"),), Usage(5, 5, calls=1), "m"))
    transcript = await add_result(
        conversation(), lambda: model, msgspec.structs.replace(FORM, attempts=2), Sampling()
    )
    assert (transcript.result, transcript.failed) == (None, False)
    assert transcript.result_call.usage == Usage(10, 10, calls=2)
    assert "max_tokens" in transcript.result_call.error
    assert result_rows(transcript) == [("no result", transcript.result_call.error)]


async def test_errors_of_the_endpoint():
    too_long = await add_result(
        conversation(), lambda: ScriptedModel([ContextOverflow("too long")]), FORM, Sampling()
    )
    assert too_long.result_call.error == "too long"
    transcript = conversation()
    with pytest.raises(ServerFailed):  # the failure policy of the job applies
        await add_result(transcript, lambda: ScriptedModel(["{}", ServerFailed("down")]), FORM, Sampling())
    assert transcript.usage.calls == 1, "what was paid for is recorded"


async def test_failed_and_empty_conversations_get_no_result():
    failed = conversation()
    failed.stop = Stop("error", "down")
    for transcript in (failed, Transcript("1", Task("x"))):
        assert (await add_result(transcript, lambda: ScriptedModel([]), FORM, Sampling())).result is None
        assert result_rows(transcript) == []
