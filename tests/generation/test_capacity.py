"""The cluster that a run needs: arithmetic from its plan, and constants that agree with what was measured."""

from __future__ import annotations

import asyncio
import json
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from benchmarks import recorded
from camel import ChatModel, InputError, plan_cluster
from camel.generation.capacity import journaled
from camel.generation.config import Assumptions, Figure, GenerateConfig, RunSection
from camel.generation.guesses import Need
from camel.generation.plan import WORKER
from camel.jobs.budget import Budget
from camel.jobs.log import LOG, RunLog
from camel.models.prices import ModelPrice
from camel.models.simulator import LogNormal, SimulatorSettings
from camel.models.spec import ModelSpec
from camel.runs.copies import puts_per_second
from tests.support import in_process
from tests.support.endpoints import serve
from tests.support.jobs import generation

LARGE = {"assistant_role": 5_000, "user_role": 6_000, "task": 10}
EXACT = Assumptions(messages=40, message_tokens=200, cached=0.95, seconds_per_call=5, item_tokens=12)
FIGURES = recorded.figures()


def config(**fields: Any) -> GenerateConfig:
    given = {
        "scenario": "ai_society",
        "counts": LARGE,
        "shard_size": 4096,
        "plan": EXACT,
        "out": "runs/none",
        "model": ModelSpec("simulated", price=ModelPrice(input=0.4, output=1.6)),
    }
    return GenerateConfig(**given | fields)


def test_hours_and_replicas_answer_each_other():
    wanted = plan_cluster(config(), hours=720, rate=10)
    calls = wanted.plan.need.likely.calls
    assert wanted.replicas.likely == ceil(calls / (720 * 3600 * 10))
    assert wanted.calls_per_second == pytest.approx(calls / (720 * 3600))
    there = plan_cluster(config(), replicas=int(wanted.replicas.likely), rate=10)
    assert there.hours.likely <= 720 < there.hours.likely * 1.01
    assert there.hours.low <= there.hours.likely <= there.hours.high


def test_workers_nodes_and_concurrency_follow_from_the_rate_of_calls():
    plan = plan_cluster(config(), hours=720, rate=10, workers_per_node=8)
    assert plan.concurrency == ceil(plan.calls_per_second * 5)
    assert plan.workers == ceil(plan.concurrency / WORKER) == 93
    assert plan.nodes == 12
    small = plan_cluster(config(counts={"assistant_role": 2, "user_role": 2, "task": 1}), replicas=1, rate=50)
    assert small.concurrency == small.plan.items == 4
    assert (small.workers, small.nodes) == (1, 1)
    assert small.disk_per_node == pytest.approx(4 * small.journal_per_item)


def test_tokens_in_the_cache_cost_a_replica_nothing():
    plan = plan_cluster(config(), replicas=100, token_rate=5_000)
    need = plan.plan.need.likely
    new = need.prompt - need.cached + need.completion
    assert plan.hours.likely == pytest.approx(new / 5_000 / 100 / 3600)
    cold = config(plan=Assumptions(messages=40, message_tokens=200, cached=0.0, seconds_per_call=5))
    assert plan_cluster(cold, replicas=100, token_rate=5_000).hours.likely > 5 * plan.hours.likely


def test_gpus_cost_their_hours():
    plan = plan_cluster(config(), hours=100, rate=10, gpu_price=2.5, gpus=4)
    assert plan.gpu_hours.likely == plan.replicas.likely * 100 * 4
    assert plan.gpu_money == Figure(*(2.5 * hours for hours in plan.gpu_hours))
    assert plan_cluster(config(), hours=100, rate=10).gpu_money is None


