"""What each provider refuses, with the status and the body that it documents."""

from __future__ import annotations

import re
from typing import Any

from tests.support.providers.messages import SIGNATURE, generation
from tests.support.providers.provider import Call, Failure
from tests.support.providers.responses import turns_of


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ROLES = ("system", "developer", "user", "assistant", "tool")
_CHAT = _names(
    "model messages max_tokens max_completion_tokens temperature top_p n stop seed presence_penalty frequency_penalty "
    "logprobs top_logprobs logit_bias stream stream_options user response_format tools tool_choice parallel_tool_calls "
    "reasoning_effort prompt_cache_key prompt_cache_options store metadata service_tier safety_identifier verbosity"
)
_SAMPLED = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "logprobs",
    "top_logprobs",
    "logit_bias",
)
_DEFAULTS = {"temperature": 1, "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0}


def openai_error(message: str, code: str | None, param: str | None = None, status: int = 400) -> Failure:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return Failure(status, {"error": error})


def unsupported(name: str) -> Failure:
    return openai_error(
        f"Unsupported parameter: '{name}' is not supported with this model.", "unsupported_parameter", name
    )


# ---------------------------------------------------------------- OpenAI


def openai_generation(model: str) -> tuple[int, int]:
    """`gpt-5.1` is (5, 1), a model of the o-series (5, 0), which has the same rules."""
    if re.match(r"o\d", model):
        return 5, 0
    found = re.match(r"gpt-(\d+)(?:\.(\d+))?", model)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


def reasons(model: str) -> bool:
    """Whether an OpenAI model thinks; `gpt-5-chat` does not."""
    return openai_generation(model) >= (5, 0) and not re.match(r"gpt-[\d.]+-chat", model)


def openai_efforts(model: str) -> tuple[str, ...]:
    """What `reasoning_effort` a model takes, the first its default."""
    generation = openai_generation(model)
    if model.startswith("gpt-5-pro"):
        return ("high",)
    if re.match(r"o\d", model):
        return "medium", "low", "high"
    if model.startswith(("gpt-6-astra", "gpt-6.1-sol")):
        return "medium", "low", "high", "xhigh", "max"
    if generation >= (5, 6):
        return "none", "low", "medium", "high", "xhigh", "max"
    if generation >= (5, 1):
        return "none", "low", "medium", "high"
    return "medium", "minimal", "low", "high"


def openai_effort(model: str, given: str | None) -> str:
    """The effort in force."""
    return "none" if not reasons(model) else given or openai_efforts(model)[0]


def _sampling(body: dict[str, Any], effort: str) -> Failure | None:
    """Refuse sampling parameters of models that think; without effort they take some of them."""
    for name in _SAMPLED:
        if effort == "none" and name in ("temperature", "top_p", "logprobs", "top_logprobs"):
            continue
        value = body.get(name)
        if value is None or value == _DEFAULTS.get(name, object()):
            continue
        if name in ("temperature", "top_p"):
            text = f"Unsupported value: '{name}' does not support {value} with this model. "
            return openai_error(f"{text}Only the default (1) value is supported.", "unsupported_value", name)
        return unsupported(name)
    return None


def _chat_messages(call: Call) -> Failure | None:
    """Refuse a conversation that is none."""
    messages = call.body.get("messages")
    if not isinstance(messages, list) or not messages:
        return openai_error(
            "Missing required parameter: 'messages'.", "missing_required_parameter", "messages"
        )
    for index, one in enumerate(messages):
        if one.get("role") not in _ROLES or not isinstance(one.get("content"), str | list):
            return openai_error(
                f"Invalid value for 'messages[{index}]'.", "invalid_value", f"messages[{index}]"
            )
    roles = {one["role"] for one in messages}
    if {"system", "developer"} <= roles:
        return openai_error("Use either 'system' or 'developer' messages.", "invalid_value", "messages")
    return None


def openai_chat(call: Call, model: str = "") -> Failure | None:
    """OpenAI's chat completions, by the generation of the model."""
    body, model = call.body, model or call.model
    if unknown := sorted(body.keys() - _CHAT):
        return openai_error(f"Unrecognized request argument supplied: {unknown[0]}", None)
    if wrong := _chat_messages(call):
        return wrong
    if "stream_options" in body and not body.get("stream"):
        text = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        return openai_error(text, None, "stream_options")
    if "max_tokens" in body and "max_completion_tokens" in body:
        return openai_error(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.", None
        )
    if not reasons(model):
        if "reasoning_effort" in body:
            return openai_error(
                "Unrecognized request argument supplied: reasoning_effort", None, "reasoning_effort"
            )
        return None
    if "max_tokens" in body:
        text = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        return openai_error(text, "unsupported_parameter", "max_tokens")
    effort = body.get("reasoning_effort")
    if effort is not None and effort not in openai_efforts(model):
        text = f"Unsupported value: 'reasoning_effort' does not support '{effort}' with this model."
        return openai_error(text, "unsupported_value", "reasoning_effort")
    if "stop" in body and model.startswith(("o3", "o4-mini", "gpt-6-astra")):
        return unsupported("stop")
    if body.get("parallel_tool_calls") is not None and re.match(r"o\d", model):
        return unsupported("parallel_tool_calls")
    return _sampling(body, openai_effort(model, effort))


_RESPONSES = _names(
    "model input instructions max_output_tokens temperature top_p stream stream_options store reasoning include text tools "
    "tool_choice parallel_tool_calls previous_response_id metadata user service_tier truncation prompt_cache_key "
    "top_logprobs safety_identifier background max_tool_calls prompt_cache_options prompt_cache_retention conversation "
    "context_management prompt moderation"
)


def openai_responses(call: Call) -> Failure | None:
    """OpenAI's Responses API."""
    body = call.body
    if unknown := sorted(body.keys() - _RESPONSES):
        return openai_error(f"Unknown parameter: '{unknown[0]}'.", "unknown_parameter", unknown[0])
    if not body.get("input"):
        return openai_error("Missing required parameter: 'input'.", "missing_required_parameter", "input")
    for index, one in enumerate(body["input"] if isinstance(body["input"], list) else ()):
        wanted = "output_text" if one.get("role") == "assistant" else "input_text"
        content = one.get("content")
        parts = content if isinstance(content, list) else []
        if "role" in one and any(part.get("type") not in (wanted, "refusal") for part in parts):
            where = f"input[{index}].content[0]"
            return openai_error(
                f"Invalid value: '{where}.type'. Supported values are: '{wanted}'.", "invalid_value", where
            )
    if not turns_of(body):
        return openai_error("Invalid 'input'.", "invalid_value", "input")
    if body.get("max_output_tokens", 16) < 16:
        text = "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16."
        return openai_error(text, "integer_below_min_value", "max_output_tokens")
    effort = (body.get("reasoning") or {}).get("effort")
    if not reasons(call.model):
        return unsupported("reasoning.effort") if effort else None
    if effort is not None and effort not in openai_efforts(call.model):
        text = f"Unsupported value: 'reasoning.effort' does not support '{effort}' with this model."
        return openai_error(text, "unsupported_value", "reasoning.effort")
    if openai_effort(call.model, effort) != "none":
        for name in ("temperature", "top_p"):
            if body.get(name, 1) != 1:
                return unsupported(name)
    return None


def azure_classic(call: Call) -> Failure | None:
    """Azure by deployment: the version is asked for, and the model is the deployment's."""
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}(-preview)?", call.query.get("api-version", "")):
        return Failure(404, {"error": {"code": "404", "message": "Resource not found"}})
    return openai_chat(call, call.path.split("/")[3])


