"""Shapes of replies between lists and prose: which lines are items, and what is cut off from them."""

from __future__ import annotations

import pytest

from camel import Choice, InputError, Reply, ScriptedModel
from camel.core.lists import NAME_CHARS, SENTENCE_CHARS
from camel.core.message import Sampling
from camel.scenarios import ListTooShort, ask_list, parse_list
from camel.scenarios.lists import ROUNDS, NamedList, heading, read_lists, render_lists


@pytest.mark.parametrize(
    ("reply", "items"),
    [
        # JSON
        ('Sure:\n["Actor", "Baker"]\nDone.', ["Actor", "Baker"]),
        ('{"count": 2, "roles": ["Actor", "Baker"]}', ["Actor", "Baker"]),
        ('{"1": "Actor", "2": "Baker"}', ["Actor", "Baker"]),
        (
            '[{"n": 1, "name": "Actor", "why": "plays a part"}, {"n": 2}, "Baker", 3, null]',
            ["Actor", "Baker"],
        ),
        ('```json\n{"broken": \n```\n1. Actor\n2. Baker', ["Actor", "Baker"]),
        ("```json\n[]\n```\n1. Actor\n2. Baker", ["Actor", "Baker"]),
        ('```\n["Actor"]\n```\n```\n["Baker"]\n```', ["Actor"]),
        # marks and margins
        ("1. Actor\n 2. Baker\n   3. Chef", ["Actor", "Baker"]),
        ("  1. Actor\n  2. Baker\n1. Chef", ["Actor", "Baker", "Chef"]),
        ("    1. Actor\n    2. Baker\n", ["Actor", "Baker"]),
        ("- Actor\n  - plays\n - Baker", ["Actor", "Baker"]),
        ("Roles\n1. Actor\n- Baker\n2. Chef", ["Actor", "Chef"]),
        ("2024 was good\n1. Actor\n2. Baker", ["Actor", "Baker"]),
        ("1. Actor\n---\n2. Baker", ["Actor", "Baker"]),
        ("1.5 kg\n- Actor\n- Baker", ["Actor", "Baker"]),
        ("#1 Actor", ["#1 Actor"]),
        ("1 - Actor\n2 – Baker", ["Actor", "Baker"]),
        ("[1] Actor\n[2] Baker", ["Actor", "Baker"]),
        ("*1.* Actor\n*2.* Baker", ["Actor", "Baker"]),
        ("**Role 1**: Actor\n**Role 2**: Baker", ["Actor", "Baker"]),
        ("→ Actor\n→ Baker", ["Actor", "Baker"]),
        ("\t1. Actor\n\t2. Baker", ["Actor", "Baker"]),
        # tables
        ("| Roles | Why |\n|---|---|\n| Actor | plays |\n| Baker | bakes |", ["Actor", "Baker"]),
        ("| No. | Name |\n|:-:|---|\n| 1 | Actor |\n| 2 | Baker |", ["Actor", "Baker"]),
        # one line
        ("Roles: 1. Actor 2. Baker 3. Chef", ["Actor", "Baker", "Chef"]),
        ("1. Actor 3. Baker 2. Chef", ["Actor 3. Baker", "Chef"]),
        ("Actor; Baker; Chef", ["Actor", "Baker", "Chef"]),
        ("Actor, Baker", ["Actor, Baker"]),
        ("Roles: Actor, Baker, Chef", ["Actor", "Baker", "Chef"]),
        ("[Actor, Baker, Chef]", ["Actor", "Baker", "Chef"]),
        ("演员、面包师、厨师", ["演员", "面包师", "厨师"]),
        # headings, chatter and blank lines
        ("# Roles\nActor\nBaker", ["Actor", "Baker"]),
        ("The roles:\nActor\nBaker", ["Actor", "Baker"]),
        ("Actor\nBaker:", ["Actor", "Baker:"]),
        ("Sure\nActor\nBaker", ["Actor", "Baker"]),
        ("1. Actor\n\n**Food**\n2. Baker", ["Actor", "Baker"]),
        ("\ufeff1. Actor\n2. Baker", ["Actor", "Baker"]),
        ("<thinking>1. No</thinking>1. Actor\n2. Baker", ["Actor", "Baker"]),
        ("1. Actor\n2. Baker\n<think>3. Cut off", ["Actor", "Baker"]),
        # cleaning
        ("1. Actor,\n2. Baker;", ["Actor", "Baker"]),
        ("1. “Actor”\n2. ‘Baker’", ["Actor", "Baker"]),
        ("1. __Actor__\n2. _Baker_", ["Actor", "Baker"]),
        ("1. Actor...\n2. Baker.", ["Actor...", "Baker"]),
        ("1. 'Actor' and 'Baker'\n2. Chef", ["'Actor' and 'Baker'", "Chef"]),
        ("1. Act\x07or\n2. Baker", ["Act or", "Baker"]),
        ('1. "Actor\n2. Baker', ["Actor", "Baker"]),
        ("1. Actor\n2. ***\n3. Baker", ["Actor", "Baker"]),
        # explanations
        ("1. Actor: plays\n2. Baker: bakes\n3. Chef", ["Actor", "Baker", "Chef"]),
        ("1. Actor: plays\n2. Baker\n3. Chef", ["Actor: plays", "Baker", "Chef"]),
        ("1. Actor: plays\n2. Baker", ["Actor: plays", "Baker"]),
        ("1. **Actor** (plays)\n2. Baker", ["Actor", "Baker"]),
        ("1. **Actor** and more\n2. Baker", ["Actor and more", "Baker"]),
        ("1. A - B - c\n2. D - e", ["A", "D"]),
        ("1. Actor — plays\n2. Baker—bakes", ["Actor", "Baker"]),
        ("1. Actor：plays ： x\n2. Baker ： bakes", ["Actor：plays", "Baker"]),
    ],
)
def test_names(reply: str, items: list[str]):
    assert parse_list(reply, names=True) == items


