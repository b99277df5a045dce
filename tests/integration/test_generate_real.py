"""Every shipped scenario, tiny, with the real small model: lists, conversations, records, exports that load."""

from __future__ import annotations

import asyncio
import warnings
from itertools import product
from pathlib import Path

import msgspec
import pytest

from camel import ChatModel, Run, Sampling
from camel.formats.exporters import FORMATS
from camel.generation.config import GenerateConfig, RunSection
from camel.generation.translate import Translation
from camel.jobs.runner import Runner
from camel.models.local import LOCAL_SAMPLING
from camel.models.spec import ModelSpec
from camel.record.release import Release
from camel.scenarios import RolePlay, load
from tests.support.jobs import generation
from tests.support.small_model import shorten_scenario

pytestmark = pytest.mark.real_model

# Whole where an item is one question; where it is a conversation, whose two long prompts take the tiny model seconds to read, two.
SCENARIOS = {
    "ai_society": (2, 1, 1),
    "code": (2, 1, 1),
    "math": (2, 2, 2),
    "physics": (2, 2, 2),
    "chemistry": (2, 2, 2),
    "biology": (2, 2, 2),
    "misalignment": (2, 1, 1),
}
MESSAGES, TOKENS = 2, 32
# The others are thorough: the translated run below is of math, and simulated runs show that misalignment is labeled.
COMMON = ("ai_society",)
CANARY = Release(acknowledge=True, canary="camel-canary-00000000-0000-4000-8000-000000000000")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in COMMON else pytest.mark.thorough) for name in SCENARIOS]
)
def test_a_tiny_run_of_each_scenario(
    name: str, small_model: ChatModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model = small_model
    folder = shorten_scenario(name, tmp_path, MESSAGES)
    scenario = load(str(folder))
    config = GenerateConfig(
        scenario=str(folder),
        model=ModelSpec(model.name, guided="llama.cpp"),
        out=str(tmp_path / "run"),
        counts=dict(zip((level.name for level in scenario.levels), SCENARIOS[name], strict=True)),
        lists="asked",
        sampling=msgspec.structs.replace(LOCAL_SAMPLING, max_tokens=TOKENS),
        seed=11,
        acknowledge=("misalignment",),
        run=RunSection(concurrency=4, cut_replies="keep"),
    )

    async def generate() -> Runner:
        async with model:
            campaign = generation(config, model)
            outcome = await campaign.run()
            assert outcome.complete, outcome
            return campaign

    campaign = asyncio.run(generate())
    records = list(Run(tmp_path / "run"))
    sizes = (range(1, count + 1) for count in SCENARIOS[name])
    assert [record.id for record in records] == ["_".join(f"{n:03d}" for n in at) for at in product(*sizes)]
    assert all(record.stop and record.messages for record in records)
    assert all(record.labels == list(scenario.labels) for record in records)
    assert all(record.fingerprint == campaign.folder.settings().fingerprint for record in records)
    # Every record is what the schema says, through JSON and back.
    assert [msgspec.convert(msgspec.to_builtins(record), type(record)) for record in records] == records
    FORMATS["dataset"].write(records, tmp_path / "dataset", release=CANARY)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own, on import and on reading
        import datasets

        cache = str(tmp_path / "cache")
        loaded = datasets.load_dataset(str(tmp_path / "dataset"), split="train", cache_dir=cache)
    assert loaded["id"][:] == [record.id for record in records]
    own = "instruction" if isinstance(scenario.end, RolePlay) else "problems"
    for format in ("chat", own, "messages", "sharegpt"):
        written = FORMATS[format].write(records, tmp_path / f"{format}.jsonl", release=CANARY)
        assert written.conversations <= len(records)
        lines = (tmp_path / f"{format}.jsonl").read_text().splitlines()
        assert len(lines) == written.rows
        assert all(msgspec.json.decode(line) for line in lines)
        if "misalignment" in scenario.labels:
            assert all("misalignment" in line and CANARY.canary in line for line in lines)


def test_a_translation_ends_whatever_the_model_says(small_model: ChatModel, tmp_path: Path):
    """The tiny model cannot translate: what it damages is asked for again, kept and labeled, and the stage ends."""
    model = small_model
    config = GenerateConfig(
        scenario="math",
        model=ModelSpec(model.name),
        out=str(tmp_path / "run"),
        counts={"topic": 1, "subtopic": 1, "problem": 1},
        lists="asked",
        sampling=msgspec.structs.replace(LOCAL_SAMPLING, max_tokens=TOKENS),
        seed=3,
        run=RunSection(cut_replies="keep"),
    )

    async def both() -> int:
        async with model:
            assert (await generation(config, model).run()).complete
            sampling = Sampling(temperature=0.2, max_tokens=TOKENS)
            translation = Translation(str(tmp_path / "run"), ("de",), model, sampling=sampling)
            return (await Runner(translation).run()).result["de"]

    damaged = asyncio.run(both())
    (record,) = Run(tmp_path / "run", stage="translated-de")
    assert len(record.messages) == 2
    assert bool(damaged) == ("damaged-translation" in record.labels)
