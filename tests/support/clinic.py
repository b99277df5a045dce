"""An endpoint that can be given each ailment that the doctor looks for: what the simulator, which is sound, does not have."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Ailments:
    key: str = ""
    """Asked for, where it is not empty."""
    window: int | None = 32768
    lists: bool = True
    most: int = 8
    """Choices in one call; 0 refuses n."""
    streams: bool = True
    schema: bool = True
    """Whether response_format is kept to; None refuses it."""
    refuses_schema: bool = False
    grammar: str = ""
    """The field that is kept to: `grammar` or `structured_outputs`."""
    caches: bool = True
    counts: bool = True
    skew: float = 0.0
    status: int = 0
    """Of every chat, where it is not 0."""
    says: str = "one two three four five six seven"
    asked: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def endpoint(ailments: Ailments) -> Generator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None: ...

        def date_time_string(self, timestamp: float | None = None) -> str:
            import time

            return super().date_time_string((timestamp or time.time()) + ailments.skew)

        def send(self, status: int, body: bytes, kind: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def refused(self) -> bool:
            if ailments.key and self.headers.get("Authorization") != f"Bearer {ailments.key}":
                self.send(401, b'{"error": {"message": "no such key"}}')
                return True
            return False

        def do_GET(self) -> None:
            if self.refused():
                return
            if not ailments.lists or self.path != "/v1/models":
                self.send(404, b"{}")
                return
            listed: dict[str, Any] = {"id": "patient"}
            if ailments.window:
                listed["max_model_len"] = ailments.window
            self.send(200, json.dumps({"data": [listed, {"id": "other"}]}).encode())

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            ailments.asked.append(asked)
            if self.refused():
                return
            n = asked.get("n", 1)
            schema = "response_format" in asked
            if ailments.status or (n > 1 and not ailments.most) or (schema and ailments.refuses_schema):
                self.send(ailments.status or 400, b'{"error": {"message": "unwell"}}')
                return
            text = ailments.says
            if schema and ailments.schema:
                text = '{"choice": 2, "reason": "Because."}'
            if ailments.grammar and ailments.grammar in asked:
                text = "Instruction: Do this now please.\nInput: None"
            long = len(asked["messages"]) > 2 and ailments.caches
            usage = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
            usage |= {"prompt_tokens_details": {"cached_tokens": 90 if long else 0}}
            count = {"usage": usage} if ailments.counts else {}
            if asked.get("stream") and ailments.streams:
                events = [
                    {"choices": [{"index": 0, "delta": {"content": f"{word} "}}]} for word in text.split()
                ]
                events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
                events.append({"choices": [], **count})
                lines = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
                self.send(200, f"{lines}data: [DONE]\n\n".encode(), "text/event-stream")
                return
            choices = [
                {"index": place, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
                for place in range(min(n, ailments.most or 1))
            ]
            self.send(200, json.dumps({"model": "patient", "choices": choices, **count}).encode())

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()