@pytest.mark.parametrize(
    ("reply", "items"),
    [
        ('[{"title": "Short", "text": "The longest of all"}]', ["The longest of all"]),
        ('[{"title": "A rather long title", "Task": "Add"}]', ["Add"]),
        ("1. Add.\n   Then stop.\n2. Sum.", ["Add. Then stop.", "Sum."]),
        ("1. Add.\nThen stop.\n2. Sum.", ["Add. Then stop.", "Sum."]),
        ("1. Add.\n\nThen stop.", ["Add."]),
        ("1. Add.\n\nThen stop.\n\n2. Sum.", ["Add. Then stop.", "Sum."]),
        ("1. Add.\n\nThen stop.\nNow.\n\n2. Sum.", ["Add. Then stop. Now.", "Sum."]),
        ("1. Add.\n  - one\n  - two\n2. Sum.", ["Add. one two", "Sum."]),
        ("1. **Add**\nnumbers\n2. **Sum.**\nnumbers", ["Add: numbers", "Sum. numbers"]),
        ("1.\n**Add**\nnumbers\n2. Sum.", ["Add: numbers", "Sum."]),
        ("1. __Add__ it\n2. Sum.", ["Add it", "Sum."]),
        ("1. Add.\n\n## More\n\n2. Sum.", ["Add.", "Sum."]),
        ("1. Add.\n# More\n2. Sum.", ["Add.", "Sum."]),
        ("1. Add:\nWith care:\n2. Sum.", ["Add: With care:", "Sum."]),
        ("Add.\nSum.", ["Add.", "Sum."]),
        ("Let f(x) = 2.\nSolve g(y) - 1 = 0.", ["Let f(x) = 2.", "Solve g(y) - 1 = 0."]),
        ("a) Let f(x) = 2.\n(B) Sum.", ["Let f(x) = 2.", "Sum."]),
        ("a) b) Add.", ["b) Add."]),
        ("1. Add one, two, three.", ["Add one, two, three."]),
        ("1. Add.\n2. Sum.\nNote: easy ones.", ["Add.", "Sum."]),
        (
            "1. Add.\nNote: mind the sign.\nThen stop.\n2. Sum.",
            ["Add. Note: mind the sign. Then stop.", "Sum."],
        ),
        ("- Add.\n- Sum.\n  1. First.\n  2. Second.", ["Add.", "Sum. First. Second."]),
        ("1. Add |x|\n| a | b |\n2. Sum.", ["Add |x| | a | b |", "Sum."]),
    ],
)
def test_sentences(reply: str, items: list[str]):
    assert parse_list(reply) == items


