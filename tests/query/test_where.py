"""Filter expressions over runs: Python, exports, rows and the explorer select the same conversations."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from camel.core.errors import InputError
from camel.core.expressions import ExpressionError, parse_expression
from camel.core.message import Action
from camel.core.transcript import Score, Transcript
from camel.detectors import detect
from camel.evaluation.tasks import draw_tasks
from camel.library.run import Run
from camel.models.prices import cost
from camel.query.catalogue import Catalogue
from camel.query.columns import count_actions, known_columns, narrow, total
from camel.query.where import Query
from camel.runs.annotations import Annotations, files_for
from camel.runs.compact import compact
from camel.runs.reader import RunReader
from camel.runs.scores import read_scores, score_names, with_scores
from tests.support.scored import scored_run
from tests.support.societies import society

TERMS = [
    'stop = "done"',
    'stop != "max_messages"',
    'stop in ("done", "unfinished")',
    "messages > 2",
    "messages",
    "tokens <= 9000",
    "calls not in (1, 2)",
    "cost is missing",
    "cost < 0.001",
    'model = "unheard-of"',
    'user contains "a"',
    'assistant = "Guide"',
    'scenario = "code"',
    'label = "fine"',
    'label != "fine"',
    'task contains "oasis"',
    "chars >= 100",
    'tool = "python"',
    'tool != "search"',
    'tool contains "ear"',
    'tool contains "nsearch"',
    'label contains "in"',
    'finding contains "_"',
    'tag contains "dd"',
    "actions > 1",
    "not actions",
    "input.age >= 4",
    'input.age = "3"',
    'input."first name" = "Ada"',
    'not input."first name"',
    "score.helpful >= 2",
    "score.helpful is missing",
    'score.tone = "warm"',
    "duplicate",
    "not duplicate",
    "duplicate is missing",
    "finding",
    'finding = "flake_reply"',
    'language = "English"',
    "language is missing",
    "starred",
    'tag = "odd"',
    'id > "000_020"',
]


def expressions(count: int) -> list[str]:
    """Each term alone, then combinations."""
    pick, made = random.Random(5), list(TERMS)
    while len(made) < count:
        some = [pick.choice(["", "not "]) + f"({pick.choice(TERMS)})" for _ in range(pick.randint(2, 3))]
        made.append(pick.choice([" and ", " or "]).join(some))
    return made


def _actions(one: Transcript) -> list[Action]:
    return [*(act for message in one.messages for act in message.actions), *one.unspoken]


def values(one: Transcript, starred: set[str]) -> dict[str, object]:
    """The columns of a conversation, from the transcript alone."""
    models = list(dict.fromkeys(m.model for m in one.messages if m.model))
    roles = {speaker.name: speaker.role for speaker in one.speakers}
    found: dict[str, object] = {
        "id": one.id,
        "scenario": one.scenario,
        "task": one.task.original,
        "stop": one.stop.reason if one.stop else "unfinished",
        "model": " + ".join(models),
        "assistant": roles["assistant"],
        "user": roles["user"],
        "label": one.labels,
        "finding": [finding.detector for finding in detect(one)],
        "messages": len(one.messages),
        "tokens": one.usage.prompt + one.usage.completion,
        "calls": one.usage.calls,
        "cost": cost(models[0], one.usage) if one.usage.total and models else None,
        "chars": sum(len(message.content) for message in one.messages),
        "tool": sorted({act.tool for act in _actions(one)}),
        "actions": len(_actions(one)),
        "starred": one.id in starred,
        "tag": ["odd"] if one.id in starred else [],
    }
    found |= {f"input.{name}": value for name, value in one.inputs.items()}
    for name, score in one.scores.items():
        value = score.text or None if score.value is None else score.value
        found[f"score.{name}"] = value
        found.setdefault(name, value)
    return found


@pytest.fixture
def run(tmp_path: Path) -> tuple[Path, list[Transcript], set[str]]:
    place = tmp_path / "run"
    made = scored_run(place, 45, 12)
    starred = {made[3].id, made[17].id}
    for id in starred:
        Annotations(files_for(place, place)).change(id, star=True, tags=["odd"])
    return place, made, starred


def test_explorer_export_and_python_agree(run: tuple[Path, list[Transcript], set[str]], tmp_path: Path):
    place, made, starred = run
    reader = Run(place)
    known = [values(one, starred) for one in made]
    with Catalogue([place]) as catalogue:
        for number, text in enumerate(expressions(50)):
            view = reader.where(text)
            ids = [one.id for one in view]
            expression = parse_expression(text)
            if "language" not in expression.columns:
                assert ids == [str(one["id"]) for one in known if expression.matches(one)], text
            assert len(view) == len(ids)
            query = Query(where=text)
            assert catalogue.count(query) == len(ids), text
            assert [row.id for row in catalogue.page(query, limit=100).rows] == ids, text
            assert sum(count for _, count in catalogue.facets(query)["stop"]) == len(ids), text
            finished = view.where('stop != "error" and messages > 1')
            path = tmp_path / f"{number}.jsonl"
            finished.export("messages", path)
            assert len(path.read_text().splitlines()) == len(finished), text


def test_search_sort_and_facets_respect_an_expression(run: tuple[Path, list[Transcript], set[str]]):
    place, _, _ = run
    with Catalogue([place]) as catalogue:
        for where in ("messages > 2", "score.helpful >= 2"):
            ids = {one.id for one in Run(place).where(where)}
            both = Query(where=where, text="oasis")
            assert {row.id for row in catalogue.page(both, limit=100).rows} == ids & {
                row.id for row in catalogue.page(Query(text="oasis"), limit=100).rows
            }
            ordered = catalogue.page(Query(where=where, sort="tokens", order="desc"), limit=100).rows
            assert {row.id for row in ordered} == ids
            assert [row.tokens for row in ordered] == sorted((row.tokens for row in ordered), reverse=True)
            done = Query(where=where, facets={"stop": ("done",)})
            assert catalogue.count(done) == len(Run(place).where(where).where('stop = "done"'))


def test_a_run_without_a_column_has_no_match_for_it(
    run: tuple[Path, list[Transcript], set[str]], tmp_path: Path
):
    place, _, _ = run
    society(tmp_path / "plain", 10)
    with Catalogue([place, tmp_path / "plain"]) as catalogue:
        for where in ("score.helpful >= 2", "input.age > 3", "messages > 2"):
            runs = [
                Run(place).where(where),
                *([Run(tmp_path / "plain").where(where)] if "messages" in where else []),
            ]
            assert catalogue.count(Query(where=where)) == sum(map(len, runs))


def test_view_is_a_run(run: tuple[Path, list[Transcript], set[str]]):
    place, made, _ = run
    view = Run(place).where("messages > 2")
    ids = [one.id for one in made if len(one.messages) > 2]
    assert Run(place).where("messages > 99").to_arrow().num_rows == 0
    assert list(Run(place).where("messages > 99")) == []
    assert view.to_arrow(["id"])["id"].to_pylist() == ids
    assert list(view.to_pandas(["id"])["id"]) == ids
    assert view[0].id == ids[0]
    assert view[-1].id == ids[-1]
    assert view[ids[3]].id == ids[3]
    assert view.sql("select count(*) from run").fetchall() == [(len(ids),)]
    assert len(view.where("messages > 5")) == sum(len(one.messages) > 5 for one in made)
    assert len(Run(place).where("  ")) == len(made)
    with pytest.raises(KeyError):
        view[next(one.id for one in made if len(one.messages) <= 2)]
    with pytest.raises(InputError):
        view.to_hf()


def test_tasks_to_judge_are_drawn_from_a_view(run: tuple[Path, list[Transcript], set[str]]):
    place, made, _ = run
    where = 'stop = "done" and messages > 2'
    drawn = draw_tasks({"agents": narrow(RunReader(place), where)}, 100)
    wanted = {one.id for one in made if one.stop and one.stop.reason == "done" and len(one.messages) > 2}
    assert {task.id for task in drawn.tasks} == wanted
    assert drawn.of == len(wanted)


def test_the_sums_of_a_view_are_those_of_its_conversations(run: tuple[Path, list[Transcript], set[str]]):
    place, _, _ = run
    for text in ("", "messages > 99", 'tool contains "sea"', 'stop = "done" and messages > 2'):
        view = Run(place).where(text)
        stops, usage, paid = total(view)
        assert stops == Counter(one.stop.reason if one.stop else "unfinished" for one in view)
        assert usage.total == sum(one.usage.total for one in view)
        assert usage.calls == sum(one.usage.calls for one in view)
        costs = [values(one, set())["cost"] for one in view if one.usage.calls]
        assert paid == (None if None in costs else pytest.approx(sum(map(float, map(str, costs)))))
        actions = [act for one in view for act in _actions(one)]
        assert count_actions(view) == (len(actions), sum(bool(act.error) for act in actions))


def test_one_conversation_of_a_compacted_run_has_its_scores(tmp_path: Path):
    made = scored_run(tmp_path / "run", 56)
    compact(Run(tmp_path / "run").folder, "conversations")
    for after in (Run(tmp_path / "run"), Run(tmp_path / "run").where("messages > 1")):
        wanted = {one.id: one.scores for one in made}
        assert all(after[n].transcript.scores == wanted[after[n].id] for n in range(0, len(after), 3))


def test_compacted_run_selects_the_same(tmp_path: Path):
    made = scored_run(tmp_path / "run", 56)
    before = {text: len(Run(tmp_path / "run").where(text)) for text in TERMS}
    compact(Run(tmp_path / "run").folder, "conversations")
    after = Run(tmp_path / "run")
    assert len(after.parts) < 8
    assert {text: len(after.where(text)) for text in TERMS} == before
    found = {one.id: one.scores for one in with_scores(after)}
    assert found == {one.id: one.scores for one in made}


def test_scores_are_read(tmp_path: Path):
    made = scored_run(tmp_path / "run", 20)
    reader = RunReader(tmp_path / "run")
    assert score_names(reader.folder) == ["duplicate", "helpful", "tone"]
    assert [one.scores for one in with_scores(reader)] == [one.scores for one in made]
    first = read_scores(reader, 0)["tone"]
    assert {score.text for score in first} <= {"warm", "cold"}
    assert read_scores(reader, 2) == {}
    assert known_columns(reader)["score.helpful"] == "number"
    assert known_columns(reader)["score.tone"] == "text"
    assert [
        one.scores.get("helpful", Score(None)).value
        for one in with_scores(narrow(reader, "score.helpful > 2"))
    ] == [
        one.scores["helpful"].value for one in made if (one.scores.get("helpful", Score(None)).value or 0) > 2
    ]


@pytest.mark.parametrize(
    "text", ["messages >", 'stop = "done" and', "score.helpfull > 1", "stop = 3", "input.agee = 'x'"]
)
def test_errors_name_position_and_columns(run: tuple[Path, list[Transcript], set[str]], text: str):
    place, _, _ = run
    with pytest.raises(ExpressionError) as in_python:
        Run(place).where(text)
    with Catalogue([place]) as catalogue, pytest.raises(ExpressionError) as in_explorer:
        catalogue.count(Query(where=text))
    assert str(in_python.value) == str(in_explorer.value)
    assert f"character {in_python.value.position}" in str(in_python.value)
    assert "score.helpful" in str(in_python.value)


def test_missing_scores_name_the_command(run: tuple[Path, list[Transcript], set[str]]):
    place, _, _ = run
    with pytest.raises(InputError, match=r"camel score .* --duplicates"):
        Run(place).where("not near_duplicate")
    with pytest.raises(InputError, match=r"camel score .* --questions"):
        Run(place).where("overlap")


def test_query_keeps_the_expression_in_its_address():
    query = Query(where='stop = "done" and tokens > 5', text="x")
    assert Query.from_params(query.to_params()) == query
    assert json.dumps(query.to_params())
    with pytest.raises(InputError):
        Query(where="x" * 10_000)