def azure_v1(call: Call) -> Failure | None:
    if "api-version" in call.query:
        return Failure(400, {"error": {"code": "BadRequest", "message": "API version not supported"}})
    return openai_chat(call)


# ---------------------------------------------------------------- Anthropic


def anthropic_error(message: str, status: int = 400, kind: str = "invalid_request_error") -> Failure:
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    return Failure(status, body, {"request-id": "req_1"})


_MESSAGES = _names(
    "model messages max_tokens system temperature top_p top_k stop_sequences stream thinking output_config metadata tools "
    "tool_choice service_tier cache_control container mcp_servers diagnostics inference_geo speed"
)


def anthropic_messages(call: Call) -> Failure | None:
    """The Messages API, by the generation of the model."""
    body, new = call.body, generation(call.model)
    version = call.headers.get("anthropic-version")
    if version not in ("2023-06-01", "2026-10-21"):
        return anthropic_error("anthropic-version: header is required")
    if version != "2023-06-01" and (sampled := sorted(body.keys() & {"temperature", "top_p", "top_k"})):
        return anthropic_error(f"{sampled[0]}: Extra inputs are not permitted")
    if unknown := sorted(body.keys() - _MESSAGES):
        return anthropic_error(f"{unknown[0]}: Extra inputs are not permitted")
    if not isinstance(body.get("max_tokens"), int):
        return anthropic_error("max_tokens: Field required")
    if wrong := _anthropic_turns(body, new):
        return wrong
    if new >= (4, 7):
        for name in ("temperature", "top_p", "top_k"):
            if name in body:
                return anthropic_error(f"`{name}` is deprecated for this model.")
    elif new >= (4, 1) and "temperature" in body and "top_p" in body:
        text = "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
        return anthropic_error(text)
    if not 0 <= body.get("temperature", 1) <= 1:
        return anthropic_error("temperature: range: 0..1")
    return _thinking(body, new)


