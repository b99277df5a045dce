"""What a provider is: a description as data, and a few functions where data is not enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from tests.support.providers.words import Count, Heard, Said


class Call(NamedTuple):
    """A request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    query: Mapping[str, str]
    body: dict[str, Any]
    key: str
    """The key that the provider accepts."""

    @property
    def model(self) -> str:
        return str(self.body.get("model", ""))


@dataclass(frozen=True)
class Failure:
    """An error: what is sent instead of a reply."""

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict[str, str])
    wait: float = 0.0
    """Seconds for which it asks the client to wait."""


@dataclass(frozen=True)
class Cache:
    """From how many tokens a provider caches prompts, in which steps, and what reading and writing cost."""

    least: int = 1
    unit: int = 1
    read: float = 0.1
    """Times the price of a prompt's token."""
    write: float = 0.0
    """The same; 0: writing costs nothing extra and is not reported."""


class Wire(Protocol):
    """A wire format: how a request is read and a reply is written."""

    def heard(self, body: dict[str, Any]) -> Heard: ...

    def limit(self, body: dict[str, Any], names: tuple[str, ...]) -> int | None: ...

    def choices(self, body: dict[str, Any]) -> int: ...

    def whole(self, provider: Provider, call: Call, said: tuple[Said, ...], count: Count) -> Any: ...

    def spoil(self, provider: Provider, reply: Any, kind: str) -> Any: ...

    def events(
        self, provider: Provider, call: Call, said: tuple[Said, ...], count: Count, kind: str
    ) -> list[bytes]: ...


INPUT, OUTPUT = 2.0, 10.0
"""Dollars per million tokens at every provider: each token is worth more than a micro-dollar."""

Form = Literal[
    "", "reasoning_content", "reasoning", "details", "parts", "tags", "lone", "thought_tags", "blocks"
]
"""Where a reply holds what was thought; empty: nowhere."""


@dataclass(frozen=True)
class Provider:
    """A provider's documented behavior."""

    name: str
    wire: Wire
    base: str
    """The path of a `base_url`."""
    path: str
    """What is posted to, after the base."""
    dialect: str = ""
    """The value of `[model] dialect`; the name where it is empty."""
    key: str = "authorization"
    """The header that holds the key; `either` takes Azure's two; empty: no key is asked for."""
    limits: tuple[str, ...] = ("max_tokens", "max_completion_tokens")
    """Names of the limit of tokens that have an effect."""
    refuse: Callable[[Call], Failure | None] = lambda call: None
    """Why a request is refused, if it is."""
    thinks: Callable[[Call], bool] = lambda call: False
    form: Callable[[Call], Form] = lambda call: ""
    usage: Callable[[Count], dict[str, Any]] = lambda count: {}
    usage_in_stream: Literal["option", "always", "every", "x_groq"] = "option"
    reports: bool = True
    """Whether the usage tells how many tokens were thought."""
    cache: Cache | None = None
    caches_until: Callable[[Call], int] = lambda call: len(call.body.get("messages", ()))
    """How many turns of a request are cached, the system prompt included."""
    errors: Mapping[str, Failure] = field(default_factory=dict[str, Failure])
    headers: dict[str, str] = field(default_factory=dict[str, str])
    """Of every reply."""
    padding: str = ""
    """What comes before a reply while it is made."""
    comments: bytes = b""
    """What comes before and between the events of a stream."""
    extra: Callable[[Call], dict[str, Any]] = lambda call: {}
    """Further fields of a reply."""
    choice: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further fields of a choice."""
    ignored: tuple[str, ...] = ()
    """Fields that are documented to have no effect."""

    @property
    def price(self) -> dict[str, float]:
        """What a configuration says about the price."""
        found = {"input": INPUT, "output": OUTPUT}
        return found | ({"cached": INPUT * self.cache.read} if self.cache else {})

    def bill(self, count: Count) -> float:
        """Dollars for a reply: what is read from the cache and what is written to it have prices of their own."""
        cache = self.cache or Cache(read=1.0)
        fresh = count.prompt - count.cached - count.written
        prompt = fresh + count.cached * cache.read + count.written * cache.write
        return (prompt * INPUT + count.completion * OUTPUT) / 1e6

    def ignores(self, call: Call) -> tuple[str, ...]:
        """Fields of a request that have no effect."""
        wrong = {"max_tokens", "max_completion_tokens", "max_output_tokens"} - set(self.limits)
        return tuple(name for name in call.body if name in self.ignored or name in wrong)

    def admit(self, call: Call) -> Failure | None:
        """Refuse a wrong path or key."""
        if call.method != "POST" or call.path != self.base + self.path:
            return Failure(
                404, {"error": {"message": f"Invalid URL ({call.method} {call.path})", "code": None}}
            )
        bearer = call.headers.get("authorization") == f"Bearer {call.key}"
        named = call.headers.get("api-key") == call.key
        allowed = {
            "": True,
            "authorization": bearer,
            "either": bearer or named,
            "api-key": named,
            "x-api-key": bearer or call.headers.get("x-api-key") == call.key,
        }[self.key]
        if not allowed:
            return self.errors.get("key") or Failure(
                401, {"error": {"message": "Incorrect API key provided.", "code": "invalid_api_key"}}
            )
        return None
