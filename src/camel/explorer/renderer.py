"""Renders text of models as HTML in a helper process with limits on CPU time and memory.

The packages for Markdown, highlighting and math use many regular expressions. Some of those take quadratic or exponential
time: 89 characters in a `tads3` block kept Pygments busy for hours, 20,000 newlines in a `c` block for minutes. Python cannot
interrupt a regular expression in a thread, and a list of safe patterns would be outdated after an upgrade of a package. So the
work is done in a process that the kernel ends when its CPU time is used up, and the text is then shown unformatted.

    this process  --text-->  worker, forked by the helper; SIGPROF ends it at the limit
                  <--HTML--  or the helper's report that its worker has died; it forks the next one in milliseconds

The limit is on CPU time, not on elapsed time, so a busy machine shows the same pages as an idle one.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import resource
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import lru_cache
from html import escape
from typing import IO

from markupsafe import Markup

from camel.explorer.markup import LANGUAGES, MAX_MARKDOWN, marked, prepare, render

BASE, PER_CHARACTER = 0.1, 20e-6
"""CPU seconds allowed per text, and in addition per character. Ordinary text takes a fraction of them."""
MEMORY = 2**30
"""Maximum address space of a worker, in bytes."""
_HEAD = struct.Struct(">QI")
_FAILED = 0
"""Sent in place of a request's number after a worker has died."""
_PROGRAM = "from camel.explorer.renderer import help_out; help_out()"


def as_html(text: str, terms: Sequence[str] = ()) -> Markup:
    """Return a text as HTML, with the searched words marked. If rendering takes too long, the text is unformatted."""
    return marked(_rendered(text), terms)


@lru_cache(maxsize=512)
def _rendered(text: str) -> str:
    html = _RENDERER.render(text) if len(text) <= MAX_MARKDOWN else None
    return f'<div class="plain">{escape(text)}</div>' if html is None else html


class Renderer:
    """A helper process that starts at first use. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._number = _FAILED
        """The number of the last request. A response has the same number, so that texts cannot be confused."""

    def start(self) -> None:
        """Start the helper process if it is not running. Does not wait until it is ready."""
        with self._lock:
            self._pipes()

    def render(self, text: str) -> str | None:
        """Return a text as HTML. Return None if it cannot be rendered within the limits."""
        with self._lock:
            try:
                there, back = self._pipes()
                self._number += 1
                _send(there.fileno(), self._number, text.encode("utf-8", "surrogatepass"))
                number, data = _receive(back.fileno())
                while number not in (self._number, _FAILED):
                    number, data = _receive(back.fileno())
            except (OSError, EOFError):
                self._end()
                return None
            return None if number == _FAILED else data.decode("utf-8", "surrogatepass")

    def close(self) -> None:
        """End the helper process. The next call of `render` starts it again."""
        with self._lock:
            self._end()

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        if self._process is None or self._owner != os.getpid():  # a fork must not share its parent's pipes
            path = os.pathsep.join(filter(None, sys.path))
            self._process = subprocess.Popen(  # noqa: S603 - our own arguments
                [sys.executable, "-P", "-c", _PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
                bufsize=0,
            )
            self._owner = os.getpid()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def _end(self) -> None:
        if self._process is not None and self._owner == os.getpid():
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):
                    assert pipe is not None
                    pipe.close()
            self._process.wait()
        self._process = None


_RENDERER = Renderer()
start = _RENDERER.start
atexit.register(_RENDERER.close)


# --- the helper process --------------------------------------------------------------------------------------------


def help_out() -> None:
    """Run the helper process: fork a worker that renders, and replace it when it dies, until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C and ends this one
    prepare("")
    first = True
    while worker := os.fork():
        _, status = os.waitpid(worker, 0)
        if status == 0:
            return
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGPROF:
            return  # killed by another process, perhaps in the middle of a request: a new helper is needed
        if first:  # More such texts may follow: load all languages for the next workers.
            first = False
            for language in LANGUAGES:
                prepare(f"```{language}")
        with contextlib.suppress(OSError):
            _send(1, _FAILED, b"")
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    while True:
        try:
            number, data = _receive(0)
        except EOFError:
            os._exit(0)
        text = data.decode("utf-8", "surrogatepass")
        prepare(text)
        signal.setitimer(signal.ITIMER_PROF, BASE + PER_CHARACTER * len(text))
        html = render(text)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _send(1, number, html.encode("utf-8", "surrogatepass"))


def _send(descriptor: int, number: int, data: bytes) -> None:
    rest = memoryview(_HEAD.pack(number, len(data)) + data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _receive(descriptor: int) -> tuple[int, bytes]:
    number, size = _HEAD.unpack(_exactly(descriptor, _HEAD.size))
    return number, _exactly(descriptor, size)


def _exactly(descriptor: int, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        if not (more := os.read(descriptor, size - len(data))):
            raise EOFError
        data += more
    return bytes(data)
