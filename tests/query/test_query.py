"""Queries survive a round trip through a URL, and invalid ones are rejected."""

from __future__ import annotations

import base64
import string
from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel.core.errors import InputError
from camel.index.facets import FACETS, NUMBERS
from camel.query.where import MOST_CHARS, MOST_VALUES, Place, Query, from_cursor, to_cursor

texts = st.text(st.characters(codec="utf-8"), max_size=40)
values = st.lists(texts, min_size=1, max_size=3, unique=True).map(tuple)
numbers = st.one_of(st.none(), st.integers(-5, 10**9).map(float), st.floats(-1e6, 1e6))
queries = st.builds(
    Query,
    runs=st.lists(texts, max_size=2, unique=True).map(tuple),
    text=texts,
    facets=st.dictionaries(st.sampled_from(sorted(FACETS)), values, max_size=3),
    ranges=st.dictionaries(
        st.sampled_from(NUMBERS), st.tuples(numbers, numbers).filter(lambda r: r != (None, None)), max_size=2
    ),
    sort=st.sampled_from(["", "order", "relevance", *NUMBERS]),
    order=st.sampled_from(["asc", "desc"]),
)


@given(queries)
def test_a_query_survives_a_url(query: Query):
    url = urlencode(query.to_params())
    again = Query.from_params(parse_qsl(url, keep_blank_values=True))
    assert again == query
    assert again.digest == query.digest


@given(
    st.lists(
        st.tuples(
            st.sampled_from([*FACETS, *(f"{n}-range" for n in NUMBERS), "q", "sort", "order", "run", "x"]),
            texts,
        )
    )
)
def test_any_parameters_give_a_query_or_a_one_line_error(params: list[tuple[str, str]]):
    refused = ""
    try:
        query = Query.from_params(params)
    except InputError as error:
        refused = str(error)
    else:
        assert Query.from_params(query.to_params()) == query
    assert "\n" not in refused
    assert len(refused) < 300


@pytest.mark.parametrize(
    "params",
    [
        {"sort": "tokens; drop table x"},
        {"order": "sideways"},
        {"messages-range": "1"},
        {"messages-range": "nan..2"},
        {"tokens-range": "1..inf"},
        {"cost-range": "1e300.."},
        {"q": "x" * (MOST_CHARS + 1)},
        {"stop": ["x" * (MOST_CHARS + 1)]},
        {"stop": [str(n) for n in range(MOST_VALUES + 1)]},
    ],
)
def test_invalid_queries_are_rejected(params: dict[str, object]):
    with pytest.raises(InputError):
        Query.from_params(params)


def test_unknown_names_are_rejected():
    with pytest.raises(InputError, match="facet"):
        Query(facets={"id from x; --": ("1",)})
    with pytest.raises(InputError, match="number"):
        Query(ranges={"row": (1, 2)})


@given(
    queries, st.integers(0, 2**40), st.one_of(st.none(), st.floats(-1e9, 1e9)), texts, st.integers(0, 2**30)
)
def test_a_cursor_belongs_to_its_query(query: Query, at: int, value: float | None, run: str, shard: int):
    place = Place(at, value, run, shard, 3)
    cursor = to_cursor(query, place)
    assert set(cursor) <= {*string.ascii_letters, *string.digits, "-", "_"}
    assert from_cursor(query, cursor) == place
    other = Query(text=query.text + "!") if len(query.text) < 40 else Query()
    with pytest.raises(InputError, match="another search"):
        from_cursor(other, cursor)


@given(
    st.one_of(
        st.text(max_size=60), st.binary(max_size=60).map(lambda b: base64.urlsafe_b64encode(b).decode())
    )
)
def test_an_invalid_cursor_is_rejected(cursor: str):
    with pytest.raises(InputError):
        from_cursor(Query(), cursor)
