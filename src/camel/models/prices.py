"""Prices and context windows of known models, from `catalogue.toml`."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

import msgspec
from msgspec.structs import replace

from camel.core.message import Usage

# Only suffixes of releases of the same model: "gpt-4-1106-preview" is another model than "gpt-4".
_SUFFIX = re.compile(r"-(?:latest|\d{4}-\d{2}-\d{2})$")


class ModelPrice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The prices of one model, in US dollars per million tokens."""

    input: float
    output: float
    cached: float | None = None
    context: int | None = None
    written: float | None = None
    """Price of prompt tokens written to the provider's cache. Default: 25 % more than other prompt tokens, as charged by
    providers that count them."""
    batch: float = 0.5
    """Price in a batch, as a share of the normal price."""

    def batched(self) -> ModelPrice:
        """Return the prices in a batch."""
        return self.times(self.batch)

    def times(self, factor: float) -> ModelPrice:
        """Return all prices multiplied by a factor."""
        named = {name: getattr(self, name) for name in ("input", "output", "cached", "written")}
        return replace(self, **{name: one and one * factor for name, one in named.items()})

    def cost(self, usage: Usage) -> float:
        """Return the cost of `usage` in US dollars."""
        cached_price = self.input if self.cached is None else self.cached
        fresh = usage.prompt - usage.cached - usage.written
        written = usage.written * (1.25 * self.input if self.written is None else self.written)
        prompt = fresh * self.input + usage.cached * cached_price + written
        return (prompt + usage.completion * self.output) / 1e6


FREE = ModelPrice(0.0, 0.0)


@cache
def _entries() -> dict[str, ModelPrice]:
    data = tomllib.loads((Path(__file__).parent / "catalogue.toml").read_text("utf-8"))
    return msgspec.convert(data["models"], dict[str, ModelPrice])


def find(name: str) -> ModelPrice | None:
    """Return the prices of a model, or None if it is unknown. A date suffix or a provider's prefix of the name is ignored."""
    entries = _entries()
    bare = name.rpartition("/")[2].lower()
    return entries.get(bare) or entries.get(_SUFFIX.sub("", bare))


def names() -> list[str]:
    """Return the names of all known models."""
    return list(_entries())


def cost(name: str, usage: Usage) -> float | None:
    """Return the cost of `usage` of a model in US dollars, or None if its price is unknown."""
    entry = find(name)
    return None if entry is None else entry.cost(usage)
