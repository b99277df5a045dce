"""A stand-in for the Hugging Face hub on loopback: what `huggingface_hub` asks to list a repository and to download a file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Repositories by name, each with its files; `asked` has the method and path of each request."""

    def __init__(self, url: str, repositories: Mapping[str, Mapping[str, bytes]]) -> None:
        self.url, self.repositories = url, repositories
        self.asked: list[tuple[str, str]] = []

    @property
    def downloads(self) -> list[str]:
        """Files that were sent."""
        return [
            path.rpartition("/")[2] for method, path in self.asked if method == "GET" and "/resolve/" in path
        ]


@contextmanager
def serve_hub(repositories: Mapping[str, Mapping[str, bytes]]) -> Generator[Hub]:
    """Serve these repositories while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.asked.append((self.command, path))
            if path.startswith("/api/models/"):
                name = path.removeprefix("/api/models/")
                files = hub.repositories.get(name)
                listed = [{"rfilename": file, "size": len(data)} for file, data in (files or {}).items()]
                told = json.dumps({"id": name, "sha": COMMIT, "siblings": listed}).encode()
                return self._send(told if files is not None else None)
            name, _, file = path.lstrip("/").partition("/resolve/main/")
            return self._send(hub.repositories.get(name, {}).get(file))

        do_HEAD = do_GET

        def _send(self, data: bytes | None) -> None:
            self.send_response(404 if data is None else 200)
            if data is None:
                self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", f'"{hashlib.sha256(data or b"").hexdigest()}"')
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data or b"")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub = Hub(f"http://127.0.0.1:{server.server_address[1]}", repositories)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
