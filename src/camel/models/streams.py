"""Server-sent events: the lines in which every protocol streams its replies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from camel.core.errors import ReplyTooLarge
from camel.core.model import Reply
from camel.core.thought import SpeechFilter

MAX_LINE = 4 * 2**20
_IGNORED = (b":", b"event:", b"id:", b"retry:")
"""Lines to ignore: comments, event names, ids."""
STARTS = (b"data:", *_IGNORED)


class EventStream(ABC):
    """Splits a streamed reply into events, which a protocol assembles."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._stray = bytearray()
        """Lines outside of events: possibly a plain body that was labeled as a stream."""
        self._shown = SpeechFilter()
        self.done = False
        """Whether the stream has signaled its end."""

    @abstractmethod
    def _take(self, payload: bytes) -> Iterator[str]:
        """Process an event and yield the text in it that can be shown."""

    @abstractmethod
    def finished(self) -> Reply:
        """Return the complete reply. Raise a `ModelError` if the stream ended early."""

    def feed(self, data: bytes) -> Iterator[str]:
        """Process more bytes. Yield each new piece of the first choice's text."""
        self._pending += data
        if len(self._pending) + len(self._stray) > MAX_LINE:
            raise ReplyTooLarge(f"a line of the stream exceeds {MAX_LINE:,} bytes")
        if b"\n" not in data:
            return
        *lines, self._pending = self._pending.split(b"\n")
        for line in lines:
            if self.done:
                return
            if line.startswith(b"data:"):
                payload = bytes(line[5:]).strip()
                if payload == b"[DONE]":
                    self.done = True
                elif payload:
                    yield from self._take(payload)
                if self.done and (rest := self._shown.rest()):
                    yield rest
            elif not line.startswith(_IGNORED):
                self._stray += line + b"\n"

    def _show(self, text: str) -> Iterator[str]:
        """Yield the part of a text that is known to be speech, not reasoning."""
        if shown := self._shown.feed(text):
            yield shown
