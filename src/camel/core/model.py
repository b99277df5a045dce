"""`Model`, the base class of everything that speaks, with one required method.

A hosted model, a scripted one in a test, a replayed journal and a person at a keyboard are all `Model`s, so the
conversation loop treats them alike.
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
from camel.core.message import Action, Deliberation, FinishReason, Sampling, ToolCall, Usage
from camel.core.resolve import resolvers

Expects = Literal[
    "task", "instruction", "solution", "list", "choice", "scores", "verdict", "comparison", "result"
]
"""The expected format of a reply, for endpoints that can constrain output. The last five are JSON: a judge's answers, and the
structured result of a conversation."""


class Text(msgspec.Struct, frozen=True):
    """A piece of a reply, as it is streamed."""

    speaker: str
    text: str


class Retrying(msgspec.Struct, frozen=True):
    """A call failed and is retried: discard the `Text` pieces received for it so far."""

    speaker: str
    error: str
    wait: float


class Acting(msgspec.Struct, frozen=True):
    """A speaker calls a tool."""

    speaker: str
    call: ToolCall


class Acted(msgspec.Struct, frozen=True):
    """A tool call of a speaker has ended."""

    speaker: str
    action: Action


Event = Text | Retrying | Acting | Acted
Watch = Callable[[Event], None]
"""Called on the event loop while a reply arrives; must return quickly."""


class ToolSchema(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool as its model sees it."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    """The JSON schema of its arguments."""


class Request(msgspec.Struct, frozen=True, gc=False):
    """One call: the history and the sampling settings."""

    history: History
    sampling: Sampling = Sampling()
    session: str = ""
    """Identifies the conversation, so that its calls can go to one replica with a warm cache."""
    speaker: str = ""
    expects: Expects | None = None
    watch: Watch | None = None
    """If given, the reply is streamed and each piece is passed to this function."""
    options: int = 0
    """Number of options in a critic's question. The grammar of the answer depends on it."""
    schema: dict[str, Any] | None = None
    """The JSON schema of a structured result, which is also part of the question."""
    tools: tuple[ToolSchema, ...] = ()
    """The tools that the model may call."""

    def digest(self) -> bytes:
        """Return a hash of history, sampling and speaker, which identifies the request."""
        # `options`, `schema` and `tools` are not hashed: the first two are in the history, tools in the settings of the run, and
        # older journals do not have the fields.
        asked = msgspec.json.encode((self.sampling, self.speaker, self.expects))
        return hashlib.blake2b(self.history.digest() + asked, digest_size=16).digest()


THOUGHT_ONLY = "the model used all its tokens for reasoning and gave no answer: raise sampling.max_tokens or lower its reasoning effort"


class Choice(msgspec.Struct, frozen=True, gc=False):
    """One candidate reply."""

    content: str
    finish: FinishReason = "stop"
    logprobs: list[Any] | None = None
    reasoning: str = ""
    """The model's reasoning; not part of `content`."""
    calls: tuple[ToolCall, ...] = ()
    """The tools that the model wants to call before it replies."""

    @property
    def thought_only(self) -> bool:
        """Whether reasoning, visible or hidden, used all tokens before any content."""
        return self.finish == "length" and not self.content.strip() and not self.calls


class Reply(msgspec.Struct, frozen=True, gc=False):
    """The result of a call: at least one choice, and the usage."""

    choices: tuple[Choice, ...]
    usage: Usage = Usage(calls=1, unknown=1)
    model: str = ""
    latency: float = 0.0
    attempts: int = 1
    guided: str = ""
    limited: int = 0
    """Number of attempts at this call that got a 429."""
    deliberation: Deliberation | None = None
    """How the critic chose the reply, if there was a critic. `usage` then counts all calls made for it."""
    by: str = ""
    """The run's name for the model that replied, if the run has several models."""
    actions: tuple[Action, ...] = ()
    """The tool calls that were made for the reply. `usage` then counts all calls of the model."""

    @property
    def content(self) -> str:
        """The text of the first choice."""
        return self.choices[0].content


class Price(Protocol):
    """The price of a model."""

    def cost(self, usage: Usage) -> float:
        """Return the cost of `usage` in US dollars."""
        ...


class Model(ABC):
    """Anything that answers a request: a hosted model, a scripted one, a person. Raises only `ModelError`.

    Your own model only needs `reply`; everything else has defaults.
    """

    name: str = ""
    """The model's name in prices, reports and the identity of a run."""
    context_tokens: int | None = None
    """The model's context window in tokens, if known."""
    base_url: str = ""
    """The address of the model's endpoint, for traces."""
    price: Price | None = None
    """The model's price, if known. Otherwise the price is looked up by name."""
    batch: bool = False
    """Whether the model uses a batch API."""
    stand_in: Model | None = None
    """The model that replaces it in a look-ahead search: a person is not asked for hypothetical replies."""

    @abstractmethod
    async def reply(self, request: Request) -> Reply:
        """Answer `request`, or raise a `ModelError`."""

    async def ask(self, text: str, *, system: str = "", sampling: Sampling = Sampling()) -> str:  # noqa: B008 - frozen
        """Ask the model one question and return the text of its answer."""
        history = History(system)
        history.add("user", text)
        return (await self.reply(Request(history, sampling))).content

    def release(self, session: str) -> None:  # noqa: B027 - most models keep nothing
        """Free what is stored for a conversation. Called when the conversation has ended."""

    async def rest(self) -> None:  # noqa: B027 - most models have nothing to put away
        """Free resources, such as a local server, until the next call; called when no call is expected for a while."""

    async def aclose(self) -> None:  # noqa: B027 - most models have nothing open
        """Close connections; the next call opens them again."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


class WrappedModel(Model):
    """A model that wraps another one: the base of models that count, record, check or trace calls."""

    def __init__(self, inner: Model) -> None:
        self.inner = inner
        self.name, self.base_url = inner.name, inner.base_url
        self.context_tokens, self.stand_in = inner.context_tokens, inner.stand_in
        self.price = inner.price

    def release(self, session: str) -> None:
        """Release the conversation in the wrapped model."""
        self.inner.release(session)

    async def rest(self) -> None:
        """Let the wrapped model free its resources until the next call."""
        await self.inner.rest()

    async def aclose(self) -> None:
        """Close the wrapped model."""
        await self.inner.aclose()


def checked_model(model: object) -> Model:
    """Return `model` if it is a `Model`, or look up the model if it is a name. Raise an `InputError` for anything else."""
    if isinstance(model, str):
        return resolvers.model(model)
    if not isinstance(model, Model):
        raise InputError(
            "model must be a name or a Model, a subclass of camel.Model with an async method reply(request), not "
            f"{shown(model)}"
        )
    return model
