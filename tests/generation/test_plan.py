"""The estimate: exact where it is arithmetic, honest where it guesses, close once it has measured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from math import sqrt
from pathlib import Path
from statistics import stdev

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from camel import ChatModel, InputError, ScriptedModel
from camel.core.model import Model, Reply, Request
from camel.generation.config import (
    Assumptions,
    Budget,
    Figure,
    GenerateConfig,
    RunSection,
    read_config,
    shard_size_for,
)
from camel.generation.forecast import CallRate, assumed_rate, measured_rate, warnings
from camel.generation.guesses import Need, messages_assumed
from camel.generation.plan import (
    Committed,
    Plan,
    Range,
    ShardSums,
    committed_in,
    limits,
    make_plan,
    read_committed,
    workers,
)
from camel.jobs.log import LOG, RunLog
from camel.jobs.progress import Watcher
from camel.jobs.status import read_status
from camel.models.prices import ModelPrice
from camel.models.simulator import LogNormal, SimulatorProcess, SimulatorSettings
from camel.models.spec import ModelSpec
from camel.runs.markers import Marker
from camel.runs.run import RunFolder
from tests.support.endpoints import serve
from tests.support.jobs import generation

PRICE = ModelPrice(input=0.4, output=1.6)
THOROUGH, SLOW = pytest.mark.thorough, pytest.mark.slow
CONVERSATIONS, SHARDS = 160, 40
"""Of the finished run."""


def config(scenario: str = "ai_society", lists: str = "asked", **fields: object) -> GenerateConfig:
    model = ModelSpec("simulated", price=PRICE)
    return GenerateConfig(scenario=scenario, model=model, lists=lists, **fields)  # type: ignore[arg-type]


def run(settings: GenerateConfig, url: str) -> None:
    async def generate() -> None:
        async with ChatModel("simulated", base_url=url, api_key="") as model:
            assert (await generation(settings, model).run()).complete

    asyncio.run(generate())


class Finished:
    """A whole run on the simulated endpoint, its configuration and what the endpoint says it cost."""

    def __init__(self, config: GenerateConfig, endpoint: SimulatorProcess) -> None:
        ledger = endpoint.ledger()
        self.config, self.billed = config, ledger.billed
        self.tokens = ledger.prompt_tokens + ledger.completion_tokens
        self.money = (0.4 * ledger.prompt_tokens + 1.6 * ledger.completion_tokens) / 1e6
        self.committed = committed_in(RunFolder(Path(config.where)), config)

    def plan_after(self, shards: int) -> Plan:
        """The estimate as it was when so many shards of conversations were committed."""
        folder = RunFolder(Path(self.config.where))
        first = folder.markers("conversations", sorted(folder.committed("conversations"))[:shards])
        sums = ShardSums(read_committed(folder, marker) for marker in first)
        seen = {**self.committed, "conversations": sums}
        return make_plan(self.config, committed=seen)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    settings = config(
        counts={"assistant_role": 8, "user_role": 5, "task": 4},
        out=str(tmp_path_factory.mktemp("plan") / "run"),
        shard_size=4,
        run=RunSection(concurrency=32),
    )

    with serve(SimulatorSettings(words=60, length=LogNormal(median=6, p99=16))) as endpoint:
        run(settings, endpoint.base_url)
        yield Finished(settings, endpoint)


def total(need: Need) -> float:
    return need.prompt + need.completion


def test_a_finished_run_is_known_exactly(finished: Finished):
    plan = make_plan(finished.config, committed=finished.committed)
    assert {round(need.calls) for need in plan.need} == {finished.billed}
    assert {round(total(need)) for need in plan.need} == {finished.tokens}
    assert plan.money is not None
    assert plan.money.likely == pytest.approx(finished.money)
    status = read_status(finished.config.where)
    assert status.usage.total == finished.tokens


@pytest.mark.parametrize("shards", [4, 8, 20])
def test_the_estimate_is_close_once_a_tenth_is_measured(finished: Finished, shards: int):
    plan = finished.plan_after(shards)
    low, likely, high = (total(need) for need in plan.need)
    assert abs(likely / finished.tokens - 1) <= 0.15
    assert low <= finished.tokens <= high
    assert plan.money is not None
    assert abs(plan.money.likely / finished.money - 1) <= 0.15


def test_the_range_narrows(finished: Finished):
    widths = [
        (need.high.prompt - need.low.prompt) / need.likely.prompt
        for shards in (1, 8, 30, SHARDS)
        for need in [finished.plan_after(shards).need]
    ]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] == 0


@pytest.mark.parametrize(
    ("scenario", "counts", "within"),
    [
        pytest.param("ai_society", {"assistant_role": 20, "user_role": 20, "task": 1}, 0.15, marks=THOROUGH),
        pytest.param("code", {"language": 4, "domain": 10, "task": 10}, 0.15, marks=THOROUGH),
        pytest.param("math", {"topic": 5, "subtopic": 5, "problem": 20}, 0.15, marks=THOROUGH),
        pytest.param("physics", {"topic": 5, "subtopic": 5, "problem": 20}, 0.15, marks=THOROUGH),
        # Chance moves a mean of a few conversations further.
        pytest.param("ai_society", {"assistant_role": 8, "user_role": 8, "task": 1}, 0.2, marks=SLOW),
        pytest.param("code", {"language": 4, "domain": 4, "task": 4}, 0.2, marks=SLOW),
        ("math", {"topic": 2, "subtopic": 5, "problem": 10}, 0.15),
        ("physics", {"topic": 2, "subtopic": 5, "problem": 10}, 0.15),
    ],
)
def test_before_any_call_the_estimate_is_close(
    scenario: str, counts: dict[str, int], within: float, tmp_path: Path
):
    """On the endpoint as it comes, with the assumptions as they come: both follow the paper's conversations."""
    settings = config(scenario, "shipped", counts=counts, out=str(tmp_path / "run"))
    with serve(SimulatorSettings()) as endpoint:
        run(settings, endpoint.base_url)
        finished = Finished(settings, endpoint)
    plan = make_plan(settings)
    low, likely, high = (total(need) for need in plan.need)
    assert plan.money is not None
    assert likely == pytest.approx(finished.tokens, rel=within)
    assert plan.need.likely.calls == pytest.approx(finished.billed, rel=within)
    assert plan.money.likely == pytest.approx(finished.money, rel=within)
    assert low <= finished.tokens <= high


