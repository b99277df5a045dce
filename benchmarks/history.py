"""How much of each prompt an endpoint has read before, for each policy of a long history, and what summaries take.

    python -m benchmarks.history                  # 400 messages in a window of 8,000 tokens; half a minute
    python -m benchmarks.history --short          # 60 messages in 1,500

One role play per policy against the simulated endpoint. Prefix affinity is the share of prompt bytes that is also the
beginning of the previous prompt of the same seat: what a prefix cache can save. `full` ends at the window; `full, no
window` shows what it would be without one. Summaries are prompts of their own and share nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import NamedTuple

from camel import ChatModel, RolePlaying, Sampling
from camel.core.memory import HistoryPolicy
from camel.core.model import Reply, Request, WrappedModel
from camel.models.simulator import Simulator, SimulatorSettings


class Result(NamedTuple):
    """One conversation."""

    messages: int
    end: str
    calls: int
    tokens: int
    shared: float
    summaries: int
    forgot: int


class Sent(WrappedModel):
    """Adds up how many bytes of each prompt were in the one before it."""

    sent = shared = summaries = forgot = 0

    def __init__(self, model: ChatModel) -> None:
        super().__init__(model)
        self._last: dict[str, bytes] = {}

    async def reply(self, request: Request) -> Reply:
        body, last = bytes(request.history.encoded()), self._last.get(request.speaker, b"")
        self.sent += len(body)
        if request.speaker.endswith(" summary"):
            self.summaries += 1
        else:
            self.shared += _common(body, last)
            self.forgot += not body.startswith(last)
            self._last[request.speaker] = body
        return await self.inner.reply(request)


def _common(body: bytes, last: bytes) -> int:
    if body.startswith(last):
        return len(last)
    return next(n for n, (one, other) in enumerate(zip(body, last, strict=False)) if one != other)


async def measure(policy: HistoryPolicy, messages: int, window: int | None, words: int) -> Result:
    """Hold one conversation."""
    async with (
        Simulator(SimulatorSettings(words=words, length=None)) as endpoint,
        ChatModel("simulated", base_url=endpoint.base_url, api_key="", context_tokens=window) as chat,
    ):
        model = Sent(chat)
        transcript = await RolePlaying(
            "Plan a harvest",
            assistant="Gardener",
            user="Mayor",
            model=model,
            specify=False,
            sampling=Sampling(temperature=0.2, max_tokens=512 if messages > 100 else 150),
            max_messages=messages,
            history=policy,
            id="letters",
        ).finish()
        assert transcript.stop
        used = endpoint.ledger.counters
        return Result(
            len(transcript.messages),
            transcript.stop.reason,
            used.billed,
            used.prompt_tokens,
            model.shared / model.sent,
            model.summaries,
            model.forgot,
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true")
    args = parser.parse_args()
    messages, window, words = (60, 1_500, 30) if args.short else (400, 8_000, 160)
    print(
        "| history | messages | ended | calls | prompt tokens | prefix affinity | summaries | times forgotten |"
    )
    print("|---|---|---|---|---|---|---|---|")
    ways: dict[str, tuple[HistoryPolicy, int | None]] = {
        "full": ("full", window),
        "full, no window": ("full", None),
        "window": ("window", window),
        "summarize": ("summarize", window),
    }
    found: dict[str, Result] = {}
    for name, (policy, most) in ways.items():
        one = found[name] = asyncio.run(measure(policy, messages, most, words))
        print(
            f"| {name} | {one.messages} | {one.end} | {one.calls} | {one.tokens:,} | {one.shared:.1%} | "
            f"{one.summaries} | {one.forgot} |"
        )
    return 0 if all(found[name].messages == messages for name in ("window", "summarize")) else 1


if __name__ == "__main__":
    sys.exit(main())
