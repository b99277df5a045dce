"""A job's part in a cluster: grants that never add up to more than the budget, and figures that add up at all."""

from __future__ import annotations

import asyncio
import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel.core.errors import InputError
from camel.core.message import Usage
from camel.engine.coordinator import Totals
from camel.engine.fence import Fence
from camel.engine.halt import Halt
from camel.engine.site import Grant, ModelReport, WorkerReport, WorkerShare, summed
from camel.engine.supervisor import StepPass, run_here
from camel.generation.config import GenerateConfig, RunSection
from camel.generation.generate import Generation
from camel.jobs.account import read_account
from camel.jobs.budget import Budget, Meter
from camel.jobs.cluster import Cluster, JobFactory, JobSite, rates_of, worker_environment
from camel.jobs.shares import Shares
from camel.models.simulator import Constant, SimulatorSettings
from camel.models.spec import ModelSpec
from tests.support.endpoints import serve
from tests.support.jobs import generation, stops
from tests.support.sharing import divide
from tests.support.virtual_time import now, virtual_time


def report(calls: int = 0, tokens: int = 0, *, starved: int = 0, in_flight: int = 0) -> WorkerReport:
    model = ModelReport(Usage(prompt=tokens, calls=calls))
    return WorkerReport({"m": model}, starved=starved, in_flight=in_flight)


async def site_of(config: GenerateConfig, worker: str = "") -> JobSite:
    """A worker's site, as a driver has it made elsewhere."""
    job = Generation(config).absolute()
    return await JobFactory(job, str(Path.cwd()), config.run.concurrency, bool(worker))(worker)


def shares_of(config: GenerateConfig, **more: Any) -> Shares:
    return Shares(config.budget, rates_of(Generation(config), config.run.concurrency), **more)


@given(
    budget=st.integers(1, 500),
    moves=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 40), st.booleans()), max_size=80),
)
def test_grants_never_exceed_the_budget_when_workers_die(budget: int, moves: list[tuple[int, int, bool]]):
    grants = Shares(Budget(calls=budget), {})
    used: Counter[str] = Counter()
    granted: dict[str, float] = {}
    alive = [f"w{number}" for number in range(5)]
    for number, (who, want, dies) in enumerate(moves):
        reports = {name: report(used[name]) for name in {*used, *alive}}
        shares, _ = divide(grants, reports, alive)
        for name, share in shares.items():
            assert share.grant is not None
            assert share.grant.calls >= granted.get(name, 0.0), "what was given is not taken back"
            granted[name] = share.grant.calls
        assert sum(granted.values()) <= budget
        worker = alive[who]
        used[worker] += min(want, int(granted.get(worker, 0.0)) - used[worker])
        assert used.total() <= budget
        if dies:
            alive[who] = f"x{number}"


def test_one_worker_can_use_all_of_it():
    grants = Shares(Budget(calls=100), {}, before=Usage(calls=40))
    used, why = 0, ""
    for _ in range(100):
        starved = used > 0
        shares, why = divide(grants, {"a": report(used, starved=starved)}, ["a"])
        grant = shares["a"].grant
        assert grant is not None
        used = int(grant.calls)
        if why:
            break
    assert used == 60, "what earlier starts used counts, and the rest can be had"
    assert "calls" in why


def test_money_and_tokens_are_granted_as_well():
    grants = Shares(Budget(usd=1.0, tokens=1_000_000), {}, before=Usage(prompt=100_000, usd=0.1))
    shares, _ = divide(grants, {}, ["a", "b"])
    given_out = [share.grant for share in shares.values() if share.grant]
    assert given_out[0].usd == pytest.approx(0.9 / 4)
    assert sum(grant.tokens for grant in given_out) <= 900_000


def test_without_a_budget_nothing_is_limited():
    shares, halt = divide(Shares(Budget(hours=1), {}), {"a": report(10)}, ["a"])
    assert (shares, halt) == ({"a": WorkerShare(1, number=1)}, "")


@virtual_time
async def test_a_call_beyond_the_grant_waits_for_the_next():
    meter = Meter(Budget(), Halt())
    meter.grant = Grant(calls=1)
    assert meter.within_grant()
    meter.begin()
    assert not meter.within_grant()
    waiting = asyncio.create_task(meter.wait_for_grant())
    await asyncio.sleep(0.15)
    assert not waiting.done()
    assert meter.starved == 1
    meter.grant = Grant(calls=2)
    async with asyncio.timeout(60):
        await waiting
    assert meter.starved == 0


def test_what_travels_holds_no_key_and_means_the_same_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    monkeypatch.setenv("HOME_MADE", "not handed over")
    monkeypatch.chdir(tmp_path)
    job = Generation(GenerateConfig(scenario="ai_society", model=ModelSpec("m"), out="run"))
    data = pickle.dumps(JobFactory(job.absolute(), str(tmp_path), 4))
    assert b"sk-very-secret" not in data
    assert pickle.loads(data).job.place == str(tmp_path / "run")
    handed = worker_environment(job)
    assert handed["OPENAI_API_KEY"] == "sk-very-secret"
    assert "HOME_MADE" not in handed
    assert handed["CAMEL_JOURNALS"] == str(tmp_path / "runs/.journals")
    monkeypatch.setenv("CAMEL_JOURNALS", "journals")
    assert worker_environment(job)["CAMEL_JOURNALS"] == str(tmp_path / "journals"), (
        "wherever a worker is started"
    )


