"""Worlds: the state that the tools of a conversation share."""

from __future__ import annotations

import asyncio
import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel import (
    Dialogue,
    InputError,
    Member,
    Participant,
    RolePlaying,
    ScriptedModel,
    Society,
    Workplace,
    World,
    tool,
)
from camel.core.message import ToolCall
from camel.core.model import Choice, Reply
from camel.core.world import apply_change, difference, start_world

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=5),
    max_leaves=20,
)


class Shop(World):
    version = 2
    columns = ("apples",)

    def __init__(self, row):
        self.stock = {"apple": int(row.get("apples", 2)), "pear": 1}
        self.sold: list[str] = []

    @tool
    def sell(self, item: str, count: int = 1) -> str:
        """Sell items.

        Args:
            item: What to sell.
        """
        self.sold.append(item)
        self.stock[item] -= count
        if self.stock[item] < 0:
            raise ValueError("sold out")
        return f"{self.left(item)} left"

    @tool(read_only=True)
    def left(self, item: str) -> int:
        """Count an item."""
        return self.stock[item]

    def check(self):
        return self.sold == ["apple"]


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal, with 1, 1.0 and true as three values."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@given(JSON, JSON)
def test_a_difference_makes_one_value_of_another(before: Any, after: Any):
    change = json.loads(json.dumps(difference(before, after)))
    assert same(apply_change(deepcopy(before), change), after)
    assert (change == []) == same(before, after) or before == after == 0.0


@given(st.lists(JSON, max_size=4), JSON)
def test_what_is_added_or_removed_is_one_change(before: list[Any], new: Any):
    assert difference(before, [*before, new]) == [[[len(before)], new]]
    assert difference([*before, new], before) == [[[], before]]
    assert difference({"a": 1, "b": before}, {"b": before}) == [[["a"]]]


def call(name: str, **arguments: Any) -> Reply:
    return Reply((Choice("", calls=(ToolCall("", name, json.dumps(arguments)),)),))


USER = ["Instruction: Sell.\nInput: None", "<CAMEL_TASK_DONE>"]


def play(*assistant: Any, tools: Any = ("world",), world: Any = Shop, **other: Any) -> RolePlaying:
    return RolePlaying(
        "Sell an apple",
        assistant="Seller",
        user="Customer",
        model=ScriptedModel(assistant),
        user_model=ScriptedModel(USER),
        specify=False,
        assistant_tools=tools,
        world=world,
        **other,
    )


def test_a_method_of_a_world_is_a_tool_whose_changes_are_recorded_and_checked():
    place = Workplace()
    done = play(call("sell", item="apple"), "Solution: Sold. Next request.", workplace=place).run()
    (action,) = done.messages[1].actions
    assert (action.result, action.error) == ("1 left", "")
    assert json.loads(action.change) == [[["stock", "apple"], 1], [["sold", 0], "apple"]]
    assert (done.scores["check"].value, done.scores["check"].by) == (1.0, "check")
    assert [one.name for one in done.speakers[1].tools] == ["left", "sell"]
    assert "self" not in done.speakers[1].tools[1].parameters["properties"]


def test_a_call_that_fails_changes_nothing():
    done = play(
        call("sell", item="pear", count=5), call("sell", item="apple"), "Solution: Sold. Next request."
    ).run()
    failed, sold = done.messages[1].actions
    assert "sold out" in failed.error
    assert not failed.change
    assert json.loads(sold.change)[1] == [["sold", 0], "apple"]
    assert done.scores["check"].value == 1.0


def test_a_call_whose_result_is_not_json_changes_nothing():
    class Odd(Shop):
        @tool
        def lend(self, item: str) -> Any:
            """Lend an item."""
            self.sold.append(item)
            return object()

    done = play(
        call("lend", item="pear"), call("sell", item="apple"), "Solution: So. Next request.", world=Odd
    ).run()
    lent, sold = done.messages[1].actions
    assert "object" in lent.error
    assert not lent.change
    assert json.loads(sold.change)[1] == [["sold", 0], "apple"]


def test_a_world_starts_from_the_row_and_its_methods_are_ordinary_methods():
    filled = play(tools=["sell"]).fill({"apples": "7", "other": "x"})
    assert play().placeholders == {"apples"}
    place = start_world(filled._given["world"], None)
    assert vars(place.kept[World]) == {"stock": {"apple": 7, "pear": 1}, "sold": []}
    assert Shop({}).sell("apple") == "1 left"


