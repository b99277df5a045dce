"""Dialects: what an endpoint accepts, from `dialects.toml`, by address and model.

The one decision to know: rules for models use the version in a name, not a list of names, so that they apply to later
models. If a rule is wrong, the client learns from the endpoint's rejections (`Wire.adjust`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import urlsplit

import msgspec

from camel.core.checks import similar
from camel.core.errors import InputError
from camel.core.message import Sampling
from camel.core.toml import read_table
from camel.models.guided import Guide

OPENAI_URL = "https://api.openai.com/v1"
_EFFORTS = {
    **{level: {"reasoning_effort": level} for level in ("low", "medium", "high")},
    "off": {"reasoning_effort": "none"},
}
"""The field for the reasoning effort at most endpoints."""
_LOW, _MEDIUM = 4_096, 16_384
"""Token limits of the levels low and medium, for endpoints that only have levels."""


class Dialect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one kind of endpoint accepts for one model; `dialects.toml` explains the fields."""

    name: str = ""
    wire: Literal["completions", "messages", "responses"] = "completions"
    hosts: tuple[str, ...] = ()
    path: str = ""
    names: tuple[str, ...] = ()
    url: str = ""
    key: str = ""
    key_header: str = ""
    headers: dict[str, str] = {}
    query: dict[str, str] = {}
    fields: dict[str, str] = {}
    thinking_fields: dict[str, str] = {}
    thinks: bool = False
    reasoning: dict[str, dict[str, Any]] = {}
    body: dict[str, Any] = {}
    """Fields that are sent with every call."""
    limit: int | None = None
    max_choices: int | None = None
    guided: Guide | Literal["none"] = "none"
    session_field: str = ""
    count_logprobs: bool = False
    """Whether the endpoint takes the number of alternatives in `logprobs`. Others take it in `top_logprobs`."""
    most_logprobs: int | None = None

    def renamed(self, sampling: Sampling) -> Mapping[str, str]:
        """Return the endpoint's name for each of CAMEL's setting names. Empty for a setting that the endpoint rejects."""
        thinking = self.thinks if sampling.reasoning is None else sampling.reasoning != "off"
        return {**self.fields, **self.thinking_fields} if thinking else self.fields

    def thought(self, sampling: Sampling) -> dict[str, Any]:
        """Return the fields of a request that control reasoning."""
        wanted = sampling.reasoning
        if wanted is None:
            return self.reasoning.get("on", {})
        if not isinstance(wanted, int):
            return self.reasoning.get(wanted, {})
        if "tokens" in self.reasoning:
            return cast("dict[str, Any]", _with_tokens(self.reasoning["tokens"], wanted))
        level = "low" if wanted <= _LOW else "medium" if wanted <= _MEDIUM else "high"
        return self.reasoning.get(level, {})

    def key_variable(self) -> str:
        """Return the provider's usual variable if it is set, or else OPENAI_API_KEY."""
        return self.key if os.environ.get(self.key) else "OPENAI_API_KEY"

    def api_key(self) -> str:
        """Return the key from the provider's usual variable, or from OPENAI_API_KEY."""
        return os.environ.get(self.key_variable(), "")


def _with_tokens(value: Any, tokens: int) -> Any:
    if isinstance(value, dict):
        return {key: _with_tokens(one, tokens) for key, one in cast("dict[str, Any]", value).items()}
    return tokens if value == "TOKENS" else value


@cache
def _tables() -> dict[str, dict[str, Any]]:
    return read_table(Path(__file__).with_name("dialects.toml"))


def find_dialect(model: str, urls: Sequence[str] = (), name: str = "") -> Dialect:
    """Return the dialect of the endpoints at `urls` for a model: by name, or by their host."""
    tables = _tables()
    if name and name not in tables:
        raise InputError(
            f"model.dialect must be one of {', '.join(tables)}, not {name!r}{similar(name, tables)}. Remove it for other endpoints"
        )
    if not name:
        hosts = {_of_host(url) for url in urls}
        name = hosts.pop() if len(hosts) == 1 else ""  # none if it is not the same for all
    return _of_model(name, model.rpartition("/")[2].lower())


def default_url(model: str, dialect: str = "") -> str:
    """Return the default URL of a model: its provider's, or OpenAI's, also if several providers may serve it."""
    providers = (name for name, table in _tables().items() if model.startswith(tuple(table.get("names", ()))))
    name = dialect or next(providers, "")
    return (find_dialect(model, name=name).url if name else "") or OPENAI_URL


def is_key_of(variable: str, url: str) -> bool:
    """Return whether an environment variable has the key of the known provider at `url`, by its usual name or one that
    contains the provider's name, such as TEAM_OPENAI_KEY."""
    name, keys = _of_host(url), {table.get("key") for table in _tables().values()}
    if not name or variable in keys:
        return bool(name) and _tables()[name].get("key") == variable
    return name.partition("-")[0].upper() in variable.upper()


@cache
def _of_host(url: str) -> str:
    parts = urlsplit(url)
    host = parts.hostname or ""
    best = ""
    for name, table in _tables().items():
        path = table.get("path", "")
        known = any(host == one or host.endswith(f".{one}") for one in table.get("hosts", ()))
        if known and path in f"{parts.path}/" and (path or not best):
            best = name
    return best


@cache
def _of_model(name: str, model: str) -> Dialect:
    table = dict(_tables().get(name, {}))
    reasoning = {**_EFFORTS, **table.get("reasoning", {})}
    of = _tables().get(table.pop("models_of", name), {})
    table.pop("models", None)
    for rule in cast("list[dict[str, Any]]", of.get("models", [])):
        found = re.search(rule["like"], model)
        version = _version(next(filter(None, found.groups()), "0") if found else "")
        least, below = _version(rule.get("least", "0")), _version(rule.get("below", "999"))
        if found and least <= version < below:
            table |= {key: value for key, value in rule.items() if key not in ("like", "least", "below")}
            reasoning |= rule.get("reasoning", {})
    return msgspec.convert({**table, "name": name, "reasoning": reasoning}, Dialect)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))
