"""Progress and result of a training."""

from __future__ import annotations

import msgspec


class Step(msgspec.Struct, frozen=True):
    """The state of a training after a step."""

    step: int
    of: int
    epoch: float
    loss: float
    learning_rate: float
    tokens: int
    """Number of tokens processed since this process started."""
    seconds: float
    """Seconds since this process started."""
    memory: float
    """Peak memory in GB: of the GPU, or of the process if there is no GPU."""


class Trained(msgspec.Struct, frozen=True):
    """The result of a training."""

    out: str
    steps: int
    rows: int
    first_loss: float
    """Mean loss over the first 10 % of the steps."""
    last_loss: float
    """Mean loss over the last 10 % of the steps."""
    seconds: float
    """Seconds from the start of the process that finished the training to its end."""