@pytest.mark.parametrize(
    ("median", "words", "roles"),
    [
        pytest.param(8, 30.0, 15, marks=THOROUGH),
        pytest.param(30, 400.0, 15, marks=THOROUGH),
        (8, 30.0, 6),
        pytest.param(30, 400.0, 5, marks=SLOW),
    ],
)
def test_an_estimate_from_what_one_knows_of_the_model_is_within_15_per_cent(
    median: int, words: float, roles: int, tmp_path: Path
):
    """A terse model and a verbose one, each described by two numbers that three conversations would show."""
    length = LogNormal(median=median, p99=3 * median)
    counts = {"assistant_role": roles, "user_role": roles, "task": 1}
    # The mean of this log-normal, cut at 40; instructions have about 45 tokens, a word of a solution 1.7.
    quantiles = [min(40.0, length.at((at + 0.5) / 1000)) for at in range(1000)]
    assumed = Assumptions(
        messages=sum(quantiles) / 1000 + 0.5, message_tokens=(45 + 1.7 * words) / 2, cached=0.0, spread=0.45
    )
    settings = config(counts=counts, out=str(tmp_path / "run"), plan=assumed)
    with serve(SimulatorSettings(length=length, words=words)) as endpoint:
        run(settings, endpoint.base_url)
        finished = Finished(settings, endpoint)
    plan = make_plan(settings)
    assert total(plan.need.likely) == pytest.approx(finished.tokens, rel=0.15)
    assert plan.money is not None
    assert plan.money.likely == pytest.approx(finished.money, rel=0.15)


def test_before_any_call_the_range_holds_the_truth(finished: Finished):
    plan = make_plan(finished.config)
    assert all(not stage.measured for stage in plan.stages)
    low, likely, high = (total(need) for need in plan.need)
    assert low < likely < high
    settings = msgspec.structs.replace(
        finished.config, plan=Assumptions(messages=Figure(4, 8, 16), cached=0.0)
    )
    low, _, high = (total(need) for need in make_plan(settings).need)
    assert low <= finished.tokens <= high


