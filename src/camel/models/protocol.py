"""The base class of the three protocols: names of settings, adjustments after rejections, grammars, streams, tool calls."""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, cast

import msgspec

from camel.core.errors import MalformedReply, ReplyTooLarge
from camel.core.history import Entry
from camel.core.message import FinishReason, Sampling, ToolCall, well_formed
from camel.core.model import Choice, Reply, Request, ToolSchema
from camel.core.thought import SpeechFilter, separate
from camel.models.dialects import Dialect
from camel.models.guided import CRITICS, Guide, guided_fields
from camel.models.wire import cleaned, field_of

MAX_CALLS, MAX_CHARACTERS = 128, 2**20
"""Maximum number of calls in a choice, and of characters in all of them."""


class _Call(msgspec.Struct):
    index: int
    id: str = ""
    name: str = ""
    arguments: list[str] = []


class Calls:
    """The tool calls of one choice."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._size = 0

    def add(self, index: Any, id: Any, name: Any, arguments: Any) -> None:
        """Add a call or a piece of one. Everything may be missing or invalid, and `arguments` may be an object. Some endpoints
        send calls without an index, or all with the same one."""
        if arguments is not None and not isinstance(arguments, str):
            arguments = json.dumps(cleaned(arguments), ensure_ascii=False)
        id, name, text = (one if isinstance(one, str) else "" for one in (id, name, arguments))
        numbered = isinstance(index, int)
        call = next((one for one in reversed(self._calls) if not numbered or one.index == index), None)
        if call and id and call.id:
            call = call if id == call.id else None
        elif call and name and call.name and (any(call.arguments) or not numbered):
            call = None
        if call is None and (id or name or text):
            call = _Call(index if numbered else len(self._calls))
            self._calls.append(call)
        if call:
            call.id, call.name = call.id or id, call.name or name
            call.arguments.append(text)
        self._size += len(id) + len(name) + len(text) + 8
        if len(self._calls) > MAX_CALLS or self._size > MAX_CHARACTERS:
            raise MalformedReply(
                f"the reply exceeds {MAX_CALLS} tool calls, or {MAX_CHARACTERS:,} characters"
            )

    def whole(self) -> tuple[ToolCall, ...]:
        """Return the calls, in the order of their indexes."""
        found = sorted(self._calls, key=lambda one: one.index)
        names = [plain(one.name.strip())[:64] or "unknown" for one in found]
        texts = [well_formed("".join(one.arguments)).strip() or "{}" for one in found]
        return tuple(map(ToolCall, [well_formed(one.id) for one in found], names, texts))


def plain(text: str) -> str:
    """Replace characters that are not allowed in names of tools."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", text)


MAX_LINE = 4 * 2**20
MAX_NESTED = 250_000
"""Maximum number of lists and objects in a reply. An empty one takes 8 bytes as JSON and 200 when parsed. 4,000 tokens with 20
alternatives have 200,000."""
_IGNORED = (b":", b"event:", b"id:", b"retry:")
"""Lines to ignore: comments, event names, ids."""
STARTS = (b"data:", *_IGNORED)


class EventStream(ABC):
    """Splits a streamed reply into events, which a protocol assembles."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._stray = bytearray()
        """Lines outside of events: possibly a plain body that was labeled as a stream."""
        self._shown = SpeechFilter()
        self._size = self._nested = 0
        self.done = False
        """Whether the stream has signaled its end."""

    @abstractmethod
    def _take(self, payload: bytes) -> Iterator[str]:
        """Process an event and yield the text in it that can be shown."""

    @abstractmethod
    def finished(self) -> Reply:
        """Return the complete reply. Raise a `ModelError` if the stream ended early."""

    def feed(self, data: bytes) -> Iterator[str]:
        """Process more bytes. Yield each new piece of the first choice's text."""
        self._pending += data
        self._size += len(data)
        if self._size > 2**20:  # a smaller stream takes little memory
            self._nested += data.count(b"{") + data.count(b"[")
            check_nested(self._nested)
        if len(self._pending) + len(self._stray) > MAX_LINE:
            raise ReplyTooLarge(f"a line of the stream exceeds {MAX_LINE:,} bytes")
        if b"\n" not in data:
            return
        *lines, self._pending = self._pending.split(b"\n")
        for line in lines:
            if self.done:
                return
            if line.startswith(b"data:"):
                payload = bytes(line[5:]).strip()
                if payload == b"[DONE]":
                    self.done = True
                elif payload:
                    yield from self._take(payload)
                if self.done and (rest := self._shown.rest()):
                    yield rest
            elif not line.startswith(_IGNORED):
                self._stray += line + b"\n"

    def _show(self, text: str) -> Iterator[str]:
        """Yield the part of a text that is known to be speech, not reasoning."""
        if shown := self._shown.feed(text):
            yield shown


