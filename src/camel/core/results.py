"""Structured results: one last request turns a finished conversation into an object with the fields of a JSON schema.

The one decision to know: every answer is validated here, also if the endpoint constrained it. The model sees an invalid
answer again, with the error, a limited number of times. A conversation without a valid result stays in the run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from camel.core.checks import shown, similar, whole
from camel.core.errors import ContentRejected, ContextOverflow, InputError, MissingExtra
from camel.core.history import History
from camel.core.judge import quote_messages
from camel.core.message import Sampling, in_one_line, well_formed
from camel.core.model import Model, Request
from camel.core.thought import separate
from camel.core.transcript import Transcript

RESULT = "result"
"""The speaker name under which results are requested."""
SYSTEM = "You read a conversation and answer with one JSON object."
PROMPT = "Fill in the fields from the conversation above. Use only what it contains, and invent nothing."
_FORMAT = "Answer with one JSON object that is valid under this JSON schema, and with nothing else:"
_KINDS = ("string", "integer", "number", "boolean")
_TRIES = 50
"""Maximum number of opening braces that are tried as the start of an object."""
_MOST_QUOTED = 2_000
"""Maximum number of characters of an invalid answer to show to the model again."""


class ResultSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The fields of a result, and how it is requested. Set either `schema` or `fields`."""

    schema: dict[str, Any] | str = {}
    """The JSON schema of an object. In a file: the name of a JSON file next to it."""
    fields: dict[str, str] = {}
    """The fields in short form: `string`, `integer`, `number`, `boolean`, or choices such as `good | bad`. `[]` makes a list
    and a `?` at the end an optional field."""
    prompt: str = PROMPT
    """The instruction. The conversation is before it, the schema after it."""
    attempts: int = 3
    """Maximum number of requests for one result."""
    sampling: Sampling | None = None
    """Default: the run's, with temperature 0."""

    def __post_init__(self) -> None:
        if bool(self.schema) == bool(self.fields):
            raise InputError("result needs either a schema or fields: set one of them")
        whole("result.attempts", self.attempts, 1, 100)
        if not isinstance(self.schema, str):
            _ = self.validator

    def load(self, read: Callable[[str], str]) -> ResultSettings:
        """Return the settings with their schema. `read` returns the text of the schema's file."""
        if not isinstance(self.schema, str):
            return self
        try:
            return replace(self, schema=msgspec.json.decode(read(self.schema), type=dict[str, Any]))
        except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
            raise InputError(f"cannot read the JSON schema '{self.schema}': {error}") from None

    @property
    def validator(self) -> Any:
        """The validator of results. Its `schema` is the complete JSON schema."""
        schema: Any = self.schema
        if self.fields:
            fields = {name: _field(name, kind) for name, kind in self.fields.items()}
            schema = {"type": "object", "properties": fields, "required": list(fields)}
            schema["additionalProperties"] = False
        try:
            return _validator(msgspec.json.encode(schema))
        except (TypeError, RecursionError) as error:
            raise InputError(f"the schema of result cannot be written as JSON: {error}") from None

    def read(self, text: str) -> tuple[dict[str, Any] | None, str]:
        """Return the valid result in a model's answer, or None and what is wrong with it."""
        found = find_object(text)
        if found is None:
            return None, "it contains no JSON object"
        optional = (name for name, kind in self.fields.items() if kind.endswith("?"))
        result = {**found, **{name: None for name in optional if name not in found}}
        try:
            for error in self.validator.iter_errors(result):
                return None, well_formed(f"{error.json_path}: {in_one_line(error.message)}"[:500])
            if msgspec.json.decode(msgspec.json.encode(result)) == result:
                return result, ""
        except (ValueError, OverflowError, RecursionError):
            pass
        return None, "a number or a text in it cannot be stored"


def read_settings(result: Any) -> ResultSettings:
    """Return the settings for a Pydantic class, a JSON schema, or fields in short form."""
    if isinstance(result, ResultSettings):
        return result
    schema = result.model_json_schema() if hasattr(result, "model_json_schema") else result
    if not isinstance(schema, Mapping):
        raise InputError(f"result must be a Pydantic class or a JSON schema, not {shown(result)}")
    table = dict(cast("Mapping[str, Any]", schema))
    if "type" not in table and all(isinstance(kind, str) for kind in table.values()):
        return ResultSettings(fields=table)
    return ResultSettings(table)


