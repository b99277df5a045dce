"""A user's own scenario: reading it, finding its mistakes, making a new one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from camel import InputError
from camel.scenarios import RolePlay, check, load, sample, scaffold

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
    assert play.cast({"cook": "Baker", "task": "Bread"}).inception.user == (
        "Instruct <ASSISTANT_ROLE> of Baker to <TASK>: Instruction: Input: <CAMEL_TASK_DONE>"
    )
    assert [prompt.title for prompt in sample(load(folder))][1].startswith("system prompt of the assistant")


def test_items_from_a_file(folder: Path):
    edit(folder, 'items = ["Baker", "Sushi Chef"]', 'file = "cooks.txt"')
    (folder / "cooks.txt").write_text("1. Baker\n2. Sushi Chef\n\nBarista\n")
    assert load(folder).levels[0].items == ("Baker", "Sushi Chef", "Barista")
    (folder / "cooks.txt").write_text("# Cooks\nBaker\n")
    assert "must hold one list without headings" in str(check(folder)[0])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("title", "titel", "unknown key 'titel' (did you mean title?)"),
        ("count = 3", "count = 3\nuntil = 4", "unknown key 'until' in levels[1]; known: name, count"),
        ("user =", "users =", "unknown key 'users' in role_play (did you mean user?)"),
        ("count = 3", "count = 0", "level task: count is 0: it must be at least 1"),
        ("count = 3", "count = -3", "level task: count is -3"),
        ("count = 3", "", "level task: count is missing"),
        ("count = 3", 'count = "3"', "Expected int | null, got str - at levels[1].count"),
        ("count = 3", "count = 3\nask = 0", "level task: ask is 0"),
        ("tasks.txt", "nope.txt", "cannot read nope.txt: No such file or directory; write the file"),
        ('task = "<TASK>"', 'task = "<TASK>"\nopening = "Now start to cook."', "'Now start to cook.' stands where a file is named"),
        ("tasks.txt", "../tasks.txt", "../tasks.txt is outside the scenario's folder"),
        ("tasks.txt", "/etc/hostname", "is outside the scenario's folder"),
        ('"<COOK>"', '"<COK>"', "role_play.assistant: <COK> is not known here (did you mean COOK?); known: <COOK>, <TASK>"),
        ('"<COOK>"', '" "', "role_play.assistant: is empty"),
        ('name = "cook"', 'name = "Cook"', "level Cook: a level's name is in lower-case"),
        ('name = "cook"', 'name = "num_cooks"', "not count or num_"),
        ('name = "cook"', 'name = "task"', "level task: the name is taken"),
        ('items = ["Baker", "Sushi Chef"]', "", "level cook: give one of prompt, items and file, not none"),
        ('"Sushi Chef"]', '"baker"]', "the item 'baker' is there twice"),
        ('"Sushi Chef"]', '" "]', "an item is empty"),
        ('"Sushi Chef"]', '"Sushi Chef"]\ncount = 3', "gives 2 items and count = 3"),
        ('"Sushi Chef"', f'"{"x" * 1001}"', "role_play.assistant: can have 1,001 characters; at most 1,000"),
        ('task = "<TASK>"', 'task = "<TASK>"\nmax_messages = 0', "max_messages is 0"),
        ('task = "<TASK>"', 'task = "<TASK>"\nsampling = { temperature = 99 }', "temperature must be a number from 0 to 10"),
        ('task = "<TASK>"', 'task = "<TASK>"\nsampling = { temprature = 1 }', "unknown field temprature"),
        ("[role_play]", "[question]", "unknown key 'assistant' in question"),
        ("[role_play]", '[question]\nprompt = "tasks.txt"\n[role_play]', "has 2 of [role_play], [society], [question] and [translate]"),
        ("title", 'labels = ["misalignment"]\ntitle', "must say requires_acknowledgement = true"),
        ("title", "requires_acknowledgement = true\ntitle", "must be labelled"),
        ("title", 'canary = "tweet"\ntitle', "canary must be a GUID"),
        ("[role_play]", "[role_play", "is not valid TOML: Expected ']'"),
    ],
)  # fmt: skip
def test_mistakes_in_the_declaration(folder: Path, old: str, new: str, words: str):
    edit(folder, old, new)
    problems = [str(problem) for problem in check(folder)]
    assert any(words in problem for problem in problems), problems
    assert all("\n" not in problem for problem in problems)
    with pytest.raises(InputError):
        load(folder)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("List dishes of <COOK>.", "level task: its prompt does not say how many: write <COUNT>"),
        (
            "List <COUNT> of <TASK> by <COOK>.",
            "level task: its prompt mentions <TASK>, which is what it asks for",
        ),
        ("List <COUNT> of <COKO>.", "<COKO> is not known here (did you mean COOK?); known: <COOK>, <COUNT>"),
        ("", "tasks.txt: the file is empty"),
    ],
)
def test_mistakes_in_a_prompt(folder: Path, text: str, words: str):
    (folder / "tasks.txt").write_text(text)
    assert [words in str(problem) for problem in check(folder)] == [True]


def test_a_level_that_comes_too_late(folder: Path):
    edit(folder, 'items = ["Baker", "Sushi Chef"]', 'count = 2\nprompt = "cooks.txt"')
    (folder / "cooks.txt").write_text("List <COUNT> cooks for <TASK>.")
    assert "mentions <TASK>, which comes later: move that level before this one" in str(check(folder)[0])


def test_not_text(folder: Path):
    (folder / "tasks.txt").write_bytes(b"\xff\xfe")
    assert "cannot read tasks.txt: it is not UTF-8 text" in str(check(folder)[0])


def test_warnings_do_not_keep_it_from_loading(folder: Path):
    (folder / "tasks.txt").write_text("List <NUM_DISHES> dishes.")
    edit(folder, '"<COOK>"', '"Cook"\nassistant_prompt = "assistant.txt"')
    (folder / "assistant.txt").write_text("Help with <TASK>. Solution: <YOUR_SOLUTION>")
    assert [str(problem) for problem in check(folder)] == [
        "warning: role_play, the assistant prompt: does not mention Next request.: conversations rest on it",
        "warning: level cook: nothing mentions <COOK>, so its 2 items only repeat the rest: "
        "use it in a later prompt or take it out",
    ]
    assert load(folder).count == 6


def test_a_question(folder: Path):
    (folder / "scenario.toml").write_text(
        DECLARATION[: DECLARATION.index("[role_play]")] + '[question]\nprompt = "q.txt"\n'
    )
    (folder / "q.txt").write_text("As an <ROLE>, say how: <COOK>")
    assert "does not ask the problem: mention <TASK>" in str(check(folder)[0])
    (folder / "q.txt").write_text("As an <ROLE>, say how: <TASK> <TEXT>")
    assert "<TEXT> is not known here" in str(check(folder)[0])


def test_several_errors_are_counted(folder: Path):
    edit(folder, "count = 3", "count = 0")
    (folder / "tasks.txt").write_text("List.")
    with pytest.raises(InputError, match=r"level task: count is 0.* \(1 more: camel scenarios check "):
        load(folder)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ai_socity", "no scenario 'ai_socity' (did you mean ai_society?); known: ai_society, biology"),
        ("./nope", "there is no folder ./nope: make one with camel scenarios new ./nope"),
    ],
)
def test_names_that_are_none(name: str, words: str):
    with pytest.raises(InputError, match=re.escape(words)):
        load(name)


def test_a_folder_without_declaration(tmp_path: Path):
    with pytest.raises(InputError, match=r"has no scenario\.toml"):
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
    with pytest.raises(InputError, match="exists already"):
        scaffold(folder)
    with pytest.raises(InputError, match="name of a shipped scenario"):
        scaffold("math")
    with pytest.raises(InputError, match="cannot be printed"):
        scaffold(tmp_path / "c", "bell \a")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        scaffold(tmp_path / "file" / "inside")