def check_nested(count: int) -> None:
    """Raise `ReplyTooLarge` for a number of lists and objects that would fill the memory."""
    if count > MAX_NESTED:
        raise ReplyTooLarge(f"the reply contains {count:,} lists and objects; the limit is {MAX_NESTED:,}")


_SAMPLING_FIELDS = ("temperature", "top_p", "max_tokens", "seed", "presence_penalty", "frequency_penalty")
_MAY_GO = (*_SAMPLING_FIELDS, "stop", "logprobs", "stream_options")
"""Settings that can be omitted from a call or renamed if the endpoint rejects them."""
_LIMITS = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
"""The two names of the limit on a reply's tokens. An endpoint that rejects one of them accepts the other."""
_REFUSED = re.compile(
    r"unsupported|not support|unrecogni[sz]ed|unknown (?:name|field|parameter|argument)|not permitted|not allowed|"
    r"deprecated|cannot find field|unexpected (?:field|keyword|parameter)|incompatible|extra_forbidden|only n ?= ?1|"
    r"(?:must|should) be 1\b|only works in|response_format|json_schema|output_config\.format|text\.format",
    re.IGNORECASE,
)
"""Pattern of error messages about a field that the endpoint does not accept. Any message about a schema is one of them."""
Turns = Callable[[list[Entry]], Iterator[dict[str, Any]]]
encode = msgspec.json.Encoder().encode


