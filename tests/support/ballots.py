"""Pairs to vote on, and `camel vote` as a user starts it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

from camel.evaluation.pairs import Pair, write_pairs
from camel.models.simulator import Facts

SYSTEMS = ("Zebulon-Society-9000", "Quux-Single-Shot-7B")
"""Names that must be in no page."""
FORM = re.compile(r'name="(token|nonce|replaces)" value="([^"]*)"')


def pairs(count: int, labels: dict[int, str] | None = None, texts: Any = None) -> list[Pair]:
    made: list[Pair] = []
    for n in range(count):
        one, other = texts[n] if texts else (f"The **first** answer to {n}.", f"The *second* answer to {n}.")
        made.append(
            Pair(
                f"{SYSTEMS[0]}/{SYSTEMS[1]}/{n}",
                f"Task number {n}: cross the desert",
                SYSTEMS[0],
                one,
                SYSTEMS[1],
                other,
                labels=((labels or {})[n],) if n in (labels or {}) else (),
                group=f"group of {SYSTEMS[0]}",
                source=f"run of {SYSTEMS[0]}",
            )
        )
    return made


def author(facts: Facts) -> str:
    """An endpoint that summarizes, solves alone and judges, the same in either order."""
    asked = facts.messages[0].text
    if not asked.startswith("You are an impartial judge"):
        return (
            f"{'Together' if asked.startswith('Two agents') else 'Alone'}: {zlib.crc32(asked.encode()):08x}"
        )
    found = re.search(r"Together: (\w+)", asked)
    assert found
    first = asked.index("> Together") < asked.index("> Alone")
    better = int(found[1], 16) % 3
    better = better if first or not better else 3 - better
    return json.dumps({"reason": "x", "scores": [[6, 6], [8, 5], [5, 8]][better], "better": better})


def hidden_fields(page: str) -> dict[str, str]:
    """What the last form of a page sends by itself."""
    return dict(FORM.findall(page.rpartition("<form")[2]))


class Server:
    """`camel vote` in a process of its own."""

    def __init__(self, folder: Path, *options: str, port: int = 0) -> None:
        command = [
            sys.executable,
            "-m",
            "camel",
            "vote",
            str(folder),
            "--no-open",
            "--no-token",
            "--port",
            str(port),
            *options,
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout
        line = self.process.stdout.readline()
        found = re.search(r"at (http\S+)", line)
        if not found:
            self.stop()
            raise AssertionError(line)
        self.link = found[1]
        self.url = re.sub(r"/(join.*)?$", "", self.link)

    def kill(self) -> None:
        self.process.kill()
        self._end()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self._end()

    def _end(self) -> None:
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream:
                stream.close()


def folder_of(root: Path, made: list[Pair]) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    write_pairs(root, made)
    return root
