"""A query for conversations: filters and order. It is the same in Python, in a URL and in a cursor.

The one decision to know: a query is untrusted data. Its names are checked here, and its values reach the database only as
parameters.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, cast

import msgspec

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.index.facets import NUMBERS
from camel.query.parts import ANNOTATED, FILTERS, YES

Sort = Literal["", "order", "relevance", "messages", "tokens", "calls", "cost"]
Order = Literal["asc", "desc"]
_SORTS = ("", "order", "relevance", *NUMBERS)
MOST_VALUES = 200
"""Maximum values of one facet in a query."""
MOST_CHARS = 1_000
"""Maximum characters of a value or of the search text."""
MOST_WHERE = 8_000
"""Maximum characters of a filter expression."""

Range = tuple[float | None, float | None]
"""Minimum and maximum, both included. None means no limit."""


class Query(msgspec.Struct, frozen=True, omit_defaults=True):
    """Filters and order of conversations. An empty query selects all conversations, in the order of the runs."""

    runs: tuple[str, ...] = ()
    """Names of runs of the catalogue. If empty, all runs."""
    text: str = ""
    """Words that a conversation must contain. Words "in quotes" must be adjacent."""
    facets: dict[str, tuple[str, ...]] = {}
    """For each facet, the accepted values; an empty value accepts conversations without one. Annotations are facets too:
    `{"starred": ("yes",), "noted": ("yes",), "tag": ("odd",)}`."""
    ranges: dict[str, Range] = {}
    """Minimum and maximum of numbers (messages, tokens, calls, cost), by name."""
    where: str = ""
    """A filter expression, such as `score.helpful >= 4 and not duplicate` (`camel.core.expressions`)."""
    sort: Sort = ""
    """The sort key. If empty, rows are sorted by relevance for a text search, otherwise in the order of the runs."""
    order: Order = "asc"

    def __post_init__(self) -> None:
        for name, text, most in (("text", self.text, MOST_CHARS), ("where", self.where, MOST_WHERE)):
            _check(isinstance(cast("Any", text), str) and len(text) <= most, name, text)
        _check(self.sort in _SORTS, "sort", self.sort)
        _check(self.order in ("asc", "desc"), "order", self.order)
        _texts("runs", self.runs)
        for name, values in self.facets.items():
            if name not in FILTERS:
                raise InputError(f"unknown facet {shown(name)}: use one of {', '.join(FILTERS)}")
            _texts(name, values)
            # Conversations without annotations are in no annotation file, so a query cannot ask for them.
            _check(name not in ANNOTATED or "" not in values, name, values)
            _check(name not in ("starred", "noted") or set(values) <= {YES}, name, values)
        for name, limits in self.ranges.items():
            if name not in NUMBERS:
                raise InputError(f"unknown number {shown(name)}: use one of {', '.join(NUMBERS)}")
            given: list[Any] = [one for one in limits if one is not None]
            numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in given)
            _check(len(limits) == 2 and numbers and all(abs(one) < 1e18 for one in given), name, limits)

    @property
    def annotated(self) -> bool:
        """Whether the query selects only annotated conversations."""
        return not self.facets.keys().isdisjoint(ANNOTATED)

    @property
    def narrowed(self) -> bool:
        """Whether it needs more than facets: a text search, a filter expression or limits of numbers."""
        return bool(self.text.strip() or self.where or self.ranges)

    @property
    def sorted_by(self) -> str:
        """The sort key that applies, also if `sort` is empty."""
        return self.sort or ("relevance" if self.text.strip() else "order")

    def without(self, facet: str) -> Query:
        """Return the query without the filter of one facet."""
        left = {name: values for name, values in self.facets.items() if name != facet}
        return msgspec.structs.replace(self, facets=left)

    def to_params(self) -> list[tuple[str, str]]:
        """Return the parameters of a URL, in a fixed order, so that equal queries have equal URLs."""
        params = [("run", name) for name in self.runs]
        params += [("q", self.text)] if self.text else []
        params += [("where", self.where)] if self.where else []
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
        """Make a query from the parameters of a URL, as pairs or as a mapping. Unknown parameters are ignored."""
        source: Any = params
        given: Iterable[tuple[str, Any]] = source.items() if isinstance(params, Mapping) else source
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
            where=last.get("where", "").strip(),
            facets={name: tuple(dict.fromkeys(by[name])) for name in FILTERS if name in by},
            ranges={name: limits for name, limits in ranges.items() if limits != (None, None)},
            sort=cast("Sort", last.get("sort", "")),
            order=cast("Order", last.get("order", "asc")),
        )

    @property
    def digest(self) -> str:
        """A hash that identifies the query."""
        return hashlib.blake2b(repr(self.to_params()).encode("utf-8", "replace"), digest_size=6).hexdigest()


def _check(good: bool, name: str, value: object) -> None:
    if not good:
        raise InputError(f"the query has an invalid value for {name}: {shown(value)}")


def _texts(name: str, values: tuple[str, ...]) -> None:
    given: list[Any] = list(values) if isinstance(cast("Any", values), tuple | list) else [None]
    good = len(given) <= MOST_VALUES and all(isinstance(v, str) and len(v) <= MOST_CHARS for v in given)
    _check(good, name, values)


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
        raise InputError(f"{name}-range must have the form 10..20, 10.. or ..20, not {shown(text)}")
    return limits


class Place(NamedTuple):
    """The place of a row in a list. It stays valid when rows are added to the list."""

    at: int
    """Number of rows before this one in the list."""
    value: float | None
    """The sort key of the row, if it is a number."""
    run: str
    shard: int
    row: int


def to_cursor(query: Query, place: Place) -> str:
    """Encode a place as an opaque text for a URL."""
    data = msgspec.json.encode((query.digest, *place))
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def from_cursor(query: Query, cursor: str) -> Place:
    """Decode a cursor. Raise an `InputError` if it is damaged or belongs to another query."""
    try:
        data = base64.urlsafe_b64decode(cursor[:2_000].encode() + b"=" * (-len(cursor) % 4))
        digest, at, value, run, shard, row = msgspec.json.decode(
            data, type=tuple[str, int, float | None, str, int, int]
        )
    except (ValueError, UnicodeError):
        raise InputError("the page's address is damaged: start at the first page") from None
    if digest != query.digest:
        raise InputError("this link to a page of results is from another search: open the first page")
    found = Place(at, value, run, shard, row)
    if not (abs(found.at) < 2**62 and 0 <= found.shard < 2**31 and 0 <= found.row < 2**31):
        raise InputError("the page's address is damaged: start at the first page")
    return found
