"""Estimates the cluster that a run needs: replicas of the model, workers, disks, object store, memory and dollars.

The one decision to know: everything follows from the run's plan and the speed of one replica. The constants are measured;
tests compare them with journals, markers and the recorded benchmarks.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

import msgspec

from camel.core.errors import InputError
from camel.generation.config import Figure, GenerateConfig
from camel.generation.forecast import CallRate, measured_rate
from camel.generation.guesses import Need, case_of
from camel.generation.plan import (
    WORKER,
    Plan,
    StagePlan,
    committed_in,
    is_alike,
    make_plan,
    sample_of,
    workers,
)
from camel.jobs.log import last_events
from camel.reports.numbers import counted, short
from camel.runs.copies import CopyLimits, puts_per_second
from camel.runs.run import open_folder

JOURNAL_PER_CALL = 250
"""Bytes of a journaled reply in addition to its text."""
PART = 5 * 2**20
"""Object stores receive larger files in parts of this size: one request for each part, and two more."""
DRIVER, COORDINATOR, PER_SHARD, PER_WORKER = 105e6, 100e6, 850, 25_000
"""Bytes of memory of driver and coordinator, of each shard in both of them, and of each worker in the coordinator."""


class ClusterPlan(msgspec.Struct, frozen=True):
    """The cluster that a run needs. Sizes are in bytes."""

    plan: Plan
    speed: str
    seconds_per_call: float
    hours: Figure
    replicas: Figure
    calls_per_second: float
    concurrency: int
    """Conversations that must be open at a time."""
    workers: int
    nodes: int
    shards_per_worker: float
    """Maximum number of unfinished shards of a worker."""
    journal_per_item: float
    disk_per_node: float
    """Unfinished journals on a node."""
    shard_puts: float
    """Put requests for data files and markers; those of `copy_puts` are for copies of journals."""
    copy_puts: float
    driver_memory: float
    coordinator_memory: float
    gpu_hours: Figure
    gpu_money: Figure | None

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON: that of the plan, and `cluster`."""
        values = {name: getattr(self, name) for name in self.__struct_fields__[1:]}
        cluster = {name: v._asdict() if isinstance(v, Figure) else v for name, v in values.items()}
        return self.plan.to_dict() | {"cluster": cluster}


