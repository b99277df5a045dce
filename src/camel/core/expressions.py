"""Filter expressions: `score.helpful >= 4 and stop = "done" and not duplicate`.

One grammar for exports, training rows, studies, the explorer and Python. An expression is evaluated on a mapping of
values (`matches`) or becomes a condition of DuckDB (`to_sql`). Both give the same result.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from operator import contains, eq, ge, gt, le, lt, ne
from typing import Any, Literal, NoReturn, cast

from camel.core.errors import InputError

ColumnKind = Literal["text", "number", "set", "any"]
"""What a column contains. True and false are the numbers 1 and 0. `any`: text that may be a number, or mixed values."""

_MOST_TERMS, _MOST_LEVELS, _MOST_NAMES = 400, 50, 60
_SIGNS = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {**_SIGNS, "contains": contains}
_ORDER = ("<", "<=", ">", ">=")
_KEYWORDS = ("and", "or", "not", "in", "contains", "is", "missing", "true", "false")
_PLAIN = re.compile(rf"(?i)(?!(?:{'|'.join(_KEYWORDS)})\Z)[^\W\d][\w-]*")
"""A name that needs no quotes."""
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?!\w))
    |(?P<text>"(?:[^"\\]|\\.|"")*"|'(?:[^'\\]|\\.|'')*')
    |(?P<word>[^\W\d][\w-]*)|(?P<sign>!=|<=|>=|[=<>(),.])|(?P<end>\Z)|(?P<other>.))""",
    re.VERBOSE | re.DOTALL,
)
_NUMERIC = "-?[0-9]{1,15}([.][0-9]{1,15})?"
"""Text that is compared with numbers as a number, in Python and in SQL."""


class ExpressionError(InputError):
    """A filter expression is malformed, or does not fit the columns."""

    def __init__(self, problem: str, position: int, known: Iterable[str] = ()) -> None:
        names = list(known)
        listed = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
        columns = f". Columns: {listed}" if names else ""
        super().__init__(f"filter, character {position}: {problem}{columns}")
        self.position = position
        """The first wrong character, counted from 1."""


