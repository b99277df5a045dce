"""What is examined, and what that costs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import NamedTuple

import msgspec

from camel.core.errors import CamelError, InputError
from camel.core.message import Sampling, Usage
from camel.core.role_playing import AGENT_SAMPLING
from camel.doctor.finding import CheckResult
from camel.generation.config import GenerateConfig
from camel.generation.seats import Candidate, key_of
from camel.jobs.item import seeded
from camel.models import local as local_server
from camel.models.connect import DEFAULT_MODEL
from camel.models.discovery import BaseUrl
from camel.models.endpoint import OLLAMA, ollama_url
from camel.models.guided import Guide
from camel.models.local import LOCAL
from camel.models.prices import FREE, ModelPrice, find
from camel.models.spec import read_spec

MAX_TOKENS = 64
"""Of an answer: enough to see its shape."""
_LINES = 80
LONG = "\n".join(
    f"Rule {number}: whoever asks about item {number} is told its number." for number in range(_LINES)
)
"""A prompt above the 1,024 tokens from which OpenAI caches."""
CALLS = {"answer": 1, "streaming": 1, "several answers": 1, "JSON schema": 1, "grammar": 2, "cache": 2}


class Target(NamedTuple):
    """An endpoint and the model that is wanted of it."""

    name: str = ""
    """Left out: what the endpoint serves, or OpenAI's usual one."""
    base_url: BaseUrl = ""
    """Left out: OPENAI_BASE_URL, or OpenAI."""
    api_key: str | None = None
    """Left out: OPENAI_API_KEY."""
    context_tokens: int | None = None
    """The window that is counted on, where somebody has said one."""
    guided: Guide | None = None
    """The guided format that is counted on."""
    price: ModelPrice | None = None
    seconds: float = 60.0
    """That an answer may take."""
    sampling: Sampling | None = None
    """What the run will send with its calls, exactly."""
    dialect: str = ""
    headers: Mapping[str, str] = {}
    query: Mapping[str, str] = {}
    place: str = "model"
    """Where the configuration names it."""


def find_targets(
    stack: ExitStack, config: GenerateConfig, *, say: Callable[[str], None] = lambda text: None
) -> Iterator[Target | CheckResult]:
    """Every model of a configuration, each with what the run will send to it; a finding where that cannot be known."""
    scenario = config.loaded_scenario()
    declared = getattr(scenario.end, "sampling", None)
    usual = config.sampling or declared or AGENT_SAMPLING
    asked = {"model": Candidate(config.model)} | {
        f"models.{key_of(name, number)}": one
        for name, seat in config.models.items()
        for number, one in enumerate(seat.candidates)
    }
    seen: set[bytes] = set()
    for place, one in asked.items():
        sampling = seeded(one.sampling or usual, config.seed, 0)
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
    """What the configuration, else the options, say is to be asked; a finding where that cannot be known.

    The local model is started, and stopped with the `stack`.
    """
    spec = config.model if config and not local else read_spec(LOCAL if local else model, base_url)
    if spec.is_here:
        try:
            spec.prepare(say)
            if not spec.file:
                return Target(spec.name.removeprefix(OLLAMA), ollama_url(), "", context, spec.guided, FREE)
            server = stack.enter_context(local_server.running(spec.server(), say))
        except CamelError as error:
            mend = "pip install 'camel-society[local]', and let it fetch its weights once"
            return CheckResult("local model", "error", str(error), mend)
        guided = "llama.cpp" if spec.file == LOCAL else spec.guided
        return Target(server.model, server.base_url, "", server.context_tokens, guided, FREE)
    if config:
        try:
            key, headers = spec.api_key(), spec.sent_headers()
        except InputError as error:
            mend = f"export {spec.key_variable}=…, or let model.key_variable name the variable that holds it"
            if not spec.key_variable:
                mend = "export the variable that model.headers names"
            return CheckResult("key", "error", str(error), mend)
        # Only what the run will use: variables of the environment that it does not read are not asked about.
        window = context or spec.context_tokens
        found = Target(spec.name, spec.base_url, key, window, spec.guided, spec.cost())
        return found._replace(dialect=spec.dialect, headers=headers, query=spec.query)
    if not (model or base_url or os.environ.get("OPENAI_API_KEY")):
        mend = "export OPENAI_API_KEY=…, or give --base-url URL of your own server, or --local for the tiny model"
        return CheckResult("endpoint", "warning", "none is named, so none was looked at", mend)
    return Target(spec.name, spec.base_url, None, context)


def calls_of(target: Target) -> Usage:
    """The most that examining an endpoint can take: calls, and tokens of prompts and answers."""
    calls = sum(CALLS.values())
    long_prompts = 2 * (len(LONG) // 2)  # numbers take a token for each digit with some
    return Usage(prompt=long_prompts + 60 * calls, completion=MAX_TOKENS * (calls + 1), calls=calls)


def price_of(target: Target, usage: Usage) -> float | None:
    """Dollars that `usage` costs there; None where nobody knows."""
    own = target.base_url or os.environ.get("OPENAI_BASE_URL")
    # What a server of one's own serves is not known before it is asked.
    entry = target.price or find(target.name or ("" if own else DEFAULT_MODEL))
    return None if entry is None else entry.cost(usage)
