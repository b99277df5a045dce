"""The explorer in a notebook: `run.view()`.

The one decision to know: it is the same server, on a loopback address, in a thread that ends with this process. Only pages
from this machine, such as the notebook, may show it in a frame.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections.abc import Sequence
from html import escape

import uvicorn

from camel.core.errors import CamelError
from camel.explorer.app import create_app
from camel.explorer.serving import link_to, listening, looking, settings
from camel.query.catalogue import Catalogue

HOST = "127.0.0.1"
FRAMES = ("http://localhost:*", "http://127.0.0.1:*", "https://localhost:*", "https://127.0.0.1:*")
"""Origins whose pages may show the explorer in a frame: those of this machine."""
_PATIENCE = 20.0
_open: dict[tuple[str, ...], RunningExplorer] = {}


class RunningExplorer:
    """A running explorer. A notebook shows it in a frame, with a link that opens it in a new tab."""

    def __init__(self, runs: Sequence[str], port: int = 0, height: int = 640) -> None:
        self.height = height
        with contextlib.ExitStack() as opened:
            self._socket = opened.enter_context(listening(HOST, port))
            catalogue = opened.enter_context(Catalogue(runs))
            self.url = link_to(HOST, self._socket.getsockname()[1], "")
            self._server = uvicorn.Server(settings(create_app(catalogue, frames=FRAMES)))
            opened.enter_context(looking(catalogue))
            self._opened = opened.pop_all()
        self._thread = threading.Thread(target=self._serve, name="camel-view", daemon=True)
        self._thread.start()
        atexit.register(self.stop)

    def _serve(self) -> None:
        with self._opened:
            self._server.run([self._socket])

    @property
    def running(self) -> bool:
        """Whether the server is still running."""
        return self._thread.is_alive() and not self._server.should_exit

    def stop(self) -> None:
        """Stop the server. If you do not call this, it stops with the notebook's kernel."""
        self._server.should_exit = True
        self._thread.join(_PATIENCE)
        atexit.unregister(self.stop)

    def __repr__(self) -> str:
        return f"<explorer at {self.url}>" if self.running else "<explorer, stopped>"

    def _repr_html_(self) -> str:
        if not self.running:
            return "<p>The explorer was stopped.</p>"
        url = escape(self.url)
        return (
            f'<p><a href="{url}" target="_blank" rel="noopener">Open the explorer in a new tab</a> ({url})</p>'
            f'<iframe src="{url}" title="CAMEL explorer" style="width:100%;height:{self.height}px;'
            'border:1px solid rgba(128,128,128,.35);border-radius:8px"></iframe>'
        )


def view(*runs: str, port: int = 0, height: int = 640) -> RunningExplorer:
    """Open the explorer on some runs, in a thread of this process. A second call with the same runs returns the same explorer."""
    if not runs:
        raise CamelError("view needs at least one run")
    known = _open.get(runs)
    if known is None or not known.running:
        known = _open[runs] = RunningExplorer(runs, port, height)
    known.height = height
    return known
