"""Forks of conversations: the command line of a fork, its process, and the branches that the opened runs have.

The one decision to know: a fork is `camel fork` in a process of its own, with the command line that the page shows. The agents
app starts it with its own model and the rest of its budget, because neither a browser nor a record may name a program to run.
Other explorers have no model and no budget, so they only show the command.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from camel.core.branches import digest_of
from camel.core.checks import shown
from camel.core.errors import CamelError, InputError
from camel.core.message import in_one_line
from camel.core.transcript import Transcript
from camel.explorer.colors import ending
from camel.explorer.rooms import MAX_SAID, Agents
from camel.explorer.views import url
from camel.generation.branches import AT, KIND, OF, UNCHANGED, Branching
from camel.jobs.status import read_status
from camel.query.answers import NotThere
from camel.query.catalogue import Catalogue
from camel.query.sources import CatalogueRun
from camel.record.release import RESTRICTED
from camel.runs.run import open_folder

OPTIONS = {
    "message": "--message",
    "role": "--role",
    "without": "--without",
    "temperature": "--temperature",
    "model": "--to-model",
}
"""The option of each change."""
SEATED = ("role", "without", "temperature", "model")
"""Changes that apply to a seat."""
MOST = 100
"""Maximum number of branches of a kind that a form may ask for."""
SHOWN = 10
"""Maximum number of branches of a kind that a page shows."""
CHANGES = 3
"""Number of changes whose branches are shown, next to those without a change."""
QUOTED = 220
PATIENCE = 30.0
"""Seconds to wait for the folder of a fork that was started."""


class Fork(NamedTuple):
    """A fork that a form describes."""

    run: str
    id: str
    at: int
    change: str = "message"
    """A key of `OPTIONS`, or empty to continue the conversation without a change."""
    value: str = ""
    seat: str = ""
    n: int = 10

    def words(self, out: str) -> list[str]:
        """Return the arguments of `camel`. No value can be mistaken for an option."""
        made = ["fork", f"--at={self.at}", "-n", str(self.n)]
        if self.change:
            made.append(f"{OPTIONS[self.change]}={self.value}")
        if self.seat and self.change in SEATED:
            made.append(f"--seat={self.seat}")
        return [*made, f"--out={out}", "--", self.run, self.id]

    def check(self, record: Transcript) -> None:
        """Raise an `InputError` if the fork cannot be made."""
        if not 1 <= self.n <= MOST:
            raise InputError(f"the number of branches must be from 1 to {MOST}")
        if self.change and self.change not in OPTIONS:
            raise InputError(f"a change is one of {', '.join(OPTIONS)}, not {shown(self.change)}")
        if self.change and not self.value.strip():
            raise InputError("the change is empty: enter it, or continue the conversation without a change")
        if len(self.value) > MAX_SAID or "\0" in self.value + self.id:
            raise InputError(f"a text has at most {MAX_SAID:,} characters, and no null character")
        seats = [one.name for one in record.speakers]
        if self.seat and self.seat not in seats:
            raise InputError(f"there is no seat {shown(self.seat)}. Use one of {', '.join(seats)}")
        if self.change == "role" and not self.seat:
            raise InputError("select the seat whose role changes")
        if self.change == "temperature" and not re.fullmatch(r"[0-9]{1,2}(\.[0-9]{1,6})?", self.value):
            raise InputError(f"a temperature is a number such as 0.7, not {shown(self.value)}")
        Branching({record.id: record}, self.at)  # raises if the conversation cannot be continued

    def plan(self, record: Transcript) -> dict[str, int]:
        """Return how many branches and calls are expected, if the branches are as long as the conversation."""
        branches = self.n * (2 if self.change else 1)
        new = len(record.messages) - self.at + (self.change != "message")
        return {"branches": branches, "new": new, "calls": branches * new, "kept": self.at - 1}


def can_fork(source: CatalogueRun, record: Transcript) -> bool:
    """Return whether `camel fork` can continue the conversation."""
    restricted = RESTRICTED.intersection(record.labels) or any(one.tools for one in record.speakers)
    return not restricted and "imported" not in source.folder.settings().config


def free_place(address: str, id: str, at: int) -> str:
    """Return a folder next to a run that does not exist yet."""
    safe = re.sub(r"[^A-Za-z0-9_-]+", "-", id)[:100]
    base = f"{address.rstrip('/')}-branches-{safe}-{at}"
    return next(one for n in count(1) if not open_folder(one := base if n == 1 else f"{base}-{n}").exists)


def typed(words: Sequence[str]) -> str:
    """Return a command line to paste into a terminal. Control characters are escaped, because a terminal would obey them."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    if all(one.isprintable() or one == "\n" for one in word):
        return shlex.quote(word)
    plain = word.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + "".join(one if one.isprintable() else f"\\U{ord(one):08x}" for one in plain) + "'"


