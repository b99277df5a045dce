"""From what a user has (a name, a URL, an environment) to a model: the few questions worth asking the endpoint first."""

from __future__ import annotations

import os

from camel.core.errors import InputError, ModelError
from camel.models.chat import ChatModel
from camel.models.discovery import BaseUrl, find_replicas
from camel.models.endpoint import served_models
from camel.models.guided import Guide

DEFAULT_MODEL = "gpt-4.1-mini"
"""What is asked of OpenAI when no model is named."""


def connect(
    name: str = "",
    *,
    base_url: BaseUrl = "",
    context_tokens: int | None = None,
    guided: Guide | None = None,
    max_attempts: int = 6,
) -> ChatModel:
    """A model by name, or the one that the endpoint serves; its window is looked up where the endpoint tells it."""
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
    return ChatModel(
        name or DEFAULT_MODEL,
        base_url=base_url or None,
        context_tokens=context_tokens,
        guided=guided,
        max_attempts=max_attempts,
    )


def _one_of(base_url: BaseUrl) -> str:
    """Any replica: they all serve the same."""
    source = find_replicas(base_url)
    urls = source.first or source.look()
    if not urls:
        raise InputError(f"nobody is known behind {base_url}: is the name right?")
    return urls[0]
