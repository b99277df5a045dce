"""What is known of a model by its name and URL: plug-ins' models, and the few questions worth asking an endpoint first."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from camel.core.checks import shown
from camel.core.errors import CamelError, InputError, ModelError
from camel.core.model import Model, Reply, Request, Text, WrappedModel, checked_model
from camel.core.plugins import Plugin, Registry
from camel.models.chat import ChatModel
from camel.models.discovery import BaseUrl, find_replicas
from camel.models.endpoint import served_models
from camel.models.pool import Pool

DEFAULT_MODEL = "gpt-4.1-mini"
"""What is asked of OpenAI when no model is named."""


def _plugged(plugin: Plugin, part: Any) -> Callable[[str], Model]:
    """What makes a plug-in's model of a name."""

    def make(name: str) -> Model:
        try:
            return checked_model(part(name))
        except CamelError:
            raise
        except Exception as error:
            raise plugin.failed(f"gave no model: {type(error).__name__}: {error}") from error

    return make


MODELS: Registry[Callable[[str], Model]] = Registry("models", {}, _plugged, kind="kind of model")
"""Kinds of models that plug-ins bring, by the word before the colon: `kind:name`."""
MODELS.reserved = frozenset(("hf", "ollama", "local"))


class PluggedModel(WrappedModel):
    """A plug-in's model under its full name; what it does about failures and pace is its own affair."""

    def __init__(self, name: str, inner: Model, context_tokens: int | None = None) -> None:
        super().__init__(inner)
        self.name, self.context_tokens = name, context_tokens or inner.context_tokens

    async def reply(self, request: Request) -> Reply:
        """Have the plug-in's model answer; one that streams nothing is heard all at once."""
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
    """The model of a name such as `kind:name` where an installed plug-in brings that kind; None for any other name."""
    kind, colon, rest = name.partition(":")
    if not colon or kind not in MODELS:
        return None
    return PluggedModel(name, MODELS[kind](rest), context_tokens)


def looked_up(
    name: str, base_url: BaseUrl = "", context_tokens: int | None = None
) -> tuple[str, BaseUrl, int | None]:
    """The name, the URL and the window of a model by name, or of the one that the endpoint serves."""
    base_url = base_url or os.environ.get("OPENAI_BASE_URL", "")
    if base_url and (not name or context_tokens is None):
        try:
            served = served_models(_one_of(base_url))
        except ModelError:
            if not name:
                raise
            served = {}
        if not name:
            if len(served) != 1:
                listed = ", ".join(list(served)[:20]) or "it lists none"
                raise InputError(f"name one of the endpoint's models with --model: {listed}")
            name = next(iter(served))
        context_tokens = context_tokens or served.get(name)
    return name or DEFAULT_MODEL, base_url, context_tokens


def chat_of(model: Model) -> ChatModel | None:
    """The client of an endpoint that a model is, or that others are wrapped around; None where it is of another kind."""
    while isinstance(model, WrappedModel):
        model = model.inner
    return model if isinstance(model, ChatModel) else None


def pool_of(model: Model) -> Pool | None:
    """The replicas behind a model; None where it is of another kind."""
    return chat.pool if (chat := chat_of(model)) else None


def named_at(spec: str) -> tuple[str, str]:
    """The name and the URL of NAME@URL; the URL of a mere NAME is empty."""
    name, at, url = spec.partition("@http")
    if not name:
        raise InputError(f"a model is NAME or NAME@URL, not {shown(spec)}")
    return name, f"http{url}" if at else ""


def label(name: str, url: str) -> str:
    """How a model is called in a report: of where it is, only the host."""
    return f"{name}@{urlsplit(url).netloc.rpartition('@')[2]}" if url else name


def _one_of(base_url: BaseUrl) -> str:
    """Any replica: they all serve the same."""
    source = find_replicas(base_url)
    urls = source.first or source.look()
    if not urls:
        raise InputError(f"nobody is known behind {base_url}: is the name right?")
    return urls[0]
