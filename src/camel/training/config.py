"""The configuration of a training, and the named recipes that it can start from."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from camel.core.errors import InputError
from camel.core.toml import convert_table, read_table
from camel.training.weights import template_text


class Adapter(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Low-rank adapters on all linear layers, instead of training every weight."""

    rank: int = 16
    alpha: int = 32
    dropout: float = 0.0
    bits: int = 16
    """Bits per frozen weight: 16, or 4 for QLoRA, which needs a GPU."""


class TrainConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """All settings of a training. A training can be resumed only with the settings that it began with."""

    rows: tuple[str, ...]
    """Folders made by `camel rows`."""
    model: str
    """The model to train: a folder, a name on the hub, a GGUF file, or `local` for the small model."""
    preferences: tuple[str, ...] = ()
    """Preferences of a critic to train on instead of rows: runs, or files of `camel export RUN preferences`."""
    beta: float = 0.1
    """Beta of DPO, used with preferences. A smaller value lets the model move further from the base model."""
    out: str = "model"
    epochs: float = 3.0
    steps: int = 0
    """Maximum number of steps. 0 means as many as the epochs need."""
    learning_rate: float = 2e-5
    warmup: float = 0.04
    """Share of the steps in which the learning rate rises. Afterwards it falls along a cosine."""
    weight_decay: float = 0.0
    batch: int = 128
    """Number of rows per step, over all devices."""
    at_once: int = 4
    """Maximum number of rows that a device processes at a time."""
    length: int = 2048
    """Maximum number of tokens per row. The end of a longer row is cut off."""
    adapter: Adapter | None = None
    """Settings of low-rank adapters. None trains every weight."""
    chat_template: str = ""
    """The chat template of a base model that has none: `vicuna`, or the path of a Jinja file."""
    precision: str = "auto"
    """Precision of the weights: bf16, fp32, or auto (bf16 on a GPU, fp32 on a CPU)."""
    seed: int = 0
    save_every: int = 50
    """Number of steps between two checkpoints. An interrupted training resumes from the last checkpoint."""
    devices: int = 1
    """Number of processes: one per GPU, or the number of CPU processes if there is no GPU."""
    spread: str = "auto"
    """With several devices: `weights` shards weights, gradients and optimizer state (FSDP), `copies` gives each device a
    copy of the model (DDP), and `auto` chooses `weights` on GPUs and `copies` on CPUs."""

    def __post_init__(self) -> None:
        if not self.rows and not self.preferences:
            raise InputError("no rows to train on are given. Make them with camel rows")
        if self.rows and self.preferences:
            raise InputError(
                "a training uses rows or preferences, not both. Train on rows first, then train that model on preferences"
            )
        if self.spread not in ("auto", "weights", "copies"):
            raise InputError(f"spread must be auto, weights or copies, not '{self.spread}'")
        if not self.beta > 0:
            raise InputError(f"beta must be above 0, not {self.beta:g}")
        for name in ("batch", "at_once", "length", "save_every", "devices"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.batch % self.devices:
            raise InputError(
                f"{self.devices} devices cannot share batches of {self.batch}: choose a multiple of {self.devices}"
            )
        if not self.learning_rate > 0:
            raise InputError(f"learning_rate must be above 0, not {self.learning_rate:g}")
        if not 0 <= self.warmup < 1:
            raise InputError(f"warmup must be at least 0 and below 1, not {self.warmup:g}")
        if self.epochs <= 0 and self.steps <= 0:
            raise InputError(f"epochs or steps must be above 0, not {self.epochs:g} and {self.steps}")
        if self.precision not in ("auto", "bf16", "fp32"):
            raise InputError(f"precision must be auto, bf16 or fp32, not '{self.precision}'")

    @property
    def each(self) -> int:
        """Number of rows that a device processes at a time: the largest divisor of its share of a batch that is at most
        `at_once`."""
        part = self.batch // self.devices
        return next(size for size in range(min(self.at_once, part), 0, -1) if part % size == 0)

    @property
    def rounds(self) -> int:
        """Number of forward and backward passes of a device per step (gradient accumulation)."""
        return self.batch // self.devices // self.each

    def decisive(self) -> dict[str, Any]:
        """Return the settings that affect the weights, without `out`, `save_every` and `at_once`."""
        text = template_text(self.chat_template) if self.chat_template else ""
        changed = {"out": "", "save_every": 50, "at_once": 1, "chat_template": text}
        return msgspec.to_builtins(msgspec.structs.replace(self, **changed))

    def fingerprint(self, data: str) -> str:
        """Return a short hash of the settings and of `data`, a digest of the rows."""
        return hashlib.sha256(msgspec.json.encode([self.decisive(), data], order="sorted")).hexdigest()[:16]


RECIPES = read_table(Path(__file__).with_name("recipes.toml"))
"""Named sets of settings. Values from the command or from a configuration file override them."""


def made_config(recipe: str, given: dict[str, Any]) -> TrainConfig:
    """Return the settings of a recipe, overridden by those in `given`."""
    if recipe and recipe not in RECIPES:
        raise InputError(f"there is no recipe {recipe!r}. Choose from {', '.join(RECIPES)}")
    if not ("model" in given or "model" in RECIPES.get(recipe, {})):
        raise InputError("no model to train is given. Add --base-model NAME, or `model` to the file")
    return convert_table({"rows": [], **RECIPES.get(recipe, {}), **given}, TrainConfig)


def read_config(path: Path) -> TrainConfig:
    """Read a configuration from a TOML file. If it has a field `recipe`, its other fields override the settings of that
    recipe."""
    table = read_table(path)
    try:
        return made_config(str(table.pop("recipe", "")), table)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