async def test_a_node_that_does_not_see_the_run_makes_none_of_its_own(
    tmp_path: Path, snapshot: Callable[..., None]
):
    config = GenerateConfig(scenario="ai_society", model=ModelSpec("m"), out=str(tmp_path / "run"))
    with pytest.raises(InputError, match=str(tmp_path / "run")) as refused:
        await site_of(config)
    snapshot("errors", refused.value)
    assert not (tmp_path / "run").exists()


@virtual_time
async def test_nothing_is_counted_while_workers_of_a_killed_start_may_spend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = GenerateConfig(scenario="ai_society", model=ModelSpec("m"), out=str(tmp_path / "run"))
    runner = generation(config)
    Fence(runner.folder, 600.0).renew()
    left, begun = Fence.left, now()
    monkeypatch.setattr(Fence, "left", lambda fence: max(0.0, left(fence) - (now() - begun)))
    waits: list[float] = []
    begin = runner.state.begin

    def counted(stages: Any) -> None:
        waits.append(Fence(runner.folder).left())
        begin(stages)

    async def at_once(work: StepPass) -> bool:
        return True

    monkeypatch.setattr(runner.state, "begin", counted)
    runner.supervisor = at_once
    assert Fence(runner.folder).left() > 500
    await runner.run()
    assert waits
    assert set(waits) == {0.0}


async def test_what_the_driver_shows_adds_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Half of a run by a worker's site, its reports gathered as a driver does; the other half as usual."""
    monkeypatch.setattr("camel.engine.fence.MARGIN", 0.0)
    with serve(SimulatorSettings(length=Constant(5))) as endpoint:
        config = GenerateConfig(
            scenario="ai_society",
            model=ModelSpec("simulated", base_url=endpoint.base_url),
            out=str(tmp_path / "run"),
            counts={"assistant_role": 2, "user_role": 2, "task": 4},
            lists="asked",
            shard_size=4,
            run=RunSection(concurrency=4),
        )
        driver = generation(config)
        cluster = Cluster(driver, "local")
        Fence(driver.folder, 0.0).renew()
        site = await site_of(config)
        given_out, _ = divide(shares_of(config), {"w": site.report()}, ["w"])
        site.apply_share(given_out["w"])  # without a word from the coordinator no call is made
        told: list[tuple[str, int]] = []

        class Supervisor:
            """Does on the worker's site what a cluster does elsewhere."""

            async def run(self, work: StepPass) -> bool:
                def note(stage: str, shard: int) -> None:
                    site.committed(stage, shard)
                    told.append((stage, shard))
                    work.committed(stage, shard)
                    report = summed({"a": site.report()}, ["a"])
                    cluster.watch(Totals(1, False, (), report, ("a",), {}))
                    tally = driver.state.tallies[stage]
                    assert tally.committed <= tally.finished <= tally.planned
                    assert tally.counts.total() <= 16

                there = site.workloads(work.step, work.attempt)
                return await run_here(
                    replace(work, workloads=there, folder=site.folder, halt=site.halt, committed=note)
                )

        monkeypatch.setattr(cluster, "_supervisor", Supervisor())
        outcome = await driver.run()
        await site.aclose()
        assert outcome.complete
        ledger = endpoint.ledger()
    assert driver.meter.usage.calls == ledger.billed
    assert driver.meter.usage.prompt == ledger.prompt_tokens
    tally = driver.state.tallies["conversations"]
    assert (tally.committed, tally.finished, tally.failed) == (16, 16, 0)
    assert sum(stops(driver).values()) == 16
    assert len(told) == 3 + 4
    assert msgspec.json.encode(site.report())


async def test_the_account_of_a_worker_that_is_killed_says_what_it_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("camel.engine.fence.MARGIN", 0.0)
    with serve(SimulatorSettings(length=Constant(8), latency=Constant(0.02))) as endpoint:
        config = GenerateConfig(
            scenario="ai_society",
            model=ModelSpec("simulated", base_url=endpoint.base_url),
            out=str(tmp_path / "run"),
            counts={"assistant_role": 4, "user_role": 4, "task": 1},
            run=RunSection(concurrency=8),
            budget=Budget(calls=1_000),
        )
        Fence(generation(config).folder, 0.0).renew()
        site = await site_of(config, "w1")
        shares = shares_of(config, accounts=site.folder.root)
        given, _ = divide(shares, {"w1": site.report()}, ["w1"])
        site.apply_share(given["w1"])
        assert site.report().follows == given["w1"].offer

        def sent() -> int:
            account = read_account(site.folder.root, "w1")
            assert account is not None
            return account.usage.calls

        assert sent() == 0
        first = StepPass(workloads=site.workloads((0,), 0), folder=site.folder, concurrency=8, halt=site.halt)
        await run_here(first)
        assert sent() == endpoint.ledger().billed
        work = run_here(replace(first, workloads=site.workloads((1,), 0)))
        begun = endpoint.ledger().requests
        killed = asyncio.create_task(work)
        while endpoint.ledger().requests == begun:  # noqa: ASYNC110 - the endpoint is on another thread
            await asyncio.sleep(0)
        killed.cancel()
        await asyncio.gather(killed, return_exceptions=True)
        while endpoint.ledger().in_flight:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert sent() == endpoint.ledger().requests
        await site.aclose()
        left, halt = divide(shares, {"w1": site.report(), "w2": WorkerReport()}, ["w2"])
        assert not halt
        assert left["w2"].grant == Grant(calls=-(-(1_000 - sent()) // 2))
