"""Estimates the memory, time and cost of a training before it starts, and shows the calculation.

Training every weight with Adam in mixed precision takes 16 bytes per parameter: weights and gradients in bfloat16 (2 + 2), the
two moments and a copy of the weights in float32 (8 + 4), sharded over the devices. With adapters, a frozen weight takes 2 bytes
(half a byte in four bits), and an adapter weight 16 bytes. With checkpointing, activations are one hidden state per layer and
token, and the logits of one forward pass. A token takes 6 operations per parameter, or 8 with checkpointing, because the forward
pass is done twice.

The one decision to know: the size of a model on this disk is read from the headers of its files. For other models, the user
gives the number of parameters, and the shape is guessed from it.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import msgspec

from camel.core.errors import InputError
from camel.reports.numbers import duration, money
from camel.training.config import TrainConfig
from camel.training.weights import need, on_disk


class Architecture(msgspec.Struct, frozen=True):
    """The numbers that determine the size of a model."""

    parameters: float
    layers: int
    hidden: int
    vocabulary: int


KNOWN = {
    "LLaMA-7B": Architecture(6.74e9, 32, 4096, 32_000),
    "LLaMA-13B": Architecture(13.0e9, 40, 5120, 32_000),
    "local": Architecture(1.345e8, 30, 576, 49_152),
}


MULTIPLES = {"": 1.0, "M": 1e6, "B": 1e9, "T": 1e12}
_LONGEST_HEADER = 100_000_000


def guessed(parameters: str) -> Architecture:
    """Return an architecture with this many parameters (7B, 135M, 6.7e9) and a typical shape."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?(?:e\d{1,2})?) *([MBT]?)", parameters.strip(), re.IGNORECASE)
    count = float(found[1]) * MULTIPLES[found[2].upper()] if found else 0.0
    if not 1e5 <= count <= 1e14:
        raise InputError(
            f"--parameters must be the model's number of parameters, such as 7B, 135M or 6.7e9, not {parameters!r}"
        )
    # A block has about 12 hidden^2 parameters, and the width of a model is about 128 times its number of blocks.
    hidden = round((128 * count / 12) ** (1 / 3))
    return Architecture(count, max(1, round(hidden / 128)), hidden, 128_000)


def architecture_of(model: str) -> Architecture | None:
    """Return the architecture of a model that is in `KNOWN` or on this disk. Return None for others."""
    if model in KNOWN:
        return KNOWN[model]
    path = on_disk(model)
    if path is None:
        return None
    try:
        return _of_gguf(path) if path.is_file() else _of_folder(path)
    except (OSError, ValueError, LookupError, TypeError, msgspec.MsgspecError) as error:
        raise InputError(
            f"the size of {model} cannot be read from its files ({' '.join(str(error).split())[:100]}). Add --parameters"
        ) from None


def _of_folder(folder: Path) -> Architecture:
    """Read the architecture from the model's configuration and, if there are safetensors files, from their headers."""
    config: dict[str, Any] = msgspec.json.decode((folder / "config.json").read_bytes(), type=dict[str, Any])
    config = config.get("text_config") or config
    layers, hidden, words = (int(config[name]) for name in ("num_hidden_layers", "hidden_size", "vocab_size"))
    counted = sum(map(_elements, sorted(folder.glob("*.safetensors"))))
    if not counted:
        heads = int(config.get("num_attention_heads") or 1)
        keys = int(config.get("num_key_value_heads") or heads) / heads
        wide = int(config.get("intermediate_size") or 4 * hidden)
        counted = layers * hidden * (hidden * (2 + 2 * keys) + 3 * wide)
        counted += words * hidden * (1 if config.get("tie_word_embeddings") else 2)
    return Architecture(counted, layers, hidden, words)


def _elements(file: Path) -> int:
    """Count the weights in a safetensors file. Only the header of the file is read."""
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if length > _LONGEST_HEADER:
            raise ValueError(f"{file.name} is damaged")
        header: dict[str, Any] = msgspec.json.decode(opened.read(length), type=dict[str, Any])
    return sum(math.prod(one["shape"]) for name, one in header.items() if name != "__metadata__")


