"""Lists as text that a person edits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel import InputError
from camel.scenarios import NamedList, heading, read_lists, render_lists

lines = st.text(min_size=1, max_size=30).map(lambda text: " ".join(text.split())).filter(bool)


@given(
    st.lists(
        st.builds(
            NamedList,
            st.lists(lines, min_size=1, max_size=3).map(tuple),
            st.lists(lines, min_size=1, max_size=4).map(tuple),
        )
    )
)
def test_round_trip_of_a_shard(lists: list[NamedList]):
    assert read_lists(render_lists(lists), parents=[one.parents for one in lists]) == lists


@given(st.lists(lines, min_size=1))
def test_round_trip_without_parents(items: list[str]):
    text = render_lists([((), items)])
    assert read_lists(text, count=len(items), parents=[()]) == [NamedList((), tuple(items))]


def test_what_it_looks_like():
    text = render_lists([(("Accountant", "Actor"), ["File taxes", "Plan"]), (("A | B", "C"), ["1. x"])])
    assert text == "# Accountant | Actor\n1. File taxes\n2. Plan\n\n# A \\| B | C\n1. 1. x\n"
    assert render_lists([((), ["Actor", "Baker"])]) == "1. Actor\n2. Baker\n"


def test_edited_by_hand():
    text = "\ufeff\n#  Accountant |  Actor \r\nFile   taxes\r\n\r\n7) Plan\n3.\n\n#  B | C\n1. x\n- y\n\n"
    assert read_lists(text, count=2) == [
        NamedList(("Accountant", "Actor"), ("File taxes", "Plan")),
        NamedList(("B", "C"), ("x", "- y")),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# A\n1. x\n2. y\n\n# B\n1. x\n", "tasks.txt:5: "),
        ("# A\n1. x\n2. y\n3. z\n", "tasks.txt:1: "),
        ("# A\n1. x\n2. y\n\n# C\n1. x\n2. y\n", "tasks.txt:5: "),
        ("# A\n1. x\n2. y\n", "tasks.txt:3: "),
        ("# A\n1\n2\n# B\n1\n2\n\n# C\n1\n2\n", "tasks.txt:8: "),
        ("", "tasks.txt is empty: "),
    ],
)
def test_errors_name_file_and_line(text: str, words: str, snapshot: Callable[..., None]):
    with pytest.raises(InputError, match=words) as refused:
        read_lists(text, source="tasks.txt", count=2, parents=[("A",), ("B",)])
    snapshot("errors", refused.value)


def test_heading_is_on_one_line():
    assert heading(["a\nb", "c"]) == "a b | c"
