"""Estimates of trainings, compared with figures calculated by hand, and errors in settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from camel.core.errors import InputError
from camel.training.config import RECIPES, TrainConfig, made_config, read_config
from camel.training.estimate import KNOWN, Architecture, architecture_of, estimate, guessed
from tests.support import in_process


def test_estimate_of_the_papers_training_on_four_gpus():
    config = made_config("paper", {"rows": ["r"]})
    found = estimate(config, rows=25_000, tokens=25_000 * 1_500)
    assert found.steps == round(25_000 * 3 / 128)
    assert found.memory == pytest.approx(16 * 6.74 / 4 + 2.147 + 2.097 + 4, abs=0.1)
    assert found.fits
    # 8 operations per parameter and token, at 40 % of the speed of four A100s.
    assert found.hours == pytest.approx(8 * 6.74e9 * 112.5e6 / (0.4 * 312e12 * 4) / 3600)
    assert found.dollars == pytest.approx(found.hours * 8)
    assert any("6.74 billion" in line for line in found.arithmetic)


def test_adapters_need_less_memory_and_all_weights_do_not_fit_on_one_gpu():
    whole = estimate(made_config("paper", {"rows": ["r"], "devices": 1}), 1_000, 1e6)
    lora = estimate(made_config("lora", {"rows": ["r"], "model": "LLaMA-7B"}), 1_000, 1e6)
    qlora = estimate(made_config("qlora", {"rows": ["r"], "model": "LLaMA-7B"}), 1_000, 1e6)
    assert not whole.fits
    assert lora.fits
    assert qlora.memory < lora.memory < whole.memory


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_is_a_valid_configuration(recipe: str):
    config = made_config(recipe, {"rows": ["r"], "model": "m"})
    assert config.model == "m"
    assert config.fingerprint("a") != config.fingerprint("b")


def test_the_output_folder_does_not_change_the_fingerprint():
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
def test_invalid_settings_are_rejected(given: dict[str, object]):
    with pytest.raises(InputError):
        made_config("cpu", given)
    with pytest.raises(InputError, match="paper"):
        made_config("papers", {"rows": ["r"]})


def test_a_configuration_is_read_from_a_file(tmp_path: Path):
    path = tmp_path / "train.toml"
    path.write_text('recipe = "cpu"\nrows = ["r"]\nepochs = 1.0\n')
    assert read_config(path) == made_config("cpu", {"rows": ["r"], "epochs": 1.0})
    assert isinstance(read_config(path), TrainConfig)
    path.write_text('recipe = "cpu"\nrows = "r"\n')
    with pytest.raises(InputError, match=r"train\.toml"):
        read_config(path)


def test_options_that_a_file_can_set_are_rejected_together_with_a_file(tmp_path: Path):
    path = tmp_path / "train.toml"
    path.write_text('recipe = "cpu"\nrows = ["none"]\n')

    def refused(*words: str) -> str:
        done = in_process.invoke(["train", str(path), "--dry-run", *words])
        assert isinstance(done.exception, InputError)
        return str(done.exception)

    assert "--out, --steps" in refused("--steps", "10", "--out", "trial")
    # Options that a file cannot set are accepted: only the rows are missing here.
    others = ("--device", "CPU", "--parameters", "135M", "--no-write-gguf", "--address", "local")
    assert refused(*others) == refused()


CONFIG = {
    "num_hidden_layers": 2,
    "hidden_size": 8,
    "vocab_size": 100,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 16,
    "tie_word_embeddings": True,
}


@pytest.mark.parametrize("cut", [b"GGUF", b"GGUF\3\0\0\0", b"GGUF" + bytes(40)])
def test_an_incomplete_gguf_file_is_an_error(tmp_path: Path, cut: bytes):
    pytest.importorskip("gguf")
    (tmp_path / "model.gguf").write_bytes(cut)
    with pytest.raises(InputError, match="--parameters"):
        architecture_of(str(tmp_path / "model.gguf"))


def test_the_size_of_a_model_is_read_from_its_folder(tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    by_config = architecture_of(str(tmp_path))
    assert by_config == Architecture(2 * 8 * (8 * 3 + 3 * 16) + 100 * 8, 2, 8, 100)
    # The headers of the weights take precedence, also in the folder of an earlier training.
    merged = tmp_path / "merged"
    merged.mkdir()
    (merged / "config.json").write_text(json.dumps(CONFIG))
    header = json.dumps(
        {"__metadata__": {"format": "pt"}, "w": {"shape": [8, 5]}, "b": {"shape": []}}
    ).encode()
    (merged / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    assert architecture_of(str(tmp_path)) == Architecture(41, 2, 8, 100)
    config = made_config("cpu", {"rows": ["r"], "model": str(tmp_path)})
    assert estimate(config, 10, 1_000).hours == pytest.approx(6 * 41 * 2_000 / (0.4 * 312e12) / 3600)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"num_hidden_layers": "many"}'])
def test_a_folder_without_a_readable_size_needs_parameters(tmp_path: Path, damage: bytes):
    (tmp_path / "config.json").write_bytes(damage)
    with pytest.raises(InputError, match="--parameters"):
        architecture_of(str(tmp_path))


def test_a_model_that_is_not_on_this_disk_needs_parameters():
    config = made_config("lora", {"rows": ["r"], "model": "some/model-7b"})
    with pytest.raises(InputError, match="--parameters"):
        estimate(config, 10, 1_000)
    assert guessed("7B") == guessed("7e9") == guessed(" 7000 m")
    # The shape of LLaMA-7B, guessed from its size.
    like, known = guessed("6.74B"), KNOWN["LLaMA-7B"]
    assert like.layers == known.layers
    assert like.hidden == pytest.approx(known.hidden, rel=0.03)
    for wrong in ("", "many", "7 billion", "1e99", "0", "-7B", "7BB"):
        with pytest.raises(InputError, match="7B, 135M"):
            guessed(wrong)
