"""`--retry-failed`: failed items are done again, and everybody who reads the run sees their new records."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from camel.library.run import Run
from camel.models.simulator import Constant, SimulatorSettings
from camel.query.catalogue import Catalogue
from tests.support.failing import (
    CONVERSATIONS,
    COUNTS,
    REVOKED,
    exported,
    failures,
    generate,
    is_agent,
    paid,
    refusing_conversations,
    refusing_one_list,
    written,
)
from tests.support.in_process import camel
from tests.support.moody import Moody, moody

pytest.importorskip("duckdb")


@pytest.fixture
def endpoint() -> Any:
    with moody(SimulatorSettings(length=Constant(5), words=12)) as made:
        yield made


def serve_all(endpoint: Moody) -> None:
    endpoint.mood = lambda body, count: None


@pytest.fixture
def failed(endpoint: Moody, tmp_path: Path) -> Path:
    """A complete run with failed items, whose endpoint serves all from now on."""
    written(tmp_path, endpoint.base_url)
    endpoint.mood = refusing_conversations(3)
    assert generate(tmp_path).status == 4
    serve_all(endpoint)
    return tmp_path


def test_failed_items_are_done_again_and_no_others(endpoint: Moody, failed: Path):
    old = {one.id: one for one in Run(failed / "run")}
    bad = {name for name, one in old.items() if one.failed}
    asked = len(endpoint.requests)
    done = generate(failed, "--retry-failed")
    assert done.status == 0, done.stdout + done.stderr
    run = Run(failed / "run")
    assert [one.id for one in run] == list(old), "in the same order"
    assert not any(one.failed for one in run)
    assert all(old[one.id] == one for one in run if one.id not in bad)
    assert len(exported(failed)) == len(run) == CONVERSATIONS
    assert run.sql("select count(*) from run where stop.reason = 'error'").fetchall() == [(0,)]
    made = len(endpoint.requests) - asked
    assert made == sum(one.usage.calls for one in run if one.id in bad)
    assert paid(failed) == len(endpoint.served), "what was paid for failed items is counted still"
    assert camel("run", "verify", "run", folder=failed).status == 0
    status = json.loads(camel("run", "status", "run", "--json", folder=failed).stdout)
    assert status["state"] == "complete"
    assert generate(failed, "--retry-failed").status == 0
    assert len(endpoint.requests) == asked + made, "nothing is left to retry"


def test_a_retry_may_fail_again(endpoint: Moody, failed: Path):
    before = failures(failed)
    endpoint.mood = refusing_conversations(3)
    assert generate(failed, "--retry-failed").status == 4
    assert failures(failed).total() <= before.total()
    serve_all(endpoint)
    assert generate(failed, "--retry-failed").status == 0
    assert not failures(failed)
    assert paid(failed) == len(endpoint.served)


def test_a_retry_that_was_stopped_is_continued_by_the_same_command_without_it(endpoint: Moody, failed: Path):
    served = len(endpoint.served)
    endpoint.mood = lambda body, count: REVOKED if len(endpoint.served) > served + 10 else None
    assert generate(failed, "--retry-failed").status == 3
    assert json.loads(camel("run", "status", "run", "--json", folder=failed).stdout)["state"] == "stopped"
    assert len(Run(failed / "run")) == CONVERSATIONS, "what there was can still be read"
    serve_all(endpoint)
    done = generate(failed)
    assert done.status == 0, done.stdout + done.stderr
    assert not failures(failed)
    asked = Counter(body for body in endpoint.served[served:] if is_agent(json.loads(body)))
    assert set(asked.values()) == {1}, "no reply is paid for twice"
    assert not list((failed / "run" / "journal").rglob("*-*"))


def test_a_failed_list_is_asked_for_again_and_then_what_needs_it(endpoint: Moody, tmp_path: Path):
    written(tmp_path, endpoint.base_url)
    endpoint.mood = refusing_one_list()
    assert generate(tmp_path).status == 4
    assert failures(tmp_path) == {"ListFailed": COUNTS["task"]}
    serve_all(endpoint)
    done = generate(tmp_path, "--retry-failed")
    assert done.status == 0, done.stdout + done.stderr
    assert not failures(tmp_path)
    assert not any("failed" in one.task.original for one in Run(tmp_path / "run"))
    assert paid(tmp_path) == len(endpoint.served)
    assert camel("run", "verify", "run", folder=tmp_path).status == 0


def test_indexes_and_compactions_of_before_are_not_believed(
    endpoint: Moody, failed: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("camel.query.database.FRESH", -math.inf)
    for words in (("run", "index", "run", "--findings"), ("run", "compact", "run")):
        assert camel(*words, folder=failed).status == 0
    merged = {path.name for path in (failed / "run" / "index" / "conversations").glob("m*")}
    assert merged
    catalogue = Catalogue([failed / "run"])
    assert dict(catalogue.facets()["stop"])["error"] == failures(failed).total()
    assert generate(failed, "--retry-failed").status == 0
    assert "error" not in dict(catalogue.facets()["stop"]), "a page that is open shows the new records"
    assert sum(dict(catalogue.facets()["stop"]).values()) == CONVERSATIONS
    catalogue.close()
    assert not failures(failed)
    assert len(exported(failed)) == CONVERSATIONS
    assert camel("run", "verify", "run", folder=failed).status == 0
    for words in (
        ("run", "index", "run", "--findings"),
        ("run", "compact", "run"),
        ("run", "gc", "run", "--compacted", "--yes"),
    ):
        done = camel(*words, folder=failed)
        assert done.status == 0, done.stderr
    assert camel("run", "verify", "run", folder=failed).status == 0
    assert len(exported(failed)) == CONVERSATIONS
    assert not failures(failed)
    left = {path.name for path in (failed / "run" / "index" / "conversations").glob("m*")}
    assert merged - left, "index files of before are removed"


def test_what_was_compacted_and_removed_cannot_be_retried(endpoint: Moody, failed: Path):
    for words in (("run", "compact", "run"), ("run", "gc", "run", "--compacted", "--yes")):
        assert camel(*words, folder=failed).status == 0
    asked = len(endpoint.requests)
    done = generate(failed, "--retry-failed")
    assert done.status == 2
    assert "--reuse-lists" in done.stderr
    assert len(endpoint.requests) == asked