def test_requests_to_the_store():
    small, large = (plan_cluster(config(shard_size=size), hours=720, rate=10) for size in (256, 4096))
    assert small.shard_puts == 2 * small.plan.shards
    # A file above 5 MiB is sent in parts.
    last = large.plan.stages[-1]
    size = last.need.likely.bytes / last.shards
    assert size > 5 * 2**20
    parts = ceil(size / (5 * 2**20))
    assert large.shard_puts == 2 * large.plan.shards + last.shards * (parts + 1)
    seconds = 720 * 3600
    assert large.copy_puts == pytest.approx(seconds * puts_per_second(93, 1 + 256 / 4096, 0))
    rare = plan_cluster(config(run=RunSection(copy_every=20, copy_bytes=10**9)), hours=720, rate=10)
    assert rare.copy_puts == pytest.approx(large.copy_puts / 10)
    all_calls = plan_cluster(config(run=RunSection(copy_every=1e-6)), hours=720, rate=10)
    assert all_calls.copy_puts == all_calls.plan.left.likely.calls, (
        "without a new reply there is nothing to copy"
    )


def test_memory_is_as_recorded():
    """Of 73,000 shards and 200 workers, in the benchmark `scale`."""
    from camel.generation import capacity

    shards = 73_000
    driver = capacity.DRIVER + shards * capacity.PER_SHARD
    coordinator = capacity.COORDINATOR + shards * capacity.PER_SHARD + 200 * capacity.PER_WORKER
    assert driver / 1e6 == pytest.approx(FIGURES["scale.driver_mb"], rel=0.1)
    assert coordinator / 1e6 == pytest.approx(FIGURES["scale.coordinator_mb"], rel=0.1)
    plan = plan_cluster(config(), hours=720, rate=10)
    assert plan.driver_memory == capacity.DRIVER + plan.plan.shards * capacity.PER_SHARD


def test_a_journal_is_as_large_as_estimated(tmp_path: Path):
    settings = config(
        counts={"assistant_role": 6, "user_role": 5, "task": 1},
        lists="shipped",
        shard_size=30,
        out=str(tmp_path / "run"),
        run=RunSection(concurrency=30),
        budget=Budget(calls=300),
    )

    async def generate(url: str) -> None:
        async with ChatModel("simulated", base_url=url, api_key="") as model:
            assert not (await generation(settings, model).run()).complete

    with serve(SimulatorSettings(words=120, length=LogNormal(median=30, p99=40))) as endpoint:
        asyncio.run(generate(endpoint.base_url))
        used = endpoint.ledger()
    written = sum(file.stat().st_size for file in (tmp_path / "run" / "journal").rglob("0*"))
    assert written
    estimate = journaled(
        Need(used.billed, used.prompt_tokens, used.completion_tokens), EXACT.characters_per_token
    )
    assert written == pytest.approx(estimate, rel=0.2)


@pytest.fixture
def pilot(tmp_path: Path) -> Path:
    """A run on two replicas whose log has a rate: 20 calls per second, with 100 in flight."""
    settings = config(
        counts={"assistant_role": 2, "user_role": 2, "task": 1}, lists="shipped", out=str(tmp_path / "pilot")
    )

    async def generate(url: str) -> None:
        async with ChatModel("simulated", base_url=url, api_key="") as model:
            assert (await generation(settings, model).run()).complete

    with serve(SimulatorSettings(words=20, length=LogNormal(median=4, p99=8))) as endpoint:
        asyncio.run(generate(endpoint.base_url))
    (tmp_path / "pilot" / LOG).unlink(missing_ok=True)
    log = RunLog(tmp_path / "pilot" / LOG)
    log.write("start", concurrency=100)
    for elapsed, calls in ((0.0, 0), (50.0, 1000)):
        log.write("progress", elapsed=elapsed, usage={"calls": calls}, replicas=[{"url": "a"}, {"url": "b"}])
    return tmp_path / "pilot"