@pytest.mark.parametrize(("names", "limit"), [(True, NAME_CHARS), (False, SENTENCE_CHARS)])
def test_an_item_may_be_as_long_as_its_limit(names: bool, limit: int):
    assert (NAME_CHARS, SENTENCE_CHARS) == (200, 4_000)
    fits, over = "x" * limit, "y" * (limit + 1)
    assert parse_list(f"1. {fits}\n2. {over}\n3. Baker", names=names) == [fits, "Baker"]
    wrapped = f'"{fits}"'
    assert parse_list(f"1. {wrapped}\n2. Baker", names=names) == [fits, "Baker"], "quotes do not count"


@pytest.mark.parametrize(
    "header",
    [
        "No",
        "No.",
        "nr",
        "Nr.",
        "Number",
        "**Name**",
        "Role",
        "Roles",
        "Task",
        "Topic",
        "Subtopics",
        "Problem",
        "Item",
    ],
)
def test_the_header_of_a_table_is_no_item(header: str):
    reply = f"| {header} | Why |\n|---|---|\n| Actor | plays |\n| Baker | bakes |"
    assert parse_list(reply, names=True) == ["Actor", "Baker"]


def test_what_cleaning_takes_away_does_not_count():
    padded = "x" * NAME_CHARS + "\x07" * NAME_CHARS
    assert parse_list(f"1. {padded}\n2. Baker", names=True) == ["x" * NAME_CHARS, "Baker"]


def test_long_chatter_is_an_item():
    remark = "Note that " + "x" * 389 + "."
    assert len(remark) == 400
    assert parse_list(f"{remark}\nAdd.") == ["Add."]
    assert parse_list(f"{remark[:-1]}x.\nAdd.") == [f"{remark[:-1]}x.", "Add."]


# --- asking ----------------------------------------------------------------------------------------------------------

PROMPT = "Please list <COUNT> roles."


async def test_how_a_list_is_asked_for():
    model = ScriptedModel(["1. Actor: plays\n2. Baker: bakes"])
    sampling = Sampling(temperature=0.3)
    assert await ask_list(model, PROMPT, 2, sampling=sampling, names=True) == ["Actor", "Baker"]
    (request,) = model.requests
    assert (request.sampling, request.session, request.speaker, request.expects) == (
        sampling,
        "",
        "lister",
        "list",
    )


async def test_a_sentence_is_kept_whole_unless_names_are_asked_for():
    reply = "1. Actor: plays\n2. Baker: bakes"
    assert await ask_list(ScriptedModel([reply]), PROMPT, 2) == ["Actor: plays", "Baker: bakes"]


@pytest.mark.parametrize(("count", "ask", "calls"), [(1, 20, 1), (20, 20, 1), (21, 20, 2), (40, 20, 2)])
async def test_so_many_calls_are_made_before_it_is_given_up(count: int, ask: int, calls: int):
    for rounds in (0, 2):
        model = ScriptedModel(lambda request: "I cannot do that.")
        with pytest.raises(ListTooShort) as caught:
            await ask_list(model, PROMPT, count, ask=ask, rounds=rounds, names=True)
        assert caught.value.calls == len(model.requests) == calls + rounds
    model = ScriptedModel(lambda request: "I cannot do that.")
    with pytest.raises(ListTooShort):
        await ask_list(model, PROMPT, count, ask=ask)
    assert len(model.requests) == calls + ROUNDS