def test_the_arithmetic_is_right_where_the_assumptions_are(finished: Finished):
    used = finished.committed["conversations"].known.need
    calls, completion = used.calls / CONVERSATIONS, used.completion / CONVERSATIONS
    assumed = Assumptions(
        messages=calls - 1,
        message_tokens=(completion - 70) / (calls - 1),
        item_tokens=9.0,
        cached=0.0,
        spread=0.4,
    )
    plan = make_plan(msgspec.structs.replace(finished.config, plan=assumed))
    assert plan.need.likely.calls == pytest.approx(finished.billed, rel=0.02)
    assert total(plan.need.likely) == pytest.approx(finished.tokens, rel=0.15)


def test_a_run_serves_as_a_sample_for_another_size(finished: Finished):
    plan = make_plan(finished.config, counts={"assistant_role": 16}, committed=finished.committed)
    stages = {stage.name: stage for stage in plan.stages}
    assert stages["conversations"].done == 0
    assert stages["conversations"].measured == CONVERSATIONS
    assert stages["assistant_role"].measured == 0, "a list of another length says nothing"
    assert stages["task"].measured == 40
    assert total(plan.need.likely) == pytest.approx(2 * finished.tokens, rel=0.02)


def test_a_run_of_another_model_says_nothing(finished: Finished):
    other = msgspec.structs.replace(finished.config, model=ModelSpec("gpt-4.1"))
    assert committed_in(RunFolder(Path(finished.config.where)), other) == {}


def test_three_hundred_million_take_no_longer():
    started = time.process_time()
    plan = make_plan(config(), counts={"assistant_role": 5_000, "user_role": 6_000})
    assert time.process_time() - started < 0.5
    assert plan.items == 300_000_000
    assert plan.stages[-1].shards == 100_000
    assert plan.stages[-2].items == 30_000_000
    # 12 billion calls in 30 days is 4,630 a second: 91 workers of 256 at 5 s a call.
    calls = Need(calls=12e9)
    rate = CallRate(Figure(4630, 4630, 4630), "given", "")
    assert rate.hours(Range(calls, calls, calls)).likely == pytest.approx(720, rel=0.001)
    assert workers(4630, 5) == 91


@pytest.mark.parametrize(
    ("scenario", "items", "calls"),
    [("math", 50_000, 50_000), ("physics", 20_000, 20_000), ("code", 50_000, 50_000 * 21)],
)
def test_the_papers_sizes(scenario: str, items: int, calls: int):
    plan = make_plan(config(scenario))
    assert plan.items == items
    assert plan.stages[-1].need.likely.calls == calls


def test_without_a_price_money_is_unknown():
    plan = make_plan(GenerateConfig(scenario="math", model=ModelSpec("mystery")))
    assert plan.money is None
    assert plan.to_dict()["money"] is None


def test_one_shard_is_not_trusted_far():
    shard = Committed(100, Need(2_000, 1e6, 1e5))
    plan = make_plan(config(), committed={"conversations": ShardSums([shard])})
    low, likely, high = (stage.prompt for stage in plan.stages[-1].need)
    assert likely == pytest.approx(25_000 * 1e4)
    assert low == pytest.approx(likely * 0.75, rel=0.01)
    assert high == pytest.approx(likely * 1.25, rel=0.01)


@pytest.mark.hypothesis
@given(st.lists(st.tuples(st.integers(1, 50), st.floats(1, 1e9), st.integers(1, 5)), min_size=2))
def test_running_sums_have_the_spread_of_the_shards(shards: list[tuple[int, float, int]]):
    sums, all = ShardSums(), list[tuple[int, float]]()
    for rows, prompt, times in shards:
        sums.add(Committed(rows, Need(1, prompt)), times)
        all += [(rows, prompt)] * times
    means = [prompt / rows for rows, prompt in all]
    count = len(means)
    error = stdev(means) / (sum(means) / count) * sqrt(1 / count + 1 / 7) * (1 + 3 / count)
    assert sums.known.uncertainty(7) == pytest.approx(min(0.9, max(0.01, 2 * error)), rel=1e-6)
    assert (sums.shards, sums.rows) == (count, sum(rows for rows, _ in all))
    assert sums.known.need.prompt == pytest.approx(sum(prompt for _, prompt in all))


def test_conversations_in_flight_are_not_assumed_to_be_short():
    """Of eight in flight the short ones end first; those that began before them are counted as assumed."""
    short = Need(3, 1_000, 100)
    assumed = make_plan(config(counts={"task": 1})).stages[-1].need.likely.times(1 / 2_500)
    ended = [Committed(1, short, shard=number) for number in (2, 5, 9)]
    plan = make_plan(config(counts={"task": 1}), committed={"conversations": ShardSums(ended)})
    each = total(plan.stages[-1].need.likely) / 2_500
    assert each == pytest.approx((3 * total(short) + 7 * total(assumed)) / 10, rel=0.01)
    # Once they have ended too, nothing is assumed.
    ended = [Committed(1, short, shard=number) for number in range(10)]
    plan = make_plan(config(counts={"task": 1}), committed={"conversations": ShardSums(ended)})
    assert total(plan.stages[-1].need.likely) == pytest.approx(2_500 * total(short))


