"""A raw TCP server that says exactly the bytes it is given, for tests of how the client takes bad answers.

An answer is a sequence of steps: bytes to write, or a `Step`. The n-th request gets the n-th answer, and the last
answer again for every request after it. A connection is closed at the end of an answer unless it ends in `KEEP`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import zlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Pause:
    """Say nothing for a while."""

    seconds: float


@dataclass(frozen=True)
class Drip:
    """Write one byte at a time."""

    data: bytes
    gap: float


@dataclass(frozen=True)
class Flood:
    """Write the same piece until `total` bytes went out (or forever), holding only that piece in memory."""

    piece: bytes
    total: float = float("inf")
    gap: float = 0.0
    """Seconds between two pieces."""


@dataclass(frozen=True)
class Reset:
    """Break the connection with a TCP reset."""


@dataclass(frozen=True)
class Keep:
    """Leave the connection open for the next request."""


@dataclass(frozen=True)
class Unread:
    """As the first step: answer as soon as the head of the request is there, leaving its body unread."""


Step = bytes | Pause | Drip | Flood | Reset | Keep | Unread
Answer = Sequence[Step]

RESET, KEEP, UNREAD, HANG = Reset(), Keep(), Unread(), Pause(60)


class HostileServer:
    """Serves answers and remembers every request it got."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.answers = answers
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        self.open = 0
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def requests(self) -> int:
        return len(self.heads)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        try:
            while await self._exchange(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # swallowed, because asyncio's own callback for this task logs a cancelled one as a fault
        finally:
            self.open -= 1
            self._tasks.discard(task)
            if not writer.is_closing():
                writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Take one request and answer it; whether the connection stays open."""
        if not self.answers:  # hang up on every caller
            writer.transport.abort()
            return False
        head = await reader.readuntil(b"\r\n\r\n")
        answer = self.answers[min(len(self.heads), len(self.answers) - 1)]
        self.heads.append(head)
        if not (answer and isinstance(answer[0], Unread)):
            length = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
            self.bodies.append(await reader.readexactly(int(length[0].split(b":")[1]) if length else 0))
        for step in answer:
            match step:
                case bytes():
                    writer.write(step)
                    await writer.drain()
                case Pause(seconds):
                    await asyncio.sleep(seconds)
                case Drip(data, gap):
                    for byte in data:
                        writer.write(bytes((byte,)))
                        await writer.drain()
                        await asyncio.sleep(gap)
                case Flood(piece, total, gap):
                    sent = 0
                    while sent < total:
                        writer.write(piece)
                        await writer.drain()
                        await asyncio.sleep(gap)
                        sent += len(piece)
                case Reset():
                    _reset(writer)
                    return False
                case Keep():
                    return True
                case Unread():
                    pass
        return False

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _reset(writer: asyncio.StreamWriter) -> None:
    import socket
    import struct

    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@contextlib.asynccontextmanager
async def serving(*answers: Answer) -> AsyncIterator[HostileServer]:
    """A server on a free port of loopback."""
    hostile = HostileServer(answers)
    server = await asyncio.start_server(hostile._serve, "127.0.0.1", 0, limit=2**20, backlog=1_000)
    hostile.port = server.sockets[0].getsockname()[1]
    try:
        yield hostile
    finally:
        server.close()
        await hostile.close()
        await server.wait_closed()


def http(status: int = 200, body: bytes = b"", *headers: str, reason: str = "Said") -> bytes:
    """A whole HTTP/1.1 answer with its length."""
    lines = [f"HTTP/1.1 {status} {reason}", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


def head(*headers: str, status: str = "200 OK", version: str = "HTTP/1.1") -> bytes:
    """Only the head of an answer."""
    return "\r\n".join([f"{version} {status}", *headers, "", ""]).encode("latin-1")


def chunked(*pieces: bytes, last: bool = True) -> bytes:
    """Pieces in chunked transfer encoding."""
    sent = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return sent + (b"0\r\n\r\n" if last else b"")


USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 4}}


def completion(content: Any = "Solution: hello", finish: Any = "stop", **other: Any) -> dict[str, Any]:
    """A good chat completion; keywords replace its fields."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish}
    return {
        "id": "c",
        "object": "chat.completion",
        "model": "m-1",
        "choices": [choice],
        "usage": USAGE,
    } | other


def encoded(data: Any) -> bytes:
    """JSON as most servers send it: escaped to ASCII."""
    return json.dumps(data).encode()


def good(content: Any = "Solution: hello", *headers: str, **other: Any) -> bytes:
    """A whole good answer."""
    return http(200, encoded(completion(content, **other)), "Content-Type: application/json", *headers)


def delta(content: Any = None, *, index: Any = 0, finish: Any = None, **other: Any) -> dict[str, Any]:
    """A chunk of a stream."""
    piece = {
        "index": index,
        "delta": {} if content is None else {"content": content},
        "finish_reason": finish,
    }
    return {"id": "c", "object": "chat.completion.chunk", "model": "m-1", "choices": [piece]} | other


def events(*chunks: dict[str, Any] | bytes, done: bool = True, end: bytes = b"\n") -> bytes:
    """Chunks as server-sent events."""
    payloads = [chunk if isinstance(chunk, bytes) else encoded(chunk) for chunk in chunks]
    return b"".join(
        b"data: " + payload + end + end for payload in [*payloads, *([b"[DONE]"] if done else [])]
    )


STREAM_HEAD = head("Content-Type: text/event-stream", "Transfer-Encoding: chunked")


def stream(*pieces: bytes, last: bool = True) -> bytes:
    """A whole streamed answer, each piece a chunk of the transfer."""
    return STREAM_HEAD + chunked(*pieces, last=last)


def bomb(size: int, wbits: int = 31) -> bytes:
    """`size` zero bytes, compressed; only the checksum at the end is wrong."""
    packer, zeros = zlib.compressobj(9, zlib.DEFLATED, wbits), bytes(2**20)
    first, again = (packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    return first + again * (size // len(zeros) - 1) + packer.flush()


def gzipped(data: bytes) -> bytes:
    return gzip.compress(data)