class Expression(ABC):
    """A parsed filter expression. `str` returns its text in a normal form."""

    @abstractmethod
    def terms(self) -> Iterator[_Term]:
        """Yield the comparisons in this expression."""

    @abstractmethod
    def matches(self, values: Mapping[str, Any]) -> bool:
        """Return whether it is true for these values. A value that is missing or None makes every comparison false."""

    @abstractmethod
    def to_sql(self, columns: Mapping[str, str], kinds: Mapping[str, ColumnKind]) -> tuple[str, list[Any]]:
        """Return a condition of DuckDB that is never NULL, and its parameters. `columns` gives the SQL of each column.

        A `set` is a list of VARCHAR, `any` is a VARCHAR. Call `check` with the same kinds first.
        """

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it mentions."""
        return frozenset(term.column for term in self.terms())

    def check(self, known: Mapping[str, ColumnKind]) -> None:
        """Raise an `ExpressionError` if a column is not in `known`, or is compared with a value of another kind."""
        for term in self.terms():
            if term.column in known:
                problem = term.problem(known[term.column])
            else:
                near = get_close_matches(term.column, known, 1)
                problem = f"unknown column {term.column!r}" + (f", did you mean {near[0]!r}" if near else "")
            if problem:
                raise ExpressionError(problem, term.position, known)


@dataclass(frozen=True)
class _Term(Expression):
    """A column alone (`operator` is empty), or a column compared with values."""

    column: str
    position: int = field(compare=False)
    operator: str = ""
    values: tuple[str | float, ...] = ()

    def terms(self) -> Iterator[_Term]:
        yield self

    def problem(self, kind: ColumnKind) -> str:
        """Return why the operator or the values do not fit the kind of the column, or an empty text."""
        if kind != "any" and self.values and isinstance(self.values[0], str) != (kind != "number"):
            what = "a number" if kind == "number" else 'text in quotes, as in "done"'
            return f"{self.column!r} is compared with {what}, not with {_quote(self.values[0])}"
        if (kind == "set" and self.operator in _ORDER) or (kind == "number" and self.operator == "contains"):
            return f"{self.column!r} cannot be compared by `{self.operator}`: use `=`, `!=` or `in`"
        return ""

    @property
    def _negative(self) -> bool:
        return self.operator in ("!=", "not in")

    def matches(self, values: Mapping[str, Any]) -> bool:
        value = values.get(self.column)
        if isinstance(value, float) and value != value:  # NaN
            value = None
        if isinstance(value, (list, tuple, set, frozenset)):
            return self._matches_set(list(cast("Iterable[Any]", value)))
        if not self.values:
            return value is None if self.operator else bool(value)
        first = self.values[0]
        if not isinstance(first, str):
            value = _as_number(value)
        if value is None or isinstance(value, str) != isinstance(first, str):
            return False
        if self.operator in ("in", "not in"):
            return (value in self.values) != self._negative
        return _COMPARE[self.operator](value, first)

    def _matches_set(self, members: list[Any]) -> bool:
        if not self.values:
            return bool(members) == (not self.operator)
        if self.operator == "contains":
            return any(isinstance(one, str) and str(self.values[0]) in one for one in members)
        found = any(wanted in members for wanted in self.values)
        return found != self._negative and self.operator not in _ORDER

    def to_sql(self, columns: Mapping[str, str], kinds: Mapping[str, ColumnKind]) -> tuple[str, list[Any]]:
        name, kind = columns[self.column], kinds[self.column]
        type_ = "DOUBLE" if self.values and not isinstance(self.values[0], str) else "VARCHAR"
        if kind == "number":
            name = f"nullif(({name})::DOUBLE, 'nan'::DOUBLE)"
        elif kind == "any" and type_ == "DOUBLE":
            name = f"CASE WHEN regexp_full_match({name}, '{_NUMERIC}') THEN try_cast({name} AS DOUBLE) END"
        if not self.values:
            empty = {"set": f"len({name}) = 0", "number": f"{name} = 0"}.get(kind, f"({name}) = ''")
            missing = f"(({name}) IS NULL{f' OR {empty}' if kind == 'set' else ''})"
            return missing if self.operator else f"coalesce(NOT ({empty}), false)", []
        if kind == "set" and self.operator == "contains":
            found, given = f"len([one for one in {name} if contains(one, ?::VARCHAR)]) > 0", self.values[0]
        elif kind == "set":
            found, given = f"list_has_any({name}, ?::VARCHAR[])", list(self.values)
        elif self.operator in ("in", "not in"):
            found, given = f"list_contains(?::{type_}[], ({name}))", list(self.values)
        elif self.operator == "contains":
            found, given = f"contains({name}, ?::VARCHAR)", self.values[0]
        else:
            found, given = f"({name}) {self.operator} ?::{type_}", self.values[0]
        negated = "NOT " if self._negative and isinstance(given, list) else ""
        return f"coalesce(({name}) IS NOT NULL AND {negated}{found}, false)", [given]

    def __str__(self) -> str:
        parts = self.column.split(".", 1)
        name = ".".join(part if _PLAIN.fullmatch(part) else _quote(part) for part in parts)
        shown = ", ".join(map(_quote, self.values))
        return f"{name} {self.operator} {f'({shown})' if self.operator.endswith('in') else shown}".strip()


@dataclass(frozen=True)
class _Group(Expression):
    """Two or more parts joined by `and` or `or`, or one part after `not`."""

    word: str
    parts: tuple[Expression, ...]

    def terms(self) -> Iterator[_Term]:
        return (term for part in self.parts for term in part.terms())

    def matches(self, values: Mapping[str, Any]) -> bool:
        found = (part.matches(values) for part in self.parts)
        return any(found) if self.word == "or" else all(found) == (self.word == "and")

    def to_sql(self, columns: Mapping[str, str], kinds: Mapping[str, ColumnKind]) -> tuple[str, list[Any]]:
        parts = [part.to_sql(columns, kinds) for part in self.parts]
        return self._join(sql for sql, _ in parts), [value for _, given in parts for value in given]

    def __str__(self) -> str:
        return self._join(map(str, self.parts))

    def _join(self, parts: Iterable[str]) -> str:
        return f"not {next(iter(parts))}" if self.word == "not" else f"({f' {self.word} '.join(parts)})"


def parse_expression(text: str, known: Mapping[str, ColumnKind] | None = None) -> Expression:
    """Parse a filter expression. If `known`, the columns and their kinds, is given, check it too.

    Raises an `ExpressionError` with the position of the first error.
    """
    expression = _Parser(text, known or {}).parse()
    if known is not None:
        expression.check(known)
    return expression


class _Parser:
    """Recursive descent: `or` binds weakest, then `and`, then `not`."""

    def __init__(self, text: str, known: Iterable[str]) -> None:
        self._text, self._known = text, known
        self._kind, self._token, self._start, self._end = "", "", 0, 0
        self._terms, self._levels = 0, 0
        self._advance()

    def parse(self) -> Expression:
        node = self._group("or")
        if self._kind != "end":
            self._fail("expected `and`, `or` or the end")
        return node

    def _advance(self) -> str:
        """Move to the next token and return the current one."""
        token = self._token
        found = _TOKEN.match(self._text, self._end)
        assert found is not None
        self._kind = found.lastgroup or ""
        self._token, self._start, self._end = found[self._kind], found.start(self._kind) + 1, found.end()
        return token

    def _take(self, *tokens: str) -> str:
        """Return the current word or sign in lower case and move on if it is one of these; otherwise an empty string."""
        if self._kind in ("word", "sign") and self._token.lower() in tokens:
            return self._advance().lower()
        return ""

    def _fail(self, expected: str) -> NoReturn:
        found = "the end" if self._kind == "end" else repr(self._token[:40])
        if self._kind == "other" and found in ("'\"'", '"\'"'):
            found += " without a closing one"
        raise ExpressionError(f"{expected}, found {found}", self._start, self._known)

    def _group(self, word: Literal["and", "or"]) -> Expression:
        part = (lambda: self._group("and")) if word == "or" else self._factor
        parts = [part()]
        while self._take(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else _Group(word, tuple(parts))

    def _factor(self) -> Expression:
        if self._levels >= _MOST_LEVELS:
            self._fail(f"expected at most {_MOST_LEVELS} levels of `not` and parentheses")
        opened = self._take("not", "(")
        if not opened:
            return self._term()
        self._levels += 1
        node = _Group("not", (self._factor(),)) if opened == "not" else self._group("or")
        if opened == "(" and not self._take(")"):
            self._fail("expected `)`")
        self._levels -= 1
        return node

    def _term(self) -> _Term:
        self._terms, start = self._terms + 1, self._start
        if self._terms > _MOST_TERMS:
            self._fail(f"expected at most {_MOST_TERMS} comparisons")
        column = self._name(_KEYWORDS)
        while self._take("."):
            column += f".{self._name()}"
        operator = self._take(*_COMPARE, "in", "not", "is")
        if operator in ("not", "is"):
            second = {"not": "in", "is": "missing"}[operator]
            if not self._take(second):
                self._fail(f"expected `{second}` after `{operator}`")
            operator += f" {second}"
        if not operator or operator == "is missing":
            return _Term(column, start, operator)
        if not operator.endswith("in"):
            return _Term(column, start, operator, (self._value(str if operator == "contains" else None),))
        if not self._take("("):
            self._fail(f"expected `(` after `{operator}`")
        values = [self._value()]
        while self._take(","):
            values.append(self._value(str if isinstance(values[0], str) else float))
        if not self._take(")"):
            self._fail("expected `,` or `)`")
        return _Term(column, start, operator, tuple(values))

    def _name(self, reserved: Sequence[str] = ()) -> str:
        if self._kind == "text":
            return _unquote(self._advance())
        if self._kind != "word" or self._token.lower() in reserved:
            self._fail("expected a column")
        return self._advance()

    def _value(self, only: type[str] | type[float] | None = None) -> str | float:
        if self._kind == "text" and only is not float:
            return _unquote(self._advance())
        if self._kind == "number" and only is not str and abs(float(self._token)) < float("inf"):
            return float(self._advance())
        if word := self._take("true", "false") if only is not str else "":
            return float(word == "true")
        kinds = {str: "text in quotes", float: "a number", None: "text in quotes or a number"}
        return self._fail(f"expected {kinds[only]}")


def _as_number(value: Any) -> float | None:
    if isinstance(value, str):
        return float(value) if re.fullmatch(_NUMERIC, value) else None
    try:
        return float(value) if isinstance(value, (int, float)) else None
    except OverflowError:
        return float("inf") if value > 0 else -float("inf")


def _quote(value: str | float) -> str:
    """Return a value as it is written in an expression."""
    if not isinstance(value, str):
        return repr(value).removesuffix(".0")
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _unquote(token: str) -> str:
    """Return the text of a quoted token. A quote in it is doubled, or has a backslash; `\\n` and `\\t` have their usual meaning."""
    mark = token[0]
    named = {None: mark, "n": "\n", "t": "\t"}
    return re.sub(rf"(?s)\\(.)|{mark}{mark}", lambda found: named.get(found[1], found[1]), token[1:-1])
