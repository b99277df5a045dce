"""What is said and what it cost: the values that every other part passes around.

All are frozen msgspec structs: cheap to make, comparable, and serialised the same way everywhere.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import msgspec

from camel.core.grammar import Move, parse

FinishReason = Literal["stop", "length", "content_filter", "refusal", "other"]
"""Why a model stopped writing. `refusal` is a reply whose text came in the refusal field;
`other` covers what a provider invented (tool calls, aborts)."""


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens as the endpoint counted them."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    """The part of `prompt` that the endpoint answered from its prefix cache."""
    calls: int = 0
    """How many calls these tokens are the sum of."""
    unknown: int = 0
    """How many of those calls came back without a usable count, so that sums are a lower bound."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.cached + other.cached,
            self.calls + other.calls,
            self.unknown + other.unknown,
        )

    @property
    def total(self) -> int:
        """Prompt and completion together."""
        return self.prompt + self.completion


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How a model is asked to write. `None` leaves a setting to the endpoint's own default."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    n: int = 1
    """Candidates per call; the conversation uses the first unless a critic chooses."""
    seed: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    """Number of alternatives to report per token; 0 reports the chosen token only."""
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    extra: dict[str, Any] = {}
    """Fields sent to the endpoint as they are, e.g. `{"reasoning_effort": "low"}`."""


class Message(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """One thing said in a conversation, with what it took to say it."""

    index: int
    speaker: str
    """The seat it came from: `user`, `assistant`, or a name of a larger society."""
    role: str
    """The role played there, e.g. `Stock Trader`."""
    content: str
    model: str = ""
    """The model as the endpoint named itself; empty where no model spoke."""
    finish: FinishReason = "stop"
    usage: Usage = Usage()
    latency: float = 0.0
    """Seconds from sending the call to its last byte, retries included."""
    attempts: int = 1
    guided: str = ""
    """The guided format that was in force, e.g. `llama.cpp:instruction`; empty when the model wrote freely."""

    @cached_property
    def move(self) -> Move:
        """What this message does in the instruction grammar; parsed once."""
        return parse(self.content)
