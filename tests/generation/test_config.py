from __future__ import annotations

from camel.core.history import History
from camel.core.message import Sampling
from camel.core.model import Request
from camel.generation.config import GenerateConfig
from camel.models.simulator import Simulator, SimulatorSettings
from camel.models.spec import ModelSpec
from tests.support.virtual_time import virtual_time


@virtual_time
async def test_a_call_that_hangs_is_tried_once_more_within_its_deadline():
    async with Simulator(SimulatorSettings(faults={"hang": 0.5})) as endpoint:
        config = GenerateConfig(
            "ai_society", ModelSpec("simulated", base_url=endpoint.base_url, deadline=1.0)
        )
        history = History()
        attempts: list[int] = []
        async with config.model.open() as model:
            for number in range(40):
                history.add("user", f"question {number}")
                try:
                    reply = await model.reply(Request(history, Sampling()))
                except Exception as error:
                    attempts.append(-getattr(error, "attempts", 0))
                else:
                    attempts.append(reply.attempts)
                if 2 in attempts:
                    break
    assert 2 in attempts, attempts


@virtual_time
async def test_how_long_one_try_takes_can_be_said_apart_from_the_deadline():
    async with Simulator(SimulatorSettings(faults={"hang": 0.5})) as endpoint:
        config = GenerateConfig(
            "ai_society",
            ModelSpec("simulated", base_url=endpoint.base_url, deadline=600, attempt_timeout=0.05),
        )
        history = History()
        async with config.model.open() as model:
            for number in range(40):
                history.add("user", f"question {number}")
                reply = await model.reply(Request(history, Sampling()))
                if reply.attempts > 1:
                    break
    assert reply.attempts > 1
