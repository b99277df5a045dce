"""The Messages and Responses protocols: bodies as documented, and replies read alike, streamed or not, cut anywhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from camel.core.errors import MalformedReply, ModelError, RequestRejected, ServerFailed
from camel.core.history import History
from camel.core.message import Sampling, Usage
from camel.core.model import Reply, Request
from camel.models.completions import ChatCompletions, OpenAIResponses
from camel.models.dialects import Dialect, _tables, default_url, find_dialect
from camel.models.guided import guided_fields
from camel.models.messages import AnthropicMessages
from camel.models.protocol import Wire

THOUGHT, SPEECH = "Instruction: hm <CAMEL_TASK_DONE>", "Solution: one.\nNext request."


def asked(sampling: Sampling = Sampling(), **more: Any) -> Request:  # noqa: B008 - frozen
    history = History("You are ü")
    for role, text in (("user", "Instruction: a"), ("assistant", "Solution: b"), ("user", "Instruction: c")):
        history.add(role, text)  # pyright: ignore[reportArgumentType]
    return Request(history, sampling, "s", "assistant", **more)


def sent(wire: Wire, request: Request) -> dict[str, Any]:
    return json.loads(wire.encode(request))


def events(*data: dict[str, Any]) -> bytes:
    return b"".join(
        b"event: %s\ndata: %s\n\n" % (one["type"].encode(), json.dumps(one).encode()) for one in data
    )


MESSAGE: dict[str, Any] = {
    "type": "message",
    "model": "claude-x",
    "content": [
        {"type": "thinking", "thinking": THOUGHT, "signature": "sig"},
        {"type": "redacted_thinking", "data": "xxx"},
        {"type": "text", "text": SPEECH},
    ],
    "stop_reason": "end_turn",
    "usage": {
        "input_tokens": 10,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens": 30,
        "output_tokens_details": {"thinking_tokens": 12},
    },
}
MESSAGE_STREAM = events(
    {
        "type": "message_start",
        "message": {**MESSAGE, "content": [], "usage": {**MESSAGE["usage"], "output_tokens": 1}},
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": THOUGHT[:9]}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": THOUGHT[9:]}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "ping"},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": SPEECH[:5]}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": SPEECH[5:]}},
    {"type": "content_block_stop", "index": 1},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {"output_tokens": 30, "output_tokens_details": {"thinking_tokens": 12}},
    },
    {"type": "message_stop"},
)
RESPONSE: dict[str, Any] = {
    "object": "response",
    "status": "completed",
    "model": "gpt-x",
    "output": [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": THOUGHT}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": SPEECH}]},
    ],
    "usage": {
        "input_tokens": 130,
        "input_tokens_details": {"cached_tokens": 100, "cache_write_tokens": 20},
        "output_tokens": 30,
        "output_tokens_details": {"reasoning_tokens": 12},
        "total_tokens": 160,
    },
}
RESPONSE_STREAM = events(
    {"type": "response.created", "response": {"status": "in_progress"}},
    {"type": "response.reasoning_summary_text.delta", "delta": THOUGHT},
    {"type": "response.output_text.delta", "delta": SPEECH[:5]},
    {"type": "response.output_text.delta", "delta": SPEECH[5:]},
    {"type": "response.completed", "response": RESPONSE},
)
ANTHROPIC = AnthropicMessages("claude-opus-4-5", find_dialect("claude-opus-4-5", name="anthropic"))
RESPONSES = OpenAIResponses("gpt-6", find_dialect("gpt-6", name="responses"))
FORMS = [
    pytest.param(ANTHROPIC, MESSAGE, MESSAGE_STREAM, id="messages"),
    pytest.param(RESPONSES, RESPONSE, RESPONSE_STREAM, id="responses"),
]


def check(reply: Reply) -> None:
    (choice,) = reply.choices
    assert (choice.content, choice.reasoning, choice.finish) == (SPEECH, THOUGHT, "stop")
    assert reply.usage == Usage(130, 30, 100, 1, reasoning=12, written=20)


@pytest.mark.parametrize(("wire", "body", "stream"), FORMS)
def test_thought_speech_and_counts(wire: Wire, body: dict[str, Any], stream: bytes) -> None:
    check(wire.read(json.dumps(body).encode()))
    check(wire.read(stream))
    for cut in range(1, len(stream), 7):
        streamed = wire.stream()
        shown = [*streamed.feed(stream[:cut]), *streamed.feed(stream[cut:])]
        check(streamed.finished())
        assert "".join(shown) == SPEECH


@pytest.mark.parametrize(("wire", "body", "stream"), FORMS)
def test_a_stream_that_breaks_off_is_no_reply(wire: Wire, body: dict[str, Any], stream: bytes) -> None:
    for cut in range(1, stream.rindex(b"event:"), 11):
        streamed = wire.stream()
        for _ in streamed.feed(stream[:cut]):
            pass
        with pytest.raises(MalformedReply):
            streamed.finished()


@pytest.mark.parametrize(("wire", "body", "stream"), FORMS)
@pytest.mark.parametrize(
    "broken", [b"", b"null", b"[]", b"{}", b'{"content":1,"output":{}}', b"<html>", b"\xff{"]
)
def test_what_is_no_reply_is_an_error_of_its_kind(
    wire: Wire, body: dict[str, Any], stream: bytes, broken: bytes
) -> None:
    with pytest.raises(ModelError):
        wire.read(broken)
    with pytest.raises(ServerFailed):
        wire.read(b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}')


def test_errors_in_a_stream_are_raised() -> None:
    error = events({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    with pytest.raises(ServerFailed):
        list(ANTHROPIC.stream().feed(error))
    with pytest.raises(ServerFailed):
        list(RESPONSES.stream().feed(error))


def test_a_message_is_asked_for_as_documented() -> None:
    sampling = Sampling(temperature=0.2, seed=3, stop=("END",), max_tokens=500)
    body = sent(ANTHROPIC, asked(sampling))
    assert body == {
        "model": "claude-opus-4-5",
        "system": "You are ü",
        "cache_control": {"type": "ephemeral"},
        "messages": [
            {"role": "user", "content": "Instruction: a"},
            {"role": "assistant", "content": "Solution: b"},
            {"role": "user", "content": "Instruction: c"},
        ],
        "temperature": 0.2,
        "max_tokens": 500,
        "stop_sequences": ["END"],
    }
    assert any("seed" in line for line in ANTHROPIC.adjustments)
    plain = History()
    plain.add("user", "hello")
    assert sent(ANTHROPIC, Request(plain)) == {
        "model": "claude-opus-4-5",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 8192,
    }


def test_how_much_a_model_may_think_in_its_own_terms() -> None:
    def body(model: str, dialect: str, reasoning: Any, **more: Any) -> dict[str, Any]:
        wire = AnthropicMessages if dialect == "anthropic" else OpenAIResponses
        return sent(
            wire(model, find_dialect(model, name=dialect)), asked(Sampling(reasoning=reasoning, **more))
        )

    old = body("claude-opus-4-5", "anthropic", "low", temperature=0.2)
    assert old["thinking"] == {"type": "enabled", "budget_tokens": 2048}
    assert old["max_tokens"] > 2048
    assert "temperature" not in old
    assert body("claude-opus-4-5", "anthropic", 3000)["thinking"]["budget_tokens"] == 3000
    assert "thinking" not in body("claude-opus-4-5", "anthropic", "off")
    new = body("claude-opus-5", "anthropic", "high", temperature=0.2)
    assert (new["thinking"]["type"], new["output_config"]) == ("adaptive", {"effort": "high"})
    assert "temperature" not in new
    assert body("claude-opus-5", "anthropic", None)["thinking"]["display"] == "summarized"
    assert body("claude-opus-5", "anthropic", "off")["thinking"] == {"type": "disabled"}
    assert body("gpt-6", "responses", "low")["reasoning"]["effort"] == "low"
    with pytest.raises(RequestRejected, match="max_tokens"):
        body("claude-opus-4-5", "anthropic", 3000, max_tokens=1000)


def test_a_judge_is_held_to_its_form_in_each_protocol() -> None:
    wire = AnthropicMessages("claude-opus-5", find_dialect("claude-opus-5", name="anthropic"))
    held = sent(wire, asked(expects="choice", options=3))["output_config"]["format"]
    assert held["schema"]["properties"]["choice"]["enum"] == [1, 2, 3]
    assert sent(RESPONSES, asked(expects="choice", options=3))["text"]["format"]["strict"] is True
    assert "text" not in sent(RESPONSES, asked(expects="solution"))


FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "one": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
    "required": ["type", "one"],
}


def test_a_result_is_constrained_by_its_schema_in_each_protocol() -> None:
    request = asked(expects="result", schema=FORM)
    wire = AnthropicMessages("claude-opus-5", find_dialect("claude-opus-5", name="anthropic"))
    bodies = [
        sent(wire, request)["output_config"]["format"]["schema"],
        sent(RESPONSES, request)["text"]["format"]["schema"],
        *(
            sent(ChatCompletions("m", Dialect(), guided=guide), request)["response_format"]["json_schema"][
                "schema"
            ]
            for guide in (None, "openai", "llama.cpp", "vllm")
        ),
    ]
    for schema in bodies:  # strict endpoints need this field
        assert schema["additionalProperties"] is schema["properties"]["one"]["additionalProperties"] is False
        assert schema["required"] == FORM["required"]
    assert "additionalProperties" not in FORM
    whole = {**FORM, "properties": {"type": {"type": "string"}}, "required": ["type"]}
    for schema, strict in ((FORM, False), (whole, True), ({**whole, "additionalProperties": True}, False)):
        fields = guided_fields("openai", "result", schema=schema)
        assert fields["response_format"]["json_schema"]["strict"] is strict
    # Providers without schemas are asked by instruction alone.
    old = ChatCompletions("deepseek-chat", find_dialect("deepseek-chat", name="deepseek"))
    assert "response_format" not in sent(old, request)
    assert old.constraint(request) == ""
    assert ChatCompletions("m", Dialect()).constraint(request) == "openai:result"
    assert ChatCompletions("m", Dialect()).constraint(asked(expects="choice")) == ""


def test_every_dialect_can_be_read() -> None:
    for name in _tables():
        for model in ("x", "gpt-6-astra", "o3", "claude-opus-5-5", "grok-4.20", "qwen/qwen3-32b"):
            dialect = find_dialect(model, name=name)
            assert isinstance(dialect, Dialect)
            assert {"off", "low", "medium", "high"} <= dialect.reasoning.keys()


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://r.openai.azure.com/openai/v1", "azure"),
        ("https://r.services.ai.azure.com/openai/v1", "azure"),
        ("https://r.openai.azure.com/openai/deployments/d", "azure-classic"),
        ("https://api.anthropic.com/v1", "anthropic"),
        ("https://notapi.openai.com.example/v1", ""),
        ("http://127.0.0.1:8000/v1", ""),
    ],
)
def test_an_endpoint_is_known_by_its_host(url: str, name: str) -> None:
    assert find_dialect("m", [url]).name == name


def test_replicas_of_two_kinds_are_of_none() -> None:
    assert find_dialect("m", ["https://api.openai.com/v1", "http://127.0.0.1:1/v1"]).name == ""


def test_a_provider_is_known_by_its_models() -> None:
    assert default_url("claude-opus-5") == "https://api.anthropic.com/v1"
    assert default_url("m", "groq") == "https://api.groq.com/openai/v1"
    assert default_url("qwen3") == "https://api.openai.com/v1"


@pytest.mark.parametrize(
    ("model", "reasoning", "refused"),
    [
        ("gpt-4.1-mini", None, False),
        ("gpt-5-mini", None, True),
        ("gpt-5-mini", "off", True),
        ("gpt-5.1", "off", False),
        ("gpt-6-sol", None, True),
        ("gpt-7", None, True),
        ("gpt-7", "off", False),
        ("gpt-5-chat-latest", None, False),
        ("o3", None, True),
    ],
)
def test_rules_go_by_generation(model: str, reasoning: Any, refused: bool) -> None:
    names = find_dialect(model, name="openai").renamed(Sampling(reasoning=reasoning))
    assert (names.get("temperature") == "") is refused
