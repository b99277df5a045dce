"""The boundary to whatever speaks: one protocol with one async method.

A hosted model, a scripted one in a test, a replayed journal and a person at a keyboard are all `Model`s,
which is why the conversation loop knows none of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Literal, Protocol, cast

import msgspec

from camel.core.errors import InputError, shown
from camel.core.history import History
from camel.core.message import Deliberation, FinishReason, Sampling, Usage

Expects = Literal["task", "instruction", "solution", "list", "choice", "scores", "verdict", "comparison"]
"""The shape of reply a seat is meant to give, for endpoints that can be held to one; the last four are a judge's."""


class Text(msgspec.Struct, frozen=True):
    """A piece of a reply, as it arrives."""

    speaker: str
    text: str


class Retrying(msgspec.Struct, frozen=True):
    """A call failed and will be sent again: whatever `Text` came for it so far is void."""

    speaker: str
    error: str
    wait: float


Event = Text | Retrying
Watch = Callable[[Event], None]
"""Called on the event loop while a reply is being made; must return quickly."""


class Request(msgspec.Struct, frozen=True, gc=False):
    """One call: what the model has heard, and how it is asked to answer."""

    history: History
    sampling: Sampling = Sampling()
    session: str = ""
    """Identifies the conversation, so that its calls can be kept on one warm replica."""
    speaker: str = ""
    expects: Expects | None = None
    watch: Watch | None = None
    """When given, the reply is streamed and each piece is reported here."""
    options: int = 0
    """How many options a critic is asked about."""

    def digest(self) -> bytes:
        """Identifies what is asked: the history, the sampling and the seat."""
        # The options are in the history: counted here they would only unsettle journals that know nothing of them.
        asked = msgspec.json.encode((self.sampling, self.speaker, self.expects))
        return hashlib.blake2b(self.history.digest() + asked, digest_size=16).digest()


class Choice(msgspec.Struct, frozen=True, gc=False):
    """One candidate reply."""

    content: str
    finish: FinishReason = "stop"
    logprobs: list[Any] | None = None


class Reply(msgspec.Struct, frozen=True, gc=False):
    """What came back from a call: at least one choice, and what it cost."""

    choices: tuple[Choice, ...]
    usage: Usage = Usage(calls=1, unknown=1)
    model: str = ""
    latency: float = 0.0
    attempts: int = 1
    guided: str = ""
    limited: int = 0
    """How many of the attempts were answered 429."""
    deliberation: Deliberation | None = None
    """What it was chosen from, where somebody chose; then the usage is that of all calls."""

    @property
    def content(self) -> str:
        """The text of the first choice."""
        return self.choices[0].content


class Model(Protocol):
    """Anything that answers a request. Fails with a `ModelError` and nothing else.

    A model that knows its context window says so in an attribute `context_tokens: int`; one that holds
    connections open offers `async def aclose()`.
    """

    async def reply(self, request: Request) -> Reply:
        """Answer `request`, or raise a `ModelError`."""
        ...


def checked_model(model: object) -> Model:
    """Return `model` if it can be asked; otherwise raise an `InputError` in one line."""
    if isinstance(model, type) or not callable(getattr(model, "reply", None)):
        raise InputError(f"model must be an object with an async method reply(request), not {shown(model)}")
    return cast("Model", model)
