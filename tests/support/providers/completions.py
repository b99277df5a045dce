"""Chat completions: the wire format that most providers share, with a thought in any of its documented places."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.support.providers.provider import Call, Form, Provider
from tests.support.providers.words import REFUSAL, Count, Heard, Said, Turn

CREATED = 1_790_000_000
_PIECE = 9
"""Characters of a delta."""


def event(data: Any, name: str = "") -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


def pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), _PIECE):
        yield text[start : start + _PIECE]


def text_of(content: Any) -> str:
    """The text of a message's content, a string or a list of parts."""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content or ""


class Completions:
    """Reads and writes chat completions."""

    def heard(self, body: dict[str, Any]) -> Heard:
        return Heard(tuple(Turn(one["role"], text_of(one.get("content"))) for one in body["messages"]))

    def limit(self, body: dict[str, Any], names: tuple[str, ...]) -> int | None:
        return next((body[name] for name in names if body.get(name) is not None), None)

    def choices(self, body: dict[str, Any]) -> int:
        return body.get("n") or 1

    def whole(self, provider: Provider, call: Call, said: tuple[Said, ...], count: Count) -> Any:
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", **_message(one, provider.form(call))},
                "finish_reason": one.finish,
                "logprobs": None,
                **provider.choice,
            }
            for index, one in enumerate(said)
        ]
        return {
            **_head(call, "chat.completion"),
            "choices": choices,
            "usage": provider.usage(count),
            **provider.extra(call),
        }

    def spoil(self, provider: Provider, reply: Any, kind: str) -> Any:
        choice = reply["choices"][0]
        match kind:
            case "empty_at_limit":
                choice["message"]["content"] = None
            case "refused":
                choice["message"] |= {"content": None, "refusal": REFUSAL}
            case "usage_null":
                reply["usage"] = None
            case "usage_absent":
                del reply["usage"]
            case "no_choices":
                del reply["choices"]
            case "error_in_200":
                return provider.errors["in_200"].body
            case "finish_error":
                choice["finish_reason"] = "error"
                choice["message"]["content"] = ""
                choice["error"] = {"code": 502, "message": "Provider returned error"}
            case _ if kind.startswith("finish:"):
                choice["finish_reason"] = kind.removeprefix("finish:")
                if kind != "finish:model_length":
                    choice["message"]["content"] = ""
            case _:
                pass
        return reply

    def events(
        self, provider: Provider, call: Call, said: tuple[Said, ...], count: Count, kind: str
    ) -> list[bytes]:
        if kind == "error_in_200":  # as plain JSON, although a stream was asked for
            return [json.dumps(provider.errors["in_200"].body).encode()]
        found = [provider.comments] if provider.comments else []
        found += [event(chunk) for chunk in _first(provider, call)]
        form, usage = provider.form(call), provider.usage(count)
        deltas = [(index, delta) for index, one in enumerate(said) for delta in _deltas(one, form)]
        for place, (index, delta) in enumerate(deltas):
            if place == len(deltas) // 2:
                if kind == "error_in_stream":
                    return [*found, *(event(*one) for one in provider.errors["in_stream"].body)]
                if kind == "hang_up":
                    return found
                found += [provider.comments] if provider.comments else []
            found.append(event(self._chunk(provider, call, index, delta, None, usage)))
        for index, one in enumerate(said):
            chunk = self._chunk(provider, call, index, {}, one.finish, usage)
            if provider.usage_in_stream == "x_groq":
                chunk["x_groq"] = {"id": "req_1", "usage": usage}
            found.append(event(chunk))
        asked = (call.body.get("stream_options") or {}).get("include_usage")
        if provider.usage_in_stream == "always" or (
            asked and provider.usage_in_stream in ("option", "x_groq")
        ):
            found.append(event({**_head(call, "chat.completion.chunk"), "choices": [], "usage": usage}))
        return [*found, event("[DONE]")]

    def _chunk(
        self,
        provider: Provider,
        call: Call,
        index: int,
        delta: dict[str, Any],
        finish: str | None,
        usage: dict[str, Any],
    ) -> dict[str, Any]:
        choice = {
            "index": index,
            "delta": delta,
            "finish_reason": finish,
            **(provider.choice if finish else {}),
        }
        chunk = {**_head(call, "chat.completion.chunk"), "choices": [choice]}
        return chunk | {"usage": usage} if provider.usage_in_stream == "every" else chunk


def _head(call: Call, kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": CREATED, "model": call.model}


def _first(provider: Provider, call: Call) -> list[dict[str, Any]]:
    """Chunks before the first word: Azure tells of its filter in one without choices."""
    found = provider.extra(call).get("prompt_filter_results")
    first: list[dict[str, Any]] = []
    if found:
        first.append(
            {"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": found}
        )
    choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    return [*first, {**_head(call, "chat.completion.chunk"), "choices": [choice]}]


def _message(said: Said, form: Form) -> dict[str, Any]:
    """The message of a whole reply, with what was thought where the provider puts it."""
    thought = said.thought
    if not thought or not form:
        return {"content": said.text}
    match form:
        case "details":
            return {"content": said.text, "reasoning": thought, "reasoning_details": [_detail(thought)]}
        case "parts":
            return {"content": [_part(thought), {"type": "text", "text": said.text}]}
        case "tags":
            return {"content": f"<think>\n{thought}\n</think>\n\n{said.text}"}
        case "lone":
            return {"content": f"{thought}\n</think>\n\n{said.text}"}
        case "thought_tags":
            return {
                "content": f"<thought>\n{thought}\n</thought>\n{said.text}",
                "extra_content": {"google": {"thought": True}},
            }
        case _:
            return {"content": said.text, form: thought}


def _detail(thought: str) -> dict[str, Any]:
    return {"type": "reasoning.text", "text": thought, "format": "unknown", "index": 0}


def _part(thought: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": [{"type": "text", "text": thought}], "closed": True}


def _deltas(said: Said, form: Form) -> Iterator[dict[str, Any]]:
    thought, text = said.thought if form else "", said.text
    if form in ("tags", "lone"):
        text = str(_message(said, form)["content"])
    elif form == "thought_tags" and thought:
        marked = {"extra_content": {"google": {"thought": True}}}
        yield from ({"content": piece, **marked} for piece in pieces(f"<thought>{thought}"))
        text = f"</thought>{text}"
    elif form == "details":
        yield from (
            {"content": "", "reasoning": one, "reasoning_details": [_detail(one)]} for one in pieces(thought)
        )
    elif form == "parts":
        yield from ({"content": [_part(one)]} for one in pieces(thought))
    elif form:
        yield from ({form: one} for one in pieces(thought))
    yield from ({"content": one} for one in pieces(text))