def _anthropic_turns(body: dict[str, Any], new: tuple[int, int]) -> Failure | None:
    messages = body.get("messages") or []
    if not messages or messages[0].get("role") != "user":
        return anthropic_error('messages: first message must use the "user" role')
    roles = ("user", "assistant", "system") if new >= (4, 8) else ("user", "assistant")
    for index, one in enumerate(messages):
        if one.get("role") not in roles:
            return anthropic_error(f"messages.{index}.role: Input should be 'user' or 'assistant'")
        content = one.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        if not blocks or any(
            block["type"] == "text" and not block.get("text", "").strip() for block in blocks
        ):
            return anthropic_error(f"messages.{index}: text content blocks must be non-empty")
        for block in blocks:
            if block["type"] == "thinking" and block.get("signature") != SIGNATURE:
                return anthropic_error(f"messages.{index}.content.0: Invalid `signature` in `thinking` block")
    return None


def _thinking(body: dict[str, Any], new: tuple[int, int]) -> Failure | None:
    thinking = body.get("thinking") or {}
    kind = thinking.get("type")
    if kind == "enabled":
        if new >= (4, 7):
            text = 'Use "thinking.type.adaptive" and "output_config.effort" to control thinking behavior.'
            return anthropic_error(f'"thinking.type.enabled" is not supported for this model. {text}')
        budget = thinking.get("budget_tokens", 0)
        if budget < 1024:
            return anthropic_error(
                "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
            )
        if budget >= body["max_tokens"]:
            return anthropic_error("`max_tokens` must be greater than `thinking.budget_tokens`.")
    if kind == "adaptive" and new < (4, 6):
        return anthropic_error("adaptive thinking is not supported on this model")
    if kind == "disabled" and new >= (5, 5):
        return anthropic_error('"thinking.type.disabled" is not supported for this model.')
    effort = (body.get("output_config") or {}).get("effort")
    if effort is not None and (new < (4, 5) or effort not in ("low", "medium", "high", "xhigh", "max")):
        return anthropic_error("This model does not support the effort parameter.")
    if kind in ("enabled", "adaptive") and new < (4, 7) and body.get("temperature", 1) != 1:
        return anthropic_error("`temperature` may only be set to 1 when thinking is enabled.")
    return None


