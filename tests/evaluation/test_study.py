"""Studies: figures equal a manual count, shards are scanned once, and findings of another run are refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from camel import InputError, Run
from camel.core.stops import Stop
from camel.detectors import DETECTORS, Detector, detect
from camel.evaluation import findings as looking
from camel.evaluation.findings import Findings, Looker, around
from camel.evaluation.study import Gatherer, Study
from camel.jobs.job import Step
from camel.runs.run import RunFolder
from tests.support import in_process, jobs
from tests.support.sheds import EVIL, REFUSE, a_run, add_shard


def look(run: Run, kept: Path, processes: int = 1) -> Looker:
    assert jobs.run(Findings(str(kept), run.folder.address, processes)).status == "complete"
    looker = Looker(run, kept)
    done = looker.folder.committed(looker.name)
    assert sum(marker.rows for marker in run.markers if marker.shard in done) == len(run)
    return looker


def study(run: Run, kept: Path) -> Study:
    return Gatherer(look(run, kept).tables()).study(run="r", scenario="s", fingerprint="f")


def test_figures_equal_a_manual_count(tmp_path: Path):
    run = a_run(tmp_path / "run")
    made = study(run, tmp_path / "kept")
    records = list(run)
    assert (made.conversations, made.messages) == (30, 180)
    assert {stop: rate.count for stop, rate in made.stops.items()} == {"done": 15, "max_messages": 15}
    assert made.speakers == ["user", "assistant"] * 3
    shown: Counter[str] = Counter()
    marked: Counter[tuple[str, str]] = Counter()
    turns: Counter[tuple[str, int]] = Counter()
    endings: Counter[tuple[str, str]] = Counter()
    any_of = 0
    for record in records:
        found = detect(record)
        any_of += bool(found)
        for name in {one.detector for one in found}:
            shown[name] += 1
            assert isinstance(record.stop, Stop)
            endings[name, record.stop.reason] += 1
        for name, index in {(one.detector, one.index) for one in found}:
            marked[name, record.messages[index].speaker] += 1
            turns[name, index] += 1
    assert shown["refusal"] == 10
    assert made.any.count == any_of
    for one in made.behaviors:
        name = one.name
        assert one.conversations.count == shown[name]
        assert {seat: rate.count for seat, rate in one.by_seat.items()} == {
            seat: marked[name, seat] for seat in ("user", "assistant")
        }
        assert one.messages.count == sum(marked[name, seat] for seat in ("user", "assistant"))
        assert [rate.count for rate in one.by_turn] == [turns[name, turn] for turn in range(6)]
        assert [rate.of for rate in one.by_turn] == [30] * 6
        assert {stop: (rate.count, rate.of) for stop, rate in one.by_stop.items()} == {
            stop: (endings[name, stop], 15) for stop in ("done", "max_messages")
        }


def test_curves_contain_the_quartiles(tmp_path: Path):
    run = a_run(tmp_path / "run")
    made = study(run, tmp_path / "kept")
    curves = {(curve.seat, curve.measure): curve.points for curve in made.growth}
    assert {point.turn: point.median for point in curves["user", "prompt"]} == {1: 100, 3: 300, 5: 500}
    for turn, point in ((4, curves["assistant", "chars"][1]), (2, curves["assistant", "chars"][0])):
        lengths = [len(record.messages[turn - 1].content) for record in run]
        assert (point.turn, point.count) == (turn, 30)
        assert [point.low, point.median, point.high] == pytest.approx(np.quantile(lengths, [0.25, 0.5, 0.75]))


def test_examples_have_the_message_and_the_evidence(tmp_path: Path):
    made = study(a_run(tmp_path / "run"), tmp_path / "kept")
    (refusal,) = (one for one in made.behaviors if one.name == "refusal")
    assert len(refusal.examples) == 5
    assert len({one.id for one in refusal.examples}) == 5
    for one in refusal.examples:
        assert one.index == 3
        assert one.excerpt == f"{REFUSE} {EVIL}"
        assert one.evidence in one.excerpt
        assert one.before.startswith("Instruction:")
        assert (one.speaker, one.role) == ("assistant", EVIL)
    (role,) = refusal.by_role
    assert (role.seat, role.role, role.rate.count, role.rate.of) == ("assistant", EVIL, 10, 30)


def test_the_same_run_gives_the_same_study(tmp_path: Path):
    run = a_run(tmp_path / "run")
    assert study(run, tmp_path / "one").to_json() == study(run, tmp_path / "two").to_json()


@pytest.mark.slow
def test_several_processes_give_the_same_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = a_run(tmp_path / "run")
    monkeypatch.setattr(looking, "FEW", 0)
    one, two = look(run, tmp_path / "one"), look(run, tmp_path / "two", processes=2)
    for mine, its in zip(one.tables(), two.tables(), strict=True):
        assert mine.table.equals(its.table)


def counting(name: str, version: int, seen: Counter[str]) -> Detector:
    old = DETECTORS[name]

    def rule(transcript: object):
        seen[name] += 1
        yield from old.rule(transcript)  # pyright: ignore

    return msgspec.structs.replace(old, version=version, rule=rule)


def test_scanned_shards_are_not_scanned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run, kept = a_run(tmp_path / "run"), tmp_path / "kept"
    seen: Counter[str] = Counter()
    for name in DETECTORS:
        monkeypatch.setitem(DETECTORS, name, counting(name, DETECTORS[name].version, seen))
    first = study(run, kept)
    assert set(seen.values()) == {30}
    assert study(run, kept).to_json() == first.to_json()
    assert set(seen.values()) == {30}
    # With one more shard, only that one is scanned.
    add_shard(run.folder, 3, range(30, 35))
    assert study(Run(tmp_path / "run"), kept).conversations == 35
    assert set(seen.values()) == {35}


def test_a_new_version_runs_only_that_detector_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run, kept = a_run(tmp_path / "run"), tmp_path / "kept"
    before = study(run, kept)
    seen: Counter[str] = Counter()
    for name in DETECTORS:
        newer = DETECTORS[name].version + (name == "refusal")
        monkeypatch.setitem(DETECTORS, name, counting(name, newer, seen))
    after = study(run, kept)
    assert seen == {"refusal": 30}
    (old,) = (one for one in before.behaviors if one.name == "refusal")
    (new,) = (one for one in after.behaviors if one.name == "refusal")
    assert (new.version, new.conversations) == (old.version + 1, old.conversations)
    assert [one for one in after.behaviors if one.name != "refusal"] == [
        one for one in before.behaviors if one.name != "refusal"
    ]


def test_findings_of_another_run_are_refused(tmp_path: Path):
    kept = tmp_path / "kept"
    look(a_run(tmp_path / "one"), kept)
    other = a_run(tmp_path / "two", size=4)
    with pytest.raises(InputError, match="another run"):
        list(look(other, kept).tables())


def test_an_incomplete_run_is_studied_as_it_is(tmp_path: Path):
    run = a_run(tmp_path / "run", shards=1)
    add_shard(run.folder, 4, range(40, 43))
    assert study(Run(tmp_path / "run"), tmp_path / "kept").conversations == 13


def test_a_shard_committed_during_a_scan_is_not_confused_with_another(tmp_path: Path):
    folder = a_run(tmp_path / "run", shards=1).folder
    add_shard(folder, 2, range(20, 30))
    begun = Looker(Run(tmp_path / "run"), tmp_path / "kept")
    add_shard(folder, 1, range(10, 20))

    class Begun(Findings):
        """Opens the run before the last shard is committed."""

        def stages(self, run: RunFolder) -> Iterator[Step]:
            yield from begun.stages()

    job = Begun(str(tmp_path / "kept"), str(tmp_path / "run"))
    assert jobs.run(job).status == "complete"
    ids = {shard: table["id"].to_pylist() for shard, table, _ in begun.tables()}
    assert ids == {
        0: [f"{number:03d}" for number in range(10)],
        2: [f"{number:03d}" for number in range(20, 30)],
    }


def test_a_shard_replaced_during_a_scan_is_an_error(tmp_path: Path, snapshot: Callable[..., None]):
    run = a_run(tmp_path / "run", shards=1)
    with pytest.raises(InputError, match=r"\b0\b.*run") as caught:
        looking._look(run.folder.address, run.stage, 1, 0, "0" * 64, [])  # pyright: ignore[reportPrivateUsage]
    snapshot("errors", caught.value)


COUNT_ROLES = """
from camel.core.message import Message
from camel.core.task import Task
from camel.core.transcript import Transcript
from camel.evaluation.findings import Looked, look_at
from camel.evaluation.study import Gatherer

import pyarrow

said = [
    Transcript(str(n), Task("t"), messages=[Message(0, "user", f"Role {n}", "I'm sorry, but I can't help with that.")])
    for n in range(600)
]
gatherer = Gatherer([Looked(0, pyarrow.Table.from_batches([look_at(said)]))])
assert len(gatherer._roles) == 500
assert {key[:2] for key in gatherer._by_role} <= gatherer._roles.keys()
print(sorted(gatherer._roles), sorted(gatherer._by_role.items()))
"""


@pytest.mark.slow
def test_the_choice_among_many_roles_is_deterministic(tmp_path: Path):
    """The order of a set of strings differs between processes with different hash seeds."""
    here = in_process.python(COUNT_ROLES, folder=tmp_path).stdout
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    there = subprocess.run(
        [sys.executable, "-c", COUNT_ROLES],
        env={**os.environ, "PYTHONHASHSEED": seed},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    assert here == there != ""


def test_a_long_message_is_shown_around_its_evidence():
    text = "x" * 5_000 + "EVIDENCE" + "y" * 5_000
    shown = around(text, "EVIDENCE")
    assert "EVIDENCE" in shown
    assert len(shown) < 2_100
    assert shown.startswith("… ")
    assert shown.endswith(" …")
