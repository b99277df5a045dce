"""Societies from files: what is read, what is refused and in which words, and scenarios that end in one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel.core.errors import InputError
from camel.core.society import Society
from camel.core.turns import Moderated, Rounds
from camel.scenarios import Meeting, check, load, load_society, sample
from camel.scenarios.societies import read_society

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "societies"
ADA = '[[members]]\nname = "Ada"\n'
TWO = f'{ADA}[[members]]\nname = "Bob"\nrole = "<TRADE>"\nbrief = "You know <TRADE>."\n'


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_examples_are_sound(path: Path):
    society = load_society(path)
    assert society.title
    assert society.task
    assert society.limit <= 60
    assert all(member.brief for member in society.members)
    assert msgspec.json.decode(msgspec.json.encode(society), type=Society) == society
    for _, system, _ in society.prompts("Dig a pond"):
        assert "Dig a pond" in system
        assert "<" not in system.replace("<CAMEL_TASK_DONE>", "")


def test_there_are_three_examples_of_the_sizes_promised():
    sizes = {path.stem: len(load_society(path).members) for path in EXAMPLES.glob("*.toml")}
    assert sizes == {"debate": 3, "software_team": 4, "town_hall": 12}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "members"),
        ("x =", "TOML"),
        ("membres = 1", "'membres'"),
        ('[[members]]\nnam = "A"', "'nam'"),
        ('[[members]]\nrole = "A"', "members[0]"),
        (f'{ADA}sampling = {{ temprature = 1 }}', "members[0].sampling"),
        (f'{ADA}[turns]\npolicy = "moderate"', "'moderate'"),
        (f"{ADA}[turns]\npolicy = []", "turns.policy"),
        (f'{ADA}[turns]\nmoderator = "Ada"', "round_robin"),
        (f'{ADA}[turns]\npolicy = "moderated"', "moderator"),
        (f'{ADA}[turns]\npolicy = "rounds"\norder = []', "'order'"),
        (f'{ADA}[turns]\npolicy = "addressed"\nfirst = "Adda"', "'Adda'"),
        (f'{ADA}[hears]\ngraph = "star"\ncentre = "Ada"', "'centre'"),
        (f"{ADA}[stop]\nmax_round = 1", "'max_round'"),
        (f"{ADA}[stop]\nmax_rounds = 0", "stop.max_rounds"),
        (f"{ADA}[stop]\nvote = {{ shares = 1 }}", "'shares'"),
        (f"{ADA}[roles]\ncount = 0", "roles"),
        (f"{ADA}[planner]\nstep = 1", "'step'"),
        (f"{ADA}{ADA}", "Ada"),
    ],
)  # fmt: skip
def test_the_error_for_a_mistake_names_it(
    text: str, words: str, tmp_path: Path, snapshot: Callable[..., None]
):
    society, problems = read_society(text)
    assert society is None
    assert words in problems[0]
    (tmp_path / "society.toml").write_text(text)
    with pytest.raises(InputError) as refused:
        load_society(tmp_path)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    snapshot("errors", refused.value)


def test_all_unknown_keys_are_reported_at_once():
    _, problems = read_society(f'nam = 1\n{ADA}color = "red"\n[stop]\ntimes = 3\n')
    assert len(problems) == 3


@given(
    st.recursive(
        st.one_of(st.none(), st.integers(), st.text(max_size=5), st.floats(), st.booleans()),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(
                    ["members", "name", "turns", "policy", "hears", "stop", "vote", "roles", "sampling", "x"]
                ),
                inner,
                max_size=4,
            ),
        ),
        max_leaves=12,
    )
)
def test_no_table_makes_the_reader_fail(value: object):
    table = (
        value
        if isinstance(value, dict)
        else {"members": value, "turns": value, "hears": value, "stop": value}
    )
    from unittest.mock import patch

    with patch("tomllib.loads", return_value=table):
        society, problems = read_society("")
    assert (society is None) == bool(problems)


def test_a_file_that_is_not_there_and_one_that_is_not_text(tmp_path: Path):
    with pytest.raises(InputError, match=r"none\.toml.*No such file"):
        load_society(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not UTF-8"):
        load_society(tmp_path / "bad.toml")


def test_a_placeholder_that_nobody_fills_in_is_refused(tmp_path: Path, snapshot: Callable[..., None]):
    (tmp_path / "society.toml").write_text(f'prompt = "You are <NAEM>."\n{ADA}brief = "Do the <TASK>"\n')
    with pytest.raises(InputError) as refused:
        load_society(tmp_path)
    assert "<NAEM>" in str(refused.value)
    assert "<TASK>" in str(refused.value)
    snapshot("errors", refused.value)


# --- as the end of a scenario ----------------------------------------------------------------------------------------

SCENARIO = """title = "Trades"
[[levels]]
name = "trade"
items = ["Baker", "<TASK> Cook <NAME>"]
[[levels]]
name = "task"
items = ["Open a shop", "Close a shop", "Mind a shop"]
[society]
"""


def scenario_folder(folder: Path, society: str = TWO, scenario: str = SCENARIO) -> Path:
    (folder / "scenario.toml").write_text(scenario)
    (folder / "society.toml").write_text(society)
    return folder


def test_a_scenario_that_ends_in_a_society(tmp_path: Path):
    society = (
        TWO
        + 'prompt = "Trade <TRADE>: you are <NAME>. <BRIEF> <TASK>"\n[turns]\npolicy = "moderated"\nmoderator = "Ada"\n'
    )
    scenario = load(scenario_folder(tmp_path, society))
    assert check(tmp_path) == []
    assert (scenario.shape, scenario.has_conversations) == ("2 × 3 = 6 conversations", True)
    assert isinstance(scenario.end, Meeting)
    assert scenario.end.task == "<TASK>", "the last level's, where none is given"
    assert not scenario.is_name("task")
    filled, task = scenario.end.filled({"trade": "<TASK> Cook <NAME>", "task": "Open a shop"})
    assert filled.turns == Moderated("Ada")
    assert task == "Open a shop"
    bob = list(filled.prompts(task))[1]
    assert bob[0].role == "<TASK> Cook <NAME>"
    assert bob[1] == "Trade <TASK> Cook <NAME>: you are Bob. You know <TASK> Cook <NAME>. Open a shop"
    assert [part.title for part in sample(scenario)] == [
        "system prompt of Ada, Ada",
        "system prompt of Bob, Baker",
    ]
    assert load(tmp_path).fingerprint() == scenario.fingerprint()


@pytest.mark.parametrize(
    ("society", "scenario", "words"),
    [
        (ADA + 'rolle = "x"', SCENARIO, "'rolle'"),
        (TWO.replace("<TRADE>", "<TRAED>"), SCENARIO, "<TRAED>"),
        (TWO, SCENARIO + 'tsak = "x"', "'tsak'"),
        (TWO, SCENARIO + 'file = "other.toml"', "other.toml"),
        (TWO, SCENARIO + 'file = "../society.toml"', "../society.toml"),
        (TWO, SCENARIO + '[question]\nprompt = "x"', "[question]"),
    ],
    ids=["key of a member", "placeholder", "key of a society", "missing file", "file elsewhere", "two ends"],
)  # fmt: skip
def test_the_error_for_a_wrong_society_names_what_is_wrong(
    society: str, scenario: str, words: str, tmp_path: Path, snapshot: Callable[..., None]
):
    with pytest.raises(InputError) as refused:
        load(scenario_folder(tmp_path, society, scenario))
    assert words in str(refused.value)
    snapshot("errors", refused.value)


def test_an_unused_level_is_noticed(tmp_path: Path):
    problems = check(scenario_folder(tmp_path, ADA))
    assert [(problem.severity, problem.where) for problem in problems] == [("warning", "level trade")]


def test_groups_of_the_town_hall_cover_everybody():
    society = load_society(EXAMPLES / "town_hall.toml")
    assert isinstance(society.turns, Rounds)
    assert sorted(society.turns.mentioned()) == sorted(society.names)
    assert society.stop.vote
    assert msgspec.structs.replace(society.stop.vote, by=society.names).needed == 8