class Wire(ABC):
    """Writes requests to one model of an endpoint and parses its replies."""

    path: ClassVar[str]
    """The path after the base URL."""

    def __init__(
        self,
        name: str,
        dialect: Dialect,
        *,
        guided: Guide | None = None,
        max_choices: int | None = None,
        session_field: str = "",
    ) -> None:
        """`guided`, `max_choices` and `session_field` override the dialect."""
        self.dialect, self._name = dialect, name
        # Unknown endpoints get the schema of a result, too, until they reject it.
        self._guided_by_dialect = guided is None and (dialect.guided != "none" or not dialect.hosts)
        self.guided: Guide | None = guided or (None if dialect.guided == "none" else dialect.guided)
        self._max_choices = max_choices or dialect.max_choices
        self._session_field = session_field or dialect.session_field
        self._learned: dict[str, str] = {}
        """Settings that the endpoint has rejected, each with the name to use instead. Empty name: the setting is omitted."""
        self._left_out: set[str] = set()
        """Requested settings that are omitted because the endpoint is known to reject them."""
        self._tails: dict[tuple[Any, ...], tuple[Any, bytes]] = {}

    @abstractmethod
    def encode(self, request: Request) -> bytes:
        """Return the body of a request."""

    def read(self, body: bytes) -> Reply:
        """Parse the body of a 2xx response, which may be a stream. Raise a `ModelError` if it contains no reply."""
        streamed = self.stream()
        for _ in streamed.feed(body + b"\n"):
            pass
        return streamed.finished()

    @abstractmethod
    def stream(self) -> EventStream:
        """Return a parser for a streamed reply."""

    def constraint(self, request: Request) -> str:
        """Return the name of the grammar or schema that constrains the reply, as recorded. Empty if there is none."""
        guide = self._guide_for(request.schema)
        if not guide or not request.expects:
            return ""
        held = guide != "openai" or request.expects in CRITICS
        return f"{guide}:{request.expects}" if held else ""

    def _guide_for(self, schema: dict[str, Any] | None) -> Guide | None:
        """Return how to constrain a reply, or None if it is not constrained."""
        tried = schema is not None and self._guided_by_dialect and "guided" not in self._learned
        return self.guided or ("openai" if tried else None)

    # --- rejections --------------------------------------------------------------------------------------------------

    @property
    def adjustments(self) -> list[str]:
        """Requested settings that calls omit or rename, as text."""
        known = [
            f"{name} is omitted: this model rejects it"
            for name in sorted(self._left_out - self._learned.keys())
        ]
        learned = [
            f"the endpoint rejects {name}: {f'sent as {other}' if other else 'omitted'}"
            for name, other in self._learned.items()
        ]
        return known + learned

    def adjust(self, refusal: str, sampling: Sampling) -> str:
        """Omit or rename a setting from now on if the error message `refusal` names it. Returns CAMEL's name of the setting.
        Returns an empty string if the call was rejected for another reason."""
        if not _REFUSED.search(refusal):
            return ""
        # A rejection may name both limits: the rejected one comes first.
        found = {
            field: place.start()
            for field, pattern in self._refusable(sampling)
            if (place := re.search(pattern, refusal))
        }
        if not found:
            return ""
        field = min(found, key=found.__getitem__)
        if field not in self._learned:  # otherwise another call had been sent before this was learned
            name = self.dialect.renamed(sampling).get(field, field)
            self._learned[field] = _LIMITS.get(name, "") if field == "max_tokens" else ""
            if field == "n":
                self._max_choices = 1
            elif field == "guided":
                self.guided = None
            self._tails.clear()
        return field

    def _refusable(self, sampling: Sampling) -> Iterator[tuple[str, str]]:
        """Yield the settings of a call that an endpoint may reject, each with a pattern that finds it in an error message."""
        settings, names = self._settings(sampling, streaming=True), self.dialect.renamed(sampling)
        for field in _MAY_GO:
            if field in settings and (name := names.get(field, field)):
                yield field, _pattern(name)
        if thought := self.dialect.thought(sampling):
            yield "reasoning", "|".join([*map(_pattern, thought), "thinking mode"])
        if sampling.n > 1:
            yield "n", r"""['"`]n['"`]|(?<![\w'])n(?:: | ?=| must| should| ?>)"""
        if self._guided_by_dialect:
            yield "guided", r"response_format|json_schema|output_config\.format|text\.format"

    # --- the rest of a call ------------------------------------------------------------------------------------------

    def _settings(self, sampling: Sampling, streaming: bool) -> dict[str, Any]:
        """Return the requested settings, by CAMEL's names."""
        values = {name: getattr(sampling, name) for name in _SAMPLING_FIELDS}
        fields: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
        if self.dialect.limit:
            fields.setdefault("max_tokens", self.dialect.limit)
        wanted = min(sampling.n, self._max_choices or sampling.n)
        if wanted > 1:
            fields["n"] = wanted
        if sampling.stop:
            fields["stop"] = sampling.stop
        if sampling.logprobs is not None:
            fields["logprobs"] = min(sampling.logprobs, self.dialect.most_logprobs or sampling.logprobs)
        if streaming:
            fields |= {"stream": True, "stream_options": {"include_usage": True}}
        return fields

    def fields(self, request: Request) -> dict[str, Any]:
        """Return all fields of a body except the model and the messages."""
        sampling = request.sampling
        thought = {} if "reasoning" in self._learned else self.dialect.thought(sampling)
        fields: dict[str, Any] = {**self.dialect.body, **thought}
        names = {**self.dialect.renamed(sampling), **self._learned}  # empty for a setting that is omitted
        for name, value in self._settings(sampling, request.watch is not None).items():
            now = names.get(name, name)
            if now == "logprobs" and not self.dialect.count_logprobs:
                fields |= {"logprobs": True, "top_logprobs": value}
            elif now:
                fields[now] = value
            elif name in _SAMPLING_FIELDS or name in ("stop", "logprobs"):
                self._left_out.add(name)
        if request.expects and (guide := self._guide_for(request.schema)):
            fields = merged(fields, self._held(guide, request))
        if request.tools:
            fields["tools"] = [self._tool(one) for one in request.tools]
        return {**fields, **sampling.extra}

    def _tool(self, tool: ToolSchema) -> dict[str, Any]:
        """Return a tool as a request describes it."""
        parameters: dict[str, Any] = {"type": "object", "properties": {}, **tool.parameters}
        return {"name": tool.name, "description": tool.description, "parameters": parameters}

    def _held(self, guide: Guide, request: Request) -> dict[str, Any]:
        """Return the fields that constrain a reply to its format."""
        assert request.expects
        return guided_fields(guide, request.expects, request.options, request.schema)

    def tail(self, request: Request) -> bytes:
        """Return the part of the body after the messages. Cached, because the same few settings recur in millions of calls."""
        held = request.sampling, request.schema, request.tools
        key = (*map(id, held), request.expects, request.options, request.watch is not None)
        kept = self._tails.get(key)
        if kept is None:
            encoded = encode(self.fields(request))
            if len(self._tails) >= 256:
                self._tails.clear()
            # Keep references to the objects, so that Python does not reuse their ids.
            kept = self._tails[key] = held, b"]" + (b"," + encoded[1:-1] if encoded != b"{}" else b"")
        if self._session_field and request.session:
            # Routes a speaker's growing prompt to the machine that has it cached; other servers may reject the field.
            return b"".join(
                [kept[1], b",", encode(self._session_field), b":", encode(_session_key(request)), b"}"]
            )
        return kept[1] + b"}"


