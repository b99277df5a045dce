"""`camel explore`, `camel agents` and `camel vote`, served by a thread of the test process.

Starting `python -m camel` costs seconds of CPU. A thread server runs the same command, with the same options, except
that a test stops it instead of a signal.
"""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest
import typer
import uvicorn

from camel.cli import app as commands
from camel.explorer import app as serving
from camel.explorer.vote import app as voting

SECONDS = 120.0
"""The time in which a server must have opened its port or closed it, on a busy machine too."""


class ThreadServer:
    """A command that serves pages; `printed` has the lines that it printed before it served."""

    def __init__(self, command: str, *arguments: Path | str, port: int = 0, token: bool = False) -> None:
        self.printed: list[str] = []
        self._error: BaseException | None = None
        self._server: uvicorn.Server | None = None
        reached = threading.Event()

        def answer(app: Any, door: Any) -> None:
            self._server = uvicorn.Server(serving.settings(app))
            reached.set()
            self._server.run([door])

        def run() -> None:
            try:
                told = [command, *map(str, arguments), "--no-open", "--port", str(port)]
                commands(told if token else [*told, "--no-token"], standalone_mode=False)
            except BaseException as error:
                self._error = error
            finally:
                reached.set()

        self._thread = threading.Thread(target=run)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(serving, "answer", answer)
            patch.setattr(voting, "answer", answer)
            patch.setattr(typer, "echo", lambda line="", **_: self.printed.append(line))
            self._thread.start()
            assert reached.wait(SECONDS)
        if self._error:
            raise self._error
        found = re.search(r"at (http://\S+)", "\n".join(self.printed))
        assert found, self.printed
        self.link = found[1]
        self.url = "/".join(self.link.split("/")[:3])

    def stop(self) -> None:
        if self._server:
            self._server.should_exit = True
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
        if self._error:
            raise self._error
