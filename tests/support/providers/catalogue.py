"""The providers, one description each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.support.providers import errors, rules
from tests.support.providers.completions import Completions
from tests.support.providers.messages import Messages, shows
from tests.support.providers.provider import Cache, Call, Form, Provider
from tests.support.providers.responses import Responses, summarizes, turns_of
from tests.support.providers.words import Count

CHAT = "/chat/completions"
_LIMIT_HEADERS = {
    "x-ratelimit-limit-requests": "500",
    "x-ratelimit-remaining-requests": "499",
    "x-ratelimit-reset-requests": "120ms",
}


def _three(count: Count) -> dict[str, Any]:
    """The three totals that all have."""
    return {
        "prompt_tokens": count.prompt,
        "completion_tokens": count.completion,
        "total_tokens": count.prompt + count.completion,
    }


def _cached(count: Count) -> dict[str, Any]:
    return _three(count) | {"prompt_tokens_details": {"cached_tokens": count.cached}}


def _detailed(count: Count) -> dict[str, Any]:
    """OpenAI's, in which thoughts are a part of the completion."""
    written = {"cache_write_tokens": count.written} if count.written else {}
    return _three(count) | {
        "prompt_tokens_details": {"cached_tokens": count.cached, "audio_tokens": 0, **written},
        "completion_tokens_details": {"reasoning_tokens": count.thought, "audio_tokens": 0},
    }


def _gemini_usage(count: Count) -> dict[str, Any]:
    """Thoughts are in the total and nowhere else."""
    return _three(count) | {"completion_tokens": count.completion - count.thought}


def _xai_usage(count: Count) -> dict[str, Any]:
    """Thoughts are counted next to the completion."""
    return _detailed(count) | {"completion_tokens": count.completion - count.thought}


def _deepseek_usage(count: Count) -> dict[str, Any]:
    return _three(count) | {
        "prompt_cache_hit_tokens": count.cached,
        "prompt_cache_miss_tokens": count.prompt - count.cached,
        "completion_tokens_details": {"reasoning_tokens": count.thought},
    }


def uncounted(count: Count) -> dict[str, Any]:
    """vLLM's where the cache is not reported."""
    return _three(count) | {"prompt_tokens_details": None}


def _says(name: str, *off: Any) -> Callable[[Call], bool]:
    """A model that thinks unless a field says that it should not."""
    return lambda call: call.body.get(name) not in off


def _always(form: Form) -> Callable[[Call], Form]:
    return lambda call: form


# ---------------------------------------------------------------- OpenAI and Azure


def _openai_thinks(call: Call) -> bool:
    return rules.openai_effort(call.model, call.body.get("reasoning_effort")) != "none"


OPENAI = Provider(
    "openai",
    Completions(),
    "/v1",
    CHAT,
    refuse=rules.openai_chat,
    thinks=_openai_thinks,
    usage=_detailed,
    cache=Cache(1024, 128, 0.1),
    errors=errors.OPENAI,
    headers=_LIMIT_HEADERS,
    extra=lambda call: {"service_tier": "default", "system_fingerprint": "fp_1"},
)
OPENAI_WRITES = replace(OPENAI, cache=Cache(1024, 128, 0.1, 1.25))
"""From gpt-5.6 on, what is put into the cache costs more."""

_SAFE = {"hate": {"filtered": False, "severity": "safe"}, "violence": {"filtered": False, "severity": "safe"}}
AZURE_V1 = replace(
    OPENAI,
    name="azure",
    base="/openai/v1",
    key="either",
    refuse=rules.azure_v1,
    errors=errors.AZURE,
    extra=lambda call: {"prompt_filter_results": [{"prompt_index": 0, "content_filter_results": _SAFE}]},
    choice={"content_filter_results": _SAFE},
)


def azure_classic(deployment: str) -> Provider:
    """A deployment, which is called like its model here."""
    return replace(
        AZURE_V1,
        base=f"/openai/deployments/{deployment}",
        key="api-key",
        refuse=rules.azure_classic,
        thinks=lambda call: rules.openai_effort(deployment, call.body.get("reasoning_effort")) != "none",
    )


RESPONSES = Provider(
    "responses",
    Responses(),
    "/v1",
    "/responses",
    limits=("max_output_tokens",),
    refuse=rules.openai_responses,
    thinks=lambda call: (
        rules.openai_effort(call.model, (call.body.get("reasoning") or {}).get("effort")) != "none"
    ),
    form=lambda call: "blocks" if summarizes(call) else "",
    cache=Cache(1024, 128, 0.1),
    caches_until=lambda call: len(turns_of(call.body)),
    errors=errors.OPENAI,
    headers=_LIMIT_HEADERS,
)

# ---------------------------------------------------------------- Anthropic


