"""Runs with structured results, from a configuration and in Python. The witness is the endpoint's ledger."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import camel
from camel import ChatModel, InputError, RolePlaying, Run
from camel.core.results import ResultSettings
from camel.generation.config import GenerateConfig, RunSection, read_config
from camel.generation.plan import make_plan
from camel.models.simulator import Constant, SimulatorProcess, SimulatorSettings
from camel.models.spec import ModelSpec
from camel.runs.run import RunFolder
from camel.scenarios import load
from tests.support.endpoints import serve
from tests.support.jobs import generation
from tests.support.killed import run_until_killed

pytest.importorskip("pyarrow")
pytest.importorskip("jsonschema")

FORM = ResultSettings(fields={"mood": "good | bad", "resolved": "boolean", "refund": "number?"})
SETTINGS = SimulatorSettings(length=Constant(3), words=20)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[SimulatorProcess]:
    with serve(SETTINGS) as process:
        yield process


def config_for(
    folder: Path, endpoint: SimulatorProcess, tasks: int = 2, concurrency: int = 3
) -> GenerateConfig:
    return GenerateConfig(
        scenario="ai_society",
        model=ModelSpec("simulated", base_url=endpoint.base_url),
        out=str(folder),
        counts={"assistant_role": 1, "user_role": 1, "task": tasks},
        run=RunSection(concurrency=concurrency),
        result=FORM,
    )


def generate(config: GenerateConfig) -> bool:
    async def run() -> bool:
        async with ChatModel("simulated", base_url=config.model.base_url, api_key="") as model:
            return (await generation(config, model).run()).complete

    return asyncio.run(run())


def paid(folder: Path) -> int:
    run = RunFolder(folder)
    markers = (marker for stage in run.stages() for marker in run.markers(stage, run.committed(stage)))
    return sum(int(marker.totals["calls"]) for marker in markers)


def check_results(folder: Path) -> None:
    records = list(Run(folder))
    assert records
    for record in records:
        assert record.result is not None
        assert list(record.result) == ["mood", "resolved", "refund"]
        assert record.result["mood"] in ("good", "bad")
        assert record.usage.calls == 1 + len(record.messages) + record.result_call.usage.calls
        assert camel.Transcript.from_json(record.to_json()) == record
    table = Run(folder).to_arrow().to_pydict()
    assert [json.loads(text) for text in table["result"]] == [record.result for record in records]
    assert table["calls"] == [record.usage.calls for record in records]
    assert table["prompt_tokens"] == [record.usage.prompt for record in records]


def test_each_conversation_gets_a_result_and_is_paid_for_once(endpoint: SimulatorProcess, tmp_path: Path):
    endpoint.reset()
    config = config_for(tmp_path / "run", endpoint)
    assert generate(config)
    ledger = endpoint.ledger()
    assert ledger.billed == ledger.requests == paid(tmp_path / "run")
    check_results(tmp_path / "run")
    assert generate(config)
    assert endpoint.ledger().requests == ledger.requests
    with pytest.raises(InputError, match="result"):
        generate(replace(config, result=replace(FORM, prompt="Another one.")))


def test_an_endpoint_that_rejects_schemas_is_asked_by_instruction(tmp_path: Path):
    with serve(replace(SETTINGS, rejects=("response_format",))) as endpoint:
        assert generate(config_for(tmp_path / "run", endpoint, concurrency=1))
        ledger = endpoint.ledger()
        assert ledger.requests - ledger.billed == 1, "it is learned from one rejection"
        assert ledger.billed == paid(tmp_path / "run")
    check_results(tmp_path / "run")


def test_a_killed_run_resumes_in_the_middle_of_a_result(endpoint: SimulatorProcess, tmp_path: Path):
    whole = config_for(tmp_path / "whole", endpoint, tasks=1, concurrency=1)
    endpoint.reset()
    assert generate(whole)
    calls = endpoint.ledger().requests
    killed = replace(whole, out=str(tmp_path / "killed"))
    endpoint.reset()
    run_until_killed(killed, at=calls)  # the last request asks for the result
    assert endpoint.ledger().requests == calls - 1
    assert generate(killed)
    assert endpoint.ledger().billed == calls == paid(tmp_path / "killed")
    assert next(iter(Run(tmp_path / "killed"))).result == next(iter(Run(tmp_path / "whole"))).result


def test_a_result_is_part_of_the_estimate(endpoint: SimulatorProcess, tmp_path: Path):
    config = config_for(tmp_path / "run", endpoint)
    more, less = make_plan(config).need.likely, make_plan(replace(config, result=None)).need.likely
    assert more.calls - less.calls == 2
    assert more.prompt > less.prompt
    assert more.completion > less.completion


def test_a_class_in_python(endpoint: SimulatorProcess, tmp_path: Path):
    pydantic = pytest.importorskip("pydantic")
    form = pydantic.create_model("Form", mood=(str, ...), stars=(int | None, None))
    play = RolePlaying("Help <name>", assistant="Agent", user="Customer", specify=False, max_messages=4)
    endpoint.reset()
    given: dict[str, Any] = {
        "inputs": [{"name": "Ada"}, {"name": "Bob"}],
        "out": tmp_path / "run",
        "progress": False,
    }
    with_model: dict[str, Any] = {
        **given,
        "model": ChatModel("simulated", base_url=endpoint.base_url, api_key=""),
    }
    run = camel.generate(play, result=form, **with_model)
    for record in run:
        assert form.model_validate(record.result)
    assert run[0].result == next(iter(run)).result
    assert sum(record.usage.calls for record in run) == endpoint.ledger().billed
    assert "result" in run.to_arrow().column_names
    with pytest.raises(InputError, match="result"):
        camel.generate(play, **with_model)


def test_a_configuration_and_a_scenario_name_a_schema_file(tmp_path: Path):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    (tmp_path / "result.json").write_text(json.dumps(schema))
    path = tmp_path / "config.toml"
    text = 'scenario = "ai_society"\n[model]\nname = "m"\n[result]\nschema = "result.json"\n'
    path.write_text(text)
    result = read_config(path).result
    assert result
    assert result.schema == schema
    path.write_text(text.replace("result.json", "missing.json"))
    with pytest.raises(InputError, match=r"missing\.json"):
        read_config(path)
    path.write_text(text.replace('schema = "result.json"', 'fields = { a = "numbr" }'))
    with pytest.raises(InputError, match="number"):
        read_config(path)
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "result.json").write_text(json.dumps(schema))
    declared = (
        'title = "x"\n[[levels]]\nname = "task"\nitems = ["a", "b"]\n'
        '[role_play]\nassistant = "A"\nuser = "B"\ntask = "<TASK>"\n'
    )
    (folder / "scenario.toml").write_text(declared)
    plain = load(folder)
    (folder / "scenario.toml").write_text(declared + '[result]\nschema = "result.json"\n')
    scenario = load(folder)
    assert GenerateConfig(str(folder), ModelSpec("m")).result_of(scenario) == ResultSettings(schema)
    assert scenario.fingerprint() != plain.fingerprint()
    (folder / "scenario.toml").write_text(declared + '[result]\nschema = "../result.json"\n')
    with pytest.raises(InputError, match="outside"):
        load(folder)


@pytest.mark.real_model
def test_with_the_real_model(tmp_path: Path, small_model: Any):
    """A schema makes the small model's answer well-formed. A conversation that it spoils has no result."""
    play = RolePlaying(
        "Name a color", assistant="Painter", user="Student", specify=False, max_messages=2,
        sampling=camel.Sampling(temperature=0.2, max_tokens=64),
    )  # fmt: skip
    form = ResultSettings(
        fields={"color": "red | green | blue | other", "polite": "boolean", "messages": "integer?"},
        sampling=camel.Sampling(temperature=0, max_tokens=300),
        attempts=1,
    )
    whole = []
    for seed in range(4):
        out = tmp_path / str(seed)
        run = camel.generate(play, model=small_model, result=form, out=out, seed=seed, progress=False)
        whole += [transcript for transcript in run if len(transcript.messages) == 2]
    assert whole
    for transcript in whole:
        assert transcript.result is not None, transcript.result_call.error
        assert set(transcript.result) == {"color", "polite", "messages"}
        assert transcript.result["color"] in ("red", "green", "blue", "other")
