"""A campaign whose run is in an object store: the same data, the same figures, resumed, forked, budgeted, and no secrets."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from benchmarks.s3_faults import Faults, Server
from camel import ChatModel
from camel.core.message import Usage
from camel.generation.campaign import Campaign
from camel.generation.config import Budget, GenerateConfig, ModelSection, RunSection
from camel.generation.fork import fork_run
from camel.generation.plan import committed_in
from camel.generation.status import RunLog, find_runs, planned_shards, read_status
from camel.models.simulator import Constant, SimulatorProcess, SimulatorSettings, spawn
from camel.storage import exporters
from camel.storage.reader import Run
from camel.storage.run import open_folder
from camel.storage.verify import verify

Bucket = Callable[[str], str]
COUNTS = {"assistant_role": 3, "user_role": 2, "task": 2}


@pytest.fixture
def endpoint() -> Iterator[SimulatorProcess]:
    with spawn(SimulatorSettings(length=Constant(5))) as process:
        yield process


def config(endpoint: SimulatorProcess, out: str, **more: Any) -> GenerateConfig:
    model = ModelSection("simulated", base_url=endpoint.base_url)
    run = RunSection(concurrency=4)
    return GenerateConfig("ai_society", model, out=out, counts=COUNTS, shard_size=2, run=run, **more)


def start(given: GenerateConfig, *, stop_after: int | None = None) -> Campaign:
    """Run until the end, or for so many shards of conversations."""

    async def work() -> Campaign:
        async with ChatModel(given.model.name, base_url=given.model.base_url) as model:
            campaign = Campaign(given, model)
            left = stop_after

            def committed(stage: str, shard: int) -> None:
                nonlocal left
                if left is not None and stage == "conversations":
                    left -= 1
                    if left <= 0:
                        campaign.halt.set("enough")

            await campaign.run(committed)
            return campaign

    return asyncio.run(work())


def export(where: str | Path, path: Path) -> str:
    exporters.chat(Run(where), path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_same_data_and_figures_as_on_a_disk(
    s3: Server, bucket: Bucket, tmp_path: Path, endpoint: SimulatorProcess
):
    here, there = str(tmp_path / "run"), bucket("runs/run")
    plain = start(config(endpoint, here))
    s3.set(Faults(errors=0.05, lost=0.05))
    remote = start(config(endpoint, there))
    s3.set(Faults())
    assert remote.tallies["conversations"].usage == plain.tallies["conversations"].usage
    assert export(here, tmp_path / "a.jsonl") == export(there, tmp_path / "b.jsonl")
    statuses = [read_status(where) for where in (here, there)]
    assert statuses[0].usage == statuses[1].usage
    assert statuses[1].run == there
    assert find_runs(bucket("runs")) == [there]
    assert find_runs(bucket("elsewhere")) == []
    folder = open_folder(there)
    report = verify(folder, planned_shards(folder))
    assert report.sound
    assert report.complete
    assert report.rows == 12 + 1 + 1 + 6
    known = committed_in(folder, config(endpoint, there))
    assert known.keys() == committed_in(open_folder(here), config(endpoint, here)).keys()
    assert all(shard.need.bytes for shards in known.values() for shard in shards)


@pytest.mark.parametrize(
    ("budget", "first"),
    [(Budget(), 0), (Budget(), 1_000), (Budget(calls=10_000), 0)],
    ids=["beside", "few", "budget"],
)
def test_a_run_in_a_store_is_resumed(
    s3: Server,
    bucket: Bucket,
    endpoint: SimulatorProcess,
    monkeypatch: pytest.MonkeyPatch,
    budget: Budget,
    first: int,
):
    monkeypatch.setattr("camel.generation.campaign.COUNTED_FIRST", first)
    given = config(endpoint, bucket("run"), budget=budget)
    before = start(given, stop_after=2)
    used = before.meter.before + before.meter.usage
    calls = endpoint.ledger().requests
    again = start(given)
    assert again.meter.before == used
    assert again.tallies["conversations"].committed == again.tallies["conversations"].finished == 12
    assert sum(again.stops.values()) == 12
    assert again.meter.before + again.meter.usage == sum(
        (tally.usage for tally in again.tallies.values()), Usage()
    )
    assert endpoint.ledger().requests - calls == again.meter.usage.calls
    third = start(given)
    assert third.meter.usage.calls == 0
    assert third.meter.before == again.meter.before + again.meter.usage
    assert not list((third.folder.root / "journal").rglob("*-*"))
    assert len(Run(given.where)) == 12


def test_a_fork_from_a_store_takes_the_lists(
    s3: Server, bucket: Bucket, tmp_path: Path, endpoint: SimulatorProcess
):
    old = config(endpoint, bucket("old"))
    start(old)
    for target in (str(tmp_path / "new"), bucket("new")):
        new = config(endpoint, target)
        assert fork_run(new, old.where) == ["assistant_role", "user_role", "task"]
        assert fork_run(new, old.where) == ["assistant_role", "user_role", "task"]
        folder = open_folder(target)
        assert verify(folder).sound
        assert len(list(folder.store.entries("data"))) == 3


def test_the_log_can_be_read_from_another_machine(
    s3: Server, bucket: Bucket, tmp_path: Path, endpoint: SimulatorProcess, monkeypatch: pytest.MonkeyPatch
):
    given = config(endpoint, bucket("run"))
    campaign = start(given, stop_after=1)
    log = RunLog(campaign.folder.root / "log.jsonl")
    log.write("start", stages={"conversations": 12}, resume="camel generate x.toml")
    campaign.folder.save_beside("log.jsonl")
    monkeypatch.setenv("CAMEL_JOURNALS", str(tmp_path / "other"))
    now = read_status(given.where)
    assert now.resume == "camel generate x.toml"
    assert now.state == "stopped"
    assert not (tmp_path / "other").exists()


def test_no_secret_is_stored(
    s3: Server, bucket: Bucket, tmp_path: Path, endpoint: SimulatorProcess, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-8d2e-secret")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "canary-8d2e-id")
    given = config(endpoint, bucket("run"))
    campaign = start(given, stop_after=1)
    folder = campaign.folder
    everything = [folder.store.get(entry.name) for entry in folder.store.entries("")]
    everything += [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(everything) > 5
    assert not any(b"canary-8d2e" in data for data in everything)