def anthropic_thinks(call: Call) -> bool:
    """From 4.7 on by default; before only where it is asked for."""
    kind = (call.body.get("thinking") or {}).get("type")
    return kind in ("enabled", "adaptive") or (kind != "disabled" and generation(call.model) >= (4, 7))


def anthropic_compatible(call: Call) -> Failure | None:
    """The endpoint for OpenAI's libraries: most fields are ignored, several choices are refused."""
    if call.body.get("n", 1) != 1:
        return openai_error("n: Input should be 1", "invalid_request_error")
    return _chat_messages(call) or no_empty_message(call)


# ---------------------------------------------------------------- others


def no_empty_message(call: Call) -> Failure | None:
    """Refuse a history with an empty message in it."""
    for index, one in enumerate(call.body["messages"]):
        if not one["content"]:
            return openai_error(
                f"messages.{index}: all messages must have non-empty content", None, "messages"
            )
    return None


_GEMINI = _names(
    "model messages temperature top_p max_tokens max_completion_tokens n stop stream stream_options tools tool_choice "
    "parallel_tool_calls response_format reasoning_effort extra_body user"
)


def gemini_error(
    message: str, status: int = 400, name: str = "INVALID_ARGUMENT", details: Any = ()
) -> Failure:
    return Failure(
        status, [{"error": {"code": status, "message": message, "status": name, "details": list(details)}}]
    )


def gemini(call: Call) -> Failure | None:
    if unknown := sorted(call.body.keys() - _GEMINI):
        text = f'Invalid JSON payload received. Unknown name "{unknown[0]}": Cannot find field.'
        violation = {
            "@type": "type.googleapis.com/google.rpc.BadRequest",
            "fieldViolations": [{"description": text}],
        }
        return gemini_error(text, details=[violation])
    effort = call.body.get("reasoning_effort")
    if effort == "none" and not call.model.startswith("gemini-2.5-flash"):
        return gemini_error("Budget 0 is invalid. This model only works in thinking mode.")
    if effort not in (None, "none", "minimal", "low", "medium", "high"):
        return gemini_error(f"Invalid value at 'reasoning_effort': {effort}")
    if "extra_body" in call.body and effort:
        return gemini_error("Only one of reasoning_effort and thinking_config may be set.")
    if any(not one["content"] for one in call.body["messages"]):
        return gemini_error("GenerateContentRequest.contents: contents.parts must not be empty.")
    return _chat_messages(call)


_MISTRAL = _names(
    "model messages temperature top_p max_tokens stream stop random_seed response_format tools tool_choice presence_penalty "
    "frequency_penalty n prediction parallel_tool_calls prompt_mode reasoning_effort safe_prompt metadata prompt_cache_key "
    "min_tokens repetition_penalty top_k logprobs top_logprobs guardrails service_tier"
)


def mistral(call: Call) -> Failure | None:
    """Fields that are not in the schema are an error of validation, in messages too."""
    where: list[Any] = [["body", name] for name in sorted(call.body.keys() - _MISTRAL - {"stream_options"})]
    where += [["body", "stream_options", name] for name in call.body.get("stream_options") or ()]
    for index, one in enumerate(call.body["messages"]):
        extra = one.keys() - {"role", "content", "tool_calls", "prefix", "tool_call_id"}
        where += [["body", "messages", index, one["role"], name] for name in sorted(extra)]
        if one["role"] not in ("system", "user", "assistant", "tool"):
            where.append(["body", "messages", index, "role"])
    if where:
        detail = [
            {"type": "extra_forbidden", "loc": one, "msg": "Extra inputs are not permitted", "input": None}
            for one in where
        ]
        return mistral_error({"detail": detail}, 422, "invalid_request_error")
    if any(one["role"] == "assistant" and not one["content"] for one in call.body["messages"]):
        text = "Assistant message must have either content or tool_calls, but not none."
        return mistral_error(text, 400, "invalid_request_message_order", "3240")
    return None