def test_the_speed_of_a_replica_is_measured_in_a_pilot(pilot: Path):
    plan = plan_cluster(config(), replicas=10, pilot=str(pilot))
    assert plan.seconds_per_call == pytest.approx(5.0)
    assert plan.calls_per_second == pytest.approx(10 * 20 / 2)
    assert "2 replicas" in plan.speed
    last = plan.plan.stages[-1]
    assert (last.measured, last.elsewhere, last.done) == (4, str(pilot), 0)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"rate": 1}, ("--hours", "--replicas")),
        ({"rate": 1, "hours": 1, "replicas": 1}, ("--hours", "--replicas")),
        ({"hours": 1}, ("--rate", "--token-rate", "--from")),
        ({"hours": 1, "rate": 1, "token_rate": 1}, ("--rate", "--token-rate", "--from")),
        ({"hours": 0, "rate": 1}, ("--hours",)),
        ({"replicas": -1, "rate": 1}, ("--replicas",)),
        ({"hours": 1, "rate": float("nan")}, ("--rate",)),
        ({"hours": 1, "rate": 1, "gpus": 0}, ("--gpus",)),
        ({"hours": 1, "rate": 1, "gpu_price": -2.0}, ("--gpu-price",)),
        ({"hours": 1, "rate": 1, "workers_per_node": 0}, ("--workers-per-node",)),
        ({"hours": 1, "pilot": "runs/none"}, ("runs/none", "--rate", "--token-rate")),
    ],
)
def test_what_is_missing_is_named(given: dict[str, Any], named: tuple[str, ...]):
    with pytest.raises(InputError) as raised:
        plan_cluster(config(), **given)
    assert all(name in str(raised.value) for name in named), raised.value


def test_a_complete_run_needs_nothing(pilot: Path):
    done = config(
        counts={"assistant_role": 2, "user_role": 2, "task": 1},
        lists="shipped",
        out=str(pilot),
        shard_size=None,
        plan=Assumptions(),
    )
    plan = plan_cluster(done, hours=10, rate=1, gpu_price=2)
    assert plan.plan.stages[-1].done == 4
    assert (plan.replicas.likely, plan.calls_per_second, plan.concurrency) == (0, 0, 0)
    assert (plan.shard_puts, plan.copy_puts) == (0, 0)
    assert plan.gpu_money == Figure(0, 0, 0)
    assert plan_cluster(done, replicas=2, rate=1).hours.likely == 0


def test_a_pilot_that_was_too_short_is_refused(pilot: Path):
    (pilot / LOG).unlink()
    with pytest.raises(InputError, match="--token-rate"):
        plan_cluster(config(), hours=1, pilot=str(pilot))


FILE = """
scenario = "ai_society"
counts = { assistant_role = 5000, user_role = 6000, task = 10 }
shard_size = 4096
[model]
name = "gpt-4.1-mini"
[plan]
messages = 40
message_tokens = 200
cached = 0.95
seconds_per_call = 5
"""


def test_the_command(tmp_path: Path):
    (tmp_path / "large.toml").write_text(FILE)
    whole = ["plan", "large.toml", "--cluster", "--hours", "720", "--token-rate", "5000", "--gpu-price", "2"]
    done = in_process.camel(*whole, folder=tmp_path)
    assert done.status == 0, done.stderr
    rows = dict(line.split("  ", 1) for line in done.stdout.splitlines() if "  " in line)
    assert rows["workers"].split()[0] == "93"
    assert rows["replicas"].split()[0] == "390"
    assert rows["cost of GPUs"].split()[0] == "$561,600"
    assert "set it to 23,791" in done.stdout
    cluster = json.loads(in_process.camel(*whole, "--json", folder=tmp_path).stdout)["cluster"]
    assert cluster["workers"] == 93
    assert cluster["replicas"]["likely"] == 390
    assert cluster["gpu_money"]["likely"] == 561_600
    for wrong, named in ((whole[:5], "--token-rate"), (["plan", "large.toml", "--gpus", "2"], "--cluster")):
        refused = in_process.camel(*wrong, folder=tmp_path)
        assert refused.status == 2
        assert named in refused.stderr


def test_the_plan_on_the_page_is_what_the_command_prints(tmp_path: Path):
    page = (Path(__file__).parent.parent.parent / "docs" / "operations.md").read_text()
    (tmp_path / "large.toml").write_text(
        page.partition('```toml title="large.toml"\n')[2].partition("```")[0]
    )
    (command,) = [line for line in page.splitlines() if line.startswith("$ camel plan")]
    done = in_process.camel(*command.split()[2:], folder=tmp_path)
    assert done.status == 0, done.stderr
    shown = page.partition("```text\n")[2].partition("```")[0]
    assert shown.count("\n") == 12
    assert shown in done.stdout
    assert "run.concurrency" not in done.stdout, "the page's configuration allows what it needs"
