"""A run whose tool calls have effects elsewhere, killed over and over, with two servers as witnesses.

The endpoint and the server that counts effects are processes of their own. Each appends a line to its ledger before it
answers. `Campaign` starts `camel generate`, kills it, the counting server or a Ray worker, and compares the ledgers with
the journals and the records.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from camel.core.message import Action
from camel.engine.stage import read_step
from camel.library.run import Run
from camel.models.recorded import tool_seconds_in, uncounted_result
from camel.runs.run import RunFolder
from tests.support.forks import Program, wait_until

ROOT = Path(__file__).parents[2]
STAGE = "conversations"
CALLS = 4
"""Tool calls of each conversation."""
REQUESTS = 8
"""Model calls of each conversation."""
_NUMBER = re.compile(r"n=(\d+);")
_ID = re.compile(r'"id":\s*"([^"]+)"')
SCENARIO = """title = "Effects"
[[levels]]
name = "item"
file = "items.txt"
[role_play]
assistant = "Seller"
user = "Buyer"
task = "Sell <ITEM>"
specify = false
max_messages = 4
assistant_tools = ["{tool}"]
"""
CONFIG = """scenario = "effects"
out = "run"
shard_size = {shard}
[model]
name = "effects"
base_url = "{base_url}"
[tools]
allow = ["{tool}"]
form = "text"
[run]
concurrency = {concurrency}
"""


# --- the witnesses, as processes ---------------------------------------------------------------------------------


class Witness:
    """One of the two servers, and its ledger."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.ledger = kind, folder / f"{kind}.jsonl"
        self.ledger.touch()
        self._seen = self._lines = 0
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port = int(server.getsockname()[1])
        self.start()

    def start(self) -> None:
        program = Path(__file__).with_name("tool_witness.py")
        command = [sys.executable, "-I", str(program), self.kind, str(self.port), str(self.ledger)]
        self.process = subprocess.Popen(command)

        def there() -> bool:
            with socket.socket() as one:
                return one.connect_ex(("127.0.0.1", self.port)) == 0

        wait_until(there, f"the {self.kind}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.ledger.read_bytes().splitlines()]

    @property
    def lines(self) -> int:
        with self.ledger.open("rb") as file:
            file.seek(self._seen)
            new = file.read()
        self._seen, self._lines = self._seen + len(new), self._lines + new.count(b"\n")
        return self._lines


# --- the run -----------------------------------------------------------------------------------------------------


@dataclass
class Durable:
    """What was in journals and records at a death, and how long the ledgers were after that was read."""

    replies: set[int]
    calls: set[str]
    paid: int
    executed: int


@dataclass
class Account:
    """The calls of a finished run, one by one."""

    executed: Counter[str]
    """How often the counting server saw each call."""
    recorded: dict[str, Action]
    interrupted: list[str]
    """Calls in flight at a kill, named by failed conversations."""
    failed: Counter[str]
    again_after_result: list[str]
    """Calls that were executed although their result was durable."""
    paid_again: list[int]
    """Replies that were paid for although they were durable."""
    repeats: int
    """Requests that were sent again, because the reply was in flight at a kill."""
    conversations: int
    kills: Counter[str] = field(default_factory=Counter)


class Campaign:
    """One run in a folder, and its witnesses."""

    def __init__(
        self,
        folder: Path,
        conversations: int,
        *,
        concurrency: int = 16,
        seed: int = 0,
        tool: str = "tests.support.tills:act",
    ) -> None:
        self.folder, self.conversations, self.chance = folder, conversations, random.Random(seed)
        scenario = folder / "effects"
        scenario.mkdir(parents=True)
        (scenario / "scenario.toml").write_text(SCENARIO.format(tool=tool))
        (scenario / "items.txt").write_text("".join(f"{n + 1}. item {n:05d}\n" for n in range(conversations)))
        self.endpoint, self.counter = Witness("endpoint", folder), Witness("counter", folder)
        url = f"http://127.0.0.1:{self.endpoint.port}/v1"
        shard = max(4, conversations // 20)
        (folder / "camel.toml").write_text(
            CONFIG.format(base_url=url, concurrency=concurrency, shard=shard, tool=tool)
        )
        path = os.pathsep.join([str(folder), str(ROOT), *filter(None, sys.path)])
        self.environment = {
            "OPENAI_API_KEY": "none",
            "PYTHONPATH": path,
            "CAMEL_TEST_COUNTER": f"http://127.0.0.1:{self.counter.port}/act",
        }
        self.deaths: list[Durable] = []
        self.kills: Counter[str] = Counter()
        self._read: dict[int, tuple[set[int], set[str]]] = {}
        self._programs = contextlib.ExitStack()

    def __enter__(self) -> Campaign:
        return self

    def __exit__(self, *error: object) -> None:
        self._programs.close()
        self.endpoint.kill()
        self.counter.kill()

    def start(self, *more: str, **environment: str) -> Program:
        environment = {**self.environment, **environment}
        program = Program("generate", "camel.toml", *more, cwd=self.folder, env=environment)
        return self._programs.enter_context(program)

    def wait_for(self, program: Program, lines: int) -> bool:
        """Wait until the endpoint has answered so many requests. Return False if the run ends first."""
        while self.endpoint.lines < lines:
            if program.poll() is not None:
                return False
            time.sleep(0.005)
        time.sleep(self.chance.random() * 0.02)
        return True

    def suffer(self, kinds: Sequence[str], *, signals: signal.Signals = signal.SIGKILL) -> None:
        """Run with one blow of each kind, spread over the whole run, and then to its end."""
        program = self.start()
        for number, kind in enumerate(kinds):
            # Conversations that a kill interrupts are shorter, so the run has fewer requests than planned.
            done = 0.8 * (number + self.chance.random()) / (len(kinds) + 1)
            if not self.wait_for(program, int(done * self.conversations * REQUESTS)):
                assert program.returncode in (0, 4), program.out + program.err
                break
            self.kills[kind] += 1
            if kind == "counter":
                self.counter.kill()
                self.note()
                self.counter.start()
            else:
                program.send_signal(signals)
                program.wait()
                self.note()
                program = self.start()
        self.finish(program)

    def finish(self, program: Program) -> None:
        """Wait for the end of the run."""
        assert program.wait(1800) in (0, 4), program.out[-3000:] + program.err[-3000:]

    def note(self) -> None:
        """Read what is durable now."""
        run = RunFolder(self.folder / "run")
        replies, calls = set[int](), set[str]()
        if run.exists:
            for shard in run.committed(STAGE):
                if shard not in self._read:
                    self._read[shard] = _in_records(run, shard)
            for shard in run.journaled(STAGE):
                for entry in run.replay(STAGE, shard, lambda damage: None):
                    step = read_step(entry)
                    if step.begun:
                        continue
                    if tool_seconds_in(step.result) is not None:
                        calls.add(_id(msgspec.msgpack.decode(uncounted_result(step.result), type=Action)))
                    else:
                        replies |= {int(found) for found in re.findall(rb"n=(\d+);", step.result)}
            for some, others in self._read.values():
                replies |= some
                calls |= others
        self.deaths.append(Durable(replies, calls, self.endpoint.lines, self.counter.lines))

    def account(self) -> Account:
        """Compare the ledgers with the records."""
        paid, executed = self.endpoint.rows(), [row["id"] for row in self.counter.rows()]
        keys = {row["n"]: row["key"] for row in paid}
        paid_again, again = list[int](), list[str]()
        for death in self.deaths:
            durable = {keys[number] for number in death.replies}
            paid_again += [row["n"] for row in paid[death.paid :] if row["key"] in durable]
            again += [id for id in executed[death.executed :] if id in death.calls]
        recorded: dict[str, Action] = {}
        interrupted, failed, count = list[str](), Counter[str](), 0
        for one in Run(self.folder / "run"):
            count += 1
            for action in [
                *(action for message in one.messages for action in message.actions),
                *one.unspoken,
            ]:
                recorded[_id(action)] = action
            if one.failed and one.stop:
                failed[one.stop.detail.partition(":")[0]] += 1
                interrupted += _ID.findall(one.stop.detail)
        repeats = len(paid) - len(set(keys.values()))
        return Account(
            Counter(executed), recorded, interrupted, failed, again, paid_again, repeats, count, self.kills
        )


def _in_records(run: RunFolder, shard: int) -> tuple[set[int], set[str]]:
    from camel.generation.conversations import read_transcripts

    replies, calls = set[int](), set[str]()
    for one in read_transcripts(run, run.marker(STAGE, shard)):
        for message in one.messages:
            replies |= {int(found) for found in _NUMBER.findall(message.content)}
        for action in [*(action for message in one.messages for action in message.actions), *one.unspoken]:
            replies |= {int(found) for found in _NUMBER.findall(action.said)}
            calls.add(_id(action))
    return replies, calls


def _id(action: Action) -> str:
    return str(json.loads(action.arguments)["id"])
