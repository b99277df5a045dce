"""Files of the original CAMEL formats open in the explorer and read correctly; large ones are imported once."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from camel.core.errors import CamelError
from camel.explorer.app import create_app
from camel.query import sources
from camel.query.catalogue import Catalogue
from camel.query.where import Query
from tests.support.web_page import Page

USER, ASSISTANT = "Stock Trader_RoleType.USER", "Python Programmer_RoleType.ASSISTANT"


def message(kind: str, text: str) -> dict[str, Any]:
    name = "Stock Trader" if kind == "USER" else "Python Programmer"
    return {"role_name": name, "role_type": kind, "role": kind.lower(), "content": text}


def chat(id: str, *texts: str, key: str = "id", **more: Any) -> dict[str, Any]:
    said = {
        f"message_{n}": message(("USER", "ASSISTANT")[(n - 1) % 2], text) for n, text in enumerate(texts, 1)
    }
    head = {
        "role_1": ASSISTANT,
        "role_2": USER,
        key: id,
        "original_task": "Develop a trading bot",
        "specified_task": "Develop a trading bot that reads the news",
    }
    end = {"num_messages": len(texts), "termination_reason": "<CAMEL_TASK_DONE>"}
    return {**head, **said, **end, **more}


TALK = (
    "Instruction: Install the library\nInput: None",
    "Solution: pip install news\n\nNext request.",
    "<CAMEL_TASK_DONE>",
)
TRANSLATED = ("指示：安装这个库\n输入：无", "解决方案：完成。\n\n下一个请求。", "<CAMEL_TASK_DONE>")


def folder_of_files(where: Path) -> Path:
    made = where / "ai_society_chat"
    made.mkdir()
    for id in ("001_001_001", "001_001_002", "002_001_001"):
        (made / f"{id}.json").write_text(json.dumps(chat(id, *TALK)))
    return made


def zipped(where: Path) -> Path:
    with zipfile.ZipFile(where / "chat.zip", "w") as file:
        for id in ("001_001_001", "001_001_002", "002_001_001"):
            file.writestr(f"chat/{id}.json", json.dumps(chat(id, *TALK, key="input")))
    return where / "chat.zip"


def translated(where: Path) -> Path:
    with zipfile.ZipFile(where / "zh.zip", "w") as file:
        for id in ("001_001_001", "001_001_002", "002_001_001"):
            file.writestr(f"zh/{id}.json", json.dumps(chat(id, *TRANSLATED), ensure_ascii=False))
    return where / "zh.zip"


def instructions(where: Path) -> Path:
    rows = [
        {
            "id": f"{id}_{n}",
            "role_1": ASSISTANT,
            "role_2": USER,
            "original_task": "Develop a trading bot",
            "specified_task": "Develop a trading bot that reads the news",
            "role_1_response": "" if n == 1 else "Solution: pip install news",
            "role_1_message_id": 2 * n - 2,
            "instruction": f"Install the library {n}",
            "input": "None",
            "output": f"Solution: pip install news {n}",
            "termination_reason": "<CAMEL_TASK_DONE>",
        }
        for id in ("001_001_001", "001_001_002", "002_001_001")
        for n in (1, 2)
    ]
    (where / "instructions.json").write_text(json.dumps(rows))
    return where / "instructions.json"


def problems(where: Path) -> Path:
    made = where / "math"
    made.mkdir()
    for id in ("001_001_001", "001_001_002", "002_001_001"):
        row = {
            "role_1": "Mathematician_RoleType.ASSISTANT",
            "topic": "Algebra",
            "sub_topic": "Linear equations",
            "message_1": "Solve 2x = 4.",
            "message_2": "x = 2",
        }
        (made / f"{id}.json").write_text(json.dumps(row))
    return made


MADE = {
    folder_of_files: ("Install the library", 3),
    zipped: ("Install the library", 3),
    translated: ("安装这个库", 3),
    instructions: ("Install the library 1", None),
    problems: ("Solve 2x = 4.", 2),
}


@pytest.mark.parametrize("make", MADE)
def test_files_of_the_original_formats_open_and_read_correctly(make: Any, tmp_path: Path):
    said, length = MADE[make]
    with Catalogue([make(tmp_path)]) as catalogue:
        page = catalogue.page()
        assert page.total >= 3
        first = page.rows[0]
        if make is problems:
            assert catalogue.facets()["length"] == [("2", 3)]
        else:
            assert (first.user, first.assistant) == ("Stock Trader", "Python Programmer")
            assert first.task.startswith("Develop a trading bot")
            assert {row.stop for row in page.rows} <= {"done", "unknown", "unfinished"}
        assert length is None or first.messages == length
        app = TestClient(create_app(catalogue), base_url="http://127.0.0.1")
        read = Page(app.get(f"/conversation/{first.run}?id={first.id}").text)
        assert said in read.said
        assert not read.wrong
        assert Page(app.get("/statistics").text).wrong == []
        assert app.get("/list?q=library").status_code == 200


def test_a_large_file_is_imported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sources, "KEPT_FROM", 1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = zipped(tmp_path)
    with Catalogue([path]) as catalogue:
        assert catalogue.count() == 3
    with monkeypatch.context() as patch:
        patch.setattr(sources, "store", None)  # nothing is imported again
        with Catalogue([path]) as catalogue:
            assert [row.id for row in catalogue.page().rows] == ["001_001_001", "001_001_002", "002_001_001"]
            assert catalogue.search(Query(text="library")).total == 3
    [kept] = (tmp_path / "cache" / "camel" / "imports").iterdir()
    assert kept.stat().st_mode & 0o077 == 0, "what is in it is nobody else's business"
    # A changed file is imported again, and unused imports are removed.
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("chat/003_001_001.json", json.dumps(chat("003_001_001", *TALK)))
    os.utime(kept, (0, 0))
    with Catalogue([path]) as catalogue:
        assert catalogue.count() == 4
    assert not kept.exists()
    # The file can be read even if the cache is not writable.
    monkeypatch.setenv("XDG_CACHE_HOME", str(path))
    with Catalogue([path]) as catalogue:
        assert catalogue.count() == 4


def test_an_unreadable_file_leaves_no_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sources, "KEPT_FROM", 1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "x.json").write_text('[{"a": 1}]')
    with pytest.raises(CamelError, match=r"x\.json"):
        Catalogue([tmp_path / "x.json"])
    assert not list((tmp_path / "cache" / "camel" / "imports").iterdir())
