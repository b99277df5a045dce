"""The tool `python`: an interpreter in the sandbox that keeps its variables for the whole conversation.

The one decision to know: the sandbox has no network and no files, so the state of an interpreter follows from the code that
it executed. After a crash or a restart, that code is executed again in a new interpreter before the next call.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from functools import cache
from pathlib import Path
from typing import Any

from camel.core.action_text import RAISED
from camel.core.message import Action
from camel.core.tools import Threads, Tool, ToolFailed, Workplace
from camel.sandbox.process import Killed, Limits, Program, ProgramFailed, Sandbox, SandboxFailed

SECONDS = 30.0
"""Maximum duration of a call."""
LIMITS = Limits(seconds=600, wall=SECONDS, memory=1 << 30, answer=4 << 20)
_MOST_ERROR = 900
_GUEST = (Path(__file__).parent / "interpreter.py").read_text("utf-8")
_threads = Threads(16)


class PythonTool(Tool):
    """Executes Python code in the sandbox. Variables are kept until the conversation ends."""

    name = "python"
    description = (
        "Execute Python code and return what it prints and the value of its last expression. Variables are kept between "
        "calls. Only the standard library is available, without network and files."
    )
    idempotent = True
    seconds = 10 * SECONDS  # a call may first execute earlier ones again

    def __init__(self) -> None:
        _sandbox()  # raises an error now if the machine has none
        properties = {"code": {"type": "string", "description": "Python code"}}
        self.parameters = {"type": "object", "properties": properties, "required": ["code"]}

    async def call(self, arguments: dict[str, Any], place: Workplace) -> str:
        """Execute the code of a call."""
        code = arguments.get("code")
        if not isinstance(code, str):
            raise ToolFailed('wrong arguments: give the code, as {"code": "…"}')
        interpreter = _interpreter(place)
        try:
            output, error = await _threads.run(lambda: interpreter.execute(code))
        except asyncio.CancelledError:
            interpreter.give_up()
            raise
        interpreter.codes.append(code)
        if error:
            output = f"{output[-_MOST_ERROR // 3 :]}\n" if output else ""
            raise ToolFailed(f"{RAISED}{output}{error[len(output) - _MOST_ERROR :]}")
        return output or "(no output)"

    async def recall(self, arguments: dict[str, Any], action: Action, place: Workplace) -> None:
        """Note the code of an earlier call, for the next one."""
        if not action.error or action.error.startswith(RAISED):  # it was executed
            _interpreter(place).codes.append(str(arguments.get("code")))

    async def release(self, place: Workplace) -> None:
        """End the interpreter."""
        if PythonTool in place.kept:
            await _threads.run(_interpreter(place).end)


class Interpreter:
    """The interpreter of one conversation, and the code that it executed."""

    def __init__(self) -> None:
        self.codes: list[str] = []
        self._program: Program | None = None
        self._stale = False
        self._lock = threading.Lock()

    def execute(self, code: str) -> tuple[str, str]:
        """Execute code and return its output and its exception. Raise `ToolFailed` if the interpreter was stopped."""
        with self._lock:
            if self._stale:
                self._close()
            fresh, self._stale = self._program is None, False
            try:
                return self._run(code)
            except (Killed, SandboxFailed):
                # By others. The sandbox has no effects, so the call can be repeated.
                if fresh:
                    raise
                return self._run(code)

    def give_up(self) -> None:
        """Stop the call in progress, from another thread. The next call does not see what it did."""
        self._stale = True
        if program := self._program:
            program.kill()

    def end(self) -> None:
        """End the interpreter. The next call starts a new one and executes the earlier code again."""
        with self._lock:
            self._close()

    def _run(self, code: str) -> tuple[str, str]:
        try:
            earlier = self.codes if self._program is None else []
            program = self._program = self._program or _sandbox().start(_GUEST, "execute", LIMITS)
            for one in [*earlier, code]:
                program.renew()
                output, error = program.call((one,))
            return str(output), str(error)  # pyright: ignore[reportPossiblyUnboundVariable]
        except ProgramFailed as failed:
            self._close()
            why = f"it took longer than {SECONDS:g} seconds" if failed.kind == "time" else str(failed)
            effect = "This call had no effect, and the variables of earlier calls are kept"
            raise ToolFailed(f"The interpreter was stopped: {why}. {effect}") from None
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        if self._program is not None:
            self._program.close()
            self._program = None

    __del__ = _close  # of a conversation that was never released


def _interpreter(place: Workplace) -> Interpreter:
    return place.kept.setdefault(PythonTool, Interpreter())


@cache
def _sandbox() -> Sandbox:
    """Return the sandbox of this process, with one copy of Python for all conversations."""
    sandbox = Sandbox().__enter__()
    atexit.register(sandbox.__exit__, None, None, None)
    return sandbox
