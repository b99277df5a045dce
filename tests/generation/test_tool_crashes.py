"""Tool calls of a run whose process ends in the middle: which are executed again, and what fails."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import camel
from camel import Model, Reply, Request, RolePlaying, Tool, Toolbox, Transcript, World, tool
from camel.core.message import Usage
from camel.core.model import Choice
from camel.core.world import apply_change

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.slow

Calls = list[tuple[str, dict[str, Any]]]
Turns = Callable[[str, int], Calls]
"""Returns the calls of a reply: (prompt, number of replies with calls before this message) -> calls."""
_SERVER = get_context("forkserver")
_SERVER.set_forkserver_preload(["camel.library.jobs", "camel.record.arrow", "camel.index.build"])


def note_line(path: Path, text: str) -> None:
    """Add a line to a file, so that it is there after a kill."""
    with path.open("a") as file:
        file.write(f"{text}\n")


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


class Script(Model):
    """A deterministic model that calls tools, and kills its process at one of its calls."""

    name = "script"

    def __init__(self, turns: Turns, log: Path, dies_at: int = 0) -> None:
        self.turns, self.log, self.left = turns, log, dies_at

    async def reply(self, request: Request) -> Reply:
        await asyncio.sleep(0)
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
        entries = request.history.entries
        note_line(self.log, request.digest().hex())
        said = "1"
        if request.speaker == "user":
            said = f"Instruction: Do step {len(entries)}.\nInput: None"
        elif request.speaker == "assistant":
            made = 0
            for entry in reversed(entries):
                if entry.role == "user" and not entry.content.startswith("<tool_result>"):
                    break
                made += entry.role == "assistant"
            calls = self.turns(entries[0].content, made)
            said = "\n".join(
                f"<tool_call>{json.dumps({'name': name, 'arguments': given})}</tool_call>"
                for name, given in calls
            )
            said = said or f"Solution: Done {len(entries)}.\nNext request."
        return Reply((Choice(said),), Usage(10, 5, calls=1), model="script")


class Noting(Tool):
    """Notes its calls, and kills its process in the middle of one of them."""

    name = "note"
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}}  # noqa: RUF012

    def __init__(self, log: Path, dies_at: int, kind: str) -> None:
        self.log, self.left = log, dies_at
        self.read_only, self.idempotent = kind == "read_only", kind == "idempotent"

    async def call(self, arguments: dict[str, Any], place: Any) -> str:
        note_line(self.log, arguments["text"])
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(0.002 * random.Random(arguments["text"]).random())
        return f"noted {arguments['text']}"


def item_of(prompt: str) -> str:
    return prompt.split("Sell thing ")[1].split(".")[0].split()[0]


def twice(prompt: str, made: int) -> Calls:
    """Two calls, one after the other."""
    return [("note", {"text": f"{item_of(prompt)}-{made}"})] if made < 2 else []


def at_once(prompt: str, made: int) -> Calls:
    """Four calls in one reply."""
    return [("note", {"text": f"{item_of(prompt)}-{number}"}) for number in range(4)] if not made else []


@dataclass(frozen=True)
class Case:
    """A run, in this process or in one that is killed."""

    folder: Path
    turns: Turns = twice
    kind: str = ""
    """Whether the tool is `read_only` or `idempotent`."""
    rows: int = 6
    critic: int | None = None
    shop: bool = False

    def generate(self, number: int = 1, model_dies: int = 0, tool_dies: int = 0, **more: Any) -> camel.Run:
        """Generate. `number` is that of the process, whose calls are noted in files of its own."""
        self.folder.mkdir(exist_ok=True)
        more = {"concurrency": 4, **more}
        tools = (
            [Shop.add, Shop.remove, Shop.pay]
            if self.shop
            else [Noting(self._file("done", number), tool_dies, self.kind)]
        )
        play = RolePlaying(
            "Sell thing <number>.",
            assistant="Seller",
            user="Buyer",
            specify=False,
            assistant_tools=Toolbox(tools, form="text"),
            world=Shop if self.shop else None,
            critic=self.critic,
            max_messages=2,
        )
        model = Script(self.turns, self._file("paid", number), model_dies)
        rows = [{"number": f"{row:04d}"} for row in range(self.rows)]
        return camel.generate(play, model=model, inputs=rows, out=self.folder / "run", progress=False, **more)

    def killed(self, number: int = 0, **dies: int) -> bool:
        """Generate in a process of its own. Return whether it was killed."""
        process = _SERVER.Process(target=self.generate, args=(number,), kwargs=dies)
        process.start()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
        return process.exitcode != 0

    def _file(self, what: str, number: int) -> Path:
        return self.folder / f"{what}-{number}"

    def done(self, number: int) -> list[str]:
        """The tool calls that a process executed."""
        return lines(self._file("done", number))

    def paid(self, number: int) -> list[str]:
        """The model calls that a process made."""
        return lines(self._file("paid", number))


def test_a_call_that_was_interrupted_fails_its_conversation_and_no_other(tmp_path: Path):
    case = Case(tmp_path)
    assert case.killed(tool_dies=5)
    run = case.generate(1)
    first, second = case.done(0), case.done(1)
    executed = [*first, *second]
    assert len(executed) == len({*executed}), "no call was executed twice"
    failed = [one for one in run if one.failed]
    named = [one.stop.detail for one in failed if one.stop]
    assert all(detail.startswith("ActionInterrupted: ") for detail in named)
    recorded = [one.result for made in run for message in made.messages for one in message.actions]
    recorded += [one.result for made in run for one in made.unspoken]
    lost = [text for text in executed if f"noted {text}" not in recorded]
    assert first[-1] in lost
    # A process may also be killed between the entry in the journal and the call.
    assert len(lost) <= len(failed) < 6
    assert all(any(text in detail for detail in named) for text in lost)
    now = run.status()
    assert (now.state, now.failed, now.stops["error"]) == ("complete", len(failed), len(failed))
    again = case.generate(2, retry_failed=True)
    assert not any(one.failed for one in again)
    from_the_start = [f"{one.inputs['number']}-{step}" for one in failed for step in range(2)]
    assert sorted(case.done(2)) == sorted(from_the_start)
    never = len(failed) - len(lost)
    assert again.status().tool_calls == len(executed) + never + len(from_the_start)


@pytest.mark.parametrize("kind", ["read_only", "idempotent"])
def test_a_call_that_may_be_repeated_is_executed_again(tmp_path: Path, kind: str):
    case = Case(tmp_path, kind=kind)
    assert case.killed(tool_dies=5)
    assert not any(one.failed for one in case.generate(1))
    assert case.done(0)[-1] in case.done(1)
    assert {*case.done(0), *case.done(1)} == {f"{row:04d}-{step}" for row in range(6) for step in range(2)}
    assert len(case.done(1)) >= 12 - 4, "journaled results are used"


@pytest.mark.parametrize("dies_at", [8, 14])
def test_calls_at_the_same_time_replay_in_the_same_order(tmp_path: Path, dies_at: int):
    case = Case(tmp_path, at_once, "read_only")
    assert case.killed(model_dies=dies_at)
    for one in case.generate(1):
        texts = [json.loads(action.arguments)["text"] for action in one.messages[1].actions]
        assert texts == [f"{one.inputs['number']}-{number}" for number in range(4)]
        assert [action.result for action in one.messages[1].actions] == [f"noted {text}" for text in texts]
    assert {*case.done(0), *case.done(1)} == {f"{row:04d}-{place}" for row in range(6) for place in range(4)}


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_critic_with_tools_is_durable(tmp_path: Path, share: float):
    calm, case = (Case(tmp_path / name, kind="read_only", critic=2, rows=3) for name in ("calm", "run"))
    expected = {one.id: [action.result for action in one.messages[1].actions] for one in calm.generate()}
    assert case.killed(model_dies=int(share * len(calm.paid(1))))
    run = case.generate(1)
    assert {one.id: [action.result for action in one.messages[1].actions] for one in run} == expected
    # Three conversations were in progress at the kill, each with one call in flight.
    assert len(case.done(0)) + len(case.done(1)) <= len(calm.done(1)) + 3
    assert len(case.paid(0)) + len(case.paid(1)) <= len(calm.paid(1)) + 3


# --- a shop ------------------------------------------------------------------------------------------------------


class Shop(World):
    """A shop whose customers want one thing each. The seller makes planted mistakes."""

    def __init__(self, row):
        self.wanted = f"thing {row['number']}"
        self.stock = {self.wanted: 2, "bell": 1}
        self.basket: list[dict[str, Any]] = []
        self.paid = 0

    @tool
    def add(self, item: str, count: int = 1) -> str:
        """Put things into the basket."""
        if self.stock.get(item, 0) < count:
            raise ValueError(f"there are {self.stock.get(item, 0)} of {item}")
        self.stock[item] -= count
        if not self.stock[item]:
            del self.stock[item]
        self.basket.append({"item": item, "count": count})
        return f"{len(self.basket)} in the basket"

    @tool
    def remove(self, place: int) -> str:
        """Take something out of the basket."""
        gone = self.basket.pop(place)
        self.stock[gone["item"]] = self.stock.get(gone["item"], 0) + gone["count"]
        return "removed"

    @tool
    def pay(self, amount: int) -> str:
        """Pay for the basket."""
        self.paid += amount
        return "paid"

    def check(self):
        right = self.basket == [{"item": self.wanted, "count": 1}]
        return {
            "check": right and self.paid == 5,
            "kept": sum(self.stock.values()) + sum(one["count"] for one in self.basket) == 3,
        }


MISTAKES = ("none", "none", "none", "other thing", "two", "forgets to pay", "pays twice")


def mistake(number: int) -> str:
    return random.Random(number).choice(MISTAKES)


def sale(prompt: str, made: int) -> Calls:
    """Sell with the mistake that is planted in this conversation, after a detour that is none."""
    item = item_of(prompt)
    what = mistake(int(item))
    thing = "bell" if what == "other thing" else f"thing {item}"
    steps: list[list[tuple[str, dict[str, Any]]]] = [
        [("add", {"item": "bell"}), ("add", {"item": "nothing"})],
        [("remove", {"place": 0}), ("add", {"item": thing, "count": 2 if what == "two" else 1})],
        [("pay", {"amount": 5})] * (0 if what == "forgets to pay" else 2 if what == "pays twice" else 1),
    ]
    return steps[made] if made < len(steps) else []


def states(run: camel.Run) -> dict[str, Any]:
    """The state of each world at the end, from the recorded changes."""

    def state(one: Transcript) -> Any:
        made = vars(Shop(one.inputs))
        for action in one.messages[1].actions:
            made = apply_change(made, json.loads(action.change or "[]"))
        return made

    return {one.id: state(one) for one in run}


@pytest.mark.parametrize(
    "count", [60, pytest.param(1000, marks=[pytest.mark.thorough, pytest.mark.timeout(1800)])]
)
def test_the_check_of_a_shop_finds_exactly_the_planted_mistakes(tmp_path: Path, count: int):
    calm, case = (Case(tmp_path / name, sale, rows=count, shop=True) for name in ("calm", "run"))
    expected = calm.generate()
    found = {one.inputs["number"] for one in expected if not one.scores["check"].value}
    assert found == {f"{number:04d}" for number in range(count) if mistake(number) != "none"}
    assert {one.scores["kept"].value for one in expected} == {1.0}
    assert {one.inputs["number"] for one in expected.where("score.check = 0")} == found
    kills, calls = 0, len(calm.paid(1)) // 4
    while case.killed(model_dies=calls):
        kills += 1
    assert kills >= 3
    run = case.generate()
    assert not any(one.failed for one in run), (
        "a call on a world has no effect elsewhere, so it may be repeated"
    )
    assert states(run) == states(expected)
    assert {one.id: one.scores for one in run} == {one.id: one.scores for one in expected}
