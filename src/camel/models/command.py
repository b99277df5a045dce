"""Any program as a model: `command:python my_agent.py` reads requests and writes replies, one JSON object per line.

The one decision to know: a second process watches the program's standard input, and ends the program and all that it has
started 3 seconds after the input was closed. So nothing keeps running if CAMEL is killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

import msgspec

from camel.core.checks import shown
from camel.core.errors import (
    DeadlineExceeded,
    InputError,
    MalformedReply,
    ModelError,
    ServerFailed,
    Unreachable,
)
from camel.core.message import well_formed
from camel.core.model import Model, Reply, Request, Text
from camel.models.completions import check_nested, read_reply
from camel.models.local import to_stderr
from camel.models.person import called
from camel.models.protocol import encode
from camel.models.wire import field_of, load_loosely, one_line

COMMAND = "command:"
MAX_LINE = 64 * 2**20
_MAX_PRINTED = 1_000
"""Maximum number of lines of a program that are printed."""
_GUARD = """import os, select, sys, time
if not os.fork():
    os.closerange(1, 3)
    (end := select.poll()).register(0, 0)
    end.poll()
    time.sleep(3)
    os.killpg(0, 9)
os.execvp(sys.argv[1], sys.argv[1:])"""


class CommandModel(Model):
    """A program that answers requests. Each event loop starts it at its first call, and again after it has ended."""

    def __init__(self, command: str, *, context_tokens: int | None = None, deadline: float = 600.0) -> None:
        """`command` runs without a shell. `deadline` limits a call, in seconds."""
        self.name, self.context_tokens, self._deadline = COMMAND + command, context_tokens, deadline
        self._words, self._ids = split_command(command), count(1)
        self._programs: dict[asyncio.AbstractEventLoop, asyncio.Task[_Program]] = {}

    async def reply(self, request: Request) -> Reply:
        """Send the request to the program and return its reply."""
        number, started, program = next(self._ids), time.monotonic(), None
        line = _encode(request, number)
        try:
            async with asyncio.timeout(self._deadline):
                program = await asyncio.shield(self._running())
                reply = await program.ask(number, line)
        except TimeoutError:
            if program and program.answered < started:  # it hangs; otherwise it may still answer other calls
                program.process.close()
            raise DeadlineExceeded(f"no reply from '{self.name}' within {self._deadline:g} s") from None
        if request.watch:
            request.watch(Text(request.speaker, reply.content))
        return Reply(reply.choices, reply.usage, reply.model or self.name, time.monotonic() - started)

    def _running(self) -> asyncio.Task[_Program]:
        loop = asyncio.get_running_loop()
        task = self._programs.get(loop)
        if task is None or (task.done() and (task.exception() or task.result().end.done())):
            self._programs = {one: its for one, its in self._programs.items() if not one.is_closed()}
            task = self._programs[loop] = loop.create_task(_start(self._words))
        return task

    async def aclose(self) -> None:
        """End the program. The next call starts it again."""
        if task := self._programs.pop(asyncio.get_running_loop(), None):
            with suppress(ModelError):
                program = await task
                program.input.close()
                await asyncio.wait([program.end])


async def _start(words: list[str]) -> _Program:
    guarded = [sys.executable, "-I", "-S", "-c", _GUARD, *words]
    try:
        start = asyncio.get_running_loop().subprocess_exec
        return (await start(partial(_Program, words), *guarded, start_new_session=True))[1]
    except OSError as error:
        raise Unreachable(f"cannot start '{shlex.join(words)}': {error}") from None


class _Program(asyncio.SubprocessProtocol):
    def __init__(self, words: list[str]) -> None:
        self._name, self._last, self._printed, self._rest = shlex.join(words), "", 0, bytearray()
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._loop = asyncio.get_running_loop()
        self.answered, self.end = 0.0, self._loop.create_future()

    async def ask(self, number: int, line: bytes) -> Reply:
        self._waiting[number] = self._loop.create_future()
        try:
            self.input.write(line)
            return await self._waiting[number]
        finally:
            self._waiting.pop(number, None)

    def connection_made(self, transport: Any) -> None:
        self.process, self.input = transport, transport.get_pipe_transport(0)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._print(data)
            return
        self._rest += data
        if b"\n" in data:
            *lines, self._rest = self._rest.split(b"\n")
            for line in lines:
                self._take(bytes(line))
        if len(self._rest) > MAX_LINE:
            self._rest, self._last = bytearray(), f"a line has more than {MAX_LINE:,} bytes"
            self.process.close()

    def process_exited(self) -> None:
        with suppress(OSError):
            os.killpg(self.process.get_pid(), 9)  # what the program has started
        self._loop.call_later(5, self.process.close)  # something outside of the group may keep the pipes open

    def connection_lost(self, exc: Exception | None) -> None:
        self._take(bytes(self._rest))
        self.process.close()
        self.end.set_result(None)
        why = f"the program '{self._name}' ended with code {self.process.get_returncode()}: {self._last}"
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(Unreachable(why.removesuffix(": ")))

    def _take(self, line: bytes) -> None:
        try:
            check_nested(line)
            data = load_loosely(line)
            number = field_of(data, "id")
            if type(number) is not int:
                self._print(line)
            elif (future := self._waiting.get(number)) and not future.done():  # neither unknown nor answered
                self.answered = time.monotonic()
                try:
                    future.set_result(_read(data))
                except ModelError as error:
                    future.set_exception(error)
        except ModelError as error:
            self._print(str(error).encode())
            self.process.close()

    def _print(self, data: bytes) -> None:
        for line in filter(None, map(one_line, data.decode("utf-8", "replace").splitlines())):
            self._last, self._printed = line, self._printed + 1
            if self._printed <= _MAX_PRINTED:
                to_stderr(f"{self._name}: {line}" if self._printed < _MAX_PRINTED else f"{self._name}: …")


def split_command(command: str) -> list[str]:
    """Return the words of a command. Raise an `InputError` if its program does not exist."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"cannot read the command {shown(command)} ({error}): check its quotes") from None
    if not words or not shutil.which(words[0]):
        what = f"there is no program {shown(words[0])}" if words else "the command is empty"
        raise InputError(f"{what}: write command:PROGRAM ARGUMENTS, such as command:python my_agent.py")
    return words


