"""A run that is killed or finds its disk full, over and over, and the endpoint's ledger as the witness.

`Crashes` starts the generator as a process (`python -m tests.support.crashes CONFIG.json`), kills it, and accounts for
every call after each death: durable (in a journal, or in a committed shard) or in flight.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import hashlib
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from camel import ChatModel
from camel.core.errors import CamelError
from camel.formats import exporters
from camel.generation.config import GenerateConfig, RunSection
from camel.library.run import Run
from camel.models.simulator import LedgerRow, SimulatorProcess
from camel.models.spec import ModelSpec
from camel.runs.run import RunFolder
from camel.scenarios import Scenario
from camel.storage import journal
from camel.storage.journal import Journal
from tests.support.jobs import generation

ROOT = Path(__file__).parents[2]
CONCURRENCY = 64
STORAGE_FAILED = 4
"""Exit status of a generator that could not write."""


# --- the generator, as a process ---------------------------------------------------------------------------------


def _child(path: Path, strike: str) -> int:
    """Generate; `strike` is what befalls this process at which of its system calls, e.g. `full:17`."""
    config = msgspec.json.decode(path.read_bytes(), type=GenerateConfig)
    if strike:
        kind, _, at = strike.partition(":")
        _Strike(kind, int(at)).install()
    try:
        return asyncio.run(_generate(config))
    except CamelError as error:
        print(error, file=sys.stderr)
        return STORAGE_FAILED


async def _generate(config: GenerateConfig) -> int:
    async with ChatModel(config.model.name, base_url=config.model.base_url, api_key="") as model:
        outcome = await generation(config, model).run()
    return 0 if outcome.complete else 3


_STRUCK = {"full": ("write", "fdatasync", "fsync", "link"), "commit": ("fsync", "link", "unlink")}


class _Strike:
    """Kills this process, or fills its disk, at the n-th of the system calls by which things are made durable."""

    def __init__(self, kind: str, at: int) -> None:
        self.kind, self.left = kind, at
        self.begun = False
        """Counts only once there is something to lose: a reply on its way to the journal, or a shard being committed."""

    def install(self) -> None:
        begin = {"full": (Journal, "append"), "commit": (RunFolder, "data_path")}
        owner, name = begin[self.kind]
        real = getattr(owner, name)

        def noted(*args: Any, **kwargs: Any) -> Any:
            self.begun = True
            return real(*args, **kwargs)

        setattr(owner, name, noted)
        for name in _STRUCK[self.kind]:
            setattr(os, name, self._wrapped(name, getattr(os, name)))

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.left -= self.begun
            if self.left < 0:
                if self.kind == "commit":
                    os.kill(os.getpid(), signal.SIGKILL)
                if name == "write" and self.left == -1:  # the last block still has room for half of it
                    return real(args[0], memoryview(args[1])[: max(1, len(args[1]) // 2)])
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*args, **kwargs)

        return call


# --- the deaths --------------------------------------------------------------------------------------------------

Call = tuple[str, int]
"""A session (an item) and the number of a call in it."""


class Death(NamedTuple):
    """How a start of the generator ended."""

    kind: str
    sent: int
    """Calls that it sent and that were billed."""
    in_flight: int
    """Those of them that are not durable."""
    resent_durable: int
    """Those of them that were durable when it started: must be none."""


@dataclass
class Witness:
    """The endpoint's ledger, read as it grows."""

    path: Path
    endpoint: SimulatorProcess
    calls: dict[str, Call] = field(default_factory=dict)
    """From a body's hash to the call, learnt from the undisturbed run."""
    lengths: Counter[str] = field(default_factory=Counter)
    """Calls of each session."""
    _read: int = 0

    def rows(self) -> list[LedgerRow]:
        """What was asked since the last look, once the endpoint has noticed that nobody is there any more."""
        quiet, before = 0, -1
        while quiet < 3:
            counters = self.endpoint.ledger()
            quiet = quiet + 1 if counters.in_flight == 0 and counters.requests == before else 0
            before = counters.requests
            time.sleep(0.005)
        self.endpoint.flush()
        with self.path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        self._read += len(data)
        return msgspec.json.Decoder(LedgerRow).decode_lines(data)

    def new_rows(self) -> list[LedgerRow]:
        """What was billed since the last look."""
        return [row for row in self.rows() if row.billed]

    def learn(self, rows: list[LedgerRow] | None = None) -> None:
        """Number the calls of each session, from a run in which each was sent once."""
        for row in sorted(self.new_rows() if rows is None else rows, key=lambda row: row.seq):
            assert row.hash not in self.calls, "two calls of the undisturbed run have the same body"
            self.calls[row.hash] = row.session, self.lengths[row.session]
            self.lengths[row.session] += 1

    def forget(self) -> None:
        """Reset the counts, for another run of the same calls."""
        self.endpoint.reset()
        self._read = 0


