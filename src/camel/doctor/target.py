"""The target of an examination and its cost, and the results of its checks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Literal, NamedTuple

import msgspec

from camel.core.errors import CamelError, InputError
from camel.core.message import Sampling, Usage, with_seed
from camel.core.role_playing import AGENT_SAMPLING
from camel.generation.config import GenerateConfig
from camel.generation.seats import JUDGE, Candidate, key_of
from camel.jobs.item import item_seed
from camel.models import local as local_server
from camel.models.connect import DEFAULT_MODEL
from camel.models.discovery import BaseUrl
from camel.models.endpoint import OLLAMA, ollama_url
from camel.models.guided import Guide
from camel.models.local import LOCAL
from camel.models.prices import FREE, ModelPrice, find
from camel.models.spec import read_spec

State = Literal["ok", "note", "warning", "error", "skipped"]
"""Severity of a result. `note`: information only. `warning`: works, but worse or at a higher cost. `error`: a run will fail.
`skipped`: not checked."""
_ORDER: tuple[State, ...] = ("skipped", "ok", "note", "warning", "error")


class CheckResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """One check and its result."""

    check: str
    """The name of the check."""
    state: State
    says: str
    """The result, in one line."""
    fix: str = ""
    """What to do about it. Empty if nothing needs to be done."""
    usage: Usage = Usage()
    """Tokens and calls that the check used."""
    of: str = ""
    """The model's name in the configuration, if there are several."""


def worst(findings: Iterable[CheckResult]) -> State:
    """Return the worst state among the results."""
    return _ORDER[max((_ORDER.index(finding.state) for finding in findings), default=1)]


MAX_TOKENS = 64
"""Maximum number of tokens of an answer, enough to see its format."""
_LINES = 80
LONG = "\n".join(
    f"Rule {number}: a question about item {number} is answered with its number." for number in range(_LINES)
)
"""A prompt that is longer than the 1,024 tokens from which OpenAI caches."""
CALLS = {"answer": 1, "streaming": 1, "several answers": 1, "JSON schema": 1, "grammar": 2, "cache": 2}


class Target(NamedTuple):
    """An endpoint and a model to check."""

    name: str = ""
    """Name of the model. Default: the endpoint's model, or OpenAI's default."""
    base_url: BaseUrl = ""
    """The base URL. Default: OPENAI_BASE_URL, or OpenAI."""
    api_key: str | None = None
    """The API key. Default: OPENAI_API_KEY."""
    context_tokens: int | None = None
    """The configured context window, if any."""
    guided: Guide | None = None
    """The configured way to constrain output to a grammar."""
    price: ModelPrice | None = None
    seconds: float = 60.0
    """Seconds to wait for an answer."""
    sampling: Sampling | None = None
    """Sampling settings of the run's calls."""
    dialect: str = ""
    headers: Mapping[str, str] = {}
    query: Mapping[str, str] = {}
    place: str = "model"
    """Name of the model in the configuration."""


def find_targets(
    stack: ExitStack, config: GenerateConfig, *, say: Callable[[str], None] = lambda text: None
) -> Iterator[Target | CheckResult]:
    """Yield every model of a configuration as a target. For a model that cannot be resolved, yield the result of a failed
    check."""
    scenario = config.loaded_scenario()
    declared = getattr(scenario.end, "sampling", None)
    usual = config.sampling or declared or AGENT_SAMPLING
    asked = {"model": Candidate(config.model)} | {
        f"models.{key_of(name, number)}": one
        for name, seat in (*config.models.items(), *([(JUDGE, config.judge)] if config.judge else []))
        for number, one in enumerate(seat.candidates)
    }
    seen: set[bytes] = set()
    for place, one in asked.items():
        sampling = with_seed(one.sampling or usual, item_seed(config.seed, 0))
        if (key := msgspec.json.encode((one.model, sampling))) in seen:
            continue
        seen.add(key)
        found = find_target(stack, msgspec.structs.replace(config, model=one.model), say=say)
        if isinstance(found, CheckResult):
            yield msgspec.structs.replace(found, of=place)
        else:
            yield found._replace(sampling=sampling, place=place)


def find_target(
    stack: ExitStack,
    config: GenerateConfig | None,
    model: str = "",
    base_url: str = "",
    context: int | None = None,
    *,
    local: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> Target | CheckResult:
    """Return the target from the configuration or the options. If it cannot be resolved, return the result of a failed check.

    Starts the local model if needed; `stack` stops it.
    """
    spec = config.model if config and not local else read_spec(LOCAL if local else model, base_url)
    if spec.command:
        return Target(spec.name, "", "", context or spec.context_tokens, price=spec.price)
    if spec.is_here:
        try:
            spec.prepare(say)
            if not spec.file:
                return Target(spec.name.removeprefix(OLLAMA), ollama_url(), "", context, spec.guided, FREE)
            server = stack.enter_context(local_server.running(spec.server(), say))
        except CamelError as error:
            fix = "pip install 'camel-society[local]', and allow it to download its weights once"
            return CheckResult("local model", "error", str(error), fix)
        guided = "llama.cpp" if spec.file == LOCAL else spec.guided
        return Target(server.model, server.base_url, "", server.context_tokens, guided, FREE)
    if config:
        try:
            spec.check_hosts()
        except InputError as error:
            return CheckResult("host", "error", str(error), "add the host only if you know who runs it")
        try:
            key, headers = spec.api_key(), spec.sent_headers()
        except InputError as error:
            fix = f"export {spec.key_variable}=…, or set model.key_variable to the variable with the key"
            if not spec.key_variable:
                fix = "export the variable in model.headers"
            return CheckResult("key", "error", str(error), fix)
        # Only what the run will use: other environment variables do not matter.
        window = context or spec.context_tokens
        found = Target(spec.name, spec.base_url, key, window, spec.guided, spec.cost())
        return found._replace(dialect=spec.dialect, headers=headers, query=spec.query)
    if not (model or base_url or os.environ.get("OPENAI_API_KEY")):
        fix = "export OPENAI_API_KEY=…, or add --base-url URL for your own server, or --local for the tiny model"
        return CheckResult("endpoint", "warning", "none is configured, so none was checked", fix)
    return Target(spec.name, spec.base_url, None, context)


def calls_of(target: Target) -> Usage:
    """Return the maximum usage of checking a target."""
    calls = sum(CALLS.values())
    long_prompts = 2 * (len(LONG) // 2)  # some vocabularies use a token per digit
    return Usage(prompt=long_prompts + 60 * calls, completion=MAX_TOKENS * (calls + 1), calls=calls)


def price_of(target: Target, usage: Usage) -> float | None:
    """Return the cost of `usage` in US dollars. Return None if the price is unknown."""
    own = target.base_url or os.environ.get("OPENAI_BASE_URL")
    # The model of your own server is unknown before the first request.
    entry = target.price or find(target.name or ("" if own else DEFAULT_MODEL))
    return None if entry is None else entry.cost(usage)