def _encode(request: Request, number: int) -> bytes:
    fields: dict[str, Any] = {"id": number, "session": well_formed(request.session)}
    fields |= {"speaker": well_formed(request.speaker), **msgspec.to_builtins(request.sampling)}
    if request.tools:
        functions = [msgspec.to_builtins(one) for one in request.tools]
        fields["tools"] = [{"type": "function", "function": one} for one in functions]
    return b"".join([encode(fields)[:-1], b',"messages":[', request.history.encoded(), b"]}\n"])


def _read(data: dict[str, Any]) -> Reply:
    """Return the reply in a line: a message of chat completions, with further fields."""
    if isinstance(error := data.get("error"), str):
        raise ServerFailed(one_line(error))
    if not (data.get("content") or data.get("tool_calls") or error):
        raise MalformedReply("the reply has no content")
    choice = {"message": data, "finish_reason": data.get("finish_reason")}
    others = {name: data.get(name) for name in ("usage", "model", "error")}
    return read_reply(json.dumps({"choices": [choice], **others}).encode())


def serve_seat(reply: Callable[..., Any]) -> None:
    """Answer the requests of a `command:` model with a plain or async function `reply(messages, **request)`.

    It returns the text, or a dict with `content`, `usage` and other fields. What it prints goes to standard error.
    """

    async def answer(id: int, messages: list[dict[str, Any]], **request: Any) -> None:
        try:
            said = await called(partial(reply, messages, **request))
            fields = said if isinstance(said, dict) else {"content": said}
        except Exception as error:
            traceback.print_exc()
            fields = {"error": f"{type(error).__name__}: {error}"}
        out.write(json.dumps({**fields, "id": id}) + "\n")
        out.flush()

    async def serve() -> None:
        async with asyncio.TaskGroup() as tasks:
            while line := await asyncio.to_thread(sys.stdin.readline):
                tasks.create_task(answer(**json.loads(line)))

    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        asyncio.run(serve())
