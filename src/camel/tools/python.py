"""The tool `python`: an interpreter in the sandbox that keeps its variables for the whole conversation.

The one decision to know: the sandbox has no network and no files, so the state of an interpreter follows from the code that
it executed. After a crash or a restart, that code is executed again in a new interpreter before the next call.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections import OrderedDict
from functools import cache
from typing import Any

from camel.core.background import Threads
from camel.core.message import Action
from camel.core.tools import Tool, ToolFailed, Workplace
from camel.sandbox.process import Killed, Limits, Program, ProgramFailed, Sandbox, SandboxFailed

SECONDS = 30.0
"""Maximum duration of a call."""
LIMITS = Limits(seconds=600, wall=SECONDS, memory=1 << 30, answer=4 << 20)
MOST_LIVE = 64
"""Maximum number of interpreters of a process. The one that was used least recently is ended, and starts again when needed."""
RAISED = "The code raised an exception.\n"
"""Start of the error of a call whose code was executed, so that it is executed again to restore the state."""
_KEY = "camel.python"
_MOST_OUTPUT = 200_000
_MOST_ERROR = 900

_GUEST = '''
import sys
import _ast

class Printed:
    encoding, errors, closed = "utf-8", "backslashreplace", False
    def __init__(self):
        self.parts, self.size = [], 0
    def write(self, text):
        if type(text) is not str:
            raise TypeError("write() argument must be str, not " + type(text).__name__)
        if self.size < MOST:
            self.parts.append(text[: MOST - self.size])
        self.size += len(text)
        return len(text)
    def writelines(self, lines):
        for line in lines:
            self.write(line)
    def flush(self):
        pass
    def isatty(self):
        return False

main = sys.modules["__main__"] = type(sys)("__main__")
space = main.__dict__
count = 0
seeded = False

def execute(code):
    global count, seeded
    count += 1
    name, printed, error = "<call %d>" % count, Printed(), ""
    sys.stdout = sys.stderr = printed
    try:
        if not seeded and "random" in code:
            # Random numbers follow from the code, so that executing it again gives the same state.
            import random
            random.seed(code)
            seeded = True
        tree = compile(code, name, "exec", 0x400, dont_inherit=True)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], _ast.Expr) else None
        exec(compile(tree, name, "exec", dont_inherit=True), space)
        if last is not None:
            exec(compile(_ast.Interactive([last]), name, "single", dont_inherit=True), space)
    except BaseException as raised:
        try:
            import linecache, traceback
            linecache.cache[name] = (len(code), None, code.splitlines(True), name)
            trace = raised.__traceback__
            while trace is not None and trace.tb_frame.f_code.co_filename != name:
                trace = trace.tb_next
            error = "".join(traceback.format_exception(type(raised), raised, trace, chain=False))
        except BaseException:
            error = type(raised).__name__
        error = error or type(raised).__name__
    return "".join(printed.parts)[:MOST], printed.size > MOST, error[-4000:]
'''.replace("MOST", str(_MOST_OUTPUT))  # fmt: skip


class PythonTool(Tool):
    """Executes Python code in the sandbox. Variables stay until the conversation ends."""

    name = "python"
    description = (
        "Execute Python code and return what it prints and the value of its last expression. Variables are kept between "
        "calls. Only the standard library is available, without network and files."
    )
    parameters = {  # noqa: RUF012 - never changed
        "type": "object",
        "properties": {"code": {"type": "string", "description": "Python code"}},
        "required": ["code"],
        "additionalProperties": False,
    }
    idempotent = True
    seconds = 10 * SECONDS  # a call may first execute earlier ones again

    async def call(self, arguments: dict[str, Any], place: Workplace) -> str:
        """Execute the code of a call."""
        code = _code(arguments)
        if code is None:
            raise ToolFailed('wrong arguments: give the code, as {"code": "…"}')
        kept = _interpreter(place)
        try:
            return await _threads().run(lambda: kept.execute(code))
        except asyncio.CancelledError:
            kept.kill()
            raise

    async def recall(self, arguments: dict[str, Any], action: Action, place: Workplace) -> None:
        """Note the code of an earlier call, for the next one."""
        code = _code(arguments)
        if code is not None and (not action.error or action.error.startswith(RAISED)):
            _interpreter(place).codes.append(code)

    async def release(self, place: Workplace) -> None:
        """End the interpreter."""
        if _KEY in place.kept:
            await _threads().run(place.kept[_KEY].end)


class Interpreter:
    """The interpreter of one conversation, and the code that it executed."""

    def __init__(self) -> None:
        self.codes: list[str] = []
        self._program: Program | None = None
        self._lock = threading.Lock()

    def execute(self, code: str) -> str:
        """Execute code and return its output. Raise `ToolFailed` for the model."""
        with self._lock:
            fresh = self._program is None
            try:
                output, cut, error = self._run(code)
            except (
                Killed,
                SandboxFailed,
            ):  # killed from outside: the sandbox has no effects, so it is safe to repeat
                if fresh:
                    raise
                output, cut, error = self._run(code)
            self.codes.append(code)
        output = output.rstrip("\n") + "\n(cut off)" * cut
        if error:
            output = f"{output[-_MOST_ERROR // 3 :]}\n" if output else ""
            raise ToolFailed(f"{RAISED}{output}{error.rstrip()[len(output) - _MOST_ERROR :]}")
        return output or "(no output)"

    def kill(self) -> None:
        """Stop a call in progress from another thread."""
        program = self._program
        if program is not None:
            program.kill()

    def end(self) -> None:
        """End the interpreter. The next call starts a new one and executes the earlier code again."""
        with self._lock:
            self._close()

    def _run(self, code: str) -> tuple[str, bool, str]:
        try:
            if self._program is None:
                _make_room(self)
                self._program = _sandbox().start(_GUEST, "execute", LIMITS)
                for earlier in self.codes:
                    self._program.renew()
                    self._program.call((earlier,))
            self._program.renew()
            output, cut, error = self._program.call((code,))
            return str(output), bool(cut), str(error)
        except ProgramFailed as failed:
            self._close()
            why = f"it took longer than {SECONDS:g} seconds" if failed.kind == "time" else str(failed)
            raise ToolFailed(
                f"The interpreter was stopped: {why}. This call had no effect; variables of earlier calls are kept"
            ) from None
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        if self._program is not None:
            self._program.close()
            self._program = None
        with _guard:
            _live.pop(id(self), None)

    def end_if_idle(self) -> None:
        """End the interpreter unless a call is in progress."""
        if self._lock.acquire(blocking=False):
            try:
                self._close()
            finally:
                self._lock.release()


_live: OrderedDict[int, Interpreter] = OrderedDict()
_guard = threading.Lock()


def _make_room(new: Interpreter) -> None:
    """Register an interpreter, and end the one that was started first if there are too many."""
    with _guard:
        _live[id(new)] = new
        old = next(iter(_live.values())) if len(_live) > MOST_LIVE else new
    if old is not new:
        old.end_if_idle()


def _interpreter(place: Workplace) -> Interpreter:
    found: Interpreter = place.kept.setdefault(_KEY, Interpreter())
    with _guard:
        if id(found) in _live:
            _live.move_to_end(id(found))
    return found


def _code(arguments: dict[str, Any]) -> str | None:
    code = arguments.get("code")
    return code if isinstance(code, str) and len(arguments) == 1 else None


@cache
def _threads() -> Threads:
    return Threads(16)


@cache
def _sandbox() -> Sandbox:
    """Return the sandbox of this process, with one copy of Python for all conversations."""
    sandbox = Sandbox().__enter__()
    atexit.register(sandbox.__exit__, None, None, None)
    return sandbox
