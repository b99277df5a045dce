"""Roles and plans that a model proposes: what is asked, what is read, and when it is given up."""

from __future__ import annotations

import msgspec
import pytest

from camel.core.errors import InputError, NotUnderstood
from camel.core.member import MAX_NAME_CHARS
from camel.core.message import Sampling, Usage
from camel.core.model import Choice, Reply
from camel.core.planner import (
    ATTEMPTS,
    FIRST_SAMPLING,
    MAX_STEP_CHARS,
    Casting,
    Planner,
    TaskPlan,
    assign_roles,
    plan_task,
    read_roles,
)
from camel.models.scripted import ScriptedModel


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("1. Judge: decides\n2. Clerk: writes", {"Judge": "decides", "Clerk": "writes"}),
        ("1) Judge\n2) Clerk", {"Judge": "", "Clerk": ""}),
        ("(1) Judge\n(2) Clerk", {"Judge": "", "Clerk": ""}),
        ("- Judge – decides\n- Clerk — writes", {"Judge": "decides", "Clerk": "writes"}),
        ("* **Judge**: decides\n* **Clerk** (writes)", {"Judge": "decides", "Clerk": "writes"}),
        ("Here they are:\nJudge: decides\nClerk: writes", {"Judge": "decides", "Clerk": "writes"}),
        ("Judge\nClerk：", {"Judge": ""}),
        ("Sure!\n1. Judge: decides", {"Judge": "decides"}),
        ("1. Judge: a\n   - detail: b\n2. Clerk: c", {"Judge": "a", "Clerk": "c"}),
        ("  1. Judge: a\n 2. Clerk: c", {"Judge": "a", "Clerk": "c"}),
        ("1. Judge (of the court (the high one))", {"Judge": "of the court (the high one)"}),
        ("1. Judge: sees (all)", {"Judge": "sees (all)"}),
        ("1. Judge\n2. judge\n3. JUDGE.", {"Judge": ""}),
        ("1. ***\n2. _Judge_\n3. 'Clerk'", {"Judge": "", "Clerk": ""}),
        ("1. Ju\x07dge: de\x07cides", {"Ju dge": "de cides"}),
        ("1. Judge:\tdecides   all", {"Judge": "decides all"}),
        ("1. O'Neill-Smith Jr.: acts", {"O'Neill-Smith Jr": "acts"}),
        ("1. Judge & Jury: decide", {"Judge Jury": "decide"}),
        ("1. : decides", {}),
        ("", {}),
        ("1. Judge:-–—*: decides **", {"Judge": "decides"}),
    ],
)
def test_what_is_read_as_a_member(text: str, members: dict[str, str]):
    found = read_roles(text)
    assert {member.name: member.brief for member in found} == members
    assert all(member.role == member.name for member in found)


def test_names_that_are_taken_are_left_out():
    text = "1. Stock Trader: a\n2. Judge: b"
    assert [member.name for member in read_roles(text, taken=["stock_trader"])] == ["Judge"]
    assert [member.name for member in read_roles(text)] == ["Stock Trader", "Judge"]


def test_a_long_name_is_cut_and_a_long_line_is_no_item():
    name = "x" * (MAX_NAME_CHARS + 1)
    assert [member.name for member in read_roles(f"1. {name}: a")] == ["x" * MAX_NAME_CHARS]
    assert [member.name for member in read_roles(f"1. {'x' * (MAX_NAME_CHARS - 1)} y: a")] == [
        "x" * (MAX_NAME_CHARS - 1)
    ]
    fits = "Judge: " + "y" * (MAX_STEP_CHARS - len("Judge: "))
    assert [member.name for member in read_roles(f"1. {fits}\n2. {fits}y")] == ["Judge"]
    assert read_roles(f"1. {fits}y") == []


async def test_what_is_asked_for():
    model = ScriptedModel(["1. A: a\n2. B: b\n3. C: c"])
    sampling = Sampling(temperature=0.1)
    cast = await assign_roles(
        model, " Build it ", Casting(2, prompt="<COUNT> roles for <TASK>", sampling=sampling), session="s"
    )
    assert [member.name for member in cast.members] == ["A", "B"], "no more than were asked for"
    assert cast.model == "scripted"
    assert [entry.content for entry in model.heard[0]] == ["2 roles for  Build it "]
    (request,) = model.requests
    assert (request.session, request.speaker, request.expects) == ("s", "casting", "list")
    assert request.sampling == sampling


