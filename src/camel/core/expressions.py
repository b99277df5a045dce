"""Filter expressions: `score.helpful >= 4 and stop = "done" and not duplicate`.

One grammar for exports, training rows, studies, the explorer and Python. An expression is evaluated on a mapping of
values (`matches`) or becomes a condition of DuckDB (`to_sql`). Both give the same result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Literal, NoReturn, cast

from camel.core.errors import InputError

ColumnKind = Literal["text", "number", "set", "any"]
"""What a column contains. True and false are the numbers 1 and 0. `any`: text that may be a number, or mixed values."""

_MOST_TERMS, _MOST_LEVELS, _MOST_NAMES = 400, 50, 60
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_ORDER = ("<", "<=", ">", ">=")
_KEYWORDS = frozenset({"and", "or", "not", "in", "contains", "is", "missing", "true", "false"})
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


@dataclass(frozen=True)
class _Term:
    """A column alone (`operator` is empty), or a column compared with values."""

    column: str
    position: int = field(compare=False)
    operator: str = ""
    values: tuple[str | float, ...] = ()

    @property
    def negative(self) -> bool:
        return self.operator in ("!=", "not in")

    def check(self, kind: ColumnKind, known: Iterable[str]) -> None:
        """Raise if the operator or the values do not fit the kind of the column."""
        if kind != "any" and self.values and isinstance(self.values[0], str) != (kind != "number"):
            what = "a number" if kind == "number" else 'text in quotes, as in "done"'
            problem = f"{self.column!r} is compared with {what}, not with {self.values[0]!r}"
            raise ExpressionError(problem, self.position, known)
        if (kind == "set" and self.operator in _ORDER) or (kind == "number" and self.operator == "contains"):
            problem = f"{self.column!r} cannot be compared by `{self.operator}`: use `=`, `!=` or `in`"
            raise ExpressionError(problem, self.position, known)

    def matches(self, values: Mapping[str, Any]) -> bool:
        """Return whether it is true for these values."""
        value = values.get(self.column)
        if isinstance(value, float) and value != value:  # NaN
            value = None
        if isinstance(value, (list, tuple, set, frozenset)):
            return self._matches_set(list(cast("Iterable[Any]", value)))
        if self.operator == "is missing":
            return value is None
        if not self.operator:
            return bool(value)
        first = self.values[0]
        if not isinstance(first, str):
            value = _as_number(value)
        if value is None or isinstance(value, str) != isinstance(first, str):
            return False
        if self.operator in ("in", "not in"):
            return (value in self.values) != self.negative
        return first in value if self.operator == "contains" else _COMPARE[self.operator](value, first)

    def _matches_set(self, members: list[Any]) -> bool:
        if self.operator in ("", "is missing"):
            return bool(members) == (self.operator == "")
        found = any(wanted in members for wanted in self.values)
        return found != self.negative and self.operator not in _ORDER

    def to_sql(self, name: str, kind: ColumnKind) -> tuple[str, list[Any]]:
        """Return a condition that is never NULL, and its parameters."""
        type_ = "DOUBLE" if self.values and not isinstance(self.values[0], str) else "VARCHAR"
        if kind == "number":
            name = f"nullif(({name})::DOUBLE, 'nan'::DOUBLE)"
        elif kind == "any" and type_ == "DOUBLE":
            name = f"CASE WHEN regexp_full_match({name}, '{_NUMERIC}') THEN try_cast({name} AS DOUBLE) END"
        if not self.values:
            empty = {"set": f"len({name}) = 0", "number": f"{name} = 0"}.get(kind, f"({name}) = ''")
            if not self.operator:
                return f"coalesce(NOT ({empty}), false)", []
            return f"(({name}) IS NULL{f' OR {empty}' if kind == 'set' else ''})", []
        listed = kind == "set" or self.operator in ("in", "not in")
        if kind == "set":
            found = f"list_has_any({name}, ?::VARCHAR[])"
        elif listed:
            found = f"list_contains(?::{type_}[], ({name}))"
        elif self.operator == "contains":
            found = f"contains({name}, ?::VARCHAR)"
        else:
            found = f"({name}) {self.operator} ?::{type_}"
        if listed and self.negative:
            found = f"NOT {found}"
        return f"coalesce(({name}) IS NOT NULL AND {found}, false)", [
            list(self.values) if listed else self.values[0]
        ]

    def __str__(self) -> str:
        first, *rest = self.column.split(".", 1)
        name = ".".join(part if _is_plain(part) else _quote(part) for part in (first, *rest))
        shown = [_quote(value) if isinstance(value, str) else repr(value) for value in self.values]
        values = f"({', '.join(shown)})" if self.operator in ("in", "not in") else "".join(shown)
        return " ".join(part for part in (name, self.operator, values) if part)


@dataclass(frozen=True)
class _Group:
    """Two or more parts joined by `and` or `or`, or one part after `not`."""

    word: Literal["and", "or", "not"]
    parts: tuple[_Node, ...]

    def matches(self, values: Mapping[str, Any]) -> bool:
        found = (part.matches(values) for part in self.parts)
        return any(found) if self.word == "or" else all(found) == (self.word == "and")

    def __str__(self) -> str:
        parts = [
            f"({part})" if isinstance(part, _Group) and part.word != "not" else str(part)
            for part in self.parts
        ]
        return f"not {parts[0]}" if self.word == "not" else f" {self.word} ".join(parts)


_Node = _Term | _Group


@dataclass(frozen=True)
class Expression:
    """A parsed filter expression. `str` returns its text in a normal form."""

    node: _Node

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it mentions."""
        return frozenset(term.column for term in _terms(self.node))

    def check(self, known: Mapping[str, ColumnKind]) -> None:
        """Raise an `ExpressionError` if a column is not in `known`, or is compared with a value of another kind."""
        for term in _terms(self.node):
            if term.column not in known:
                near = get_close_matches(term.column, known, 1)
                hint = f"; did you mean {near[0]!r}" if near else ""
                raise ExpressionError(f"unknown column {term.column!r}{hint}", term.position, known)
            term.check(known[term.column], known)

    def matches(self, values: Mapping[str, Any]) -> bool:
        """Return whether it is true for these values. A value that is missing or None makes every comparison false."""
        return self.node.matches(values)

    def to_sql(self, columns: Mapping[str, str], kinds: Mapping[str, ColumnKind]) -> tuple[str, list[Any]]:
        """Return a condition of DuckDB and its parameters. `columns` gives the SQL of each column, `kinds` its kind.

        A `set` is a list of VARCHAR, `any` is a VARCHAR. Call `check` with the same kinds first.
        """
        return _to_sql(self.node, columns, kinds)

    def __str__(self) -> str:
        return str(self.node)


