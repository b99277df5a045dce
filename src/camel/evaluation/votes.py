"""Human votes on pairs of solutions: durable records, and an even distribution of votes over the pairs.

The one decision to know: votes are records in an append-only journal, and a voter's last record on a pair counts. A form
that changes a vote must name the vote that it replaces. So a second click, a reload, a retry or another tab cannot change
anything by accident.

    votes/000001      one journal per start of the server, with its records in order
    votes/.secret     seeds which solution is shown first, and signs invitations; a voter who has it is no longer blind
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import secrets
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Literal

import msgspec

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.evaluation.pairs import PAIRS, Pair
from camel.storage import inside
from camel.storage.files import make_folder, sync_folder
from camel.storage.journal import Journal, JournalBroken, read
from camel.storage.system import fcntl

Choice = Literal["a", "b", "draw", "skip"]
"""A voter's choice. `a` and `b` name the pair's solutions, not positions on the screen. A `skip` is not counted."""
FOLDER = "votes"
HELD = 900.0
"""Seconds after which a pair that was shown to a voter no longer counts as in progress."""
MAX_NAME = 60


class CastVote(msgspec.Struct, frozen=True, tag="vote"):
    """One vote of one voter."""

    voter: str
    pair: str
    """Id of the pair."""
    key: str
    """Key of the pair and its texts (`key_of`). A vote does not count for other texts with the same id."""
    choice: Choice
    first: Literal["a", "b"]
    """The solution that was shown in the first position, labeled A."""
    nonce: str
    """Random id of the form, which also identifies the vote when another one replaces it."""
    at: float
    """Time of the vote, as Unix time in seconds."""


class Joined(msgspec.Struct, frozen=True, tag="joined"):
    """Records that a voter joined, and under which name."""

    voter: str
    at: float


Record = CastVote | Joined
_decode = msgspec.msgpack.Decoder(Record).decode


class Stale(InputError):
    """Raised if the voter has changed the vote since the form was made. `vote` is the vote that counts."""

    def __init__(self, vote: CastVote) -> None:
        self.vote = vote
        super().__init__("you have voted on this pair in another tab: open that vote to change it")


def key_of(pair: Pair) -> str:
    """Return a key that identifies a pair and all its texts."""
    parts = (pair.id, pair.task, pair.system_a, pair.text_a, pair.system_b, pair.text_b)
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:32]


def votes_folder(pairs: Path) -> Path:
    """Return the folder of the votes. `pairs` is an evaluation's folder or a file of pairs."""
    if pairs.is_dir() or pairs.name == PAIRS:
        return inside.path(pairs if pairs.is_dir() else pairs.parent, FOLDER)
    return pairs.with_name(f"{pairs.stem}.{FOLDER}")


def read_records(folder: Path) -> Iterator[Record]:
    """Yield all stored records in order. This is safe while people vote."""
    for number in _journals(folder):
        for payload in read(folder / f"{number:06d}"):
            with contextlib.suppress(msgspec.MsgspecError):  # a record of a later version
                yield _decode(payload)


def _journals(folder: Path) -> list[int]:
    """Return the sorted numbers of the journal files in a folder of votes."""
    with contextlib.suppress(FileNotFoundError):
        names = inside.names(folder)
        return sorted(int(name) for name in names if len(name) == 6 and name.isascii() and name.isdecimal())
    return []


def latest(records: Iterable[Record]) -> dict[str, dict[str, CastVote]]:
    """Return the votes that count, by voter and by the pair's key, in the order of the first vote on each pair."""
    found: dict[str, dict[str, CastVote]] = {}
    for record in records:
        mine = found.setdefault(record.voter, {})
        if isinstance(record, CastVote):
            mine[record.key] = record
    return found


def voter_name(text: str) -> str:
    """Return a voter's name in its stored form. Raises an `InputError` if it is not valid."""
    name = " ".join(unicodedata.normalize("NFC", text).split())
    if not name:
        raise InputError("the voter's name is empty: enter a name")
    # A spreadsheet takes a name that begins with a sign for a formula.
    if len(name) > MAX_NAME or not name.isprintable() or not name[0].isalnum():
        raise InputError(
            f"a voter's name must begin with a letter or a digit and have at most {MAX_NAME} characters, not {shown(name)}"
        )
    return name


