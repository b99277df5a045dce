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
from typing import Any, cast

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
from camel.models.completions import read_reply
from camel.models.local import to_stderr
from camel.models.person import called
from camel.models.protocol import encode
from camel.models.wire import field_of, load_loosely, one_line

COMMAND = "command:"
MAX_LINE, MAX_PRINTED = 64 * 2**20, 1_000
"""Maximum bytes of a reply, and maximum number of other lines that are printed."""
_GUARD = """import os, select, signal, sys, time
if not (child := os.fork()):
    if os.fork():  # the program must not have it as a child
        os._exit(0)
    os.closerange(1, 3)
    (end := select.poll()).register(0, 0)
    end.poll()
    time.sleep(3)
    os.killpg(0, 9)
os.waitpid(child, 0)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])"""


class CommandModel(Model):
    """A program that answers requests. Each event loop starts it at its first call, and again after it has ended."""

    def __init__(self, command: str, context_tokens: int | None = None, deadline: float = 600.0) -> None:
        """`command` runs without a shell. `deadline` limits a call, in seconds."""
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise InputError(f"cannot read {shown(command)} ({error}): check its quotes") from None
        if not self._words or not shutil.which(self._words[0]):
            raise InputError(f"no program is named {shown(self._words[:1])}: write command:PROGRAM ARGUMENTS")
        self.name, self.context_tokens, self._deadline = COMMAND + command, context_tokens, deadline
        self._ids, self._programs = count(1), dict[asyncio.AbstractEventLoop, asyncio.Task[Any]]()

    async def reply(self, request: Request) -> Reply:
        """Send the request to the program and return its reply."""
        number, started, program = next(self._ids), time.monotonic(), None
        line = _encode(request, number)  # before the history grows
        try:
            async with asyncio.timeout(self._deadline):
                program = (await asyncio.shield(self._running()))[1]
                reply = await program.ask(number, line)
        except TimeoutError:
            if program and program.answered < started:  # it hangs; otherwise it may still answer other calls
                program.process.close()
            raise DeadlineExceeded(f"no reply from '{self.name}' within {self._deadline:g} s") from None
        except OSError as error:
            raise Unreachable(f"cannot start '{self.name}': {error}") from None
        if request.watch:
            request.watch(Text(request.speaker, reply.content))
        return Reply(reply.choices, reply.usage, reply.model or self.name, time.monotonic() - started)

    def _running(self) -> asyncio.Task[Any]:
        loop = asyncio.get_running_loop()
        task = self._programs.get(loop)
        if task is None or (task.done() and (task.exception() or task.result()[0].is_closing())):
            self._programs = {one: its for one, its in self._programs.items() if not one.is_closed()}
            guarded = [sys.executable, "-I", "-S", "-c", _GUARD, *self._words]
            program = partial(_Program, self._words[-1].rpartition("/")[2][:40])
            task = loop.create_task(loop.subprocess_exec(program, *guarded, start_new_session=True))
            self._programs[loop] = task
        return task

    async def aclose(self) -> None:
        """End the program. The next call starts it again."""
        if task := self._programs.pop(asyncio.get_running_loop(), None):
            with suppress(OSError):
                program = (await task)[1]
                # A program that does not read would never see the end of its input.
                (program.process if program.input.get_write_buffer_size() else program.input).close()
                await asyncio.wait([program.end])


