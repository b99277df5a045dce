"""Messages, sampling settings and usage: the values that every other package passes around.

All are frozen msgspec structs: cheap to create, comparable, and serialized the same way everywhere. Types with many
instances (`gc=False`) hold no cycles and are not tracked by the garbage collector: with thousands of open conversations,
its walks over them cost more than the calls.
"""

from __future__ import annotations

from typing import Any, Literal, cast

import msgspec

from camel.core.checks import shown, whole
from camel.core.errors import InputError
from camel.core.grammar import Move, parse

FinishReason = Literal["stop", "length", "content_filter", "refusal", "other"]
"""Why a model stopped. `refusal` is a reply whose text came in the refusal field;
`other` covers anything else a provider reports (tool calls, aborts)."""


OWN_FIELDS = {"model", "messages", "stream", "stream_options"}
"""Fields of a request's body that the client sets; `extra` must not contain them."""


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Token counts as the endpoint reported them."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    """The part of `prompt` that the endpoint answered from its prefix cache."""
    calls: int = 0
    """Number of calls in this sum."""
    unknown: int = 0
    """Number of these calls without a usable token count; if not 0, the sums are a lower bound."""
    reasoning: int = 0
    """The part of `completion` that was reasoning, not in the reply."""
    written: int = 0
    """The part of `prompt` that the endpoint wrote into its cache; some providers charge more for it."""
    usd: float = 0.0
    """US dollars at the configured prices; 0 if prices are unknown."""

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
        """Prompt plus completion tokens."""
        return self.prompt + self.completion

    def filled(self) -> Usage:
        """Return the usage with the missing token counts filled in at the average of the other calls. Unchanged if no call has
        a count."""
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
    """Sampling settings of a call. `None` uses the endpoint's default."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    n: int = 1
    """Candidates per call. The conversation uses the first unless a critic chooses."""
    seed: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    """Number of alternatives to report per token; 0 reports the chosen token only."""
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    reasoning: Literal["low", "medium", "high", "off"] | int | None = None
    """Reasoning of the model before it replies: an effort level, a number of tokens, or `"off"`."""
    extra: dict[str, Any] = {}
    """Further fields of the request body, sent unchanged, e.g. `{"reasoning_effort": "low"}`."""

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
            raise InputError(f"extra must not set {', '.join(taken)}: the client sets these fields")
        try:
            msgspec.json.encode(self.extra)
            msgspec.json.encode(self.stop)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"stop or extra cannot be sent as JSON: {error}") from None


def _number(name: str, value: Any, low: float, high: float) -> None:
    if value is None:
        return
    # The comparison is false for NaN, too.
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InputError(f"{name} must be a number from {low:g} to {high:g}, not {shown(value)}")


def _whole(name: str, value: Any, low: int, high: int, *, optional: bool = True) -> None:
    if value is not None or not optional:
        whole(name, value, low, high)


def with_seed(sampling: Sampling, seed: int | None) -> Sampling:
    """Return the settings with a seed, if there is one."""
    return sampling if seed is None else msgspec.structs.replace(sampling, seed=seed)


class Proposal(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A candidate for a message."""

    content: str
    speaker: str = ""
    """The speaker of this proposal. Empty: the speaker of the message."""
    parent: int = -1
    """Index of the proposal that this one revises, or that it answers in a search. -1 if there is none."""
    revises: bool = False
    """Whether it is a revision of its parent after the critic's feedback."""
    score: float | None = None
    reason: str = ""
    """The critic's reason, or its feedback for a revision."""


class Deliberation(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How a message was chosen: all proposals, and the critic's choice."""

    critic: str
    """The critic: the model name that the endpoint reported, a rule, or a person."""
    proposals: tuple[Proposal, ...]
    choice: int
    """Index of the proposal that was said."""
    reason: str = ""
    fallback: str = ""
    """The fallback that was used because the critic did not decide; empty if it did."""


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """A call of a tool as the model wrote it."""

    id: str
    name: str
    arguments: str = "{}"
    """As JSON. The model may have written something else."""


class Action(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A tool call that a speaker made before it spoke."""

    tool: str
    arguments: str = "{}"
    """As JSON."""
    result: str = ""
    error: str = ""
    """Why there is no result. The model reads this text, too."""
    seconds: float = 0.0
    call: str = ""
    """The id of the call in the speaker's chat."""
    step: int = 0
    """Calls with the same number were made by one reply, before the next one."""
    said: str = ""
    """The text of that reply; only in the first of its calls."""
    change: str = ""
    """The changes of the conversation's shared state, as JSON. Empty if the state is the same as before."""


class TokenTrace(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The tokens of a reply as the endpoint reported them, for reinforcement learning."""

    ids: list[int] = []
    logprobs: list[float] = []


class Message(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One message of a conversation, with its cost and how it was made."""

    index: int
    speaker: str
    """The speaker's name: `user`, `assistant`, or a member of a society."""
    role: str
    """The speaker's role, e.g. `Stock Trader`."""
    content: str
    model: str = ""
    """The model name that the endpoint reported; empty if no model spoke."""
    finish: FinishReason = "stop"
    usage: Usage = Usage()
    latency: float = 0.0
    """Seconds from sending the request to the last byte of the reply, retries included."""
    attempts: int = 1
    guided: str = ""
    """The grammar that constrained the output, e.g. `llama.cpp:instruction`; empty if there was none."""
    deliberation: Deliberation | None = None
    """The proposals and the critic's choice, if there was a critic."""
    reasoning: str = ""
    """The model's reasoning before the message; the other speakers do not see it."""
    actions: list[Action] = []
    """The tool calls made for it, in order."""
    tokens: TokenTrace | None = None
    seen: int = -1
    """Number of earlier messages that the speaker could have heard. -1: all. Fewer if several speak at the same time."""
    forgot: int = 0
    """Number of turns of the speaker that were no longer in the prompt. The first turn is never dropped."""
    summary: str = ""
    """The summary of the dropped turns, if one was made for this message. It is used until more turns are dropped."""

    @property
    def move(self) -> Move:
        """The message parsed by the instruction grammar."""
        return parse(self.content)


def in_one_line(text: str) -> str:
    """Remove line breaks from a name, which may come from a model and must not look like more than a name."""
    return " ".join(text.split())


def well_formed(text: str) -> str:
    """Replace lone surrogates, which endpoints and files reject."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
