"""Guided format: a grammar constrains a reply to CAMEL's instruction format while it is generated.

The one decision to know: the engines get different grammars, because their models differ. llama.cpp runs the smallest
models, which often do not end a reply (the bundled one, without limits inside `Solution: …`, never reached
`Next request.` in 12 of 12 attempts). So its grammar also limits the length: a few plain sentences, about 100 tokens. vLLM
runs larger models, so its grammar only fixes the frame, and the content may be code, lists or several pages. OpenAI's
models need no frame; there, and at other endpoints with `response_format`, only a critic's answers are constrained: a
number must come first and be one of the options.
"""

from __future__ import annotations

from functools import cache
from operator import eq, ge, le
from pathlib import Path
from typing import Any, Literal, cast

from camel.core.model import Expects, Request
from camel.core.toml import read_table

Guide = Literal["llama.cpp", "vllm", "openai"]
"""The engine behind an endpoint, which decides how a grammar is sent."""

CRITICS: tuple[Expects, ...] = ("choice", "scores", "verdict", "comparison", "result")
"""Formats of answers that are JSON: a critic's, a judge's, and results. The code that asks for them repeats the call itself."""


@cache
def _grammars() -> dict[str, Any]:
    """Read the grammars at first use, because most runs need none."""
    return read_table(Path(__file__).with_name("grammars.toml"))


def _critic_gbnf(expects: Expects, options: int) -> str:
    """Return a grammar for a critic's answer: JSON with plain sentences, which need no escapes."""
    number = " | ".join(f'"{n}"' for n in range(1, options + 1))
    match expects:
        case "scores":
            scores = ' ", " '.join(["score"] * options)
            reasons = ' ", " '.join(["reason"] * options)
            root = rf'''"{{\"scores\": [" {scores} "], \"reasons\": [" {reasons} "]}}"'''
            rules = '''score    ::= [0-9] | "10"\nreason   ::= "\\"" sentence "\\""'''
        case "verdict":
            root = r'''"{\"choice\": " option ", \"verdict\": \"" ("accept" | "revise") "\", \"feedback\": \"" sentence "\"}"'''
            rules = f"option   ::= {number}"
        case "comparison":
            # Scores that contradict the decision are impossible; there are few enough pairs to list them all.
            root = r'''"{\"reason\": \"" sentence "\", \"better\": " ("0, \"scores\": [" same | "1, \"scores\": [" first | "2, \"scores\": [" second) "]}"'''
            scores = [(one, two) for one in range(11) for two in range(11)]
            rules = "\n".join(
                f"{name:<8} ::= " + " | ".join(f'"{one}, {two}"' for one, two in scores if holds(one, two))
                for name, holds in (("same", eq), ("first", ge), ("second", le))
            )
        case _:
            root = r'''"{\"choice\": " option ", \"reason\": \"" sentence "\"}"'''
            rules = f"option   ::= {number}"
    return f"root     ::= {root}\n{rules}{_grammars()['prose']}"


def _critic_schema(expects: Expects, options: int, **bounds: int) -> dict[str, Any]:
    """Return a JSON schema for a critic's answer, in the subset that OpenAI's strict mode supports."""
    text: dict[str, Any] = {"type": "string"}
    option = {"type": "integer", "enum": list(range(1, options + 1))}
    scores = {"type": "array", "items": {"type": "integer", "enum": list(range(11))}, **bounds}
    match expects:
        case "scores":
            fields = {"scores": scores, "reasons": {"type": "array", "items": text, **bounds}}
        case "verdict":
            fields = {"choice": option, "verdict": {**text, "enum": ["accept", "revise"]}, "feedback": text}
        case "comparison":
            # The reason comes first, so that the model reasons before it decides.
            fields = {"reason": text, "scores": scores, "better": {"type": "integer", "enum": [0, 1, 2]}}
        case _:
            fields = {"choice": option, "reason": text}
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def schema_of(guide: Guide, request: Request) -> dict[str, Any]:
    """Return the named JSON schema of an answer, for protocols with a field for it. Empty if there is none."""
    assert request.expects
    fields = guided_fields(guide, request.expects, request.options, request.schema)
    return fields.get("response_format", {}).get("json_schema", {})


def _seal(node: Any, objects: list[dict[str, Any]]) -> Any:
    """Return a schema whose objects allow no other fields, which strict endpoints require. Adds them to `objects`."""
    if isinstance(node, list):
        return [_seal(one, objects) for one in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    sealed = {key: _seal(value, objects) for key, value in cast("dict[str, Any]", node).items()}
    if sealed.get("type") == "object" and isinstance(sealed.get("properties"), dict):
        sealed.setdefault("additionalProperties", False)
        objects.append(sealed)
    return sealed


def guided_fields(
    guide: Guide, expects: Expects, options: int = 0, schema: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the fields to add to a chat-completions request that constrain its reply to the format.

    `options` is the number of a critic's options, `schema` that of a result. Returns nothing if the engine does not support
    the format.

    With `"llama.cpp"`, set `max_tokens` to at least 160, which fits everything that the grammar allows.
    """
    if schema is not None:  # all three engines have this field
        objects: list[dict[str, Any]] = []
        sealed = _seal(schema, objects)
        # OpenAI's strict mode requires all fields of every object.
        strict = all(
            {*one["properties"]} == {*one.get("required", ())} and not one["additionalProperties"]
            for one in objects
        )
        named = {"name": expects, "strict": strict, "schema": sealed}
        return {"response_format": {"type": "json_schema", "json_schema": named}}
    if expects in CRITICS:
        match guide:
            case "llama.cpp":
                return {"grammar": _critic_gbnf(expects, options)}
            case "vllm":
                schema = _critic_schema(expects, options, minItems=options, maxItems=options)
                return {"structured_outputs": {"json": schema}}
            case "openai":
                named = {"name": expects, "strict": True, "schema": _critic_schema(expects, options)}
                return {"response_format": {"type": "json_schema", "json_schema": named}}
    if guide == "openai":
        return {}
    if guide == "llama.cpp":
        return {"grammar": _grammars()["llama_cpp"][expects] + _grammars()["prose"]}
    # vLLM 0.12 and later; the older `guided_regex` was removed there.
    return {"structured_outputs": {"regex": _grammars()["vllm"][expects]}}
