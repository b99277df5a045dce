"""Credit and cooperation in worlds with a planted truth: what they find, what they do not invent, and what they pay for."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

import camel
from camel.core.errors import InputError
from camel.core.message import Message, Usage
from camel.core.model import Choice, Model, Reply, Request
from camel.core.stops import DoneToken, MaxMessages, Stop
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.evaluation.cooperation.exercises import Exercise
from camel.evaluation.credit import ROUND, Prefixes, credit_of
from camel.models.simulator import SimulatorSettings, spawn
from tests.support.command import camel as run_camel
from tests.support.keyed import AUTHOR, KEY, LENGTH, STEP, chance


def record(number: int, key: int | None) -> Transcript:
    """A conversation that succeeded, with the key in message `key`. Without a key, each message is a small step."""
    said = [STEP] * (LENGTH - 1) + ["yes"]
    if key is not None:
        said = [KEY if place + 1 == key else f"Hm, {place}." for place in range(LENGTH - 1)] + ["yes"]
    names = ("user", "assistant")
    speakers = [Speaker(name, name.title(), f"You are {name} {number}.", opening="Go.") for name in names]
    messages = [
        Message(place, names[place % 2], names[place % 2].title(), text, usage=Usage(30, 3, calls=1))
        for place, text in enumerate(said)
    ]
    return Transcript(f"c{number}", Task("Open the door"), speakers, messages, Stop("done", "yes"))


def succeeded(one: Transcript) -> bool:
    return one.messages[-1].content == "yes"


def few_or_all(few: int, all_: int) -> pytest.MarkDecorator:
    marks = [pytest.mark.slow] if few < 10 else []
    full = pytest.param(all_, marks=pytest.mark.thorough)
    return pytest.mark.parametrize("seeds", [pytest.param(few, marks=marks), full])


# --- credit -------------------------------------------------------------------------------------------------------


def allocated(one: Transcript, seed: int) -> camel.CreditFigures:
    """Play the allocation of samples against a coin with the world's chances."""
    known, coin = Prefixes(LENGTH, True), random.Random(seed)
    for _ in range(96 // ROUND):
        if (at := known.next()) is None:
            break
        after = chance("\n".join(message.content for message in one.messages[:at]))
        known.found.setdefault(at, []).extend(coin.random() < after for _ in range(ROUND))
    return camel.CreditFigures([credit_of(one, known, {})], "coin", 0, 0, Usage())


@few_or_all(200, 1000)
def test_by_chance_no_message_is_called_decisive(seeds: int):
    found = [allocated(record(seed, None), seed)[f"c{seed}"].decisive for seed in range(seeds)]
    assert sum(one is not None for one in found) <= 0.07 * seeds


@few_or_all(200, 1000)
def test_planted_messages_are_found_and_intervals_contain_the_truth(seeds: int):
    hits = covered = measured = 0
    for seed in range(seeds):
        key = 2 + seed % (LENGTH - 3)
        made = allocated(record(seed, key), seed)[f"c{seed}"]
        hits += made.decisive == key
        for one in made.messages[:-1]:
            truth, (low, high) = 0.6 * (one.number == key), one.advantage_interval
            covered += low <= truth <= high
            measured += one.measured
    assert hits >= 0.9 * seeds
    assert measured >= 2 * seeds
    assert covered >= 0.93 * (LENGTH - 1) * seeds


@few_or_all(1, 20)
def test_credit_through_the_whole_program(seeds: int, tmp_path: Path):
    """By the ledger of the endpoint, nothing before the place of a sample is paid for."""
    found = covered = invented = 0
    with spawn(SimulatorSettings(author=AUTHOR)) as endpoint:
        model = camel.ChatModel("gpt-4", base_url=endpoint.base_url, api_key="none")
        for seed in range(seeds):
            key, before = 2 + seed % (LENGTH - 3), endpoint.ledger()
            made = camel.credit(
                [record(0, key), record(1, None)], succeeded, using=model, rules=[MaxMessages(LENGTH)],
                out=tmp_path / str(seed), seed=seed, progress=False,
            )  # fmt: skip
            samples = [json.loads(line) for file in (tmp_path / str(seed)).rglob("round-*/*.jsonl") for line in file.read_text().splitlines()]  # fmt: skip
            ledger = endpoint.ledger()
            paid = ledger.billed - before.billed
            assert len(samples) == made.samples > 2 * ROUND
            assert paid == sum(LENGTH - one["at"] for one in samples) == made.usage.calls
            tokens = (
                ledger.prompt_tokens - before.prompt_tokens,
                ledger.completion_tokens - before.completion_tokens,
            )
            assert tokens == (made.usage.prompt, made.usage.completion)
            planted = made["c0"].messages[key - 1].advantage_interval
            found += made["c0"].decisive == key
            covered += planted[0] <= 0.6 <= planted[1]
            invented += made["c1"].decisive is not None
    print(f"{seeds} seeds: {found} found, {covered} intervals contain the truth, {invented} invented")
    if seeds > 1:
        assert min(found, covered) >= 0.8 * seeds
        assert invented <= 0.2 * seeds


# --- cooperation --------------------------------------------------------------------------------------------------


class Solver(Model):
    """Solves the same problems each time: a share `alone`, and with an assistant's role a share `together`."""

    name = "solver"

    def __init__(self, seed: int, alone: float, together: float) -> None:
        self._seed, self._alone, self._together = seed, alone, together

    async def reply(self, request: Request) -> Reply:
        said = "\n".join(entry.content for entry in request.history.entries)
        numbers = re.search(r"Add (\d+) and (\d+)", said)
        assert numbers
        helped = request.speaker == "assistant"
        coin = random.Random(f"{self._seed} {numbers[0]} {helped}")
        right = coin.random() < (self._together if helped else self._alone)
        text = f"Solution: That is it.\n#### {int(numbers[1]) + int(numbers[2]) + (not right)}"
        if request.speaker == "user":
            done = request.history.entries[-1].content.startswith("Solution:")
            text = "<CAMEL_TASK_DONE>" if done else "Instruction: Solve it.\nInput: None"
        return Reply((Choice(text),), Usage(len(said) // 4, 20, calls=1))


@few_or_all(1, 20)
@pytest.mark.parametrize("effect", [0.3, 0.0])
def test_cooperation_through_the_whole_program(effect: float, seeds: int, tmp_path: Path):
    problems = [Exercise(f"sum/{n}", f"Add {n} and {7 * n}.", str(8 * n), "number") for n in range(100)]
    covered = called = 0
    for seed in range(seeds):
        made = camel.compare_methods(
            ["self_consistency", "role_play"], problems, tokens=1500, model=Solver(seed, 0.4, 0.4 + effect),
            out=tmp_path / str(seed), progress=False,
        )["role_play"]  # fmt: skip
        assert made.against
        covered += made.against.low <= effect <= made.against.high
        called += made.sure
    print(f"{seeds} seeds, effect {effect}: {covered} intervals contain it, {called} are called an effect")
    assert covered >= 0.8 * seeds
    assert called >= 0.8 * seeds if effect else called <= 0.2 * seeds


# --- before anything is paid for ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_dry_run_shows_what_is_needed_and_calls_nothing(tmp_path: Path):
    declared = camel.RolePlaying("Bake <bread>", assistant="Baker", user="Guest", specify=False)
    with camel.simulated_endpoint(length=5, seed=1) as endpoint:
        camel.generate(declared, inputs=[{"bread": "rye"}, {"bread": "oat"}], model="gpt-4", out=tmp_path / "run", progress=False)  # fmt: skip
        run, paid = camel.Run(tmp_path / "run"), endpoint.ledger().billed
        messages = [len(one.messages) for one in run]
        forked = run_camel("fork", "run", "--at", "2", "-n", "2", "--dry-run", cwd=tmp_path)
        needed = camel.forecast(camel.fork, run, 2, n=2)["gpt-4"]
        assert needed.calls == sum(2 * (count - 1) for count in messages)
        assert needed.usd > 0
        assert f"about {needed.calls} calls" in forked.stdout
        assert "4 branches of 2 conversations" in forked.stdout
        credited = run_camel("credit", "run", "--check", "done", "--samples", "16", "--dry-run", cwd=tmp_path)
        most = camel.forecast(camel.credit, run, "done", samples=16)["gpt-4"]
        assert most.calls == sum(16 * (count - count // 2) for count in messages)
        assert f"about {most.calls} calls" in credited.stdout
        with pytest.raises(InputError, match="forecast"):
            camel.forecast(camel.generate, declared)
        assert endpoint.ledger().billed == paid
        made = camel.fork(run, 2, n=2, rules=[DoneToken(), MaxMessages(5)], progress=False)
        assert endpoint.ledger().billed - paid == sum(one.usage.calls for _, _, one in made) == needed.calls
    assert not (tmp_path / "run" / "credit").exists()
