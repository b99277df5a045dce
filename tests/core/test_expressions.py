"""Filter expressions: the grammar, its errors, and the same result in Python and in DuckDB."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel.core.expressions import ColumnKind, ExpressionError, parse_expression

KINDS: dict[str, ColumnKind] = {
    "stop": "text",
    "score.helpful": "number",
    "label": "set",
    "input.first name": "any",
    "in": "number",
}
TEXTS = ["", "a", "done", "5", "-2.5", "it's", 'say "x"', "é\n\\", "<b>", "Zürich", "1e5", "\u0000z"]
NUMBERS = [0.0, 1.0, -2.5, 4.0, 5.0, 1e20]


def random_term(pick: random.Random) -> str:
    column = pick.choice(list(KINDS))
    kind = KINDS[column]
    name = {"input.first name": 'input."first name"', "in": '"in"'}.get(column, column)
    numeric = kind == "number" or (kind == "any" and pick.random() < 0.5)

    def value() -> str:
        if numeric:
            return pick.choice([*map(repr, NUMBERS), "true", "false"])
        return "'" + pick.choice(TEXTS).replace("\\", "\\\\").replace("'", "''") + "'"

    operators = ["=", "!=", "in", "not in", "", "is missing"]
    operators += [] if kind == "set" else ["<", "<=", ">", ">="]
    operators += [] if numeric else ["contains"]
    operator = pick.choice(operators)
    if operator in ("", "is missing"):
        return f"{name} {operator}"
    if operator in ("in", "not in"):
        return f"{name} {operator} ({', '.join(value() for _ in range(pick.randint(1, 3)))})"
    return f"{name} {operator} {value()}"


def random_text(pick: random.Random, depth: int = 3) -> str:
    choice = pick.random()
    if depth == 0 or choice < 0.3:
        return random_term(pick)
    if choice < 0.5:
        return f"NOT ({random_text(pick, depth - 1)})"
    word = pick.choice([" and ", " OR "])
    return word.join(f"({random_text(pick, depth - 1)})" for _ in range(pick.randint(2, 3)))


def random_row(pick: random.Random) -> dict[str, Any]:
    row: dict[str, Any] = {
        "stop": pick.choice([None, *TEXTS]),
        "score.helpful": pick.choice([None, float("nan"), *NUMBERS]),
        "label": pick.choice([None, [], *([text] for text in TEXTS), TEXTS[:3], ["undone", "Zür"]]),
        "input.first name": pick.choice([None, *TEXTS]),
        "in": pick.choice([None, True, False, 5]),
    }
    return row


def test_python_and_duckdb_agree():
    """Every row of a table, for many generated expressions."""
    duckdb = pytest.importorskip("duckdb")
    pick = random.Random(7)
    rows = [random_row(pick) for _ in range(80)]
    with duckdb.connect() as database:
        database.execute("CREATE TABLE t (n INT, a VARCHAR, b DOUBLE, c VARCHAR[], d VARCHAR, e INT)")
        for number, row in enumerate(rows):
            database.execute("INSERT INTO t VALUES (?, ?, ?, ?::VARCHAR[], ?, ?)", [number, *row.values()])
        columns = dict(zip(KINDS, "abcde", strict=True))
        for _ in range(300):
            text = random_text(pick)
            expression = parse_expression(text, KINDS)
            condition, given = expression.to_sql(columns, KINDS)
            found = database.execute(f"SELECT n FROM t WHERE {condition} ORDER BY n", given).fetchall()
            assert [n for (n,) in found] == [n for n, row in enumerate(rows) if expression.matches(row)], text


def test_longest_expression_runs_in_duckdb():
    duckdb = pytest.importorskip("duckdb")
    text = "(" * 49 + " or ".join(["stop = 'a'"] * 400) + ")" * 49
    condition, given = parse_expression(text, KINDS).to_sql({"stop": "'a'"}, KINDS)
    assert duckdb.execute(f"SELECT {condition}", given).fetchone() == (True,)


def test_round_trip():
    pick = random.Random(1)
    for _ in range(500):
        expression = parse_expression(random_text(pick))
        assert parse_expression(str(expression)) == expression


@given(st.text(max_size=80) | st.text("abin\"'\\.,()=<>!1- \n", max_size=80))
def test_any_text_parses_or_names_a_position(text: str):
    position = 1
    try:
        expression = parse_expression(text)
    except ExpressionError as error:
        position = error.position
    else:
        assert parse_expression(str(expression)) == expression
        assert expression.matches({}) in (True, False)
    assert 1 <= position <= len(text) + 1


@pytest.mark.parametrize("opened", ["(", "not ", "not ("])
def test_nesting_has_a_limit(opened: str):
    with pytest.raises(ExpressionError):
        parse_expression(opened * 10_000 + "stop")
    parse_expression(opened * 20 + "stop" + ")" * 20 * opened.count("("))
    with pytest.raises(ExpressionError):
        parse_expression(" or ".join(["stop"] * 10_000))


def test_precedence_and_case():
    assert parse_expression("a OR b And Not c") == parse_expression("(a or (b and (not c)))")
    assert parse_expression("not a = 1") == parse_expression("not (a = 1)")
    assert parse_expression("a and b and c").columns == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("a != 1", {"a": None}, False),
        ("not a = 1", {}, True),
        ("a not in (1)", {}, False),
        ("a is missing", {"a": float("nan")}, True),
        ("a is missing", {"a": ""}, False),
        ("a", {"a": "x"}, True),
        ("a", {"a": 0.0}, False),
        ("a = true", {"a": True}, True),
        ('a = "x"', {"a": ["x", "y"]}, True),
        ('a != "z"', {"a": []}, True),
        ('a contains "in"', {"a": "find"}, True),
        ('a contains "time"', {"a": ["add", "convert_time"]}, True),
        ('a contains "addcon"', {"a": ["add", "convert_time"]}, False),
        ('a contains ""', {"a": []}, False),
        ('a contains "1"', {"a": [1, None]}, False),
        ('a = "time"', {"a": ["convert_time"]}, False),
        ("a >= 18", {"a": "20"}, True),
        ("a >= 18", {"a": "twenty"}, False),
        ('a = "1"', {"a": 1}, False),
        ("a < 1", {"a": {"b": 1}}, False),
        ("a > 1", {"a": 10**400}, True),
    ],
)
def test_meaning(text: str, values: dict[str, Any], expected: bool):
    assert parse_expression(text).matches(values) is expected


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 1),
        ("stop =", 7),
        ('stop = "done', 8),
        ("(stop", 6),
        ("stop stop", 6),
        ("stop is empty", 9),
        ("stop not contains 'x'", 10),
        ("label in ()", 11),
        ("label in ('a', 1)", 16),
        ('stop = "a" and scor.helpful > 1', 16),
        ("stop = 3", 1),
        ('score.helpful = "3"', 1),
        ("label < 'a'", 1),
        ("score.helpful contains 'a'", 1),
    ],
)
def test_errors_name_position_and_columns(text: str, position: int):
    with pytest.raises(ExpressionError) as error:
        parse_expression(text, KINDS)
    assert error.value.position == position
    assert "Columns: stop, score.helpful, label" in str(error.value)


def test_error_suggests_a_column():
    with pytest.raises(ExpressionError, match=r"'score\.helpful'"):
        parse_expression("score.helpfull > 1").check(KINDS)
