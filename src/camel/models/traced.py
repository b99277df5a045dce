"""Traces model calls as OpenTelemetry spans, by the GenAI conventions.

The one decision to know: it is active only if a collector is set (OTEL_EXPORTER_OTLP_ENDPOINT) and OpenTelemetry is
installed. A span contains figures and names, never a prompt, a reply or a key, and only the type of an error.
"""

from __future__ import annotations

import os
from functools import lru_cache
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from camel.core.errors import ModelError
from camel.core.model import Model, Reply, Request, WrappedModel

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def traced(model: Model, name: str) -> Model:
    """Return the model, wrapped so that each call is a span if an OpenTelemetry collector is configured."""
    if not any(os.environ.get(variable) for variable in ENDPOINTS):
        return model
    tracer = _tracer()
    return model if tracer is None else TracedModel(model, name, tracer)


def flush() -> None:
    """Send pending spans before the process exits."""
    if _tracer.cache_info().currsize:
        provider = import_module("opentelemetry.trace").get_tracer_provider()
        if hasattr(provider, "force_flush"):
            provider.force_flush(5_000)


class TracedModel(WrappedModel):
    """Wraps each call in a span of kind client."""

    def __init__(self, model: Model, name: str, tracer: Any) -> None:
        super().__init__(model)
        self._name, self._tracer = name, tracer
        trace = import_module("opentelemetry.trace")
        self._client, self._failed = trace.SpanKind.CLIENT, trace.StatusCode.ERROR
        parts = urlsplit(model.base_url)
        self._fixed: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",  # the protocol, not the company
            "gen_ai.request.model": name,
        }
        if parts.hostname:
            self._fixed["server.address"] = parts.hostname
            self._fixed["server.port"] = parts.port or (443 if parts.scheme == "https" else 80)

    async def reply(self, request: Request) -> Reply:
        """Make the call inside a span."""
        sampling = request.sampling
        asked = {
            "gen_ai.conversation.id": request.session or None,
            "gen_ai.agent.name": request.speaker or None,
            "gen_ai.request.temperature": sampling.temperature,
            "gen_ai.request.top_p": sampling.top_p,
            "gen_ai.request.max_tokens": sampling.max_tokens,
            "gen_ai.request.seed": sampling.seed,
            "gen_ai.request.choice.count": sampling.n if sampling.n > 1 else None,
        }
        attributes = self._fixed | {key: value for key, value in asked.items() if value is not None}
        with self._tracer.start_as_current_span(
            f"chat {self._name}",
            kind=self._client,
            attributes=attributes,
            record_exception=False,  # its text may contain a prompt
            set_status_on_exception=False,
        ) as span:
            try:
                reply = await self.inner.reply(request)
            except ModelError as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_attribute("camel.attempts", error.attempts)
                span.set_status(self._failed)
                raise
            span.set_attributes(
                {
                    "gen_ai.response.model": reply.model,
                    "gen_ai.response.finish_reasons": [choice.finish for choice in reply.choices],
                    "gen_ai.usage.input_tokens": reply.usage.prompt,
                    "gen_ai.usage.output_tokens": reply.usage.completion,
                    "gen_ai.usage.cache_read.input_tokens": reply.usage.cached,
                    "camel.attempts": reply.attempts,
                }
            )
            return reply


@lru_cache(maxsize=1)
def _tracer() -> Any:
    """Return a tracer that exports to the configured collector; None without OpenTelemetry."""
    try:
        trace = import_module("opentelemetry.trace")
        sdk = import_module("opentelemetry.sdk.trace")
        export = import_module("opentelemetry.sdk.trace.export")
        resources = import_module("opentelemetry.sdk.resources")
        otlp = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ImportError:
        return None
    if not isinstance(trace.get_tracer_provider(), sdk.TracerProvider):
        # A program that uses camel as a library may have its own provider.
        named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "camel"}
        provider = sdk.TracerProvider(resource=resources.Resource.create(named))
        provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter()))
        trace.set_tracer_provider(provider)
    return trace.get_tracer("camel")