def _pattern(name: str) -> str:
    """Return a pattern that finds a field's name in an error message, also in camel case (`presencePenalty`)."""
    return rf"(?i:\b{name.replace('_', '_?')}\b)"


def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Merge two tables recursively; values of `other` win."""
    both = {**one, **other}
    for key in one.keys() & other.keys():
        if isinstance(one[key], dict) and isinstance(other[key], dict):
            both[key] = merged(cast("dict[str, Any]", one[key]), cast("dict[str, Any]", other[key]))
    return both


def choice_of(
    text: str, thought: str, finish: FinishReason, tokens: list[Any] | None = None, calls: Calls | None = None
) -> Choice:
    """Build a candidate reply. The reasoning may be in `thought`, in tags in the text, or in both."""
    within, speech = separate(text)
    thought = "\n\n".join(filter(None, (thought.strip(), within)))
    return Choice(speech, finish, tokens, thought, calls.whole() if calls else ())


def name_in(data: Any) -> str:
    """Return the model name in a reply, or an empty string."""
    model = field_of(data, "model")
    return well_formed(model) if isinstance(model, str) else ""


def without_system(request: Request, turns: Turns) -> tuple[str, bytes | memoryview]:
    """Return a history's system prompt, and its other entries as the inside of a JSON array. `turns` converts a chat with
    tool calls."""
    entries, encoded = request.history.entries, memoryview(request.history.encoded())
    text = entries[0].content if entries and entries[0].role == "system" else None
    if any(entry.calls for entry in entries):
        return text or "", encode(list(turns(entries[text is not None :])))[1:-1]
    start = 0 if text is None else len(b'{"role":"system","content":}') + len(encode(text)) + 1
    return text or "", encoded[start:]


def _session_key(request: Request) -> str:
    """Return a cache key for the prompts of one speaker in one conversation, of at most 64 characters, OpenAI's limit."""
    key = well_formed(f"{request.session}/{request.speaker}")
    return key if len(key) <= 64 else hashlib.blake2b(key.encode(), digest_size=32).hexdigest()
