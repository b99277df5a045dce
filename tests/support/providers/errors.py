"""Errors as providers document them: overflow, filters, limits with their hints, empty accounts, overload, missing models.

Each table goes by kind. `in_200` is sent with the status of a success, `in_stream` as the events that end a stream.
Hints ask for a few milliseconds where the provider's form has them, otherwise for one second.
"""

from __future__ import annotations

from typing import Any

from tests.support.providers.provider import Failure
from tests.support.providers.rules import (
    anthropic_error,
    fireworks_error,
    gemini_error,
    mistral_error,
    openai_error,
    xai_error,
)

Errors = dict[str, Failure]

COMMON: Errors = {
    "html": Failure(200, "<html><body>Welcome to nginx!</body></html>"),
    "524": Failure(524, "<html><body>A timeout occurred</body></html>"),
    "500": Failure(500, {"error": {"message": "Internal server error", "type": "server_error"}}),
}
"""What gateways in front of any provider do."""


def _typed(message: str, kind: str, code: str | None, status: int, **other: Any) -> Failure:
    return Failure(
        status, {"error": {"message": message, "type": kind, "param": None, "code": code}}, **other
    )


OPENAI: Errors = COMMON | {
    "overflow": openai_error(
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        "context_length_exceeded",
        "messages",
    ),
    "filter": openai_error(
        "Invalid prompt: your prompt was flagged as potentially violating our usage policy.", "invalid_prompt"
    ),
    "rate": _typed(
        "Rate limit reached for requests per min (RPM): Limit 500, Used 500, Requested 1. Please try again in 30ms.",
        "requests",
        "rate_limit_exceeded",
        429,
        headers={"retry-after-ms": "30", "retry-after": "1", "x-ratelimit-reset-requests": "30ms"},
        wait=0.03,
    ),
    "day": _typed(
        "Rate limit reached for requests per day (RPD): Limit 200, Used 200, Requested 1. Please try again in 7m12s.",
        "requests",
        "rate_limit_exceeded",
        429,
        headers={"retry-after": "432", "x-ratelimit-reset-requests": "7m12s"},
        wait=432,
    ),
    "quota": _typed(
        "You exceeded your current quota, please check your plan and billing details.",
        "insufficient_quota",
        "insufficient_quota",
        429,
    ),
    "overload": _typed(
        "The engine is currently overloaded, please try again later", "server_error", None, 503
    ),
    "missing": openai_error(
        "The model `x` does not exist or you do not have access to it.", "model_not_found", status=404
    ),
    "key": openai_error("Incorrect API key provided: sk-***.", "invalid_api_key", status=401),
    "in_stream": Failure(
        200, [({"error": {"message": "The server had an error", "type": "server_error", "code": None}},)]
    ),
}

_FILTERED = {
    "message": "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
    "type": None,
    "param": "prompt",
    "code": "content_filter",
    "status": 400,
    "innererror": {
        "code": "ResponsibleAIPolicyViolation",
        "content_filter_result": {"violence": {"filtered": True, "severity": "high"}},
    },
}
AZURE: Errors = OPENAI | {
    "filter": Failure(400, {"error": _FILTERED}),
    "rate": Failure(
        429,
        {
            "error": {
                "code": "429",
                "message": "Requests have exceeded call rate limit of your current pricing tier.",
            }
        },
        {"retry-after-ms": "40", "retry-after": "1"},
        wait=0.04,
    ),
    "missing": Failure(
        404,
        {
            "error": {
                "code": "DeploymentNotFound",
                "message": "The API deployment for this resource does not exist.",
            }
        },
    ),
    "key": Failure(
        401,
        {
            "error": {
                "code": "401",
                "message": "Access denied due to invalid subscription key or wrong API endpoint.",
            }
        },
    ),
}

ANTHROPIC: Errors = COMMON | {
    "overflow": anthropic_error("prompt is too long: 211000 tokens > 200000 maximum"),
    "overflow_with_limit": anthropic_error(
        "input length and `max_tokens` exceed context limit: 199000 + 8000 > 200000, decrease input length or `max_tokens`"
    ),
    "filter": anthropic_error("Output blocked by content filtering policy"),
    "rate": Failure(
        429,
        anthropic_error("This request would exceed your account's rate limit.", 429, "rate_limit_error").body,
        {"retry-after": "1", "anthropic-ratelimit-requests-remaining": "0"},
        wait=1,
    ),
    "quota": anthropic_error("Your credit balance is too low to access the API.", 402, "billing_error"),
    "low_credit": anthropic_error(
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing."
    ),
    "overload": anthropic_error("Overloaded", 529, "overloaded_error"),
    "missing": anthropic_error("model: claude-none", 404, "not_found_error"),
    "key": anthropic_error("invalid x-api-key", 401, "authentication_error"),
    "too_large": anthropic_error("Request exceeds the maximum size", 413, "request_too_large"),
}
ANTHROPIC_COMPATIBLE: Errors = COMMON | {
    "overload": openai_error("Overloaded", "overloaded_error", status=529),
    "key": openai_error("invalid x-api-key", "authentication_error", status=401),
}

