"""What known models cost and how much they can read: one data file, `catalogue.toml`, and two look-ups."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

import msgspec

from camel.core.message import Usage

# Only what names a release of the same model: "gpt-4-1106-preview" is another model than "gpt-4".
_SUFFIX = re.compile(r"-(?:latest|\d{4}-\d{2}-\d{2})$")


class ModelPrice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model. Prices in US dollars per million tokens."""

    input: float
    output: float
    cached: float | None = None
    context: int | None = None
    batch: float = 0.5
    """What the same costs in a batch, as a share."""

    def batched(self) -> ModelPrice:
        """The prices in a batch."""
        part, cached = self.batch, self.cached and self.cached * self.batch
        return ModelPrice(self.input * part, self.output * part, cached, self.context, part)

    def cost(self, usage: Usage) -> float:
        """Dollars for `usage`."""
        cached_price = self.input if self.cached is None else self.cached
        fresh = usage.prompt - usage.cached
        return (fresh * self.input + usage.cached * cached_price + usage.completion * self.output) / 1e6


@cache
def _entries() -> dict[str, ModelPrice]:
    data = tomllib.loads((Path(__file__).parent / "catalogue.toml").read_text("utf-8"))
    return msgspec.convert(data["models"], dict[str, ModelPrice])


def find(name: str) -> ModelPrice | None:
    """Look a model up by name, with or without a date suffix and a provider's prefix; None when it is not known."""
    entries = _entries()
    bare = name.rpartition("/")[2].lower()
    return entries.get(bare) or entries.get(_SUFFIX.sub("", bare))


def names() -> list[str]:
    """The names of all models that are known."""
    return list(_entries())


def cost(name: str, usage: Usage) -> float | None:
    """Dollars that `usage` of the model `name` costs, or None when its price is not known."""
    entry = find(name)
    return None if entry is None else entry.cost(usage)