def _of_gguf(file: Path) -> Architecture:
    reader: Any = need("gguf").GGUFReader(file)
    kind = reader.fields["general.architecture"].contents()
    layers, hidden = (
        int(reader.fields[f"{kind}.{name}"].contents()) for name in ("block_count", "embedding_length")
    )
    words = len(reader.fields["tokenizer.ggml.tokens"].data)
    return Architecture(float(sum(int(one.n_elements) for one in reader.tensors)), layers, hidden, words)


class Device(msgspec.Struct, frozen=True):
    """A GPU or CPU to train on."""

    name: str
    memory: float
    """Memory in GB."""
    operations: float
    """Operations per second in bfloat16, as stated by the manufacturer."""
    dollars: float
    """Typical rent per hour, in US dollars."""


DEVICES = {
    "A100-80GB": Device("A100-80GB", 80, 312e12, 2.0),
    "H100-80GB": Device("H100-80GB", 80, 989e12, 3.0),
    "CPU": Device("CPU", 24, 2e11, 0.1),
}
USED = 0.4
"""Share of a device's operations per second that a training reaches."""
OVERHEAD = 4.0
"""Memory in GB for the framework, buffers and temporary values."""


class Estimate(msgspec.Struct, frozen=True):
    """The resources that a training will need."""

    device: str
    devices: int
    memory: float
    """Required memory in GB per device."""
    fits: bool
    steps: int
    tokens: float
    hours: float
    dollars: float
    arithmetic: list[str]


def estimate(
    config: TrainConfig,
    rows: int,
    tokens: float,
    device: str = "A100-80GB",
    model: Architecture | None = None,
) -> Estimate:
    """Estimate a training on `rows` rows with `tokens` tokens in total."""
    if device not in DEVICES:
        raise InputError(f"the device {device!r} is unknown. Choose from {', '.join(DEVICES)}")
    size = model or architecture_of(config.model)
    if size is None:
        raise InputError(
            f"the size of '{config.model}' is unknown. Add --parameters, such as 7B, or use the model's folder as --base-model"
        )
    kind, count = DEVICES[device], config.devices
    billions = size.parameters / 1e9
    adapter = config.adapter
    if adapter is None:
        held = 16 * billions / count
        weights = f"16 B x {billions:.2f} billion parameters / {count} = {held:.1f} GB"
    else:
        # Adapters are on all linear layers: four in attention, three in the perceptron (2.7 times as wide).
        wide = 2.7 * size.hidden
        own = size.layers * adapter.rank * (4 * 2 * size.hidden + 3 * (size.hidden + wide)) / 1e9
        each = 4.0 if config.precision == "fp32" else adapter.bits / 8
        held = (each * billions + 16 * own) / count
        weights = f"({each:g} B x {billions:.2f} billion + 16 B x {own * 1e3:.1f} million of adapters) / {count} = {held:.1f} GB"
    at_once = min(config.at_once, config.batch)
    states = at_once * config.length * size.hidden * size.layers * 2 / 1e9
    logits = at_once * config.length * size.vocabulary * 4 * 2 / 1e9
    memory = held + states + logits + OVERHEAD
    seen = tokens * config.epochs
    steps = config.steps or max(1, round(rows * config.epochs / config.batch))
    if config.steps:
        seen = tokens * config.steps * config.batch / max(1, rows)
    each = 8 if adapter is None else 6
    hours = each * size.parameters * seen / (USED * kind.operations * count) / 3600
    dollars = hours * count * kind.dollars
    return Estimate(
        kind.name,
        count,
        memory,
        memory <= 0.95 * kind.memory,
        steps,
        seen,
        hours,
        dollars,
        [
            f"weights, gradients, moments: {weights}",
            f"hidden states: {at_once} rows x {config.length:,} tokens x {size.hidden:,} x {size.layers} layers x 2 B = {states:.1f} GB",
            f"logits and their gradient: {at_once} x {config.length:,} x {size.vocabulary:,} x 8 B = {logits:.1f} GB",
            f"framework and buffers: {OVERHEAD:.0f} GB; total {memory:.1f} of {kind.memory:.0f} GB on each of {count}",
            f"steps: {rows:,} rows x {config.epochs:g} epochs / {config.batch} = {steps:,}",
            f"time: {each} x {billions:.2f} billion x {seen / 1e6:,.3g} million tokens / ({USED} x {kind.operations / 1e12:,.3g} TFLOP/s x {count}) = {duration(3600 * hours)}",
            f"cost: {duration(3600 * hours)} x {count} x ${kind.dollars:.2f} per hour = {money(dollars)}",
        ],
    )
