"""Small runs against an endpoint that misbehaves (`tests.support.moody`), and what became of them."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from camel.library.run import Run
from tests.support.in_process import Done, camel
from tests.support.moody import Answer, Mood

COUNTS = {"assistant_role": 5, "user_role": 2, "task": 2}
CONVERSATIONS = 20


def written(
    folder: Path,
    urls: str | list[str],
    run: str = "",
    model: str = "simulated",
    calls: str = "",
    sizes: dict[str, int] = COUNTS,
) -> None:
    """Write the configuration of a run."""
    counts = ", ".join(f"{name} = {count}" for name, count in sizes.items())
    (folder / "config.toml").write_text(
        f'scenario = "ai_society"\nout = "run"\nlists = "asked"\nshard_size = 8\ncounts = {{ {counts} }}\n'
        f'[model]\nname = "{model}"\nbase_url = {json.dumps(urls)}\n{calls}\n[run]\nconcurrency = 8\n{run}\n'
    )


def generate(folder: Path, *options: str) -> Done:
    return camel("generate", "config.toml", *options, folder=folder, environment={"OPENAI_API_KEY": "sk-x"})


def is_agent(body: dict[str, Any]) -> bool:
    """Whether a request is of a conversation, not of a list or of the policy itself."""
    return len(body["messages"]) > 1


def exported(folder: Path) -> list[dict[str, Any]]:
    done = camel("export", "run", "messages", "out.jsonl", "--force", folder=folder)
    assert done.status == 0, done.stderr
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


def failures(folder: Path) -> Counter[str]:
    return Counter(
        one.stop.detail.partition(":")[0] for one in Run(folder / "run") if one.failed and one.stop
    )


NO_MODEL = Answer(
    404, {"error": {"message": "The model `simulated` does not exist", "code": "model_not_found"}}
)
NO_TEMPERATURE = Answer(400, {"error": {"message": "Unsupported value: 'temperature' does not support 0.2"}})
REVOKED = Answer(401, {"error": {"message": "Incorrect API key provided"}})
NO_CREDIT = Answer(402, {"error": {"message": "insufficient balance"}})
MODERATED = Answer(
    403, {"error": {"code": 403, "message": "Your input was flagged", "metadata": {"reasons": ["violence"]}}}
)
TOO_LONG = Answer(400, {"error": {"message": "prompt is too long", "code": "context_length_exceeded"}})
ODD = Answer(400, {"error": {"message": "cannot process this"}})
UNAVAILABLE = Answer(503, "busy")


def refusing_conversations(count: int, answer: Answer = MODERATED) -> Mood:
    """Refuse the conversations of the first `count` prompts that come, in whatever order."""
    refused: set[str] = set()

    def mood(body: dict[str, Any], number: int) -> Answer | None:
        if not is_agent(body):
            return None
        key = body["messages"][0]["content"].partition("\n")[0]
        if len(refused) < count:
            refused.add(key)
        return answer if key in refused else None

    return mood


def refusing_one_list() -> Mood:
    """Refuse the first list of tasks that is asked for, whenever it is asked for."""
    refused: list[str] = []

    def mood(body: dict[str, Any], number: int) -> Answer | None:
        asked = body["messages"][0]["content"]
        if "tasks" in asked and not is_agent(body) and (not refused or asked in refused):
            refused.append(asked)
            return MODERATED
        return None

    return mood


def out_for(
    seconds: float,
    *,
    after: int,
    says: Answer | Literal["hang up"] = UNAVAILABLE,
    clock: Callable[[], float] = time.monotonic,
) -> Mood:
    """Answer nobody for so long, from the request number `after` on."""
    begun: list[float] = []

    def mood(body: dict[str, Any], number: int) -> Answer | Literal["hang up"] | None:
        if number < after:
            return None
        begun.append(clock())
        return says if clock() - begun[0] < seconds else None

    return mood


def spoil(kind: str) -> Any:
    def change(reply: Any) -> Any:
        choice = reply["choices"][0]
        if kind == "empty":
            choice["message"]["content"] = ""
        else:
            choice["message"]["content"] = f"SPOILED {choice['message']['content'][:20]}"
            choice["finish_reason"] = {"cut": "length", "filtered": "content_filter"}[kind]
        return reply

    return change


def paid(folder: Path) -> int:
    """Calls, by the markers that count."""
    found = Run(folder / "run").folder
    stages = (*COUNTS, "conversations")
    return sum(
        int(marker.totals["calls"])
        for stage in stages
        for marker in found.markers(stage, found.committed(stage))
    )
