"""Parts of tables: which rows of which file are read, what is durable, and what other tables are left alone."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from camel.core.errors import Damaged, InputError  # noqa: E402
from camel.core.message import Action, Deliberation, Message, Proposal, Sampling, TokenTrace, Usage  # noqa: E402
from camel.core.stops import Stop  # noqa: E402
from camel.core.task import Task  # noqa: E402
from camel.core.transcript import Score, Speaker, Transcript  # noqa: E402
from camel.record import arrow as table  # noqa: E402
from camel.record.parquet import shape_of  # noqa: E402


def made(number: int, **changes: Any) -> Transcript:
    """No two fields of it are equal, so that one in the place of another is noticed."""
    said = [
        Message(
            index,
            f"speaker {index}",
            f"role {index}",
            f"content {number} {index}",
            f"model {index}",
            "length",
            Usage(11 + index, 22, 33, 44, 55, 66),
            0.5 + index,
            3 + index,
            f"guided {index}",
            None,
            f"reasoning {index}",
            [Action(f"tool {index}", '{"a": 1}', "result", "error", 0.25)] * index,
            TokenTrace([7, 8 + index], [-0.5, -1.5]) if index else None,
            index - 1,
            5 + index,
            f"summary {index}",
        )
        for index in range(number % 3)
    ]
    speakers = [
        Speaker(f"name {number}", "role", "system", "opening", Sampling(n=2 + number % 2), "asked", "window")
    ]
    values: dict[str, Any] = {
        "id": f"id {number}",
        "task": Task("original", "specified", "model", Usage(1, 2, 3, 4, 5), "refusal", "guided"),
        "speakers": speakers * (number % 4),
        "messages": said,
        "stop": None if number % 5 == 0 else Stop("done", f"detail {number}", "speaker", "Failure"),
        "scenario": "scenario",
        "inputs": {f"key {number}": "value"} if number % 2 else {},
        "labels": [f"label {number}"] * (number % 3),
        "fingerprint": "fingerprint",
        "item": number,
        "hears": None if number % 3 == 0 else {"a": ["b", "c"], "b": []},
        "wording": "by_name",
        "scores": {f"score {number}": Score(None if number % 4 == 0 else 0.5, "reason", "by", 3)}
        if number % 2
        else {},
    }
    return Transcript(**{**values, **changes})


MADE = [made(number) for number in range(23)]


@pytest.fixture
def shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with row groups of ten, ten and three rows."""
    monkeypatch.setattr(table, "ROW_GROUP", 10)
    path = tmp_path / "shard.parquet"
    written = table.write_shard(path, MADE)
    assert written[:2] == (23, hashlib.sha256(path.read_bytes()).hexdigest())
    return path


@pytest.mark.parametrize(
    ("start", "stop"),
    [
        (0, None),
        (0, 23),
        (0, 10),
        (9, 11),
        (10, 20),
        (20, None),
        (3, 3),
        (5, 4),
        (22, 99),
        (23, None),
        (0, 1),
    ],
)
def test_the_rows_asked_for_are_read(shard: Path, start: int, stop: int | None):
    assert list(table.stream_shard(shard, start, stop)) == MADE[start:stop]
    groups = list(table.stream_groups(shard, start, stop))
    assert sum(group.num_rows for group in groups) == len(MADE[start:stop])
    assert all(group.num_rows for group in groups), "groups without a row are not read"


def test_all_rows_are_read_unless_told_otherwise(shard: Path):
    assert list(table.stream_shard(shard)) == MADE
    assert [group.num_rows for group in table.stream_groups(shard)] == [10, 10, 3]


def test_columns_with_few_different_values_are_dictionaries(shard: Path):
    group = pq.ParquetFile(shard).metadata.row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    message, speaker = "messages.list.element", "speakers.list.element"
    assert {column.path_in_schema for column in columns if column.has_dictionary_page} == {
        "scenario",
        "labels.list.element",
        "fingerprint",
        "schema",
        *(f"task.{name}" for name in ("model", "finish", "guided")),
        *(f"{speaker}.{name}" for name in ("name", "role", "sampling")),
        *(f"{message}.{name}" for name in ("speaker", "role", "model", "finish", "guided", "attempts")),
        f"{message}.usage.calls",
        f"{message}.usage.unknown",
        "stop.reason",
        "stop.speaker",
        "inputs.key_value.key",
        "inputs.key_value.value",
        "calls",
        "task.usage.calls",
        "task.usage.unknown",
        *(f"{speaker}.{name}" for name in ("model", "history")),
        f"{message}.actions.list.element.tool",
        "unspoken.list.element.tool",
        f"{speaker}.tool_form",
        f"{speaker}.tools.list.element",
        "stop.failure",
        "wording",
        "scores.key_value.key",
        *(f"scores.key_value.value.{name}" for name in ("reason", "by", "version", "value")),
    }