def plan_cluster(
    config: GenerateConfig,
    *,
    hours: float | None = None,
    replicas: int | None = None,
    rate: float | None = None,
    token_rate: float | None = None,
    pilot: str = "",
    gpu_price: float | None = None,
    gpus: int = 1,
    workers_per_node: int = 4,
    counts: Mapping[str, int] | None = None,
) -> ClusterPlan:
    """Estimate the cluster that the rest of a run needs to end within `hours`, or with a number of `replicas`.

    The speed of one replica is `rate` (calls per second), `token_rate` (tokens per second: completion tokens, and prompt
    tokens that are not cached), or measured in another run, whose folder is `pilot`. `gpu_price` is in dollars per GPU hour,
    and `gpus` the number of GPUs per replica. `counts` replaces sizes of levels.
    """
    wanted = {"--hours": hours, "--replicas": replicas}
    speeds = {"--rate": rate, "--token-rate": token_rate, "--from": pilot or None}
    others = {"--gpu-price": gpu_price, "--gpus": gpus, "--workers-per-node": workers_per_node}
    for name, value in (wanted | speeds | others).items():
        if isinstance(value, float | int) and not 0 < value < 1e12:
            raise InputError(f"{name} must be above 0, not {value:g}")
    _check_one(wanted, "how long the run may take, or how many replicas there are")
    _check_one(speeds, "calls or tokens per second of one replica, or a run in which to measure them")
    known = committed_in(open_folder(config.where), config)
    if pilot and not known:
        known = sample_of(open_folder(pilot), config)
    plan = make_plan(config, counts=counts, committed=known)
    left, last, each = plan.left, plan.stages[-1], case_of(config.plan.seconds_per_call, 1)
    if token_rate is None:
        one = _rate(config, rate, pilot)
        seconds, words = Figure(*(3600 * time for time in one.hours(left))), one.words
        each = one.in_flight / one.calls_per_second.likely if one.in_flight else each
    else:
        tokens = (case.prompt - case.cached + case.completion for case in left)
        seconds, words = Figure(*(new / token_rate for new in tokens)), f"{short(token_rate)} tokens/s"
    if hours is not None:
        servers, time = Figure(*(ceil(one / hours / 3600) for one in seconds)), Figure(hours, hours, hours)
    else:
        servers = Figure(*[replicas or 1] * 3)
        time = Figure(*(one / servers.likely / 3600 for one in seconds))
    during = 3600 * time.likely
    needed = left.likely.calls / during if during else 0.0
    busy = workers(needed, each)
    characters, shards = config.plan.characters_per_token, 1.5 + max(1.0, WORKER / last.shard_size)
    average = 1 + WORKER / last.shard_size  # the simulated run has 1.01 times as many
    journal = journaled(last.need.high, characters) / max(1, last.items)
    written = journaled(left.likely, characters) / (during * busy) if during and busy else 0.0
    limits = CopyLimits(config.run.copy_every, config.run.copy_bytes)
    gpu_hours = Figure(*(gpus * number * hour for number, hour in zip(servers, time, strict=True)))
    return ClusterPlan(
        plan=plan,
        speed=words,
        seconds_per_call=each,
        hours=time,
        replicas=servers,
        calls_per_second=needed,
        concurrency=min(plan.items, ceil(needed * each)),
        workers=busy,
        nodes=ceil(busy / workers_per_node),
        shards_per_worker=shards,
        journal_per_item=journal,
        disk_per_node=journal * min(last.items, min(busy, workers_per_node) * shards * last.shard_size),
        shard_puts=sum(map(_puts, plan.stages)),
        copy_puts=min(left.likely.calls, during * puts_per_second(busy, average, written, limits)),
        driver_memory=DRIVER + PER_SHARD * plan.shards,
        coordinator_memory=COORDINATOR + PER_SHARD * max(s.shards for s in plan.stages) + PER_WORKER * busy,
        gpu_hours=gpu_hours,
        gpu_money=None if gpu_price is None else Figure(*(gpu_price * one for one in gpu_hours)),
    )


def journaled(need: Need, characters_per_token: float) -> float:
    """Return the bytes that replies have in journals."""
    return need.completion * characters_per_token + need.calls * JOURNAL_PER_CALL


def _check_one(given: Mapping[str, float | str | None], meaning: str) -> None:
    if sum(value is not None for value in given.values()) != 1:
        *names, last = given
        raise InputError(f"--cluster needs exactly one of {', '.join(names)} and {last}: {meaning}")


def _rate(config: GenerateConfig, rate: float | None, run: str) -> CallRate:
    """Return the rate of one replica: given, or measured in a run."""
    if rate is not None:
        return CallRate(Figure(rate, rate, rate), "given", f"{rate:,.3g} calls/s")
    folder = open_folder(run)
    if not is_alike(folder, config):
        raise InputError(f"{run} is no run with this scenario and model: pass --rate or --token-rate instead")
    whole = measured_rate(folder)
    if whole is None:
        raise InputError(f"{run} was too short to measure its rate: pass --rate or --token-rate instead")
    count = len((last_events(folder).progress or {}).get("replicas", ())) or 1
    words = f"{whole.words}, on {counted(count, 'replica')}"
    rates = Figure(*(one / count for one in whole.calls_per_second))
    return CallRate(rates, "measured", words, -(-whole.in_flight // count))


def _puts(stage: StagePlan) -> float:
    size = stage.need.likely.bytes / max(1, stage.shards)
    parts = ceil(size / PART) + 1 if size > PART else 0
    return ceil((stage.items - stage.done) / stage.shard_size) * (2 + parts)
