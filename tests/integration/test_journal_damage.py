"""A run whose journals are damaged while it is stopped: reported, continued, and only what is lost is paid for again.

By the endpoint's ledger, against an undisturbed run of the same conversations. One endpoint repeats itself; the other
answers differently, so that what follows a damaged reply no longer fits.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("pyarrow")

from camel.engine.stage import JournaledStep, read_step
from camel.models.simulator import Constant, SimulatorSettings
from tests.support.command import camel
from tests.support.crashes import Witness
from tests.support.endpoints import serve
from tests.support.journals import Written, first_format, written

STAGE = "conversations"
COUNTS = {"assistant_role": 2, "user_role": 2, "task": 2}
SESSIONS = [f"{a:03d}_{u:03d}_{t:03d}" for a in (1, 2) for u in (1, 2) for t in (1, 2)]
"""What the endpoint sees of each conversation, which is its id as well."""
STOPS = (27, 50)
"""Calls after which the run was stopped: some shards have the journals of two attempts."""
Calls = Counter[tuple[str, int]]
"""How often each call was sent: a session and its number in it."""


class Stopped(NamedTuple):
    """A stopped run with open journals, and what an undisturbed one sends."""

    folder: Path
    calls: dict[str, tuple[str, int]]
    """By the hash of its body, each call of the undisturbed run."""
    lengths: Counter[str]
    same: Witness
    other: Witness
    """Answers differently."""

    def copied(self, folder: Path) -> Path:
        """A copy of the run, to be damaged."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return folder

    @staticmethod
    def journals(folder: Path) -> list[Path]:
        return sorted((folder / "run" / "journal" / STAGE).iterdir())

    def session(self, step: JournaledStep) -> str:
        return SESSIONS[step.item]


def configure(folder: Path, witness: Witness, calls: int | None = None) -> None:
    counts = ", ".join(f"{name} = {count}" for name, count in COUNTS.items())
    budget = f"[budget]\ncalls = {calls}\n" if calls else ""
    (folder / "config.toml").write_text(
        f'scenario = "ai_society"\nout = "run"\nlists = "asked"\ncounts = {{ {counts} }}\nshard_size = 4\n[model]\nname = "simulated"\n'
        f'base_url = "{witness.endpoint.base_url}"\n[run]\nconcurrency = 5\n{budget}'
    )


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stopped]:
    root = tmp_path_factory.mktemp("damage")
    with ExitStack() as stack:
        witnesses: list[Witness] = []
        for seed in range(2):
            path = root / f"ledger{seed}.jsonl"
            settings = SimulatorSettings(seed=seed, length=Constant(9), words=12, ledger_path=str(path))
            witnesses.append(Witness(path, stack.enter_context(serve(settings))))
        same, other = witnesses
        for name in ("calm", "run"):
            (root / name).mkdir()
        configure(root / "calm", same)
        assert camel("generate", "config.toml", cwd=root / "calm").status == 0
        same.learn()
        for calls in STOPS:
            configure(root / "run", same, calls)
            assert camel("generate", "config.toml", cwd=root / "run").status == 3
        same.new_rows()
        yield Stopped(root / "run", dict(same.calls), Counter(same.lengths), same, other)


def steps_in(stopped: Stopped, folder: Path) -> set[tuple[str, int]]:
    """The calls that the undamaged journals of a run hold."""
    steps = [
        read_step(one.payload) for path in stopped.journals(folder) for one in written(path.read_bytes())
    ]
    return {(stopped.session(step), step.step) for step in steps}


def resume(stopped: Stopped, folder: Path, witness: Witness) -> Calls:
    """Continue to the end, check that all is there, and return how often each call was sent."""
    configure(folder, witness)
    witness.new_rows()
    done = camel("generate", "config.toml", cwd=folder)
    assert done.status == 0, done.stdout + done.stderr
    sent = Calls()
    order: Counter[str] = Counter()
    for row in sorted(witness.new_rows(), key=lambda row: row.seq):
        order[row.session] += 1
        sent[stopped.calls.get(row.hash, (row.session, -order[row.session]))] += 1
    assert camel("run", "verify", "run", cwd=folder).status == 0
    assert camel("export", "run", "chat", "chat.jsonl", "--force", cwd=folder).status == 0
    ids = [json.loads(line)["id"] for line in (folder / "chat.jsonl").read_text().splitlines()]
    assert ids == SESSIONS
    return sent


