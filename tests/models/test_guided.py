"""The fields that hold a reply to the format. What a real model makes of them is in tests/integration."""

from __future__ import annotations

import re
from typing import Any

import pytest

from camel.core.grammar import parse
from camel.models.guided import guided_fields


def _grammar(expects: Any) -> str:
    return guided_fields("llama.cpp", expects)["grammar"]


def _regex(expects: Any) -> re.Pattern[str]:
    return re.compile(guided_fields("vllm", expects)["structured_outputs"]["regex"])


@pytest.mark.parametrize("expects", ["instruction", "solution"])
def test_each_engine_gets_its_own_field(expects: Any) -> None:
    assert list(guided_fields("llama.cpp", expects)) == ["grammar"]
    assert list(guided_fields("vllm", expects)) == ["structured_outputs"]


@pytest.mark.parametrize("expects", ["instruction", "solution"])
def test_every_rule_of_the_grammar_is_defined_once_and_used(expects: Any) -> None:
    grammar = _grammar(expects)
    defined = re.findall(r"^(\w+)\s*::=", grammar, re.MULTILINE)
    bodies = re.sub(r"^\w+\s*::=", "", grammar, flags=re.MULTILINE)
    bare = re.sub(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|\{[\d,]*\}', " ", bodies)
    assert len(defined) == len(set(defined))
    assert set(re.findall(r"[a-z]\w*", bare)) == set(defined) - {"root"}


def test_the_markers_are_the_ones_the_parser_reads() -> None:
    assert '"Instruction: "' in _grammar("instruction")
    assert r'"\nInput: "' in _grammar("instruction")
    assert '"<CAMEL_TASK_DONE>"' in _grammar("instruction")
    assert '"Solution: "' in _grammar("solution")
    assert r'"\nNext request."' in _grammar("solution")
    assert "<CAMEL_TASK_DONE>" not in _grammar("solution")


@pytest.mark.parametrize(
    "text",
    [
        "<CAMEL_TASK_DONE>",
        "Instruction: Write the code.\nInput: None",
        "Instruction: Fix this: it fails.\nInput: def f():\n\n    return 1\n",
    ],
)
def test_the_pattern_for_instructions_takes_what_the_parser_takes(text: str) -> None:
    assert _regex("instruction").fullmatch(text)
    move = parse(text)
    assert move.done or move.instruction


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Write the code.",
        "Instruction: Write the code.",
        "Solution: x\nNext request.",
        "Instruction: x\nInput:",
        "It is <CAMEL_TASK_DONE>",
    ],
)
def test_the_pattern_for_instructions_refuses_the_rest(text: str) -> None:
    assert not _regex("instruction").fullmatch(text)


@pytest.mark.parametrize(
    "text",
    ["Solution: Done as asked.\nNext request.", "Solution: Here:\n\n```python\nx = 1\n```\n\nNext request."],
)
def test_the_pattern_for_solutions_takes_what_the_parser_takes(text: str) -> None:
    assert _regex("solution").fullmatch(text)
    move = parse(text)
    assert move.solution
    assert move.next_request


@pytest.mark.parametrize(
    "text", ["Solution: cut off", "Next request.", "Instruction: x\nInput: None", "Solution:"]
)
def test_the_pattern_for_solutions_refuses_the_rest(text: str) -> None:
    assert not _regex("solution").fullmatch(text)


def test_the_pattern_ends_a_model_that_loops() -> None:
    looping = "Solution: again\n" + "again\n" * 200 + "Next request."
    assert not _regex("solution").fullmatch(looping)


@pytest.mark.parametrize("expects", ["choice", "scores", "verdict", "comparison"])
@pytest.mark.parametrize("options", [1, 3, 12])
def test_every_rule_of_a_critics_grammar_is_defined_once_and_used(expects: Any, options: int) -> None:
    grammar = guided_fields("llama.cpp", expects, options)["grammar"]
    defined = re.findall(r"^(\w+)\s*::=", grammar, re.MULTILINE)
    bodies = re.sub(r"^\w+\s*::=", "", grammar, flags=re.MULTILINE)
    bare = re.sub(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|\{[\d,]*\}', " ", bodies)
    assert len(defined) == len(set(defined))
    assert set(re.findall(r"[a-z]\w*", bare)) == set(defined) - {"root"}


@pytest.mark.parametrize("expects", ["choice", "scores", "verdict", "comparison"])
def test_a_critics_schema_is_strict(expects: Any) -> None:
    asked = guided_fields("openai", expects, 3)["response_format"]
    schema = asked["json_schema"]["schema"]
    assert asked["json_schema"]["strict"] is True
    assert schema["required"] == list(schema["properties"])
    assert schema["additionalProperties"] is False
    held = guided_fields("vllm", expects, 3)["structured_outputs"]["json"]
    assert held["properties"].keys() == schema["properties"].keys()