def _breakpoint(call: Call) -> int:
    """The turn up to which a request asks for caching; 0 where it does not."""
    body = call.body
    system = body.get("system")
    first = 1 if system else 0
    until = first if isinstance(system, list) and any("cache_control" in part for part in system) else 0
    for index, one in enumerate(body["messages"]):
        if isinstance(one["content"], list) and any("cache_control" in part for part in one["content"]):
            until = first + index + 1
    return first + len(body["messages"]) if "cache_control" in body else until


ANTHROPIC = Provider(
    "anthropic",
    Messages(),
    "/v1",
    "/messages",
    key="x-api-key",
    limits=("max_tokens",),
    refuse=rules.anthropic_messages,
    thinks=rules.anthropic_thinks,
    form=lambda call: "blocks" if shows(call) else "",
    cache=Cache(4096, 1, 0.1, 1.25),
    caches_until=_breakpoint,
    errors=errors.ANTHROPIC,
    headers={"anthropic-ratelimit-requests-remaining": "49", "request-id": "req_1"},
)
ANTHROPIC_CACHES = replace(ANTHROPIC, cache=Cache(512, 1, 0.1, 1.25))
"""A model with the smallest of the minimums."""
ANTHROPIC_COMPATIBLE = Provider(
    "anthropic-compatible",
    Completions(),
    "/v1",
    CHAT,
    dialect="generic",
    refuse=rules.anthropic_compatible,
    usage=_three,
    errors=errors.ANTHROPIC_COMPATIBLE,
    ignored=(
        "seed",
        "logprobs",
        "presence_penalty",
        "frequency_penalty",
        "reasoning_effort",
        "response_format",
    ),
)

# ---------------------------------------------------------------- other services


def _gemini_thinks(call: Call) -> bool:
    return call.body.get("reasoning_effort") != "none" and _thinking_config(call).get("thinking_budget") != 0


def _thinking_config(call: Call) -> dict[str, Any]:
    return ((call.body.get("extra_body") or {}).get("google") or {}).get("thinking_config") or {}


GEMINI = Provider(
    "gemini",
    Completions(),
    "/v1beta/openai",
    CHAT,
    refuse=rules.gemini,
    thinks=_gemini_thinks,
    form=lambda call: "thought_tags" if _thinking_config(call).get("include_thoughts") else "",
    usage=_gemini_usage,
    usage_in_stream="every",
    errors=errors.GEMINI,
)
MISTRAL = Provider(
    "mistral",
    Completions(),
    "/v1",
    CHAT,
    limits=("max_tokens",),
    refuse=rules.mistral,
    thinks=lambda call: (
        call.model.startswith("magistral") or call.body.get("reasoning_effort") not in (None, "none")
    ),
    form=_always("parts"),
    usage=lambda count: _three(count) | {"num_cached_tokens": count.cached},
    usage_in_stream="always",
    reports=False,
    cache=Cache(64, 64, 0.1),
    errors=errors.MISTRAL,
)
DEEPSEEK = Provider(
    "deepseek",
    Completions(),
    "",
    CHAT,
    limits=("max_tokens",),
    refuse=rules.deepseek,
    thinks=lambda call: (call.body.get("thinking") or {}).get("type") != "disabled",
    form=_always("reasoning_content"),
    usage=_deepseek_usage,
    cache=Cache(64, 64, 0.1),
    errors=errors.DEEPSEEK,
    padding="\n\n\n",
    comments=b": keep-alive\n\n",
)


def _openrouter_form(call: Call) -> Form:
    return "" if (call.body.get("reasoning") or {}).get("exclude") else "details"


def _openrouter_thinks(call: Call) -> bool:
    asked = call.body.get("reasoning") or {}
    return asked.get("enabled") is not False and asked.get("effort") != "none"


OPENROUTER = Provider(
    "openrouter",
    Completions(),
    "/api/v1",
    CHAT,
    thinks=_openrouter_thinks,
    form=_openrouter_form,
    usage=lambda count: _detailed(count) | {"cost": OPENROUTER.bill(count), "is_byok": False},
    usage_in_stream="always",
    cache=Cache(64, 1, 0.25),
    errors=errors.OPENROUTER,
    padding=" \n \n ",
    comments=b": OPENROUTER PROCESSING\n\n",
    extra=lambda call: {"provider": "Novita"},
    choice={"native_finish_reason": "completed"},
    ignored=("max_output_tokens",),
)
TOGETHER = Provider(
    "together",
    Completions(),
    "/v1",
    CHAT,
    limits=("max_tokens",),
    thinks=lambda call: (call.body.get("reasoning") or {}).get("enabled") is not False,
    form=lambda call: "reasoning" if "gpt-oss" in call.model else "reasoning_content",
    usage=lambda count: _three(count) | {"cached_tokens": count.cached},
    usage_in_stream="always",
    reports=False,
    cache=Cache(1, 1, 0.5),
    errors=errors.TOGETHER,
    headers={"x-ratelimit-limit": "10", "x-ratelimit-remaining": "9", "x-tokenlimit-remaining": "90000"},
)
FIREWORKS = Provider(
    "fireworks",
    Completions(),
    "/inference/v1",
    CHAT,
    refuse=rules.fireworks,
    thinks=_says("reasoning_effort", "none", False, 0),
    form=_always("reasoning_content"),
    usage=_cached,
    reports=False,
    cache=Cache(1, 1, 0.5),
    errors=errors.FIREWORKS,
)


