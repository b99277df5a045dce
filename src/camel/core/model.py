"""The boundary to whatever speaks: a base class with one required method.

A hosted model, a scripted one in a test, a replayed journal and a person at a keyboard are all `Model`s,
which is why the conversation loop knows none of them.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, Protocol, Self

import msgspec

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.core.history import History
from camel.core.message import Deliberation, FinishReason, Sampling, Usage
from camel.core.resolve import resolvers

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


THOUGHT_ONLY = "thinking used up the limit of tokens before the model said anything: raise sampling.max_tokens, or let it think less"


class Choice(msgspec.Struct, frozen=True, gc=False):
    """One candidate reply."""

    content: str
    finish: FinishReason = "stop"
    logprobs: list[Any] | None = None
    reasoning: str = ""
    """What the model thought before it spoke; no part of `content`."""

    @property
    def thought_only(self) -> bool:
        """Whether its tokens were used up before the model had said anything: by thinking, also where that is hidden."""
        return self.finish == "length" and not self.content.strip()


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
    by: str = ""
    """The model as the run calls it, where it has several."""

    @property
    def content(self) -> str:
        """The text of the first choice."""
        return self.choices[0].content


class Price(Protocol):
    """What a model costs."""

    def cost(self, usage: Usage) -> float:
        """Dollars for that much."""
        ...


class Model(ABC):
    """Anything that answers a request: a hosted model, a scripted one, a person. Fails with a `ModelError` and nothing else.

    A model of your own needs `reply` alone; the rest has defaults.
    """

    name: str = ""
    """What it is called, in prices, reports and the identity of a run."""
    context_tokens: int | None = None
    """Its window, where it is known."""
    base_url: str = ""
    """Where it is reached, for traces."""
    price: Price | None = None
    """What it costs, where that is known and not by its name."""
    batch: bool = False
    """Whether it is asked in batches."""
    stand_in: Model | None = None
    """Who is asked instead where somebody looks ahead; a person is not asked what they might say."""

    @abstractmethod
    async def reply(self, request: Request) -> Reply:
        """Answer `request`, or raise a `ModelError`."""

    async def ask(self, text: str, *, system: str = "", sampling: Sampling = Sampling()) -> str:  # noqa: B008 - frozen
        """What it answers to one question."""
        history = History(system)
        history.add("user", text)
        return (await self.reply(Request(history, sampling))).content

    def release(self, session: str) -> None:  # noqa: B027 - most models keep nothing
        """Hear that a conversation has ended, so that what was kept for it can go."""

    async def rest(self) -> None:  # noqa: B027 - most models have nothing to put away
        """Hear that it is not asked for a while: what it holds, such as a server of its own, may go until it is."""

    async def aclose(self) -> None:  # noqa: B027 - most models have nothing open
        """Close what it has open; it opens again when it is next used."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


class WrappedModel(Model):
    """A model around another, which it asks: the base of all that count, record, check or trace calls."""

    def __init__(self, inner: Model) -> None:
        self.inner = inner
        self.name, self.base_url = inner.name, inner.base_url
        self.context_tokens, self.stand_in = inner.context_tokens, inner.stand_in
        self.price = inner.price

    def release(self, session: str) -> None:
        """Tell the model within."""
        self.inner.release(session)

    async def rest(self) -> None:
        """Tell the model within."""
        await self.inner.rest()

    async def aclose(self) -> None:
        """Close the model within."""
        await self.inner.aclose()


def checked_model(model: object) -> Model:
    """Return `model`, or the model of that name; otherwise raise an `InputError` in one line."""
    if isinstance(model, str):
        return resolvers.model(model)
    if not isinstance(model, Model):
        raise InputError(
            "model must be a name or a Model, a subclass of camel.Model with an async method reply(request), not "
            f"{shown(model)}"
        )
    return model
