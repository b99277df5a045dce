"""Two servers as processes of their own: an endpoint whose replies call a tool, and one that counts the effects of the tool.

    python tests/support/tool_witness.py endpoint|counter PORT LEDGER

Each appends a line to its ledger before it answers. The module imports little, so that a killed server is back at once.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socketserver
import sys
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any


class Server(ThreadingHTTPServer):
    """A server with a ledger."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, kind: str, port: int, ledger: Path) -> None:
        self.kind = kind
        self.file = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.numbers = count(ledger.read_bytes().count(b"\n") + 1)
        super().__init__(("127.0.0.1", port), Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no error."""


class Handler(BaseHTTPRequestHandler):
    """Answers a request. Connections are kept."""

    protocol_version = "HTTP/1.1"
    server: Server
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(0.003)
        if self.server.kind == "counter":
            self.note(id=body["id"])
            time.sleep(0.003)  # a kill may come between the effect and the answer
            self.answer({"done": body["id"]})
            return
        messages, number = body["messages"], next(self.server.numbers)
        self.note(n=number, key=hashlib.blake2b(json.dumps(messages).encode(), digest_size=12).hexdigest())
        message = {"role": "assistant", "content": said(messages, number)}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self.answer({"id": str(number), "model": "effects", "choices": [choice], "usage": usage})

    def note(self, **fields: Any) -> None:
        os.write(self.server.file, json.dumps(fields).encode() + b"\n")

    def answer(self, what: Any) -> None:
        data = json.dumps(what).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


def said(messages: Sequence[dict[str, Any]], number: int) -> str:
    """Return a reply that follows from the messages, except for its number: two calls of the tool before each message."""
    item = re.search(r"Sell item (\d+)", json.dumps(messages))
    turn, made = 0, 0
    for message in messages:
        if message["role"] == "user" and not message["content"].startswith("<tool_result>"):
            turn, made = turn + 1, 0
        made += message["role"] == "assistant" and "<tool_call>" in message["content"]
    if "you are a Buyer" in messages[0]["content"]:
        return f"Instruction: Do step n={number};\nInput: None"
    if made < 2:
        id = f"{item[1] if item else '?'}-{turn}-{made}-{number}"
        return f'n={number};<tool_call>{{"name": "act", "arguments": {{"id": "{id}"}}}}</tool_call>'
    return f"Solution: Done n={number};\nNext request."


if __name__ == "__main__":
    socketserver.TCPServer.allow_reuse_address = True
    Server(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])).serve_forever()
