"""Transcripts as Arrow and Parquet: nothing is lost, files are small, damage has a name."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from camel.core import inception  # noqa: E402
from camel.core.errors import InputError, MissingExtra  # noqa: E402
from camel.core.message import Action, Deliberation, Message, Proposal, Sampling, TokenTrace, Usage  # noqa: E402
from camel.core.stops import Stop  # noqa: E402
from camel.core.task import Task  # noqa: E402
from camel.core.transcript import ResultCall, Score, Speaker, Transcript  # noqa: E402
from camel.record import arrow as table  # noqa: E402

ODD = [
    "",
    " ",
    "\x00",
    "a\x00b",
    "\r\n\t\u2028",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 🐪",
    "\ufeff\u202eabc",
    "e\u0301",
    "\U0010ffff",
    "\ufffd",
    "null",
    "x" * 70_000,
]
texts = st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), st.sampled_from(ODD))
counts = st.integers(0, 2**48)
numbers = st.floats(allow_nan=False, allow_infinity=False)
usages = st.builds(
    Usage,
    counts,
    st.integers(0, 2**40),
    st.integers(0, 2**40),
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(0, 9),
)
samplings = st.one_of(
    st.just(Sampling()),
    st.builds(
        Sampling,
        temperature=st.none() | st.floats(0, 2),
        top_p=st.none() | st.floats(0, 1),
        max_tokens=st.none() | st.integers(1, 10**6),
        n=st.integers(1, 3),
        seed=st.none() | st.integers(-(2**63), 2**63 - 1),
        stop=st.lists(texts.filter(bool), max_size=2).map(tuple),
        extra=st.dictionaries(
            texts.map(lambda text: f"x{text}"),
            st.none() | st.booleans() | texts | st.lists(texts),
            max_size=2,
        ),
    ),
)
proposals = st.builds(
    Proposal,
    texts,
    texts,
    st.integers(-1, 99),
    st.booleans(),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    texts,
)
messages = st.builds(
    Message,
    st.integers(0, 1000),
    texts,
    texts,
    texts,
    texts,
    st.sampled_from(["stop", "length", "content_filter", "refusal", "other"]),
    usages,
    st.floats(allow_nan=False),
    st.integers(0, 100),
    texts,
    st.none()
    | st.builds(Deliberation, texts, st.lists(proposals, max_size=3).map(tuple), counts, texts, texts),
    texts,
    st.lists(st.builds(Action, texts, texts, texts, texts, numbers), max_size=2),
    st.none() | st.builds(TokenTrace, st.lists(counts, max_size=2), st.lists(numbers, max_size=2)),
)
transcripts = st.builds(
    Transcript,
    texts,
    st.builds(Task, texts, texts, texts, usages, st.sampled_from(["stop", "length", "refusal"]), texts),
    st.lists(st.builds(Speaker, texts, texts, texts, texts, samplings, texts, texts), max_size=3),
    st.lists(messages, max_size=4),
    st.none()
    | st.builds(Stop, st.sampled_from(["done", "error", "token_limit", "stopped"]), texts, texts, texts),
    texts,
    st.dictionaries(texts, texts, max_size=3),
    st.lists(texts, max_size=3),
    texts,
    item=st.integers(-1, 2**60),
    hears=st.none() | st.dictionaries(texts, st.lists(texts, max_size=2), max_size=2),
    wording=texts,
    turns=st.none() | st.dictionaries(texts, texts | st.lists(st.lists(texts)), max_size=2),
    scores=st.dictionaries(texts, st.builds(Score, st.none() | numbers, texts, texts, counts), max_size=2),
    result=st.none()
    | st.dictionaries(texts, st.none() | st.booleans() | texts | st.lists(texts), max_size=2),
    result_call=st.builds(ResultCall, texts, usages, texts),
)


def role_play(number: int, turns: int = 40, **changes: Any) -> Transcript:
    """A conversation of the paper's shape."""
    values = {
        "ASSISTANT_ROLE": f"Role {number % 50}",
        "USER_ROLE": f"Person {number % 47}",
        "TASK": f"Task {number}",
    }
    prompts, sampling = inception.paper(), Sampling(temperature=0.2)
    prompts_of = {"user": prompts.user, "assistant": prompts.assistant}
    said = []
    for index in range(turns):
        speaker = "assistant" if index % 2 else "user"
        content = (
            f"Solution: {number * index}\n\nNext request."
            if index % 2
            else f"Instruction: {number + index}\nInput: None"
        )
        role = values[f"{speaker.upper()}_ROLE"]
        said.append(
            Message(index, speaker, role, content, "m-1", "stop", Usage(100 + index, 10, 64, 1), 0.25)
        )
    fields: dict[str, Any] = {
        "id": f"{number:06d}",
        "task": Task(f"Task {number}", f"Specified {number}", "m-1", Usage(50, 5, 0, 1)),
        "speakers": [
            Speaker(name, values[f"{name.upper()}_ROLE"], inception.fill(prompt, values), "", sampling)
            for name, prompt in prompts_of.items()
        ],
        "messages": said,
        "stop": Stop("max_messages", "40 messages"),
        "scenario": "ai_society",
        "inputs": {"assistant": values["ASSISTANT_ROLE"], "user": values["USER_ROLE"]},
        "fingerprint": "f" * 64,
    }
    return Transcript(**{**fields, **changes})


