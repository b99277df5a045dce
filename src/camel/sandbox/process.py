"""Starts a program in a sandbox, calls it, and ends it with everything it started.

    with Sandbox() as sandbox, sandbox.start(source, "add") as program:
        program.call((1, 2))        # 3, or `ProgramFailed`

bubblewrap provides namespaces (no network, no other processes, no users), a file system that is one read-only copy of Python
without /proc or /dev, and a filter of system calls. Resource limits and a timeout cover the rest. The one decision to know:
after the interpreter has reported that it is ready, every problem counts as a failure of the program. Before that, or if
bubblewrap itself is killed, the sandbox has failed, which raises `SandboxFailed` and is never a result of the program.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import platform
import selectors
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self

from camel.core.errors import CamelError, InputError
from camel.core.toml import read_table
from camel.sandbox.guest import FOREIGN, RAISED, READY, VALUE
from camel.sandbox.image import PYTHON, make_image
from camel.sandbox.values import BadBytes, decode, encode

_MACHINES = read_table(Path(__file__).with_name("seccomp.toml"))
"""The number of the architecture and the allowed calls, by machine."""
_CLONE3 = 435
_X32 = 0x40000000
"""First system call number of another convention (x32) on x86_64. Such calls would bypass the list."""

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NOT_PERMITTED, _NO_SUCH_CALL = 1, 38


@cache
def filter_program(machine: str = "") -> bytes:
    """Return the filter of system calls, as bubblewrap passes it to the kernel. `machine` defaults to the type of this machine.

    Calls that it does not allow fail with "operation not permitted", and the program continues. There is no fork, no thread, no
    socket, no signal to others, nothing that creates, renames or removes a file, and none of the calls that are often used in
    attacks on kernels (io_uring, bpf, user namespaces, keys, ptrace, perf, userfaultfd …). `execve` is allowed, because it
    starts the interpreter itself; whatever it starts has the same filter, and there is nothing else to start.
    """
    machine = machine or platform.machine()
    if machine not in _MACHINES:
        known = " and ".join(_MACHINES)
        raise InputError(f"the sandbox supports {known}, not {machine}: use such a machine")
    allowed: list[int] = _MACHINES[machine]["calls"]
    lines: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, 4),  # the convention of the call
        (_EQUAL, 1, 0, _MACHINES[machine]["architecture"]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),  # its number
        (_AT_LEAST, len(allowed) + 3, 0, _X32),
        # The C library tries this call first, and the forbidden ones below only if it does not exist.
        (_EQUAL, len(allowed) + 3, 0, _CLONE3),
    ]
    lines += [(_EQUAL, len(allowed) - place, 0, number) for place, number in enumerate(allowed)]
    lines += [
        (_RETURN, 0, 0, _ERROR | _NOT_PERMITTED),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _KILL),
        (_RETURN, 0, 0, _ERROR | _NO_SUCH_CALL),
    ]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


NOBODY = 65534
START_SECONDS = 60.0
"""Maximum number of seconds until an interpreter is ready. It is generous, because the machine may be busy."""
_PIECE = 1 << 16
_LOADER = (
    "import sys,marshal,os\n"
    "def r(n):\n"
    " d=b''\n"
    " while len(d)<n:\n"
    "  p=os.read(0,n-len(d))\n"
    "  if not p: os._exit(1)\n"
    "  d+=p\n"
    " return d\n"
    "exec(marshal.loads(r(int.from_bytes(r(4),'big'))),{'__name__':'__main__'})"
)

_PROBE = """
def probe():
    import os, socket
    seen = sorted(os.listdir("/"))
    for attempt in (os.fork, socket.socket, lambda: open("/probe", "w")):
        try:
            seen.append(str(attempt()))
        except OSError:
            seen.append("forbidden")
    return seen
