"""OpenAI's Responses API: items in, items out, and a status instead of a finish reason."""

from __future__ import annotations

from typing import Any

from tests.support.providers.completions import CREATED, event, pieces, text_of
from tests.support.providers.provider import Call, Provider
from tests.support.providers.words import REFUSAL, Count, Heard, Said, Turn

_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}


def summarizes(call: Call) -> bool:
    """Whether a summary of the thoughts is asked for."""
    return bool((call.body.get("reasoning") or {}).get("summary"))


def turns_of(body: dict[str, Any]) -> tuple[Turn, ...]:
    """The conversation; earlier reasoning items are no turns of it."""
    given = body["input"]
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    turns = [Turn(one["role"], text_of(one["content"])) for one in given if "role" in one]
    instructions = body.get("instructions")
    return (*((Turn("system", instructions),) if instructions else ()), *turns)


class Responses:
    """Reads and writes responses."""

    def heard(self, body: dict[str, Any]) -> Heard:
        return Heard(turns_of(body))

    def limit(self, body: dict[str, Any], names: tuple[str, ...]) -> int | None:
        return body.get("max_output_tokens")

    def choices(self, body: dict[str, Any]) -> int:
        return 1

    def usage(self, count: Count) -> dict[str, Any]:
        return {
            "input_tokens": count.prompt,
            "input_tokens_details": {"cached_tokens": count.cached, "cache_write_tokens": count.written},
            "output_tokens": count.completion,
            "output_tokens_details": {"reasoning_tokens": count.thought},
            "total_tokens": count.prompt + count.completion,
        }

    def whole(self, provider: Provider, call: Call, said: tuple[Said, ...], count: Count) -> Any:
        one = said[0]
        reason = _REASONS.get(one.finish)
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": CREATED,
            "status": "incomplete" if reason else "completed",
            "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
            "model": call.model,
            "output": _items(one, call),
            "store": call.body.get("store", True),
            "usage": self.usage(count),
        }

    def spoil(self, provider: Provider, reply: Any, kind: str) -> Any:
        match kind:
            case "refused":
                reply["output"][-1]["content"] = [{"type": "refusal", "refusal": REFUSAL}]
            case "error_in_200":
                reply |= {"status": "failed", "output": [], "usage": None}
                reply["error"] = {
                    "code": "server_error",
                    "message": "The model failed to generate a response.",
                }
            case _:
                pass
        return reply

    def events(
        self, provider: Provider, call: Call, said: tuple[Said, ...], count: Count, kind: str
    ) -> list[bytes]:
        whole = self.whole(provider, call, said, count)
        begun = whole | {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
        found: list[tuple[str, dict[str, Any]]] = [
            ("response.created", {"response": begun}),
            ("response.in_progress", {"response": begun}),
        ]
        for index, item in enumerate(whole["output"]):
            at = {"item_id": item["id"], "output_index": index}
            empty = item | {"summary" if item["type"] == "reasoning" else "content": []}
            found.append(("response.output_item.added", {"output_index": index, "item": empty}))
            if item["type"] == "reasoning":
                name, texts = "response.reasoning_summary_text.delta", item["summary"]
                place = {"summary_index": 0}
            else:
                name, texts = "response.output_text.delta", item["content"]
                place = {"content_index": 0}
                found.append(
                    (
                        "response.content_part.added",
                        at | place | {"part": {"type": "output_text", "text": ""}},
                    )
                )
            for part in texts:
                found += [(name, at | place | {"delta": piece}) for piece in pieces(part["text"])]
                if kind == "error_in_stream" and item["type"] == "message":
                    error = {"code": "server_error", "message": "The server had an error."}
                    failed = begun | {"status": "failed", "error": error}
                    return _numbered([*found, ("response.failed", {"response": failed})])
            found.append(("response.output_item.done", {"output_index": index, "item": item}))
        if kind == "hang_up":
            return _numbered(found)
        return _numbered([*found, (f"response.{whole['status']}", {"response": whole})])


def _numbered(events: list[tuple[str, dict[str, Any]]]) -> list[bytes]:
    return [
        event({"type": name, "sequence_number": number, **fields}, name)
        for number, (name, fields) in enumerate(events)
    ]


def _items(said: Said, call: Call) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if said.thought_tokens:
        summary = [{"type": "summary_text", "text": said.thought}] if summarizes(call) else []
        item: dict[str, Any] = {"id": "rs_1", "type": "reasoning", "summary": summary}
        if "reasoning.encrypted_content" in (call.body.get("include") or ()):
            item["encrypted_content"] = "Z0FBQUFB"
        items.append(item)
    if said.text or said.finish == "stop":
        part = {"type": "output_text", "text": said.text, "annotations": [], "logprobs": []}
        status = "completed" if said.finish == "stop" else "incomplete"
        items.append(
            {"id": "msg_1", "type": "message", "role": "assistant", "status": status, "content": [part]}
        )
    return items
