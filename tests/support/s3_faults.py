"""An S3 server that fails: moto's, on loopback, with errors, lost answers and broken connections at given rates.

    python -m tests.support.s3_faults --errors 0.1 --lost 0.02        prints its address; Ctrl-C ends it

    with spawn(Faults(errors=0.1)) as server:                      for tests; `server.environment` reaches it
        server.set(Faults())                                       other rates from now on
        server.ledger()                                            what was asked, and what was done

Whatever writes or lists is done under one lock. moto's own conditional put looks and then writes, and of two at once
both may win; a real store's is atomic. The ledger counts what was done, whatever the client received.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

BUCKET = "camel"
CONTROL = "/_faults"


@dataclass(frozen=True)
class Faults:
    """Shares of requests, each between 0 and 1."""

    errors: float = 0.0
    """500, nothing done."""
    slow_down: float = 0.0
    """503 SlowDown, nothing done."""
    resets: float = 0.0
    """The connection breaks, nothing done."""
    lost: float = 0.0
    """Done, and the connection breaks instead of an answer."""
    lost_500: float = 0.0
    """Done, and answered with 500."""
    truncated: float = 0.0
    """Answered with half of the body."""
    hangs: float = 0.0
    """Nothing done, nothing said for `hang` seconds; then the connection breaks."""
    hang: float = 5.0
    down: bool = False
    """Everything is answered with 503."""


class Server(NamedTuple):
    """A server that was started."""

    url: str
    pid: int

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs in its environment."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test-secret",
            "AWS_REGION": "us-east-1",
        }

    def address(self, prefix: str) -> str:
        """A place in its bucket."""
        return f"s3://{BUCKET}/{prefix}"

    def set(self, faults: Faults) -> None:
        """Fail otherwise from now on."""
        self._ask(json.dumps(asdict(faults)).encode())

    def fill(self, objects: Mapping[str, str]) -> None:
        """Have objects there at once that would take minutes to put."""
        self._ask(json.dumps({"fill": dict(objects)}).encode())

    def ledger(self) -> dict[str, Any]:
        """`requests` by method, `faults` by kind, `created`: how often a conditional put made each key."""
        return json.loads(self._ask(None))

    def _ask(self, data: bytes | None) -> bytes:
        with urllib.request.urlopen(self.url + CONTROL, data) as reply:
            return reply.read()


@contextlib.contextmanager
def spawn(
    faults: Faults = Faults(),  # noqa: B008 - frozen
    *,
    seed: int = 0,
    log: Path | None = None,
    fast_list: bool = False,
) -> Generator[Server]:
    """Start a server of its own process on a free port of loopback, with an empty bucket.

    `fast_list` for large buckets: long listings by ourselves, from moto's keys.
    """
    options = [f"--{name.replace('_', '-')}={value}" for name, value in asdict(faults).items()]
    command = [
        sys.executable,
        "-m",
        "tests.support.s3_faults",
        f"--seed={seed}",
        *options,
        *(["--fast-list"] * fast_list),
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(["src", os.environ.get("PYTHONPATH", "")])}
    root = Path(__file__).parents[2]
    with (log or Path(os.devnull)).open("ab") as errors:
        child = subprocess.Popen(
            command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.PIPE
        )
        try:
            assert child.stdout is not None
            line = child.stdout.readline()
            if not line:
                raise RuntimeError("the S3 server did not start: is moto[server] installed?")
            yield Server(json.loads(line)["url"], child.pid)
        finally:
            for pipe in (child.stdin, child.stdout):
                assert pipe is not None
                pipe.close()
            child.kill()
            child.wait()


class _App:
    """moto's application, with faults around it."""

    def __init__(self, app: Any, faults: Faults, seed: int, fast_list: bool) -> None:
        self._app, self.faults, self._chance = app, faults, random.Random(seed)
        self._lock = threading.Lock()
        self._fast_list = fast_list
        self._sorted: list[str] | None = None
        """All keys, until the next write."""
        self.requests: Counter[str] = Counter()
        self.struck: Counter[str] = Counter()
        self.created: Counter[str] = Counter()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        size = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(size) if size else b""
        if environ["PATH_INFO"] == CONTROL:
            return self._control(body, start_response)
        self.requests[environ["REQUEST_METHOD"]] += 1
        kind = self._kind()
        if kind:
            self.struck[kind] += 1
        match kind:
            case "errors" | "slow_down" | "down":
                return _error(start_response, 500 if kind == "errors" else 503)
            case "resets":
                return _drop(environ)
            case "hangs":
                time.sleep(self.faults.hang)
                return _drop(environ)
            case "lost" | "lost_500":
                self._done(environ, body, lambda *_: None)
                return _drop(environ) if kind == "lost" else _error(start_response, 500)
            case "truncated":
                return _half(environ, self._done(environ, body, start_response))
            case _ if self._fast_list and _is_list(environ):
                return self._list(environ, start_response)
            case _:
                return self._done(environ, body, start_response)

    def _list(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        """A page of a listing. moto's own takes 0.45 s of CPU at 73,000 keys, of which S3's users see nothing."""
        asked = {name: values[0] for name, values in parse_qs(environ["QUERY_STRING"]).items()}
        with self._lock:
            bucket = _backend().get_bucket(BUCKET)
            if self._sorted is None:
                self._sorted = sorted(bucket.keys)
            names, prefix = self._sorted, asked.get("prefix", "")
            after = asked.get("continuation-token") or asked.get("start-after", "")
            start = max(bisect_right(names, after), bisect_left(names, prefix))
            folders: list[str] = []
            if "delimiter" in asked:  # as S3, which skips what is in a folder
                page: list[str] = []
                while start < len(names) and names[start].startswith(prefix):
                    folder, slash, _ = names[start][len(prefix) :].partition("/")
                    if slash:
                        folders.append(f"{prefix}{folder}/")
                        start = bisect_left(names, f"{prefix}{folder}0")  # the character after the slash
                    else:
                        page.append(names[start])
                        start += 1
            else:
                page = names[start : start + 1001]
            rows = [(name, bucket.keys[name]) for name in page if name.startswith(prefix)]
        more, rows = len(rows) > 1000 and not folders, rows[: None if folders else 1000]
        parts = [f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>"]
        if more:
            parts.append(f"<NextContinuationToken>{escape(rows[-1][0])}</NextContinuationToken>")
        for name, key in rows:
            parts.append(
                f"<Contents><Key>{escape(name)}</Key><LastModified>{key.last_modified_ISO8601}</LastModified>"
                f"<ETag>{escape(key.etag)}</ETag><Size>{key.size}</Size></Contents>"
            )
        parts += [f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in folders]
        start_response("200 OK", [("Content-Type", "application/xml")])
        return ["".join([*parts, "</ListBucketResult>"]).encode()]

    def _kind(self) -> str:
        if self.faults.down:
            return "down"
        chance = self._chance.random()
        for name in ("errors", "slow_down", "resets", "lost", "lost_500", "truncated", "hangs"):
            chance -= getattr(self.faults, name)
            if chance < 0:
                return name
        return ""

    def _done(self, environ: dict[str, Any], body: bytes, start_response: Any) -> list[bytes]:
        said: list[str] = []

        def start(status: str, headers: Any, *rest: Any) -> Any:
            said.append(status)
            return start_response(status, headers, *rest)

        environ["wsgi.input"] = BytesIO(body)
        reads = environ["REQUEST_METHOD"] in ("GET", "HEAD") and "list-type" not in environ["QUERY_STRING"]
        with contextlib.nullcontext() if reads else self._lock:
            result = list(self._app(environ, start))
            self._sorted = self._sorted if reads else None
            if environ.get("HTTP_IF_NONE_MATCH") == "*" and said[0].startswith("200"):
                self.created[environ["PATH_INFO"].removeprefix(f"/{BUCKET}/")] += 1
        return result

    def _control(self, body: bytes, start_response: Any) -> list[bytes]:
        asked = json.loads(body) if body else {}
        if "fill" in asked:
            with self._lock:
                self._sorted = None
                for name, text in asked["fill"].items():
                    _backend().put_object(BUCKET, name, text.encode())
        elif asked:
            self.faults = Faults(**asked)
        ledger = {"requests": self.requests, "faults": self.struck, "created": self.created}
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(ledger).encode()]


def _backend() -> Any:
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends

    return s3_backends[DEFAULT_ACCOUNT_ID]["aws"]


def _is_list(environ: dict[str, Any]) -> bool:
    query = environ["QUERY_STRING"]
    return environ["REQUEST_METHOD"] == "GET" and "list-type=2" in query


def _error(start_response: Any, status: int) -> list[bytes]:
    code = "SlowDown" if status == 503 else "InternalError"
    start_response(f"{status} {code}", [("Content-Type", "application/xml")])
    return [f"<Error><Code>{code}</Code><Message>on purpose</Message></Error>".encode()]


def _drop(environ: dict[str, Any]) -> list[bytes]:
    """Break the connection; the handler below closes it."""
    link: socket.socket = environ["werkzeug.socket"]
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raise ConnectionResetError("on purpose")


def _half(environ: dict[str, Any], body: list[bytes]) -> Generator[bytes]:
    whole = b"".join(body)
    yield whole[: len(whole) // 2]
    _drop(environ)


def main() -> None:
    """Serve until standard input ends or the process is killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fast-list", action="store_true", help="do not leave long listings to moto")
    for field in fields(Faults):
        kind = (lambda text: text == "True") if field.name == "down" else float
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=kind, default=field.default)
    given = vars(parser.parse_args())
    port, seed, fast_list = given.pop("port"), given.pop("seed"), given.pop("fast_list")

    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import make_server

    class Handler(MotoRequestHandler):
        protocol_version = "HTTP/1.1"

        def connection_dropped(self, error: BaseException, environ: Any = None) -> None:
            self.close_connection = True

        def log_request(self, *args: Any, **kwargs: Any) -> None:
            """Say nothing of what went well."""

    app = _App(DomainDispatcherApplication(create_backend_app), Faults(), seed, fast_list)
    server = make_server("127.0.0.1", port, app, threaded=True, request_handler=Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    urllib.request.urlopen(urllib.request.Request(f"{url}/{BUCKET}", method="PUT")).close()
    app.faults = Faults(**given)
    print(json.dumps({"url": url, "bucket": BUCKET}), flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        while sys.stdin.buffer.read(4096):
            pass
        if sys.stdin.isatty():
            threading.Event().wait()


if __name__ == "__main__":
    main()
