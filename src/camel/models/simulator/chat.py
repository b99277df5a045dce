"""Turns the body of a chat request into a reply, complete or as a stream of events.

The one decision to know: a reply depends on the server's seed, the messages, the request's seed and the choice's index. It
does not depend on the model's name, the temperature, order or time. Contents are hashed as sent, so two clients that escape
their JSON differently get different replies.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from itertools import zip_longest
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from camel.models.simulator import wire
from camel.models.simulator.authors import Author, ChatMessage, Facts, write_json
from camel.models.simulator.ledger import TokenCount
from camel.models.simulator.settings import Constant, SimulatorSettings, fraction, mix

BYTES_PER_TOKEN = 4
CREATED = 1_700_000_000
"""The time in every reply, fixed so that equal requests get equal replies."""

_Positive = Annotated[int, Meta(ge=1)]
_encode = msgspec.json.Encoder().encode


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


class ChatRequest(msgspec.Struct):
    """The fields of a chat request that affect the reply; the others are not decoded."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    model: str = ""
    n: Annotated[int, Meta(ge=1, le=128)] | None = 1
    seed: int | None = None
    stream: bool | None = False
    stream_options: _StreamOptions | None = None
    max_tokens: _Positive | None = None
    max_completion_tokens: _Positive | None = None
    response_format: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None


decode_request = msgspec.json.Decoder(ChatRequest).decode


class SimulatedChoice(NamedTuple):
    """One candidate."""

    text: str
    finish: str
    tokens: int
    calls: tuple[dict[str, Any], ...] = ()


class Completion(NamedTuple):
    """A composed reply, before it is encoded."""

    id: str
    model: str
    choices: list[SimulatedChoice]
    tokens: TokenCount


class PrefixCache:
    """An LRU cache of message prefixes."""

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def lookup(self, messages: list[ChatMessage]) -> int:
        """Return the number of bytes in the longest cached prefix of `messages`, and cache all its prefixes."""
        if not self._entries:
            return 0
        rolling, size, longest = sha256(), 0, 0
        for message in messages:
            rolling.update(message.role.encode())
            rolling.update(message.content)
            size += memoryview(message.content).nbytes
            key = rolling.digest()[:12]
            if key in self._seen:
                longest = size
                self._seen.move_to_end(key)
            else:
                self._seen[key] = None
        while len(self._seen) > self._entries:
            self._seen.popitem(last=False)
        return longest


