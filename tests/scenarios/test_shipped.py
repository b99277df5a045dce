"""The scenarios that come with CAMEL."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from camel import InputError, RolePlaying, ScriptedModel
from camel.core import inception
from camel.scenarios import Question, RolePlay, Translate, check, load, sample, shipped

SHAPES = {
    "ai_society": "50 × 50 × 10 = 25,000 conversations",
    "biology": "25 × 25 × 32 = 20,000 problems",
    "chemistry": "25 × 25 × 32 = 20,000 problems",
    "customer_support": "12 × 1 × 3 = 36 conversations",
    "persona_interview": "12 × 1 × 4 = 48 conversations",
    "socratic_tutor": "12 × 1 × 2 = 24 conversations",
    "code": "20 × 50 × 50 = 50,000 conversations",
    "code_executed": "50 × 50 = 2,500 conversations",
    "data_analysis": "10 × 1 × 4 = 40 conversations",
    "math": "25 × 25 × 80 = 50,000 problems",
    "misalignment": "50 × 50 × 10 = 25,000 conversations",
    "physics": "25 × 25 × 32 = 20,000 problems",
    "table1_ai_society": "50 × 2 × 1 = 100 conversations",
    "table1_code": "20 × 5 × 1 = 100 conversations",
    "translation": "any run into 10 languages",
}
FACTS = {
    "language": "Rust",
    "domain": "Law",
    "task": "Sort {case} files.",
    "topic": "Algebra",
    "subtopic": "Rings",
}


def test_all_are_there_in_the_papers_sizes():
    assert {name: load(name).shape for name in shipped()} == SHAPES


@pytest.mark.parametrize("name", SHAPES)
def test_sound(name: str):
    assert check(name) == []
    assert check(load(name)) == []
    for prompt in sample(load(name)):
        assert "<NUM" not in prompt.text
        assert "<COUNT>" not in prompt.text
        assert "  " not in prompt.text


def test_ai_society_is_the_papers():
    society = load("ai_society")
    assert isinstance(society.end, RolePlay)
    assert society.end.inception == inception.paper()
    roles, users, tasks = (level.prompt for level in society.levels)
    assert roles == (
        "You are a helpful assistant that can play many different roles. Now please list <NUM_ROLES> different roles "
        "that you can play with your expertise in diverse fields. Sort them by alphabetical order. No explanation "
        "required."
    )
    assert users == (
        "Please list <NUM_ROLES> most common and diverse groups of internet users or occupations. Use singular form. "
        "No explanation. Sort them by alphabetical order. No explanation required."
    )
    assert tasks == (
        "List <NUM_TASKS> diverse tasks that <ASSISTANT_ROLE> can assist <USER_ROLE> cooperatively to achieve "
        "together. Be concise. Be creative."
    )
    facts = {"assistant_role": "Actor", "user_role": "Baker"}
    assert society.list_prompt("task", facts)(7) == (
        "List 7 diverse tasks that Actor can assist Baker cooperatively to achieve together. Be concise. Be creative."
    )
    assert [society.is_name(level.name) for level in society.levels] == [True, True, False]


async def test_code_plays_with_its_own_prompts():
    code = load("code")
    assert isinstance(code.end, RolePlay)
    cast = code.end.cast(FACTS)
    assert (cast.assistant, cast.user) == ("Rust Programmer", "Person working in Law")
    model = ScriptedModel(["Specified", "<CAMEL_TASK_DONE>"])
    transcript = await RolePlaying(**cast._asdict(), model=model, specifier=code.end.specifier()).finish()
    assert transcript.stop
    assert transcript.stop.reason == "done"
    user, assistant = (speaker.system for speaker in transcript.speakers)
    for text in (user, assistant):
        assert "Rust" in text
        assert "Here is the task: Specified." in text
        assert set(_placeholders(text)) <= {
            "YOUR_SOLUTION",
            "YOUR_INSTRUCTION",
            "YOUR_INPUT",
            "CAMEL_TASK_DONE",
        }
    # The simulated endpoint knows the seats by these words.
    assert "You will always instruct me" in user
    assert "Never instruct me" in assistant


def _placeholders(text: str) -> list[str]:
    from camel.scenarios.scenario import placeholders

    return placeholders(text)


def test_text_that_is_put_in_is_not_searched_again():
    code = load("code")
    assert isinstance(code.end, RolePlay)
    cast = code.end.cast({"language": "<TASK>", "domain": "<LANGUAGE>", "task": "T"})
    assert cast.assistant == "<TASK> Programmer"
    assert cast.user == "Person working in <LANGUAGE>"
    play = RolePlaying(**cast._asdict(), model=ScriptedModel(["."]), specify=False, max_messages=1)
    system = next(one.system for one in play.run().speakers if one.name == "assistant")
    assert "a program in <TASK>." in system
    assert "Here is the task: T." in system
    prompt = load("math").list_prompt("problem", {"topic": "<COUNT>", "subtopic": "<TOPIC>"})(5)
    assert prompt.startswith(
        "List 5 diverse problems in mathematics on the subtopic <TOPIC> of the topic <COUNT>."
    )


@pytest.mark.parametrize(
    ("name", "role"),
    [("math", "Mathematician"), ("physics", "Physicist"), ("chemistry", "Chemist"), ("biology", "Biologist")],
)
def test_subjects_end_in_one_question(name: str, role: str):
    scenario = load(name)
    assert isinstance(scenario.end, Question)
    asked = scenario.end.asked({**FACTS, "problem": "What is {x}?"})
    assert (asked.role, asked.problem) == (role, "What is {x}?")
    assert asked.prompt.startswith(f"You are a {role} ")
    assert asked.prompt.endswith("Problem: What is {x}?")
    assert "Rings (Algebra)" in asked.prompt
    assert [scenario.is_name(level.name) for level in scenario.levels] == [True, True, False]


def test_translation_keeps_markers():
    scenario = load("translation")
    assert isinstance(scenario.end, Translate)
    assert list(scenario.end.languages) == ["ar", "zh", "ko", "ja", "hi", "ru", "es", "fr", "de", "it"]
    text = "Instruction: Fill in <LANGUAGE>.\nInput: None"
    prompt = scenario.end.asked(text, "de")
    assert "into German." in prompt
    assert prompt.endswith(text)
    assert "Instruction:, Input:, Solution:, Next request., <CAMEL_TASK_DONE>" in prompt
    assert "into Welsh." in scenario.end.asked(text, "Welsh")
    assert scenario.end.kept(text) == ["Instruction:", "Input:"]
    assert scenario.end.kept("Solution: a\nNext request.") == ["Solution:", "Next request."]


def test_misalignment_is_gated_labeled_and_marked():
    scenario = load("misalignment")
    assert scenario.labels == ("misalignment",)
    assert scenario.requires_acknowledgement
    assert UUID(scenario.canary)
    for nothing in ([], ["ai_society"]):
        with pytest.raises(InputError, match=r'acknowledge = \["misalignment"\]'):
            scenario.gate(nothing)
    scenario.gate(["misalignment"])
    load("ai_society").gate([])


def test_a_renamed_copy_is_gated_too(tmp_path: Path):
    source = Path(load.__code__.co_filename).parent / "misalignment"
    copy = tmp_path / "harmless"
    copy.mkdir()
    for file in source.iterdir():
        copy.joinpath(file.name).write_text(file.read_text())
    assert load(copy).gated
    declaration = copy / "scenario.toml"
    declaration.write_text(declaration.read_text().replace("requires_acknowledgement = true", ""))
    with pytest.raises(InputError, match="requires_acknowledgement = true"):
        load(copy)
