"""Cross-play: planted effects of user, assistant and pair are found, and none is invented."""

from __future__ import annotations

import itertools
import json
import random
import statistics
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import camel
from camel.core.errors import InputError
from camel.core.message import Message, Sampling
from camel.core.model import Choice, Model, Reply, Request, Usage
from camel.core.stops import DoneToken, MaxMessages, Stop
from camel.core.task import Task
from camel.core.transcript import Score, Speaker, Transcript
from camel.evaluation.cross_play import (
    _tail,  # pyright: ignore[reportPrivateUsage] - a distribution with known values
    adjust,
    analyze,
)
from camel.evaluation.cross_play_report import CrossPlayOutcome, report
from camel.record.arrow import write_shard
from camel.runs.markers import Marker, new_attempt
from camel.runs.run import RunFolder
from camel.runs.settings import Settings
from tests.support import in_process

Effects = tuple[float, float, float]
"""Of the second user, of the second assistant, and of both together."""
NONE: Effects = (0.0, 0.0, 0.0)


def truth(effects: Effects, of: str) -> float:
    user, assistant, both = effects
    return {"user": user + both / 2, "assistant": assistant + both / 2, "pair": both}[of]


def world(
    seed: int, effects: Effects = NONE, tasks: int = 60, sizes: tuple[int, int] = (2, 2), repeats: int = 1, same: bool = True
) -> CrossPlayOutcome:  # fmt: skip
    """Outcomes of tasks of different difficulty. Without `same`, each pair has tasks of its own."""
    chance = random.Random(seed)
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    for task in range(tasks):
        ease = chance.uniform(0.1, 0.5)
        for user, assistant in itertools.product(*map(range, sizes)):
            ease = ease if same else chance.uniform(0.1, 0.5)
            share = ease + effects[0] * (user == 1) + effects[1] * (assistant == 1)
            share += effects[2] * (user == 1 and assistant == 1)
            name = f"{task}" if same else f"{task} {user} {assistant}"
            values.setdefault((f"u{user}", f"a{assistant}"), {})[name] = [float(chance.random() < share) for _ in range(repeats)]  # fmt: skip
    return adjust([analyze("done", values, 0.05)])[0]


DESIGNS: list[tuple[dict[str, Any], str]] = [
    ({}, "paired"),
    ({"tasks": 20}, "paired"),
    ({"same": False}, "tasks"),
    ({"tasks": 4, "repeats": 15}, "conversations"),
    ({"tasks": 60, "sizes": (3, 3)}, "paired"),
    ({"tasks": 60, "sizes": (3, 2), "same": False}, "tasks"),
]


def called(seeds: int, effects: Effects, **given: Any) -> tuple[Counter[str], int]:
    """How often the first interval of each effect contains the truth, and how often any effect is called significant."""
    covered, found = Counter[str](), 0
    for seed in range(seeds):
        made = world(seed, effects, **given)
        for one in made.effects:
            first = one.contrasts[0]
            covered[one.of] += first.low <= truth(effects, one.of) <= first.high
        found += any(one.sure for one in made.effects)
    return covered, found


@pytest.mark.parametrize(("given", "design"), DESIGNS)
def test_no_effect_is_invented(given: dict[str, Any], design: str):
    """Of 50, with 47.5 expected, fewer than 42 would happen once in 150 tests."""
    assert world(0, **given).design == design
    covered, found = called(50, NONE, **given)
    assert min(covered.values()) >= 42
    assert found <= 8


@pytest.mark.parametrize(("effects", "same"), [((0.4, 0.1, 0.0), True), ((0.1, 0.1, 0.3), False)])
def test_planted_effects_are_covered(effects: Effects, same: bool):
    covered, found = called(50, effects, same=same)
    assert min(covered.values()) >= 42
    assert found >= 40


@pytest.mark.thorough
@pytest.mark.parametrize(("given", "design"), DESIGNS)
def test_over_1000_seeds_no_effect_is_invented(given: dict[str, Any], design: str):
    covered, found = called(1000, NONE, **given)
    print(design, given, covered, found)
    assert min(covered.values()) >= 930
    assert found <= 70


