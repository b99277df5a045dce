"""What the page of statistics says of findings where it has no plot of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from camel.core.message import Message
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.explorer.app import create_app
from camel.query.catalogue import Catalogue
from camel.query.where import Query
from camel.runs.run import open_folder
from camel.runs.settings import Settings
from tests.support.societies import commit, transcript

LOOK = "camel run index RUN --findings"
"""What to do about conversations that were not searched for findings yet."""


def test_no_findings_is_not_taken_for_nobody_looked(tmp_path: Path):
    nonsense = Transcript(
        "000_000",
        Task("weigh the wind"),
        [Speaker("user", "Nomad"), Speaker("assistant", "Guide")],
        [
            Message(0, "user", "Nomad", "Instruction: Weigh the wind against a green idea.\nInput: None"),
            Message(1, "assistant", "Guide", "Solution: The wind weighs four Tuesdays.\n\nNext request."),
        ],
        Stop("done", "done"),
    )
    folder = open_folder(tmp_path / "run")
    folder.create(Settings("f", {"scenario": "x"}, "0"))
    commit(folder, 0, [nonsense])
    with Catalogue([tmp_path / "run"]) as catalogue:
        app = TestClient(create_app(catalogue), base_url="http://127.0.0.1")

        def notes() -> str:
            return " ".join(re.findall(r'<p class="note">(.*?)</p>', app.get("/statistics").text))

        assert LOOK in notes()
        while catalogue._shared.look_through():
            pass
        assert "found nothing" in notes()
        assert LOOK not in notes()
        assert app.get("/statistics?stop=error").text.count('class="note"') == 0


def test_one_damaged_file_is_named_and_hides_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = open_folder(tmp_path / "run")
    folder.create(Settings("f", {"scenario": "x"}, "0"))
    made = [commit(folder, shard, [transcript(5 * shard + n) for n in range(5)]) for shard in range(3)]
    bad = tmp_path / "run" / made[0].file
    whole = bad.read_bytes()
    bad.write_bytes(whole[: len(whole) // 2])
    with Catalogue([tmp_path / "run"]) as catalogue:
        app = TestClient(create_app(catalogue), base_url="http://127.0.0.1")
        while catalogue._shared.look_through():
            pass
        page = app.get("/statistics").text
        assert made[0].file in page
        assert "5 conversations" in page
        assert LOOK not in page
        assert made[0].file in app.get("/").text
        found = app.get("/list?run=run&q=the")
        assert found.status_code == 200
        assert made[0].file in found.text
        query = Query(text="by")
        assert {row.id for row in catalogue.page(query).rows} == {
            one.id for one in map(transcript, range(5, 15)) if one.messages
        }
        # Restored, it is found to be whole without a new start.
        bad.write_bytes(whole)
        monkeypatch.setattr("camel.query.sources.AGAIN", 0.0)
        while catalogue._shared.look_through():
            pass
        assert made[0].file not in app.get("/statistics").text


def test_a_damaged_file_without_an_index_keeps_nobody_out(tmp_path: Path):
    folder = open_folder(tmp_path / "run")
    folder.create(Settings("f", {"scenario": "x"}, "0"))
    made = [commit(folder, shard, [transcript(shard)], index=False) for shard in range(2)]
    (tmp_path / "run" / made[0].file).write_bytes(b"")
    with Catalogue([tmp_path / "run"]) as catalogue:
        assert [row.id for row in catalogue.page().rows] == [transcript(1).id]
        assert any(made[0].file in note for note in catalogue.notes())
