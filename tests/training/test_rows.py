"""Rows from runs: filters are counted, duplicates and test questions are removed, and a stopped command resumes."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from camel.core.errors import Damaged, InputError
from camel.core.message import Message
from camel.core.transcript import Speaker
from camel.jobs.runner import Outcome, Runner
from camel.jobs.state import JobState
from camel.runs.compact import compact
from camel.runs.garbage import collect_garbage
from camel.runs.markers import marker_name
from camel.runs.run import open_folder
from camel.training.recipe import Filters, Recipe, Source, read_recipe
from camel.training.rows import MIXED, SHAPED, RowsJob, RowsReport
from camel.training.shaping import Shape
from camel.training.stored_rows import Rows
from tests.support.jobs import run as run_job
from tests.support.training_runs import WORDS, conversation, make_run

pq = pytest.importorskip("pyarrow.parquet")


def build(recipe: Recipe) -> tuple[RowsReport, list[dict[str, Any]]]:
    ended = run_job(RowsJob(recipe))
    assert ended.status == "complete"
    return ended.result, list(Rows(recipe.out))


def near(number: int) -> str:
    """Return the text of a conversation with one changed word."""
    chance = random.Random(number)
    text = [" ".join(chance.choices(WORDS, k=60)) for _ in range(2)][1].split()
    text[30] = "other"
    return " ".join(text)


def test_removed_conversations_and_duplicates_are_counted(tmp_path: Path):
    conversations = [conversation(number) for number in range(40)]
    conversations += [conversation(number, stop="max_messages") for number in range(40, 45)]
    conversations += [conversation(number, labels=("misalignment",)) for number in range(45, 48)]
    conversations += [conversation(number) for number in range(6)]  # duplicates
    conversations += [conversation(number, said=near(number)) for number in range(6, 9)]
    crowd = conversation(99)
    crowd.speakers.append(Speaker("third", "Judge"))
    recipe = Recipe(
        (Source(make_run(tmp_path / "run", [*conversations, crowd])),),
        str(tmp_path / "rows"),
        filters=Filters('stop = "done"', near=0.8),
    )
    report, rows = build(recipe)
    assert report.conversations == len(conversations) + 1
    assert report.removed == {"where": 5, "label": 3, "speakers": 1}
    assert report.rows == 49
    assert report.removed_rows == {"exact duplicate": 6, "near duplicate": 3}
    assert report.kept == report.repeated == len(rows) == 40
    assert [row["conversation"] for row in rows] == [f"{number:05}" for number in range(40)]
    assert report.tokens == sum(row["tokens"] for row in rows)


def test_a_weight_decides_how_often_a_row_is_used(tmp_path: Path):
    first = make_run(tmp_path / "first", [conversation(number) for number in range(400)], 100)
    second = make_run(tmp_path / "second", [conversation(number) for number in range(1_000, 1_100)], 50)
    recipe = Recipe((Source(first, 0.25), Source(second, 2)), str(tmp_path / "rows"))
    report, rows = build(recipe)
    of_first = [row["conversation"] for row in rows if row["conversation"] < "01000"]
    assert report.kept == 500
    assert 70 <= len(of_first) == len(set(of_first)) <= 130
    assert len(rows) - len(of_first) == 200


def test_conversations_labeled_as_harmful_need_an_acknowledgment_and_a_canary(tmp_path: Path):
    run = make_run(tmp_path / "run", [conversation(1), conversation(2, labels=("misalignment",))])
    with pytest.raises(InputError, match="canary"):
        Recipe((Source(run),), acknowledge=("misalignment",))
    recipe = Recipe((Source(run),), str(tmp_path / "rows"), acknowledge=("misalignment",), canary="G-U-I-D")
    _, rows = build(recipe)
    assert [(row["labels"], row["canary"]) for row in rows] == [([], ""), (["misalignment"], "G-U-I-D")]
    card = (tmp_path / "rows" / "README.md").read_text()
    assert "\nextra_gated_prompt:" in card
    assert "Canary: `G-U-I-D`" in card


def test_rows_that_contain_a_test_question_are_excluded_and_counted(tmp_path: Path):
    questions = tmp_path / "questions.jsonl.gz"
    leak = "Write a function that returns the sum of all even numbers of a list of integers, or none if there is none."
    lines = [
        {"task_id": "T/0", "prompt": leak},
        {"question": "What is the capital of the country that lies north of Italy?"},
    ]
    questions.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    conversations = [conversation(number) for number in range(20)] + [
        conversation(30, said=f"Surely. {leak.upper()} That is all.")
    ]
    recipe = Recipe(
        (Source(make_run(tmp_path / "run", conversations)),),
        str(tmp_path / "rows"),
        filters=Filters(questions=(str(questions),)),
    )
    report, rows = build(recipe)
    assert report.removed_rows == {"question": 1}
    assert report.questions == {"T/0": 1}
    assert len(rows) == 20


def test_rows_have_a_card_that_the_hub_can_read_and_an_existing_card_is_kept(tmp_path: Path):
    yaml = pytest.importorskip("yaml")
    questions = tmp_path / "questions.jsonl"
    questions.write_text(json.dumps({"question": " ".join(WORDS[:30])}) + "\n")
    run = make_run(tmp_path / "secret-name" / "run|x", [conversation(number) for number in range(6)])
    recipe = Recipe((Source(run, 2),), str(tmp_path / "rows"), filters=Filters(questions=(str(questions),)))
    report, rows = build(recipe)
    card = tmp_path / "rows" / "README.md"
    front = yaml.safe_load(card.read_text().split("---\n")[1])
    (split,) = front["dataset_info"]["splits"]
    assert split["num_examples"] == len(rows) == 12
    (files,) = front["configs"][0]["data_files"]
    found = list((tmp_path / "rows").glob(files["path"]))
    assert split["num_bytes"] == sum(file.stat().st_size for file in found) > 0
    assert re.search(r"test questions.* \| 1 \|$", card.read_text(), re.MULTILINE)
    assert report.looked_for == 1
    assert "`run x`" in card.read_text()
    assert "secret-name" not in card.read_text()
    assert "extra_gated_prompt" not in front
    card.write_text("mine")
    build(recipe)
    assert card.read_text() == "mine"
    run_job(RowsJob(recipe, replace=True))
    assert card.read_text() != "mine"


def test_conversations_are_filtered_by_findings_and_language(tmp_path: Path):
    flake = conversation(1)
    flake.messages[1] = Message(1, "assistant", "Coder", "Solution: I will do that.\nNext request.")
    german = conversation(2)
    german.messages[0] = Message(
        0,
        "user",
        "Trader",
        "Instruction: Bitte schreibe mir ein Programm, das die Zahlen der Liste sortiert und dann ausgibt.\nInput: None",
    )
    german.messages[1] = Message(
        1,
        "assistant",
        "Coder",
        "Solution: Hier ist das Programm, das die Zahlen sortiert und sie dann auf dem Bildschirm ausgibt.\nNext request.",
    )
    run = make_run(tmp_path / "run", [flake, german, conversation(3)])
    where = 'finding != "flake_reply" and (language = "English" or language is missing)'
    recipe = Recipe((Source(run),), str(tmp_path / "rows"), filters=Filters(where))
    report, rows = build(recipe)
    assert report.removed == {"where": 2}
    assert [row["conversation"] for row in rows] == ["00003"]


def test_a_stopped_builder_resumes_with_the_same_rows(tmp_path: Path):
    run = make_run(tmp_path / "run", [conversation(number % 50) for number in range(100)])
    uninterrupted, wanted = build(Recipe((Source(run),), str(tmp_path / "whole")))
    recipe = Recipe((Source(run),), str(tmp_path / "rows"))
    ended, attempts = build_part(recipe, 0), 1
    while not ended.complete:
        ended, attempts = build_part(recipe, 0), attempts + 1
        assert attempts < 60
    assert attempts > 2
    assert ended.result == uninterrupted
    assert list(Rows(recipe.out)) == wanted
    folder = open_folder(recipe.out)
    marked = {stage: len(folder.committed(stage)) for stage in (SHAPED, MIXED)}
    assert marked == {SHAPED: 10, MIXED: 10}


def build_part(recipe: Recipe, count: int) -> Outcome:
    """Make rows, and stop when at least `count` files are committed."""
    runner = Runner(RowsJob(recipe))

    def note(state: JobState, stage: str, shard: int) -> None:
        if sum(tally.committed for tally in state.tallies.values()) >= count:
            runner.halt.set("enough")

    runner.committed = note
    return asyncio.run(runner.run())


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(1, marks=pytest.mark.thorough),
        pytest.param(2, marks=pytest.mark.slow),
        pytest.param(10, marks=pytest.mark.thorough),
    ],
)
def test_a_builder_that_resumes_after_a_compaction_loses_nothing(
    tmp_path: Path, target: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    conversations = [
        conversation(number % 50, labels=("misalignment",) if number % 7 == 0 else ())
        for number in range(100)
    ]
    run = make_run(tmp_path / "run", conversations, per_shard=2)
    uninterrupted, wanted = build(Recipe((Source(run),), str(tmp_path / "whole")))
    recipe = Recipe((Source(run),), str(tmp_path / "rows"))
    assert not build_part(recipe, 3).complete
    folder = open_folder(run)
    small = folder.marker("conversations", 0).size
    compact(folder, "conversations", target=5 * small)
    assert not build_part(recipe, 20).complete
    compact(folder, "conversations", target=5 * target * small)
    assert collect_garbage(folder, compacted=True).compacted
    assert build(recipe) == (uninterrupted, wanted)
    # Finished rows are not made again.
    whole = Recipe((Source(run),), str(tmp_path / "whole"))
    before = [marker.file for marker in Rows(whole.out).markers]
    assert build(whole) == (uninterrupted, wanted)
    assert [marker.file for marker in Rows(whole.out).markers] == before


def test_rows_without_the_settings_of_their_stage_must_be_made_again(tmp_path: Path):
    run = make_run(tmp_path / "run", [conversation(number) for number in range(40)])
    recipe = Recipe((Source(run),), str(tmp_path / "rows"))
    assert not build_part(recipe, 1).complete
    (tmp_path / "rows" / "stages" / f"{SHAPED}.json").unlink()
    compact(open_folder(run), "conversations")
    with pytest.raises(InputError, match="--force"):
        run_job(RowsJob(recipe))
    assert run_job(RowsJob(recipe, replace=True)).status == "complete"
    assert list(Rows(recipe.out)) == build(Recipe((Source(run),), str(tmp_path / "whole")))[1]


def test_unfinished_rows_cannot_be_opened(tmp_path: Path):
    run = make_run(tmp_path / "run", [conversation(number) for number in range(30)])
    recipe = Recipe((Source(run),), str(tmp_path / "rows"))
    _, wanted = build(recipe)
    (tmp_path / "rows" / marker_name(MIXED, 1)).unlink()
    with pytest.raises(InputError, match="camel rows"):
        Rows(recipe.out)
    assert build(recipe)[1] == wanted


def test_damaged_rows_in_an_object_store_are_found_before_a_training(
    tmp_path: Path, bucket: Callable[[str], str]
):
    run = make_run(tmp_path / "run", [conversation(number) for number in range(30)])
    recipe = Recipe((Source(run),), bucket("rows"))
    _, wanted = build(recipe)
    rows = Rows(recipe.out)
    rows.check()
    files = rows.local(tmp_path / "copies")
    assert [row for file in files for row in pq.read_table(file).to_pylist()] == wanted
    store, second = rows.folder.store, rows.markers[1].file
    whole = store.get(second)
    for damaged in (None, whole[:-1] + b"x"):
        store.remove([second])
        if damaged:
            store.create(second, damaged)
        with pytest.raises(Damaged, match="camel rows --force"):
            rows.check()


def test_a_folder_made_with_another_recipe_is_not_changed(tmp_path: Path):
    run = make_run(tmp_path / "run", [conversation(1)])
    recipe = Recipe((Source(run),), str(tmp_path / "rows"))
    build(recipe)
    with pytest.raises(InputError, match="--force"):
        run_job(RowsJob(Recipe((Source(run),), str(tmp_path / "rows"), Shape(seat="user"))))


def test_a_recipe_is_read_and_errors_name_the_field(tmp_path: Path):
    path = tmp_path / "rows.toml"
    path.write_text('out = "x"\n[shape]\nseat = "both"\n[filters]\nnear = 0.8\n[[sources]]\nrun = "runs/a"\n')
    assert read_recipe(path) == Recipe((Source("runs/a"),), "x", Shape(seat="both"), Filters(near=0.8))
    for text, about in (
        ("[[sources]]\nrun = 'a'\n[shape]\nseat = 'judge'", "seat"),
        ("[[sources]]\nrun = 'a'\n[filters]\nwithout = ['nonsense']", "where"),
        ("sources = []", "sources"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=about):
            read_recipe(path)
