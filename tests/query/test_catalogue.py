"""Compares the answers of the catalogue with the conversations themselves, counted and sorted in the test."""

from __future__ import annotations

import inspect
import json
import math
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from camel.core.errors import InputError
from camel.core.message import Message
from camel.core.task import Task
from camel.core.transcript import Transcript
from camel.detectors import DETECTORS, detect
from camel.detectors.marks import looked_by, marks_of
from camel.explorer.maps import MapView, map_of, maps_in
from camel.formats.exporters import FORMATS
from camel.index.facets import FACETS, NUMBERS, bucket
from camel.index.merge import Looking, merge, unused
from camel.index.text import make_text_index
from camel.models.prices import cost
from camel.query.answers import NeedsConsent, NotThere, Page
from camel.query.catalogue import Catalogue
from camel.query.parts import ANNOTATED, FILTERS, YES
from camel.query.where import Query
from camel.runs.annotations import Annotations, files_for
from camel.runs.compact import compact
from camel.runs.garbage import collect_garbage
from camel.runs.run import open_folder
from camel.runs.settings import Settings
from tests.support.mapped import mapped
from tests.support.societies import SECRET, STAGE, age_index, commit, society, transcript

RESTRICTED = (3, 20, 21, 58)


class Known(NamedTuple):
    """The expected row of a conversation, made from the transcript alone."""

    run: str
    transcript: Transcript
    looked: bool = False
    aged: bool = False
    """Whether its index is of a release without the facet `tool`."""

    def number(self, name: str) -> float | None:
        t = self.transcript
        models = list(dict.fromkeys(m.model for m in t.messages if m.model))
        return {
            "messages": len(t.messages),
            "tokens": t.usage.prompt + t.usage.completion,
            "calls": t.usage.calls,
            "cost": cost(models[0], t.usage) if len(models) == 1 and t.usage.total else None,
        }[name]

    def values(self, facet: str) -> list[str]:
        t = self.transcript
        roles = {speaker.name: speaker.role for speaker in t.speakers}
        models = dict.fromkeys(m.model for m in t.messages if m.model)
        if facet in FACETS and FACETS[facet].edges:
            return [bucket(FACETS[facet], self.number(FACETS[facet].column))]
        if facet in ANNOTATED:
            star, tags, note = said_about(t)
            return {"starred": [YES] if star else [], "tag": tags, "noted": [YES] if note else []}[facet]
        return {
            "scenario": [t.scenario],
            "assistant": [roles.get("assistant", "")],
            "user": [roles.get("user", "")],
            "other": [],
            "stop": [t.stop.reason if t.stop else "unfinished"],
            # Small runs without findings are scanned only by `keep_looking`.
            "finding": sorted({one.detector for one in detect(t)}) if self.looked else [],
            "label": t.labels,
            "tool": [] if self.aged else sorted(called(t)),
            "model": [" + ".join(models)],
        }[facet]

    def fits(self, query: Query, but: str = "") -> bool:
        if query.runs and self.run not in query.runs:
            return False
        for name, (low, high) in query.ranges.items():
            value = self.number(name)
            if (low, high) != (None, None) and value is None:
                return False
            if value is not None and (
                (low is not None and value < low) or (high is not None and value > high)
            ):
                return False
        for name, wanted in query.facets.items():
            has = self.values(name)
            if name != but and not (set(has) & set(wanted) or ("" in wanted and not has)):
                return False
        return True


def called(t: Transcript) -> set[str]:
    return {one.tool for said in (*(message.actions for message in t.messages), t.unspoken) for one in said}


def said_about(t: Transcript) -> tuple[bool, list[str], str]:
    """Return the annotation of a conversation: its star, its tags and its note."""
    n = sum(map(ord, t.id))
    tags = ["odd", "no", "x' or '1'='1"][: n % 3] + ([SECRET] if "misalignment" in t.labels else [])
    return n % 4 == 0, tags, f"{SECRET}" * ("misalignment" in t.labels) or "read again" * (n % 5 == 1)


