"""Files of pairs and verdicts: any text survives a round trip, and errors name the line."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel import InputError
from camel.evaluation.pairs import (
    PAIRS,
    VERDICTS,
    Pair,
    PairVerdict,
    read_pairs,
    read_verdicts,
    write_pairs,
    write_verdicts,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
PAIR = st.builds(Pair, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, st.lists(TEXT, max_size=2).map(tuple), TEXT, TEXT)
VERDICT = st.builds(PairVerdict, TEXT, TEXT, st.sampled_from(["a", "b", "draw", None]), TEXT)


@given(st.lists(PAIR, max_size=8, unique_by=lambda pair: pair.id), st.lists(VERDICT, max_size=8))
def test_pairs_and_verdicts_survive_a_round_trip(pairs: list[Pair], verdicts: list[PairVerdict]):
    with TemporaryDirectory() as name:
        folder = Path(name)
        assert write_pairs(folder, pairs) == folder / PAIRS
        assert write_verdicts(folder, verdicts) == folder / VERDICTS
        assert read_pairs(folder) == read_pairs(folder / PAIRS) == pairs
        assert read_verdicts(folder) == verdicts


def test_errors_name_the_file_and_line(tmp_path: Path):
    with pytest.raises(InputError, match="camel evaluate agents"):
        read_pairs(tmp_path)
    write_pairs(tmp_path, [Pair("1", "t", "x", "a", "y", "b")] * 2)
    with pytest.raises(InputError, match="'1'"):
        read_pairs(tmp_path)
    (tmp_path / PAIRS).write_text('{"id": "1"}\n')
    with pytest.raises(InputError, match="line 1"):
        read_pairs(tmp_path)
