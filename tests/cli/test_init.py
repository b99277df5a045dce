"""`camel init`: what it writes works, holds no key, and takes nothing's place."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from math import prod
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camel.core.errors import InputError
from camel.generation.config import GenerateConfig, read_config
from camel.generation.generate import Generation
from camel.generation.init import (
    Answers,
    config_text,
    counts_for,
    offered_scenarios,
    read_size,
    write_config,
    write_demo,
)
from camel.generation.plan import make_plan
from camel.jobs.cluster import worker_environment
from camel.models.scripted import ScriptedModel
from camel.models.simulator import Constant, SimulatorSettings
from camel.models.spec import ModelSpec
from camel.scenarios import check, load
from tests.support import in_process
from tests.support.command import camel
from tests.support.endpoints import serve
from tests.support.jobs import generation
from tests.support.terminal import CTRL_C, CTRL_D, ENTER, Terminal

LEVELS = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 60), min_size=1)


@settings(deadline=None)
@given(LEVELS, st.integers(1, 100_000))
def test_sizes_fit(full: dict[str, int], size: int):
    counts = counts_for(full, size)
    assert counts.keys() == full.keys()
    assert all(1 <= counts[name] <= full[name] for name in full)
    assert prod(counts.values()) <= size
    # No level could be larger.
    for name in full:
        grown = prod(counts.values()) // counts[name] * (counts[name] + 1)
        assert counts[name] == full[name] or grown > size


@pytest.mark.parametrize(
    ("text", "size", "money"),
    [
        ("8", 8, None),
        (" 25,000 ", 25000, None),
        ("$5", None, 5.0),
        ("2.5 dollars", None, 2.5),
        ("7 USD", None, 7.0),
    ],
)
def test_how_many_or_how_much(text: str, size: int | None, money: float | None):
    assert read_size(text) == (size, money)


@pytest.mark.parametrize("text", ["", "many", "0", "-3", "$", "$nan", "$-1", "1e400", "2.5"])
def test_what_is_no_number_is_refused(text: str):
    with pytest.raises(InputError) as refused:
        read_size(text)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize("scenario", [one.name for one in offered_scenarios()])
def test_every_scenario_that_is_offered_works(scenario: str, tmp_path: Path):
    path = tmp_path / "first.toml"
    write_config(path, Answers(scenario=scenario, model="gpt-4.1-mini", key_variable="OPENAI_API_KEY"))
    config = read_config(path)
    assert 1 <= config.loaded_scenario().count <= 8
    assert config.out == "runs/first"


@settings(deadline=None)  # a busy machine is no failure
@given(st.text(max_size=40))
def test_no_title_or_name_gets_out_of_its_place(text: str):
    scenario = msgspec.structs.replace(load("ai_society"), title=text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("camel.generation.init.load", lambda name: scenario)
        answers = Answers(scenario="ai_society", model="a-model", base_url="http://127.0.0.1:1/v1")
        table = tomllib.loads(config_text(answers, "x.toml"))
        try:
            named = tomllib.loads(config_text(answers._replace(model=text), f"{text}/x.toml"))
        except InputError:
            named = {"model": {"name": text}}
    assert table.keys() == {"scenario", "out", "counts", "model", "run"}
    assert named["model"]["name"] == text


def test_money_decides_how_many(tmp_path: Path):
    path = tmp_path / "first.toml"
    write_config(path, Answers(model="gpt-4.1-mini", money=5.0))
    config = read_config(path)
    cost = make_plan(config).money
    assert cost is not None
    assert 2.5 < cost.likely <= 5.0
    assert config.budget.usd == 5.0
    with pytest.raises(InputError, match="unheard-of"):
        config_text(Answers(model="unheard-of", money=5.0), "x.toml")
    with pytest.raises(InputError, match=r"0\.0001"):
        config_text(Answers(model="gpt-4.1-mini", money=0.0001), "x.toml")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--model", "m", "--key-variable", "sk-proj-abc"], "key_variable"),
        (["--scenario", "misalignment"], "misalignment"),
        (["--scenario", "translation"], "camel translate"),
        (["--scenario", "nope"], "nope"),
        (["--local", "--model", "m"], "--model"),
        (["--model", "m\n"], "model"),
        (["--model", "m", "--base-url", "ftp://x"], "ftp://x"),
        (["--local", "--size", "1000000"], "25,000"),
        (["--local", "--size", "lots"], "lots"),
    ],
)
def test_what_cannot_work_is_refused_and_nothing_written(
    words: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    snapshot: Callable[..., None],
):
    monkeypatch.chdir(tmp_path)
    result = in_process.invoke(["init", *words])
    assert isinstance(result.exception, InputError)
    assert says in str(result.exception)
    snapshot("errors", result.exception)
    assert "sk-proj" not in str(result.exception) + result.output
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten_and_no_key_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-key")
    result = in_process.invoke(["init", "mine.toml"])
    assert result.exit_code == 0, result.output
    text = Path("mine.toml").read_text()
    assert "sk-very" not in text + result.output
    assert tomllib.loads(text)["model"] == {"name": "gpt-4.1-mini", "key_variable": "OPENAI_API_KEY"}
    again = in_process.invoke(["init", "mine.toml", "--local"])
    assert isinstance(again.exception, InputError)
    assert Path("mine.toml").read_text() == text


def test_without_a_terminal_and_a_key_it_is_the_local_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    result = in_process.invoke(["init"])
    assert result.exit_code == 0, result.output
    assert "camel plan camel.toml\n  camel generate camel.toml" in result.output
    assert read_config(Path("camel.toml")).is_local


@pytest.mark.parametrize("name", ["hf:some/tiny-GGUF:Q8_0", "models/tiny.gguf", "ollama:llama3.2"])
def test_a_model_of_this_machine_needs_no_key_and_no_price(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-something")
    result = in_process.invoke(["init", "--model", name])
    assert result.exit_code == 0, result.output
    assert tomllib.loads(Path("camel.toml").read_text())["model"] == {"name": name}
    assert "price" not in Path("camel.toml").read_text()
    assert read_config(Path("camel.toml")).model.is_here


def test_the_demo_is_a_sound_scenario(tmp_path: Path):
    config = write_demo(tmp_path / "demo")
    assert check(tmp_path / "demo/scenario") == []
    settings = read_config(config)
    assert settings.is_local
    assert settings.where == str(tmp_path / "demo/demonstration")
    (tmp_path / "demo/demo.toml").write_text("changed")
    write_demo(tmp_path / "demo")
    assert config.read_text() == "changed"


@pytest.mark.parametrize("key", [CTRL_C, CTRL_D])
def test_an_interrupted_dialog_writes_nothing(key: str, tmp_path: Path):
    with Terminal(["init"], tmp_path, {}) as terminal:
        terminal.wait_for("1, 2 or 3")
        terminal.type(key)
        assert terminal.end() == 130
        assert "Traceback" not in terminal.text
    assert not list(tmp_path.iterdir())


def test_three_questions_lead_to_a_run(tmp_path: Path):
    with serve(SimulatorSettings(words=20, length=Constant(5))) as simulator:
        env = {"OPENAI_BASE_URL": simulator.base_url}
        with Terminal(["init"], tmp_path, env) as terminal:
            terminal.wait_for("1, 2 or 3")
            terminal.type("9" + ENTER)
            terminal.wait_for("one of")
            terminal.type("3" + ENTER)
            terminal.wait_for("base URL")
            terminal.type(ENTER)
            terminal.wait_for("[simulated]")
            terminal.type(ENTER)
            terminal.wait_for("math")
            terminal.type("math" + ENTER)
            terminal.wait_for("a number, or")
            terminal.type("many" + ENTER)
            terminal.wait_for("'many'")
            terminal.type("8" + ENTER)
            terminal.wait_for("camel generate camel.toml")
        done = camel("generate", "camel.toml", cwd=tmp_path, **env)
        assert done.status == 0
        assert "complete: 8 answers" in done.stdout


def test_a_run_that_cannot_be_kept_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    write_config(tmp_path / "first.toml", Answers(model="any", base_url="http://127.0.0.1:9/v1"))

    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("camel.record.parquet.import_module", missing)
    with pytest.raises(InputError, match=r"camel-society\[data\]"):
        generation(read_config(tmp_path / "first.toml"), ScriptedModel([]))
    assert not (tmp_path / "runs").exists()


def test_the_key_comes_from_the_variable_that_is_named(monkeypatch: pytest.MonkeyPatch):
    section = ModelSpec("any", "http://127.0.0.1:9/v1", key_variable="MY_KEY")
    config = GenerateConfig("ai_society", section)
    with pytest.raises(InputError, match="export MY_KEY"):
        config.model.open()
    monkeypatch.setenv("MY_KEY", "sk-mine-0123456789")
    monkeypatch.setenv("MY_KEY_RING", "not this one")
    assert config.model.api_key() == "sk-mine-0123456789"
    assert config.model.open()._key == "sk-mine-0123456789"  # pyright: ignore[reportPrivateUsage]
    assert "sk-mine" not in str(config.decisive(load("ai_society")))
    handed = worker_environment(Generation(config))
    assert "MY_KEY" in handed
    assert "MY_KEY_RING" not in handed
    other = msgspec.structs.replace(config, model=ModelSpec("any"))
    assert "MY_KEY" not in worker_environment(Generation(other))