async def test_what_brought_nothing_new_is_asked_in_other_words():
    model = ScriptedModel(["1. Actor", "1. Actor", "1. Baker", "1. Chef"])
    assert await ask_list(model, PROMPT, 3) == ["Actor", "Baker", "Chef"]
    texts = [heard[0].content for heard in model.heard]
    assert texts[0] == "Please list 3 roles."
    assert ["attempt" in text for text in texts] == [False, False, True, False]
    assert "attempt 3" in texts[2]
    assert [text.count("1. Actor") for text in texts] == [0, 1, 1, 1]
    assert "1. Actor\n2. Baker" in texts[3]


async def test_only_a_reply_that_was_cut_off_loses_its_last_item():
    cut = Reply((Choice("1. Actor\n2. Baker\n3. Che", "length"),))
    assert await ask_list(ScriptedModel([cut]), PROMPT, 2) == ["Actor", "Baker"]
    whole = Reply((Choice("1. Actor\n2. Baker"),))
    assert await ask_list(ScriptedModel([whole]), PROMPT, 2) == ["Actor", "Baker"]


async def test_the_least_that_can_be_asked():
    assert await ask_list(ScriptedModel(["1. Actor"]), PROMPT, 1, ask=1, rounds=0) == ["Actor"]


# --- as text ---------------------------------------------------------------------------------------------------------


def test_lists_as_text_and_back():
    lists = [
        NamedList((), ("A", "B")),
        NamedList(("x | y", "back\\slash"), ("C",)),
        NamedList(("z",), ("1. D", "# E")),
    ]
    text = render_lists(lists[1:])
    assert text == "# x \\| y | back\\\\slash\n1. C\n\n# z\n1. 1. D\n2. # E\n"
    assert read_lists(text) == lists[1:]
    assert read_lists(render_lists(lists[:1])) == lists[:1]
    assert heading(["a\nb", "c|d"]) == "a b | c\\|d"


@pytest.mark.parametrize(
    ("text", "lists"),
    [
        ("", []),
        ("\ufeff1. A", [((), ("A",))]),
        ("A\n\n 2)  B\n3. \n3\n", [((), ("A", "B", "3"))]),
        ("# x\nA\n#\nB", [(("x",), ("A",)), ((), ("B",))]),
        ("#x\nA", [((), ("#x", "A"))]),
        ("1.A", [((), ("1.A",))]),
        ("1. 2. A", [((), ("2. A",))]),
        ("# x | y\nA", [(("x", "y"), ("A",))]),
        ("# x|y\nA", [(("x|y",), ("A",))]),
    ],
)
def test_lists_edited_by_hand(text: str, lists: list[tuple[tuple[str, ...], tuple[str, ...]]]):
    assert read_lists(text) == [NamedList(*one) for one in lists]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("# x\nA\n# y\nB\nC", "the list:1:"),
        ("# x\nA\nB\n# y\nB", "the list:4:"),
        ("# x\nA\nB\n# z\nB\nC", "the list:4:"),
        ("# x\nA\nB\n# y\nB\nC\n\n# z\nA\nB", "the list:8:"),
        ("# x\nA\nB\n\n", "the list:3:"),
    ],
)
def test_errors_name_the_line(text: str, place: str):
    with pytest.raises(InputError) as caught:
        read_lists(text, count=2, parents=[["x"], ["y"]])
    assert str(caught.value).startswith(place)


def test_lists_that_are_as_they_must_be():
    text = "# x\nA\nB\n# y\nB\nC"
    found = read_lists(text, count=2, parents=[["x"], ["y"]])
    assert [one.parents for one in found] == [("x",), ("y",)]
    assert read_lists("A\nB", count=2, parents=[[]]) == [NamedList((), ("A", "B"))]
    with pytest.raises(InputError, match=r"^here:1: .*2 items.*3"):
        read_lists("A\nB\nC", count=2, source="here")
