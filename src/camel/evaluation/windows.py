"""Prompts of evaluations, and fitting them into a model's context window."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import msgspec

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.core.history import estimate_tokens
from camel.core.message import Sampling

PROMPTS = Path(__file__).parent / "prompts"
LARGE = 32_768
"""Context window in tokens that holds two conversations of the paper's length. Prompts do not depend on larger windows."""


class AskedModel(NamedTuple):
    """A model that an evaluation uses."""

    name: str
    """Name of the model in reports."""
    seat: str
    """Key of the model in the models of the job."""
    window: int | None = None
    """Size of the model's context window in tokens. None if unknown."""
    version: str = ""
    """Distinguishes models with the same name, such as weights that were trained again."""

    @property
    def small_window(self) -> int | None:
        """The size of the context window if it is below `LARGE`, otherwise None. Prompts depend only on small windows, so it
        does not matter whether an endpoint reports a large one."""
        return self.window if self.window is not None and self.window < LARGE else None

    def fitting(self, sampling: Sampling) -> Sampling:
        """Limit the length of the answer to a quarter of the context window, and return the changed sampling settings."""
        if self.window is None or sampling.max_tokens is None or sampling.max_tokens <= self.window // 4:
            return sampling
        return msgspec.structs.replace(sampling, max_tokens=max(64, self.window // 4))

    def room(self, others: str, reserved: int) -> int:
        """Return how many characters fit into the context window in addition to the text `others` and `reserved` tokens."""
        if self.window is None:
            return 10**9
        # Three bytes per token, minus a margin for quote signs and other scripts.
        return max(300, int(2.5 * (self.window - reserved - 64 - estimate_tokens(others))))


def read_prompt(name: str, needed: Collection[str] = ()) -> str:
    """Read a shipped prompt by name, or a text file. Raises an `InputError` if a `needed` placeholder is missing."""
    shipped = {path.stem: path for path in PROMPTS.glob("*.txt")}
    path = shipped.get(name, Path(name))
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(sorted(shipped))
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"cannot read the prompt {shown(name)}: {why}. Shipped prompts: {known}") from None
    if missing := [f"<{one}>" for one in needed if f"<{one}>" not in text]:
        raise InputError(f"the prompt {shown(name)} does not contain {missing[0]}: add it to the file")
    return text
