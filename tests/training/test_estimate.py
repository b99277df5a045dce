"""What a training needs, by arithmetic that can be done by hand; and settings that contradict themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from camel.core.errors import InputError
from camel.training.config import RECIPES, TrainConfig, made_config, read_config
from camel.training.estimate import estimate


def test_the_paper_on_four_gpus():
    config = made_config("paper", {"rows": ["r"]})
    found = estimate(config, rows=25_000, tokens=25_000 * 1_500)
    assert found.steps == round(25_000 * 3 / 128)
    assert found.memory == pytest.approx(16 * 6.74 / 4 + 2.147 + 2.097 + 4, abs=0.1)
    assert found.fits
    # 8 operations a parameter and token, at 0.4 of four A100s.
    assert found.hours == pytest.approx(8 * 6.74e9 * 112.5e6 / (0.4 * 312e12 * 4) / 3600)
    assert found.dollars == pytest.approx(found.hours * 8)
    assert any("6.74 billion" in line for line in found.arithmetic)


def test_adapters_need_less_and_one_gpu_is_too_small_for_all_weights():
    whole = estimate(made_config("paper", {"rows": ["r"], "devices": 1}), 1_000, 1e6)
    lora = estimate(made_config("lora", {"rows": ["r"], "model": "LLaMA-7B"}), 1_000, 1e6)
    qlora = estimate(made_config("qlora", {"rows": ["r"], "model": "LLaMA-7B"}), 1_000, 1e6)
    assert not whole.fits
    assert lora.fits
    assert qlora.memory < lora.memory < whole.memory


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_is_a_configuration(recipe: str):
    config = made_config(recipe, {"rows": ["r"], "model": "m"})
    assert config.model == "m"
    assert config.fingerprint("a") != config.fingerprint("b")


def test_where_it_is_written_does_not_decide_the_weights():
    config = made_config("cpu", {"rows": ["r"]})
    elsewhere = made_config("cpu", {"rows": ["r"], "out": "other", "at_once": 1})
    slower = made_config("cpu", {"rows": ["r"], "learning_rate": 1e-5})
    assert config.fingerprint("x") == elsewhere.fingerprint("x") != slower.fingerprint("x")


@pytest.mark.parametrize(
    "given",
    [
        {"rows": []},
        {"rows": ["r"], "learning_rate": 0.0},
        {"rows": ["r"], "precision": "fp8"},
        {"rows": ["r"], "batch": 0},
        {"rows": ["r"], "nonsense": 1},
    ],
)
def test_mistakes_are_named(given: dict[str, object]):
    with pytest.raises(InputError):
        made_config("cpu", given)
    with pytest.raises(InputError, match="paper"):
        made_config("papers", {"rows": ["r"]})


def test_a_file_says_the_same(tmp_path: Path):
    path = tmp_path / "train.toml"
    path.write_text('recipe = "cpu"\nrows = ["r"]\nepochs = 1.0\n')
    assert read_config(path) == made_config("cpu", {"rows": ["r"], "epochs": 1.0})
    assert isinstance(read_config(path), TrainConfig)
    path.write_text('recipe = "cpu"\nrows = "r"\n')
    with pytest.raises(InputError, match=r"train\.toml"):
        read_config(path)