def parse_expression(text: str, known: Mapping[str, ColumnKind] | None = None) -> Expression:
    """Parse a filter expression. If `known`, the columns and their kinds, is given, check it too.

    Raises an `ExpressionError` with the position of the first error.
    """
    expression = Expression(_Parser(text, known or {}).parse())
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

    def parse(self) -> _Node:
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

    def _group(self, word: Literal["and", "or"]) -> _Node:
        part = (lambda: self._group("and")) if word == "or" else self._factor
        parts = [part()]
        while self._take(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else _Group(word, tuple(parts))

    def _factor(self) -> _Node:
        start = self._start
        opened = self._take("not", "(")
        if not opened:
            return self._term()
        self._levels += 1
        if self._levels > _MOST_LEVELS:
            raise ExpressionError(
                f"more than {_MOST_LEVELS} levels of `not` and parentheses", start, self._known
            )
        node = _Group("not", (self._factor(),)) if opened == "not" else self._group("or")
        if opened == "(" and not self._take(")"):
            self._fail("expected `)`")
        self._levels -= 1
        return node

    def _term(self) -> _Term:
        self._terms += 1
        start = self._start
        if self._terms > _MOST_TERMS:
            raise ExpressionError(f"more than {_MOST_TERMS} comparisons", start, self._known)
        column = self._name(_KEYWORDS)
        while self._take("."):
            column += f".{self._name()}"
        operator = self._take(*_COMPARE, "in", "not", "contains", "is")
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

    def _name(self, reserved: frozenset[str] = frozenset()) -> str:
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
        return self._fail(
            f"expected {({str: 'text in quotes', float: 'a number'}).get(only, 'text in quotes or a number')}"
        )


def _terms(node: _Node) -> Iterator[_Term]:
    if isinstance(node, _Term):
        yield node
    else:
        for part in node.parts:
            yield from _terms(part)


def _to_sql(
    node: _Node, columns: Mapping[str, str], kinds: Mapping[str, ColumnKind]
) -> tuple[str, list[Any]]:
    if isinstance(node, _Term):
        return node.to_sql(columns[node.column], kinds[node.column])
    parts = [_to_sql(part, columns, kinds) for part in node.parts]
    joined = (
        f"(NOT {parts[0][0]})"
        if node.word == "not"
        else f"({f' {node.word} '.join(sql for sql, _ in parts)})"
    )
    return joined, [value for _, given in parts for value in given]


def _as_number(value: Any) -> float | None:
    if isinstance(value, str):
        return float(value) if re.fullmatch(_NUMERIC, value) else None
    try:
        return float(value) if isinstance(value, (int, float)) else None
    except OverflowError:
        return float("inf") if value > 0 else -float("inf")


def _is_plain(name: str) -> bool:
    return bool(re.fullmatch(r"[^\W\d][\w-]*", name)) and name.lower() not in _KEYWORDS


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _unquote(token: str) -> str:
    """Return the text of a quoted token. A quote in it is doubled, or has a backslash; `\\n` and `\\t` have their usual meaning."""
    mark = token[0]
    return re.sub(
        rf"\\(.)|{mark}{mark}",
        lambda found: {None: mark, "n": "\n", "t": "\t"}.get(found[1], found[1]),
        token[1:-1],
        flags=re.DOTALL,
    )
