"""What is examined, and what that costs."""

from __future__ import annotations

import os
from typing import NamedTuple

from camel.core.message import Usage
from camel.models.catalogue import ModelPrice, find
from camel.models.connect import DEFAULT_MODEL
from camel.models.discovery import BaseUrl
from camel.models.guided import Guide

MAX_TOKENS = 64
"""Of an answer: enough to see its shape."""
_LINES = 80
LONG = "\n".join(
    f"Rule {number}: whoever asks about item {number} is told its number." for number in range(_LINES)
)
"""A prompt above the 1,024 tokens from which OpenAI caches."""
CALLS = {"answer": 1, "streaming": 1, "several answers": 1, "JSON schema": 1, "grammar": 2, "cache": 2}


class Target(NamedTuple):
    """An endpoint and the model that is wanted of it."""

    name: str = ""
    """Left out: what the endpoint serves, or OpenAI's usual one."""
    base_url: BaseUrl = ""
    """Left out: OPENAI_BASE_URL, or OpenAI."""
    api_key: str | None = None
    """Left out: OPENAI_API_KEY."""
    context_tokens: int | None = None
    """The window that is counted on, where somebody has said one."""
    guided: Guide | None = None
    """The guided format that is counted on."""
    price: ModelPrice | None = None
    seconds: float = 60.0
    """That an answer may take."""


def calls_of(target: Target) -> Usage:
    """The most that examining an endpoint can take: calls, and tokens of prompts and answers."""
    calls = sum(CALLS.values())
    long_prompts = 2 * (len(LONG) // 2)  # numbers take a token for each digit with some
    return Usage(prompt=long_prompts + 60 * calls, completion=MAX_TOKENS * (calls + 1), calls=calls)


def price_of(target: Target, usage: Usage) -> float | None:
    """Dollars that `usage` costs there; None where nobody knows."""
    own = target.base_url or os.environ.get("OPENAI_BASE_URL")
    # What a server of one's own serves is not known before it is asked.
    entry = target.price or find(target.name or ("" if own else DEFAULT_MODEL))
    return None if entry is None else entry.cost(usage)
