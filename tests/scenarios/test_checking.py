"""A user's own scenario: reading it, finding its mistakes, making a new one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from camel import InputError
from camel.core.inception import fill
from camel.scenarios import RolePlay, Scenario, check, load, sample, scaffold

DECLARATION = """\
title = "Kitchen"
[[levels]]
name = "cook"
items = ["Baker", "Sushi Chef"]
[[levels]]
name = "task"
count = 3
prompt = "tasks.txt"
[role_play]
assistant = "<COOK>"
user = "Guest"
task = "<TASK>"
"""
TASKS = "List <COUNT> dishes that a <COOK> can teach a guest."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scenario.toml").write_text(DECLARATION)
    (tmp_path / "tasks.txt").write_text(TASKS)
    return tmp_path


def edit(folder: Path, old: str, new: str) -> None:
    file = folder / "scenario.toml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def test_a_folder_of_ones_own(folder: Path):
    assert len(DECLARATION.splitlines()) < 15
    assert check(folder) == []
    scenario = load(folder)
    assert (scenario.name, scenario.title) == (folder.name, "Kitchen")
    assert scenario.shape == "2 × 3 = 6 conversations"
    assert scenario == load(str(folder)) == load(folder / "scenario.toml")
    assert isinstance(scenario.end, RolePlay)
    assert scenario.end.specifier() is not None
    assert [prompt.title for prompt in sample(scenario)][:2] == [
        "list of 3 × task, asked 2 times",
        "task specifier",
    ]
    assert sample(scenario)[0].text == "List 3 dishes that a Baker can teach a guest."
    assert sample(scenario, {"cook": "Barista"})[0].text == "List 3 dishes that a Barista can teach a guest."


def test_options_of_the_role_play(folder: Path):
    edit(
        folder,
        'user = "Guest"\n',
        'user = "Guest"\nspecify = false\nmax_messages = 8\nsampling = { temperature = 0.5 }\nuser_prompt = "user.txt"\n',
    )
    (folder / "user.txt").write_text(
        "Instruct <ASSISTANT_ROLE> of <COOK> to <TASK>: Instruction: Input: <CAMEL_TASK_DONE>"
    )
    play = load(folder).end
    assert isinstance(play, RolePlay)
    assert play.specifier() is None
    assert play.sampling
    assert play.sampling.temperature == 0.5
    assert "limit=8" in repr(play.rules())
    cast = play.cast({"cook": "Baker", "task": "Bread"})
    assert fill(cast.inception.user, {**cast.values, "ASSISTANT_ROLE": "A"}) == (
        "Instruct A of Baker to Bread: Instruction: Input: <CAMEL_TASK_DONE>"
    )
    assert [prompt.title for prompt in sample(load(folder))][1].startswith("system prompt of the assistant")


def test_items_from_a_file(folder: Path):
    edit(folder, 'items = ["Baker", "Sushi Chef"]', 'file = "cooks.txt"')
    (folder / "cooks.txt").write_text("1. Baker\n2. Sushi Chef\n\nBarista\n")
    assert load(folder).levels[0].items == ("Baker", "Sushi Chef", "Barista")
    (folder / "cooks.txt").write_text("# Cooks\nBaker\n")
    assert "level cook: " in str(check(folder)[0])
    (folder / "cooks.txt").write_text("# Cooks\nBaker\n# Cooks | Others\nBarista\n")
    assert "cooks.txt" in str(check(folder)[0])


@pytest.fixture
def nested(folder: Path) -> Path:
    """A scenario whose tasks are given for each cook, and can be asked for as well."""
    edit(folder, 'prompt = "tasks.txt"', 'prompt = "tasks.txt"\nfile = "task_list.txt"')
    edit(folder, "count = 3", "count = 2")
    (folder / "task_list.txt").write_text("# Baker\nBread\nRolls\n# Sushi Chef\nMaki\nNigiri\nTemaki\n")
    return folder


def test_lists_under_headings(nested: Path):
    scenario = load(nested)
    assert check(nested) == []
    assert (scenario.asked, scenario.needs("task")) == ((), ("cook",))

    def facts(which: Scenario, index: int) -> tuple[str, ...]:
        return tuple(which.facts(index, lambda level, number: pytest.fail("asked for a list")).values())

    assert [facts(scenario, index) for index in (0, 3)] == [("Baker", "Bread"), ("Sushi Chef", "Nigiri")]
    # Smaller, the lists stay those of their cooks.
    assert facts(scenario.resized({"task": 1}), 1) == ("Sushi Chef", "Maki")
    assert [level.name for level in load(nested, "asked").asked] == ["task"]
    # Longer than the shortest of them, they are asked for.
    assert [level.name for level in scenario.resized({"task": 3}).asked] == ["task"]
    edit(nested, 'prompt = "tasks.txt"\n', "")
    assert load(nested, "asked") == load(nested)
    with pytest.raises(InputError, match="only 2"):
        load(nested).resized({"task": 3})


@pytest.mark.parametrize(
    ("lists", "words"),
    [
        ("# Baker\nBread\nRolls\n", "'# Sushi Chef'"),
        ("# Baker\nBread\nRolls\n# Sushi chef\nMaki\nNigiri\n", "'# Sushi Chef'"),
        ("# Baker | Maki\nBread\nRolls\n", "'# Baker'"),
        ("# Baker\nBread\nRolls\n# Sushi Chef\nMaki\n", "level task Sushi Chef: it has 1 items"),
        ("# Baker\nBread\nbread\n# Sushi Chef\nMaki\nNigiri\n", "level task Baker: the item 'bread'"),
        ("# Baker\nBread\nRolls\n" * 2, "same heading"),
        ("Bread\nRolls\n# Sushi Chef\nMaki\nNigiri\n", "task_list.txt"),
    ],
)
def test_mistakes_in_headings(nested: Path, lists: str, words: str):
    (nested / "task_list.txt").write_text(lists)
    assert any(words in str(problem) for problem in check(nested)), check(nested)
    with pytest.raises(InputError):
        load(nested)


def test_lists_of_what_may_be_asked_for_need_a_prompt_too(nested: Path):
    edit(
        nested,
        'items = ["Baker", "Sushi Chef"]',
        'items = ["Baker", "Sushi Chef"]\nprompt = "cooks.txt"\ncount = 2',
    )
    (nested / "cooks.txt").write_text("List <COUNT> cooks.")
    assert check(nested) == []
    assert [level.name for level in load(nested).resized({"cook": 3}).asked] == ["cook", "task"]
    edit(nested, 'prompt = "tasks.txt"\n', "")
    assert [problem.where for problem in check(nested)] == ["level task"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("title", "titel", "'titel'"),
        ("count = 3", "count = 3\nuntil = 4", "'until'"),
        ("user =", "users =", "'users'"),
        ("count = 3", "count = 0", "count must be at least 1, not 0"),
        ("count = 3", "count = -3", "not -3"),
        ("count = 3", "", "count is missing"),
        ("count = 3", 'count = "3"', "levels[1].count"),
        ("count = 3", "count = 3\nask = 0", "ask must be at least 1"),
        ("tasks.txt", "nope.txt", "nope.txt"),
        ('task = "<TASK>"', 'task = "<TASK>"\nopening = "Now start to cook."', "'Now start to cook.'"),
        ("tasks.txt", "../tasks.txt", "../tasks.txt"),
        ("tasks.txt", "/etc/hostname", "/etc/hostname"),
        ('"<COOK>"', '"<COK>"', "<COK>"),
        ('"<COOK>"', '" "', "role_play.assistant"),
        ('name = "cook"', 'name = "Cook"', "level Cook"),
        ('name = "cook"', 'name = "num_cooks"', "num_"),
        ('name = "cook"', 'name = "task"', "level task"),
        ('items = ["Baker", "Sushi Chef"]', "", "level cook"),
        ('"Sushi Chef"]', '"baker"]', "'baker'"),
        ('"Sushi Chef"]', '" "]', "empty"),
        ('"Sushi Chef"]', '"Sushi Chef"]\ncount = 3', "count = 3"),
        pytest.param('"Sushi Chef"', f'"{"x" * 1001}"', "1,001", id="long item"),
        ('task = "<TASK>"', 'task = "<TASK>"\nmax_messages = 0', "max_messages must be at least 1"),
        ('task = "<TASK>"', 'task = "<TASK>"\nsampling = { temperature = 99 }', "temperature"),
        ('task = "<TASK>"', 'task = "<TASK>"\nsampling = { temprature = 1 }', "temprature"),
        ("[role_play]", "[question]", "'assistant'"),
        ("[role_play]", '[question]\nprompt = "tasks.txt"\n[role_play]', "[question]"),
        ("title", 'labels = ["misalignment"]\ntitle', "requires_acknowledgement = true"),
        ("title", "requires_acknowledgement = true\ntitle", "label"),
        ("title", 'canary = "tweet"\ntitle', "GUID"),
        ("[role_play]", "[role_play", "TOML"),
    ],
)  # fmt: skip
def test_mistakes_in_the_declaration(
    folder: Path, old: str, new: str, words: str, snapshot: Callable[..., None]
):
    edit(folder, old, new)
    problems = [str(problem) for problem in check(folder)]
    snapshot("errors", "\n".join(problems))
    assert any(words in problem for problem in problems), problems
    assert all("\n" not in problem for problem in problems)
    with pytest.raises(InputError):
        load(folder)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("List dishes of <COOK>.", "<COUNT>"),
        ("List <COUNT> of <TASK> by <COOK>.", "<TASK>"),
        ("List <COUNT> of <COKO>.", "<COKO>"),
        ("", "tasks.txt"),
    ],
)
def test_mistakes_in_a_prompt(folder: Path, text: str, words: str, snapshot: Callable[..., None]):
    (folder / "tasks.txt").write_text(text)
    (problem,) = check(folder)
    assert words in str(problem)
    snapshot("errors", problem)


def test_a_level_that_comes_too_late(folder: Path, snapshot: Callable[..., None]):
    edit(folder, 'items = ["Baker", "Sushi Chef"]', 'count = 2\nprompt = "cooks.txt"')
    (folder / "cooks.txt").write_text("List <COUNT> cooks for <TASK>.")
    problem = check(folder)[0]
    assert "<TASK>" in problem.message
    snapshot("errors", problem)


def test_not_text(folder: Path):
    (folder / "tasks.txt").write_bytes(b"\xff\xfe")
    assert "tasks.txt" in str(check(folder)[0])
    assert "UTF-8" in str(check(folder)[0])


def test_warnings_do_not_keep_it_from_loading(folder: Path, snapshot: Callable[..., None]):
    (folder / "tasks.txt").write_text("List <NUM_DISHES> dishes.")
    edit(folder, '"<COOK>"', '"Cook"\nassistant_prompt = "assistant.txt"')
    (folder / "assistant.txt").write_text("Help with <TASK>. Solution: <YOUR_SOLUTION>")
    assert [(problem.severity, problem.where) for problem in check(folder)] == [
        ("warning", "role_play, the assistant prompt"),
        ("warning", "level cook"),
    ]
    snapshot("errors", "\n".join(map(str, check(folder))))
    assert load(folder).count == 6


def test_a_question(folder: Path):
    (folder / "scenario.toml").write_text(
        DECLARATION[: DECLARATION.index("[role_play]")] + '[question]\nprompt = "q.txt"\n'
    )
    (folder / "q.txt").write_text("As an <ROLE>, say how: <COOK>")
    assert "<TASK>" in str(check(folder)[0])
    (folder / "q.txt").write_text("As an <ROLE>, say how: <TASK> <TEXT>")
    assert "<TEXT>" in str(check(folder)[0])


def test_several_errors_are_counted(folder: Path):
    edit(folder, "count = 3", "count = 0")
    (folder / "tasks.txt").write_text("List.")
    with pytest.raises(InputError, match=r"not 0.*1 more.*camel scenarios check "):
        load(folder)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ai_socity", "did you mean ai_society?"),
        ("./nope", "camel scenarios new ./nope"),
    ],
)
def test_names_that_are_none(name: str, words: str):
    with pytest.raises(InputError, match=re.escape(words)):
        load(name)


def test_a_folder_without_declaration(tmp_path: Path):
    with pytest.raises(InputError, match=r"scenario\.toml"):
        load(tmp_path)


def test_a_shipped_name_wins_over_a_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(scaffold(tmp_path / "inside" / "math").parent)
    assert load("math").title == "Math"
    assert load("./math").shape == load(Path("math")).shape == "10 × 5 = 50 conversations"


def test_a_new_scenario_is_sound(tmp_path: Path):
    folder = scaffold(tmp_path / "my_kitchen")
    assert check(folder) == []
    assert load(folder).title == "My Kitchen"
    assert load(scaffold(tmp_path / "b", 'A "quoted" \\ title')).title == 'A "quoted" \\ title'
    lines = (folder / "scenario.toml").read_text().splitlines()
    assert len([line for line in lines if line]) < 15
    with pytest.raises(InputError, match="already exists"):
        scaffold(folder)
    with pytest.raises(InputError, match="math"):
        scaffold("math")
    with pytest.raises(InputError, match="cannot be printed"):
        scaffold(tmp_path / "c", "bell \a")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        scaffold(tmp_path / "file" / "inside")