def find_object(text: str) -> dict[str, Any] | None:
    """Return the longest JSON object in a text, also between prose or fences."""
    text, at, longest = separate(text).speech, -1, 0
    found: dict[str, Any] | None = None
    decoder = json.JSONDecoder(parse_constant=int)  # NaN is not JSON: int("NaN") raises a ValueError
    for _ in range(_TRIES):
        if (at := text.find("{", at + 1)) < 0:
            break
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            continue
        if end - at > longest:
            found, longest = value, end - at
        at = end - 1
    return found


async def add_result(
    transcript: Transcript, open_model: Callable[[], Model], settings: ResultSettings | None, usual: Sampling
) -> Transcript:
    """Ask for the conversation's result and store it in the transcript. Do nothing if the conversation
    failed or is empty, or if `settings` is None. `usual` is the sampling of the conversation."""
    if settings is None or transcript.excluded or not transcript.messages:
        return transcript
    sampling = settings.sampling or replace(usual, temperature=0.0, stop=(), logprobs=None)
    sampling = replace(sampling, n=1, seed=sampling.seed if usual.seed is None else usual.seed)
    model, schema = open_model(), settings.validator.schema
    question = History(SYSTEM)
    asked = f"{settings.prompt}\n\n{_FORMAT}\n{msgspec.json.encode(schema).decode()}"
    question.add("user", f"{quote_messages(transcript.messages)}{asked}")
    history = question
    for attempt in range(1, settings.attempts + 1):
        try:
            reply = await model.reply(
                Request(history, sampling, transcript.id, RESULT, "result", schema=schema)
            )
        except (ContextOverflow, ContentRejected) as error:
            transcript.result_call = replace(transcript.result_call, error=str(error))
            break
        if reply.choices[0].finish == "length":
            problem = "it was cut off at the token limit (result.sampling.max_tokens)"
        else:
            transcript.result, problem = settings.read(reply.content)
        usage = transcript.result_call.usage + reply.usage
        error = problem and f"{attempt} of {settings.attempts} answers were invalid, the last one: {problem}"
        transcript.result_call = replace(transcript.result_call, model=reply.model, usage=usage, error=error)
        if not problem:
            break
        history = question.copy()  # only the last answer is shown
        history.add("assistant", reply.content.strip()[:_MOST_QUOTED] or "…")
        history.add(
            "user",
            f"This answer is not valid: {problem}. Answer with one valid JSON object and nothing else.",
        )
    return transcript


def result_rows(transcript: Transcript) -> list[tuple[str, str]]:
    """Return the names and values of a result as text, or why there is none. Empty if none was requested."""
    if transcript.result is None:
        return [("no result", transcript.result_call.error)] if transcript.result_call.error else []
    return [
        (name, value if isinstance(value, str) else msgspec.json.encode(value).decode())
        for name, value in transcript.result.items()
    ]


def _field(name: str, text: str) -> dict[str, Any]:
    """Return the schema of a field in short form. An optional field may also be null, because strict endpoints need all fields."""
    optional, kind = text.endswith("?"), text.removesuffix("?").strip()
    choices = [one.strip() for one in kind.split("|")]
    item = kind.removesuffix("[]")
    if len(choices) > 1 and all(choices) and len({*choices}) == len(choices):
        made: dict[str, Any] = {"type": "string", "enum": choices}
    elif item in _KINDS:
        made = {"type": item} if item == kind else {"type": "array", "items": {"type": item}}
    else:
        raise InputError(
            f"result.fields.{name} must be one of {', '.join(_KINDS)}, or choices such as 'good | bad', not {shown(text)}"
            f"{similar(kind, _KINDS)}"
        )
    if optional:
        made["type"] = [made["type"], "null"]
        made |= {"enum": [*choices, None]} if "enum" in made else {}
    return made


@lru_cache(maxsize=16)
def _validator(schema: bytes) -> Any:
    try:
        library, referencing = import_module("jsonschema"), import_module("referencing")
    except ImportError:
        raise MissingExtra("A structured result", "data") from None
    found = msgspec.json.decode(schema)
    try:
        library.Draft202012Validator.check_schema(found)
        # An empty registry: references outside the schema are not fetched.
        made = library.Draft202012Validator(found, registry=referencing.Registry())
        for reference in re.findall(rb'"\$ref":"([^"]*)"', schema):
            list(made.evolve(schema={"$ref": reference.decode()}).iter_errors(None))
    except library.SchemaError as error:
        raise InputError(f"the schema of result is not valid: {error.json_path}: {error.message}") from None
    except Exception as error:  # the library's error for references is private
        raise InputError(f"the schema of result has a reference that cannot be read: {error}") from None
    if found.get("type") != "object":
        raise InputError(f"the schema of result must have type 'object', not {shown(found.get('type'))}")
    return made