class Crashes:
    """A run that is killed over and over."""

    def __init__(self, config: GenerateConfig, witness: Witness, chance: random.Random) -> None:
        self.config, self.witness, self.chance = config, witness, chance
        self.file = Path(f"{config.out}.json")
        self.file.write_bytes(msgspec.json.encode(config))
        self.scenario = config.loaded_scenario()
        self.deaths: list[Death] = []
        self.sent: Counter[Call] = Counter()
        self.durable: set[Call] = set()

    def start(self, strike: str = "") -> subprocess.Popen[bytes]:
        """Start or resume: it is the same command."""
        command = [sys.executable, "-m", "tests.support.crashes", str(self.file)]
        if strike:
            command += ["--strike", strike]
        return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)

    def suffer(self, kinds: list[str]) -> None:
        """Let the run meet each of `kinds`, spread over its whole length."""
        total = sum(self.witness.lengths.values())
        for number, kind in enumerate(kinds):
            share = 2 * (total - len(self.durable)) / (len(kinds) - number + 1)
            if kind == "kill":
                child = self.start()
                self._kill(child, self.chance.randint(0, max(1, int(share))))
            else:
                child = self.start(f"{kind}:{self.chance.randint(0, 100 if kind == 'full' else 10)}")
            _, errors = child.communicate()
            expected = STORAGE_FAILED if kind == "full" else -signal.SIGKILL
            if child.returncode not in (expected, 0) or (kind == "full" and errors.count(b"\n") > 1):
                raise AssertionError(f"{kind}: status {child.returncode}\n{errors.decode()}")
            self._account(kind if child.returncode else "complete")
            if child.returncode == 0:
                return

    def run_undisturbed(self) -> None:
        """Run from the beginning to the end."""
        child = self.start()
        _, errors = child.communicate()
        if child.returncode or errors:
            raise AssertionError(f"the undisturbed run: status {child.returncode}\n{errors.decode()}")

    def finish(self) -> None:
        """Resume, and run to the end."""
        child = self.start()
        _, errors = child.communicate()
        if child.returncode:
            raise AssertionError(f"status {child.returncode}\n{errors.decode()}")
        self._account("complete")

    def _kill(self, child: subprocess.Popen[bytes], calls: int) -> None:
        """Kill it once it has sent about so many calls; before the first, at a random moment of its start."""
        if calls == 0:
            time.sleep(self.chance.uniform(0, 1.0))
        end = self.witness.endpoint.ledger().requests + calls
        while child.poll() is None and self.witness.endpoint.ledger().requests < end:
            time.sleep(0.002)
        time.sleep(self.chance.uniform(0, 0.02))
        child.kill()

    def _account(self, kind: str) -> None:
        """Look at what is durable and what was sent."""
        sent = [self.witness.calls[row.hash] for row in self.witness.new_rows()]
        resent = sum(call in self.durable for call in sent)
        self.durable = self._durable()
        in_flight = sum(call not in self.durable for call in sent)
        self.deaths.append(Death(kind, len(sent), in_flight, resent))
        self.sent.update(sent)

    def _durable(self) -> set[Call]:
        """Every call that is in a journal or whose shard is committed."""
        root, found = Path(self.config.out), set[Call]()
        if not (root / "run.json").exists():
            return found
        for name, count, size in self.stages():
            for path in (root / "journal" / name).glob("*-*"):
                # One that vanishes meanwhile has its marker, which is read afterwards.
                with contextlib.suppress(FileNotFoundError):
                    entries: Iterator[Any] = map(msgspec.msgpack.decode, journal.read(path))
                    found |= {(session_of(self.scenario, name, entry[0]), entry[1]) for entry in entries}
            for marker in (root / "committed" / name).glob("[0-9]*.json"):
                start = int(marker.stem) * size
                for index in range(start, min(count, start + size)):
                    session = session_of(self.scenario, name, index)
                    found |= {(session, call) for call in range(self.witness.lengths[session])}
        return found

    def stages(self) -> list[tuple[str, int, int]]:
        lists = [(level.name, self.scenario.lists(level.name), 256) for level in self.scenario.asked]
        return [*lists, ("conversations", self.scenario.count, self.config.shard_size)]


def session_of(scenario: Scenario, stage: str, index: int) -> str:
    """What an item's calls have in common in the endpoint's ledger."""
    return scenario.id(index) if stage == "conversations" else f"{stage}-{index}"


def config_of(out: Path, url: str, conversations: int) -> GenerateConfig:
    """A run of so many conversations, in about a hundred shards."""
    tasks = next(n for n in range(10, 0, -1) if conversations % n == 0)
    pairs = conversations // tasks
    users = next(n for n in range(math.isqrt(pairs), 0, -1) if pairs % n == 0)
    return GenerateConfig(
        scenario="ai_society",
        model=ModelSpec("simulated", base_url=url),
        out=str(out),
        counts={"assistant_role": pairs // users, "user_role": users, "task": tasks},
        lists="asked",
        shard_size=max(4, conversations // 100),
        run=RunSection(concurrency=min(CONCURRENCY, max(8, conversations // 5))),
    )


class Export(NamedTuple):
    """A run as its readers get it."""

    sha256: str
    ids: Counter[str]


def exported(root: Path, where: str = "") -> Export:
    """Export the run at `root`, or elsewhere, to a file next to `root`."""
    run = Run(where or root)
    path = Path(f"{root}.jsonl")
    exporters.chat(run, path)
    rows = map(json.loads, path.read_text("utf-8").splitlines())
    return Export(hashlib.sha256(path.read_bytes()).hexdigest(), Counter(row["id"] for row in rows))


def as_toml(config: GenerateConfig) -> str:
    """A configuration as its file; JSON's strings, numbers and lists are TOML's too."""
    fields: dict[str, Any] = msgspec.to_builtins(config)
    plain = {name: value for name, value in fields.items() if not isinstance(value, dict)}
    lines = [f"{name} = {msgspec.json.encode(value).decode()}" for name, value in plain.items()]
    for name, table in fields.items():
        if isinstance(table, dict):
            lines += [f"[{name}]"]
            lines += [f"{key} = {msgspec.json.encode(value).decode()}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Generate; what a killed run's driver starts.")
    parser.add_argument("config", type=Path)
    parser.add_argument("--strike", default="", help="what happens at which system call, e.g. full:17")
    args = parser.parse_args()
    return _child(args.config, args.strike)


if __name__ == "__main__":
    sys.exit(main())