def test_a_panels_forecast_is_the_plan_until_a_shard_is_committed(tmp_path: Path):
    settings = config(
        counts={"assistant_role": 4, "user_role": 5, "task": 2},
        out=str(tmp_path / "run"),
        run=RunSection(concurrency=40),
        shard_size=40,
    )
    forecasts: list[tuple[int, float]] = []

    class Watched(Model):
        """Looks at the forecast after every tenth reply."""

        context_tokens = None

        def __init__(self, model: ChatModel) -> None:
            self._model, self._replies = model, 0
            self.campaign = generation(settings, self)

        async def reply(self, request: Request) -> Reply:
            reply = await self._model.reply(request)
            self._replies += 1
            if self._replies % 10 == 0:
                now = Watcher(self.campaign).now()
                assert now.expected is not None
                forecasts.append((now.stages[-1].finished, now.expected.total))
            return reply

    async def watched(url: str) -> None:
        async with ChatModel("simulated", base_url=url, api_key="") as model:
            assert (await Watched(model).campaign.run()).complete

    with serve(SimulatorSettings(length=LogNormal(median=8, p99=30))) as endpoint:
        asyncio.run(watched(endpoint.base_url))
    low = make_plan(settings).need.low
    early = [tokens for finished, tokens in forecasts if 0 < finished < 20]
    assert early
    assert min(early) > total(low)


def test_the_last_forecast_of_a_start_knows_its_last_shard(tmp_path: Path):
    settings = config(counts={"task": 1}, out=str(tmp_path / "run"))
    campaign = generation(settings, ScriptedModel([]))
    watcher = Watcher(campaign)
    assumed = watcher.now().expected_money
    size = campaign.job.outline(campaign.folder)[-1].shard_size
    totals = {"calls": 40.0 * size, "prompt": 1e5 * size, "completion": 1e4 * size}
    campaign.folder.commit(Marker("conversations", 0, "data/x", size, "", "f", totals))
    watcher.committed(campaign.state, "conversations", 0)
    plan = make_plan(settings, committed=committed_in(campaign.folder, settings))
    assert plan.money is not None
    assert watcher.now("stopped").expected_money == pytest.approx(plan.money.likely) != assumed