"""


class SandboxFailed(CamelError):
    """The sandbox could not be started, or was killed from outside. It does not mean that the program is wrong."""


class ProgramFailed(Exception):
    """The program did not return a value. `kind` is the reason: raised, foreign, ended, time, size, damaged."""

    def __init__(self, kind: str, text: str = "") -> None:
        super().__init__(f"{kind}: {text}" if text else kind)
        self.kind, self.text = kind, text


class Killed(Exception):
    """The interpreter was killed by another party: by the kernel for lack of memory, or by the program itself."""


class Limits(NamedTuple):
    """Limits on the time, memory and answers of a program."""

    seconds: int = 10
    """Seconds of processor time in total."""
    wall: float = 60.0
    """Seconds of wall-clock time in total. It is longer than `seconds`, because the machine may be busy."""
    memory: int = 1 << 30
    """Bytes of address space."""
    answer: int = 32 << 20
    """Maximum bytes of one answer."""
    answers: int = 1 << 30
    """Maximum bytes of all answers."""


class Foreign:
    """An answer that is not a plain value. Comparing it, or using it as a condition, raises `ProgramFailed`."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __eq__(self, other: object) -> bool:
        raise ProgramFailed("foreign", self.kind)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __bool__(self) -> bool:
        raise ProgramFailed("foreign", self.kind)