def _groq_form(call: Call) -> Form:
    """Some models put their thoughts into the content unless they are asked not to."""
    if call.body.get("include_reasoning") is False:
        return ""
    default = "parsed" if "gpt-oss" in call.model else "raw"
    form = call.body.get("reasoning_format", default)
    return {"parsed": "reasoning", "raw": "tags", "hidden": ""}[form]  # type: ignore[return-value]


GROQ = Provider(
    "groq",
    Completions(),
    "/openai/v1",
    CHAT,
    limits=("max_completion_tokens", "max_tokens"),
    refuse=rules.groq,
    thinks=_says("reasoning_effort", "none"),
    form=_groq_form,
    usage=lambda count: {"queue_time": 0.01, "prompt_time": 0.02, "total_time": 0.1, **_detailed(count)},
    usage_in_stream="x_groq",
    cache=Cache(128, 1, 0.5),
    errors=errors.GROQ,
    headers={"x-ratelimit-remaining-tokens": "5900", "x-ratelimit-reset-tokens": "7.66s"},
)
XAI = Provider(
    "xai",
    Completions(),
    "/v1",
    CHAT,
    refuse=rules.xai,
    thinks=lambda call: "non-reasoning" not in call.model and call.body.get("reasoning_effort") != "none",
    form=lambda call: "reasoning_content" if "mini" in call.model else "",
    usage=_xai_usage,
    cache=Cache(1, 1, 0.25),
    errors=errors.XAI,
)

# ---------------------------------------------------------------- servers of one's own


def _template(call: Call) -> bool:
    """Whether a template that can switch thinking off leaves it on."""
    options = call.body.get("chat_template_kwargs") or {}
    on = options.get("enable_thinking", True) and options.get("thinking", True)
    return bool(on) and call.body.get("reasoning_effort") != "none"


VLLM = Provider(
    "vllm",
    Completions(),
    "/v1",
    CHAT,
    thinks=_template,
    form=lambda call: "" if call.body.get("include_reasoning") is False else "reasoning",
    usage=_cached,
    reports=False,
    cache=Cache(16, 16, 0.5),
    errors=errors.VLLM,
    choice={"stop_reason": None},
)
SGLANG = Provider(
    "sglang",
    Completions(),
    "/v1",
    CHAT,
    thinks=_template,
    form=lambda call: "tags" if call.body.get("separate_reasoning") is False else "reasoning_content",
    usage=lambda count: _cached(count) | {"reasoning_tokens": count.thought},
    cache=Cache(1, 1, 0.5),
    errors=errors.SGLANG,
    choice={"matched_stop": 151645},
)
LLAMA_CPP = Provider(
    "llama.cpp",
    Completions(),
    "/v1",
    CHAT,
    thinks=_template,
    form=lambda call: "tags" if call.body.get("reasoning_format") == "none" else "reasoning_content",
    usage=_cached,
    reports=False,
    cache=Cache(1, 1, 0.5),
    errors=errors.LLAMA_CPP,
    extra=lambda call: {"timings": {"cache_n": 0, "prompt_n": 10, "predicted_per_second": 90.5}},
)
OLLAMA = Provider(
    "ollama",
    Completions(),
    "/v1",
    CHAT,
    key="",
    limits=("max_tokens",),
    thinks=lambda call: (
        call.body.get("reasoning_effort") != "none"
        and (call.body.get("reasoning") or {}).get("effort") != "none"
    ),
    form=_always("reasoning"),
    usage=_three,
    reports=False,
    errors=errors.OLLAMA,
    ignored=("n", "logit_bias", "tool_choice", "user"),
)
LM_STUDIO = Provider(
    "lmstudio",
    Completions(),
    "/v1",
    CHAT,
    key="",
    limits=("max_tokens",),
    thinks=lambda call: True,
    form=lambda call: "reasoning" if "gpt-oss" in call.model else "reasoning_content",
    usage=_three,
    reports=False,
)

# ---------------------------------------------------------------- endpoints that nobody has a dialect for


def plain(form: Form = "", **other: Any) -> Provider:
    """A compatible server that thinks in a form, and takes what OpenAI's ordinary models take."""
    return replace(
        Provider(
            form or "plain",
            Completions(),
            "/v1",
            CHAT,
            dialect="generic",
            thinks=lambda call: bool(form),
            form=_always(form),
            usage=_detailed,
            errors=errors.OPENAI,
        ),
        **other,
    )
