"""`camel.generate` and `camel.run_job`: durable runs of declarations and rows, from a program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import camel
from camel import ChatModel, InputError, Message, Model, NextCall, Reply, Request, RolePlaying, Society, Stop
from camel.core.errors import ContentRejected
from camel.core.message import Usage
from camel.core.model import Choice
from camel.models.simulator import SimulatorSettings
from tests.support.endpoints import serve

ROWS = [
    {"id": "017", "name": "Ada", "issue": "a refund", "persona": "a busy customer"},
    {"name": "Bob", "issue": "a <name> that stays", "persona": "a patient customer"},
]
PLAY = RolePlaying(
    "Help <name> with <ISSUE>", assistant="Agent", user="<persona>", specify=False, max_messages=4
)


class Scripted(Model):
    """Says the same in the same place, and counts what it is asked."""

    name = "scripted"

    def __init__(self, stop_at: int = 10**9) -> None:
        self.heard: list[str] = []
        self.stop_at = stop_at

    async def reply(self, request: Request) -> Reply:
        if len(self.heard) >= self.stop_at:
            raise KeyboardInterrupt
        self.heard.append(request.history.entries[0].content)
        said = (
            "Instruction: Do it.\nInput: None"
            if request.speaker == "user"
            else "Solution: Done.\nNext request."
        )
        return Reply((Choice(said),), Usage(10, 5, calls=1), model="scripted")


class Polite:
    """A rule of one's own: it ends after so many messages."""

    name, version = "polite", 1

    def __init__(self, after: int) -> None:
        self.after = after

    def check(self, messages: Sequence[Message], call: NextCall) -> Stop | None:
        return Stop("done", "enough was said") if len(messages) >= self.after else None


def generated(tmp_path: Path, model: Model, **more: Any) -> camel.Run:
    given = {"inputs": ROWS, "model": model, "out": tmp_path / "run", "progress": False} | more
    return camel.generate(given.pop("what", PLAY), **given)


def test_rows_become_conversations_and_the_same_call_pays_for_nothing(tmp_path: Path):
    model = Scripted()
    run = generated(tmp_path, model)
    assert next(one.id for one in run) == "017"
    assert len(run) == 2
    transcript = run["017"].transcript
    assert transcript.task.text == "Help Ada with a refund"
    assert transcript.speakers[0].role == "a busy customer"
    assert transcript.inputs["persona"] == "a busy customer"
    assert run[1].transcript.task.text == "Help Bob with a <name> that stays", (
        "values are not searched for names"
    )
    assert run.status().state == "complete"
    paid = len(model.heard)
    assert paid == 2 * 4
    assert len(generated(tmp_path, model)) == 2
    assert len(model.heard) == paid


def test_a_rule_of_one_s_own_is_part_of_what_a_run_is_made_from(tmp_path: Path):
    run = generated(tmp_path, Scripted(), rules=[Polite(2)])
    assert {len(one.messages) for one in run} == {2}
    assert {one.stop.reason for one in run if one.stop} == {"done"}
    generated(tmp_path, Scripted(), rules=[Polite(2)])
    newer = Polite(2)
    newer.version = 2
    with pytest.raises(InputError, match="rules"):
        generated(tmp_path, Scripted(), rules=[newer])


def test_what_decides_the_run_must_be_the_same(tmp_path: Path):
    generated(tmp_path, Scripted())
    other = RolePlaying("Help <name> now", assistant="Agent", user="<persona>", specify=False, max_messages=4)
    with pytest.raises(InputError, match="task"):
        generated(tmp_path, Scripted(), what=other)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ([{"name": "Ada"}], "issue"),
        ([], "no rows"),
        ([{**ROWS[0]}, {**ROWS[0], "name": "Bob"}], "017"),
    ],
)
def test_rows_that_do_not_fit_are_refused_before_anything_is_paid(
    tmp_path: Path, inputs: list[dict[str, str]], said: str
):
    model = Scripted()
    with pytest.raises(InputError, match=said):
        generated(tmp_path, model, inputs=inputs)
    assert not model.heard


def test_a_budget_stops_and_a_larger_one_continues(tmp_path: Path):
    model = Scripted()
    run = generated(tmp_path, model, budget_calls=3)
    assert run.status().state == "stopped"
    assert len(model.heard) == 3
    assert len(generated(tmp_path, model, budget_calls=100)) == 2
    assert len(model.heard) == 2 * 4, "what was journaled is not asked again"


def test_an_item_that_fails_is_recorded_and_can_be_retried(tmp_path: Path):
    class Refusing(Scripted):
        async def reply(self, request: Request) -> Reply:
            if "Bob" in request.history.entries[0].content:
                raise ContentRejected("not this one")
            return await super().reply(request)

    run = generated(tmp_path, Refusing())
    assert [one.failed for one in run] == [False, True]
    again = generated(tmp_path, Scripted(), retry_failed=True)
    assert [one.failed for one in again] == [False, False]


def test_a_society_of_names(tmp_path: Path):
    society = Society("Plan the <place> festival", members=["Ada", "Bob", "Cleo"], model=Scripted())
    run = generated(tmp_path, Scripted(), what=society, inputs=[{"place": "harbor"}, {"place": "forest"}])
    assert [one.task.text for one in run] == ["Plan the harbor festival", "Plan the forest festival"]
    assert [speaker.name for speaker in run[0].transcript.speakers] == ["Ada", "Bob", "Cleo"]
    assert Society("Plan it", members=["Ada", "Bob"], model=Scripted()).run().messages


def test_a_declaration_is_used_again():
    play = RolePlaying(
        "Sell a boat", assistant="Agent", user="Buyer", model=Scripted(), specify=False, max_messages=2
    )
    first, second = play.run(), play.run()
    assert first.id != second.id
    assert [one.content for one in first.messages] == [one.content for one in second.messages]


def test_a_model_that_is_given_as_an_object_is_used_by_one_run_after_the_other(tmp_path: Path):
    """Each call has an event loop of its own, so connections of the one before must be closed with it."""
    with serve(SimulatorSettings(length=None)) as endpoint:
        model = ChatModel("simulated", base_url=endpoint.base_url, api_key="")
        for name in ("first", "second"):
            run = generated(tmp_path, model, out=tmp_path / name)
            assert [one.failed for one in run] == [False, False]
        assert PLAY.again(task="Sell a boat", user="Buyer", model=model).run().messages
