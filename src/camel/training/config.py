"""The configuration of a training, and recipes by name."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from camel.core.errors import InputError
from camel.core.toml import convert_table, read_table


class Adapter(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Low-rank adapters on all linear layers, instead of training every weight."""

    rank: int = 16
    alpha: int = 32
    dropout: float = 0.0
    bits: int = 16
    """4: the frozen weights are held in four bits (QLoRA); needs a GPU."""


class TrainConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Everything a training is made from. What decides the weights is fingerprinted; a training goes on only under the same."""

    rows: tuple[str, ...]
    """Folders that `camel rows` made."""
    model: str
    """What is trained: a folder, a name on the hub, a GGUF file, or `local` for the small model."""
    preferences: tuple[str, ...] = ()
    """Instead of rows: what a critic preferred to what, as runs or as files of `camel export RUN preferences`."""
    beta: float = 0.1
    """With preferences: how much it costs to move away from the model that is trained; less moves further."""
    out: str = "model"
    epochs: float = 3.0
    steps: int = 0
    """Steps at most; 0: as many as the epochs have."""
    learning_rate: float = 2e-5
    warmup: float = 0.04
    """Share of the steps over which the learning rate rises; it falls along a cosine after that."""
    weight_decay: float = 0.0
    batch: int = 128
    """Rows of a step, over all devices."""
    at_once: int = 4
    """Rows that a device works on at a time."""
    length: int = 2048
    """Tokens of a row at most; what is longer is cut at its end."""
    adapter: Adapter | None = None
    """None trains every weight."""
    precision: str = "auto"
    """bf16, fp32, or auto: bf16 where there is a GPU."""
    seed: int = 0
    save_every: int = 50
    """Steps between two checkpoints; a training that died goes on from the last."""
    devices: int = 1
    """GPUs, or processes on CPUs: one process each."""
    spread: str = "auto"
    """Over several devices: `weights` spreads weights, gradients and moments (FSDP), `copies` gives each a copy (DDP);
    `auto` spreads the weights over GPUs and copies them to CPUs."""

    def __post_init__(self) -> None:
        if not self.rows and not self.preferences:
            raise InputError("a training needs rows: camel rows makes them")
        if self.rows and self.preferences:
            raise InputError(
                "a training is on rows or on preferences: do the one, then the other on its model"
            )
        if self.spread not in ("auto", "weights", "copies"):
            raise InputError(f"spread is auto, weights or copies, not {self.spread}")
        if not self.beta > 0:
            raise InputError(f"beta must be above 0, not {self.beta:g}")
        for name in ("batch", "at_once", "length", "save_every", "devices"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.batch % self.devices:
            raise InputError(
                f"{self.devices} devices cannot share batches of {self.batch}: choose a multiple of {self.devices}"
            )
        if not self.learning_rate > 0 or not 0 <= self.warmup < 1 or (self.epochs <= 0 and self.steps <= 0):
            raise InputError("a training has a learning rate above 0, a warm-up below 1, and epochs or steps")
        if self.precision not in ("auto", "bf16", "fp32"):
            raise InputError(f"precision is auto, bf16 or fp32, not {self.precision}")

    @property
    def each(self) -> int:
        """Rows that a device really works on at a time: at most `at_once`, and so that they make up its part of a batch."""
        part = self.batch // self.devices
        return next(size for size in range(min(self.at_once, part), 0, -1) if part % size == 0)

    @property
    def rounds(self) -> int:
        """How often a device does that before the weights change."""
        return self.batch // self.devices // self.each

    def decisive(self) -> dict[str, Any]:
        """What decides the weights, as far as a configuration can."""
        return msgspec.to_builtins(msgspec.structs.replace(self, out="", save_every=50, at_once=1))

    def fingerprint(self, data: str) -> str:
        """A short hash of it, and of what it reads: rows, and the weights it begins with."""
        return hashlib.sha256(msgspec.json.encode([self.decisive(), data], order="sorted")).hexdigest()[:16]


RECIPES = read_table(Path(__file__).with_name("recipes.toml"))
"""Named settings; whatever else is given overrides them."""


def made_config(recipe: str, given: dict[str, Any]) -> TrainConfig:
    """A recipe's settings, overridden by what was given."""
    if recipe and recipe not in RECIPES:
        raise InputError(f"no recipe {recipe!r}: there are {', '.join(RECIPES)}")
    if not ("model" in given or "model" in RECIPES.get(recipe, {})):
        raise InputError("which model is to be trained? Name it: --base-model NAME, or model = in the file")
    return convert_table({"rows": [], **RECIPES.get(recipe, {}), **given}, TrainConfig)


def read_config(path: Path) -> TrainConfig:
    """Read a configuration from TOML; `recipe` may name the settings it begins from."""
    table = read_table(path)
    try:
        return made_config(str(table.pop("recipe", "")), table)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
