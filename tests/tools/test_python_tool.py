"""The sandboxed interpreter as a tool: state, errors, limits, and state after kills and restarts."""

from __future__ import annotations

import asyncio
import shutil
from typing import Any

import pytest

from camel.core.message import Action
from camel.core.tools import Toolbox, ToolLimits, Workplace
from camel.tools import python
from tests.support.acting import act

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap"),
]

CODES = [
    "x = 3\nimport random",
    "y = [random.random() for _ in range(3)]",
    "x += 1\nraise ValueError(x)",
    "def double(n):\n    return 2 * n",
    "names = {'b', 'a', 'c'}\nz = double(x)",
    "broken (",
    "print(hash('text'))",
]
STATE = "x, y, z, list(names), double(4), random.random()"


@pytest.fixture
def toolbox() -> Toolbox:
    return Toolbox(["python"])


async def run(toolbox: Toolbox, code: str, place: Workplace) -> Action:
    return await act(toolbox, "python", {"code": code}, place)


def interpreter(place: Workplace) -> Any:
    return place.kept[python.PythonTool]


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("1 + 1", "2"),
        ("print('a')\nprint('b')", "a\nb"),
        ("x = 5", "(no output)"),
        ("x = 5\nx", "5"),
        ("print('a')\n'b'", "a\n'b'"),
        ("import sys\nprint('error', file=sys.stderr)", "error"),
        ("'\\ud800'", "'\\ud800'"),
        ("None", "(no output)"),
        ("__name__", "'__main__'"),
        ("sorted(set(globals()) - {'__builtins__'})", None),
    ],
)
async def test_what_a_call_returns(toolbox: Toolbox, code: str, result: str | None):
    place = Workplace()
    action = await run(toolbox, code, place)
    assert not action.error
    if result is None:
        assert "os" not in action.result  # nothing of the host's code is visible
    else:
        assert action.result == result


async def test_variables_are_kept_and_not_shared(toolbox: Toolbox):
    first, second = Workplace(), Workplace()
    await run(toolbox, "x = 1", first)
    await run(toolbox, "x = 2", second)
    assert [(await run(toolbox, "x", place)).result for place in (first, second)] == ["1", "2"]


async def test_an_exception_is_an_error_with_the_last_lines(toolbox: Toolbox):
    place = Workplace()
    code = (
        "def fail(n):\n    if n:\n        fail(n - 1)\n    raise KeyError('lost')\nprint('before')\nfail(200)"
    )
    action = await run(toolbox, code, place)
    assert not action.result
    assert "before" in action.error
    assert action.error.endswith("KeyError: 'lost'")
    assert "raise KeyError('lost')" in action.error
    assert len(action.error) <= 1_000
    assert "SyntaxError" in (await run(toolbox, "x = ", place)).error
    assert "SystemExit" in (await run(toolbox, "raise SystemExit", place)).error


@pytest.mark.parametrize("arguments", [{}, {"code": 3}, {"command": "1"}])
async def test_wrong_arguments(toolbox: Toolbox, arguments: dict[str, Any]):
    assert "code" in (await act(toolbox, "python", arguments)).error


async def test_the_sandbox_has_no_files_and_no_network(toolbox: Toolbox):
    place = Workplace()
    for code in (
        "open('/etc/passwd').read()",
        "open('/tmp/x', 'w')",
        "import socket; socket.socket()",
        "import os; os.fork()",
    ):
        assert "Error" in (await run(toolbox, code, place)).error


# ---------------------------------------------------------------- state


async def expected(toolbox: Toolbox) -> tuple[str, list[Action]]:
    place = Workplace()
    actions = [await run(toolbox, code, place) for code in CODES]
    return (await run(toolbox, STATE, place)).result, actions


@pytest.mark.parametrize("after", [1, 3, len(CODES)])
async def test_the_state_after_a_kill_equals_the_state_without_one(toolbox: Toolbox, after: int):
    state, _ = await expected(toolbox)
    place = Workplace()
    for number, code in enumerate(CODES, 1):
        await run(toolbox, code, place)
        if number == after:
            interpreter(place)._program.kill()
    assert (await run(toolbox, STATE, place)).result == state


async def test_the_state_is_restored_from_recorded_calls(toolbox: Toolbox):
    state, actions = await expected(toolbox)
    place, tool = Workplace(), toolbox.tools["python"]
    for code, action in zip(CODES, actions, strict=True):
        await tool.recall({"code": code}, action, place)
    assert interpreter(place)._program is None  # nothing is executed before the next call
    assert (await run(toolbox, STATE, place)).result == state


async def test_the_state_is_restored_after_a_release(toolbox: Toolbox):
    place = Workplace()
    await run(toolbox, "x = 1", place)
    await toolbox.tools["python"].release(place)
    assert interpreter(place)._program is None
    assert (await run(toolbox, "x", place)).result == "1"


async def test_a_call_that_ends_the_interpreter_has_no_effect(toolbox: Toolbox):
    place = Workplace()
    await run(toolbox, "x = 1", place)
    action = await run(toolbox, "x = 2\nimport os\nos._exit(0)", place)
    assert "stopped" in action.error
    assert (await run(toolbox, "x", place)).result == "1"
    again = Workplace()  # and not when the recorded call is read again
    await toolbox.tools["python"].recall({"code": "x = 1"}, Action("python", "", "(no output)"), again)
    await toolbox.tools["python"].recall({"code": "x = 2\nimport os\nos._exit(0)"}, action, again)
    assert (await run(toolbox, "x", again)).result == "1"


async def test_a_call_that_a_person_refused_is_not_executed_later(toolbox: Toolbox):
    async def refuse(speaker: str, tool: Any, arguments: dict[str, Any]) -> bool:
        return False

    action = await run(toolbox, "x = 2", Workplace(confirm=refuse))
    place = Workplace()
    await toolbox.tools["python"].recall({"code": "x = 2"}, action, place)
    assert "NameError" in (await run(toolbox, "x", place)).error


# ---------------------------------------------------------------- limits


async def test_time_memory_and_output_are_limited(toolbox: Toolbox, monkeypatch: pytest.MonkeyPatch):
    limits = python.LIMITS._replace(wall=3.0, memory=1 << 28)
    monkeypatch.setattr(python, "LIMITS", limits)
    place = Workplace()
    await run(toolbox, "x = 1", place)
    assert "seconds" in (await run(toolbox, "while True: pass", place)).error
    assert "MemoryError" in (await run(toolbox, "'a' * (1 << 29)", place)).error
    large = await run(toolbox, "for _ in range(1000): print('long line ' * 1000)", place)
    assert "cut off" in large.result
    assert len(large.result) < 25_000
    assert (await run(toolbox, "x", place)).result == "1"


async def test_a_call_that_is_given_up_is_stopped():
    toolbox = Toolbox(["python"], limits=ToolLimits(seconds=1.0))
    place = Workplace()
    action = await run(toolbox, "x = 1\nwhile True: pass", place)
    assert "longer" in action.error
    place.seconds = 0.0
    assert "NameError" in (await run(toolbox, "x", place)).error
    assert len(interpreter(place).codes) == 1


async def test_many_conversations_at_once(toolbox: Toolbox):
    places = [Workplace() for _ in range(20)]
    await asyncio.gather(*(run(toolbox, f"x = {n}", place) for n, place in enumerate(places)))
    found = await asyncio.gather(*(run(toolbox, "x", place) for place in places))
    assert [one.result for one in found] == [str(n) for n in range(20)]
    await asyncio.gather(*(toolbox.tools["python"].release(place) for place in places))
