"""Models of seats: one model per seat of a run, or several to choose from.

The one decision to know: the choice between several models depends only on the conversation's id. So a resumed run, and
another run of the same items, makes the same choice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from camel.core.checks import shown, similar
from camel.core.errors import InputError
from camel.core.memory import HistoryPolicy
from camel.core.message import Sampling
from camel.jobs.budget import Budget
from camel.models.prices import ModelPrice
from camel.models.spec import ModelSpec

SEATS = ("assistant", "user", "critic", "specifier", "lists")
JUDGE = "judge"
"""The seat of the judge of finished conversations. It does not affect the data."""
MEMBERS = "members"
"""The table of a society's members: `[models.members.NAME]`."""
_OF_THE_MODEL = ("price", "context_tokens", "file")
"""Settings that another model does not inherit from the default one."""
_OF_THE_ENDPOINT = {*ModelSpec.__struct_fields__} - {"name", "deadline", "attempt_timeout", *_OF_THE_MODEL}
"""Settings that another endpoint does not inherit."""
_SEAT, _CANDIDATE = ("budget", "choose"), ("model", "weight", "sampling", "prompt", "history", "tools")


class Candidate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A model for a seat, with its settings there."""

    model: ModelSpec
    weight: float = 1.0
    sampling: Sampling | None = None
    """Replaces the run's sampling."""
    prompt: str = ""
    """Replaces the scenario's system prompt; may have its placeholders."""
    history: HistoryPolicy | None = None
    """Replaces the run's setting for older turns."""
    tools: tuple[str, ...] = ()
    """Replaces the tools that the scenario gives to the seat."""

    def identity(self) -> dict[str, Any]:
        """Return the settings that determine the data, except the model's name."""
        model = self.model
        window = {"context_tokens": model.window} if self.history else {}
        weights = {"weights": model.weights} if model.weights else {}
        return {**msgspec.to_builtins(self), "model": {"guided": model.guided, **window, **weights}}


class Seat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The models of a seat."""

    candidates: tuple[Candidate, ...]
    budget: Budget = Budget()
    """Budget of all models of the seat together. Reaching it stops the run, which can be resumed."""

    def __post_init__(self) -> None:
        weights = [one.weight for one in self.candidates]
        if not weights or not all(0 <= weight < 1e9 for weight in weights) or not sum(weights):
            raise InputError("choose has no model with a weight above zero: list models with their weights")

    def drawn(self, seat: str, id: str) -> int:
        """Return the index of the candidate for a conversation, drawn by weight from a hash of `seat` and `id`."""
        digest = hashlib.blake2b(f"{seat}/{id}".encode(), digest_size=8).digest()
        place = int.from_bytes(digest, "big") / 2**64 * sum(one.weight for one in self.candidates)
        for number, one in enumerate(self.candidates):
            place -= one.weight
            if place < 0:
                return number
        return len(self.candidates) - 1


def key_of(seat: str, number: int = 0) -> str:
    """Return the key in the job's models for the candidate `number` of a seat."""
    return f"{seat} {number}" if number else seat


def models_at(seats: Mapping[str, Seat]) -> dict[str, ModelSpec]:
    """Return all models of the seats, by `key_of`."""
    return {
        key_of(name, number): one.model
        for name, seat in seats.items()
        for number, one in enumerate(seat.candidates)
    }


def read_seats(table: dict[str, Any], default: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the table `[models]` of a configuration to seats by name. `default` is the table `[model]`."""
    tables = dict(table)
    members = cast("dict[str, Any]", tables.pop(MEMBERS, {}))
    tables |= {f"{MEMBERS}.{name}": one for name, one in members.items()}
    return {name: _seat(f"models.{name}", one, default) for name, one in tables.items()}


def _seat(where: str, table: Any, default: Mapping[str, Any]) -> dict[str, Any]:
    own = _checked(where, table, (*_SEAT, *_CANDIDATE))
    seat = {name: own.pop(name) for name in _SEAT if name in own}
    several = seat.pop("choose", None)
    if several is None:
        return {**seat, "candidates": [read_candidate(own, default)]}
    if not isinstance(several, list) or "model" in own or "name" in own:
        raise InputError(f"{where} must have either model or choose, not both: remove one")
    base = read_candidate(own, default)
    candidates = [
        {**base, **read_candidate(_checked(f"{where}.choose", one, _CANDIDATE), base["model"])}
        for one in cast("list[Any]", several)
    ]
    return {**seat, "candidates": candidates}


def _checked(where: str, table: Any, more: Sequence[str]) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise InputError(f"{where} must be a table, not {shown(table)}")
    known = (*ModelSpec.__struct_fields__, *more)
    for name in cast("dict[str, Any]", table):
        if name not in known:
            raise InputError(
                f"unknown key {name!r} in {where}{similar(name, known)}. Use one of {', '.join(known)}"
            )
    return dict(cast("dict[str, Any]", table))


def read_candidate(own: dict[str, Any], default: Mapping[str, Any]) -> dict[str, Any]:
    """Return a candidate's table. Settings that are missing in `own` come from the default model, if they apply."""
    candidate = {name: own.pop(name) for name in _CANDIDATE if name in own and name != "model"}
    if isinstance(given := own.pop("model", None), str):
        own = {"name": given, **own}
    if isinstance(given := own.get("name"), str):
        spec = ModelSpec(given)
        if spec.base_url or spec.is_here:  # the name includes the location
            own = {"base_url": "", **own}
    base = dict(default)
    if own.get("name", base.get("name")) != base.get("name"):
        base = {name: value for name, value in base.items() if name not in _OF_THE_MODEL}
    if own.get("base_url", base.get("base_url")) != base.get("base_url"):
        base = {name: value for name, value in base.items() if name not in _OF_THE_ENDPOINT}
    return {**candidate, "model": {**base, **own}}


def average_price(parts: Sequence[tuple[float, ModelPrice | None]]) -> ModelPrice | None:
    """Return the average price of several models, weighted by their shares. None if one price is unknown."""
    total = sum(part for part, _ in parts)
    if not total or any(price is None for _, price in parts):
        return None
    known = [(part / total, price) for part, price in parts if price is not None]
    return ModelPrice(
        sum(part * one.input for part, one in known),
        sum(part * one.output for part, one in known),
        sum(part * (one.input if one.cached is None else one.cached) for part, one in known),
        written=sum(part * (one.input if one.written is None else one.written) for part, one in known),
    )