def test_the_default_shard_size_grows_with_very_large_runs():
    sizes = {count: shard_size_for(count) for count in (0, 10, 1_000, 25_000, 51_200_000, 300_000_000)}
    assert sizes == {0: 1, 10: 1, 1_000: 50, 25_000: 512, 51_200_000: 512, 300_000_000: 3_000}
    assert all(-(-count // shard_size_for(count)) <= 100_000 for count in (51_200_001, 10**9, 10**9 + 1))


def test_small_runs_commit_early_and_old_ones_keep_their_shards(tmp_path: Path):
    settings = config(counts={"assistant_role": 2, "user_role": 5, "task": 4}, out=str(tmp_path / "run"))
    scenario = settings.loaded_scenario()
    assert settings.decisive(scenario)["shard_size"] == 2
    assert config().decisive(config().loaded_scenario())["shard_size"] == 512
    assert config(shard_size=7).decisive(scenario)["shard_size"] == 7
    # A run of a version with another default size keeps that size.
    old = msgspec.structs.replace(settings, shard_size=512)
    generation(old, ScriptedModel([]))
    runner = generation(settings, ScriptedModel([]))
    assert runner.job.outline(runner.folder)[-1].shard_size == 512
    (tmp_path / "run" / "committed" / "task").mkdir(parents=True)  # something was done
    with pytest.raises(InputError, match="shard_size"):
        generation(msgspec.structs.replace(settings, shard_size=3), ScriptedModel([]))


def test_assumptions_are_read_from_the_configuration(tmp_path: Path):
    path = tmp_path / "c.toml"
    path.write_text(
        'scenario = "ai_society"\n[model]\nname = "m"\n[plan]\nmessages = [12, 18, 30]\nmessage_tokens = 120\n'
    )
    read = read_config(path)
    assert read.plan.messages == Figure(12, 18, 30)
    assert make_plan(read).stages[-1].need.likely.calls == 25_000 * 19
    scenario = read.loaded_scenario()
    assert read.decisive(scenario) == msgspec.structs.replace(read, plan=Assumptions()).decisive(scenario)
    for bad in ("messages = 0", "message_tokens = [1, 2]", 'cached = "much"', "unknown = 1"):
        path.write_text(f'scenario = "ai_society"\n[model]\nname = "m"\n[plan]\n{bad}\n')
        with pytest.raises(InputError):
            read_config(path)


def test_budgets_are_checked():
    for bad in ({"usd": 0}, {"calls": -1}, {"tokens": True}):
        with pytest.raises(InputError):
            Budget(**bad)  # type: ignore[arg-type]


def test_a_budget_that_will_not_do_is_known_before():
    plan = make_plan(config())
    hours = assumed_rate(config()).hours(plan.need)
    tokens = [case.prompt + case.completion for case in plan.need]
    for limit, enough in ((tokens[1] - 1, "no"), (tokens[1] + 1, "perhaps"), (tokens[2] + 1, "yes")):
        (one,) = limits(plan, Budget(tokens=int(limit)), hours)
        assert (one.name, one.enough) == ("tokens", enough)
    assert [one.enough for one in limits(plan, Budget(usd=0.01, hours=1e6), hours)] == ["no", "yes"]
    assert not limits(plan, Budget(), hours)


def test_a_range_of_time_is_as_wide_as_what_it_rests_on():
    hours = assumed_rate(config()).hours(make_plan(config()).need)
    known = config(plan=Assumptions(seconds_per_call=5))
    narrower = assumed_rate(known).hours(make_plan(known).need)
    assert hours.low < narrower.low < narrower.likely == hours.likely < narrower.high < hours.high


def test_no_more_calls_are_in_flight_than_there_are_conversations():
    few, many = config(), config(run=RunSection(concurrency=100_000))
    assert few.loaded_scenario().count > few.run.concurrency
    assert assumed_rate(many).words.startswith(f"{many.loaded_scenario().count:,} in flight")
    assert assumed_rate(few).words.startswith(f"{few.run.concurrency:,} in flight")


def test_the_plan_reports_a_budget_of_money_without_a_price():
    unpriced = GenerateConfig("ai_society", ModelSpec("custom-model"), budget=Budget(usd=5.0))
    plan = make_plan(unpriced)
    assert plan.price is None
    assert "model.price" in warnings(plan, unpriced, Figure(1, 1, 1))[-1]
    assert not warnings(plan, msgspec.structs.replace(unpriced, budget=Budget()), Figure(1, 1, 1))


def test_no_more_messages_are_assumed_than_the_scenario_lets_there_be():
    scenario = config().loaded_scenario()
    short = msgspec.structs.replace(scenario, end=msgspec.structs.replace(scenario.end, max_messages=12))
    assert messages_assumed(short, Assumptions()) == Figure(10, 12, 12)
    assert messages_assumed(scenario, Assumptions(messages=7)) == Figure(7, 7, 7)


def test_the_rate_of_a_run_is_that_of_its_last_start_that_tells(tmp_path: Path):
    log, folder = RunLog(tmp_path / LOG), RunFolder(tmp_path)
    assert measured_rate(folder) is None
    for in_flight, before, calls in ((8, 0, 100), (16, 100, 200), (64, 300, 3)):
        log.write("start", concurrency=in_flight)
        log.write("progress", usage={"calls": before}, elapsed=1.0)
        log.write("end", usage={"calls": before + calls}, elapsed=11.0)
    found = measured_rate(folder)
    assert found is not None
    assert found.calls_per_second.likely == 20
    assert "16 in flight" in found.words


def test_what_is_committed_counts_at_the_price_that_was_paid():
    settings = config(counts={"assistant_role": 2, "user_role": 2, "task": 2})
    need, free = Need(100, 1e6, 0), Need(100, 1e6, 0)
    paid = {"conversations": ShardSums([Committed(4, need, 0, money=7.0), Committed(4, free, 1)])}
    plan = make_plan(settings, committed=paid)
    lists = sum(PRICE.cost(stage.need.likely.usage()) for stage in plan.stages[:-1])
    assert plan.money is not None
    assert plan.money.likely == pytest.approx(lists + 7.0 + 0.4)