class World:
    """A catalogue and its expected rows."""

    def __init__(self, catalogue: Catalogue, known: list[Known]) -> None:
        self.catalogue, self.known = catalogue, known

    def expected(self, query: Query, *, consent: bool = False) -> list[Known]:
        found = [one for one in self.visible(consent) if one.fits(query)]
        if query.sorted_by in NUMBERS:
            return (
                sorted(
                    found,
                    key=lambda one: (
                        -1 if one.number(query.sorted_by) is None else one.number(query.sorted_by)
                    ),
                    reverse=False,
                )
                if query.order == "asc"
                else sorted(
                    found,
                    key=lambda one: (
                        1 if one.number(query.sorted_by) is None else -(one.number(query.sorted_by) or 0)
                    ),
                )
            )
        return found if query.order == "asc" else found[::-1]

    def visible(self, consent: bool = False) -> list[Known]:
        return [one for one in self.known if consent or "misalignment" not in one.transcript.labels]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Three runs: one index file per shard; merged index files and cubes except for the last shards; and no index."""
    folder = tmp_path_factory.mktemp("world")
    known: list[Known] = []
    with pytest.MonkeyPatch.context() as patch:
        # Small limits, so that a few rows have sorted copies with several row groups and frequent values.
        patch.setattr("camel.index.sorted.FROM", 10)
        patch.setattr("camel.index.sorted._GROUP", 4)
        patch.setattr("camel.query.sorted_copies.TIED", 8)
        yield from _world(folder, known)


def _world(folder: Path, known: list[Known]) -> Iterator[World]:
    for name, seed, index in (("small", 1, True), ("large", 2, True), ("bare", 3, False)):
        made = society(folder / name, rows=60, shard=7, restricted=RESTRICTED, seed=seed, index=index)
        if name == "large":
            run = open_folder(folder / name)
            found = [marks_of(one) for one in made]
            merge(
                run,
                STAGE,
                cost=cost,
                target=20,
                looking=Looking(looked_by(), lambda shard, f=found: f[7 * shard : 7 * shard + 7]),
            )
            known += [Known(name, one, True) for one in made]
            more = [
                transcript(n, seed=9, labels=["misalignment"] if n == 101 else []) for n in range(100, 105)
            ]
            commit(run, 9, more)
            made = more
        mapped(folder / name)
        aged = sorted((folder / name / "index" / STAGE).iterdir())[1::3] if name == "small" else []
        for file in aged:
            age_index(file)
        old = {int(file.name.partition("-")[0]) for file in aged}
        known += [Known(name, one, aged=number // 7 in old) for number, one in enumerate(made)]
        annotations = Annotations(files_for(folder / name, folder / name))
        for one in known:
            star, tags, note = said_about(one.transcript)
            if one.run == name:
                annotations.change(one.transcript.id, star=star, tags=tags, note=note)
    with pytest.MonkeyPatch.context() as patch:
        # Small limits, so that a few rows exercise all ways to find a row far down a sorted list.
        patch.setattr("camel.query.sorted_copies._SORTED_AT_ONCE", 4)
        patch.setattr("camel.query.sorted_copies._STEPS", 3)
        patch.setattr("camel.query.database.SEGMENT", 25)
        with Catalogue([folder / "small", folder / "large", folder / "bare"]) as catalogue:
            yield World(catalogue, known)


values = {
    "scenario": ["ai_society", "code", "none"],
    "assistant": ["Guide", "Programmer", "x' or '1'='1"],
    "user": ["Trader", "Nomad", "Poet", ""],
    "stop": ["done", "error", "unfinished"],
    "label": ["fine", "misalignment", ""],
    "tool": ["python", "search", "none", ""],
    "model": ["gpt-4o-mini", "unheard-of", ""],
    "length": ["0-1", "2", "3-10", "31-40", "unknown", "9"],
    "cost": ["unknown", "0-0.001", "0.001-0.01"],
    "size": ["0-999", "1000-9999"],
    "other": [""],
    "finding": ["", "x", *DETECTORS],
    "starred": ["yes"],
    "noted": ["yes"],
    "tag": ["odd", "no", "x' or '1'='1", SECRET],
}
queries = st.builds(
    Query,
    runs=st.sampled_from([(), (), ("small",), ("large",), ("large", "bare")]),
    facets=st.lists(st.sampled_from(sorted(values)), max_size=3, unique=True).flatmap(
        lambda names: st.fixed_dictionaries(
            {
                n: st.lists(st.sampled_from(values[n]), min_size=1, max_size=2, unique=True).map(tuple)
                for n in names
            }
        )
    ),
    ranges=st.one_of(
        st.just({}),
        st.fixed_dictionaries({"messages": st.sampled_from([(2, 12), (None, 5), (1.5, None)])}),
        st.fixed_dictionaries({"cost": st.sampled_from([(0, 0.01), (None, None)])}),
    ),
    sort=st.sampled_from(["", "order", *NUMBERS]),
    order=st.sampled_from(["asc", "desc"]),
)
relaxed = settings(
    deadline=None,
    max_examples=10,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def ids(page: Page) -> list[tuple[str, str]]:
    return [(row.run, row.id) for row in page.rows]


def names(known: list[Known]) -> list[tuple[str, str]]:
    return [(one.run, one.transcript.id) for one in known]


@pytest.mark.slow
@given(queries, st.sampled_from([13, 29, 60, 90]))
@example(Query(), 25)
@example(Query(sort="cost", order="desc"), 17)
@example(Query(runs=("large",), facets={"stop": ("error",)}, sort="tokens"), 1)
@relaxed
def test_paging_returns_every_row_once_and_in_order(world: World, query: Query, limit: int):
    expected = names(world.expected(query))
    page = world.catalogue.page(query, limit=limit)
    forward = [page]
    while page.next is not None:
        page = world.catalogue.page(query, after=page.next, limit=limit)
        forward.append(page)
    assert [one for each in forward for one in ids(each)] == expected
    assert {each.total for each in forward} == {len(expected)}
    assert [each.at for each in forward] == [n * limit for n in range(len(forward))]
    back: list[tuple[str, str]] = []
    while page.previous is not None:
        page = world.catalogue.page(query, before=page.previous, limit=limit)
        back = ids(page) + back
    assert back == expected[: forward[-1].at]


@pytest.mark.thorough
@given(queries, st.integers(1, 90))
@settings(relaxed, max_examples=50)
def test_paging_with_pages_of_any_size(world: World, query: Query, limit: int):
    test_paging_returns_every_row_once_and_in_order.hypothesis.inner_test(world, query, limit)


@given(queries, st.integers(0, 200), st.integers(1, 20))
@relaxed
def test_a_jump_equals_paging_to_the_same_row(world: World, query: Query, n: int, limit: int):
    expected = names(world.expected(query))
    at = min(n, max(0, len(expected) - 1))
    page = world.catalogue.jump(query, n, limit)
    assert (ids(page), page.at, page.total) == (expected[at : at + limit], at, len(expected))
    if page.next is not None:
        assert (
            ids(world.catalogue.page(query, after=page.next, limit=3))
            == expected[at + limit : at + limit + 3]
        )


@pytest.mark.slow
@given(queries)
@example(Query())
@example(Query(facets={"stop": ("done",)}))
@example(Query(facets={"tool": ("python",), "stop": ("done",)}))
@example(Query(facets={"tag": ("odd",), "starred": ("yes",), "tool": ("search", "")}))
@relaxed
def test_facets_equal_a_manual_count(world: World, query: Query):
    facets = world.catalogue.facets(query)
    for name in FILTERS:
        found = [one for one in world.visible() if one.fits(query, but=name)]
        counted = Counter(value for one in found for value in one.values(name))
        assert dict(facets[name]) == dict(counted), name
    every = replace(query, runs=())
    runs = Counter(one.run for one in world.visible() if one.fits(every))
    assert dict(facets["run"]) == {name: runs[name] for name in ("small", "large", "bare")}
    assert world.catalogue.count(query) == len(world.expected(query))


@pytest.mark.slow
@given(queries, st.integers(1, 30), st.integers(0, 3))
@relaxed
def test_a_sample_matches_its_query_and_is_reproducible(world: World, query: Query, n: int, seed: int):
    rows = world.catalogue.sample(query, n, seed)
    expected = names(world.expected(query))
    assert len({(row.run, row.id) for row in rows}) == len(rows) == min(n, len(expected))
    assert {(row.run, row.id) for row in rows} <= set(expected)
    assert rows == world.catalogue.sample(query, n, seed)


@given(queries, st.integers(0, 10**6))
@relaxed
def test_neighbors_are_those_of_the_list(world: World, query: Query, which: int):
    expected = names(world.expected(query))
    if not expected:
        return
    at = which % len(expected)
    found = world.catalogue.neighbors(*expected[at], query)
    assert (found.previous and (found.previous.run, found.previous.id)) == (expected[at - 1] if at else None)
    assert (found.next and (found.next.run, found.next.id)) == (
        expected[at + 1] if at + 1 < len(expected) else None
    )


@pytest.mark.slow
@given(
    queries, st.sampled_from(NUMBERS), st.sampled_from(["", "stop", "label", "length"]), st.integers(1, 12)
)
@relaxed
def test_histograms_count_every_row(world: World, query: Query, number: str, by: str, bins: int):
    histogram = world.catalogue.histogram(query, number, by, bins)
    expected = world.expected(query)
    known = [one for one in expected if one.number(number) is not None]
    for value, bars in histogram.series.items():
        mine = [one.number(number) for one in known if not by or value in one.values(by)]
        edges = histogram.edges
        for n, count in enumerate(bars):
            last = n == len(bars) - 1
            inside = [v for v in mine if v is not None and edges[n] <= v and (v < edges[n + 1] or last)]
            if number != "cost":
                assert count == len(inside)
        assert sum(bars) == len(mine)
    if not by:
        assert histogram.unknown == len(expected) - len(known)
        values = sorted(one.number(number) or 0 for one in known)
        said = histogram.summary
        assert (said is None) == (not values)
        if said is not None:
            assert said.mean == pytest.approx(sum(values) / len(values))
            step = max(1.0, (values[-1] - values[0]) / 8_000) if number != "cost" else 1e-6
            for share, quantile in ((0.05, said.low), (0.5, said.median), (0.95, said.high)):
                assert quantile == pytest.approx(values[math.ceil(share * len(values)) - 1], abs=step)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("facets", [{}, {"user": ("Poet",)}])
def test_histograms_with_the_same_edges_add_up(world: World, number: str, facets: dict[str, tuple[str, ...]]):
    whole = world.catalogue.histogram(Query(("small", "large"), facets=facets), number, bins=7)
    parts = [
        world.catalogue.histogram(Query((run,), facets=facets), number, edges=whole.edges)
        for run in ("small", "large")
    ]
    assert [one.edges for one in parts] == [whole.edges] * 2
    assert [sum(bars) for bars in zip(*(one.series[""] for one in parts), strict=True)] == whole.series[""]
    assert sum(one.unknown for one in parts) == whole.unknown


def test_rows_describe_their_conversations(world: World):
    rows = {(row.run, row.id): row for row in world.catalogue.page(limit=1000).rows}
    for number, one in enumerate(world.visible()):
        row = rows[one.run, one.transcript.id]
        assert row.task == one.transcript.task.original.strip()
        assert [row.messages, row.tokens, row.calls] == [
            one.number(n) for n in ("messages", "tokens", "calls")
        ]
        assert row.cost == pytest.approx(one.number("cost"))
        assert row.labels == tuple(one.transcript.labels)
        assert (row.star, list(row.tags), row.note) == said_about(one.transcript)
        if number % 5 == 0:  # at least one of every shard
            assert world.catalogue.row(one.run, one.transcript.id) == row
            assert world.catalogue.conversation(one.run, one.transcript.id) == one.transcript


def test_runs_without_an_index_are_noted(world: World):
    assert any("bare" in note and "camel run index" in note for note in world.catalogue.notes())
    assert not any("large" in note for note in world.catalogue.notes())


# ---------------------------------------------------------------- restricted rows


@pytest.mark.slow
@given(queries, st.sampled_from(["assistant", "user"]))
@relaxed
def test_behaviors_are_those_of_the_conversations_that_were_looked_through(
    world: World, query: Query, role: str
):
    seen = world.catalogue.behaviors(query, role)
    fitting = [one for one in world.expected(query) if one.looked]
    assert seen.conversations == len(fitting)
    by_turn: Counter[tuple[str, str, int]] = Counter()
    by_role: Counter[tuple[str, str]] = Counter()
    for one in fitting:
        found = detect(one.transcript)
        said = one.transcript.messages
        by_turn.update({(f.detector, said[f.index].speaker, f.index) for f in found})
        by_role.update({(f.detector, one.values(role)[0]) for f in found})
    assert by_turn == {
        (name, seat, turn): count
        for name, seats in seen.by_turn.items()
        for seat, turns in seats.items()
        for turn, count in turns.items()
    }
    assert by_role == {(name, who): n for name, roles in seen.by_role.items() for who, n in roles.items()}
    assert seen.roles == Counter(one.values(role)[0] for one in fitting)
    assert [seen.reached(n) for n in range(41)] == [
        sum(len(one.transcript.messages) > n for one in fitting) for n in range(41)
    ]


def _on_map(view: MapView) -> Any:
    """Return everything that a map shows to its reader."""
    points = view.read(view.rows)
    legends = [view.legend(color) for color in ("cluster", "label", "stop")]
    return view.run, [one.id for one in points], points, legends, view.groups, view.figures


@pytest.mark.slow
@given(queries, st.sampled_from(["", "oasis", SECRET, '"the well"']), st.integers(1, 80), st.integers(0, 90))
@relaxed
def test_restricted_rows_are_in_no_answer(world: World, query: Query, text: str, limit: int, n: int):
    asked = replace(query, text=text)
    seen = world.catalogue
    hidden = [one for one in world.known if "misalignment" in one.transcript.labels]
    allowed = [one for one in world.visible() if one.fits(asked)]
    some = allowed[0] if allowed else world.visible()[0]
    probes: dict[str, Any] = {
        "page": lambda: seen.page(asked, limit=limit),
        "pages": lambda: list(seen.pages(asked, limit)),
        "jump": lambda: seen.jump(asked, n, limit),
        "sample": lambda: seen.sample(asked, limit, n),
        "search": lambda: seen.search(asked, limit) if text else None,
        "facets": lambda: seen.facets(asked),
        "count": lambda: seen.count(asked),
        "histogram": lambda: seen.histogram(asked, by="label"),
        "behaviors": lambda: seen.behaviors(asked, "user"),
        "neighbors": lambda: seen.neighbors(some.run, some.transcript.id, asked),
        "row": lambda: seen.row(some.run, some.transcript.id),
        "conversation": lambda: seen.conversation(some.run, some.transcript.id),
        "conversations": lambda: seen.conversations(seen.page(asked, limit=limit).rows),
        "annotate": lambda: seen.annotate(some.run, some.transcript.id),
        "check": lambda: seen.check(some.run, some.transcript.id),
        "derived": lambda: [_on_map(map_of(seen, run, "tasks", asked)) for run in maps_in(seen)],
        "notes": seen.notes,
        "restricted": lambda: None,  # returns only labels
        "runs": lambda: None,
        "add": lambda: None,  # opens a run, and returns nothing of it
        "close": lambda: None,
        "keep_looking": lambda: None,
        "allowing": lambda: seen.allowing("fine", "Misalignment").page(asked, limit=limit),
    }
    public = {name for name, _ in inspect.getmembers(Catalogue) if not name.startswith("_")}
    assert public == probes.keys(), "every method of the catalogue passes this gate: add the new one here"
    for name, ask in probes.items():
        answer = ask()
        shown = repr(answer).replace(repr(asked), "").replace(repr(asked.facets), "")
        assert SECRET not in shown, name
        if name == "map":
            drawn = [(run, id) for run, ids, *_ in answer for id in ids]
            assert not set(drawn) & set(names(hidden))
            assert asked.runs or text or sorted(drawn) == sorted(names(allowed))
        for row in _rows(answer):
            assert "misalignment" not in row.labels
            assert (row.run, row.id) not in names(hidden)
    assert "misalignment" not in dict(seen.facets(asked)["label"])
    if not text:
        assert seen.count(asked) == len(allowed)
        consenting = seen.allowing("misalignment")
        assert consenting.count(asked) == len(world.expected(asked, consent=True))


def _rows(answer: Any) -> list[Any]:
    if isinstance(answer, Page):
        return answer.rows
    if isinstance(answer, tuple | list):
        return [one for one in answer if hasattr(one, "run")]
    return [answer] if hasattr(answer, "run") else []


def test_a_restricted_conversation_needs_consent(world: World):
    for one in world.known:
        if "misalignment" not in one.transcript.labels:
            continue
        for ask in (world.catalogue.conversation, world.catalogue.row, world.catalogue.neighbors):
            with pytest.raises(NeedsConsent) as refused:
                ask(one.run, one.transcript.id)
            assert refused.value.labels == ("misalignment",)
        assert (
            world.catalogue.allowing("misalignment").conversation(one.run, one.transcript.id)
            == one.transcript
        )
    assert world.catalogue.restricted() == ["misalignment"]
    assert world.catalogue.allowing("misalignment").restricted() == []


def test_the_label_in_the_data_decides_even_if_the_index_lacks_it(tmp_path: Path):
    made = society(tmp_path / "run", rows=10, shard=5)
    # The index has no label, but the data was replaced and has one.
    run = open_folder(tmp_path / "run")
    made[2].labels = ["misalignment"]
    path = tmp_path / "run" / run.marker(STAGE, 0).file
    from camel.record.arrow import write_shard

    write_shard(path, made[:5])
    with Catalogue([tmp_path / "run"]) as catalogue, pytest.raises(NeedsConsent):
        catalogue.conversation("run", made[2].id)


# ---------------------------------------------------------------- hostile names


HOSTILE = [
    "'; drop table x; --",
    '"',
    "../../etc/passwd",
    "",
    "a\x00b",
    "x" * 3000,
    "\u202e🐪",
    "%",
    "\\",
    "1 or 1=1",
]


def test_hostile_ids_are_only_compared(tmp_path: Path):
    run = open_folder(tmp_path / "run")
    run.create(Settings("f", {}, "0"))
    commit(run, 0, [Transcript(id, Task(f"task {n}")) for n, id in enumerate(HOSTILE)])
    with Catalogue([tmp_path / "run"]) as catalogue:
        for n, id in enumerate(HOSTILE):
            assert catalogue.conversation("run", id).task.original == f"task {n}"
            with pytest.raises(NotThere):
                catalogue.conversation("run", id + "'")
            with pytest.raises(NotThere):
                catalogue.conversation(id, HOSTILE[0])
            assert catalogue.count(Query(facets={"stop": (id[:1000],), "user": (id[:1000],)})) == 0
            assert catalogue.count(Query(text=id[:1000])) >= 0
        assert [row.id for row in catalogue.page().rows] == HOSTILE
        with pytest.raises(NotThere):
            catalogue.page(Query(runs=("run' --",)))


@pytest.mark.parametrize("bad", [0, -1, 10**9, True, 1.5, "1"])
def test_page_sizes_are_limited(world: World, bad: Any):
    with pytest.raises(InputError):
        world.catalogue.page(limit=bad)


def test_a_cursor_of_another_query_is_refused(world: World, snapshot: Callable[..., None]):
    page = world.catalogue.page(limit=5)
    with pytest.raises(InputError) as refused:
        world.catalogue.page(Query(sort="tokens"), after=page.next)
    snapshot("errors", refused.value, "of another query")
    with pytest.raises(InputError) as refused:
        world.catalogue.page(after=page.next, before=page.next)
    snapshot("errors", refused.value, "both directions")


# ---------------------------------------------------------------- text


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("texts")
    known: list[Known] = []
    for name, seed in (("indexed", 4), ("scanned", 5)):
        made = society(folder / name, rows=40, restricted=RESTRICTED, seed=seed)
        known += [Known(name, one) for one in made]
    pytest.importorskip("tantivy")
    make_text_index(open_folder(folder / "indexed"), STAGE, target=15)
    with Catalogue([folder / "indexed", folder / "scanned"]) as catalogue:
        yield World(catalogue, known)


def _says(known: Known, *phrases: str) -> bool:
    said = [known.transcript.task.original, *(m.content for m in known.transcript.messages)]
    return all(any(f" {phrase} " in f" {text} " for text in said) for phrase in phrases)


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("oasis", ["oasis"]),
        ("OASIS tea", ["oasis", "tea"]),
        ('"the oasis and"', ["the oasis and"]),
        ("number7", ["number7"]),
    ],
)
def test_search_finds_text_with_and_without_an_index(texts: World, text: str, phrases: list[str]):
    page = texts.catalogue.search(Query(text=text), limit=100)
    expected = {(one.run, one.transcript.id) for one in texts.visible() if _says(one, *phrases)}
    assert set(ids(page)) == expected
    assert page.total == len(expected)
    for row in page.rows:
        assert row.hit is not None
        assert any(hit for _, hit in row.hit.pieces)
        opened = texts.catalogue.conversation(row.run, row.id)
        said = opened.task.original if row.hit.message < 0 else opened.messages[row.hit.message].content
        assert "".join(piece for piece, _ in row.hit.pieces).strip("…") in " ".join(said.split())


UNSPACED = (
    "我们昨天去北京吃饭，猫在家里。",
    "私は東京タワーに3月に行きました",
    "ฉันดื่มน้ำที่กรุงเทพทุกวัน",
    "서울에서 만나요",
    "请用Python写代码，不用 Java 写。",
)


@pytest.fixture(scope="module")
def unspaced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalogue]:
    """Two runs with the same texts in scripts without spaces; only the first has a text index."""
    folder = tmp_path_factory.mktemp("unspaced")
    pytest.importorskip("tantivy")
    for name in ("indexed", "scanned"):
        run = open_folder(folder / name)
        run.create(Settings("f", {"shard_size": 10}, "0"))
        said = [
            Transcript(f"{n}", Task("t"), [], [Message(0, "user", "Nomad", text)])
            for n, text in enumerate(UNSPACED)
        ]
        commit(run, 0, said)
    make_text_index(open_folder(folder / "indexed"), STAGE)
    with Catalogue([folder / "indexed", folder / "scanned"]) as catalogue:
        yield catalogue


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("北京", 0),
        ("去北京吃饭", 0),
        ("猫", 0),
        ("饭 猫", 0),
        ("京去", None),
        ("吃饭猫", None),
        ("東京", 1),
        ("タワー", 1),
        ("3月", 1),
        ("に3月に", 1),
        ("月3", None),
        ("น้ำ", 2),
        ("กรุงเทพ", 2),
        ("น", 2),
        ("서울", 3),
        ("python", 4),
        ("用python写", 4),
        ("用java写", 4),
        ("pyth", None),
        ('"不用 java"', 4),
    ],
)
def test_words_inside_a_sentence_without_spaces_are_found(unspaced: Catalogue, text: str, found: int | None):
    page = unspaced.search(Query(text=text))
    assert sorted(ids(page)) == ([] if found is None else [("indexed", str(found)), ("scanned", str(found))])
    for row in page.rows:
        assert row.hit is not None
        marked = [piece.lower() for piece, is_word in row.hit.pieces if is_word]
        assert marked
        assert all(
            "".join(piece.split()) in "".join(text.lower().replace('"', "").split()) for piece in marked
        )


def test_search_is_filtered_sorted_paged_and_counted_like_a_list(texts: World):
    query = Query(text="oasis", facets={"stop": ("done", "error")}, sort="tokens", order="desc")
    expected = [one for one in texts.visible() if _says(one, "oasis") and one.fits(query)]
    expected.sort(key=lambda one: -(one.number("tokens") or 0))
    page = texts.catalogue.page(query, limit=2)
    found = ids(page)
    while page.next:
        page = texts.catalogue.page(query, after=page.next, limit=2)
        found += ids(page)
    assert found == names(expected)
    assert dict(texts.catalogue.facets(query)["user"]) == dict(
        Counter(one.values("user")[0] for one in expected)
    )
    assert sum(map(sum, texts.catalogue.histogram(query).series.values())) == len(expected)


def test_a_search_without_an_index_is_limited_and_has_a_note(
    texts: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr("camel.query.scope.SCANNED", 10)
    society(tmp_path / "run", rows=30)
    with Catalogue([tmp_path / "run"]) as catalogue:
        page = catalogue.search(Query(text="the"))
        assert page.total <= 10
        assert any(re.search(r"\b10\b", note) for note in page.notes)


# ---------------------------------------------------------------- damaged indexes


def _same(where: Path, made: list[Transcript]) -> None:
    with Catalogue([where]) as catalogue:
        page = catalogue.page(limit=1000)
        assert [row.id for row in page.rows] == [one.id for one in made]
        stops = Counter(one.stop.reason if one.stop else "unfinished" for one in made)
        assert dict(catalogue.facets()["stop"]) == dict(stops)
        chosen = Query(facets={"stop": ("done",), "user": ("Poet",)})
        world = World(catalogue, [Known("run", one) for one in made])
        assert catalogue.count(chosen) == len(world.expected(chosen))
        assert [row.id for row in catalogue.page(chosen).rows] == [
            k.transcript.id for k in world.expected(chosen)
        ]
        assert catalogue.conversation("run", made[-1].id) == made[-1]


@pytest.mark.parametrize("put_together", [False, True])
@pytest.mark.parametrize("damage", ["cut", "empty", "noise", "gone", "another's"])
def test_a_damaged_or_missing_index_changes_no_answer(tmp_path: Path, put_together: bool, damage: str):
    made = society(tmp_path / "run", rows=20, shard=5)
    society(tmp_path / "other", rows=20, shard=5, seed=8)
    for name in ("run", "other"):
        if put_together:
            merge(open_folder(tmp_path / name), STAGE, target=10)
    _same(tmp_path / "run", made)
    folder = tmp_path / "run" / "index" / STAGE
    others = sorted((tmp_path / "other" / "index" / STAGE).iterdir())
    for path, other in zip(sorted(folder.iterdir()), others, strict=True):
        data = path.read_bytes()
        if damage == "gone":
            path.unlink()
        elif damage == "another's":
            if not path.name.startswith(
                ("m", "cube")
            ):  # the run's fingerprint would show these, but here it is the same
                path.write_bytes(other.read_bytes())
            else:
                path.unlink()
        else:
            path.write_bytes({"cut": data[: len(data) // 2], "empty": b"", "noise": os.urandom(500)}[damage])
    _same(tmp_path / "run", made)


def test_an_index_is_used_only_for_the_file_that_the_marker_names(tmp_path: Path):
    run = open_folder(tmp_path / "run")
    run.create(Settings("f", {}, "0"))
    marker = commit(run, 0, [transcript(n) for n in range(4)])
    index = tmp_path / "run" / "index" / STAGE
    theirs = next(index.iterdir())
    loser = index / "000000-ffffffffffff.parquet"
    loser.write_bytes(theirs.read_bytes())
    theirs.unlink()
    assert Path(marker.file).stem not in loser.name
    with Catalogue([tmp_path / "run"]) as catalogue:
        assert catalogue.count() == 4
        assert "no index" in catalogue.notes()[0]
    assert collect_garbage(run, derived=unused).indexes == []  # a single one is harmless
    commit_index = index / f"{Path(marker.file).stem}.parquet"
    commit_index.write_bytes(loser.read_bytes())
    assert collect_garbage(run, derived=unused).indexes == [f"index/{STAGE}/{loser.name}"]


@pytest.mark.parametrize("put_together", [False, True])
@pytest.mark.parametrize("damage", ["gone", "pages", "empty"])
def test_an_index_damaged_while_open_is_skipped(tmp_path: Path, put_together: bool, damage: str):
    made = society(tmp_path / "run", rows=20, shard=5)
    if put_together:
        merge(open_folder(tmp_path / "run"), STAGE, target=10)
    chosen = Query(facets={"stop": ("done",), "user": ("Poet",)})
    with Catalogue([tmp_path / "run"]) as catalogue:
        for path in (tmp_path / "run" / "index" / STAGE).iterdir():
            data = path.read_bytes()
            if damage == "gone":
                path.unlink()
            else:
                path.write_bytes(
                    b"PAR1" + b"\xff" * (len(data) // 2) + data[4 + len(data) // 2 :]
                    if damage == "pages"
                    else b""
                )
        expected = World(catalogue, [Known("run", one) for one in made]).expected(chosen)
        assert ids(catalogue.page(chosen)) == names(expected)
        assert catalogue.count(chosen) == len(expected)
        assert [row.id for row in catalogue.page(limit=100).rows] == [one.id for one in made]
        assert catalogue.conversation("run", made[7].id) == made[7]


def test_new_shards_of_a_growing_run_appear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made = society(tmp_path / "run", rows=20, shard=5)
    run = open_folder(tmp_path / "run")
    with Catalogue([tmp_path / "run"]) as catalogue:
        monkeypatch.setattr(catalogue._shared, "_looked", float("-inf"))
        first = catalogue.page(limit=7)
        # A later shard is committed before an earlier one. The list is in the order of the items, and known rows stay in place.
        later = [transcript(n) for n in range(100, 105)]
        commit(run, 6, later)
        monkeypatch.setattr(catalogue._shared, "_looked", float("-inf"))
        assert catalogue.count() == 25
        between = [transcript(n) for n in range(50, 55)]
        commit(run, 5, between)
        merge(run, STAGE, target=10)
        monkeypatch.setattr(catalogue._shared, "_looked", float("-inf"))
        page, found = first, [row.id for row in first.rows]
        while page.next:
            page = catalogue.page(after=page.next, limit=7)
            found += [row.id for row in page.rows]
        assert found == [one.id for one in [*made, *between, *later]]


def test_many_concurrent_readers(world: World):
    errors: list[BaseException] = []

    def read(seed: int) -> None:
        try:
            for n in range(3):
                query = Query(facets={"stop": (["done", "error"][n % 2],)}, sort=["", "tokens"][seed % 2])  # type: ignore[arg-type]
                assert names(world.expected(query))[:5] == ids(world.catalogue.page(query, limit=5))
                world.catalogue.facets(Query(ranges={"tokens": (seed * 100 + n, None)}))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=read, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_compacted_shards_are_found(tmp_path: Path):
    made = society(tmp_path / "run", rows=20, shard=5)
    run = open_folder(tmp_path / "run")
    with Catalogue([tmp_path / "run"]) as open_before:
        compact(run, STAGE, target=10**9)
        merge(run, STAGE, target=10)
        collect_garbage(run, compacted=True, derived=unused)
        assert len(list((tmp_path / "run" / "data" / STAGE).iterdir())) == 1
        assert open_before.conversation("run", made[17].id) == made[17]
    _same(tmp_path / "run", made)
    # Without an index, one is built from the rows of the large file.
    for path in (tmp_path / "run" / "index" / STAGE).iterdir():
        path.unlink()
    _same(tmp_path / "run", made)
    assert merge(run, STAGE, target=10).built == 4
    _same(tmp_path / "run", made)


# ---------------------------------------------------------------- files of the original CAMEL formats


@pytest.mark.parametrize(
    ("format", "name"), [("chat", "chat"), ("chat", "chat.tar.gz"), ("instruction", "i.json")]
)
def test_exports_in_the_original_formats_can_be_opened(tmp_path: Path, format: str, name: str):
    made = [one for one in (transcript(n) for n in range(40)) if len(one.messages) > 3]
    made = [one for one in made if not one.failed]  # exports skip failed conversations
    FORMATS[format].write(iter(made), tmp_path / name)
    with Catalogue([tmp_path / name]) as catalogue:
        [run] = catalogue.runs
        rows = catalogue.page(limit=1000).rows
        kept = {one.id for one in made} if format == "chat" else {row.id for row in rows}
        assert {row.id for row in rows} == kept
        assert rows
        one = next(t for t in made if t.id == rows[0].id)
        assert {rows[0].assistant, rows[0].user} == {speaker.role for speaker in one.speakers}
        assert catalogue.conversation(run.name, one.id).task.original == one.task.original
    assert not (tmp_path / name).is_dir() or not (tmp_path / name / "run.json").exists()


def test_labels_in_files_of_the_original_formats_are_respected(tmp_path: Path):
    from camel.record.release import Release

    made = [transcript(1), transcript(2, labels=["misalignment"])]
    FORMATS["chat"].write(iter(made), tmp_path / "harmless", release=Release(True, "guid"))
    with Catalogue([tmp_path / "harmless"]) as catalogue:
        assert [row.id for row in catalogue.page().rows] == [made[0].id]


def test_missing_runs_and_conversations_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Callable[..., None]
):
    monkeypatch.chdir(tmp_path)
    for name in ("nothing", "x.json"):
        with pytest.raises(InputError, match=name) as refused:
            Catalogue([name])
        snapshot("errors", refused.value, name)
        (tmp_path / "x.json").write_text(json.dumps({"a": 1}))
    Catalogue([]).close()  # a public server may show nothing but its agents


def test_two_runs_with_the_same_name_get_different_names(tmp_path: Path):
    society(tmp_path / "a" / "run", rows=3)
    society(tmp_path / "b" / "run", rows=4)
    with Catalogue([tmp_path / "a" / "run", tmp_path / "b" / "run"]) as catalogue:
        assert [run.name for run in catalogue.runs] == ["run", "run-2"]
        assert dict(catalogue.facets()["run"]) == {"run": 3, "run-2": 4}


def test_a_single_selected_run_is_counted(tmp_path: Path):
    society(tmp_path / "run", rows=3)
    with Catalogue([tmp_path / "run"]) as catalogue:
        assert "run" not in catalogue.facets()
        assert catalogue.facets(Query(runs=("run",)))["run"] == [("run", 3)]
