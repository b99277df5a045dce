"""`camel play --tools`: what is refused before a call is paid, and the question before each call."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from camel.cli.play import _ask_first
from camel.cli.screen import Screen
from camel.core.tools import Toolbox, Workplace, tool
from tests.support.acting import act
from tests.support.command import camel


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--confirm"], "--tools"),
        (["--tools", "snake"], "snake"),
        (["--tools", "mcp:time"], "mcp:time=COMMAND"),
        (["--tools", "no_module_here:f"], "no_module_here"),
        (["--tools", "json:dumps", "--human", "assistant"], "--human assistant"),
    ],
)
def test_what_is_refused_before_a_call_is_paid(arguments: list[str], part: str, tmp_path: Path):
    done = camel("play", *arguments, cwd=tmp_path)
    assert done.status == 2
    assert part in done.stderr


class Keys:
    def __init__(self, *answers: str) -> None:
        self.answers, self.asking = list(answers), 0

    async def read(self, heading: str, style: str, hints: Sequence[str]) -> str:
        self.asking += 1
        assert self.asking == 1, "two questions at once"
        await asyncio.sleep(0.01)
        self.asking -= 1
        if not self.answers:
            raise EOFError
        return self.answers.pop(0)


@pytest.mark.parametrize(
    ("answers", "allowed"),
    [(["y"], True), ([" YES "], True), (["n"], False), (["what?"], False), ([], False)],
)
async def test_a_person_is_asked_before_each_call(answers: list[str], allowed: bool):
    done: list[str] = []

    @tool
    def buy(item: str) -> str:
        "Buy an item."
        done.append(item)
        return "bought"

    shown = io.StringIO()
    screen = Screen(Console(file=shown, width=200), {})
    place = Workplace(confirm=_ask_first(screen, Keys(*answers)))
    action = await act(Toolbox([buy]), "buy", {"item": "tea\x1b[2J\u202e"}, place)
    assert bool(done) is allowed
    assert bool(action.error) is not allowed
    assert "buy(" in shown.getvalue()
    assert "tea" in shown.getvalue()
    assert not {"\x1b", "\u202e"} & set(shown.getvalue())


async def test_questions_come_one_after_the_other():
    @tool(read_only=True)
    def look(item: str) -> str:
        "Look at an item."
        return item

    ask = _ask_first(Screen(Console(file=io.StringIO()), {}), Keys("y", "n", "y"))
    one = Toolbox([look]).tools["look"]
    assert await asyncio.gather(*(ask("assistant", one, {"item": str(n)}) for n in range(3))) == [
        True,
        False,
        True,
    ]
