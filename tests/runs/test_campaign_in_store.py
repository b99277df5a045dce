"""A campaign whose run is in an object store: the same data, the same figures, resumed, forked, budgeted, and no secrets."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyarrow")


from camel import ChatModel, ScriptedModel
from camel.core.errors import InputError
from camel.core.message import Usage
from camel.core.model import Request
from camel.engine import fence
from camel.engine.fence import Claim, Fence
from camel.engine.halt import Halt
from camel.engine.stage import read_step
from camel.engine.supervisor import StepPass, run_here
from camel.formats import exporters
from camel.generation.config import GenerateConfig, RunSection
from camel.generation.generate import Generation
from camel.generation.plan import committed_in
from camel.generation.reuse import reuse_lists
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
from camel.runs.run import RunFolder, open_folder
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


def start(given: GenerateConfig, *, stop_after: int | None = None, copying: bool = False) -> Runner:
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

            campaign.committed, campaign.copying = committed, copying
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
    assert all(sums.known.need.bytes for sums in known.values())


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
            forked = reuse_lists(new, old.where)
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


def another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAMEL_JOURNALS", str(tmp_path / "of another machine"))


def interrupted(given: GenerateConfig) -> GenerateConfig:
    """The run, ended by its budget in the middle of conversations."""
    return msgspec.structs.replace(given, budget=Budget(calls=40))


def lose(campaign: Runner) -> None:
    """Lose the machine with its disk."""
    assert list(campaign.folder.root.glob("journal/*/*-*")), "no shard is open"
    shutil.rmtree(campaign.folder.root)


@pytest.mark.parametrize("before", ["copied from the start", "copied later"])
def test_a_driver_on_another_machine_continues_from_the_copies(
    s3: Server,
    bucket: Bucket,
    tmp_path: Path,
    endpoint: SimulatorProcess,
    monkeypatch: pytest.MonkeyPatch,
    before: str,
):
    given = config(endpoint, bucket("run"))
    first = start(interrupted(given), copying=before == "copied from the start")
    if (
        before == "copied later"
    ):  # the journals of a run on one machine are copied before other nodes get its shards
        first.folder.hold_journals("conversations", copied=True)
    left = {(item, step) for item, step in journaled_calls(first)}
    lose(first)
    another_machine(tmp_path, monkeypatch)
    again = start(given)
    assert len(Run(given.where)) == 12
    assert left
    assert endpoint.ledger().billed_repeats == 0
    assert again.folder.root != first.folder.root
    assert list(again.folder.store.entries("copies")) == []
    assert again.folder.settings()
    # Every later process copies, too.
    holder = again.folder.holder("conversations")
    assert holder
    assert holder.copied
    assert holder.folder == str(again.folder.root)


def journaled_calls(campaign: Runner) -> list[tuple[int, int]]:
    folder = campaign.folder
    entries = [
        read_step(record)
        for shard in folder.journaled("conversations")
        for record in folder.replay("conversations", shard)
    ]
    return [(entry.item, entry.step) for entry in entries]


def test_settings_of_copied_calls_are_kept_on_another_machine(
    s3: Server, bucket: Bucket, tmp_path: Path, endpoint: SimulatorProcess, monkeypatch: pytest.MonkeyPatch
):
    given = config(endpoint, bucket("run"))
    first = start(interrupted(given), copying=True)
    first.folder.remove_shards("conversations", first.folder.committed("conversations"))
    another_machine(tmp_path, monkeypatch)
    there = open_folder(given.where)
    for stage in there.stages():
        there.remove_shards(stage, there.committed(stage))
    assert not there.reset_settings(there.settings())


async def test_of_two_drivers_one_is_refused_and_one_that_woke_up_stops(
    s3: Server, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fence, "RENEW_EVERY", 0.02)
    place, told, halts = bucket("run"), list[str](), (Halt(), Halt())

    def claim(number: int) -> Claim:
        return Claim(open_folder(place, tmp_path / f"machine {number}"), halts[number])

    first = claim(0)
    await first.acquire(lambda event, text, **more: told.append(event))
    with pytest.raises(InputError, match="machine 0"):
        await claim(1).acquire(lambda event, text, **more: told.append(event))
    assert told == ["waiting"]
    # A driver that does not renew its claim is followed once that is stale.
    monkeypatch.setattr(fence, "STALE", 0.05)
    first._closing.set()
    await asyncio.to_thread(first._thread.join)
    second = claim(1)
    await second.acquire(lambda event, text, **more: told.append(event))
    first._closing.clear()
    await asyncio.to_thread(first._renew)
    assert halts[0].is_revoked
    assert not halts[1].reason
    second.release(ended=True)
    told.clear()
    third = claim(0)
    await third.acquire(lambda event, text, **more: told.append(event))
    assert told == [], "who ended properly is not waited for"
    third.release(ended=False)


async def test_a_worker_with_another_folder_waits_until_the_drivers_journals_are_copied(
    s3: Server, bucket: Bucket, tmp_path: Path, endpoint: SimulatorProcess, monkeypatch: pytest.MonkeyPatch
):
    given = config(endpoint, bucket("run"))
    first = await asyncio.to_thread(start, interrupted(given))
    driver = generation(given)
    root, outline = driver.folder.root, driver.job.outline(driver.folder)
    Fence(driver.folder, 0.1).renew()
    monkeypatch.setattr("camel.jobs.cluster._POLL", 0.01)
    another_machine(tmp_path, monkeypatch)
    asked, holder = threading.Event(), RunFolder.holder

    def noted(folder: RunFolder, stage: str) -> Any:
        if folder.root != root:
            asked.set()
        return holder(folder, stage)

    monkeypatch.setattr(RunFolder, "holder", noted)
    site = await JobFactory(Generation(given).absolute(), str(Path.cwd()), 4, False, "of the driver")()
    assert site.report().apart
    assert not driver.folder.copies_journals()
    number = [stage.name for stage in outline].index("conversations")
    waiting = asyncio.create_task(asyncio.to_thread(site.workloads, (number,), 0))
    await asyncio.to_thread(asked.wait, 60)
    assert not waiting.done()
    driver.state.begin(outline)
    left = set(journaled_calls(first))
    driver._folders.append(driver.folder)
    await driver.copy_journals()
    (workload,) = await waiting
    copied = {
        (entry.item, entry.step)
        for shard in site.folder.journaled("conversations")
        for record in site.folder.replay("conversations", shard)
        for entry in [read_step(record)]
    }
    assert copied == left
    assert left
    assert workload.name == "conversations"
    for claim in driver._claims.values():
        claim.release(ended=True)
    await site.aclose()


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
