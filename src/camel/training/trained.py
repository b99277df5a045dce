"""What a training has come to."""

from __future__ import annotations

import msgspec


class Step(msgspec.Struct, frozen=True):
    """How a training stands after a step."""

    step: int
    of: int
    epoch: float
    loss: float
    learning_rate: float
    tokens: int
    """Read so far in this start."""
    seconds: float
    """Of this start."""
    memory: float
    """GB, of the device; of the process where that is a CPU."""


class Trained(msgspec.Struct, frozen=True):
    """What came of it."""

    out: str
    steps: int
    rows: int
    first_loss: float
    """Mean over the first tenth of the steps."""
    last_loss: float
    """Mean over the last tenth."""
    seconds: float
    """Of the last start."""
