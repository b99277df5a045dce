"""A campaign whose run is in an object store: the same data, the same figures, resumed, forked, budgeted, and no secrets."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")


from camel import ChatModel, ScriptedModel
from camel.core.errors import InputError
from camel.core.message import Usage
from camel.core.model import Request
from camel.engine.fence import Fence
from camel.engine.halt import Halt
from camel.engine.supervisor import StepPass, run_here
from camel.formats import exporters
from camel.generation.config import GenerateConfig, RunSection
from camel.generation.fork import fork_run
from camel.generation.generate import Generation
from camel.generation.plan import committed_in
from camel.generation.translate import Translation
from camel.jobs.budget import Budget
from camel.jobs.cluster import JobFactory, JobSite, rates_of
from camel.jobs.log import RunLog
from camel.jobs.runner import Runner
from camel.jobs.shares import Shares
from camel.jobs.state import JobState
from camel.jobs.status import find_runs, planned_shards, read_status
from camel.library.run import Run
from camel.models.simulator import Constant, SimulatorProcess, SimulatorSettings
from camel.models.spec import ModelSpec
from camel.runs.run import open_folder
from camel.runs.verify import verify
from camel.storage.store import BucketStore
from tests.support.endpoints import serve
from tests.support.jobs import generation, stops
from tests.support.s3_faults import Faults, Server
from tests.support.sharing import divide

Bucket = Callable[[str], str]
COUNTS = {"assistant_role": 3, "user_role": 2, "task": 2}


@pytest.fixture(scope="module")
def _endpoint() -> Iterator[SimulatorProcess]:
    with serve(SimulatorSettings(length=Constant(5))) as process:
        yield process


@pytest.fixture
def endpoint(_endpoint: SimulatorProcess) -> SimulatorProcess:
    _endpoint.reset()
    return _endpoint


def config(endpoint: SimulatorProcess, out: str, **more: Any) -> GenerateConfig:
    model = ModelSpec("simulated", base_url=endpoint.base_url)
    run = RunSection(concurrency=4)
    return GenerateConfig(
        "ai_society", model, out=out, counts=COUNTS, lists="asked", shard_size=2, run=run, **more
    )


async def site_of(given: GenerateConfig) -> JobSite:
    """A worker's site, as a driver has it made elsewhere."""
    return await JobFactory(Generation(given).absolute(), str(Path.cwd()), 4)()


def start(given: GenerateConfig, *, stop_after: int | None = None) -> Runner:
    """Run until the end, or for so many shards of conversations."""

    async def work() -> Runner:
        async with ChatModel(given.model.name, base_url=given.model.base_url) as model:
            campaign = generation(given, model)
            left = stop_after

            def committed(state: JobState, stage: str, shard: int) -> None:
                nonlocal left
                if left is not None and stage == "conversations":
                    left -= 1
                    if left <= 0:
                        campaign.halt.set("enough")

            campaign.committed = committed
            await campaign.run()
            return campaign

    return asyncio.run(work())


