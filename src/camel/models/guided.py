"""Guided format: hold a reply to CAMEL's instruction grammar while it is being written.

The one decision to know: the two engines are guided differently, because their models are. llama.cpp is where the
smallest models run, which start anything and end nothing (the bundled one, left free inside `Solution: …`, never
came to `Next request.` in 12 of 12 tries). So its grammar also bounds how much is said: a few plain sentences of a
few words, about 100 tokens. vLLM is where models run that can write, so there only the frame is held, and what
stands inside may be code, lists or several pages. OpenAI's models need no frame for that; there, and on whatever takes
its `response_format`, only a critic's answers are held to one: a number must come first and be one of the options'.
"""

from __future__ import annotations

from functools import cache
from operator import eq, ge, le
from pathlib import Path
from typing import Any, Literal

from camel.core.model import Expects
from camel.core.toml import read_table

Guide = Literal["llama.cpp", "vllm", "openai"]
"""The engine behind an endpoint, for what differs in how it takes a grammar."""

CRITICS: tuple[Expects, ...] = ("choice", "scores", "verdict", "comparison")
"""Answers of a critic or a judge, which are JSON."""


@cache
def _grammars() -> dict[str, Any]:
    """Read when one is needed: most runs need none."""
    return read_table(Path(__file__).with_name("grammars.toml"))


def _critic_gbnf(expects: Expects, options: int) -> str:
    """A critic's answer as JSON with plain sentences in it, which need no escapes."""
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
            # Scores that contradict the decision cannot be written; all pairs of them are few enough to be listed.
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
    """A critic's answer as a JSON schema, in the part of the language that OpenAI takes as strict."""
    text: dict[str, Any] = {"type": "string"}
    option = {"type": "integer", "enum": list(range(1, options + 1))}
    scores = {"type": "array", "items": {"type": "integer", "enum": list(range(11))}, **bounds}
    match expects:
        case "scores":
            fields = {"scores": scores, "reasons": {"type": "array", "items": text, **bounds}}
        case "verdict":
            fields = {"choice": option, "verdict": {**text, "enum": ["accept", "revise"]}, "feedback": text}
        case "comparison":
            # The reason first: what a model writes before it decides is what it decides by.
            fields = {"reason": text, "scores": scores, "better": {"type": "integer", "enum": [0, 1, 2]}}
        case _:
            fields = {"choice": option, "reason": text}
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def schema_of(guide: Guide, expects: Expects, options: int) -> dict[str, Any]:
    """The named schema of a critic's answer, for protocols that have a field of their own for it; empty where there is none."""
    return guided_fields(guide, expects, options).get("response_format", {}).get("json_schema", {})


def guided_fields(guide: Guide, expects: Expects, options: int = 0) -> dict[str, Any]:
    """Return the fields to add to a chat-completions request so that its reply keeps the format.

    `options` is how many a critic is asked about. Nothing is added where the engine has no way for what is expected.

    With `"llama.cpp"` give the request a `max_tokens` of 160 or more: what the grammar allows fits into that.
    """
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
