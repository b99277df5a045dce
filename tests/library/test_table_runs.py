"""Runs over tables: rows are added, moved, changed and removed, and only new and changed ones are paid for."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import camel
from camel import InputError, Model, Reply, Request, RolePlaying, Rubric
from camel.core.message import Usage
from camel.core.model import Choice
from camel.generation.translate import Translation
from camel.jobs.status import planned_shards
from camel.query.catalogue import Catalogue
from camel.runs.garbage import collect_garbage
from camel.runs.markers import Marker
from camel.runs.reader import RunReader
from camel.runs.run import RunFolder, open_folder
from camel.runs.scores import with_scores
from camel.runs.verify import verify

PLAY = RolePlaying("Help <name>", assistant="Agent", user="<persona>", specify=False, max_messages=2)
CALLS = 2
"""Calls of a conversation."""


class Counting(Model):
    """Counts its calls, and fails like a killed process after a number of them."""

    name = "counting"

    def __init__(self, until: int = 10**9) -> None:
        self.calls, self.until = 0, until

    async def reply(self, request: Request) -> Reply:
        if self.calls >= self.until:
            raise KeyboardInterrupt
        self.calls += 1
        said = request.history.entries[0].content[-40:]
        return Reply((Choice(f"Instruction: {said}\nInput: None"),), Usage(10, 5, calls=1), model="counting")


def rows_of(count: int, start: int = 0) -> list[dict[str, str]]:
    return [
        {"id": f"r{n:04d}", "name": f"name {n}", "persona": f"customer {n}"}
        for n in range(start, start + count)
    ]


def generated(tmp_path: Path, model: Model, rows: Any, **more: Any) -> camel.Run:
    return camel.generate(PLAY, inputs=rows, model=model, out=tmp_path / "run", progress=False, **more)


def check(run: camel.Run, rows: list[dict[str, str]]) -> None:
    """Check that a run has exactly the conversations of these rows, in files, in its index and in its status."""
    wanted = {row["id"]: f"Help {row['name']}" for row in rows}
    assert {one.id: one.task.text for one in run} == wanted
    assert len(run) == len(rows)
    folder = open_folder(run.folder.address)
    report = verify(folder, planned_shards(folder))
    assert report.sound, report.problems
    assert report.complete
    with Catalogue([run.folder.address]) as catalogue:
        assert catalogue.count() == len(rows)
    (stage,) = run.status().stages
    assert (stage.planned, stage.committed) == (len(rows), len(rows))
    assert run.status().state == "complete"


def change(rows: list[dict[str, str]], kind: str, number: int) -> list[dict[str, str]]:
    """Return the rows after a change. Fixed rows get another name."""
    match kind:
        case "append":
            return [*rows, *rows_of(number, 5_000)]
        case "shuffle":
            return random.Random(number).sample(rows, len(rows))
        case "fix":
            return [{**row, "name": f"{row['name']}!"} if n < number else row for n, row in enumerate(rows)]
        case _:
            return rows[:-number]


@pytest.mark.parametrize(
    "order", [("append", "shuffle", "fix", "delete"), ("delete", "fix", "append", "shuffle")]
)
def test_only_new_and_changed_rows_are_paid_for(tmp_path: Path, order: tuple[str, ...]):
    rows, numbers = rows_of(60), {"append": 12, "shuffle": 1, "fix": 3, "delete": 5}
    model = Counting()
    check(generated(tmp_path, model, rows), rows)
    assert model.calls == CALLS * 60
    for kind in order:
        rows = change(rows, kind, numbers[kind])
        before = model.calls
        check(generated(tmp_path, model, rows), rows)
        assert model.calls - before == CALLS * (numbers[kind] if kind in ("append", "fix") else 0), kind


def test_a_killed_change_is_resumed(tmp_path: Path):
    rows = rows_of(40)
    generated(tmp_path, Counting(), rows)
    changed = change(change(change(rows, "fix", 4), "delete", 6), "append", 10)
    killed = Counting(until=9)
    with pytest.raises(KeyboardInterrupt):
        generated(tmp_path, killed, changed, concurrency=1)
    rest = Counting()
    check(generated(tmp_path, rest, changed), changed)
    assert killed.calls + rest.calls == CALLS * 14


def test_a_row_that_returns_gets_its_conversation_back(tmp_path: Path):
    rows, model = rows_of(30), Counting()
    generated(tmp_path, model, rows)
    first = {one.id: one for one in generated(tmp_path, model, rows)}
    fixed = change(rows, "fix", 2)
    generated(tmp_path, model, fixed[:20])
    collect_garbage(open_folder(tmp_path / "run"), older=0.0)
    before = model.calls
    run = generated(tmp_path, model, rows)
    check(run, rows)
    assert model.calls == before, "removed and changed rows are back as they were"
    assert {one.id: one for one in run} == first


def test_rows_that_are_removed_before_they_ran_cost_nothing(tmp_path: Path):
    rows, model = rows_of(30), Counting()
    generated(tmp_path, model, rows, budget_calls=12)
    fewer = rows[5:10]
    check(generated(tmp_path, model, fewer), fewer)
    assert model.calls <= 12 + CALLS * 5
    check(generated(tmp_path, model, rows), rows)
    assert model.calls <= 12 + CALLS * 30


def test_duplicates_are_skipped_and_conflicts_are_errors(tmp_path: Path):
    rows = rows_of(3)
    check(generated(tmp_path, Counting(), [*rows, rows[0]]), rows)
    with pytest.raises(InputError, match="r0000"):
        generated(tmp_path, Counting(), [*rows, {**rows[0], "name": "other"}])


def test_text_is_used_exactly_as_given(tmp_path: Path):
    name = "  2. Weltkrieg verstehen.  <persona> {x} \n\n- 'a' "
    run = generated(tmp_path, Counting(), [{"name": name, "persona": " P. "}])
    found = run[0].transcript
    assert found.task.text == f"Help {name}"
    assert found.inputs == {"name": name, "persona": " P. "}
    assert f"Help {name}" in found.speakers[0].system
    assert found.speakers[0].role == " P. "


def test_an_unfinished_retry_of_paid_items_comes_first(tmp_path: Path):
    rows = rows_of(10)

    class Failing(Counting):
        async def reply(self, request: Request) -> Reply:
            if "name 3" in request.history.entries[0].content:
                raise camel.core.errors.ContentRejected("no")
            return await super().reply(request)

    generated(tmp_path, Failing(), rows)
    with pytest.raises(KeyboardInterrupt):
        generated(tmp_path, Counting(until=1), rows, retry_failed=True)
    with pytest.raises(InputError, match="retry"):
        generated(tmp_path, Counting(), rows[:-1])
    generated(tmp_path, Counting(), rows)
    check(generated(tmp_path, Counting(), rows[:-1]), rows[:-1])


def test_a_kill_while_shards_are_rewritten_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rows, model = rows_of(60), Counting()
    generated(tmp_path, model, rows)
    fewer = [row for n, row in enumerate(rows) if n % 4]
    commits, commit = 0, RunFolder.commit

    def killed(self: RunFolder, marker: Marker) -> bool:
        nonlocal commits
        commits += 1
        if commits == 3:
            raise KeyboardInterrupt
        return commit(self, marker)

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "commit", killed)
        with pytest.raises(KeyboardInterrupt):
            generated(tmp_path, model, fewer)
    check(generated(tmp_path, model, fewer), fewer)
    assert model.calls == CALLS * 60


class Translating(Model):
    """Translates by writing each letter twice."""

    name = "translating"

    def __init__(self) -> None:
        self.calls = 0

    async def reply(self, request: Request) -> Reply:
        self.calls += 1
        text = request.history.entries[-1].content.rpartition("Instruction: ")[2].partition("\nInput")[0]
        said = "Instruction: " + "".join(2 * one if one.isalpha() else one for one in text) + "\nInput: None"
        return Reply((Choice(said),), Usage(10, 5, calls=1), model="translating")


def test_a_translation_follows_the_rows(tmp_path: Path):
    rows, model = rows_of(30), Translating()

    def translate(wanted: list[dict[str, str]]) -> int:
        before = model.calls
        generated(tmp_path, Counting(), wanted)
        camel.run_job(Translation(str(tmp_path / "run"), ("de",), model), progress=False)
        translated = RunReader(tmp_path / "run", "translated-de")
        assert {one.id: one.task.text for one in translated} == {
            row["id"]: f"Help {row['name']}" for row in wanted
        }
        return model.calls - before

    each = translate(rows) // 30
    assert each
    assert translate(rows[:-5]) == 0
    assert translate(change(rows, "fix", 2)) == each * 2, (
        "the five rows that are back are not translated again"
    )
    assert translate([*rows, *rows_of(3, 900)]) == each * 3


class Rating(Model):
    """Rates every conversation, and counts its calls."""

    name = "rating"

    def __init__(self) -> None:
        self.calls = 0

    async def reply(self, request: Request) -> Reply:
        self.calls += 1
        return Reply((Choice("Rating: 4\nReason: fine"),), Usage(10, 5, calls=1), model="rating")


def test_paid_scores_follow_the_rows(tmp_path: Path):
    rows, model = rows_of(40), Rating()

    def score(wanted: list[dict[str, str]]) -> int:
        before = model.calls
        run = generated(tmp_path, Counting(), wanted)
        run = run.score(helpful=Rubric("Is it helpful?", model=model), limits={"progress": False})
        scored = {one.id: one.scores["helpful"].value for one in with_scores(run)}
        assert scored == {row["id"]: 4.0 for row in wanted}
        return model.calls - before

    assert score(rows) == 40
    assert score(rows[::2]) == 0
    assert score([*change(rows[::2], "fix", 3), *rows_of(2, 900)]) == 5
