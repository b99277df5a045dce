"""Who sent what, and when it was durable: what the chaos benchmark holds a run against.

Two witnesses that the run knows nothing of. The endpoint's ledger has a row for each request, with the moment it arrived and
the connection it came by. `Tail` reads the journals while they grow, through its own file handles, and notes when it first
saw each reply there. The one decision to know: a repeat must be excused one by one. It is excused when the request
before it was answered with a fault, or came from a process that was struck before it had journaled the answer.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from camel.models.simulator import LedgerRow
from camel.storage.journal import Tail as JournalTail
from tests.support.crashes import Call

LOOK_EVERY = 0.1
"""How a journal looks, said again here: a witness does not borrow the eyes of whom it watches."""
LAG = 0.5
"""Seconds by which a busy endpoint notes a request later than it was sent: its sender may be dead by then."""
ANSWERED = ("served", "client_gone")
"""Outcomes without a fault of the endpoint: a client that asks again after one of these must have lost the answer."""


class Tail:
    """The journals of a run, read as they grow."""

    def __init__(self, journals: Path, session: Callable[[str, int], str]) -> None:
        self._journals, self._session = journals, session
        self.durable: dict[Call, float] = {}
        """When each call was first seen in a journal: a moment after it was there."""
        self.twice: Counter[Call] = Counter()
        """Calls that are in more than one journal, and in how many more."""
        self._open: dict[Path, JournalTail] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Tail:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()
        for journal in self._open.values():
            journal.close()

    def scan(self) -> float:
        """Read what is new; returns when that was done."""
        with self._lock:
            there: set[Path] = set()
            with contextlib.suppress(FileNotFoundError):
                for stage in self._journals.iterdir():
                    there.update(stage.glob("[0-9]*-*"))
            for path in there - self._open.keys():
                with contextlib.suppress(FileNotFoundError):
                    self._open[path] = JournalTail(path)
            for path, journal in list(self._open.items()):
                self._read(path.parent.name, journal)
                if path not in there:
                    journal.close()
                    del self._open[path]
            return time.time()

    def _read(self, stage: str, journal: JournalTail) -> None:
        """Take in what is new in a journal."""
        for payload in journal.new():
            entry: Any = msgspec.msgpack.decode(payload)
            call = self._session(stage, entry[0]), entry[1]
            if call in self.durable:
                self.twice[call] += 1
            self.durable.setdefault(call, time.time())

    def _watch(self) -> None:
        while not self._over.wait(LOOK_EVERY):
            self.scan()


@dataclass
class Strike:
    """One disturbance: which processes, by their connections, and when."""

    kind: str
    at: float
    victims: list[int]
    ports: set[int] = field(default_factory=set)
    """Connections to the endpoint that the victims had."""
    until: float = 0.0
    """The victims were dead, or stood still, and their journals had been read."""
    woken: float = 0.0
    """When the stopped victims resumed."""
    gone: float = 0.0
    """When the resumed victims had ended."""
    in_flight: set[Call] = field(default_factory=set)
    """Calls that they had sent and whose answers they had not journaled."""

    def told(self) -> dict[str, Any]:
        """The fields as plain values, for the report on a failed run."""
        return {name: sorted(v) if isinstance(v, set) else v for name, v in vars(self).items()}

    def hits(self, row: LedgerRow) -> bool:
        """Whether a request came from a victim before its end."""
        if row.time > self.until + LAG:
            return False
        # Or by a connection that was opened between the last look and the end.
        return row.client in self.ports or (self.at <= row.time and row.outcome == "client_gone")


@dataclass
class Account:
    """What the ledger says about a phase."""

    requests: int = 0
    calls: int = 0
    unknown: int = 0
    """Requests for what the undisturbed run never asked."""
    sent_durable: int = 0
    """Requests for what was in a journal."""
    faults: Counter[str] = field(default_factory=Counter)
    """Requests that the endpoint failed."""
    timeouts: int = 0
    """Requests whose answers came after the client had given up the attempt, or the call."""
    lost: int = 0
    """Requests that were sent again because their sender was struck."""
    unexcused: list[str] = field(default_factory=list)
    """Repeats for which there was no reason."""
    by_zombies: int = 0
    """Requests from processes that stood still, after they woke up."""


def account(
    rows: Iterable[LedgerRow],
    calls: dict[str, Call],
    tail: Tail,
    strikes: list[Strike],
    impatient: bool,
) -> Account:
    """Go through the requests of a phase; `impatient` says whether the client gives calls up after a few seconds."""
    result = Account()
    by_call: dict[Call, list[LedgerRow]] = {}
    for row in sorted(rows, key=lambda row: row.time):
        result.requests += 1
        if row.hash not in calls:
            result.unknown += 1
            continue
        by_call.setdefault(calls[row.hash], []).append(row)
        result.by_zombies += any(
            strike.woken and strike.woken < row.time < strike.gone and row.client in strike.ports
            for strike in strikes
        )
    result.calls = len(by_call)
    never = float("inf")
    for call, sent in by_call.items():
        durable = tail.durable.get(call, never)
        for number, row in enumerate(sent):
            result.sent_durable += row.time > durable
            if row.outcome not in ANSWERED:
                result.faults[row.outcome] += 1
            # Another worker may have asked again and kept the answer before the victims' journals were read.
            next_ = sent[number + 1].time if number + 1 < len(sent) else never
            strike = next(
                (
                    one
                    for one in strikes
                    if one.hits(row) and (durable > one.until or one.at <= next_ < durable)
                ),
                None,
            )
            # What no look found in a journal and nobody asked again was kept: its journal came and went between two looks.
            kept_unseen = durable == next_ == never
            if strike is not None and not kept_unseen:
                strike.in_flight.add(call)
            if number + 1 == len(sent):
                continue
            again = sent[number + 1]
            if row.outcome not in ANSWERED:
                continue
            if strike is not None:
                result.lost += 1
            elif impatient:
                result.timeouts += 1
            else:
                result.unexcused.append(
                    f"{call}: {row.outcome} at {row.time:.2f} from {row.client}, again at {again.time:.2f} from "
                    f"{again.client}, durable at {durable:.2f}"
                )
    return result


def ports_of(pid: int, server: Iterable[int]) -> set[int]:
    """The local ports of a process's connections to any of the ports of `server`."""
    wanted = set(server)
    inodes: set[str] = set()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                target = str(link.readlink())
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
    found: set[int] = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[9] in inodes and int(fields[2].rpartition(":")[2], 16) in wanted:
            found.add(int(fields[1].rpartition(":")[2], 16))
    return found


def is_alive(pid: int) -> bool:
    """Whether a process is there and not merely unburied."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    return False