def mistral_error(message: Any, status: int, kind: str, code: str | None = None) -> Failure:
    return Failure(status, {"object": "error", "message": message, "type": kind, "param": None, "code": code})


def deepseek(call: Call) -> Failure | None:
    kind = (call.body.get("thinking") or {}).get("type")
    if kind not in (None, "enabled", "disabled"):
        return openai_error("unknown thinking type", "invalid_request_error", status=422)
    if call.body.get("reasoning_effort") not in (None, "low", "high", "max"):
        return openai_error("unknown variant of reasoning_effort", "invalid_request_error", status=422)
    return _chat_messages(call)


def fireworks(call: Call) -> Failure | None:
    if "max_tokens" in call.body and "max_completion_tokens" in call.body:
        return fireworks_error(
            "Cannot set both max_tokens and max_completion_tokens", 400, "INVALID_ARGUMENT"
        )
    if "reasoning_effort" in call.body and "thinking" in call.body:
        return fireworks_error("Cannot set both reasoning_effort and thinking", 400, "INVALID_ARGUMENT")
    for index, one in enumerate(call.body["messages"]):
        if extra := sorted(
            one.keys() - {"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content"}
        ):
            text = f"Extra inputs are not permitted, field: 'messages[{index}].{extra[0]}'"
            return fireworks_error(text, 400, "INVALID_ARGUMENT")
    return None


def fireworks_error(message: str, status: int, code: str) -> Failure:
    error = {"object": "error", "type": "invalid_request_error", "code": code, "message": message}
    return Failure(status, {"error": error})


_GROQ = _names(
    "model messages max_tokens max_completion_tokens temperature top_p n stop seed stream stream_options user response_format "
    "tools tool_choice parallel_tool_calls reasoning_effort reasoning_format include_reasoning service_tier metadata store "
    "presence_penalty frequency_penalty logprobs top_logprobs logit_bias search_settings documents citation_options"
)


def groq(call: Call) -> Failure | None:
    body = call.body
    if unknown := sorted(body.keys() - _GROQ):
        return openai_error(f"property '{unknown[0]}' is unsupported", None)
    for name in ("logprobs", "top_logprobs", "logit_bias", "presence_penalty", "frequency_penalty"):
        if body.get(name):
            return openai_error(f"property '{name}' is unsupported", None)
    if body.get("n", 1) != 1:
        return openai_error("'n' : number must be at most 1", None)
    if "reasoning_format" in body and "include_reasoning" in body:
        return openai_error("cannot specify both 'include_reasoning' and 'reasoning_format'", None)
    effort = body.get("reasoning_effort")
    allowed = ("low", "medium", "high") if "gpt-oss" in call.model else ("none", "default")
    if effort is not None and effort not in allowed:
        return openai_error(
            f"`reasoning_effort` must be one of {', '.join(allowed)}", None, "reasoning_effort"
        )
    return _chat_messages(call)


def xai(call: Call) -> Failure | None:
    """No model takes penalties, reasoning models no `stop`; errors have names of their own for the fields."""
    names = {"presence_penalty": "presencePenalty", "frequency_penalty": "frequencyPenalty"}
    if "non-reasoning" not in call.model:
        names["stop"] = "stop"
    if call.model.startswith("grok-4.20"):
        names["reasoning_effort"] = "reasoningEffort"
    for name, shown in names.items():
        if name in call.body:
            return xai_error(f"Model {call.model} does not support parameter {shown}.")
    return None


def xai_error(message: str, status: int = 400, code: str = "Client specified an invalid argument") -> Failure:
    return Failure(status, {"code": code, "error": message})
