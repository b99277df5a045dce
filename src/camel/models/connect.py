"""Resolves a model's name and URL: models of plug-ins, and what an endpoint reports about its models."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from camel.core.checks import shown
from camel.core.errors import CamelError, InputError, ModelError
from camel.core.model import Model, Price, Reply, Request, Text, WrappedModel, checked_model
from camel.core.plugins import Plugin, Registry
from camel.models.chat import ChatModel
from camel.models.command import CommandModel
from camel.models.discovery import BaseUrl, find_replicas
from camel.models.endpoint import served_models
from camel.models.pool import Pool


class NamedModel(WrappedModel):
    """A model with its own name, price and version for reports, independent of its endpoint."""

    def __init__(self, model: Model, name: str, price: Price | None = None, version: str = "") -> None:
        """`version` distinguishes models of the same name, such as retrained weights."""
        super().__init__(model)
        self.name, self.price, self.version = name, price, version

    async def reply(self, request: Request) -> Reply:
        """Call the model."""
        return await self.inner.reply(request)


DEFAULT_MODEL = "gpt-4.1-mini"
"""The default model at OpenAI."""


def _plugged(plugin: Plugin, part: Any) -> Callable[[str], Model]:
    """Return a factory of a plug-in's models. It takes the name after the prefix."""

    def make(name: str) -> Model:
        with plugin.guard("returned no model", CamelError):
            return checked_model(part(name))

    return make


_OWN: dict[str, Callable[[str], Model]] = {"command": CommandModel}
MODELS: Registry[Callable[[str], Model]] = Registry("models", _OWN, _plugged, kind="kind of model")
"""Kinds of models, most of them from plug-ins, by the prefix of the name: `kind:name`."""
MODELS.reserved = frozenset(("hf", "ollama", "local"))


class PluggedModel(WrappedModel):
    """A plug-in's model under its full name; the plug-in handles retries and rate limits itself."""

    def __init__(self, name: str, inner: Model, context_tokens: int | None = None) -> None:
        super().__init__(inner)
        self.name, self.context_tokens = name, context_tokens or inner.context_tokens

    async def reply(self, request: Request) -> Reply:
        """Call the plug-in's model. If it does not stream, the reply is passed to `watch` as one piece."""
        heard = False

        def watch(event: Any) -> None:
            nonlocal heard
            heard = True
            assert request.watch is not None
            request.watch(event)

        asked = replace(request, watch=watch) if request.watch else request
        reply = await self.inner.reply(asked)
        if request.watch and not heard:
            request.watch(Text(request.speaker, reply.content))
        return reply


def plugged_model(name: str, context_tokens: int | None = None) -> PluggedModel | None:
    """Return the model of a name `kind:name` if an installed plug-in offers that kind, or None."""
    kind, colon, rest = name.partition(":")
    if not colon or kind not in MODELS:
        return None
    return PluggedModel(name, MODELS[kind](rest), context_tokens)


def look_up_model(
    name: str, base_url: BaseUrl = "", context_tokens: int | None = None
) -> tuple[str, BaseUrl, int | None]:
    """Return the name, URL and context window of a model. If `name` is empty, use the only model that the endpoint serves."""
    base_url = base_url or os.environ.get("OPENAI_BASE_URL", "")
    if base_url and (not name or context_tokens is None):
        try:
            source = find_replicas(base_url)
            # Any replica, because all serve the same model.
            if not (urls := source.first or source.look()):
                raise InputError(f"no replica found behind {base_url}: check the name")
            served = served_models(urls[0])
        except ModelError:
            if not name:
                raise
            served = {}
        if not name:
            if len(served) != 1:
                listed = f"several models ({', '.join(list(served)[:20])})" if served else "no models"
                raise InputError(f"the endpoint lists {listed}. Name the model with --model")
            name = next(iter(served))
        context_tokens = context_tokens or served.get(name)
    return name or DEFAULT_MODEL, base_url, context_tokens


def chat_of(model: Model) -> ChatModel | None:
    """Return the endpoint client inside a model and its wrappers; None for other kinds of models."""
    while isinstance(model, WrappedModel):
        model = model.inner
    return model if isinstance(model, ChatModel) else None


def pool_of(model: Model) -> Pool | None:
    """Return the pool of replicas behind a model, or None if the model has no endpoint."""
    return chat.pool if (chat := chat_of(model)) else None


def split_name(spec: str) -> tuple[str, str]:
    """Split NAME@URL; the URL of a plain NAME is empty."""
    name, at, url = spec.partition("@http")
    if not name:
        raise InputError(f"a model must be NAME or NAME@URL, not {shown(spec)}")
    return name, f"http{url}" if at else ""


def label(name: str, url: str) -> str:
    """Return a model's label for reports: its name and the host of its URL."""
    return f"{name}@{urlsplit(url).netloc.rpartition('@')[2]}" if url else name
