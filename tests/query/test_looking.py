"""Background scans of small runs: all are scanned despite failures, and answers use the new findings."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from camel.core.errors import CamelError, InputError
from camel.core.transcript import Transcript
from camel.detectors import DETECTORS, Detector, Hit, detect
from camel.detectors.marks import Mark, looked_by
from camel.explorer.app import listening, looking, view
from camel.index.merge import Looking, merge
from camel.jobs.status import find_runs
from camel.query.catalogue import Catalogue
from camel.query.where import Query
from camel.runs.run import RunFolder, open_folder
from camel.storage.store import StoreFailed
from tests.support.societies import STAGE, society
from tests.support.waiting import wait_for


def found_in(made: Iterable[Transcript]) -> Counter[str]:
    return Counter(name for one in made for name in {finding.detector for finding in detect(one)})


def look_through(catalogue: Catalogue, conversations: int, *runs: str) -> None:
    with looking(catalogue):
        wait_for(lambda: catalogue.behaviors(Query(runs)).conversations == conversations)


def test_a_filter_by_finding_includes_background_scans(tmp_path: Path):
    made = society(tmp_path / "run", rows=40, shard=5)
    merge(open_folder(tmp_path / "run"), STAGE)
    with Catalogue([tmp_path / "run"]) as catalogue:
        look_through(catalogue, 40)
        expected = found_in(made)
        assert expected
        assert dict(catalogue.facets()["finding"]) == expected
        assert {name: catalogue.count(Query(facets={"finding": (name,)})) for name in expected} == expected


def test_stored_findings_are_kept_and_not_scanned_again(tmp_path: Path):
    made = society(tmp_path / "run", rows=40, shard=5)
    theirs = [[Mark("theirs", 0, "user")]] * 5
    known: dict[int, list[list[Mark]]] = {shard: theirs for shard in range(8) if shard not in (0, 3)}
    merge(open_folder(tmp_path / "run"), STAGE, looking=Looking(looked_by(), known.get))
    with Catalogue([tmp_path / "run"]) as catalogue:
        look_through(catalogue, 40)
        expected = found_in([*made[:5], *made[15:20]])
        assert dict(catalogue.facets()["finding"]) == expected | {"theirs": 30}
        assert {row.id for row in catalogue.page(Query(facets={"finding": ("theirs",)})).rows} == {
            one.id for one in [*made[5:15], *made[20:]]
        }


def test_a_detector_that_fails_on_one_run_is_named_and_does_not_block_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    bad = society(tmp_path / "bad", rows=12, shard=4)
    society(tmp_path / "good", rows=8, shard=4, seed=5)

    def rule(transcript: Transcript) -> Iterable[Hit]:
        if transcript.task == bad[0].task:
            raise InputError("a fussy\ndetector")
        return []

    monkeypatch.setitem(DETECTORS, "fussy", Detector("fussy", 1, "Fussy", "Is it?", rule))
    with Catalogue([tmp_path / "bad", tmp_path / "good"]) as catalogue:
        look_through(catalogue, 8, "good")
        assert any("a fussy detector" in note for note in catalogue.notes())


def test_a_temporary_store_failure_does_not_end_the_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    society(tmp_path / "run", rows=8, shard=4)
    with Catalogue([tmp_path / "run"]) as catalogue:
        committed = RunFolder.committed
        asked: list[str] = []

        def fails_at_first(folder: RunFolder, stage: str) -> Any:
            asked.append(stage)
            if len(asked) <= 2:
                raise StoreFailed("no answer")
            return committed(folder, stage)

        monkeypatch.setattr(RunFolder, "committed", fails_at_first)
        monkeypatch.setattr("camel.query.database.FRESH", -math.inf)
        with looking(catalogue):
            wait_for(lambda: len(asked) > 2)
            wait_for(lambda: catalogue.behaviors().conversations == 8)


def test_a_failed_start_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    society(tmp_path / "run", rows=8, shard=4, index=False)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    with listening("127.0.0.1", 0) as door, pytest.raises(InputError, match="cannot listen"):
        view(str(tmp_path / "run"), port=door.getsockname()[1])
    assert list(scratch.iterdir()) == []
    for broken in ("camel.query.database.open_database", "camel.query.sources.WatchedRun.look"):
        with monkeypatch.context() as patch:
            patch.setattr(broken, _fail)
            with pytest.raises(CamelError, match="it broke"):
                Catalogue([tmp_path / "run"])
        assert list(scratch.iterdir()) == [], broken
    with monkeypatch.context() as patch:
        patch.setattr("camel.query.scope.opened", _fail)
        with pytest.raises(CamelError, match="it broke"):
            view(str(tmp_path / "run"))
    assert list(scratch.iterdir()) == []


def _fail(*_: Any) -> None:
    raise CamelError("it broke")


def test_a_run_created_later_appears(tmp_path: Path):
    """It has its annotations and a unique name, and does not disturb other readers."""
    society(tmp_path / "a" / "trial", rows=5)
    with Catalogue([tmp_path / "a" / "trial"]) as catalogue:
        page = catalogue.page(limit=2)
        with looking(catalogue, lambda: find_runs(tmp_path)):
            (tmp_path / "b" / "half made").mkdir(parents=True)
            made = society(tmp_path / "b" / "trial", rows=7)
            wait_for(lambda: len(catalogue.runs) == 2)
            assert [one.name for one in catalogue.runs] == ["trial", "trial-2"]
            wait_for(lambda: catalogue.count(Query(runs=("trial-2",))) == 7)
            assert catalogue.conversation("trial-2", made[3].id) == made[3]
            assert catalogue.page(after=page.next, limit=50).total == 12
            catalogue.annotate("trial-2", made[3].id, star=True)
            assert [row.id for row in catalogue.page(Query(facets={"starred": ("yes",)})).rows] == [
                made[3].id
            ]
