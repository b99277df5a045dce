"""Serve the explorer until Ctrl-C: where it listens, what it prints, and the browser it opens.

The one decision to know: on loopback the door is open, for whoever can reach it is on this machine; on any other address
a token is made, stands in the printed link, and nothing is answered without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Generator, Sequence

import uvicorn
from fastapi import FastAPI

from camel.core.errors import CamelError, InputError
from camel.explorer import charts
from camel.explorer.access import is_loopback
from camel.explorer.app import create_app
from camel.explorer.rooms import Agents
from camel.query.catalogue import Catalogue

TOKEN = "CAMEL_TOKEN"  # noqa: S105 - the name of a variable
"""Environment: the token that is asked for on other addresses than loopback; a new one at each start unless set."""
LEAST_TOKEN = 16
_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def serve(
    runs: Sequence[str],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    allow_hosts: Sequence[str] = (),
    frames: Sequence[str] = (),
    public: bool = False,
    agents: Agents | None = None,
    open_browser: bool | None = False,
    ready: Callable[[str], None] = lambda url: None,
    find_runs: Callable[[], Sequence[str]] = lambda: (),
) -> None:
    """Answer until interrupted. `ready` gets the link once the port is open; None opens a browser where a terminal is.

    `public` leaves the door open on any address, for what is meant for everybody; `agents` lets conversations be held.
    Runs that `find_runs` returns later are added as they appear.
    """
    open_door = public or is_loopback(host)
    chosen = checked_token(os.environ.get(TOKEN, ""))
    token = "" if open_door else chosen or secrets.token_urlsafe(24)
    with Catalogue(runs, annotations=not public) as catalogue, listening(host, port) as door:
        hosts = {*allow_hosts, socket.gethostname(), *([] if is_any(host) else [host])}
        app = create_app(
            catalogue, token=token, hosts=hosts, frames=frames, agents=agents, control=not public
        )
        path = "play" if agents else ""
        link = link_to(host, door.getsockname()[1], token, path)
        # What is printed ends up in logs: a token that was chosen is known to whoever needs it.
        ready(link.replace(f"token={chosen}", f"token=${TOKEN}") if token and chosen else link)
        threading.Thread(target=_warm, daemon=True).start()
        if can_open() if open_browser is None else open_browser:
            # Beside the server: some browsers stay in the foreground until they are closed.
            threading.Thread(target=webbrowser.open, args=[link], daemon=True).start()
        with looking(catalogue, find_runs):
            answer(app, door)


@contextlib.contextmanager
def looking(catalogue: Catalogue, find_runs: Callable[[], Sequence[str]] = lambda: ()) -> Generator[None]:
    """Look through small runs and take in new ones in a thread, for as long as this lasts."""
    ended = threading.Event()
    thread = threading.Thread(target=catalogue.keep_looking, args=[ended, find_runs], daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(5)


def answer(app: FastAPI, door: socket.socket) -> None:
    """Serve the app at an open port until somebody interrupts it."""
    try:
        uvicorn.Server(settings(app)).run([door])
    except asyncio.CancelledError:  # interrupted before uvicorn listened for it
        raise KeyboardInterrupt from None


def _warm() -> None:
    with contextlib.suppress(CamelError):  # who has no extra for plots hears of it where they want one
        charts.warm()


def settings(app: FastAPI) -> uvicorn.Config:
    """How the app is served: quietly, and stopped soon."""
    return uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=2
    )


def checked_token(token: str) -> str:
    """A token that was chosen by whoever serves; too short a one is refused."""
    if token and not re.fullmatch(
        rf"[A-Za-z0-9_-]{{{LEAST_TOKEN},200}}", token
    ):  # it stands in links and cookies
        raise InputError(f"{TOKEN} is a token of at least {LEAST_TOKEN} letters, digits, _ and -, or not set")
    return token


def link_to(host: str, port: int, token: str, path: str = "") -> str:
    """The link under which the explorer is opened."""
    name = "127.0.0.1" if is_any(host) else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/{path}" + (f"?token={token}" if token else "")


def is_any(host: str) -> bool:
    """Whether an address to listen on means all of this machine's."""
    return host in ("0.0.0.0", "::", "")  # noqa: S104 - asked whether it is, not bound here


def listening(host: str, port: int) -> socket.socket:
    """An open port; raises an `InputError` that says what to do where it cannot be opened."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, reuse_port=False)
    except socket.gaierror as error:
        raise InputError(f"cannot listen on {host}: {error.strerror}: give an address with --host") from None
    except OSError as error:
        hint = ": choose another with --port" if port else ""
        raise InputError(f"cannot listen on {host} port {port}: {error.strerror or error}{hint}") from None


def can_open() -> bool:
    """Whether somebody sits before a screen here: without one, what opens is a text browser in the same terminal."""
    screen = sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in _SCREENS)
    return screen and sys.stdout.isatty() and sys.stdin.isatty()
