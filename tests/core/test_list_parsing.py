"""What models write when they are asked for a list, and what is made of it."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel.core.lists import NAME_CHARS, SENTENCE_CHARS
from camel.scenarios import parse_list
from camel.scenarios.lists import Distinct
from tests.support.scaling import assert_linear

THREE = ["Accountant", "Actor", "Baker"]

REPLIES = {
    "numbered": "1. Accountant\n2. Actor\n3. Baker",
    "brackets": "1) Accountant\n2) Actor\n3) Baker",
    "both brackets": "(1) Accountant\n(2) Actor\n(3) Baker",
    "escaped": "1\\. Accountant\n2\\. Actor\n3\\. Baker",
    "no space": "1.Accountant\n2.Actor\n3.Baker",
    "right-aligned": "  9. Accountant\n 10. Actor\n100. Baker",
    "preamble and remark": "Sure! Here are 3 roles:\n\n1. Accountant\n2. Actor\n3. Baker\n\nLet me know if you need more!",
    "bullets": "- Accountant\n- Actor\n- Baker",
    "stars": "* Accountant\n* Actor\n* Baker",
    "dots": "• Accountant\n• Actor\n• Baker",
    "checkboxes": "- [ ] Accountant\n- [x] Actor\n- [ ] Baker",
    "bold": "1. **Accountant**\n2. **Actor**\n3. **Baker**",
    "bold with the number": "**1. Accountant**\n**2. Actor**\n**3. Baker**",
    "bold number": "**1.** Accountant\n**2.** Actor\n**3.** Baker",
    "headings": "# Roles\n\n### 1. Accountant\n### 2. Actor\n### 3. Baker",
    "categories": "### Money\n1. Accountant\n\n### Arts\n2. Actor\n### Food\n3. Baker",
    "labels": "Role 1: Accountant\nRole 2: Actor\nRole 3: Baker",
    "quotes": '1. "Accountant"\n2. “Actor”\n3. `Baker`',
    "full stops": "1. Accountant.\n2. Actor.\n3. Baker.",
    "explained by colon": "1. Accountant: keeps books\n2. Actor: plays\n3. Baker: bakes bread",
    "explained by dash": "- Accountant - keeps books\n- Actor – plays\n- Baker — bakes bread",
    "bold and explained": "1. **Accountant**: keeps books\n2. **Actor** - plays\n3. **Baker:** bakes bread",
    "explained below": "1. **Accountant**\n   - Keeps books.\n   - Files taxes.\n2. Actor\n   Plays.\n3. Baker",
    "below the number": "1.\nAccountant\n2.\nActor\n3.\nBaker",
    "lines": "Accountant\nActor\nBaker",
    "lines with preamble": "Here are the roles:\n\nAccountant\nActor\nBaker\n\nI hope this helps!",
    "letters": "a) Accountant\nb) Actor\nc) Baker",
    "commas": "Accountant, Actor, and Baker.",
    "commas with preamble": "Here are three roles: Accountant, Actor, Baker.",
    "in one line": "Here you go: 1. Accountant 2. Actor 3. Baker",
    "in one line with commas": "1. Accountant, 2. Actor, 3. Baker",
    "json": '["Accountant", "Actor", "Baker"]',
    "json in a fence": 'Sure:\n```json\n["Accountant", "Actor", "Baker"]\n```\nThat is all.',
    "json behind a preamble": 'Sure, here it is:\n["Accountant",\n "Actor", "Baker"]',
    "json objects": '{"roles": [{"name": "Accountant", "n": 1}, {"name": "Actor"}, {"name": "Baker"}]}',
    "json lines": '[\n  "Accountant",\n  "Actor",\n  "Baker",\n',
    "fence": "```\n1. Accountant\n2. Actor\n3. Baker\n```",
    "table": "| # | Role |\n|---|---|\n| 1 | Accountant |\n| 2 | **Actor** |\n| 3 | Baker |",
    "thoughts": "<think>\n1. Hmm\n2. Well\n</think>\n1. Accountant\n2. Actor\n3. Baker",
    "windows": "1. Accountant\r\n2. Actor\r\n3. Baker\r\n",
}


def deduplicate(items: Iterable[str]) -> list[str]:
    distinct = Distinct()
    for item in items:
        distinct.add(item)
    return distinct.items


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES.keys())
def test_names(reply: str):
    assert parse_list(reply, names=True) == THREE


@pytest.mark.parametrize(
    ("reply", "items"),
    [
        (
            "1. Plan a trip - with two stops: Rome and Paris.\n2. Write a blog: posts, photos, comments.",
            ["Plan a trip - with two stops: Rome and Paris.", "Write a blog: posts, photos, comments."],
        ),
        (
            "1. Solve the system:\n   x + y = 3\n   x - y = 1\n2. Evaluate 2**3 - 1.",
            ["Solve the system: x + y = 3 x - y = 1", "Evaluate 2**3 - 1."],
        ),
        (
            "1. Let f(x) = x^2.\n\nFind f(3).\n\n2. Prove it.\n\nThese problems cover everything.",
            ["Let f(x) = x^2. Find f(3).", "Prove it."],
        ),
        (
            "1. **Budget Planner**: Make a budget.\n2. **Garden**\n   Plant a tree.",
            ["Budget Planner: Make a budget.", "Garden: Plant a tree."],
        ),
        ("Plan, cook, and serve a dinner", ["Plan, cook, and serve a dinner"]),
        (
            "1. Compute 3.5 kg in grams.\n2. Sum 1.5 and 2.5.",
            ["Compute 3.5 kg in grams.", "Sum 1.5 and 2.5."],
        ),
    ],
)
def test_sentences_are_not_cut(reply: str, items: list[str]):
    assert parse_list(reply) == items


BAG = "A bag holds 5 red and 3 blue balls."
DRAW = "If you draw two balls, what is the probability that both are red?"


@pytest.mark.parametrize(
    ("reply", "items"),
    [
        (f"1. {BAG}\n   {DRAW}\n2. Prove it.", [f"{BAG} {DRAW}", "Prove it."]),
        (f"1. Prove it.\n2. {BAG}\n   {DRAW}", ["Prove it.", f"{BAG} {DRAW}"]),
        (f"1. {BAG}\n\n   {DRAW}\n\n2. Prove it.", [f"{BAG} {DRAW}", "Prove it."]),
        (f"1. {BAG}\n{DRAW}\n2. Prove it.", [f"{BAG} {DRAW}", "Prove it."]),
        (
            "1. Consider a circuit.\nThe following values are given: R=1, C=2.\nFind the time constant.",
            ["Consider a circuit. The following values are given: R=1, C=2. Find the time constant."],
        ),
        (
            "- Consider a circuit.\n  Note that R=1.\n\n  Here is C: 2.\n- Prove it.",
            ["Consider a circuit. Note that R=1. Here is C: 2.", "Prove it."],
        ),
    ],
)
def test_a_sentence_below_an_item_is_no_remark(reply: str, items: list[str]):
    assert parse_list(reply) == items


@pytest.mark.parametrize(
    "reply",
    [
        "1. Sum it.\n2. Prove it.\nLet me know if you need more!",
        "1. Sum it.\n2. Prove it.\nI hope this helps!\n\nBest regards",
        "1. Sum it.\n\nNote that this one is easy.\n\n2. Prove it.\n\nIf you need more, ask.",
        "1. Sum it.\nHere is another one:\n2. Prove it.",
    ],
)
def test_a_remark_is_no_part_of_an_item(reply: str):
    assert parse_list(reply) == ["Sum it.", "Prove it."]


@pytest.mark.parametrize(
    ("reply", "items"),
    [
        (
            "1. Solve the equation\n   |x - 3| = 5\n2. Prove it.",
            ["Solve the equation |x - 3| = 5", "Prove it."],
        ),
        ("- Solve\n  |x - 3| = |y|\n- Prove it.", ["Solve |x - 3| = |y|", "Prove it."]),
        ("|x - 3| = 5\n|x + 3| = 5", ["|x - 3| = 5", "|x + 3| = 5"]),
        ("| # | Task |\n|---|---|\n| 1 | Sum it. |\n| 2 | Prove it. |", ["Sum it.", "Prove it."]),
    ],
)
def test_an_absolute_value_is_no_table(reply: str, items: list[str]):
    assert parse_list(reply) == items


@pytest.mark.parametrize(
    "reply",
    [
        '[{"id": "1", "problem": "What is 2+2?"}, {"id": "2", "problem": "What is 3+3?"}]',
        '[{"title": "Two", "text": "What is 2+2?"}, {"title": "Three", "text": "What is 3+3?"}]',
        '[{"problem": "What is 2+2?", "solution": "Adding them gives 4."}, {"n": 2, "Question": "What is 3+3?"}]',
    ],
)
def test_a_json_object_gives_its_sentence(reply: str):
    assert parse_list(reply) == ["What is 2+2?", "What is 3+3?"]


def test_names_may_hold_a_colon_or_a_dash():
    reply = (
        "1. Front-end Developer\n2. Python: The Basics\n3. 3D Artist\n4. C++\n5. C#\n6. Objective-C\n7. .NET"
    )
    assert parse_list(reply, names=True) == [
        "Front-end Developer",
        "Python: The Basics",
        "3D Artist",
        "C++",
        "C#",
        "Objective-C",
        ".NET",
    ]


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "\n\n",
        "...",
        "I'm sorry, but I can't help with that.",
        "<think>1. One",
        "[]",
        "```\n```",
        "---",
        "1.",
    ],
)
@pytest.mark.parametrize("names", [True, False])
def test_no_list(reply: str, names: bool):
    assert parse_list(reply, names=names) == []


def test_an_item_of_a_page_is_left_out_whole():
    reply = f"1. Actor\n2. {'very ' * 3_000}long\n3. Baker"
    assert parse_list(reply) == ["Actor", "Baker"]


LETTERS = "abcdefghijklmnopqrstuvwxyz"
middle = st.text(f"{LETTERS}ABXYZ0189,'+", max_size=8).filter(lambda text: text[:1].isalnum())
words = st.builds(
    lambda first, rest, last: " ".join([first, *rest, last]),
    st.builds("{}{}".format, st.sampled_from("AaBbZz"), st.text(LETTERS, max_size=9)),
    st.lists(middle, max_size=5),
    st.text(LETTERS, min_size=2, max_size=9),
)


@given(st.lists(words, min_size=1), st.sampled_from(["{}. {}", "{}) {}", "({}) {}", "{}. **{}**", "- {1}"]))
def test_round_trip(items: list[str], style: str):
    text = "\n".join(style.format(number, item) for number, item in enumerate(items, 1))
    assert parse_list(text) == items
    assert parse_list(f"Here are {len(items)} items:\n\n{text}\n\nI hope this helps!", names=True) == items


PIECES = [
    "1. ",
    "2) ",
    "- ",
    "* ",
    "**",
    "__",
    "`",
    "```",
    "[",
    "]",
    "{",
    '"',
    ":",
    " - ",
    ", ",
    "#",
    "a",
    "Actor",
]
ODD = ["Here are:", "<think>", "3.5", "   ", "é", "。", "|", "\n", "\n\n", "\r", "\u2028", "\x00", "\ud800"]
fragments = st.lists(st.sampled_from([*PIECES, *ODD]), max_size=60).map("".join)


@given(st.text() | fragments, st.booleans())
def test_never_raises_and_items_are_clean(text: str, names: bool):
    for item in parse_list(text, names=names):
        assert item == item.strip()
        assert item
        assert len(item.splitlines()) == 1
        assert len(item) <= (NAME_CHARS if names else SENTENCE_CHARS)
        item.encode()


@pytest.mark.parametrize(
    "piece",
    [
        "**a",
        "__a",
        "` ",
        "sure .",
        ",,",
        "1. ",
        "a: ",
        '"',
        " ",
        "\t",
        "[",
        "```\n",
        "<think>",
        "|",
        "- ",
        "a.,",
        "1",
    ],
)
@pytest.mark.parametrize("names", [True, False])
def test_no_text_makes_it_slow(piece: str, names: bool):
    assert_linear(lambda size: parse_list(f"sure {piece * (size // len(piece))}", names=names))
    assert_linear(lambda size: parse_list(f"1. {piece * (size // len(piece))}x", names=names))


SAME = [
    ("Accountant", "accountant."),
    ("Web Developer", "web-developers"),
    ("Physics Teacher", "Teacher of Physics"),
    ("Graphic Designer", "Designer (Graphic)"),
    ("Sales and Marketing", "Marketing & Sales"),
    ("Jeweller", "Jeweler"),
    ("Behaviour analyst", "Behavior Analysts"),
    ("A baker", "The Baker"),
    (
        "Create a weekly meal plan for a busy family with two young kids",
        "Create a weekly meal plan for busy families with two young kids",
    ),
    ("機械学習", "機械学習。"),
]
DIFFERENT = [
    ("Physics teacher", "Math teacher"),
    ("High school physics teacher", "High school math teacher"),
    ("Microeconomics", "Macroeconomics"),
    ("Neurologist", "Urologist"),
    ("C", "C++"),
    ("C#", "C++"),
    ("Vitamin A", "Vitamins"),
    ("History of science", "Science of history"),
    ("Convert CSV to JSON", "Convert JSON to CSV"),
    ("Write a script to convert many CSV files to JSON", "Write a script to convert many JSON files to CSV"),
    ("Solve 2x + 3 = 7", "Solve 3x + 2 = 7"),
    ("Find P(A|B)", "Find P(B|A)"),
    ("Simplify x + y", "Simplify x - y"),
    ("Desert ecologist", "Dessert ecologist"),
    (
        "Explain how the plants in a large garden can grow with very little water",
        "Explain how the plants in a large garden can grow without very little water",
    ),
    (
        "A car drives 60 km in 2 hours. What is its average speed in km per hour?",
        "A car drives 80 km in 2 hours. What is its average speed in km per hour?",
    ),
    ("機械学習", "機械翻訳"),
]


@pytest.mark.parametrize(("a", "b"), SAME)
def test_the_same_in_other_words(a: str, b: str):
    assert deduplicate([a, b]) == [a]
    assert deduplicate([b, a]) == [b]


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_alike_but_different(a: str, b: str):
    assert deduplicate([a, b]) == [a, b]
    assert deduplicate([b, a]) == [b, a]


@given(st.lists(words | st.text(max_size=30)))
def test_deduplicating_again_changes_nothing(items: list[str]):
    once = deduplicate(items)
    assert deduplicate(once) == once
    assert all(deduplicate([item, item]) == [item] for item in items)


def test_long_lists_are_fast():
    verbs, nouns = ["plan", "write", "paint", "design", "review"], [f"thing{'x' * n}" for n in range(40)]
    items = [
        f"{verb} a {noun} that many people in the whole country will enjoy for {other} years"
        for verb in verbs
        for noun in nouns
        for other in ("seven", "many", "twelve")
    ]
    started = time.process_time()
    deduplicate(items)
    assert time.process_time() - started < 10, "about 0.4 s on a busy core"
