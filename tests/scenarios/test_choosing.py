"""A single role play of a scenario."""

from __future__ import annotations

import pytest

import camel
from camel.core.errors import InputError
from camel.scenarios.choosing import choose_cast


def test_values_and_first_items_fill_the_scenario():
    end, cast = choose_cast("code", "Compare invoices", {"language": "Rust"})
    assert (cast.assistant, cast.task) == ("Rust Programmer", "Compare invoices")
    assert cast.user.startswith("Person working in ")
    assert cast.inception is end.inception
    model = camel.ScriptedModel(
        ["Compare two invoices.", "Instruction: Begin.", "Solution: use std;\nNext request."]
    )
    play = camel.role_play_of("code", "Compare invoices", language="Rust").again(model=model, max_messages=2)
    transcript = play.run()
    assert transcript.task.specified == "Compare two invoices."
    assert "Rust" in transcript.speakers[1].system


@pytest.mark.parametrize(
    ("scenario", "task", "values", "says"),
    [
        ("code", "", {}, "--set task=TEXT"),
        ("code", "x", {"langage": "Rust"}, "language"),
        ("misalignment", "x", {}, "harmful"),
        ("translation", "x", {}, "not a role play"),
        ("code_executed", "x", {}, "tools"),
    ],
)
def test_a_scenario_that_cannot_be_played_says_why(
    scenario: str, task: str, values: dict[str, str], says: str
):
    with pytest.raises(InputError, match=says):
        choose_cast(scenario, task, values)