class _Program(asyncio.SubprocessProtocol):
    def __init__(self, name: str) -> None:
        self._name, self._last, self._printed = name, "", 0
        self._rest = {1: bytearray(), 2: bytearray()}
        self._waiting: dict[Any, asyncio.Future[Reply]] = {}
        self.answered, self.end = 0.0, asyncio.get_running_loop().create_future()

    def ask(self, number: int, line: bytes) -> asyncio.Future[Reply]:
        self._waiting[number] = future = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda _: self._waiting.pop(number, None))
        self.input.write(line)
        return future

    def connection_made(self, transport: Any) -> None:
        self.process, self.input = transport, transport.get_pipe_transport(0)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        rest = self._rest[fd]
        rest += data
        *lines, self._rest[fd] = rest.split(b"\n") if b"\n" in data else [rest]
        for line in lines:
            (self._take if fd == 1 else self._print)(bytes(line))
        if len(self._rest[fd]) > MAX_LINE:
            self._rest[fd], self._last = bytearray(), f"a line has more than {MAX_LINE:,} bytes"
            self.process.close()

    def process_exited(self) -> None:
        with suppress(OSError):
            os.killpg(self.process.get_pid(), 9)  # what the program has started
        asyncio.get_running_loop().call_later(5, self.process.close)  # if another process has the pipes

    def connection_lost(self, exc: Exception | None) -> None:
        self._take(bytes(self._rest[1]))
        self._print(bytes(self._rest[2]))
        self.process.close()
        self.end.set_result(None)
        why = f"the program '{self._name}' ended with code {self.process.get_returncode()}: {self._last}"
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(Unreachable(why.removesuffix(": ")))

    def _take(self, line: bytes) -> None:
        # An empty list takes 3 bytes as JSON and 64 in memory.
        nested = len(line) > 2**20 and line.count(b"{") + line.count(b"[") > 250_000
        data: Any = None if nested else load_loosely(line)
        number = field_of(data, "id")
        if type(number) is not int:
            self._print(line)
        elif (future := self._waiting.get(number)) and not future.done():  # neither unknown nor answered
            self.answered = time.monotonic()
            try:
                future.set_result(_read(data))
            except ModelError as error:
                future.set_exception(error)
            except (ValueError, RecursionError) as error:
                future.set_exception(MalformedReply(f"the reply cannot be read: {error}"))

    def _print(self, data: bytes) -> None:
        for line in filter(None, map(one_line, data.decode("utf-8", "replace").splitlines())):
            self._last, self._printed = line, self._printed + 1
            if self._printed <= MAX_PRINTED:
                to_stderr(f"{self._name}: {line if self._printed < MAX_PRINTED else '…'}")


def _encode(request: Request, number: int) -> bytes:
    names = {"session": well_formed(request.session), "speaker": well_formed(request.speaker)}
    fields: dict[str, Any] = {"id": number, **names, **msgspec.to_builtins(request.sampling)}
    if request.tools:
        functions = msgspec.to_builtins(request.tools)
        fields["tools"] = [{"type": "function", "function": one} for one in functions]
    return b"".join([encode(fields)[:-1], b',"messages":[', request.history.encoded(), b"]}\n"])


def _read(data: dict[str, Any]) -> Reply:
    if isinstance(error := data.get("error"), str):
        raise ServerFailed(one_line(error))
    body = {"choices": [{"message": data, "finish_reason": data.get("finish_reason")}], "error": error}
    return read_reply(json.dumps({**body, "usage": data.get("usage"), "model": data.get("model")}).encode())


def serve_seat(reply: Callable[..., Any]) -> None:
    """Answer the requests of a `command:` model with a plain or async function `reply(messages, **request)`.

    It returns the text, or a dict with `content`, `usage` and other fields. What it prints goes to standard error.
    """

    async def answer(id: int, messages: Any, **request: Any) -> None:
        try:
            said = await called(partial(reply, messages, **request))
        except Exception as error:
            traceback.print_exc()
            said = {"error": f"{type(error).__name__}: {error}"}
        fields = cast("dict[str, Any]", said) if isinstance(said, dict) else {"content": said}
        print(json.dumps({**fields, "id": id}), file=out, flush=True)

    async def serve() -> None:
        async with asyncio.TaskGroup() as tasks:
            while line := await asyncio.to_thread(sys.stdin.readline):
                tasks.create_task(answer(**json.loads(line)))

    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        asyncio.run(serve())