class BallotBox:
    """The votes in a folder, to which votes can be added. Open it in one process only, use it on one event loop and `close()`
    it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = _lock_folder(folder)
        with contextlib.ExitStack() as undo:
            undo.callback(self._lock.close)
            self.secret = _secret(folder / ".secret")
            self.votes = latest(read_records(folder))
            """Votes that count, by voter and by the pair's key. All of them are on the disk."""
            undo.pop_all()
        self.counts = Counter(
            vote.key for mine in self.votes.values() for vote in mine.values() if vote.choice != "skip"
        )
        """Number of votes on each pair, without skips."""
        self._journal: Journal | None = None
        self._busy: dict[str, asyncio.Lock] = {}

    def of(self, voter: str) -> dict[str, CastVote]:
        """Return a voter's votes by the pair's key, in the order of the first vote on each pair."""
        return self.votes.get(voter, {})

    def known(self, name: str) -> str | None:
        """Return the stored name of a voter, ignoring case. Return None if there is no such voter."""
        folded = name.casefold()
        return next((voter for voter in self.votes if voter.casefold() == folded), None)

    async def join(self, name: str, *, new: bool = False) -> str:
        """Register a voter and return the name as stored. If `new` is true, raises an `InputError` if the name is taken."""
        async with self._lock_of(name):
            name = self.known(name) or name
            if name not in self.votes:
                await self._append(Joined(name, time.time()))
                self.votes[name] = {}
            elif new:
                raise InputError(
                    "this name is taken: if it is yours, open your own link; otherwise choose another name"
                )
        return name

    async def add(self, vote: CastVote, replaces: str = "") -> CastVote:
        """Store a vote durably, and return the vote that counts now.

        `replaces` is the nonce of the vote that the voter wants to change. An equal vote changes nothing. Raises `Stale` if
        the voter's last vote on the pair has another nonce.
        """
        async with self._lock_of(vote.voter):
            last = self.of(vote.voter).get(vote.key)
            if last is not None and last.choice == vote.choice:
                return last
            if last is not None and last.nonce != replaces:
                raise Stale(last)
            await self._append(vote)
            self.votes.setdefault(vote.voter, {})[vote.key] = vote
            self.counts[vote.key] += (vote.choice != "skip") - (last is not None and last.choice != "skip")
        return vote

    def _lock_of(self, voter: str) -> asyncio.Lock:
        """Return the lock of a voter, which serializes simultaneous votes of that voter."""
        return self._busy.setdefault(voter.casefold(), asyncio.Lock())

    async def _append(self, record: Record) -> None:
        if self._journal is None:
            number = max(_journals(self.folder), default=0) + 1
            self._journal = Journal(self.folder / f"{number:06d}")
        journal = self._journal
        try:
            await journal.append(msgspec.msgpack.encode(record))
        except JournalBroken:
            # Records after a torn tail would not be read, so the next vote begins a new journal.
            if self._journal is journal:
                self._journal = None
            await journal.close()
            raise

    async def close(self) -> None:
        """Wait for pending writes, and release the folder."""
        if self._journal is not None:
            await self._journal.close()
        self._lock.close()


def _lock_folder(folder: Path) -> IO[bytes]:
    """Lock the folder against other processes, because two processes would not see each other's votes."""
    try:
        make_folder(folder)
        file = inside.open_file(folder, ".lock", inside.APPEND)
    except OSError as error:
        raise InputError(f"cannot store votes in '{folder}': {error.strerror}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise InputError(f"another process takes votes in '{folder}': use it, or stop it") from None
    return file


def _secret(path: Path) -> bytes:
    with contextlib.suppress(FileNotFoundError):
        if len(kept := inside.read(path.parent, path.name)) == 32:
            return kept
        raise InputError(f"'{path}' is damaged: restore it, or remove it and send new invitations")
    made = secrets.token_bytes(32)
    temporary = path.with_name(".secret.partial")
    temporary.unlink(missing_ok=True)
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(file, made)
        os.fsync(file)
    finally:
        os.close(file)
    temporary.replace(path)
    sync_folder(path.parent)
    return made


class Dealer:
    """Chooses the next pair for a voter, so that all pairs get about the same number of votes.

    The pair with the fewest votes comes next, and pairs in progress count as voted. Among equal pairs, each voter has
    another order. A voter sees the same pair until it is answered, also in a second tab or after a reload.
    """

    def __init__(self, pairs: Sequence[Pair], box: BallotBox, clock: Callable[[], float] = time.monotonic):
        self.pairs = {key_of(pair): pair for pair in pairs}
        self._box, self._clock = box, clock
        self._orders: dict[str, list[str]] = {}
        self._held: dict[str, tuple[str, float]] = {}

    def order(self, voter: str) -> list[str]:
        """Return the keys of all pairs in this voter's order."""
        if voter not in self._orders:
            keys = list(self.pairs)
            random.Random(self._box.secret + voter.encode()).shuffle(keys)  # noqa: S311 - of a secret seed
            self._orders[voter] = keys
        return self._orders[voter]

    def next(self, voter: str, may: Callable[[Pair], bool] = lambda pair: True) -> str | None:
        """Return the key of the pair to show. Return None if the voter has answered all pairs for which `may` returns true."""
        now, voted = self._clock(), self._box.of(voter)
        held, _ = self._held.pop(voter, ("", 0.0))
        if held not in self.pairs or held in voted or not may(self.pairs[held]):
            looked_at = Counter(key for key, since in self._held.values() if now - since < HELD)
            left = [key for key in self.order(voter) if key not in voted and may(self.pairs[key])]
            held = min(left, key=lambda key: self._box.counts[key] + looked_at[key], default="")
        if not held:
            return None
        self._held[voter] = held, now
        return held
