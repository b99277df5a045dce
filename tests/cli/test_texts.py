"""The full texts that users read: help, the status of a run, and what a person in a seat is shown.

They are in tests/snapshots; `make snapshots` updates them.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from rich.console import Console

from camel.cli.panel import panel
from camel.cli.play import _take_back  # pyright: ignore[reportPrivateUsage]
from camel.cli.screen import Screen
from camel.cli.seat import Seat
from camel.core.errors import Left
from camel.core.history import History
from camel.core.message import Usage
from camel.core.model import Request
from camel.jobs.status import Snapshot, StageState
from camel.models.replica import ReplicaState
from tests.support import in_process

Check = Callable[..., None]
PLAIN = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


@pytest.mark.parametrize("path", [*commands(in_process.parser())], ids=" ".join)
def test_help(path: tuple[str, ...], snapshot: Check):
    shown = in_process.invoke([*path, "--help"], env=PLAIN)
    assert shown.exit_code == 0, shown.output
    assert f"Usage: {' '.join(('camel', *path))} " in shown.output
    snapshot("help", shown.output)


def state(committed: int, **more: Any) -> Snapshot:
    stages = (
        StageState("assistant_role", 1, 1, 1),
        StageState("user_role", 1, 1, 1),
        StageState("task", 4, 4, 4),
        StageState(
            "conversations", 800, committed, more.pop("finished", committed), failed=more.pop("failed", 0)
        ),
    )
    given: dict[str, Any] = {
        "run": "runs/trial",
        "scenario": "ai_society",
        "model": "gpt-4.1-mini",
        "stages": stages,
        "stops": {"done": committed} if committed else {},
        "usage": Usage(90_000, 30_000, 10_000, 900) if committed else Usage(),
        "money": 0.0831 if committed else None,
        "expected": Usage(180_000, 60_000, 0, 1_800),
        "expected_money": 0.168,
        "log": "runs/trial/log.jsonl",
        "resume": "camel generate trial.toml",
    }
    return Snapshot(**given | more)


SILENT = ReplicaState(
    url="http://127.0.0.1:8000/v1", state="open", limit=None, in_flight=0, waiting=3, open=12, most_open=None,
    calls=400, refused=0, failed=8, cached=0.0, failing=8, said="connection refused",
)  # fmt: skip
STATES = {
    "new": state(0, state="new"),
    "working": state(
        400, state="working", finished=420, age=2.0, workers=1, in_flight=32, calls_per_second=12.5,
        tokens_per_second=1800.0, elapsed=72.0, eta=75.0,
    ),
    "working, with old figures": state(400, state="working", age=3600.0, workers=1),
    "working, with an endpoint that does not answer": state(
        400, state="working", age=2.0, workers=1, replicas=(SILENT,),
    ),
    "paused": state(400, state="working", age=2.0, workers=1, paused=True),
    "stopped by a budget": state(400, state="stopped", finished=413, why="the budget of 900 calls is used up"),
    "stopped by a person": state(400, state="stopped", why="stopped by you"),
    "stopped, in an object store": state(
        400, state="stopped", run="s3://bucket/trial", journals="/scratch/journals", why="it was cut off"
    ),
    "complete": state(800, state="complete", stops={"done": 790, "max_messages": 10}),
    "complete, with failures": state(
        800, state="complete", failed=3, stops={"done": 797, "error": 3}, errors={"HTTP 500": 4}, retries=9,
        rate_limited=2,
    ),
    "complete, forked": state(800, state="complete", forked_from="runs/first"),
}  # fmt: skip


@pytest.mark.parametrize("name", STATES)
def test_status(name: str, monkeypatch: pytest.MonkeyPatch, snapshot: Check):
    now = STATES[name]
    monkeypatch.setattr("camel.jobs.status.read_status", lambda run: now)
    shown = in_process.invoke(["run", "status", now.run], env=PLAIN)
    assert shown.exit_code == 0, shown.output
    assert now.run in shown.output
    assert ("resume  camel generate trial.toml" in shown.output) == (now.state in ("stopped", "new"))
    snapshot("status", shown.output)
    out = io.StringIO()
    Console(file=out, width=96, color_system=None, force_terminal=True, legacy_windows=False).print(
        panel(now, 96)
    )
    snapshot("status", out.getvalue(), "panel")


class Typed:
    """A keyboard on which a test has typed; the hints are shown where the prompt would be."""

    def __init__(self, out: io.StringIO, *lines: str) -> None:
        self._out, self._lines = out, list(lines)

    async def read(self, heading: str, style: str, hints: Sequence[str]) -> str:
        line = self._lines.pop(0)
        self._out.write(f"▌ {heading} [{' · '.join(hints)}]\n› {line}\n")
        return line


def seated(*lines: str) -> tuple[Seat, Screen, io.StringIO]:
    out = io.StringIO()
    screen = Screen(Console(file=out, width=100), {"user": "Trader", "assistant": "Programmer"})
    return Seat(screen, Typed(out, *lines)), screen, out


@pytest.mark.parametrize("name", ["user", "assistant"])
async def test_a_speakers_seat(name: str, snapshot: Check):
    seat, _, out = seated("/help", "/nonsense", "/ai 0", "/ai", "/ai 3", "hello", "/stop")
    request = Request(History(), speaker=name)
    assert [await seat.ask(request) for _ in range(3)][-1] == "hello"
    with pytest.raises(Left) as left:
        await seat.ask(request)
    snapshot("screen", f"{out.getvalue()}{left.value}")


async def test_the_critics_seat(snapshot: Check):
    seat, screen, out = seated("/help", "7", "/done", "2 in rhymes", "2", "/ai 2", "more", "1")
    for options, final in ((["a", "b"], False), (["a", "b", "c"], False), (["a"], False), (["a"], True)):
        seat.greet("critic")
        await seat.choose("user", options, final)

    class HandedOver:
        def take_back(self) -> bool:
            return True

    assert _take_back([HandedOver()], screen)  # type: ignore[list-item]
    snapshot("screen", out.getvalue())
