"""Votes of people on pairs of solutions: kept once, durably, and dealt out evenly.

The one decision to know: a vote is a record in an append-only journal and names the one it replaces. Of a voter's records
on a pair the last counts, and one is added only by whoever has seen the one before it. So a second click, a reload, a
retry or another tab cannot add or change anything, and changing a vote is something a voter does on purpose.

    votes/000001      one journal for each start of the server: records in their order
    votes/.secret     draws which solution is shown first, and signs invitations; whoever has it is no longer blind
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
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

Choice = Literal["a", "b", "draw", "skip"]
"""In terms of the pair, not of the screen; `skip` is an answer that counts nowhere."""
FOLDER = "votes"
HELD = 900.0
"""Seconds for which a pair counts as being looked at by a voter to whom it was shown."""
MAX_NAME = 60


class CastVote(msgspec.Struct, frozen=True, tag="vote"):
    """One answer of one voter."""

    voter: str
    pair: str
    """The pair's id."""
    key: str
    """Of the pair as it was shown (`key_of`): a vote does not count for other texts under the same id."""
    choice: Choice
    first: Literal["a", "b"]
    """Which solution was shown first, that is as A."""
    nonce: str
    """Of the form it came from; names the vote when it is replaced."""
    at: float
    """Seconds since 1970."""


class Joined(msgspec.Struct, frozen=True, tag="joined"):
    """Somebody took a name."""

    voter: str
    at: float


Record = CastVote | Joined
_decode = msgspec.msgpack.Decoder(Record).decode


class Stale(InputError):
    """The voter has voted otherwise since the form was made; `vote` is what counts now."""

    def __init__(self, vote: CastVote) -> None:
        self.vote = vote
        super().__init__("you have voted on this pair since: look at that vote, and change it there")


def key_of(pair: Pair) -> str:
    """Names a pair with all that is shown of it."""
    parts = (pair.id, pair.task, pair.system_a, pair.text_a, pair.system_b, pair.text_b)
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:32]


def votes_folder(pairs: Path) -> Path:
    """Where the votes on an evaluation's folder, or on a file of pairs, are kept."""
    if pairs.is_dir() or pairs.name == PAIRS:
        return inside.path(pairs if pairs.is_dir() else pairs.parent, FOLDER)
    return pairs.with_name(f"{pairs.stem}.{FOLDER}")


def read_records(folder: Path) -> Iterator[Record]:
    """Everything that was recorded, in its order. Can be read while people vote."""
    for number in _journals(folder):
        for payload in read(folder / f"{number:06d}"):
            with contextlib.suppress(msgspec.MsgspecError):  # of a later version
                yield _decode(payload)


def _journals(folder: Path) -> list[int]:
    """The numbers of the journals in a folder of votes, in their order."""
    with contextlib.suppress(FileNotFoundError):
        names = inside.names(folder)
        return sorted(int(name) for name in names if len(name) == 6 and name.isascii() and name.isdecimal())
    return []


def latest(records: Iterable[Record]) -> dict[str, dict[str, CastVote]]:
    """The votes that count: by voter and by pair (`key_of`), in the order in which each was first voted on."""
    found: dict[str, dict[str, CastVote]] = {}
    for record in records:
        mine = found.setdefault(record.voter, {})
        if isinstance(record, CastVote):
            mine[record.key] = record
    return found


def voter_name(text: str) -> str:
    """A voter's name as it is kept; raises an `InputError` where it cannot be one."""
    name = " ".join(unicodedata.normalize("NFC", text).split())
    if not name:
        raise InputError("a voter needs a name")
    # One that begins with a sign is a formula to a spreadsheet.
    if len(name) > MAX_NAME or not name.isprintable() or not name[0].isalnum():
        raise InputError(
            f"a voter's name begins with a letter or a digit and has at most {MAX_NAME} characters, not {shown(name)}"
        )
    return name