class Sandbox:
    """Starts programs in isolation. Use it as a context manager, which removes the sandbox's copy of Python at the end."""

    def __init__(self, *, contained: bool = True) -> None:
        self.contained = contained
        """If false, programs run as ordinary processes. Use this only for code that you trust."""
        self._image: Path | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        if self.contained:
            _bubblewrap()
            filter_program()
        return self

    def __exit__(self, *error: object) -> None:
        if self._image is not None:
            shutil.rmtree(self._image, ignore_errors=True)
            self._image = None

    def start(self, source: str, entry: str, limits: Limits | None = None) -> Program:
        """Load a program and find its function `entry`. Raises `ProgramFailed` or `SandboxFailed`."""
        program = Program(self._command(), source, entry, limits or Limits(), self.contained)
        try:
            program.begin()
        except BaseException:
            program.close()
            raise
        return program

    def check(self) -> None:
        """Check that programs run and are isolated. Raises `SandboxFailed` if they are not."""
        if not self.contained:
            return
        with self.start(_PROBE, "probe") as program:
            seen = program.call(())
        assert self._image is not None
        if seen != [*sorted(os.listdir(self._image)), "forbidden", "forbidden", "forbidden"]:  # noqa: PTH208
            raise SandboxFailed(f"the sandbox does not isolate programs: {seen}")

    def _command(self) -> list[str]:
        if not self.contained:
            return [sys.executable, "-I", "-S", "-B", "-c", _LOADER]
        with self._lock:
            if self._image is None:
                self._image = make_image()
        return [
            _bubblewrap(),
            *("--unshare-all", "--as-pid-1", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
            *("--uid", str(NOBODY), "--gid", str(NOBODY), "--hostname", "sandbox"),
            *("--ro-bind", str(self._image), "/", "--chdir", "/", "--clearenv"),
            *("--setenv", "LD_LIBRARY_PATH", "/lib", "--setenv", "PYTHONHOME", "/"),
            # A fixed hash seed: the order of a set must not decide which programs pass.
            *("--setenv", "PYTHONHASHSEED", "0", "--setenv", "PYTHONUTF8", "1"),
            *("--seccomp", "SECCOMP", "--", f"/{PYTHON}", "-S", "-B", "-c", _LOADER),
        ]


class Program:
    """A running program whose function can be called."""

    def __init__(
        self, command: Sequence[str], source: str, entry: str, limits: Limits, contained: bool
    ) -> None:
        self._limits, self._contained = limits, contained
        self._until = time.monotonic() + START_SECONDS
        self._buffer = bytearray()
        self._heard = 0
        self._ready = False
        self.seconds = 0.0
        """Seconds of processor time that the program used. It is set after the program has ended."""
        self._process = _spawn(command, contained)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._out, selectors.EVENT_READ)
        allowed = {
            "RLIMIT_AS": limits.memory,
            "RLIMIT_CPU": limits.seconds,
            "RLIMIT_CORE": 0,
            "RLIMIT_FSIZE": 0,
            "RLIMIT_NOFILE": 32,
            "RLIMIT_MEMLOCK": 0,
        }
        code = _runner()
        request = encode((source, entry, allowed))
        self._first = b"".join(len(part).to_bytes(4, "big") + part for part in (code, request))

    def begin(self) -> None:
        """Wait until the interpreter is ready and the function is loaded."""
        answers = self._exchange([self._first], 2)
        if next(answers) != READY:
            raise SandboxFailed("the interpreter in the sandbox sent an invalid message")
        self._ready = True
        self._until = time.monotonic() + self._limits.wall
        loaded = next(answers)
        if loaded != READY:
            raise _failure(loaded)

    def call(self, positional: Sequence[Any], named: Mapping[str, Any] | None = None) -> Any:
        """Call the function. Returns exact built-in values or a `Foreign`, or raises `ProgramFailed`."""
        answer = next(self.answers([request_for(positional, named)]))
        if answer[:1] == FOREIGN:
            return Foreign(answer[1:].decode("utf-8", "replace"))
        if answer[:1] != VALUE:
            raise _failure(answer)
        try:
            return decode(answer[1:])
        except BadBytes as error:
            raise ProgramFailed("damaged", str(error)) from None

    def renew(self) -> None:
        """Start the time limit again, for a program that is called many times."""
        self._until = time.monotonic() + self._limits.wall

    def kill(self) -> None:
        """End the program from another thread. A call in progress fails, and `close` is still needed."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def answers(self, requests: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the raw answers to many calls as they arrive. The calls are sent without waiting for answers."""
        return self._exchange(
            [len(request).to_bytes(4, "big") + request for request in requests], len(requests)
        )

    def _exchange(self, requests: Sequence[bytes], count: int) -> Iterator[bytes]:
        pending = memoryview(b"".join(requests))
        if pending:
            self._selector.register(self._in, selectors.EVENT_WRITE)
        try:
            while count:
                frame = self._frame()
                if frame is not None:
                    count -= 1
                    yield frame
                    continue
                left = self._until - time.monotonic()
                ready = self._selector.select(max(0.0, left)) if left > 0 else []
                if not ready and not self._ready:
                    raise SandboxFailed(f"the sandbox did not start within {START_SECONDS:g} s")
                if not ready:
                    raise ProgramFailed("time", "by the clock")
                for key, _ in ready:
                    if key.fd == self._out:
                        self._read()
                        continue
                    try:
                        pending = pending[os.write(self._in, pending[:_PIECE]) :]
                    except BrokenPipeError:
                        pending = pending[:0]
                    if not pending:
                        self._selector.unregister(self._in)
        finally:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(self._in)

    def _frame(self) -> bytes | None:
        buffer = self._buffer
        if len(buffer) < 4:
            return None
        size = int.from_bytes(buffer[:4], "big")
        if not 0 < size <= self._limits.answer:
            raise ProgramFailed("size" if size else "damaged")
        if len(buffer) < 4 + size:
            return None
        frame = bytes(buffer[4 : 4 + size])
        del buffer[: 4 + size]
        return frame

    def _read(self) -> None:
        try:
            data = os.read(self._out, 1 << 20)
        except BlockingIOError:
            return
        if not data:
            self._ended()
        self._heard += len(data)
        if self._heard > self._limits.answers:
            raise ProgramFailed("size")
        self._buffer += data

    def _ended(self) -> None:
        """Raise the error that explains why the pipe was closed: a failure of the program or of the sandbox."""
        status = self._wait(2.0)
        if not self._ready:
            said = b"" if self._process.stderr is None else self._process.stderr.read(2_000)
            text = " ".join(said.decode("utf-8", "replace").split()) or f"exit status {status}"
            raise SandboxFailed(f"the sandbox did not start: {text}{_hint(text)}")
        if status is None:
            raise ProgramFailed("ended", "it closed its answers")
        if status in (128 + signal.SIGXCPU, -signal.SIGXCPU) or self.seconds > 0.8 * self._limits.seconds:
            raise ProgramFailed("time", "of the processor")
        if status < 0 and self._contained:
            raise SandboxFailed(f"the sandbox was killed by signal {-status}")
        if status in (128 + signal.SIGKILL, -signal.SIGKILL):
            raise Killed
        raise ProgramFailed("ended", f"exit status {status}")

    def _wait(self, patience: float) -> int | None:
        """Wait for the process to end and return its exit status. Return None after `patience` seconds."""
        process, until = self._process, time.monotonic() + patience
        while process.returncode is None:
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                self.seconds = used.ru_utime + used.ru_stime
            elif time.monotonic() > until:
                return None
            else:
                time.sleep(0.001)
        return process.returncode

    def close(self) -> None:
        """End the program and all processes that it started."""
        process = self._process
        self._selector.close()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        # Its end of the pipe is closed, so it normally exits by itself.
        if self._wait(0.0 if self._buffer else 0.02) is None:
            self.kill()
            self._wait(30.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def request_for(positional: Sequence[Any], named: Mapping[str, Any] | None = None) -> bytes:
    """Encode the arguments of a call as bytes."""
    return encode((tuple(positional), dict(named or {})))


def _failure(answer: bytes) -> ProgramFailed:
    kind = {RAISED: "raised", FOREIGN: "foreign"}.get(answer[:1], "damaged")
    return ProgramFailed(kind, answer[1:401].decode("utf-8", "replace"))


def _spawn(command: Sequence[str], contained: bool) -> subprocess.Popen[bytes]:
    # Never as root: in the sandbox it would still have root's rights to every reachable file.
    root = contained and os.geteuid() == 0
    lowered: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if root else {}
    with contextlib.ExitStack() as stack:
        passed: tuple[int, ...] = ()
        if contained:
            read, write = os.pipe()
            stack.callback(os.close, read)
            os.write(write, filter_program())
            os.close(write)
            passed = (read,)
            command = [str(read) if word == "SECCOMP" else word for word in command]
        try:
            return subprocess.Popen[bytes](
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                pass_fds=passed,
                start_new_session=True,
                cwd="/",
                env={"PATH": os.environ.get("PATH", os.defpath)},
                **lowered,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise SandboxFailed(f"cannot start the sandbox: {error}") from None


@cache
def _bubblewrap() -> str:
    found = shutil.which("bwrap")
    if found is None:
        linux = sys.platform.startswith("linux")
        fix = (
            "bwrap is not installed: apt install bubblewrap"
            if linux
            else "it runs on Linux only: use such a machine"
        )
        raise InputError(f"programs need bubblewrap, and {fix}")
    return found


def _hint(text: str) -> str:
    if "namespace" in text or "uid map" in text:
        return ": this system does not allow users to create namespaces (see sysctl kernel.unprivileged_userns_clone, and AppArmor)"
    if "Permission denied" in text or "find source path" in text:
        return ": other users cannot enter the folder for temporary files; set TMPDIR to another folder"
    return ""


@cache
def _runner() -> bytes:
    """Return the code that runs inside the sandbox, compiled by this interpreter, because a copy of it runs the code."""
    here = Path(__file__).parent
    values = (here / "values.py").read_text("utf-8")
    own = (here / "guest.py").read_text("utf-8").replace("from __future__ import annotations\n", "")
    return marshal.dumps(compile(values + own, "guest.py", "exec", dont_inherit=True, optimize=2))