class ForkRunner:
    """Runs one fork at a time, with the model and the budget of the agents app."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents
        self._group: asyncio.TaskGroup | None = None
        self._process: asyncio.subprocess.Process | None = None

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Allow forks inside this context. A fork in progress then stops as with Ctrl-C, and can be resumed."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                yield
            finally:
                self._group = None
                if process := self._process:
                    process.send_signal(signal.SIGINT)
                    try:
                        await asyncio.wait_for(process.wait(), PATIENCE)
                    except TimeoutError:
                        process.kill()

    async def start(self, words: Sequence[str], place: str) -> None:
        """Start a fork and wait until its run exists. Raise an `InputError` if it cannot start."""
        if self._group is None or self._process is not None:
            raise InputError(
                "another fork is in progress: wait until it is complete, or stop it on its live page"
            )
        command = ["-m", "camel", words[0], *self._agents.fork_options, *self._limits(), *words[1:]]
        with tempfile.TemporaryFile() as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            self._process = process
            following = self._group.create_task(self._follow(process, place))
            until = time.monotonic() + PATIENCE
            while not open_folder(place).exists and not following.done() and time.monotonic() < until:
                await asyncio.wait([following], timeout=0.1)
            if process.returncode:
                log.seek(max(0, log.seek(0, 2) - 4_000))
                lines = log.read().decode("utf-8", "replace").strip().splitlines()
                raise InputError(in_one_line(lines[-1] if lines else "the fork failed")[:500])

    def _limits(self) -> list[str]:
        """Return the options with the rest of the budget."""
        meter = self._agents.meter
        if why := meter.over_budget():
            raise InputError(f"{why}: restart the server with a larger budget")
        budget, made = meter.budget, list[str]()
        if budget.tokens is not None:
            made.append(f"--budget-tokens={max(1, budget.tokens - meter.usage.total)}")
        if budget.usd is not None:
            made.append(f"--budget-usd={budget.usd - (meter.money or 0.0):f}")
        return made

    async def _follow(self, process: asyncio.subprocess.Process, place: str) -> None:
        """Wait for the end of a fork, and charge what it used."""
        await process.wait()
        self._process = None
        with contextlib.suppress(CamelError, OSError):
            self._agents.charge(read_status(place).usage)


# --- branches in the opened runs -------------------------------------------------------------------------------------


class _Declared(msgspec.Struct):
    """The parts of a run's declaration that name its branches."""

    kind: str
    at: int
    records: dict[str, str]
    changes: dict[str, Any] = {}


@lru_cache(maxsize=1_024)
def _declared(address: str) -> _Declared | None:
    """Return what the branches of a run were made from. None if the run has no branches. A run never changes it."""
    with contextlib.suppress(msgspec.ValidationError):
        found = msgspec.convert(open_folder(address).settings().config.get("declaration"), _Declared)
        return found if found.kind == "branches" else None
    return None


def branches(catalogue: Catalogue, run: str, record: Transcript) -> list[dict[str, Any]]:
    """Return the groups of branches to which a conversation belongs, or that were made from it, in the opened runs."""
    made: list[dict[str, Any]] = []
    of = record.inputs.get(OF) or record.id
    for source in catalogue.runs:
        found: _Declared | None = None
        with contextlib.suppress(CamelError, OSError):
            found = _declared(source.address)
        if found is None or of not in found.records:
            continue
        own = source.name == run
        if of != record.id if own else found.records[of] == digest_of(record):
            original = _original(catalogue, found, source.name, of) if own else ""
            kinds = [UNCHANGED, *list(found.changes)[:CHANGES]]
            rows = _rows(catalogue, source.name, of, found.at, kinds)
            made += [{"run": source.name, "at": found.at, "original": original, "rows": rows}] if rows else []
    return made


def _rows(catalogue: Catalogue, run: str, of: str, at: int, kinds: Sequence[str]) -> list[dict[str, Any]]:
    """Return the branches of a conversation, in rows of one without a change and one with each change."""
    rows: list[dict[str, Any]] = []
    for number in range(1, SHOWN + 1):
        cells = [_cell(catalogue, run, f"{of}-{at}-{kind}-{number:03d}", of, kind, at) for kind in kinds]
        there = [cell for cell in cells if cell]
        if not there:
            break
        sides = [(side, f"{run}/{cell['id']}") for side, cell in zip(("left", "right"), there, strict=False)]
        rows.append(
            {
                "cells": cells,
                "compare": url("/compare", [*sides, ("from", str(at))]) if len(sides) > 1 else "",
            }
        )
    return rows


def _cell(catalogue: Catalogue, run: str, id: str, of: str, kind: str, at: int) -> dict[str, Any] | None:
    try:
        one = catalogue.conversation(run, id)
    except CamelError:
        return None
    if (one.inputs.get(OF), one.inputs.get(KIND), one.inputs.get(AT)) != (of, kind, str(at)):
        return None
    return {
        "id": id,
        "kind": kind,
        "link": f"{_link(run, id)}#m{at}",
        "ending": ending(one.stop.reason if one.stop else ""),
        "messages": len(one.messages),
        "said": [
            (said.role or said.speaker, in_one_line(said.content)[:QUOTED])
            for said in one.messages[at - 1 : at + 1]
        ],
    }


def _original(catalogue: Catalogue, found: _Declared, own: str, of: str) -> str:
    """Return the link to the conversation that was continued. Empty if no opened run has it."""
    for source in catalogue.runs:
        with contextlib.suppress(NotThere, CamelError):
            if source.name != own and digest_of(catalogue.conversation(source.name, of)) == found.records[of]:
                return _link(source.name, of)
    return ""


def _link(run: str, id: str) -> str:
    return url(f"/conversation/{quote(run, safe='')}", [("id", id)])
