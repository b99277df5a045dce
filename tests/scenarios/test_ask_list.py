"""Asking for lists: rounds, repeats, short lists, replay."""

from __future__ import annotations

import re

import pytest

from camel import Choice, InputError, ModelError, Reply, Request, ScriptedModel
from camel.core.errors import QuotaExhausted
from camel.scenarios import ListTooShort, ask_list

PROMPT = "Please list <COUNT> roles."


def numbered(*items: str) -> str:
    return "\n".join(f"{number}. {item}" for number, item in enumerate(items, 1))


def prompts(model: ScriptedModel) -> list[str]:
    assert all(len(entries) == 1 for entries in model.heard)
    return [entries[0].content for entries in model.heard]


async def test_one_call_is_enough():
    model = ScriptedModel([f"Sure!\n{numbered('Actor', 'Baker', 'Chef', 'Diver')}"])
    assert await ask_list(model, PROMPT, 3, session="s") == ["Actor", "Baker", "Chef"]
    assert prompts(model) == ["Please list 3 roles."]
    assert model.requests[0].session == "s"


async def test_repeats_are_topped_up_by_naming_what_is_there():
    model = ScriptedModel(
        [numbered("Actor", "actors", "Baker"), numbered("Baker", "Chef"), numbered("Diver")]
    )
    assert await ask_list(model, PROMPT, 4) == ["Actor", "Baker", "Chef", "Diver"]
    first, second, third = prompts(model)
    assert first == "Please list 4 roles."
    assert second.startswith("Please list 2 roles.")
    assert "1. Actor\n2. Baker\n" in second
    assert "List 2 more, different from all of these" in second
    assert "3. Chef" in third
    assert "List 1 more" in third


async def test_long_lists_are_asked_in_pieces():
    def author(request: Request) -> str:
        asked = request.history.entries[0].content
        wanted = re.match(r"Please list (\d+)", asked)
        assert wanted
        there = len(re.findall(r"^\d+\. Role", asked, re.MULTILINE))
        return numbered(*(f"Role {'x' * (there + place + 1)}" for place in range(int(wanted[1]))))

    model = ScriptedModel(author)
    items = await ask_list(model, PROMPT, 45, ask=20)
    assert len(items) == len(set(items)) == 45
    assert [text[:15] for text in prompts(model)] == ["Please list 20 "] * 2 + ["Please list 5 r"]


async def test_a_function_makes_the_prompt():
    model = ScriptedModel(["1. <COUNT>\n2. b"])
    items = await ask_list(model, lambda count: f"{count} of what <COUNT> is", 2)
    assert items == ["<COUNT>", "b"]
    assert prompts(model) == ["2 of what <COUNT> is"]


async def test_what_was_cut_off_is_not_an_item():
    cut = Reply((Choice("1. Actor\n2. Ba", "length"),))
    model = ScriptedModel([cut, "1. Baker"])
    assert await ask_list(model, PROMPT, 2) == ["Actor", "Baker"]


async def test_a_model_that_repeats_itself_ends_in_a_typed_error():
    model = ScriptedModel(lambda request: numbered("Actor", "Baker"))
    with pytest.raises(ListTooShort) as caught:
        await ask_list(model, PROMPT, 5, rounds=3)
    assert isinstance(caught.value, ModelError)
    assert caught.value.items == ["Actor", "Baker"]
    assert (caught.value.got, caught.value.wanted, caught.value.calls) == (2, 5, 4)
    # Nothing is asked twice in the same words: a deterministic endpoint would answer the same.
    assert len(set(prompts(model))) == 4


async def test_a_refusal_is_no_list():
    model = ScriptedModel(lambda request: "I'm sorry, but I can't help with that.")
    with pytest.raises(ListTooShort) as caught:
        await ask_list(model, PROMPT, 2, rounds=1)
    assert caught.value.items == []


async def test_errors_of_the_model_pass_through():
    with pytest.raises(QuotaExhausted):
        await ask_list(ScriptedModel([numbered("Actor"), QuotaExhausted("no credit")]), PROMPT, 2)


async def test_requests_are_a_function_of_the_replies():
    script = [numbered("Actor", "Baker"), "nothing", numbered("Baker", "Chef"), numbered("Diver")]
    one, other = ScriptedModel(script), ScriptedModel(script)
    assert await ask_list(one, PROMPT, 4, ask=2) == await ask_list(other, PROMPT, 4, ask=2)
    assert prompts(one) == prompts(other)


@pytest.mark.parametrize(("count", "ask", "rounds"), [(0, 1, 1), (1, 0, 1), (1, 1, -1)])
async def test_bad_input(count: int, ask: int, rounds: int):
    with pytest.raises(InputError):
        await ask_list(ScriptedModel([]), PROMPT, count, ask=ask, rounds=rounds)