def test_recorded_changes_restore_the_state_without_a_call():
    made, again = start_world(Shop, None), start_world(Shop, None)

    async def run() -> None:
        outcome = await Shop.sell.call({"item": "apple"}, made)
        from camel.core.message import Action

        await Shop.sell.recall({"item": "apple"}, Action("sell", change=outcome.change), again)
        with pytest.raises(InputError, match="Shop"):
            await Shop.sell.recall({}, Action("sell", change='[[["gone", 1], 2]]'), again)

    asyncio.run(run())
    assert (
        vars(made.kept[World])
        == vars(again.kept[World])
        == {"stock": {"apple": 1, "pear": 1}, "sold": ["apple"]}
    )


@pytest.mark.parametrize("value", [{1: 2}, (1,), {1}, float("nan"), object(), b"", {"deep": [{"x": (1,)}]}])
def test_a_state_that_is_not_json_is_an_error_that_names_the_attribute(value: Any):
    class Wrong(World):
        def __init__(self, row):
            self.fine = 1

        @tool
        def spoil(self) -> None:
            self.spoiled = value

    with pytest.raises(InputError, match=r"Wrong\.spoiled"):
        play(call("spoil"), "Solution: x", tools=["spoil"], world=Wrong).run()

    class Begun(World):
        def __init__(self, row):
            self.begun = value

    with pytest.raises(InputError, match=r"Begun\.begun"):
        start_world(Begun, None)


def test_mistakes_in_the_code_of_a_world_are_errors_that_name_it():
    class Wrong(World):
        def __init__(self, row):
            self.count = 0

        @tool(read_only=True)
        def add(self) -> None:
            self.count += 1

        def check(self):
            return "good"

    with pytest.raises(InputError, match="read_only"):
        play(call("add"), "Solution: x", tools=["add"], world=Wrong).run()
    with pytest.raises(InputError, match=r"Wrong\.check"):
        play("Solution: x", world=Wrong).run()

    class Raising(World):
        def __init__(self, row):
            self.price = row["price"]

    with pytest.raises(InputError, match=r"Raising\.__init__ raised KeyError"):
        play("Solution: x", world=Raising).run()
    for wrong in (int, "nowhere:Shop", "json:loads", 3):
        with pytest.raises(InputError, match=r"int|nowhere|json|3"):
            play("Solution: x", world=wrong).run()


def test_several_scores_and_none():
    class Several(Shop):
        def check(self):
            return {"sold": len(self.sold), "kind": 0.5}

    class Silent(World):
        pass

    assert {n: s.value for n, s in play("Solution: x", world=Several).run().scores.items()} == {
        "sold": 0.0,
        "kind": 0.5,
    }
    assert play("Solution: x", tools=(), world=Silent).run().scores == {}


def test_a_society_and_a_dialogue_share_a_world():
    lines = lambda: ScriptedModel([call("sell", item="apple"), "Sold.", "Thanks."])  # noqa: E731
    society = Society(
        "Sell",
        members=[Member("Ann", tools=["sell"]), Member("Bob", tools=["world"])],
        world=Shop,
        model=lines(),
    )
    from msgspec.structs import replace

    from camel import Ending

    society = replace(society, stop=Ending(max_messages=2))
    dialogue = Dialogue(
        "Sell", seats=[Participant("ann", tools=["sell"]), Participant("bob")], world=Shop, max_messages=2
    )
    for made in (society, replace(dialogue, model=lines())):
        done = made.run()
        assert done.scores["check"].value == 1.0
        assert done.messages[0].actions[0].result == "1 left"
        assert made.placeholders == {"apples"}
        assert made.identity()["world"] == {"type": f"{__name__}.Shop", "version": 2}
        assert made.fill({"apples": 9}).play(lines()).run().messages[0].actions[0].result == "8 left"
    assert play().identity()["world"] == {"type": f"{__name__}.Shop", "version": 2}
    assert "world" not in RolePlaying("x", assistant="a", user="b").identity()
    assert "world" not in Dialogue("x", seats=["a", "b"]).identity()


def test_a_conversation_that_failed_has_no_score():
    from camel import ModelError

    class Down(ScriptedModel):
        async def reply(self, request):
            raise ModelError("down")

    made = RolePlaying(
        "x", assistant="a", user="b", model=Down([]), specify=False, world=Shop, assistant_tools=["world"]
    )
    with pytest.raises(ModelError):
        made.run()
    assert made.transcript.scores == {}


def test_keys_of_a_dictionary_are_text():
    class Desk(World):
        def __init__(self, row: Any):
            self.keys = {9: True}

    with pytest.raises(InputError, match=r"key 9.* text"):
        start_world(Desk, None)


def test_a_wrong_setting_of_a_tool_is_named():
    with pytest.raises(InputError, match="seconds"):
        tool(second=5)  # pyright: ignore