relaxed = settings(
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)


def check_round_trip(path: Path, given: list[Transcript]) -> None:
    assert list(table.rows(table.to_table(given))) == given
    written = table.write_shard(path, given)
    assert written[:2] == (len(given), hashlib.sha256(path.read_bytes()).hexdigest())
    assert list(table.rows(table.read_shard(path))) == given
    assert list(table.stream_shard(path)) == given


@settings(relaxed, max_examples=12)
@given(st.lists(transcripts, max_size=5))
def test_tables_and_files_give_back_what_was_written(tmp_path: Path, given: list[Transcript]):
    check_round_trip(tmp_path / "shard.parquet", given)


@pytest.mark.thorough
@settings(relaxed, max_examples=200)
@given(st.lists(transcripts, max_size=5))
def test_many_tables_and_files_give_back_what_was_written(tmp_path: Path, given: list[Transcript]):
    check_round_trip(tmp_path / "shard.parquet", given)


def test_slices_and_chunks_read_right():
    given = [role_play(number, turns=number % 4) for number in range(600)]
    whole = table.to_table(given)
    assert list(table.rows(whole.slice(37, 411))) == given[37:448]
    chunked = pa.concat_tables([whole.slice(500), whole.slice(3, 2)])
    assert list(table.rows(chunked)) == given[500:] + given[3:5]


def test_totals_are_for_queries():
    given = [role_play(1, turns=3), role_play(2, turns=0)]
    got = table.to_table(given).select(
        ["num_messages", "prompt_tokens", "completion_tokens", "cached_tokens", "calls"]
    )
    assert got.to_pylist()[0] == {
        "num_messages": 3,
        "prompt_tokens": given[0].usage.prompt,
        "completion_tokens": given[0].usage.completion,
        "cached_tokens": given[0].usage.cached,
        "calls": 4,
    }
    assert got.to_pylist()[1]["calls"] == 1


def test_row_groups_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert table.ROW_GROUP == 2_000
    monkeypatch.setattr(table, "ROW_GROUP", 100)
    path = tmp_path / "shard.parquet"
    given = [role_play(number, turns=1) for number in range(205)]
    table.write_shard(path, given)
    metadata = pq.ParquetFile(path).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [100, 100, 5]
    assert metadata.row_group(0).column(0).compression == "ZSTD"
    monkeypatch.setattr(table, "_MOST_CHARS", 1000)
    assert max(batch.num_rows for batch in table.batches(given)) < 50
    assert list(table.rows(table.to_table(given))) == given


def test_the_same_rows_give_the_same_bytes(tmp_path: Path):
    one = table.write_shard(tmp_path / "one", (role_play(number) for number in range(50)))
    two = table.write_shard(tmp_path / "two", [role_play(number) for number in range(50)])
    assert one == two


