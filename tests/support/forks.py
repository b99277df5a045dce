"""The `camel` command as a process of its own that starts at once: forked from a server that has imported everything.

A new interpreter spends one to two seconds of CPU on imports. A test that needs a real process (signals, a terminal,
kill) forks it here; a test that does not uses `tests.support.command`.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0
"""Seconds that a process may take for anything before a test fails."""
_PRELOADED = (
    "camel.cli", "camel.cli.panel", "camel.cli.plan", "camel.cli.seat", "camel.cli.keyboard", "camel.cli.screen",
    "camel.core.role_playing", "camel.generation.generate", "camel.generation.plan", "camel.jobs.launch", "camel.cli.command",
    "camel.jobs.status", "camel.models.connect", "camel.models.local", "camel.scenarios.checking",
    "camel.record.arrow", "camel.runs.control", "camel.evaluation.agents", "camel.evaluation.study_job", "aiohttp", "prompt_toolkit.shortcuts", "rich.console", "rich.live",
)  # fmt: skip


def wait_until(holds: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Look again and again until `holds`; `what` names it where it does not come."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"waited for {what}"
        time.sleep(0.01)


class Program:
    """A running `camel`, with its output in files. Leaving the `with` block kills it if it still runs.

    `stdin` and `stdout` may be descriptors of the test's own; `terminal`, that of a pseudo-terminal, becomes all three.
    """

    def __init__(
        self,
        *args: str,
        cwd: Path,
        env: dict[str, str] | None = None,
        stdin: int = -1,
        stdout: int = -1,
        terminal: int = -1,
    ) -> None:
        self.returncode: int | None = None
        self._out, self._err = (tempfile.TemporaryFile() for _ in range(2))  # noqa: SIM115
        with Path(os.devnull).open("rb") as nothing:
            streams = [
                nothing.fileno() if stdin < 0 else stdin,
                self._out.fileno() if stdout < 0 else stdout,
                self._err.fileno(),
            ]
            order = {
                "args": args,
                "cwd": str(cwd),
                "env": {**os.environ, **(env or {})},
                "tty": terminal >= 0,
            }
            self.pid, self._end = _server().start(order, [terminal] * 3 if terminal >= 0 else streams)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None:
        if self.poll() is None:
            self.kill()
            self.wait()
        self._end.close()
        self._out.close()
        self._err.close()

    @property
    def out(self) -> str:
        """What it has printed so far."""
        return os.pread(self._out.fileno(), 1 << 24, 0).decode()

    @property
    def err(self) -> str:
        """What it has printed to standard error so far."""
        return os.pread(self._err.fileno(), 1 << 24, 0).decode()

    def poll(self) -> int | None:
        """The exit code, or None while it runs; minus the signal that killed it."""
        if self.returncode is None:
            self._end.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                self._ended()
        return self.returncode

    def wait(self, seconds: float = PATIENCE) -> int:
        """Wait for its end; returns the exit code."""
        if self.returncode is None:
            self._end.settimeout(seconds)
            try:
                self._ended()
            except TimeoutError:
                raise AssertionError(f"it does not end:\n{self.out}\n{self.err}") from None
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it, with no chance to do anything."""
        self.send_signal(signal.SIGKILL)

    def _ended(self) -> None:
        code = self._end.recv(16)
        assert code, "the server of processes has ended"
        self.returncode = int(code)


class _Server:
    """The process that forks, seen from the tests."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = os.pathsep.join(filter(None, [str(ROOT), *sys.path]))
        # One thread: a fork copies only the thread that calls it.
        env = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.forks", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=env,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        atexit.register(self._stop)

    def start(self, order: dict[str, Any], streams: list[int]) -> tuple[int, socket.socket]:
        ours, theirs = socket.socketpair()
        # Too long for one message: the environment may be large.
        with theirs, tempfile.TemporaryFile() as file:
            file.write(json.dumps(order).encode())
            file.flush()
            socket.send_fds(self._socket, [b"start"], [file.fileno(), theirs.fileno(), *streams])
        return int(self._socket.recv(16)), ours

    def _stop(self) -> None:
        self._socket.close()  # which ends it
        self._process.wait(PATIENCE)


@functools.cache
def _server() -> _Server:
    return _Server()


def serve(control: socket.socket) -> None:
    """Fork on request and report how each child ended, until the tests' end of `control` closes."""
    for name in _PRELOADED:
        importlib.import_module(name)
    _make_parser()
    gc.freeze()
    ends: dict[int, tuple[int, socket.socket]] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd in ends:
                    pid, end = ends.pop(key.fd)
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    with end, contextlib.suppress(OSError):
                        end.send(str(code).encode())
                    continue
                message, descriptors, _, _ = socket.recv_fds(control, 16, 8)
                if not message:
                    return
                order, end, *streams = descriptors
                if not (pid := os.fork()):
                    _become(order, streams)
                for descriptor in (order, *streams):
                    os.close(descriptor)
                watched = os.pidfd_open(pid)
                ends[watched] = pid, socket.socket(fileno=end)
                selector.register(watched, selectors.EVENT_READ)
                control.send(str(pid).encode())


def _make_parser() -> None:
    """Make the parser of all commands before the first fork."""
    import typer.main

    from camel.cli import app

    parser = typer.main.get_command(app)
    typer.main.get_command = lambda typer_instance: parser


def _become(order: int, streams: list[int]) -> NoReturn:
    """In the child: take the place of `python -m camel ARGS`."""
    code = 70
    try:
        with open(order, "rb") as file:
            file.seek(0)
            wanted = json.load(file)
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        os.closerange(3, 256)
        os.setsid()
        if wanted["tty"]:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.chdir(wanted["cwd"])
        os.environ.clear()
        os.environ.update(wanted["env"])
        time.tzset()
        sys.argv = ["camel", *wanted["args"]]
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
            for number, mode in enumerate("rww")
        )
        sys.stderr.reconfigure(line_buffering=True)
        if wanted["tty"]:
            sys.stdout.reconfigure(line_buffering=True)
        from camel.cli import main

        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    # What the interpreter does at its end: coverage writes its file there.
    with contextlib.suppress(BaseException):
        import threading

        threading._shutdown()  # pyright: ignore
        atexit._run_exitfuncs()
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        serve(asked)