def check(
    stopped: Stopped, folder: Path, lost: set[tuple[str, int]], kept: set[tuple[str, int]], again: bool
) -> None:
    """Continue, and compare what is sent with what must be: what is missing, and what is lost."""
    if again:
        sent = resume(stopped, folder, stopped.same)
        durable = kept - lost
        assert sent == Counter(
            call for call in stopped.calls.values() if call[0] in SESSIONS and call not in durable
        )
        return
    sent = resume(stopped, folder, stopped.other)
    by_session = Counter(session for session, _ in sent.elements())
    for session in SESSIONS:
        journaled = {step for name, step in kept if name == session}
        damaged = [step for name, step in lost if name == session]
        first = min(damaged, default=len(journaled))
        assert by_session[session] == stopped.lengths[session] - first, session


def flip(stopped: Stopped, root: Path, seed: int) -> None:
    """One byte of one journal, anywhere."""
    chance = random.Random(seed)
    folder = stopped.copied(root)
    kept = steps_in(stopped, folder)
    path = chance.choices(stopped.journals(folder), [one.stat().st_size for one in stopped.journals(folder)])[
        0
    ]
    data = bytearray(path.read_bytes())
    records = written(bytes(data))
    at = chance.randrange(len(data))
    data[at] ^= chance.randint(1, 255)
    path.write_bytes(data)
    hit = [one for one in records if one.start <= at < one.end]
    steps = [read_step(one.payload) for one in hit]
    torn = bool(hit) and hit[0].number >= records[-1].first

    found = camel("run", "verify", "run", "--unfinished", cwd=folder)
    if torn:
        assert found.status == 0, "what is in the last group may never have been durable"
    else:
        assert found.status == 1
        assert f"journal/{STAGE}/{path.name}" in found.stdout
        assert f"{len(hit)} record" in found.stdout
    check(stopped, folder, {(stopped.session(step), step.step) for step in steps}, kept, seed % 2 == 0)
    assert torn or path.name in (folder / "run" / "log.jsonl").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_a_flipped_byte_costs_one_reply(stopped: Stopped, tmp_path: Path, seed: int):
    flip(stopped, tmp_path, seed)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(8, 50))
def test_fifty_flipped_bytes_cost_one_reply_each(stopped: Stopped, tmp_path: Path, seed: int):
    flip(stopped, tmp_path, seed)


def inside(records: list[Written], chance: random.Random) -> int:
    one = chance.choice(records)
    return chance.randrange(one.start + 1, one.end)


def at_boundary(records: list[Written], chance: random.Random) -> int:
    return chance.choice(records).start


@pytest.mark.slow
@pytest.mark.parametrize("cut", [inside, at_boundary])
@pytest.mark.parametrize("again", [True, False])
def test_a_journal_that_is_cut_costs_what_is_missing(
    stopped: Stopped, tmp_path: Path, cut: Callable[[list[Written], random.Random], int], again: bool
):
    chance = random.Random(4)
    folder = stopped.copied(tmp_path)
    kept, lost = steps_in(stopped, folder), set[tuple[str, int]]()
    for path in stopped.journals(folder):
        data = path.read_bytes()
        records = written(data)
        end = cut(records, chance)
        path.write_bytes(data[:end])
        missing = [read_step(one.payload) for one in records if one.end > end]
        lost |= {(stopped.session(step), step.step) for step in missing}
    assert lost
    assert camel("run", "verify", "run", "--unfinished", cwd=folder).status == 0, "a torn tail is no damage"
    check(stopped, folder, lost, kept, again)


@pytest.mark.slow
def test_journals_of_the_first_format_are_continued(stopped: Stopped, tmp_path: Path):
    folder = stopped.copied(tmp_path)
    kept = steps_in(stopped, folder)
    for path in stopped.journals(folder):
        # Steps had four fields then.
        payloads = [read_step(one.payload) for one in written(path.read_bytes())]
        path.write_bytes(first_format([_four_fields(step) for step in payloads]))
    assert camel("run", "verify", "run", "--unfinished", cwd=folder).status == 0
    check(stopped, folder, set(), kept, True)


def _four_fields(step: JournaledStep) -> bytes:
    import msgspec

    return msgspec.msgpack.encode((step.item, step.step, step.check, step.result))
