"""`camel run gc` in a terminal: it shows what it found and removes it only after a yes."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyte")

from camel.runs.run import RunFolder
from tests.support.records import STAGE, a_run
from tests.support.terminal import ENTER, Terminal


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "removed"), [("n", False), ("", False), ("y", True)])
def test_it_asks_before_it_removes(tmp_path: Path, answer: str, removed: bool):
    folder = a_run(RunFolder(tmp_path / "run"), 1)
    loser = folder.data_path(STAGE, 0, "loser", ".parquet")
    loser.write_bytes(b"x")
    with Terminal(["run", "gc", "run"], tmp_path, {}) as terminal:
        terminal.wait_for("Remove them?")
        assert f"data/{STAGE}/{loser.name}" in terminal.text
        assert loser.exists()
        terminal.type(answer + ENTER)
        terminal.wait_for("1 byte removed" if removed else "nothing was removed")
        assert terminal.process.wait() == 0
    assert loser.exists() != removed
    assert len(list(folder.store.entries("data"))) == (1 if removed else 2)
