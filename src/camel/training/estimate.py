"""What a training needs before it starts: memory, time and money, with the arithmetic.

Training every weight with Adam in mixed precision holds 16 bytes a parameter: weights and gradients in bfloat16 (2 + 2), the
two moments and a copy of the weights in float32 (8 + 4), spread over the devices. Adapters hold the frozen weights once
(2 bytes, half a byte in four bits) and 16 bytes for each of their own. Activations, with checkpointing, are one hidden
state a layer and token, and the logits of one forward pass. A token costs 6 operations a parameter, 8 with checkpointing, because the
forward pass is done twice.
"""

from __future__ import annotations

import msgspec

from camel.core.errors import InputError
from camel.training.config import TrainConfig


class Architecture(msgspec.Struct, frozen=True):
    """The size of a model."""

    parameters: float
    layers: int
    hidden: int
    vocabulary: int


KNOWN = {
    "LLaMA-7B": Architecture(6.74e9, 32, 4096, 32_000),
    "LLaMA-13B": Architecture(13.0e9, 40, 5120, 32_000),
    "local": Architecture(1.345e8, 30, 576, 49_152),
}


class Device(msgspec.Struct, frozen=True):
    """What it runs on."""

    name: str
    memory: float
    """GB."""
    operations: float
    """A second, in bfloat16, as its maker says."""
    dollars: float
    """An hour, as it is commonly rented."""


DEVICES = {
    "A100-80GB": Device("A100-80GB", 80, 312e12, 2.0),
    "H100-80GB": Device("H100-80GB", 80, 989e12, 3.0),
    "CPU": Device("CPU", 24, 2e11, 0.1),
}
USED = 0.4
"""Share of those operations that a training reaches."""
OVERHEAD = 4.0
"""GB for the framework, buffers and what lies between blocks."""


class Estimate(msgspec.Struct, frozen=True):
    """What it will take."""

    device: str
    devices: int
    memory: float
    """GB on each device."""
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
    """What a training on `rows` rows of `tokens` tokens in all would take."""
    if device not in DEVICES:
        raise InputError(f"no device {device!r} is known here: there are {', '.join(DEVICES)}")
    size = model or KNOWN.get(config.model)
    if size is None:
        raise InputError(f"the size of {config.model} is not known here: there are {', '.join(KNOWN)}")
    kind, count = DEVICES[device], config.devices
    billions = size.parameters / 1e9
    adapter = config.adapter
    if adapter is None:
        held = 16 * billions / count
        weights = f"16 B x {billions:.2f} billion parameters / {count} = {held:.1f} GB"
    else:
        own = _adapter_parameters(size, adapter.rank) / 1e9
        each = adapter.bits / 8
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
            f"framework and buffers: {OVERHEAD:.0f} GB; together {memory:.1f} of {kind.memory:.0f} GB on each of {count}",
            f"steps: {rows:,} rows x {config.epochs:g} epochs / {config.batch} = {steps:,}",
            f"time: {each} x {billions:.2f} billion x {seen / 1e6:,.1f} million tokens / ({USED} x {kind.operations / 1e12:,.0f} TFLOP/s x {count}) = {hours:,.1f} h",
            f"cost: {hours:,.1f} h x {count} x ${kind.dollars:.2f} = ${dollars:,.0f}",
        ],
    )


def _adapter_parameters(size: Architecture, rank: int) -> float:
    """Of adapters on every linear layer of a block: four of the attention, three of the perceptron (2.7 times as wide)."""
    wide = 2.7 * size.hidden
    return size.layers * rank * (4 * 2 * size.hidden + 3 * (size.hidden + wide))
