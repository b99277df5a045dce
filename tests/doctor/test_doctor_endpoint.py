"""Each ailment of an endpoint is found, and a sound one has none."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from camel.core.message import Usage
from camel.core.plugins import PluginFailed
from camel.doctor import CheckResult, Target, calls_of, examine, price_of, worst
from camel.models.connect import MODELS
from camel.models.prices import ModelPrice
from camel.models.scripted import ScriptedModel
from camel.models.simulator import Simulator, SimulatorSettings
from tests.support.clinic import Ailments, endpoint
from tests.support.virtual_time import virtual_time


async def examined(ailments: Ailments, **target: Any) -> dict[str, CheckResult]:
    with endpoint(ailments) as url:
        wanted = {"name": "patient", "api_key": "sk-secret-0123456789", "seconds": 60.0} | target
        findings = await examine(Target(base_url=url, **wanted))
    assert "sk-secret" not in str(findings)
    for finding in findings:
        assert finding.fix or finding.state in ("ok", "skipped", "note"), finding
        assert "\n" not in finding.says + finding.fix
    return {finding.check: finding for finding in findings}


async def test_a_healthy_endpoint_has_nothing_to_fix():
    ailments = Ailments(grammar="structured_outputs", key="sk-secret-0123456789")
    found = await examined(ailments)
    assert {name: finding.state for name, finding in found.items()} == dict.fromkeys(
        ["endpoint", "clock", "model", "context length", "key", "answer", "streaming", "several answers",
         "JSON schema", "grammar", "cache", "thinking"], "ok",
    ) | {"price": "warning"}  # fmt: skip
    assert 'guided = "vllm"' in found["grammar"].says
    assert "90 of 100" in found["cache"].says


@pytest.mark.parametrize(
    ("ailments", "target", "check", "state", "says", "fix"),
    [
        (Ailments(key="another"), {}, "key", "error", "401", "check the API key"),
        (Ailments(), {"name": "patent"}, "model", "warning", "patient", "--model"),
        (Ailments(), {"name": ""}, "model", "error", "patient, other", ""),
        (Ailments(lists=False), {}, "model", "note", "patient", ""),
        (Ailments(window=None), {}, "context length", "warning", "", "context_tokens"),
        (Ailments(window=2048), {}, "context length", "warning", "2,048", ""),
        (Ailments(window=8192), {"context_tokens": 9000}, "context length", "error", "8,192", ""),
        (Ailments(skew=-3600), {}, "clock", "warning", "ahead of", "timedatectl"),
        (Ailments(skew=3600), {}, "clock", "warning", "behind", "timedatectl"),
        (Ailments(counts=False), {}, "answer", "warning", "", "usage"),
        (Ailments(says=""), {}, "answer", "warning", "", ""),
        (Ailments(streams=False), {}, "streaming", "warning", "", ""),
        (Ailments(most=1), {}, "several answers", "warning", "", ""),
        (Ailments(most=0), {}, "several answers", "warning", "", ""),
        (Ailments(schema=False), {}, "JSON schema", "warning", "", "guided"),
        (Ailments(schema=False), {"guided": "openai"}, "JSON schema", "error", "", "guided"),
        (Ailments(refuses_schema=True), {}, "JSON schema", "warning", "", "guided"),
        (Ailments(), {}, "grammar", "note", "", ""),
        (Ailments(), {"guided": "vllm"}, "grammar", "error", "", "guided"),
        (Ailments(grammar="grammar"), {"guided": "llama.cpp"}, "grammar", "ok", "llama.cpp", ""),
        (Ailments(caches=False), {}, "cache", "warning", "cached", "--enable-prefix-caching"),
        (Ailments(caches=False), {"price": ModelPrice(1, 1)}, "cache", "warning", "cached", ""),
        (Ailments(window=1000), {}, "cache", "skipped", "", ""),
        (Ailments(status=402), {}, "key", "error", "", ""),
        (Ailments(status=503), {}, "answer", "error", "ServerFailed", "see its log"),
        (Ailments(status=429), {}, "answer", "error", "RateLimited", "rpm"),
        (Ailments(status=404), {}, "answer", "error", "RequestRejected", "name"),
        (Ailments(says="x" * 5_000_000), {}, "answer", "error", "ReplyTooLarge", "max_tokens"),
    ],
)  # fmt: skip
async def test_each_ailment_is_found(
    ailments: Ailments,
    target: dict[str, Any],
    check: str,
    state: str,
    says: str,
    fix: str,
    snapshot: Callable[..., None],
):
    found = (await examined(ailments, **target))[check]
    assert found.state == state, found
    assert says in found.says
    assert fix in found.fix
    if check != "clock":  # which says how many seconds
        says = re.sub(r"in \d+\.\d s", "in <seconds>", found.says)
        snapshot("status", f"{check}: {state}: {says}\n{found.fix}")


@pytest.mark.parametrize(
    ("fault", "check", "says"),
    [
        ("500", "answer", "ServerFailed"),
        ("429", "answer", "RateLimited"),
        ("malformed", "answer", "MalformedReply"),
        ("truncate", "endpoint", "Unreachable"),
        ("reset", "endpoint", "Unreachable"),
        ("lost", "endpoint", "Unreachable"),
        ("hang", "answer", "DeadlineExceeded"),
    ],
)
@virtual_time
async def test_each_fault_of_the_simulator_is_found(fault: Any, check: str, says: str):
    async with Simulator(SimulatorSettings(faults={fault: 1.0})) as simulator:
        findings = await examine(Target("simulated", simulator.base_url, "", 9000, seconds=60))
        # The witness: after a call that failed no other is sent.
        assert simulator.ledger.counters.requests == 1
    broken = [finding for finding in findings if finding.state == "error"]
    assert [finding.check for finding in broken] == [check]
    assert says in broken[0].says
    assert worst(findings) == "error"
    assert {one.check for one in findings if one.state == "skipped"} >= {"streaming", "JSON schema", "cache"}


async def test_it_spends_no_more_than_it_says():
    async with Simulator(SimulatorSettings(prefix_cache=100)) as simulator:
        target = Target(base_url=simulator.base_url, api_key="")
        findings = await examine(target)
        paid = simulator.ledger.counters
    usage = sum((finding.usage for finding in findings), Usage())
    most = calls_of(target)
    assert (usage.calls, usage.prompt) == (paid.requests, paid.prompt_tokens)
    assert usage.calls <= most.calls
    assert usage.prompt <= most.prompt
    assert usage.completion <= most.completion
    # A few cents with the dearest of the catalogue; unknown where nobody knows the price.
    assert (price_of(Target("gpt-4"), most) or 0) < 0.25
    assert (price_of(Target("gpt-4.1-mini"), most) or 0) < 0.01
    assert price_of(target, most) is None
    assert price_of(target._replace(price=ModelPrice(1.0, 1.0)), Usage(prompt=10**6)) == 1.0


async def test_where_nobody_listens(monkeypatch: pytest.MonkeyPatch):
    findings = await examine(Target("any", "http://127.0.0.1:9/v1"))
    (broken,) = [finding for finding in findings if finding.state == "error"]
    assert broken.check == "endpoint"
    assert "base URL" in broken.fix
    (no_key, *rest) = await examine(Target())  # OpenAI without a key: nothing is sent
    assert (no_key.check, no_key.state) == ("key", "error")
    assert {one.state for one in rest} == {"skipped"}
    (wrong, *_) = await examine(Target("any", "not a url"))
    assert (wrong.check, wrong.state) == ("endpoint", "error")


async def test_a_base_url_that_stops_short_is_completed():
    with endpoint(Ailments()) as url:
        findings = await examine(Target("patient", url.removesuffix("/v1"), ""))
    assert (findings[0].check, findings[0].state) == ("endpoint", "error")
    assert findings[0].fix == f"use {url} as the base URL"


async def test_a_replica_that_is_down_is_named():
    with endpoint(Ailments()) as url:
        findings = await examine(Target("patient", [url, "http://127.0.0.1:9/v1"], ""))
    (down,) = [one for one in findings if one.check == "endpoint" and one.state == "warning"]
    assert "127.0.0.1:9" in down.says


async def test_the_model_of_a_plugin(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(
        MODELS, "mine", lambda name: ScriptedModel(lambda request: f"I am {name}, and I answer.")
    )
    found = {finding.check: finding for finding in await examine(Target("mine:it"))}
    assert (found["answer"].state, found["several answers"].state) == ("ok", "warning")
    assert found["grammar"].state == found["JSON schema"].state == "skipped"
    assert found["cache"].state == "warning"

    def broken(name: str) -> Any:
        raise PluginFailed("the plug-in 'mine' is broken")

    monkeypatch.setitem(MODELS, "mine", broken)
    findings = await examine(Target("mine:it"))
    assert (findings[0].check, findings[0].state) == ("model", "error")
    assert {finding.state for finding in findings[1:]} == {"skipped"}