_QUOTA = "type.googleapis.com/google.rpc.QuotaFailure"


def _gemini_limit(quota: str, limit: int, seconds: str) -> Failure:
    text = (
        "You exceeded your current quota, please check your plan and billing details.\n* Quota exceeded for metric: "
        f"generativelanguage.googleapis.com/generate_content_requests, limit: {limit}, model: gemini-2.5-flash\n"
        f"Please retry in {seconds}s."
    )
    details = [
        {"@type": _QUOTA, "violations": [{"quotaId": quota, "quotaValue": str(limit)}]},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{seconds}s"},
    ]
    found = gemini_error(text, 429, "RESOURCE_EXHAUSTED", details)
    return Failure(429, found.body, wait=float(seconds))


GEMINI: Errors = COMMON | {
    "overflow": gemini_error(
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
    ),
    "rate": _gemini_limit("GenerateRequestsPerMinutePerProjectPerModel", 10, "0.05"),
    "day": _gemini_limit("GenerateRequestsPerDayPerProjectPerModel-FreeTier", 250, "41.5"),
    "never": _gemini_limit("GenerateRequestsPerDayPerProjectPerModel-FreeTier", 0, "41.5"),
    "overload": gemini_error("The model is overloaded. Please try again later.", 503, "UNAVAILABLE"),
    "missing": gemini_error("models/x is not found for API version v1main", 404, "NOT_FOUND"),
    "key": gemini_error("API key not valid. Please pass a valid API key.", 400, "INVALID_ARGUMENT"),
}
MISTRAL: Errors = COMMON | {
    "overflow": mistral_error(
        "Prompt contains 140000 tokens, too large for model with 131072 maximum context length", 400,
        "invalid_request_prompt", "3051",
    ),
    "rate": Failure(
        429,
        mistral_error("Rate limit exceeded", 429, "rate_limited", "1300").body,
        {"retry-after": "1"},
        wait=1,
    ),
    "quota": mistral_error("Payment required: your credits are used up", 402, "payment_required", "1402"),
    "overload": mistral_error("Service unavailable.", 503, "unreachable_backend", "1100"),
    "missing": mistral_error("Invalid model: x", 400, "invalid_model", "1500"),
    "key": Failure(401, {"detail": "Unauthorized"}),
}  # fmt: skip
DEEPSEEK: Errors = COMMON | {
    "overflow": openai_error(
        "This model's maximum context length is 131072 tokens. However, you requested 140000 tokens.",
        "invalid_request_error",
    ),
    "rate": _typed("Rate limit reached", "rate_limit_error", "rate_limit", 429),
    "quota": _typed("Insufficient Balance", "unknown_error", "invalid_request_error", 402),
    "overload": _typed("Server overloaded", "server_error", None, 503),
    "key": openai_error("Authentication Fails (no such user)", "invalid_request_error", status=401),
}


def openrouter_error(
    status: int, message: str, headers: dict[str, str] | None = None, **metadata: Any
) -> Failure:
    error = {"code": status, "message": message, "metadata": metadata}
    return Failure(status, {"error": error, "user_id": "user_1"}, headers or {})