async def test_prompts_that_come_with_it_name_task_and_count():
    model = ScriptedModel(["1. A: a\n2. B: b", "1. a\n2. b"])
    await assign_roles(model, "Build a bridge", 2)
    await plan_task(model, "Build a bridge", 7)
    for heard, count in zip(model.heard, ("2", "7"), strict=True):
        assert "Build a bridge" in heard[0].content
        assert count in heard[0].content
        assert "<" not in heard[0].content
    assert model.heard[0][0].content != model.heard[1][0].content
    assert [request.speaker for request in model.requests] == ["casting", "planner"]
    assert [request.sampling for request in model.requests] == [FIRST_SAMPLING] * 2


async def test_members_that_are_taken_do_not_count():
    model = ScriptedModel(["1. A: a\n2. B: b", "1. B: b\n2. C: c"])
    cast = await assign_roles(model, "Build", 2, taken=["a"])
    assert [member.name for member in cast.members] == ["B", "C"]
    assert cast.usage.calls == 2


async def test_it_is_asked_again_in_other_words_and_given_up_after_some_attempts():
    model = ScriptedModel(lambda request: "no")
    with pytest.raises(NotUnderstood, match=str(ATTEMPTS)):
        await assign_roles(model, "Build", 2)
    texts = [heard[0].content for heard in model.heard]
    assert len(texts) == ATTEMPTS == 3
    assert texts[1] == texts[0] + texts[1][len(texts[0]) :]
    assert "attempt 2" in texts[1]
    assert "attempt 3" in texts[2]
    assert "attempt" not in texts[0][-40:]


@pytest.mark.parametrize("finish", ["refusal", "content_filter"])
async def test_a_refusal_is_no_plan(finish: str):
    refused = Reply((Choice("1. I cannot.\n2. Sorry.", finish),), Usage(1, 2, 0, 1), "m")  # type: ignore[arg-type]
    plan = await plan_task(ScriptedModel([refused] * ATTEMPTS), "Build")
    assert (plan.steps, plan.usage, plan.model) == ((), Usage(3, 6, 0, 3), "m")


async def test_a_step_that_was_cut_off_is_left_out():
    cut = Reply((Choice("1. Measure.\n2. Bui", "length"),), Usage(1, 2, 0, 1), "m")
    plan = await plan_task(ScriptedModel([cut]), "Build")
    assert plan == TaskPlan(("Measure.",), Usage(1, 2, 0, 1), "m")


async def test_half_a_surrogate_pair_is_replaced():
    said = Reply((Choice("1. Measure \ud800 it."),))
    assert (await plan_task(ScriptedModel([said]), "Build")).steps == ("Measure ? it.",)


async def test_a_plan_has_six_steps_at_most_unless_told_otherwise():
    lines = "\n".join(f"{number}. Step {number}" for number in range(1, 9))
    assert len((await plan_task(ScriptedModel([lines]), "Build")).steps) == 6
    assert len((await plan_task(ScriptedModel([lines]), "Build", Planner())).steps) == 6
    assert len((await plan_task(ScriptedModel([lines]), "Build", Planner(8))).steps) == 8


def test_a_plan_is_put_below_its_task():
    plan = TaskPlan(("Measure.", "Build."), Usage(), "m")
    assert plan.text("Make it") == "Make it\n\nThe plan:\n1. Measure.\n2. Build."
    assert TaskPlan((), Usage(), "m").text("Make it") == "Make it"


async def test_lines_without_letters_or_digits_are_no_steps():
    plan = await plan_task(ScriptedModel(["1. Measure.\n2. ---\n3. Build."]), "Build")
    assert plan.steps == ("Measure.", "Build.")


@pytest.mark.parametrize(("kind", "most"), [(Casting, 100), (Planner, 50)])
def test_how_many_may_be_asked_for(kind: type, most: int):
    kind(1)
    kind(most)
    for wrong in (0, most + 1, True, 2.0):
        with pytest.raises(InputError):
            kind(wrong)


@pytest.mark.parametrize("value", [Casting(2), Planner(2)])
def test_what_was_declared_cannot_be_changed(value: Casting | Planner):
    with pytest.raises(AttributeError):
        value.prompt = "other"  # type: ignore[misc]
    assert msgspec.to_builtins(value) == {value.__struct_fields__[0]: 2}
    with pytest.raises(msgspec.ValidationError, match="promt"):
        msgspec.convert({**msgspec.to_builtins(value), "promt": ""}, type(value))


@pytest.mark.parametrize("ask", [assign_roles, plan_task])
async def test_a_task_that_is_none_is_refused_before_anything_is_asked(ask: object):
    model = ScriptedModel([])
    for task in ("", "x" * 200_001):
        with pytest.raises(InputError, match="task"):
            await ask(model, task, 3)  # type: ignore[operator]
    assert model.requests == []
