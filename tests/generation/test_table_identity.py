"""A table of rows under kills: by the endpoint's own ledger, only new and changed rows are paid for."""

from __future__ import annotations

import asyncio
import csv
import random
from pathlib import Path

import pytest

from camel.generation.config import GenerateConfig, RunSection
from camel.inputs.settings import Inputs
from camel.jobs.status import planned_shards
from camel.models.simulator import SimulatorSettings
from camel.models.spec import ModelSpec
from camel.runs.reader import RunReader
from camel.runs.run import open_folder
from camel.runs.verify import verify
from tests.support.endpoints import serve
from tests.support.jobs import generation
from tests.support.killed import run_until_killed

CALLS, CONCURRENCY = 2, 8
ORDERS = [
    ("append", "shuffle", "fix", "delete"),
    ("delete", "append", "fix", "shuffle"),
    ("fix", "delete", "shuffle", "append"),
]
SCENARIO = """
title = "Support"
[role_play]
assistant = "Agent"
user = "<PERSONA>"
task = "Help <NAME>"
specify = false
max_messages = 2
"""
Row = tuple[str, str, str]


def rows_of(count: int, start: int = 0) -> list[Row]:
    return [(f"r{n}", f'customer {n}, called "C{n}"', f"persona {n}") for n in range(start, start + count)]


def changed(rows: list[Row], kind: str, counts: dict[str, int]) -> list[Row]:
    count = counts.get(kind, 0)
    match kind:
        case "append":
            return [*rows, *rows_of(count, 10_000)]
        case "shuffle":
            return random.Random(1).sample(rows, len(rows))
        case "fix":
            return [
                (id, f"{name} (fixed)", who) if n < count else (id, name, who)
                for n, (id, name, who) in enumerate(rows)
            ]
        case _:
            return rows[count:]


def write(path: Path, rows: list[Row]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("id", "name", "persona"), *rows])


@pytest.mark.slow
@pytest.mark.parametrize(
    "order",
    [ORDERS[0], *(pytest.param(order, marks=pytest.mark.thorough) for order in ORDERS[1:])],
    ids="-".join,
)
@pytest.mark.parametrize(
    ("size", "counts"),
    [
        (100, {"append": 20, "fix": 5, "delete": 10}),
        pytest.param(
            5_000,
            {"append": 1_000, "fix": 10, "delete": 100},
            marks=[pytest.mark.thorough, pytest.mark.timeout(1800)],
        ),
    ],
    ids=["small", "whole"],
)
def test_only_new_and_changed_rows_are_paid_for(
    tmp_path: Path, size: int, counts: dict[str, int], order: tuple[str, ...]
):
    (tmp_path / "support").mkdir()
    (tmp_path / "support" / "scenario.toml").write_text(SCENARIO)
    table, rows, kills = tmp_path / "customers.csv", rows_of(size), 0
    with serve(SimulatorSettings(length=None)) as endpoint:
        config = GenerateConfig(
            scenario=str(tmp_path / "support"),
            model=ModelSpec("simulated", base_url=endpoint.base_url),
            out=str(tmp_path / "run"),
            inputs=Inputs(source=str(table), id="id"),
            run=RunSection(concurrency=CONCURRENCY),
        )
        write(table, rows)
        run_until_killed(config, size)
        kills += 1
        asyncio.run(generation(config).run())
        paid = size
        for kind in order:
            rows = changed(rows, kind, counts)
            write(table, rows)
            new = counts[kind] if kind in ("append", "fix") else 0
            if new:
                run_until_killed(config, new)
                kills += 1
            asyncio.run(generation(config).run())
            paid += new
            folder = open_folder(config.where)
            assert {one.id: one.task.text for one in RunReader(config.where)} == {
                id: f"Help {name}" for id, name, _ in rows
            }
            report = verify(folder, planned_shards(folder))
            assert report.sound, report.problems
            assert report.complete
        ledger = endpoint.ledger()
    assert ledger.billed - ledger.billed_repeats == CALLS * paid
    assert ledger.billed_repeats <= CONCURRENCY * kills, "only calls in flight at a kill are paid for again"
