"""`camel` in a process of its own on a pseudo-terminal, seen through a terminal emulator: what a person would see, and
every byte of it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pyte

from tests.support.forks import PATIENCE, Program

CTRL_C, CTRL_D, CTRL_J, ENTER, ALT_ENTER, UP = "\x03", "\x04", "\n", "\r", "\x1b\r", "\x1b[A"


def paste(text: str) -> str:
    """The bytes of a paste, for a program that enabled bracketed paste."""
    return f"\x1b[200~{text}\x1b[201~"


class Terminal:
    """`with Terminal(["play"], cwd, {}) as terminal: terminal.wait_for("›"); terminal.type("hello\\r")`."""

    def __init__(
        self, args: Sequence[str], cwd: Path, env: dict[str, str], columns: int = 100, rows: int = 40
    ) -> None:
        self.raw = b""
        self._screen: Any = pyte.HistoryScreen(columns, rows, history=2000, ratio=0.001)
        self._stream: Any = pyte.ByteStream(self._screen)
        self.master, slave = pty.openpty()
        self._size(columns, rows)
        self.before: list[Any] = termios.tcgetattr(slave)
        self.process = Program(*args, cwd=cwd, env={**env, "TERM": "xterm-256color"}, terminal=slave)
        self._slave = slave

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None:
        self.process.__exit__(kind, error, trace)
        for descriptor in (self.master, self._slave):
            if descriptor >= 0:
                os.close(descriptor)

    def _size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns: int, rows: int) -> None:
        """As when a window is dragged: the kernel tells the process."""
        self._screen.resize(rows, columns)
        self._size(columns, rows)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self.master, keys.encode())

    def read(self, seconds: float = 0.05) -> None:
        """Take in what comes next, or nothing if that takes longer than `seconds`."""
        if select.select([self.master], [], [], seconds)[0]:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return
            self.raw += data
            self._stream.feed(data)

    def until(self, seen: Callable[[], bool], what: object, seconds: float = PATIENCE) -> str:
        """Read until `seen` holds; returns what is seen. `what` names it where it does not come."""
        end = time.monotonic() + seconds
        while not seen():
            assert time.monotonic() < end, f"waited for {what}, saw:\n{self.text}"
            if self.process.poll() is None:
                self.read()
                continue
            self.drain()
            assert seen(), f"it ended; wanted {what}, saw:\n{self.text}"
        return self.text

    def wait_for(self, *texts: str, seconds: float = PATIENCE) -> str:
        """Read until all of `texts` are to be seen, scrolled-off lines included; returns what is seen."""
        return self.until(lambda: all(text in self.text for text in texts), texts, seconds)

    def prompt(self, line: str = "›", seconds: float = PATIENCE) -> str:
        """Read until the last prompt on the screen begins with `line`; returns what is seen."""
        return self.until(
            lambda: any(shown.startswith(line) for shown in self.shown[-6:]), f"a prompt {line!r}", seconds
        )

    def drain(self) -> None:
        """Take in what is there already."""
        while select.select([self.master], [], [], 0)[0]:
            size = len(self.raw)
            self.read()
            if len(self.raw) == size:
                return

    def end(self, seconds: float = PATIENCE) -> int:
        """Read to the end and return the exit code."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < end, f"it does not end:\n{self.text}"
            self.read()
        self.drain()
        assert self.process.returncode is not None
        return self.process.returncode

    def hang_up(self) -> None:
        """Close the terminal, as when its window is closed or the connection breaks."""
        os.close(self._slave)
        os.close(self.master)
        self._slave = self.master = -1

    def kill(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    @property
    def modes(self) -> list[Any]:
        """How the terminal is set now: echo, line mode and the rest."""
        return termios.tcgetattr(self._slave)

    @property
    def shown(self) -> list[str]:
        """The lines on the screen down to the last that is not empty."""
        lines = [line.rstrip() for line in self._screen.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    @property
    def text(self) -> str:
        """Everything that was printed and not erased, scrolled-off lines included."""
        top = [
            "".join(row[at].data for at in range(self._screen.columns)) for row in self._screen.history.top
        ]
        return "\n".join([*(line.rstrip() for line in top), *self.shown])
