"""The failure table of `generate` at the sizes of real jobs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from camel.library.run import Run
from camel.models.simulator import Constant, SimulatorSettings
from tests.support.failing import (
    CONVERSATIONS,
    MODERATED,
    NO_MODEL,
    exported,
    failures,
    generate,
    is_agent,
    out_for,
    paid,
    written,
)
from tests.support.moody import Answer, Moody, moody

pytest.importorskip("pyarrow")
pytestmark = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.timeout(600)]


@pytest.fixture
def endpoint() -> Iterator[Moody]:
    with moody(SimulatorSettings(length=Constant(5), words=12)) as made:
        yield made


def sizes(roles: int, others: int, tasks: int) -> dict[str, int]:
    return {"assistant_role": roles, "user_role": others, "task": tasks}


def test_a_model_is_retired_after_100_of_1000(endpoint: Moody, tmp_path: Path):
    total = 1000
    written(tmp_path, endpoint.base_url, sizes=sizes(10, 10, 10))
    run = tmp_path / "run"

    def mood(body: dict[str, Any], count: int) -> Answer | None:
        gone = (
            body["model"] == "simulated" and len(list((run / "committed" / "conversations").glob("*"))) >= 13
        )
        return NO_MODEL if gone else None  # 13 shards of 8

    endpoint.mood = mood
    done = generate(tmp_path)
    assert done.status == 3, done.stdout + done.stderr
    before = len(Run(run))
    assert 100 <= before < total / 2
    written(tmp_path, endpoint.base_url, model="successor", sizes=sizes(10, 10, 10))
    done = generate(tmp_path, "--accept-change", "model.name")
    assert done.status == 0, done.stdout + done.stderr
    assert len(exported(tmp_path)) == total
    assert paid(tmp_path) == len(endpoint.served), "nothing is paid for twice, and nothing is lost"
    models = Counter(message.model for one in Run(run) for message in one.messages)
    assert set(models) == {"simulated", "successor"}


def test_moderation_of_5_in_200(endpoint: Moody, tmp_path: Path):
    total = 200
    written(tmp_path, endpoint.base_url, sizes=sizes(10, 10, 2))
    refused: set[str] = set()

    def mood(body: dict[str, Any], count: int) -> Answer | None:
        if not is_agent(body) or "specified task" in body["messages"][0]["content"]:
            return None
        key = body["messages"][0]["content"]
        if len(refused) < 5 and len(body["messages"]) > 2:
            refused.add(key)
        return MODERATED if key in refused else None

    endpoint.mood = mood
    done = generate(tmp_path)
    assert done.status == 4, done.stdout + done.stderr
    assert failures(tmp_path) == {"ContentRejected": 5}
    assert len(exported(tmp_path)) == total - 5
    endpoint.mood = lambda body, count: None
    assert generate(tmp_path, "--retry-failed").status == 0
    assert len(exported(tmp_path)) == total


def test_an_outage_of_twenty_seconds(endpoint: Moody, tmp_path: Path):
    written(tmp_path, endpoint.base_url)
    endpoint.mood = out_for(20, after=80, says="hang up")
    done = generate(tmp_path)
    assert done.status == 0, done.stdout + done.stderr
    assert "answers again" in done.stdout, done.stdout
    assert len(exported(tmp_path)) == CONVERSATIONS
    calls = Counter(body for body in endpoint.served if is_agent(json.loads(body)))
    assert set(calls.values()) == {1}