OPENROUTER: Errors = COMMON | {
    "overflow": openrouter_error(
        400,
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens.",
        error_type="context_length_exceeded",
    ),
    "filter": openrouter_error(
        403,
        "Your chosen model requires moderation and your input was flagged",
        reasons=["violence"],
        flagged_input="…",
        provider_name="OpenAI",
    ),
    "rate": Failure(
        429,
        openrouter_error(429, "Rate limit exceeded: free-models-per-min.").body,
        {"Retry-After": "1", "X-RateLimit-Limit": "20", "X-RateLimit-Remaining": "0"},
        wait=1,
    ),
    "day": openrouter_error(
        429, "Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 free model requests per day",
        {"X-RateLimit-Limit": "50", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "4102444800000"},
    ),
    "quota": openrouter_error(402, "Insufficient credits. Add more using https://openrouter.ai/settings/credits"),
    "overload": openrouter_error(502, "Provider returned error", raw="upstream failed", provider_name="X"),
    "missing": openrouter_error(404, "No endpoints found for x/y."),
    "in_200": Failure(200, openrouter_error(502, "Provider returned error", provider_name="X").body),
    "in_stream": Failure(
        200,
        [
            (
                {
                    "id": "gen-1",
                    "object": "chat.completion.chunk",
                    "error": {"code": "server_error", "message": "Provider disconnected"},
                    "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}],
                },
            )
        ],
    ),
}  # fmt: skip
TOGETHER: Errors = COMMON | {
    "overflow": _typed("Input token count + `max_tokens` must be below 32769.", "invalid_request_error", None, 403),
    "rate": _typed(
        "You have reached the rate limit", "rate_limit", None, 429,
        headers={"x-ratelimit-limit": "10", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1"},
    ),
    "quota": _typed("You have reached your monthly spending limit", "credit_limit", None, 402),
    "overload": _typed("The server is overloaded or not ready yet.", "service_unavailable", None, 503),
    "missing": _typed("Unable to access model x", "invalid_request_error", "model_not_available", 404),
}  # fmt: skip
FIREWORKS: Errors = COMMON | {
    "rate": fireworks_error(
        "Request didn't generate first token before the given deadline", 429, "RATE_LIMITED"
    ),
    "quota": fireworks_error(
        "Account x is suspended, possibly due to reaching the monthly spending limit", 412, "FAILED"
    ),
    "overload": fireworks_error("Service overloaded, please try again later", 503, "UNAVAILABLE"),
    "missing": fireworks_error("Model not found, inaccessible, and/or not deployed", 404, "NOT_FOUND"),
}
GROQ: Errors = COMMON | {
    "overflow": openai_error("Please reduce the length of the messages or completion.", "context_length_exceeded", "messages"),
    "too_large": _typed(
        "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 7000, please reduce your message "
        "size and try again.", "tokens", "rate_limit_exceeded", 413,
    ),
    "rate": _typed(
        "Rate limit reached for model `x` on tokens per minute (TPM): Limit 6000, Used 5900, Requested 300. Please try "
        "again in 1s.", "tokens", "rate_limit_exceeded", 429, headers={"retry-after": "1"}, wait=1,
    ),
    "day": _typed(
        "Rate limit reached for model `x` on tokens per day (TPD): Limit 100000, Used 97050, Requested 3619. Please try "
        "again in 9m38.016s.", "tokens", "rate_limit_exceeded", 429, headers={"retry-after": "579"}, wait=579,
    ),
    "overload": _typed("Service Unavailable", "internal_server_error", None, 503),
    "capacity": _typed("Flex tier capacity exceeded", "capacity_exceeded", None, 498),
    "missing": openai_error("The model `x` does not exist or you do not have access to it.", "model_not_found", status=404),
}  # fmt: skip
XAI: Errors = COMMON | {
    "overflow": xai_error(
        "This model's maximum prompt length is 131072 but the request contains 140000 tokens."
    ),
    "rate": xai_error("Too many requests for team: 10 per second", 429, "Some resource has been exhausted"),
    "quota": xai_error(
        "Your team has used all available credits", 403, "The caller does not have permission"
    ),
    "in_200": Failure(
        200, {"code": "The service is currently unavailable", "error": "Service temporarily unavailable."}
    ),
    "missing": xai_error("The model x does not exist", 404, "Some requested entity was not found"),
    "key": xai_error("Incorrect API key provided: sk***.", 400),
}


def vllm_error(message: str, kind: str, status: int, param: str | None = None) -> Failure:
    return Failure(status, {"error": {"message": message, "type": kind, "param": param, "code": status}})


VLLM: Errors = COMMON | {
    "overflow": vllm_error(
        "This model's maximum context length is 4096 tokens. However, your request has 5000 input tokens.",
        "BadRequestError", 400, "input_tokens",
    ),
    "missing": vllm_error("The model `x` does not exist.", "NotFoundError", 404),
    "overload": vllm_error("The server is overloaded", "ServiceUnavailableError", 503),
    "key": Failure(401, {"error": "Unauthorized"}),
    "in_stream": Failure(200, [(vllm_error("EngineCore died", "InternalServerError", 500).body,), ("[DONE]",)]),
}  # fmt: skip
SGLANG: Errors = COMMON | {
    "overflow": Failure(
        400,
        {
            "object": "error",
            "message": "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
    ),
    "in_stream": Failure(
        200,
        [
            (
                {
                    "error": {
                        "object": "error",
                        "message": "Aborted",
                        "type": "InternalServerError",
                        "param": None,
                        "code": 500,
                    }
                },
            )
        ],
    ),
}
LLAMA_CPP: Errors = COMMON | {
    "overflow": Failure(
        400,
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size. try increasing the context size",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 5000,
                "n_ctx": 4096,
            }
        },
    ),
    "overload": Failure(
        503, {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
    ),
    "in_stream": Failure(
        200, [({"error": {"code": 500, "message": "decode failed", "type": "server_error"}},)]
    ),
}
OLLAMA: Errors = COMMON | {
    "missing": Failure(
        404,
        {"error": {"message": "model 'x' not found", "type": "not_found_error", "param": None, "code": None}},
    ),
    "overload": Failure(
        503,
        {
            "error": {
                "message": "server busy, please try again",
                "type": "api_error",
                "param": None,
                "code": None,
            }
        },
    ),
}
