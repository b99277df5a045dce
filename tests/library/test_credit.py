"""The value of messages: planted decisive messages are found, for few calls, and none of the prefix is paid for."""

from __future__ import annotations

import random
import statistics
from pathlib import Path
from typing import Any

import pytest

import camel
from camel.core.errors import InputError
from camel.core.message import Message
from camel.core.model import Choice, Model, Reply, Request, Usage
from camel.core.stops import MaxMessages
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.evaluation.credit import ROUND, Prefixes

LENGTH = 12


class World(Model):
    """The last message says yes with a chance of 0.8 if a message before said key, otherwise with a chance of 0.2."""

    name = "world"

    def __init__(self) -> None:
        self.calls = 0

    async def reply(self, request: Request) -> Reply:
        self.calls += 1
        chance = random.Random(request.digest())
        entries = [one.content for one in request.history.entries if one.role != "system"]
        share = 0.8 if any("key" in one for one in entries) else 0.2
        text = "yes" if chance.random() < share else "no"
        return Reply((Choice(text),), Usage(10, 5, calls=1))


def record(number: int, decisive: int) -> Transcript:
    """A conversation that succeeded, with the key in message `decisive`, counted from 1."""
    said = ["key" if place + 1 == decisive else f"hm {place}" for place in range(LENGTH - 1)] + ["yes"]
    names = ["user", "assistant"]
    speakers = [Speaker(name, name.title(), f"You are {name}.", opening="Go.") for name in names]
    messages = [
        Message(place, names[place % 2], names[place % 2].title(), text) for place, text in enumerate(said)
    ]
    return Transcript(f"c{number}", Task("Open the door"), speakers, messages)


def succeeded(one: Transcript) -> bool:
    return one.messages[-1].content == "yes"


def credited(records: list[Transcript], model: Model, out: Path, **given: Any) -> camel.CreditFigures:
    return camel.credit(
        records, succeeded, using=model, rules=[MaxMessages(LENGTH)], out=out, progress=False, **given
    )


@pytest.mark.parametrize("count", [9, pytest.param(100, marks=pytest.mark.thorough)])
def test_the_decisive_message_is_found_and_nothing_before_it_is_paid(tmp_path: Path, count: int):
    """At least once in each place; a message next to the decisive one counts as not found."""
    model = World()
    planted = {f"c{n}": 2 + n % (LENGTH - 3) for n in range(count)}
    records = [record(n, planted[f"c{n}"]) for n in range(count)]
    made = credited(records, model, tmp_path / "credit")
    assert sum(made[id].decisive == at for id, at in planted.items()) >= 0.9 * count - 1
    # Each sample calls the model once per new message, by its own count.
    assert model.calls == made.usage.calls
    assert made.usage.calls < made.samples * LENGTH
    # Advantages at the decisive messages are 0.6, and their intervals contain it.
    found = [made[id].messages[at - 1] for id, at in planted.items() if made[id].decisive == at]
    assert statistics.fmean(one.advantage for one in found) == pytest.approx(0.6, abs=0.1)
    again = World()
    assert credited(records, again, tmp_path / "credit") == made
    assert again.calls == 0


def simulated(seed: int, decisive: int | None, uniform: bool, rounds: int) -> tuple[Prefixes, int]:
    """Play the allocation against a coin, and return what is known and the number of rounds."""
    chance = random.Random(seed)
    made = Prefixes(LENGTH, True)
    for number in range(rounds):
        at = number % LENGTH if uniform else made.next()
        if at is None:
            return made, number
        value = 0.5 if decisive is None else 0.8 if at >= decisive else 0.2
        made.found.setdefault(at, []).extend(chance.random() < value for _ in range(ROUND))
    return made, rounds


def error_at(made: Prefixes, decisive: int) -> float:
    values = made.values()
    return abs(values[decisive] - values[decisive - 1] - 0.6)