def export(where: str | Path, path: Path) -> str:
    exporters.chat(Run(where), path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.slow
@pytest.mark.usefixtures("quick_retries")
def test_the_same_data_and_figures_as_on_a_disk(
    s3: Server, bucket: Bucket, tmp_path: Path, endpoint: SimulatorProcess
):
    here, there = str(tmp_path / "run"), bucket("runs/run")
    plain = start(config(endpoint, here))
    s3.set(Faults(errors=0.05, lost=0.05))
    remote = start(config(endpoint, there))
    s3.set(Faults())
    assert remote.state.tallies["conversations"].usage == plain.state.tallies["conversations"].usage
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
    ids=["background", "few", "budget"],
)
def test_a_run_in_a_store_is_resumed(
    s3: Server,
    bucket: Bucket,
    endpoint: SimulatorProcess,
    monkeypatch: pytest.MonkeyPatch,
    budget: Budget,
    first: int,
):
    monkeypatch.setattr("camel.jobs.state.COUNTED_FIRST", first)
    given = config(endpoint, bucket("run"), budget=budget)
    before = start(given, stop_after=2)
    used = before.meter.before + before.meter.usage
    calls = endpoint.ledger().requests
    with monkeypatch.context() as elsewhere:  # without its journals and its log
        elsewhere.setenv("CAMEL_JOURNALS", "/nowhere")
        assert read_status(given.where).state == "stopped"
    again = start(given)
    assert again.meter.before == used
    assert (
        again.state.tallies["conversations"].committed == again.state.tallies["conversations"].finished == 12
    )
    assert sum(stops(again).values()) == 12
    assert again.meter.before + again.meter.usage == sum(
        (tally.usage for tally in again.state.tallies.values()), Usage()
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
        for _ in range(2):
            forked = fork_run(new, old.where)
            assert sorted(forked.stages()) == ["assistant_role", "task", "user_role"]
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
    campaign.folder.copy_to_store("log.jsonl")
    monkeypatch.setenv("CAMEL_JOURNALS", str(tmp_path / "other"))
    now = read_status(given.where)
    assert now.resume == "camel generate x.toml"
    assert now.state == "stopped"
    assert not (tmp_path / "other").exists()


def test_journals_are_in_one_folder_and_a_start_from_another_asks_nothing(
    s3: Server, bucket: Bucket, tmp_path: Path, endpoint: SimulatorProcess, monkeypatch: pytest.MonkeyPatch
):
    given = config(endpoint, bucket("run"))
    held = start(given, stop_after=1).folder.root
    asked = endpoint.ledger().requests
    monkeypatch.setenv("CAMEL_JOURNALS", str(tmp_path / "other"))
    for _ in range(2):
        with pytest.raises(InputError, match=r" s3://.*/holders/") as refused:
            start(given)
    assert str(held) in str(refused.value)
    assert endpoint.ledger().requests == asked
    assert str(held) in read_status(given.where).journals

    # A folder that was moved still has them.
    moved = tmp_path / "other" / held.relative_to(tmp_path / "journals")
    shutil.rmtree(moved)
    shutil.move(held, moved)
    assert not read_status(given.where).journals
    start(given, stop_after=2)

    # And one that was lost is given up by hand.
    monkeypatch.setenv("CAMEL_JOURNALS", str(tmp_path / "third"))
    open_folder(given.where).store.remove(["holders/conversations.json"])
    start(given)
    assert len(Run(given.where)) == 12
    monkeypatch.setenv("CAMEL_JOURNALS", str(tmp_path / "fourth"))
    assert start(given).meter.usage.calls == 0, "nothing is left that could be paid for twice"


def test_a_driver_killed_before_it_recorded_that_it_holds_the_journals_resumes(
    s3: Server, bucket: Bucket, endpoint: SimulatorProcess
):
    given = config(endpoint, bucket("run"))
    folder = start(given, stop_after=1).folder
    folder.store.remove(["holders/conversations.json"])
    folder.hold_journals("conversations")
    folder.hold_journals("conversations")
    assert folder.held_elsewhere("conversations") is None


def test_a_start_that_is_refused_does_not_say_what_a_translation_was_begun_with(
    s3: Server, bucket: Bucket, tmp_path: Path, endpoint: SimulatorProcess, monkeypatch: pytest.MonkeyPatch
):
    given = config(endpoint, bucket("run"))
    start(given)
    halt = Halt()

    def reply(request: Request) -> str:
        halt.set("stopped by you")
        return "Nein."

    def translation(model: ScriptedModel) -> Runner:
        return Runner(Translation(given.where, ("de",), model), halt=halt, concurrency=1)

    assert asyncio.run(translation(ScriptedModel(reply, name="first")).run()).status == "stopped"
    monkeypatch.setenv("CAMEL_JOURNALS", str(tmp_path / "other"))
    with pytest.raises(InputError, match=r"'first'.*'second'"):
        asyncio.run(translation(ScriptedModel([], name="second")).run())
    monkeypatch.setenv("CAMEL_JOURNALS", str(tmp_path / "journals"))
    asyncio.run(translation(ScriptedModel([], name="first")).run())


async def test_a_worker_does_not_wait_for_the_store_where_it_has_to_say_that_it_is_alive(
    s3: Server, bucket: Bucket, tmp_path: Path, endpoint: SimulatorProcess, monkeypatch: pytest.MonkeyPatch
):
    given = config(endpoint, bucket("run"))
    with pytest.raises(InputError, match="CAMEL_JOURNALS"):
        await site_of(given)
    driver = generation(given)
    with driver.folder.locked():
        Fence(driver.folder, 0.1).renew()
    site = await site_of(given)
    share_out = Shares(Budget(), rates_of(Generation(given), 4))

    async def coordinate() -> None:
        while True:
            site.apply_share(divide(share_out, {"w": site.report()}, ["w"])[0]["w"])
            await asyncio.sleep(0.2)

    waited: list[str] = []
    get = BucketStore.get

    def noted(store: BucketStore, name: str) -> bytes:
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            waited.append(name)
        return get(store, name)

    monkeypatch.setattr(BucketStore, "get", noted)
    coordinating = asyncio.create_task(coordinate())
    for step in range(len(driver.job.outline(driver.folder))):
        there = site.workloads((step,), 0)
        work = StepPass(
            workloads=there, folder=site.folder, concurrency=4, halt=site.halt, committed=site.committed
        )
        assert await run_here(work)
    coordinating.cancel()
    await site.aclose()
    assert len(Run(given.where)) == 12
    assert [name for name in waited if name.startswith(("committed/", "data/"))] == []


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
