"""A question about conversations: which, in what order. The same in Python, in a URL and in a cursor.

The one decision to know: a query is plain data that came from anywhere. What it names is checked here, once; what it
compares with only ever reaches the database as a parameter.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, cast

import msgspec

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.index.facets import NUMBERS
from camel.query.annotated import ANNOTATED, FILTERS, YES

Sort = Literal["", "order", "relevance", "messages", "tokens", "calls", "cost"]
Order = Literal["asc", "desc"]
_SORTS = ("", "order", "relevance", *NUMBERS)
PARAMETERS = frozenset(("run", "q", "sort", "order", *FILTERS, *(f"{name}-range" for name in NUMBERS)))
"""Names of a query's parameters in an address."""
PAGING = frozenset(("after", "before", "at", "sample", "seed", "pin", "view"))
"""Those that stand beside them in the address of a list, and say what is shown of it."""
MOST_VALUES = 200
"""Of one facet in a query."""
MOST_CHARS = 1_000
"""Of a value, and of what is searched for."""

Range = tuple[float | None, float | None]
"""From and to, both included; None where there is no limit."""


class Query(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which conversations, in what order. Every field may be left out; an empty query is everything, in the run's order."""

    runs: tuple[str, ...] = ()
    """Names of runs of the catalogue; none means all."""
    text: str = ""
    """Words that must be said in it; "in quotes" those next to each other."""
    facets: dict[str, tuple[str, ...]] = {}
    """By facet, the values of which a conversation must have one; an empty value means that it has none. Annotations are
    facets too: `{"starred": ("yes",), "noted": ("yes",), "tag": ("odd",)}`."""
    ranges: dict[str, Range] = {}
    """By number (messages, tokens, calls, cost), from and to."""
    sort: Sort = ""
    """Empty: by relevance where there is text, else the order of the run."""
    order: Order = "asc"

    def __post_init__(self) -> None:
        _check(isinstance(cast("Any", self.text), str) and len(self.text) <= MOST_CHARS, "text", self.text)
        _check(self.sort in _SORTS, "sort", self.sort)
        _check(self.order in ("asc", "desc"), "order", self.order)
        _texts("runs", self.runs)
        for name, values in self.facets.items():
            if name not in FILTERS:
                raise InputError(f"there is no facet {shown(name)}: there are {', '.join(FILTERS)}")
            _texts(name, values)
            # Of what nobody has annotated there is no file: it cannot be asked for.
            _check(name not in ANNOTATED or "" not in values, name, values)
            _check(name not in ("starred", "noted") or set(values) <= {YES}, name, values)
        for name, limits in self.ranges.items():
            if name not in NUMBERS:
                raise InputError(f"there is no number {shown(name)}: there are {', '.join(NUMBERS)}")
            good = len(limits) == 2 and all(
                one is None
                or (
                    isinstance(cast("Any", one), int | float)
                    and not isinstance(one, bool)
                    and math.isfinite(one)
                    and abs(one) < 1e18
                )
                for one in limits
            )
            _check(good, name, limits)

    @property
    def annotated(self) -> bool:
        """Whether it is about annotated conversations."""
        return not self.facets.keys().isdisjoint(ANNOTATED)

    @property
    def sorted_by(self) -> str:
        """What it is sorted by."""
        return self.sort or ("relevance" if self.text.strip() else "order")

    def without(self, facet: str) -> Query:
        """The same without the values of one facet."""
        left = {name: values for name, values in self.facets.items() if name != facet}
        return msgspec.structs.replace(self, facets=left)

    def to_params(self) -> list[tuple[str, str]]:
        """As the parameters of a URL, in one order, so that equal queries have equal URLs."""
        params = [("run", name) for name in self.runs]
        params += [("q", self.text)] if self.text else []
        for name in FILTERS:
            params += [(name, value) for value in self.facets.get(name, ())]
        for name in NUMBERS:
            if name in self.ranges:
                low, high = self.ranges[name]
                params.append((f"{name}-range", f"{_written(low)}..{_written(high)}"))
        params += [("sort", self.sort)] if self.sort else []
        return params + ([("order", self.order)] if self.order != "asc" else [])

    @classmethod
    def from_params(cls, params: Mapping[str, Any] | Iterable[tuple[str, str]]) -> Query:
        """From the parameters of a URL: pairs, or a mapping to values or lists of values. Others are left alone."""
        given = cast(
            "Iterable[tuple[str, Any]]",
            cast("Mapping[str, Any]", params).items() if isinstance(params, Mapping) else params,
        )
        pairs = [
            (str(name), str(value))
            for name, values in given
            for value in (cast("list[Any]", values) if isinstance(values, list | tuple) else [values])
        ]
        by: dict[str, list[str]] = {}
        for name, value in pairs:
            by.setdefault(name, []).append(value)
        last = {name: values[-1] for name, values in by.items()}
        ranges = {name: _read(name, last[f"{name}-range"]) for name in NUMBERS if f"{name}-range" in last}
        return cls(
            runs=tuple(dict.fromkeys(by.get("run", ()))),
            text=last.get("q", ""),
            facets={name: tuple(dict.fromkeys(by[name])) for name in FILTERS if name in by},
            ranges={name: limits for name, limits in ranges.items() if limits != (None, None)},
            sort=cast("Sort", last.get("sort", "")),
            order=cast("Order", last.get("order", "asc")),
        )

    @property
    def digest(self) -> str:
        """Tells queries apart."""
        return hashlib.blake2b(repr(self.to_params()).encode("utf-8", "replace"), digest_size=6).hexdigest()


def _check(good: bool, name: str, value: object) -> None:
    if not good:
        raise InputError(f"{name} of a query cannot be {shown(value)}")


def _texts(name: str, values: tuple[str, ...]) -> None:
    given = cast("Any", values)
    good = isinstance(given, tuple | list) and len(values) <= MOST_VALUES
    _check(
        good and all(isinstance(cast("Any", v), str) and len(v) <= MOST_CHARS for v in values), name, values
    )


def _written(limit: float | None) -> str:
    if limit is None:
        return ""
    return f"{limit:.0f}" if float(limit).is_integer() else repr(float(limit))


def _read(name: str, text: str) -> Range:
    low, dots, high = text.partition("..")
    limits: Range | None = None
    with contextlib.suppress(ValueError):
        limits = (float(low) if low.strip() else None, float(high) if high.strip() else None)
    if not dots or limits is None:
        raise InputError(f"{name}-range is written as 10..20, 10.. or ..20, not {shown(text)}")
    return limits


class Place(NamedTuple):
    """A row in the order of a query: enough to find the rows before and after it, whatever has come since."""

    at: int
    """How many were before it."""
    value: float | None
    """What it is sorted by, where that is a number."""
    run: str
    shard: int
    row: int


def to_cursor(query: Query, place: Place) -> str:
    """A place as an opaque text that fits into a URL."""
    data = msgspec.json.encode((query.digest, *place))
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def from_cursor(query: Query, cursor: str) -> Place:
    """The place that a cursor of this query stands for."""
    try:
        data = base64.urlsafe_b64decode(cursor[:2_000].encode() + b"=" * (-len(cursor) % 4))
        digest, at, value, run, shard, row = msgspec.json.decode(
            data, type=tuple[str, int, float | None, str, int, int]
        )
    except (ValueError, UnicodeError):
        raise InputError("this is not a page of the list: begin with the first") from None
    if digest != query.digest:
        raise InputError("this page is of another search: begin with the first")
    found = Place(at, value, run, shard, row)
    if not (abs(found.at) < 2**62 and 0 <= found.shard < 2**31 and 0 <= found.row < 2**31):
        raise InputError("this is not a page of the list: begin with the first")
    return found