@pytest.mark.thorough
@pytest.mark.parametrize("effects", [(0.3, 0.0, 0.0), (0.4, 0.1, 0.0), (0.1, 0.1, 0.3)])
@pytest.mark.parametrize("same", [True, False])
def test_over_1000_seeds_planted_effects_are_covered(effects: Effects, same: bool):
    covered, found = called(1000, effects, same=same)
    print(effects, same, covered, found)
    assert min(covered.values()) >= 930
    assert found >= 900


def test_each_effect_is_separated_from_the_others():
    user, pair = world(1, (0.3, 0.0, 0.0)), world(1, (0.0, 0.0, 0.4), tasks=200)
    assert [one.of for one in user.effects if one.sure] == ["user"]
    assert pair["pair"].sure
    many = world(2, (0.4, 0.0, 0.0), sizes=(3, 2))
    assert [one.of for one in many.effects if one.sure] == ["user"]
    means = {one.name: one.difference for one in many["user"].contrasts}
    assert max(means, key=means.__getitem__) == "u1"
    assert sum(means.values()) == pytest.approx(0)


@pytest.mark.parametrize("given", [{}, {"same": False}, {"tasks": 50, "repeats": 3}])
@pytest.mark.parametrize("of", ["user", "pair"])
def test_the_needed_conversations_give_the_wanted_precision(given: dict[str, Any], of: str):
    repeats = given.get("repeats", 1)
    needed = round(statistics.fmean(world(seed, **given)[of].needed for seed in range(5)))
    first = world(9, **{**given, "tasks": needed // repeats})[of].contrasts[0]
    assert (first.high - first.low) / 2 == pytest.approx(0.05, rel=0.12)


def test_the_distribution_of_fisher():
    known = [(2.228**2, 1, 10, 0.05), (3.098, 3, 20, 0.05), (4.938, 3, 20, 0.01), (3.841, 1, 1e9, 0.05)]
    for value, first, second, p in known:
        assert _tail(value, first, second) == pytest.approx(p, rel=0.01)


def test_numbers_and_outcomes_that_do_not_vary():
    cells = list(itertools.product("ab", "ab"))
    for value in (0.3, 12_345.6):
        same = analyze("tokens", {pair: {str(n): [value] for n in range(8)} for pair in cells}, 0.05)
        assert not same.share
        assert [one.p for one in same.effects] == pytest.approx([1.0] * 3)
    fixed = analyze("tokens", {(u, a): {str(n): [0.1 * n + (u == "b")] for n in range(8)} for u, a in cells}, 0.05)  # fmt: skip
    assert fixed["user"].p < 1e-6
    assert fixed["user"].contrasts[0].low == pytest.approx(1)
    assert fixed["pair"].p == pytest.approx(1)
    never = analyze("done", {pair: {str(n): [0.0] for n in range(8)} for pair in cells}, 0.05)
    assert all(one.low < 0 < one.high for effect in never.effects for one in effect.contrasts)


# --- runs ------------------------------------------------------------------------------------------------------------


def talk(number: int, user: str, assistant: str, done: bool, task: str = "", **more: Any) -> Transcript:
    seats = [Speaker("user", "Boss", model=user), Speaker("assistant", "Worker", model=assistant)]
    said = [Message(0, "user", "Boss", "Instruction: Go.\nInput: None"), Message(1, "assistant", "Worker", "Solution: ok.")]  # fmt: skip
    stop = Stop("done" if done else "max_messages", "as planted")
    return Transcript(
        f"c{number}", Task(task or f"Task {number}"), more.pop("speakers", seats), said, stop, **more
    )


def stored(place: Path, transcripts: Iterable[Transcript]) -> str:
    folder = RunFolder(place)
    folder.create(Settings("f", {"shard_size": 1000}, "0"))
    path = folder.data_path("conversations", 0, new_attempt(), ".parquet")
    written = write_shard(path, transcripts)
    file, size = folder.persist(path)
    assert folder.commit(Marker("conversations", 0, file, written.rows, written.sha256, "f", {}, size))
    return str(place)


def crossed(tasks: int = 10, **more: Any) -> list[Transcript]:
    """Only the user matters: b always ends as done, and a on every fifth task."""
    numbers = itertools.count()
    return [
        talk(next(numbers), user, assistant, user == "b" or task % 5 == 0, f"Task {task}", **more)
        for user, assistant, task in itertools.product("ab", "ab", range(tasks))
    ]


def test_one_run_with_several_models_per_seat_and_several_runs_give_the_same(tmp_path: Path):
    everything = crossed()
    whole = camel.cross_play(stored(tmp_path / "all", everything), progress=False)
    halves = [stored(tmp_path / name, part) for name, part in (("one", everything[::2]), ("two", everything[1::2]))]  # fmt: skip
    assert camel.cross_play(halves, out=tmp_path / "out", progress=False) == whole
    done = whole["done"]
    assert (done.design, done.units, whole.conversations) == ("paired", 10, 40)
    assert done["user"].sure
    assert done["user"].contrasts[0].name == "b − a"
    assert done["user"].contrasts[0].difference == pytest.approx(0.8)
    # Each b meets two a on ten tasks and wins eight of these; on the other tasks, and against the other b, it draws.
    assert {(one.user, one.won, one.drawn, one.lost) for one in done.cells} == {("a", 0, 14, 16), ("b", 16, 14, 0)}  # fmt: skip
    assert json.loads((tmp_path / "out" / "cross-play.json").read_bytes()) == json.loads(whole.to_json())
    assert "<svg" in whole._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert "Ended: done" in str(whole)
    assert report(whole).headline == "Outcomes depend on the user"


def test_checks_of_ones_own_scores_and_filters(tmp_path: Path):
    records = crossed()
    for one in records:
        rated = Score(float(len(one.id))) if one.stop and one.stop.reason == "done" else Score(None)
        one.scores = {"good": rated, "../../odd": rated}
    records += [talk(100 + n, "c", "c", True) for n in range(3)]
    run = camel.Run(stored(tmp_path / "run", records))

    def short(one: Transcript) -> bool | None:
        return None if one.task.original == "Task 3" else len(one.id) < 3

    with pytest.raises(InputError, match="a with c"):
        camel.cross_play(run, progress=False)
    view = run.where('not (task = "Task 100" or task = "Task 101" or task = "Task 102")')
    made = camel.cross_play(view, [short, "tokens", "score.good"], half_width=0.5, progress=False)
    assert {one.name for one in made.outcomes} == {"short", "tokens", "score.good"}
    assert made["short"].units == 9
    assert made["score.good"].design == "conversations"
    camel.cross_play(view, progress=False)
    written = {one.relative_to(tmp_path).parts[0] for one in tmp_path.rglob("*")}
    assert written == {"run"}, "names of scores are no paths"


def test_failed_conversations_are_counted_apart_and_temperatures_are_models(tmp_path: Path):
    records = crossed()
    records[0].stop = Stop("error", "HTTP 500")
    for place, one in enumerate(records):
        heat = Sampling(temperature=0.2 if place % 2 else 1.0)
        one.speakers = [Speaker("user", "Boss", model="m", sampling=heat), Speaker("assistant", "Worker", model="m")]  # fmt: skip
    made = camel.cross_play(stored(tmp_path / "run", records), ["done"], progress=False)
    assert (made.users, made.assistants) == (["m at 0.2", "m at 1.0"], ["m"])
    assert (made.conversations, made.failed) == (39, 1)
    assert [one.of for one in made["done"].effects] == ["user"]


def test_what_cannot_be_compared_is_refused(tmp_path: Path):
    run = stored(tmp_path / "run", crossed())
    society = [Speaker(name, name, model="m") for name in ("Ada", "Ben")]
    odd = stored(tmp_path / "odd", [talk(0, "a", "a", True, speakers=society)])
    alone = stored(tmp_path / "alone", [talk(n, "a", "a", True) for n in range(9)])
    failed = stored(tmp_path / "failed", [talk(n, "a", "a", True) for n in range(1)])
    cases: list[tuple[Any, dict[str, Any], str]] = [
        ([], {}, "no run"),
        (run, {"half_width": 0.0}, "half-width"),
        (run, {"outcomes": ["dome"]}, "done"),
        (run, {"outcomes": ["score.none"]}, "two conversations"),
        ([run, run], {}, "twice"),
        (odd, {}, "role plays"),
        (alone, {}, "same models"),
        (failed, {"where": 'task = "nothing"'}, "no finished"),
    ]
    for runs, given, says in cases:
        with pytest.raises(InputError, match=says):
            camel.cross_play(runs, **given, progress=False)


class Seat(Model):
    """Declares a task done with the planted chance, which depends on its own name and on the name of the assistant."""

    def __init__(self, name: str, seed: int, effects: Effects) -> None:
        self.name, self._seed, self._effects = name, seed, effects

    async def reply(self, request: Request) -> Reply:
        user, assistant, both = self._effects
        last = request.history.entries[-1].content
        text = f"Solution: by {self.name}.\nNext request."
        if request.speaker == "user":
            mine, theirs = self.name == "b", "by b" in last
            share = 0.2 + user * mine + assistant * theirs + both * (mine and theirs)
            happens = random.Random(f"{self._seed} {self.name} {request.digest()}").random() < share
            text = "<CAMEL_TASK_DONE>" if "by " in last and happens else "Instruction: Continue.\nInput: None"
        return Reply((Choice(text),), Usage(10, 5, calls=1))


def generated(out: Path, seed: int, effects: Effects, tasks: int) -> list[str]:
    """The runs of all pairs of models."""
    play = camel.RolePlaying("Do <task>", assistant="Worker", user="Boss", specify=False)
    places = list[str]()
    for user, assistant in itertools.product("ab", "ab"):
        places.append(str(out / (user + assistant)))
        camel.generate(
            play, inputs=[{"task": f"thing {n}"} for n in range(tasks)], out=places[-1], model=Seat(assistant, seed, effects),
            models={"user": Seat(user, seed, effects)}, rules=[DoneToken(), MaxMessages(3)], progress=False,
        )  # fmt: skip
    return places


def test_planted_effects_are_found_by_the_command(tmp_path: Path):
    runs = generated(tmp_path, 1, (0.7, 0.0, 0.0), 12)
    done = in_process.camel("evaluate", "cross-play", *runs, "--outcome", "done", folder=tmp_path)
    assert done.status == 0, done.stderr
    assert "Ended: done" in done.stdout
    made = json.loads((tmp_path / "aa" / "cross-play" / "cross-play.json").read_bytes())
    (outcome,) = made["outcomes"]
    significant = {one["of"]: one["adjusted"] < 0.05 for one in outcome["effects"]}
    assert significant == {"user": True, "assistant": False, "pair": False}
    assert "Outcomes depend on the user" in (tmp_path / "aa" / "cross-play" / "cross-play.html").read_text()


@pytest.mark.thorough
@pytest.mark.parametrize("effects", [NONE, (0.6, 0.0, 0.0), (0.1, 0.0, 0.6)])
def test_over_20_seeds_planted_effects_are_found_through_the_whole_program(tmp_path: Path, effects: Effects):
    covered, found = Counter[str](), 0
    for seed in range(20):
        made = camel.cross_play(generated(tmp_path / str(seed), seed, effects, 20), ["done"], progress=False)
        for one in made["done"].effects:
            covered[one.of] += one.contrasts[0].low <= truth(effects, one.of) <= one.contrasts[0].high
        found += any(one.sure for one in made["done"].effects)
    print(effects, covered, found)
    assert min(covered.values()) >= 16
    assert found <= 4 if effects == NONE else found >= 16