def test_only_the_row_groups_asked_for_are_read(shard: Path, monkeypatch: pytest.MonkeyPatch):
    whole = shard.read_bytes()
    first = pq.ParquetFile(shard).metadata.row_group(0)
    damaged = bytearray(whole)
    damaged[4 : first.total_byte_size // 4] = bytes(first.total_byte_size // 4 - 4)
    shard.write_bytes(damaged)
    assert list(table.stream_shard(shard, 10)) == MADE[10:]
    with pytest.raises(Damaged, match=r"shard\.parquet"):
        list(table.stream_shard(shard, 0, 10))


def test_the_footer_says_how_many_rows_there_are(shard: Path):
    rows, layout = shape_of(shard)
    assert rows == 23
    assert table.is_transcripts(layout)


def test_all_rows_and_all_columns(shard: Path):
    whole = table.read_shard(shard)
    assert whole.column_names == table.schema().names
    assert list(table.rows(whole)) == MADE


def test_a_file_is_durable_before_its_name(tmp_path: Path, synced: list[str]):
    table.write_shard(tmp_path / "shard.parquet", MADE[:1])
    assert synced == ["shard.parquet", tmp_path.name]


def test_nothing_is_a_file_without_rows(tmp_path: Path):
    path = tmp_path / "shard.parquet"
    assert table.write_shard(path, []).rows == 0
    assert list(table.stream_shard(path)) == []
    assert shape_of(path)[0] == 0


def test_totals_of_every_row():
    names = ["num_messages", "prompt_tokens", "completion_tokens", "cached_tokens", "calls"]
    got = [tuple(row.values()) for row in table.to_table(MADE).select(names).to_pylist()]
    assert got == [
        (len(one.messages), one.usage.prompt, one.usage.completion, one.usage.cached, one.usage.calls)
        for one in MADE
    ]


def test_a_group_ends_at_its_size(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(table, "ROW_GROUP", 4)
    assert [batch.num_rows for batch in table.batches(MADE[:8])] == [4, 4]
    assert [batch.num_rows for batch in table.batches(MADE[:9])] == [4, 4, 1]
    assert [batch.num_rows for batch in table.batches([])] == []


def test_a_group_ends_when_it_holds_too_much_text(monkeypatch: pytest.MonkeyPatch):
    long = made(1, messages=[Message(0, "a", "A", "x" * 60), Message(1, "a", "A", "x" * 40)])
    monkeypatch.setattr(table, "_MOST_CHARS", 200)
    assert [batch.num_rows for batch in table.batches([long] * 7)] == [3, 3, 1]
    monkeypatch.setattr(table, "_MOST_CHARS", 199)
    assert [batch.num_rows for batch in table.batches([long] * 7)] == [2, 2, 2, 1]


def test_another_table_stays_as_it_is():
    other = pa.table({"a": [1, 2]})
    assert table.upgraded(other) is other
    assert not table.is_transcripts(other.schema)
    assert not table.is_transcripts(pa.schema([*table.schema()][1:]))
    ours = table.to_table(MADE)
    assert table.upgraded(ours) is ours
    with pytest.raises(InputError, match="id, task"):
        list(table.rows(other))


def test_a_table_needs_no_totals():
    ours = table.to_table(MADE)
    assert list(table.rows(ours.drop_columns(["num_messages", "calls", "prompt_tokens"]))) == MADE


def test_many_rows_are_read_in_parts_and_in_order():
    many = [made(number) for number in range(600)]
    assert list(table.rows(table.to_table(many))) == many


def test_every_deliberation_returns_to_its_message():
    def weighed(index: int) -> Message:
        chosen = Deliberation("critic", (Proposal("a", parent=2), Proposal("b", revises=True)), index, "why")
        return Message(index, "user", "U", "said", deliberation=chosen)

    plain = Message(1, "user", "U", "said")
    given = [
        made(1, messages=[weighed(0), plain, weighed(2)]),
        made(2),
        made(3, messages=[plain, weighed(3)]),
    ]
    back = list(table.rows(table.to_table(given)))
    assert back == given


def test_equal_texts_of_a_column_are_one_object():
    """Millions of rows share a few roles and prompts: they are read once, not once per row."""
    back = list(table.rows(table.to_table([made(3), made(7)])))
    assert back[0].speakers[0].system is back[1].speakers[0].system
    assert back[0].speakers[0].sampling is back[0].speakers[1].sampling


def test_damage_is_one_line_that_names_the_file(tmp_path: Path):
    path = tmp_path / "shard.parquet"
    path.write_bytes(b"no parquet")
    with pytest.raises(Damaged) as caught:
        table.read_shard(path)
    assert str(path) in str(caught.value)
    assert "camel run verify" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_columns_and_their_types():
    """The format of stored files: a change here makes existing runs unreadable."""
    text, whole = "string", "int64"

    def struct(**fields: str) -> str:
        return f"struct<{', '.join(f'{name}: {kind}' for name, kind in fields.items())}>"

    def listed(kind: str) -> str:
        return f"list<item: {kind}>"

    counts = ("prompt", "completion", "cached", "calls", "unknown", "reasoning", "written")
    usage = struct(**dict.fromkeys(counts, whole), usd="double")
    action = struct(
        **dict.fromkeys(("tool", "arguments", "result", "error"), text),
        seconds="double",
        call=text,
        step=whole,
        said=text,
        change=text,
    )
    said = dict.fromkeys(("speaker", "role", "content", "model", "finish"), text)
    message = struct(
        index=whole,
        **said,
        usage=usage,
        latency="double",
        attempts=whole,
        guided=text,
        deliberation=text,
        reasoning=text,
        actions=listed(action),
        tokens=struct(ids=listed(whole), logprobs=listed("double")),
        seen=whole,
        forgot=whole,
        summary=text,
    )
    seat = dict.fromkeys(("name", "role", "system", "opening", "sampling", "model", "history"), text)
    found = {field.name: str(field.type).replace("element: ", "item: ") for field in table.schema()}
    assert found == {
        "id": text,
        "task": struct(
            original=text, specified=text, model=text, usage=usage, finish=text, guided=text, word_limit=whole
        ),
        "speakers": listed(struct(**seat, tools=listed(text), tool_form=text)),
        "messages": listed(message),
        "stop": struct(reason=text, detail=text, speaker=text, failure=text),
        "scenario": text,
        "inputs": f"map<{text}, {text}>",
        "labels": listed(text),
        "fingerprint": text,
        "schema": whole,
        "item": whole,
        "hears": text,
        "wording": text,
        "turns": text,
        "scores": f"map<{text}, {struct(value='double', reason=text, by=text, version=whole, text=text)}>",
        "rejected": listed(text),
        "hear_actions": "bool",
        "unspoken": listed(action),
        "result": text,
        "result_call": text,
        "num_messages": whole,
        **{f"{name}_tokens": whole for name in ("prompt", "completion", "cached")},
        "calls": whole,
        "usd": "double",
    }


def test_tables_of_versions_with_other_fields_of_messages_can_be_put_together():
    now = table.to_table(MADE)
    fields = [field for field in now.schema.field("messages").type.value_type if field.name != "summary"]
    at = now.schema.names.index("messages")
    rows = [[{**one, "summary": None} for one in row] for row in now["messages"].to_pylist()]
    before = now.set_column(at, "messages", pa.array(rows, pa.list_(pa.struct(fields))))
    assert "summary" not in str(before.schema.field("messages"))
    both = pa.concat_tables([table.upgraded(before), now])
    assert list(table.rows(both.slice(len(MADE)))) == list(table.rows(now))
    assert {m.summary for one in table.rows(both.slice(0, len(MADE))) for m in one.messages} == {""}


def test_a_column_that_is_missing_has_the_default_and_one_that_is_not_known_is_ignored():
    """Files of other versions: fields come and go at every depth."""
    ours = table.to_table(MADE).to_pylist(maps_as_pydicts="strict")
    for row in ours:
        del row["scores"], row["hears"], row["result"], row["result_call"]
        row["invented"] = 1
        for message in row["messages"]:
            del message["tokens"], message["usage"]["reasoning"], message["forgot"], message["summary"]
            message["mood"] = "good"
    other = pa.Table.from_pylist(ours).drop_columns(["inputs"])
    for old, new in zip(MADE, table.rows(other), strict=True):
        assert (new.scores, new.hears, new.inputs) == ({}, None, {})
        assert [m.content for m in new.messages] == [m.content for m in old.messages]
        assert all(m.tokens is None and m.usage.reasoning == 0 for m in new.messages)
        assert all(m.forgot == 0 and not m.summary for m in new.messages)
        assert [m.usage.unknown for m in new.messages] == [m.usage.unknown for m in old.messages]
