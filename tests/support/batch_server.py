"""A provider of batches on a thread of the test process, in both shapes, with a ledger of what was paid for.

    POST /v1/files, POST /v1/batches, GET /v1/batches…, GET /v1/files/ID/content       as OpenAI has them
    POST /v1/messages/batches, GET /v1/messages/batches…                                as Anthropic has them
    POST /v1/chat/completions                                                           asked directly

The ledger is the witness: it counts how often each `custom_id` was answered, and what that cost.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.parser import BytesParser
from typing import Any, cast

from aiohttp import web

from camel.core.message import Usage
from camel.core.model import Choice, Reply, Request
from camel.models.prices import ModelPrice

PRICE = ModelPrice(input=3.0, output=11.0, cached=0.7)


@dataclass
class Batch:
    """A batch at the provider."""

    id: str
    number: int
    lines: dict[str, dict[str, Any]]
    metadata: dict[str, str]
    made: datetime
    looks: int = 0
    ended: bool = False
    expired: bool = False
    refused: bool = False
    results: dict[str, Any] = field(default_factory=dict[str, Any])


class BatchServer:
    """What the provider does is set by its attributes, at any time."""

    def __init__(self, answer: Callable[[str], str] = lambda prompt: f"Answer to {prompt}") -> None:
        self.answer = answer
        self.url = ""
        self.paid: Counter[str] = Counter()
        """How often each line was answered, and paid for."""
        self.direct = 0
        """Calls that were answered outside of batches."""
        self.dollars = 0.0
        self.batches: list[Batch] = []
        self.requests: list[str] = []
        """Methods and paths."""
        self.raw_paths: list[str] = []
        """As they came."""
        self.looks = 1
        """Times that a batch is looked at before it has ended."""
        self.fails: Callable[[str, int], Any] = lambda id, times: None
        """The status and error of a line that fails, given how often it failed before; None: it is answered."""
        self.failed: Counter[str] = Counter()
        self.expires: set[int] = set()
        """Numbers of batches that expire with half of their lines answered."""
        self.refuses: set[int] = set()
        """Numbers of batches that are refused as a whole."""
        self.breaks: dict[str, list[str]] = {}
        """By the start of a method and path what happens to the next such requests: `lose`, `do`, `503`, `400`, `kill`, `do kill`."""
        self.pid = 0
        """Of the process that `kill` kills."""
        self.says = "as the test wants"
        """What errors say."""
        self.headers: Mapping[str, str] = {}
        """Of the last request."""
        self.made: Callable[[Batch], None] = lambda batch: None
        """Called with each new batch."""
        self._files: dict[str, bytes] = {}

    def others(self) -> None:
        """Another program submits a batch."""
        self.batches.append(Batch(f"other_{len(self.batches)}", len(self.batches), {}, {}, datetime.now(UTC)))

    # --- what is done --------------------------------------------------------------------------------------------

    def _pay(self, prompt: str, share: float) -> dict[str, Any]:
        content = self.answer(prompt)
        usage = Usage(len(prompt) // 4 + 1, len(content) // 4 + 1, len(prompt) // 16)
        self.dollars += share * PRICE.cost(usage)
        return {"content": content, "usage": usage}

    def _finish(self, batch: Batch) -> None:
        batch.ended = True
        batch.expired, batch.refused = batch.number in self.expires, batch.number in self.refuses
        for at, (id, body) in enumerate(batch.lines.items()):
            if batch.refused:
                break
            if batch.expired and at % 2:
                batch.results[id] = "expired"
            elif failure := self.fails(id, self.failed[id]):
                self.failed[id] += 1
                batch.results[id] = failure
            else:
                self.paid[id] += 1
                batch.results[id] = self._pay(body["messages"][-1]["content"], 0.5)

    def _look_at(self, batch: Batch) -> None:
        batch.looks += 1
        if batch.looks > self.looks and not batch.ended:
            self._finish(batch)

    def _new(self, lines: dict[str, dict[str, Any]], metadata: dict[str, str]) -> Batch:
        number = len(self.batches)
        batch = Batch(f"batch_{number}", number, lines, metadata, datetime.now(UTC))
        self.batches.append(batch)
        self.made(batch)
        return batch

    # --- as OpenAI shows it --------------------------------------------------------------------------------------

    def _shown(self, batch: Batch) -> dict[str, Any]:
        status = "in_progress"
        if batch.ended:
            status = "failed" if batch.refused else "expired" if batch.expired else "completed"
        bad = [id for id, one in batch.results.items() if not isinstance(one, dict)]
        return {
            "id": batch.id,
            "object": "batch",
            "status": status,
            "created_at": int(batch.made.timestamp()),
            "metadata": batch.metadata,
            "request_counts": {
                "total": len(batch.lines),
                "completed": len(batch.results) - len(bad),
                "failed": len(bad),
            },
            "output_file_id": f"out_{batch.number}" if batch.ended and not batch.refused else None,
            "error_file_id": f"err_{batch.number}" if bad else None,
            "errors": {"data": [{"code": "token_limit_exceeded", "message": "Enqueued token limit reached"}]}
            if batch.refused
            else None,
        }

    def _content(self, name: str) -> Iterator[dict[str, Any]]:
        batch = self.batches[int(name.partition("_")[2])]
        # In another order than that of the requests.
        for id, one in reversed(batch.results.items()):
            if name.startswith("out") and isinstance(one, dict):
                yield {
                    "custom_id": id,
                    "error": None,
                    "response": {"status_code": 200, "body": completion(cast("dict[str, Any]", one))},
                }
            elif name.startswith("err") and one == "expired":
                yield {
                    "custom_id": id,
                    "response": None,
                    "error": {"code": "batch_expired", "message": "late"},
                }
            elif name.startswith("err") and not isinstance(one, dict):
                status, message = one
                body = {"error": {"message": message, "type": "server_error"}}
                yield {"custom_id": id, "error": None, "response": {"status_code": status, "body": body}}

    # --- as Anthropic shows it -----------------------------------------------------------------------------------

    def _message_batch(self, batch: Batch) -> dict[str, Any]:
        kinds = Counter(_kind(one) for one in batch.results.values())
        left = len(batch.lines) - len(batch.results)
        return {
            "id": batch.id,
            "type": "message_batch",
            "processing_status": "ended" if batch.ended else "in_progress",
            "created_at": batch.made.isoformat().replace("+00:00", "Z"),
            "request_counts": {
                "processing": left,
                **{kind: kinds[kind] for kind in ("succeeded", "errored", "canceled", "expired")},
            },
            "results_url": "http://127.0.0.1:9/elsewhere",
        }

    def _message_results(self, batch: Batch) -> Iterator[dict[str, Any]]:
        for id, one in reversed(batch.results.items()):
            result: dict[str, Any] = {"type": _kind(one)}
            if isinstance(one, dict):
                usage: Usage = cast("dict[str, Any]", one)["usage"]
                result["message"] = {
                    "content": [{"type": "text", "text": one["content"]}],
                    "stop_reason": "end_turn",
                    "usage": {
                        "input_tokens": usage.prompt - usage.cached,
                        "cache_read_input_tokens": usage.cached,
                        "output_tokens": usage.completion,
                    },
                }
            elif one != "expired":
                kind = "invalid_request_error" if one[0] == 400 else "api_error"
                result["error"] = {"type": "error", "error": {"type": kind, "message": one[1]}}
            yield {"custom_id": id, "result": result}

    # --- the server ----------------------------------------------------------------------------------------------

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path, body = request.path.removeprefix("/v1"), await request.read()
        self.headers = request.headers
        self.raw_paths.append(request.raw_path)
        self.requests.append(f"{request.method} {path}")
        for start, left in self.breaks.items():
            if self.requests[-1].startswith(start) and left:
                return await self._break(request, path, body, left.pop(0))
        return await self._do(request, path, body)

    async def _break(self, request: web.Request, path: str, body: bytes, what: str) -> web.StreamResponse:
        if what.startswith("do"):
            await self._do(request, path, body)
        if what.endswith("kill"):
            os.kill(self.pid, signal.SIGKILL)
        if (status := what.removeprefix("do ")).isdecimal():
            return web.json_response({"error": {"message": self.says}}, status=int(status))
        assert request.transport
        request.transport.close()
        return web.Response()

    async def _do(self, request: web.Request, path: str, body: bytes) -> web.StreamResponse:
        match [request.method, *path.strip("/").split("/")]:
            case ["POST", "chat", "completions"]:
                self.direct += 1
                return web.json_response(
                    completion(self._pay(json.loads(body)["messages"][-1]["content"], 1))
                )
            case ["POST", "files"]:
                kind = request.headers["Content-Type"].encode()
                form = BytesParser().parsebytes(b"Content-Type: " + kind + b"\r\n\r\n" + body)
                parts: Any = form.get_payload()
                fields = {part.get_param("name", header="content-disposition"): part for part in parts}
                assert fields["purpose"].get_payload(decode=True) == b"batch"
                name = f"file_{len(self._files)}"
                self._files[name] = fields["file"].get_payload(decode=True)
                return web.json_response({"id": name, "object": "file"})
            case ["POST", "batches"]:
                asked = json.loads(body)
                assert asked["endpoint"] == "/v1/chat/completions"
                assert asked["completion_window"] == "24h"
                lines = [json.loads(line) for line in self._files[asked["input_file_id"]].splitlines()]
                assert all((one["method"], one["url"]) == ("POST", asked["endpoint"]) for one in lines)
                batch = self._new({one["custom_id"]: one["body"] for one in lines}, asked["metadata"])
                assert len(batch.lines) == len(lines)
                return web.json_response(self._shown(batch))
            case ["POST", "messages", "batches"]:
                lines = json.loads(body)["requests"]
                batch = self._new({one["custom_id"]: one["params"] for one in lines}, {})
                assert len(batch.lines) == len(lines)
                return web.json_response(self._message_batch(batch))
            case ["GET", "batches"]:
                return self._list(request, "after", self._shown)
            case ["GET", "messages", "batches"]:
                return self._list(request, "after_id", self._message_batch)
            case ["GET", "batches", id]:
                return self._one(id, self._shown)
            case ["GET", "messages", "batches", id]:
                return self._one(id, self._message_batch)
            case ["GET", "files", name, "content"]:
                return _lines(self._content(name))
            case ["GET", "messages", "batches", id, "results"]:
                return _lines(self._message_results(self.batches[int(id.partition("_")[2])]))
            case _:
                pass
        return web.json_response({"error": {"message": f"no {path}"}}, status=404)

    def _one(self, id: str, show: Callable[[Batch], Any]) -> web.StreamResponse:
        found = [one for one in self.batches if one.id == id]
        if not found:
            return web.json_response({"error": {"message": "no such batch"}}, status=404)
        self._look_at(found[0])
        return web.json_response(show(found[0]))

    def _list(
        self, request: web.Request, cursor: str, show: Callable[[Batch], Any], most: int = 2
    ) -> web.StreamResponse:
        """Newest first, in small pages."""
        found = self.batches[::-1]
        for one in found:
            self._look_at(one)
        if after := request.query.get(cursor):
            found = found[[one.id for one in found].index(after) + 1 :]
        page = {"data": [show(one) for one in found[:most]], "has_more": len(found) > most}
        return web.json_response(page)


def completion(one: dict[str, Any]) -> dict[str, Any]:
    """A reply as the chat completions have it."""
    usage: Usage = one["usage"]
    return {
        "model": "served",
        "choices": [{"message": {"role": "assistant", "content": one["content"]}, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.completion,
            "total_tokens": usage.total,
            "prompt_tokens_details": {"cached_tokens": usage.cached},
        },
    }


def _kind(one: Any) -> str:
    return "succeeded" if isinstance(one, dict) else "expired" if one == "expired" else "errored"


def _lines(lines: Iterator[dict[str, Any]]) -> web.Response:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return web.Response(text=text, content_type="application/x-ndjson")


class MessagesWire:
    """Anthropic's messages, as little of them as a batch needs: stands for the client's own protocol."""

    path = "/messages"
    adjustments = ()

    def __init__(self, *args: object, **settings: object) -> None:
        """Ignore the settings."""

    def encode(self, request: Request) -> bytes:
        messages = json.loads(b"[" + request.history.encoded() + b"]")
        return json.dumps({"model": "m", "max_tokens": 100, "messages": messages}).encode()

    def read(self, body: bytes) -> Reply:
        message = json.loads(body)
        usage, text = message["usage"], "".join(one["text"] for one in message["content"])
        cached = usage["cache_read_input_tokens"]
        used = Usage(usage["input_tokens"] + cached, usage["output_tokens"], cached, 1)
        return Reply((Choice(text),), used)

    def constraint(self, request: Request) -> str:
        return ""

    def adjust(self, refusal: str, sampling: object) -> str:
        return ""


@contextlib.contextmanager
def serve_batches(answer: Callable[[str], str] | None = None) -> Generator[BatchServer]:
    """The provider, running on a thread."""
    server = BatchServer(answer) if answer else BatchServer()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> web.AppRunner:
        app = web.Application(client_max_size=2**30)
        app.router.add_route("*", "/{path:.*}", server.handle)
        runner = web.AppRunner(app, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        return runner

    runner = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