class BallotBox:
    """The votes of a folder, open for more. One process at a time; use on one event loop, `close()` when done."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = _locked(folder)
        with contextlib.ExitStack() as undo:
            undo.callback(self._lock.close)
            self.secret = _secret(folder / ".secret")
            self.votes = latest(read_records(folder))
            """Those that count, by voter and pair's key. What is in here is on the disk."""
            undo.pop_all()
        self.counts = Counter(
            vote.key for mine in self.votes.values() for vote in mine.values() if vote.choice != "skip"
        )
        """How many votes each pair has, the skipped left out."""
        self._journal: Journal | None = None
        self._busy: dict[str, asyncio.Lock] = {}

    def of(self, voter: str) -> dict[str, CastVote]:
        """A voter's votes by the pairs' keys, in the order in which they were first given."""
        return self.votes.get(voter, {})

    def known(self, name: str) -> str | None:
        """The voter who has this name, however it is written; None where nobody has."""
        folded = name.casefold()
        return next((voter for voter in self.votes if voter.casefold() == folded), None)

    async def join(self, name: str, *, new: bool = False) -> str:
        """Take part under a name, again or for the first time; a `new` one is refused where somebody has it."""
        async with self._alone(name):
            name = self.known(name) or name
            if name not in self.votes:
                await self._append(Joined(name, time.time()))
                self.votes[name] = {}
            elif new:
                raise InputError(
                    "somebody has this name: if it is you, open your own link; else add something to it"
                )
        return name

    async def add(self, vote: CastVote, replaces: str = "") -> CastVote:
        """Keep a vote, and return the one that counts then: it is on the disk.

        `replaces` is the nonce of the vote on this pair that the voter has seen. Saying the same again changes nothing;
        raises `Stale` where the voter's last vote is another one.
        """
        async with self._alone(vote.voter):
            last = self.of(vote.voter).get(vote.key)
            if last is not None and last.choice == vote.choice:
                return last
            if last is not None and last.nonce != replaces:
                raise Stale(last)
            await self._append(vote)
            self.votes.setdefault(vote.voter, {})[vote.key] = vote
            self.counts[vote.key] += (vote.choice != "skip") - (last is not None and last.choice != "skip")
        return vote

    def _alone(self, voter: str) -> asyncio.Lock:
        """Of one voter's clicks at the same time, the second sees what became of the first."""
        return self._busy.setdefault(voter.casefold(), asyncio.Lock())

    async def _append(self, record: Record) -> None:
        if self._journal is None:
            number = max(_journals(self.folder), default=0) + 1
            self._journal = Journal(self.folder / f"{number:06d}")
        journal = self._journal
        try:
            await journal.append(msgspec.msgpack.encode(record))
        except JournalBroken:
            # Nothing after a torn tail would be read: the next vote, perhaps on a disk with room again, begins a new one.
            if self._journal is journal:
                self._journal = None
            await journal.close()
            raise

    async def close(self) -> None:
        """Wait for what is being written, and let others write."""
        if self._journal is not None:
            await self._journal.close()
        self._lock.close()


def _locked(folder: Path) -> IO[bytes]:
    """Keep a second process from taking votes: each would let the other's be given again."""
    try:
        make_folder(folder)
        file = inside.open_file(folder, ".lock", inside.APPEND)
    except OSError as error:
        raise InputError(f"cannot keep votes in {folder}: {error.strerror}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise InputError(f"another process takes the votes of {folder}: use that one, or stop it") from None
    return file


def _secret(path: Path) -> bytes:
    with contextlib.suppress(FileNotFoundError):
        if len(kept := inside.read(path.parent, path.name)) == 32:
            return kept
        raise InputError(f"{path} is damaged: restore it, or remove it and send new invitations")
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
    """Chooses what a voter sees next, so that all pairs get as many votes as others.

    The pair with the fewest votes comes next, those that others look at right now counted in; among equals the order is
    another one for each voter. Until it is answered a voter keeps the pair: in a second tab, and after a reload.
    """

    def __init__(self, pairs: Sequence[Pair], box: BallotBox, clock: Callable[[], float] = time.monotonic):
        self.pairs = {key_of(pair): pair for pair in pairs}
        self._box, self._clock = box, clock
        self._orders: dict[str, list[str]] = {}
        self._held: dict[str, tuple[str, float]] = {}

    def order(self, voter: str) -> list[str]:
        """All pairs' keys in the order of this voter."""
        if voter not in self._orders:
            keys = list(self.pairs)
            random.Random(self._box.secret + voter.encode()).shuffle(keys)  # noqa: S311 - of a secret seed
            self._orders[voter] = keys
        return self._orders[voter]

    def next(self, voter: str, may: Callable[[Pair], bool] = lambda pair: True) -> str | None:
        """The key of the pair to show; None when the voter has answered all that `may` be shown."""
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