def test_adaptive_samples_need_half_of_the_calls_for_the_same_error():
    places = [2 + seed % (LENGTH - 3) for seed in range(400)]
    adaptive = [simulated(seed, at, uniform=False, rounds=12) for seed, at in enumerate(places)]
    error = statistics.fmean(error_at(made, at) for (made, _), at in zip(adaptive, places, strict=True))
    used = statistics.fmean(rounds for _, rounds in adaptive)
    # A uniform allocation with twice as many rounds has at least the same error.
    uniform = [simulated(seed, at, uniform=True, rounds=round(2 * used)) for seed, at in enumerate(places)]
    assert error <= statistics.fmean(
        error_at(made, at) for (made, _), at in zip(uniform, places, strict=True)
    )


def test_intervals_of_advantages_contain_the_truth(tmp_path: Path):
    from camel.evaluation.effects import difference

    covered = false = 0
    for seed in range(1000):
        chance = random.Random(seed)
        before, after = ([float(chance.random() < p) for _ in range(2 * ROUND)] for p in (0.2, 0.8))
        low, high = difference(before, after)
        covered += low <= 0.6 <= high
        same = [[float(chance.random() < 0.5) for _ in range(2 * ROUND)] for _ in range(2)]
        low, high = difference(*same)
        false += not low <= 0 <= high
    assert covered >= 930
    assert false <= 70


def test_training_rows(tmp_path: Path):
    made = credited([record(0, 4)], World(), tmp_path / "credit")
    assert len(list(made.rows("advantages"))) == LENGTH
    reward = next(made.rows("process_reward"))
    assert reward["labels"][0] is False
    assert reward["labels"][4] is True
    assert len(reward["completions"]) == LENGTH
    for pair in made.rows("step_preferences"):
        assert pair["chosen"] != pair["rejected"]
        assert pair["prompt"].startswith("Open the door")


def test_the_check_of_answers():
    from camel.library.credit import find_check

    one = record(0, 4)
    assert find_check("answer")(one) is None  # pyright: ignore[reportCallIssue] - a function
    one.inputs, one.messages[-1] = {"answer": "18"}, Message(11, "assistant", "Assistant", "#### 18")
    assert find_check("answer")(one) is True  # pyright: ignore[reportCallIssue] - a function
    with pytest.raises(InputError, match="gsm9k"):
        find_check("gsm9k")


def test_what_cannot_be_measured_is_refused(tmp_path: Path):
    harmful = record(0, 4)
    harmful.labels = ["misalignment"]
    with pytest.raises(InputError, match="harmful"):
        credited([harmful], World(), tmp_path / "a")
    with pytest.raises(InputError, match="no conversation"):
        credited([], World(), tmp_path / "b")
    with pytest.raises(InputError, match="decides"):
        camel.credit([record(0, 4)], lambda one: None, using=World(), out=tmp_path / "c")


def test_another_check_needs_another_folder(tmp_path: Path):
    credited([record(0, 4)], World(), tmp_path / "a")
    with pytest.raises(InputError, match="success"):
        camel.credit([record(0, 4)], lambda one: False, using=World(), rules=[MaxMessages(LENGTH)], out=tmp_path / "a", progress=False)  # fmt: skip


def test_a_check_that_decides_only_about_records_stops_after_one_round(tmp_path: Path):
    def recorded(one: Transcript) -> bool | None:
        return True if one.id == "c0" else None

    model = World()
    made = camel.credit([record(0, 4)], recorded, using=model, rules=[MaxMessages(LENGTH)], out=tmp_path / "a", progress=False)  # fmt: skip
    assert model.calls == ROUND * LENGTH
    assert made.conversations == []
    with pytest.raises(InputError, match="scores"):
        camel.credit([record(0, 4)], "score.helpful", using=model, out=tmp_path / "b")


def test_samples_of_one_prefix_have_seeds_of_their_own(tmp_path: Path):
    seeds: list[int | None] = []

    class Noting(World):
        async def reply(self, request: Request) -> Reply:
            if [one.content for one in request.history.entries] == ["You are user.", "Go."]:
                seeds.append(request.sampling.seed)
            return await super().reply(request)

    credited([record(n, 4) for n in range(3)], Noting(), tmp_path / "a")
    assert len(seeds) == len({*seeds}) >= 3 * ROUND
