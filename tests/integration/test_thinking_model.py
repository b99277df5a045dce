"""A real model that really thinks: its thoughts are recorded, and nobody hears them."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from camel import ChatModel, RolePlaying, Run, Sampling
from camel.core.grammar import parse
from camel.core.model import Event, Text
from camel.models.local import find_model
from tests.support.in_process import camel
from tests.support.thinking_model import GRAMMARS, MARKER

pytestmark = [
    pytest.mark.real_model,
    pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="needs the extra 'local'"),
]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", params=["template", "plain"])
def thinker(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server whose thoughts come in a field of their own, or within the text."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [str(port), str(find_model(lambda text: None)), request.param]
    command = [sys.executable, "-m", "tests.support.thinking_model", *words]
    silent = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=ROOT, stdout=silent, stderr=silent, env={**os.environ}) as server:
        try:
            deadline = time.monotonic() + 120
            while True:
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                    break
                except (urllib.error.URLError, OSError):
                    assert server.poll() is None
                    assert time.monotonic() < deadline, "the server does not answer"
                    time.sleep(0.2)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.kill()


def check(messages: list[tuple[str, str]]) -> None:
    assert len(messages) == 2
    for content, thought in messages:
        assert thought.startswith(MARKER)
        assert "think>" not in content + thought
        assert MARKER not in content
        assert parse(content).instruction or parse(content).solution


def test_a_run_of_a_model_that_thinks(thinker: str, tmp_path: Path):
    seats = "".join(
        f"[models.{seat}]\nsampling = {{ temperature = 0.8, max_tokens = 200, extra = {{ grammar = {json.dumps(text)} }} }}\n"
        for seat, text in GRAMMARS.items()
    )
    (tmp_path / "kitchen").mkdir()
    (tmp_path / "kitchen" / "scenario.toml").write_text(
        'title = "Kitchen"\n[[levels]]\nname = "dish"\nitems = ["Soup"]\n[role_play]\nassistant = "Chef"\n'
        'user = "Guest"\ntask = "Prepare <DISH>"\nspecify = false\nmax_messages = 2\n'
    )
    (tmp_path / "camel.toml").write_text(
        f'scenario = "kitchen"\nout = "run"\n[model]\nname = "thinker"\nbase_url = "{thinker}"\n'
        f"context_tokens = 2048\n{seats}[run]\nconcurrency = 2\n"
    )
    done = camel("generate", folder=tmp_path)
    assert done.status == 0, done.stdout + done.stderr
    run = Run(tmp_path / "run")
    assert len(run) == 1
    for transcript in run:
        check([(one.content, one.reasoning) for one in transcript.messages])
        for message in transcript.messages:
            sent = "".join(entry["content"] for entry in transcript.prompt_of(message.index))
            assert MARKER not in sent


async def test_thoughts_are_not_streamed_as_speech(thinker: str):
    pieces: list[Event] = []
    async with ChatModel("thinker", base_url=thinker, api_key="", context_tokens=2048) as model:
        play = RolePlaying(
            "Prepare soup",
            assistant="Chef",
            user="Guest",
            model=model,
            specify=False,
            max_messages=2,
            sampling=Sampling(temperature=0.8, max_tokens=200, extra={"grammar": GRAMMARS["assistant"]}),
            user_sampling=Sampling(temperature=0.8, max_tokens=200, extra={"grammar": GRAMMARS["user"]}),
            watch=pieces.append,
        )
        messages = [(one.content, one.reasoning) async for one in play]
    check(messages)
    shown = "".join(piece.text for piece in pieces if isinstance(piece, Text))
    assert "".join(shown.split()) == "".join("".join(content.split()) for content, _ in messages)
