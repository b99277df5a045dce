"""Anthropic's Messages API: blocks of content, a system prompt of its own, and usage that counts the cache apart."""

from __future__ import annotations

from typing import Any

from tests.support.providers.completions import event, pieces, text_of
from tests.support.providers.provider import Call, Provider
from tests.support.providers.words import Count, Heard, Said, Turn

SIGNATURE = "c2lnbmF0dXJlLW9mLWEtdGhvdWdodA=="
_FINISH = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}


def shows(call: Call) -> bool:
    """Whether thoughts come as text: what newer models do only where it is asked for."""
    thinking = call.body.get("thinking") or {}
    default = "omitted" if generation(call.model) >= (4, 7) else "summarized"
    return thinking.get("display", default) == "summarized"


def generation(model: str) -> tuple[int, int]:
    """`claude-opus-5-5` is (5, 5), `claude-sonnet-4-5-20250929` (4, 5)."""
    numbers = [int(part) for part in model.split("-") if part.isdigit() and len(part) < 3]
    return (*numbers, 0, 0)[:2]  # type: ignore[return-value]


class Messages:
    """Reads and writes messages."""

    def heard(self, body: dict[str, Any]) -> Heard:
        system = text_of(body.get("system"))
        first = (Turn("system", system),) if system else ()
        return Heard((*first, *(Turn(one["role"], text_of(one["content"])) for one in body["messages"])))

    def limit(self, body: dict[str, Any], names: tuple[str, ...]) -> int | None:
        return body.get("max_tokens")

    def choices(self, body: dict[str, Any]) -> int:
        return 1

    def usage(self, count: Count) -> dict[str, Any]:
        return {
            "input_tokens": count.prompt - count.cached - count.written,
            "cache_creation_input_tokens": count.written,
            "cache_read_input_tokens": count.cached,
            "output_tokens": count.completion,
            "output_tokens_details": {"thinking_tokens": count.thought},
            "service_tier": "standard",
        }

    def whole(self, provider: Provider, call: Call, said: tuple[Said, ...], count: Count) -> Any:
        return {
            **_head(call),
            "content": _blocks(said[0], shows(call)),
            "stop_reason": _FINISH[said[0].finish],
            "stop_sequence": None,
            "usage": self.usage(count),
        }

    def spoil(self, provider: Provider, reply: Any, kind: str) -> Any:
        match kind:
            case "empty":
                reply["content"] = []
            case "filtered":
                reply["stop_details"] = {"type": "refusal", "category": "cyber"}
            case "redacted":
                reply["content"].insert(0, {"type": "redacted_thinking", "data": "ZW5jcnlwdGVk"})
            case "window":
                reply["stop_reason"] = "model_context_window_exceeded"
            case "no_choices":
                del reply["content"]
            case _:
                pass
        return reply

    def events(
        self, provider: Provider, call: Call, said: tuple[Said, ...], count: Count, kind: str
    ) -> list[bytes]:
        one, usage = said[0], self.usage(count)
        start = {**_head(call), "content": [], "stop_reason": None, "stop_sequence": None}
        found = [
            _event("message_start", message=start | {"usage": usage | {"output_tokens": 1}}),
            _event("ping"),
        ]
        for index, block in enumerate(_blocks(one, shows(call))):
            kind_of = block["type"]
            empty = {"type": kind_of, kind_of: "", **({"signature": ""} if kind_of == "thinking" else {})}
            found.append(_event("content_block_start", index=index, content_block=empty))
            for piece in pieces(block[kind_of]):
                delta = {"type": f"{kind_of}_delta", kind_of: piece}
                found.append(_event("content_block_delta", index=index, delta=delta))
                if kind == "error_in_stream" and kind_of == "text":
                    error = provider.errors["overload"].body
                    return [*found, event(error, "error")]
            if kind_of == "thinking":
                signed = {"type": "signature_delta", "signature": SIGNATURE}
                found.append(_event("content_block_delta", index=index, delta=signed))
            found.append(_event("content_block_stop", index=index))
        if kind == "hang_up":
            return found
        end = {"stop_reason": _FINISH[one.finish], "stop_sequence": None}
        return [*found, _event("message_delta", delta=end, usage=usage), _event("message_stop")]


def _head(call: Call) -> dict[str, Any]:
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": call.model}


def _event(name: str, **fields: Any) -> bytes:
    return event({"type": name, **fields}, name)


def _blocks(said: Said, shown: bool) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if said.thought:
        blocks.append({"type": "thinking", "thinking": said.thought if shown else "", "signature": SIGNATURE})
    if said.text:
        blocks.append({"type": "text", "text": said.text})
    return blocks
