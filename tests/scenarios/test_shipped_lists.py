"""The lists and fixed sets that come with CAMEL: as many as the paper has, and no two of a list alike."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest

from camel import scenarios
from camel.core.dialogue import Dialogue
from camel.evaluation.exam_questions import QUESTION_SETS, read_questions
from camel.scenarios import Level, RolePlay, Scenario, load, shipped
from camel.scenarios.lists import Distinct
from camel.scenarios.reading import QUESTIONS

ROOT = Path(scenarios.__file__).parent
SUBJECTS = ("math", "physics", "chemistry", "biology")
# The paper's sizes: how many lists of each level, and how many items in each.
SIZES = {
    "ai_society": {"assistant_role": (1, 50), "user_role": (1, 50)},
    "misalignment": {"assistant_role": (1, 50), "user_role": (1, 50)},
    "code": {"language": (1, 20), "domain": (1, 50)},
    **{name: {"topic": (1, 25), "subtopic": (25, 25)} for name in SUBJECTS},
    "table1_ai_society": {"assistant_role": (1, 50), "user_role": (50, 2), "task": (100, 1)},
    "table1_code": {"language": (1, 20), "domain": (20, 5), "task": (100, 1)},
}
QUESTIONS_OF = {"table2_society": 20, "table2_code": 20, "table2_math": 20, "table2_science": 60}
OVERLAP = 0.5
"""Share of words that two items of one list may have in common."""
SENTENCES = 0.33
"""The same for tasks and questions."""
LISTS = [(name, level) for name, levels in SIZES.items() for level in levels]
WEAK = {"a", "an", "the", "of", "and", "in", "on", "for", "with", "to", "by", "from", "its", "their"}


def items(level: Level) -> list[str]:
    return [item for one in level.given for item in one.items]


def words(text: str) -> set[str]:
    """The words that carry meaning, without plurals; what has none (C, C++, C#) is itself."""
    found = {word.removesuffix("s") for word in re.findall(r"\w+", text.casefold())} - WEAK
    return found if len(text) > 3 else {text}


def alike(one: str, other: str) -> float:
    mine, its = words(one), words(other)
    return len(mine & its) / len(mine | its)


def facts(scenario: Scenario) -> list[dict[str, str]]:
    return [scenario.facts(index, lambda level, number: ()) for index in range(scenario.count)]


def test_sizes_are_the_papers():
    found = {
        name: {level.name: (len(level.given), level.most) for level in load(name).levels if level.given}
        for name in shipped()
    }
    found = {
        name: levels
        for name, levels in found.items()
        if not isinstance(load(name).end, Dialogue) and name not in ("code_executed", "data_analysis")
    }
    assert {name: levels for name, levels in found.items() if levels} == SIZES
    for name, level in LISTS:
        assert {len(one.items) for one in load(name).level(level).given} == {SIZES[name][level][1]}


@pytest.mark.parametrize(("name", "level"), LISTS)
def test_no_two_items_are_alike(name: str, level: str):
    declared = load(name).level(level)
    for one in declared.given:
        close = [pair for pair in combinations(one.items, 2) if alike(*pair) > OVERLAP]
        assert close == []
    if not name.startswith("table1_") or level == "task":
        # Across all lists of a level too, in other words as well.
        distinct = Distinct()
        assert [item for item in items(declared) if not distinct.add(item)] == []


@pytest.mark.parametrize(("name", "level"), [one for one in LISTS if one[1] != "task"])
def test_items_are_names(name: str, level: str):
    for item in items(load(name).level(level)):
        assert len(item) <= 60, item
        assert len(item.split()) <= 8, item
        assert item == " ".join(item.split()), item
        assert item[0].isupper() or not item[0].isalpha() or item.startswith("pH"), item
        assert not item.endswith((".", ":", ";", ",")), item


def test_a_role_is_in_one_list_only():
    society = load("ai_society")
    distinct = Distinct()
    assert all(distinct.add(item) for level in society.levels for item in items(level))
    # Conversations that simulate misuse have the same roles, so that no detector can go by them.
    assert load("misalignment").levels[:2] == society.levels[:2]


@pytest.mark.parametrize(
    ("name", "of", "often"),
    [
        ("table1_ai_society", "ai_society", {"assistant_role": 2, "user_role": 2}),
        ("table1_code", "code", {"language": 5, "domain": 2}),
    ],
)
def test_fixed_tasks_use_every_item_equally_often(name: str, of: str, often: dict[str, int]):
    fixed, whole = load(name), load(of)
    rows = facts(fixed)
    assert len(rows) == len({row["task"] for row in rows}) == 100
    for level, times in often.items():
        assert Counter(row[level] for row in rows) == dict.fromkeys(items(whole.level(level)), times)
    close = [pair for pair in combinations((row["task"] for row in rows), 2) if alike(*pair) > SENTENCES]
    assert close == []
    for row in rows:
        assert 60 < len(row["task"]) < 260, row
        assert row["task"].count(". ") <= 1, row
    # They are played as the scenario plays them, but for the task, which is specific already.
    assert isinstance(fixed.end, RolePlay)
    assert isinstance(whole.end, RolePlay)
    assert not fixed.end.specify
    for prompt in ("assistant", "user", "opening"):
        assert getattr(fixed.end.inception, prompt) == getattr(whole.end.inception, prompt)
    assert (fixed.end.assistant, fixed.end.user) == (whole.end.assistant, whole.end.user)


def test_fixed_questions():
    assert QUESTIONS_OF.keys() == set(QUESTION_SETS)
    assert {f"table2_{path.stem}" for path in QUESTIONS.iterdir()} == set(QUESTION_SETS)
    tasks = [row["task"] for name in ("table1_ai_society", "table1_code") for row in facts(load(name))]
    texts: list[str] = []
    for name, count in QUESTIONS_OF.items():
        found = list(read_questions(name))
        assert len(found) == len({one.name for one in found}) == count
        texts += [one.texts[0] for one in found]
    close = [pair for pair in combinations(texts, 2) if alike(*pair) > SENTENCES]
    assert close == []
    assert not [(text, task) for text in texts for task in tasks if alike(text, task) > SENTENCES]
    assert all(30 <= len(text) <= 300 for text in texts)
    # Any beginning of the science questions has about as many of each subject.
    subjects = [one.name.partition("-")[0] for one in read_questions("table2_science")]
    assert subjects == ["physics", "chemistry", "biology"] * 20


def test_they_are_small_and_plain_text():
    files = [*ROOT.glob("*/*_list.txt"), *QUESTIONS.glob("*.jsonl")]
    assert sum(path.stat().st_size for path in files) < 400_000
    for path in files:
        assert all(line.isprintable() for line in path.read_text("utf-8").splitlines())
    for path in QUESTIONS.glob("*.jsonl"):
        assert all(
            set(json.loads(line)) == {"id", "question"} for line in path.read_text("utf-8").splitlines()
        )
