"""The part of HTTP/1.1 that an OpenAI-compatible endpoint needs: parses requests and writes responses."""

from __future__ import annotations

from http import HTTPStatus
from typing import NamedTuple

_MAX_HEAD = 64 << 10
_MAX_BODY = 64 << 20
_CHUNKED = -1

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"

_STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n" % (status, status.phrase.encode())
    for status in HTTPStatus
}


class BadRequest(Exception):
    """The bytes are not a request that this server accepts."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class HttpRequest(NamedTuple):
    """One complete request."""

    method: str
    path: str
    session: str
    body: bytes
    closes: bool
    """Whether the client wants the connection closed after the reply."""


class _Head(NamedTuple):
    request: HttpRequest
    """The request without its body."""
    expects: bool
    body_at: int
    body_length: int


class RequestReader:
    """Collects the bytes of one connection and returns complete requests."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: _Head | None = None

    def feed(self, data: bytes | memoryview) -> None:
        """Add bytes from the socket."""
        self._buffer += data

    def next(self) -> HttpRequest | None:
        """Return the next complete request, or `None` until more bytes arrive."""
        head = self._head
        if head is None:
            head = self._head = _parse_head(self._buffer)
            if head is None:
                return None
        taken = _take_body(self._buffer, head)
        if taken is None:
            return None
        body, end = taken
        del self._buffer[:end]
        self._head = None
        return head.request._replace(body=body)

    def wants_continue(self) -> bool:
        """Return whether the client waits for `100 Continue` before its body; true once per request."""
        if self._head is None or not self._head.expects:
            return False
        self._head = self._head._replace(expects=False)
        return True


def respond(status: int, body: bytes, headers: bytes = b"") -> bytes:
    """Return a complete JSON response; `headers` are lines that each end in CRLF."""
    return b"%s%sContent-Length: %d\r\n\r\n%s" % (_STATUS_LINES[status], headers, len(body), body)


def chunk(data: bytes) -> bytes:
    """Return one chunk of a streamed response."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def _parse_head(buffer: bytearray) -> _Head | None:
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        if len(buffer) > _MAX_HEAD:
            raise BadRequest(431, "the request's head is too large")
        return None
    request_line, *lines = buffer[:end].decode("latin-1").split("\r\n")
    try:
        method, target, version = request_line.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", "0"))
    except ValueError:
        raise BadRequest(400, "this is not an HTTP/1.1 request") from None
    if headers.get("transfer-encoding", "").lower() == "chunked":
        length = _CHUNKED
    elif not 0 <= length <= _MAX_BODY:
        raise BadRequest(413, f"the request's body exceeds {_MAX_BODY} bytes")
    closes = version == "HTTP/1.0" or headers.get("connection", "").lower() == "close"
    request = HttpRequest(method, target.partition("?")[0], headers.get("x-session-id", ""), b"", closes)
    return _Head(request, headers.get("expect", "").lower() == "100-continue", end + 4, length)


def _take_body(buffer: bytearray, head: _Head) -> tuple[bytes, int] | None:
    if head.body_length == _CHUNKED:
        return _take_chunks(buffer, head.body_at)
    end = head.body_at + head.body_length
    if len(buffer) < end:
        return None
    with memoryview(buffer) as view:
        return bytes(view[head.body_at : end]), end


def _take_chunks(buffer: bytearray, at: int) -> tuple[bytes, int] | None:
    # Starts over with each packet: skipping over the sizes is cheap, and nothing is copied before the end.
    if len(buffer) - at > 2 * _MAX_BODY:
        raise BadRequest(413, f"the request's body exceeds {_MAX_BODY} bytes")
    spans: list[slice] = []
    while (line_end := buffer.find(b"\r\n", at)) >= 0:
        try:
            size = int(buffer[at:line_end].partition(b";")[0], 16)
        except ValueError:
            raise BadRequest(400, "a chunk of the body has no size") from None
        if size == 0:
            # The final blank line follows directly, or after trailers.
            end = buffer.find(b"\r\n\r\n", line_end)
            return (b"".join(buffer[span] for span in spans), end + 4) if end >= 0 else None
        at = line_end + 2 + size + 2
        spans.append(slice(line_end + 2, at - 2))
        if at > len(buffer):
            return None
    return None
