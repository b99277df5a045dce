"""Forks of conversations: what they cost, and the effects of planted changes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import camel
from camel.core.errors import InputError
from camel.core.model import Choice, Model, Reply, Request, Usage
from camel.core.stops import DoneToken, MaxMessages
from camel.evaluation.branch_report import outcomes_of
from camel.evaluation.effects import effect_of, quantile
from camel.runs.reader import RunReader

RULES = (DoneToken(), MaxMessages(6))


class World(Model):
    """A user that declares the task done with a chance of 0.8 after a reply that says please, and otherwise of `usual`."""

    name = "world"

    def __init__(self, seed: int, usual: float = 0.2, polite: float = 0.8) -> None:
        self._chance, self._usual, self._polite = random.Random(seed), usual, polite
        self.calls = 0

    async def reply(self, request: Request) -> Reply:
        self.calls += 1
        said = " ".join(entry.content for entry in request.history.entries if entry.role == "user")
        if request.speaker == "assistant":
            text = "Solution: ok.\nNext request."
        elif self._chance.random() < (self._polite if "please" in said else self._usual):
            text = "<CAMEL_TASK_DONE>"
        else:
            text = "Instruction: Continue.\nInput: None"
        return Reply((Choice(text),), Usage(10, 5, calls=1))


def record(seed: int = 0) -> camel.Transcript:
    play = camel.RolePlaying("Bake", assistant="Baker", user="Guest", model=World(seed, 0.0), specify=False)
    made = play.again(rules=[MaxMessages(4)]).run()
    made.id = f"c{seed}"
    return made


def forked(world: World, out: Path, **change: Any) -> camel.Branches:
    return camel.fork([record()], 2, n=20, using=world, rules=RULES, out=out, progress=False, **change)


def test_a_fork_pays_only_for_what_is_new_and_is_resumed(tmp_path: Path):
    world = World(1)
    made = forked(world, tmp_path / "b", message="Solution: please.")
    assert len(RunReader(made.place)) == 40
    new = sum(len(one.messages) - 2 for _, _, one in made)
    assert world.calls == new == sum(one.usage.calls for _, _, one in made)
    for of, kind, one in made:
        assert of == "c0"
        assert ("please" in one.messages[1].content) == (kind == "changed")
    effect = made.effect("done")
    assert effect is not None
    assert effect.sure
    assert effect.low <= 0.8 - 0.2 + 0.16  # two chances to end
    assert "done" in made.effects()
    assert "done" in made._repr_html_()
    again = World(1)
    assert len(RunReader(forked(again, tmp_path / "b", message="Solution: please.").place)) == 40
    assert again.calls == 0
    assert made.effect(lambda one: None) is None


@pytest.mark.thorough  # one planted effect: test_a_fork_pays_only_for_what_is_new_and_is_resumed
@pytest.mark.parametrize(("polite", "least", "most"), [(0.8, 16, 20), (0.2, 0, 4)])
def test_planted_effects_are_found_through_the_whole_program(
    tmp_path: Path, polite: float, least: int, most: int
):
    """One chance to end, so that the true effect is the difference of the chances."""
    covered = found = 0
    for seed in range(20):
        world = World(seed, 0.2, polite)
        made = camel.fork(
            [record()], 2, n=15, using=world, rules=(DoneToken(), MaxMessages(3)), out=tmp_path / str(seed),
            message="Solution: please.", progress=False,
        )  # fmt: skip
        effect = made.effect("done")
        assert effect is not None
        covered += effect.low <= polite - 0.2 <= effect.high
        found += effect.sure
    assert covered >= 16
    assert least <= found <= most


@pytest.mark.parametrize(
    ("conversations", "branches", "seeds"),
    [
        *[(1, 20, 1_000), (3, 5, 1_000), (10, 4, 1_000), (40, 1, 1_000)],
        # 100 seeds notice intervals that contain the effect in 80 instead of 95 of 100 cases.
        *[(200, 1, 100), pytest.param(200, 1, 1_000, marks=pytest.mark.thorough)],
    ],
)
@pytest.mark.parametrize("effect", [0.0, 0.3])
def test_intervals_contain_the_true_effect(conversations: int, branches: int, seeds: int, effect: float):
    covered = found = 0
    for seed in range(seeds):
        chance = random.Random(seed)
        outcomes: list[tuple[list[float], list[float]]] = []
        for _ in range(conversations):
            rate = chance.uniform(0.2, 0.6) if conversations > 1 else 0.4
            sides = [[float(chance.random() < one) for _ in range(branches)] for one in (rate, rate + effect)]
            outcomes.append((sides[0], sides[1]))
        made = effect_of(outcomes)
        assert made is not None
        covered += made.low <= effect <= made.high
        found += made.sure
    assert covered >= (930 if seeds == 1_000 else 90)
    assert effect or found <= (70 if seeds == 1_000 else 10)


def test_intervals_of_numbers_and_degenerate_outcomes():
    assert effect_of([]) is None
    assert effect_of([([1.0], [])]) is None
    same = effect_of([([0.0] * 5, [0.0] * 5)])
    assert same is not None
    assert same.low < 0 < same.high, "nothing happened five times, which does not exclude an effect"
    numbers = effect_of([([3.0, 4.0, 3.5], [9.0, 8.0, 8.5])])
    assert numbers is not None
    assert numbers.low > 3
    few = effect_of([([0.0, 1.0], [1.0, 1.0]), ([0.0, 0.0], [0.0, 0.0]), ([1.0, 0.0], [0.0, 0.0])])
    assert few is not None
    assert (few.low, few.high) == (-1, 1), "shares do not differ by more"
    alike = effect_of([([5.0], [5.0]), ([5.0], [5.0])])
    assert alike is not None
    assert alike.low == alike.high == 0, "numbers are not shares"
    assert [round(quantile(one), 3) for one in (1, 2, 3, 10)] == [12.706, 4.303, 3.179, 2.228]
    first, second = outcomes_of({"changed": {"same": same, "numbers": numbers}})
    assert (first.name, second.name) == ("numbers", "same")
    assert first.adjusted < 0.05 < second.adjusted


def test_a_wrong_change_is_refused_before_anything_is_paid_for(tmp_path: Path):
    wrongs: list[tuple[dict[str, Any], str]] = [
        ({"message": "x", "temperature": 1.0}, "one change"),
        ({"seat": "cook", "temperature": 1.0}, "no seat"),
        ({"without": "not there"}, "no system prompt"),
        ({"role": "Chef"}, "needs the seat"),
    ]
    for wrong, says in wrongs:
        with pytest.raises(InputError, match=says):
            forked(World(0), tmp_path / "b", **wrong)
    other = record()
    other.speakers = [replace(one, model=one.name) for one in other.speakers]
    with pytest.raises(InputError, match="using"):
        camel.fork([other], 2, out=tmp_path / "b", temperature=1.0)
    labeled = record()
    labeled.labels = ["misalignment"]
    with pytest.raises(InputError, match="harmful"):
        camel.fork([labeled], 2, using=World(0), out=tmp_path / "b")
    with pytest.raises(InputError, match="message 9"):
        camel.fork([record()], 9, using=World(0), out=tmp_path / "b")