def compose(
    request: ChatRequest, settings: SimulatorSettings, author: Author, cache: PrefixCache
) -> Completion:
    """Let the author write every choice, and count the tokens. A request with a JSON schema gets an example of it, unless it is
    a judge's, which the author answers."""
    named = (request.response_format or {}).get("json_schema")
    if named and named.get("name") not in ("choice", "scores", "verdict", "comparison"):
        author = partial(write_json, named["schema"])
    roles = [message.role for message in request.messages]
    contents = b"\n".join([message.content for message in request.messages])
    hasher = sha256(f"{settings.seed} {request.seed} {' '.join(roles)}".encode())
    hasher.update(contents)
    digest = hasher.hexdigest()[:16]
    turns, acts = roles.count("assistant"), settings.calls_per_message != Constant(0)
    turns -= sum(message.acts for message in request.messages) if acts else 0
    facts = _facts(request, turns, int(digest, 16), settings)
    limit = request.max_completion_tokens or request.max_tokens
    draws = [facts.draw, *(mix(facts.draw, index) for index in range(1, request.n or 1))]
    each = [facts._replace(draw=draw) for draw in draws]
    choices = [(acts and _act(request, one, settings)) or _cut(author(one), limit) for one in each]
    prompt, completion = _tokens(len(contents)), sum(choice.tokens for choice in choices)
    cached = min(prompt, cache.lookup(request.messages) // BYTES_PER_TOKEN)
    tokens = TokenCount(prompt=prompt, completion=completion, cached=cached)
    return Completion(f"chatcmpl-{digest}", request.model or settings.model, choices, tokens)


def _act(request: ChatRequest, facts: Facts, settings: SimulatorSettings) -> SimulatedChoice | None:
    """Return a reply that calls tools in the form of the request, or None if it is time to speak."""
    made, lines = 0, facts.system.splitlines() if "<tool_call>" in facts.system else ()
    tools = [one["function"] for one in request.tools or ()]
    tools = tools or [msgspec.json.decode(line) for line in lines if line.startswith('{"name":')]
    for message in reversed(request.messages):
        if message.role == "tool" or (message.role == "user" and message.text.startswith("<tool_result>")):
            made += 1 if message.role == "tool" else message.text.count("<tool_result>")
        elif not message.acts:
            break
    point = fraction(mix(facts.conversation, facts.turns, 3))
    count = min(round(settings.calls_per_message.at(point)) - made, 1 + (facts.draw & 1))
    calls: list[dict[str, Any]] = []
    for draw in [mix(facts.draw, number, 4) for number in range(count if tools else 0)]:
        tool = tools[draw % len(tools)]
        given = write_json({"type": "object", **tool.get("parameters", {})}, facts._replace(draw=draw))
        called = {"name": tool["name"], "arguments": given}
        calls.append({"id": f"call_{draw:016x}", "type": "function", "function": called})
    form = '<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'
    text = "" if request.tools else "\n".join(form.format(**one["function"]) for one in calls)
    finish, native = ("stop", ()) if text else ("tool_calls", tuple(calls))
    return SimulatedChoice(text, finish, _tokens(len(_encode(calls))), native) if calls else None


def body(completion: Completion) -> bytes:
    """Return the reply as one JSON object."""
    calls = [b',"tool_calls":' + _encode(one.calls) if one.calls else b"" for one in completion.choices]
    choices = b",".join(
        b'{"index":%d,"message":{"role":"assistant","content":%s,"refusal":null%s},'
        b'"logprobs":null,"finish_reason":"%s"}' % (i, _encode(one.text), calls[i], one.finish.encode())
        for i, one in enumerate(completion.choices)
    )
    head = _reply_head(completion, "chat.completion")
    return b'%s"choices":[%s],"usage":%s}' % (head, choices, _usage(completion.tokens))


def events(completion: Completion, include_usage: bool, tokens_per_event: int) -> Iterator[bytes]:
    """Yield the reply as server-sent events, one step of all choices at a time."""
    head = b"data: " + _reply_head(completion, "chat.completion.chunk") + b'"choices":['
    tail = b'],"usage":null}\n\n' if include_usage else b"]}\n\n"
    choices = completion.choices
    opening = [b'%s{"index":%d,"delta":' % (head, index) for index in range(len(choices))]
    more = b'},"logprobs":null,"finish_reason":null}' + tail
    yield b"".join([start + b'{"role":"assistant","content":""' + more for start in opening])
    for step in zip_longest(*[_deltas(choice, tokens_per_event * BYTES_PER_TOKEN) for choice in choices]):
        yield b"".join([opening[i] + b"{" + piece + more for i, piece in enumerate(step) if piece])
    ending = b'{},"logprobs":null,"finish_reason":"%s"}' + tail
    last = [start + ending % choice.finish.encode() for start, choice in zip(opening, choices, strict=True)]
    if include_usage:
        last.append(b'%s],"usage":%s}\n\n' % (head, _usage(completion.tokens)))
    yield b"".join((*last, b"data: [DONE]\n\n"))


def _deltas(choice: SimulatedChoice, size: int) -> Iterator[bytes]:
    for at in range(0, len(choice.text), size):
        yield b'"content":' + _encode(choice.text[at : at + size])
    for index, call in enumerate(choice.calls):
        text = call["function"]["arguments"]
        begun = {**call, "index": index, "function": {**call["function"], "arguments": ""}}
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        for piece in (begun, *({"index": index, "function": {"arguments": one}} for one in pieces)):
            yield b'"tool_calls":' + _encode([piece])


def error(status: int, message: str, headers: bytes = b"") -> bytes:
    """Return a complete response in OpenAI's error format."""
    kind = {429: "rate_limit_exceeded", 404: "not_found_error"}.get(
        status, "server_error" if status >= 500 else "invalid_request_error"
    )
    content = {"error": {"message": message, "type": kind, "param": None, "code": None}}
    return wire.respond(status, _encode(content), headers)


def _facts(request: ChatRequest, turns: int, draw: int, settings: SimulatorSettings) -> Facts:
    messages = request.messages
    system = messages[0].text if messages[0].role in ("system", "developer") else ""
    named = sha256(b"%d\n%s" % (settings.seed, system.encode()))
    conversation = int(named.hexdigest()[:16], 16)
    return Facts(
        system=system,
        messages=messages,
        turns=turns,
        conversation=conversation,
        draw=draw,
        words=settings.words,
        length=settings.length.at(fraction(mix(conversation, 1))) if settings.length else math.inf,
        model=request.model,
    )


def _cut(text: str, limit: int | None) -> SimulatedChoice:
    written = text.encode()
    tokens = _tokens(len(written))
    if limit is None or tokens <= limit:
        return SimulatedChoice(text, "stop", tokens)
    return SimulatedChoice(written[: limit * BYTES_PER_TOKEN].decode(errors="ignore"), "length", limit)


def _tokens(size: int) -> int:
    return max(1, -(-size // BYTES_PER_TOKEN))


def _reply_head(completion: Completion, kind: str) -> bytes:
    head = completion.id.encode(), kind.encode(), CREATED, _encode(completion.model)
    return b'{"id":"%s","object":"%s","created":%d,"model":%s,' % head


def _usage(tokens: TokenCount) -> bytes:
    return (
        b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}'
        % (tokens.prompt, tokens.completion, tokens.prompt + tokens.completion, tokens.cached)
    )