def test_prompts_cost_next_to_nothing(tmp_path: Path):
    path = tmp_path / "shard.parquet"
    given = [role_play(number) for number in range(500)]
    table.write_shard(path, given)
    prompts = sum(len(speaker.system) for transcript in given for speaker in transcript.speakers)
    metadata = pq.ParquetFile(path).metadata
    group = metadata.row_group(0)
    columns = [group.column(index) for index in range(metadata.num_columns)]
    stored = sum(c.total_compressed_size for c in columns if c.path_in_schema.startswith("speakers"))
    assert stored < prompts / 20


def test_some_columns(tmp_path: Path):
    path = tmp_path / "shard.parquet"
    table.write_shard(path, [role_play(1), role_play(2)])
    some = table.read_shard(path, ["id", "messages.list.element.content", "num_messages"])
    assert some.column_names == ["id", "messages", "num_messages"]
    assert list(some.to_pylist()[0]["messages"][0]) == ["content"]
    with pytest.raises(InputError, match="speakers"):
        list(table.rows(some))


def test_duckdb_reads_the_file_in_place(tmp_path: Path):
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "shard.parquet"
    given = [role_play(1, turns=4), role_play(2, turns=2, stop=None, labels=["misalignment"])]
    table.write_shard(path, given)
    with duckdb.connect() as db:
        rows = db.execute(
            "select id, stop.reason, inputs['assistant'], len(messages), messages[1].usage.prompt, labels, schema "
            f"from '{path}' order by id"
        ).fetchall()
        tokens = db.execute(
            f"select sum(m.usage.completion) from (select unnest(messages) m from '{path}') where m.speaker = 'user'"
        ).fetchone()
    assert rows == [
        ("000001", "max_messages", "Role 1", 4, 100, [], 2),
        ("000002", None, "Role 2", 2, 100, ["misalignment"], 2),
    ]
    assert tokens == (30,)


def a_choice(number: int) -> Transcript:
    said = Deliberation("m-1", (Proposal("a", score=1.5), Proposal("b", score=2.5)), 1, "it is better")
    message = Message(0, "user", "U", "b", deliberation=said)
    return role_play(number, messages=[Message(0, "user", "U", "x"), message])


def test_what_critics_weighed_can_be_asked_for_and_costs_nothing_where_there_is_none(tmp_path: Path):
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "shard.parquet"
    table.write_shard(path, [role_play(1, turns=2), a_choice(2)])
    with duckdb.connect() as db:
        rows = db.execute(
            "select id, messages[2].deliberation->>'reason', "
            f"(messages[2].deliberation->>'$.proposals[1].score')::double from '{path}' order by id"
        ).fetchall()
    assert rows == [("000001", None, None), ("000002", "it is better", 2.5)]
    plain = [role_play(number) for number in range(50)]
    table.write_shard(path, plain)
    group = pq.ParquetFile(path).metadata.row_group(0)
    (column,) = [
        c
        for c in map(group.column, range(group.num_columns))
        if c.path_in_schema == "messages.list.element.deliberation"
    ]
    assert column.total_compressed_size < 64


def test_half_a_surrogate_pair_is_replaced():
    (back,) = table.rows(table.to_table([role_play(1, turns=0, id="a\ud800b")]))
    assert back.id == "a?b"


def test_damage_names_the_file(tmp_path: Path):
    path = tmp_path / "shard.parquet"
    with pytest.raises(InputError, match=r"shard\.parquet"):
        table.read_shard(path)
    table.write_shard(path, [role_play(number) for number in range(20)])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"shard\.parquet"):
        list(table.stream_shard(path))


def test_a_newer_schema_is_refused():
    with pytest.raises(InputError, match="schema 3"):
        list(table.rows(table.to_table([role_play(1, schema=3)])))


def test_a_failed_write_leaves_nothing(tmp_path: Path):
    def failing():
        yield role_play(1)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        table.write_shard(tmp_path / "shard.parquet", failing())
    assert list(tmp_path.iterdir()) == []


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"camel-society\[data\]"):
        table.arrow()
