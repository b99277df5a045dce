"""What is said and what it cost: the values that every other part passes around.

All are frozen msgspec structs: cheap to make, comparable, and serialised the same way everywhere. Those of which there
are many (`gc=False`) hold no cycles and are not tracked by the garbage collector: with thousands of conversations open,
its walks over them cost more than the calls.
"""

from __future__ import annotations

from typing import Any, Literal, cast

import msgspec

from camel.core.checks import shown, whole
from camel.core.errors import InputError
from camel.core.grammar import Move, parse

FinishReason = Literal["stop", "length", "content_filter", "refusal", "other"]
"""Why a model stopped writing. `refusal` is a reply whose text came in the refusal field;
`other` covers what a provider invented (tool calls, aborts)."""


OWN_FIELDS = {"model", "messages", "stream", "stream_options"}
"""Of a request's body: the client writes them, and nobody else may."""


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Tokens as the endpoint counted them."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    """The part of `prompt` that the endpoint answered from its prefix cache."""
    calls: int = 0
    """How many calls these tokens are the sum of."""
    unknown: int = 0
    """How many of those calls came back without a usable count, so that sums are a lower bound."""
    reasoning: int = 0
    """The part of `completion` that was thought and not said."""
    written: int = 0
    """The part of `prompt` that the endpoint wrote into its cache, for which some charge more."""
    usd: float = 0.0
    """Dollars, at the prices of the day; 0 where they are not known."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.cached + other.cached,
            self.calls + other.calls,
            self.unknown + other.unknown,
            self.reasoning + other.reasoning,
            self.written + other.written,
            self.usd + other.usd,
        )

    @property
    def total(self) -> int:
        """Prompt and completion together."""
        return self.prompt + self.completion

    def filled(self) -> Usage:
        """The same, with calls that came without a count taken for as large as the others; as it is where none has one."""
        known = self.calls - self.unknown
        if not self.unknown or known <= 0:
            return self
        prompt, completion, cached, reasoning, written = (
            round(count * self.calls / known)
            for count in (self.prompt, self.completion, self.cached, self.reasoning, self.written)
        )
        usd = self.usd * self.calls / known
        return Usage(prompt, completion, cached, self.calls, 0, reasoning, written, usd)


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
    reasoning: Literal["low", "medium", "high", "off"] | int | None = None
    """How much a model that thinks may think: a level, a number of tokens, or `"off"`."""
    extra: dict[str, Any] = {}
    """Fields sent to the endpoint as they are, e.g. `{"reasoning_effort": "low"}`."""

    def __post_init__(self) -> None:
        _number("temperature", self.temperature, 0, 10)
        _number("top_p", self.top_p, 0, 1)
        _number("presence_penalty", self.presence_penalty, -2, 2)
        _number("frequency_penalty", self.frequency_penalty, -2, 2)
        _whole("max_tokens", self.max_tokens, 1, 10_000_000)
        _whole("n", self.n, 1, 1_000, optional=False)
        _whole("seed", self.seed, -(2**63), 2**63 - 1)
        _whole("logprobs", self.logprobs, 0, 100)
        if self.reasoning not in (None, "low", "medium", "high", "off"):
            _whole("reasoning", self.reasoning, 1, 1_000_000)
        stop: Any = self.stop
        if not isinstance(stop, tuple | list) or not all(
            isinstance(s, str) and s for s in cast("list[Any]", stop)
        ):
            raise InputError(f"stop must be a list of non-empty strings, not {shown(self.stop)}")
        msgspec.structs.force_setattr(self, "stop", tuple(self.stop))
        extra: Any = self.extra
        if not isinstance(extra, dict) or not all(
            isinstance(key, str) for key in cast("dict[Any, Any]", extra)
        ):
            raise InputError(f"extra must be a dict with text as keys, not {shown(self.extra)}")
        if taken := sorted(OWN_FIELDS & extra.keys()):
            raise InputError(f"extra cannot set {', '.join(taken)}: the client does")
        try:
            msgspec.json.encode(self.extra)
            msgspec.json.encode(self.stop)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"stop or extra cannot be sent as JSON: {error}") from None


def _number(name: str, value: Any, low: float, high: float) -> None:
    if value is None:
        return
    # The comparison is false for NaN, which no endpoint accepts.
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InputError(f"{name} must be a number from {low:g} to {high:g}, not {shown(value)}")


def _whole(name: str, value: Any, low: int, high: int, *, optional: bool = True) -> None:
    if value is not None or not optional:
        whole(name, value, low, high)


class Proposal(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Something that might have been said."""

    content: str
    speaker: str = ""
    """Who would have said it; empty for the speaker of the message."""
    parent: int = -1
    """The proposal that it answers, where a search looked ahead, or revises; -1 for a first one."""
    revises: bool = False
    """Whether it is another version of its parent, written after the critic's feedback."""
    score: float | None = None
    reason: str = ""
    """What the critic said of it: a reason, or feedback for a revision."""


class Deliberation(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How a message was chosen: everything that was proposed, and the critic's choice."""

    critic: str
    """Who chose: a model as the endpoint named it, a rule, or a person."""
    proposals: tuple[Proposal, ...]
    choice: int
    """The proposal that was said."""
    reason: str = ""
    fallback: str = ""
    """How it was settled where the critic did not decide; empty where it did."""


class Action(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A tool that a speaker used before it spoke."""

    tool: str
    arguments: str = "{}"
    """As JSON."""
    result: str = ""
    error: str = ""
    seconds: float = 0.0


class TokenTrace(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The tokens of a reply, where the endpoint told them: what training by reinforcement learning needs."""

    ids: list[int] = []
    logprobs: list[float] = []


class Message(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
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
    deliberation: Deliberation | None = None
    """What it was chosen from, where somebody chose."""
    reasoning: str = ""
    """What the model thought before it spoke; nobody else hears it."""
    actions: list[Action] = []
    """The tools that were used for it, in order."""
    tokens: TokenTrace | None = None
    seen: int = -1
    """How many messages its speaker could have heard; -1: all before it. Fewer where several speak at the same time."""
    forgot: int = 0
    """How many of its speaker's turns, after the first ones, were no longer in what its model was sent."""
    summary: str = ""
    """What the speaker's model made of them, where it was asked before this message; in force until more is forgotten."""

    @property
    def move(self) -> Move:
        """What this message does in the instruction grammar."""
        return parse(self.content)


def in_one_line(text: str) -> str:
    """Without line breaks: names of roles and speakers come from models too, and must not pose as more than a name."""
    return " ".join(text.split())


def well_formed(text: str) -> str:
    """Replace lone surrogates, which no endpoint or file takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
