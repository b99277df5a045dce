"""Spans say how calls went, in the names that the GenAI conventions give, and quote nothing."""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from camel.core.errors import ServerFailed
from camel.core.history import History
from camel.core.message import Sampling, Usage
from camel.core.model import Choice, Model, Reply, Request
from camel.models.traced import ENDPOINTS, TracedModel, traced

pytest.importorskip("opentelemetry.sdk")
SECRET = "what was said in confidence"


class Stub(Model):
    base_url = "https://models.example:8443/v1"
    fails = False

    async def reply(self, request: Request) -> Reply:
        if self.fails:
            raise ServerFailed(f"said {SECRET}", attempts=3)
        return Reply((Choice(SECRET, "length"),), Usage(100, 20, 60, 1), "stub-1", 0.1, 2)


def spans_of(model: Stub) -> tuple[TracedModel, Any]:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return TracedModel(model, "stub", provider.get_tracer("test")), exporter


def request() -> Request:
    history = History()
    history.add("user", SECRET)
    return Request(history, Sampling(temperature=0.5, max_tokens=20), "a-1", "assistant")


async def test_a_call_is_a_span():
    model, exporter = spans_of(Stub())
    assert (await model.reply(request())).content == SECRET
    (span,) = exporter.get_finished_spans()
    assert span.name == "chat stub"
    assert span.kind.name == "CLIENT"
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "stub",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 20,
        "gen_ai.conversation.id": "a-1",
        "gen_ai.agent.name": "assistant",
        "gen_ai.response.model": "stub-1",
        "gen_ai.response.finish_reasons": ("length",),
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "server.address": "models.example",
        "server.port": 8443,
        "camel.attempts": 2,
    }
    assert SECRET not in span.to_json()


async def test_an_error_is_its_type_alone():
    stub = Stub()
    stub.fails = True
    model, exporter = spans_of(stub)
    with pytest.raises(ServerFailed):
        await model.reply(request())
    (span,) = exporter.get_finished_spans()
    assert span.attributes["error.type"] == "ServerFailed"
    assert span.attributes["camel.attempts"] == 3
    assert span.status.status_code.name == "ERROR"
    assert not span.events
    assert SECRET not in span.to_json()


def test_names_are_those_of_the_conventions():
    names = pytest.importorskip("opentelemetry.semconv._incubating.attributes.gen_ai_attributes")
    known = {
        value for name, value in vars(names).items() if name.startswith("GEN_AI_") and isinstance(value, str)
    }
    source = Path(traced.__code__.co_filename).read_text()
    used = {word.strip('"') for word in source.replace(":", " ").split() if word.startswith('"gen_ai.')}
    assert used
    assert used <= known


def test_off_without_an_endpoint_for_traces(monkeypatch: pytest.MonkeyPatch):
    for name in ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    stub = Stub()
    assert traced(stub, "stub") is stub


CODE = """
import asyncio, sys
from camel.core.history import History
from camel.core.message import Usage
from camel.core.model import Choice, Reply, Request
from camel.models.traced import flush, traced
class Stub:
    async def reply(self, request):
        return Reply((Choice("x"),), Usage(1, 1, 0, 1), "m")
history = History(); history.add("user", "hello")
model = traced(Stub(), "m")
assert model.__class__.__name__ == "TracedModel"
asyncio.run(model.reply(Request(history)))
flush()
"""


@pytest.mark.slow
def test_spans_reach_a_collector():
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    seen: list[tuple[str, bytes]] = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        environment = {**os.environ, ENDPOINTS[0]: f"http://127.0.0.1:{server.server_port}"}
        done = subprocess.run(
            [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, timeout=60
        )
        server.shutdown()
    assert done.returncode == 0, done.stderr
    assert seen[0][0] == "/v1/traces"
    assert b"gen_ai.usage.input_tokens" in seen[0][1]
