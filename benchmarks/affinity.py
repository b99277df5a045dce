"""What keeping a conversation on one replica saves, with real llama.cpp servers and the small real model.

    python -m benchmarks.affinity                 # 2 servers, 12 conversations of 8 messages; a few minutes
    python -m benchmarks.affinity --short         # 3 conversations of 4 messages, for CI

The same role plays (greedy, so that the text is the same) are held twice, with fresh servers each time: through the pool,
which keeps a conversation on its replica, and round-robin, call by call, as a plain load balancer would. Each server has one
thread, a few slots and no other prompt cache. The witness is the servers' own count of prompt tokens they really computed
(`/metrics`); the minimum is every token of every conversation once for each of its two agents: an agent's last prompt
without what it wrote itself, which is in the cache since it was written.

Both agents of a conversation have prompts of their own, so that a conversation needs two slots to stay warm: a server with
four is given two conversations at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import re
import sys
import time
import urllib.request
from collections import defaultdict
from dataclasses import dataclass

from benchmarks import recorded
from camel import ChatModel, MaxMessages, RolePlaying, Sampling
from camel.core.model import Model, Reply, Request
from camel.models.local import ALIAS, LocalServer, running
from camel.models.replica import PoolSettings

GOAL = 1.1
MOST_SHORT = 1.25
SLOTS = 4
ROLES = [
    ("Python Programmer", "Stock Trader", "Write a bot that buys low and sells high"),
    ("Chemist", "Farmer", "Find out why the soil of the north field is sour"),
    ("Travel Agent", "Retired Teacher", "Plan a week in the mountains by train"),
    ("Accountant", "Baker", "Set a price for bread that pays the rent"),
    ("Doctor", "Marathon Runner", "Plan the month before the race"),
    ("Architect", "Librarian", "Make a reading room out of an old stable"),
]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--conversations", type=int, default=0)
    parser.add_argument("--messages", type=int, default=0)
    recorded.option(parser)
    args = parser.parse_args()
    conversations = args.conversations or (3 if args.short else 12)
    messages = args.messages or (4 if args.short else 8)
    print(f"{args.servers} servers of {SLOTS} slots, {conversations} conversations of {messages} messages\n")
    print(
        "| | prompt tokens sent | computed, by the servers | x minimum | cached, by replies | conversations/s |"
    )
    print("|---|---|---|---|---|---|")
    results: dict[str, Result] = {}
    for way in ("affinity", "round-robin"):
        result = results[way] = measure(way, args.servers, conversations, messages)
        print(
            f"| {way} | {result.sent:,} | {result.computed:,} | {result.computed / result.least:.2f} | "
            f"{result.cached / result.sent:.0%} | {conversations / result.seconds:.3f} |",
            flush=True,
        )
    kept, spread = results["affinity"], results["round-robin"]
    ratio = kept.computed / kept.least
    print(f"\nthe minimum is {kept.least:,} tokens; with affinity {ratio:.2f} of it (goal {GOAL})")
    print(
        f"round-robin computes {spread.computed / kept.computed:.1f} times as much and takes {spread.seconds / kept.seconds:.1f} times as long"
    )
    if args.record:
        recorded.record("affinity", {"affinity": ratio, "round_robin": spread.computed / spread.least})
    return 0 if ratio <= (MOST_SHORT if args.short else GOAL) else 1


@dataclass
class Result:
    sent: int
    cached: int
    computed: int
    least: int
    seconds: float


class _RoundRobin(Model):
    """Each call to the next server, whatever it belongs to."""

    def __init__(self, models: list[ChatModel]) -> None:
        self._models = itertools.cycle(models)

    async def reply(self, request: Request) -> Reply:
        return await next(self._models).reply(request)


class _Counted(Model):
    """Adds up what was sent, and what would have been enough."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.sent = self.cached = 0
        self._last: dict[tuple[str, str], int] = {}
        self._own: dict[tuple[str, str], int] = defaultdict(int)

    async def reply(self, request: Request) -> Reply:
        reply = await self._model.reply(request)
        seat = request.session, request.speaker
        self.sent += reply.usage.prompt
        self.cached += reply.usage.cached
        # Without its last completion, which is in no prompt yet.
        self._last[seat] = reply.usage.prompt - self._own[seat]
        self._own[seat] += reply.usage.completion
        return reply

    @property
    def least(self) -> int:
        return sum(self._last.values())


def measure(way: str, servers: int, conversations: int, messages: int) -> Result:
    """Hold the conversations one way, on fresh servers."""
    settings = LocalServer(threads=1, parallel=SLOTS, context_tokens=2048, cache_mib=0, slot_similarity=0.5)
    with contextlib.ExitStack() as stack:
        urls = [stack.enter_context(running(settings)).base_url for _ in range(servers)]
        counted, seconds = asyncio.run(_talk(way, urls, conversations, messages))
        return Result(counted.sent, counted.cached, sum(map(_computed, urls)), counted.least, seconds)


async def _talk(way: str, urls: list[str], conversations: int, messages: int) -> tuple[_Counted, float]:
    options = {"api_key": "", "context_tokens": 2048, "guided": "llama.cpp", "deadline": 1_800.0}
    pool = PoolSettings(open_per_replica=SLOTS // 2, load=1.0)
    async with contextlib.AsyncExitStack() as stack:
        if way == "affinity":
            chat = await stack.enter_async_context(ChatModel(ALIAS, base_url=urls, pool=pool, **options))
            counted = _Counted(chat)
        else:
            models = [
                await stack.enter_async_context(ChatModel(ALIAS, base_url=url, **options)) for url in urls
            ]
            chat, counted = None, _Counted(_RoundRobin(models))
        window = asyncio.Semaphore(len(urls) * SLOTS // 2)

        async def converse(number: int) -> None:
            assistant, user, task = ROLES[number % len(ROLES)]
            async with window:
                name = f"conversation-{number}"
                await RolePlaying(
                    assistant=assistant,
                    user=user,
                    task=f"{task}, version {number}",
                    model=counted,
                    sampling=Sampling(temperature=0, max_tokens=24),
                    specifier=None,
                    rules=[MaxMessages(messages)],
                    id=name,
                ).finish()
                if chat:
                    chat.release(name)

        started = time.monotonic()
        await asyncio.gather(*(converse(number) for number in range(conversations)))
        return counted, time.monotonic() - started


def _computed(base_url: str) -> int:
    """Prompt tokens that a server has processed, by its own account."""
    with urllib.request.urlopen(base_url.removesuffix("/v1") + "/metrics") as reply:
        found = re.search(r"^llamacpp:prompt_tokens_total (\S+)", reply.read().decode(), re.MULTILINE)
    assert found
    return int(float(found[1]))


if __name__ == "__main__":
    sys.exit(main())
