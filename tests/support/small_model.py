"""The small real model for tests: one server per test process, and settings that keep its replies short.

A token costs 15 to 50 ms of one core, read or written. Tests ask for few messages of few tokens; never for what they say.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import camel.scenarios
from camel import ChatModel
from camel.models.local import LocalServer, Running, running

SLOTS = 4
"""Calls that the shared server answers at the same time."""


@contextmanager
def shared() -> Generator[Running]:
    """The server: one thread, because more of them wait for each other where anything else runs."""
    with running(LocalServer(threads=1, parallel=SLOTS)) as server:
        yield server


def connect(server: Running) -> ChatModel:
    """A model of the server's, as `local_model` makes it."""
    return ChatModel(
        server.model,
        base_url=server.base_url,
        api_key="",
        context_tokens=server.context_tokens,
        max_choices=SLOTS,
        guided="llama.cpp",
    )


def shorten_scenario(name: str, folder: Path, messages: int) -> Path:
    """A copy of a shipped scenario whose conversations end after so many messages."""
    copy = folder / name
    shutil.copytree(Path(camel.scenarios.__file__).parent / name, copy)
    file = copy / "scenario.toml"
    file.write_text(
        re.sub(r"^\[role_play\]$", f"[role_play]\nmax_messages = {messages}", file.read_text(), flags=re.M)
    )
    return copy
