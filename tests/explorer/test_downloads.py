"""Downloads: what the filter selects, all of it, and nothing that its reader may not see."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import msgspec
import pytest
from starlette.testclient import TestClient

from camel.core.task import Task
from camel.core.transcript import Transcript
from camel.explorer import list_pages
from camel.query.catalogue import Catalogue
from camel.runs.canary import canary_of
from camel.runs.run import open_folder
from camel.runs.settings import Settings
from tests.support.explorer_client import client, consent
from tests.support.societies import SECRET, commit, society, transcript

RESTRICTED = {3, 10, 11, 59}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Catalogue, list[Transcript]]]:
    where = tmp_path_factory.mktemp("runs") / "caravan"
    made = society(where, restricted=RESTRICTED)
    with Catalogue([where]) as catalogue:
        yield catalogue, made


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: (media, 9, write) for name, (media, _, write) in list_pages.FILES.items()}
    monkeypatch.setattr(list_pages, "FILES", few)


def table(app: TestClient, **query: str) -> list[dict[str, str]]:
    answer = app.get(f"/download/conversations.csv?{urlencode(query)}")
    assert answer.status_code == 200
    assert 'filename="conversations.csv"' in answer.headers["content-disposition"]
    return list(csv.DictReader(io.StringIO(answer.text)))


def lines(app: TestClient, **query: str) -> list[bytes]:
    answer = app.get(f"/download/conversations.jsonl?{urlencode(query)}")
    assert answer.status_code == 200
    return answer.content.splitlines()


def test_a_download_has_everything_in_the_order_of_the_list(world: tuple[Catalogue, list[Transcript]]):
    catalogue, made = world
    app, visible = client(catalogue), [one for n, one in enumerate(made) if n not in RESTRICTED]
    assert [Transcript.from_json(line) for line in lines(app)] == visible
    found = table(app)
    assert [row["id"] for row in found] == [one.id for one in visible]
    assert [int(row["messages"]) for row in found] == [len(one.messages) for one in visible]
    assert {row["run"] for row in found} == {"caravan"}
    assert SECRET not in app.get("/download/conversations.csv").text
    assert app.get("/download/conversations.csv?user=Nobody").text.startswith("run,id,")
    assert table(app, user="Nobody") == lines(app, user="Nobody") == []


def test_a_download_has_what_the_filter_selects_sorted_as_the_list(
    world: tuple[Catalogue, list[Transcript]],
):
    catalogue, made = world
    app = client(catalogue)
    wanted = [
        one for n, one in enumerate(made) if n not in RESTRICTED and one.stop and one.stop.reason == "done"
    ]
    wanted.sort(key=lambda one: one.usage.total, reverse=True)
    query = {"stop": "done", "sort": "tokens", "order": "desc"}
    assert [row["id"] for row in table(app, **query)] == [one.id for one in wanted]
    assert [Transcript.from_json(line).id for line in lines(app, **query)] == [one.id for one in wanted]


@pytest.mark.parametrize("file", list_pages.FILES)
def test_after_consent_a_run_without_a_canary_is_refused_as_by_an_export(
    world: tuple[Catalogue, list[Transcript]], file: str
):
    app = client(world[0])
    consent(app)
    assert app.get(f"/download/{file}").status_code == 400


def test_after_consent_restricted_conversations_carry_their_canary(tmp_path: Path):
    folder = open_folder(tmp_path / "red")
    folder.create(Settings("f", {"scenario": "misalignment", "shard_size": 5}, "0"))
    commit(folder, 0, [transcript(n, labels=["misalignment"] if n else []) for n in range(5)])
    with Catalogue([tmp_path / "red"]) as catalogue:
        app = client(catalogue)
        assert [row["id"] for row in table(app)] == ["000_000"]
        catalogue.annotate("red", "000_000", star=True, tags=["odd", "long"], note="=1")
        assert [table(app)[0][name] for name in ("star", "tags", "note")] == ["True", "odd; long", "'=1"]
        consent(app)
        canary = canary_of(folder)
        assert [row["canary"] for row in table(app)] == ["", *[canary] * 4]
        found = [msgspec.json.decode(line) for line in lines(app)]
        assert [line.get("canary") for line in found] == [None, *[canary] * 4]
        assert found[1]["labels"] == ["misalignment"]


def test_text_of_a_model_is_no_formula_in_a_spreadsheet(tmp_path: Path):
    folder = open_folder(tmp_path / "run")
    folder.create(Settings("f", {"shard_size": 5}, "0"))
    commit(folder, 0, [Transcript("1", Task("=HYPERLINK(1)"))])
    with Catalogue([tmp_path / "run"]) as catalogue:
        assert table(client(catalogue))[0]["task"] == "'=HYPERLINK(1)"


def test_there_are_only_these_downloads(world: tuple[Catalogue, list[Transcript]]):
    app = client(world[0])
    assert app.get("/download/conversations.exe").status_code == 404
    assert app.get("/download/conversations.csv?stop=done&sort=nothing").status_code == 400
