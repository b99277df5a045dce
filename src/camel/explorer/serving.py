"""Serve the explorer until Ctrl-C: where it listens, what it prints, and the browser it opens.

The one decision to know: on loopback the door is open, for whoever can reach it is on this machine; on any other address
a token is made, stands in the printed link, and nothing is answered without it.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Sequence

import uvicorn

from camel.core.errors import CamelError, InputError
from camel.explorer import statistics
from camel.explorer.access import is_loopback
from camel.explorer.app import create_app
from camel.explorer.catalogue import Catalogue


def serve(
    runs: Sequence[str],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    allow_hosts: Sequence[str] = (),
    open_browser: bool = False,
    ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Answer until interrupted. `ready` is told the link once the port is open."""
    token = "" if is_loopback(host) else secrets.token_urlsafe(24)
    with Catalogue(runs) as catalogue, _listening(host, port) as listening:
        hosts = {*allow_hosts, socket.gethostname(), *([] if _is_any(host) else [host])}
        app = create_app(catalogue, token=token, hosts=hosts)
        link = link_to(host, listening.getsockname()[1], token)
        ready(link)
        ended = threading.Event()
        looking = threading.Thread(target=catalogue.keep_looking, args=[ended], daemon=True)
        looking.start()
        threading.Thread(target=_warm, daemon=True).start()
        if open_browser:
            # Beside the server: some browsers stay in the foreground until they are closed.
            threading.Thread(target=webbrowser.open, args=[link], daemon=True).start()
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=2
        )
        try:
            uvicorn.Server(config).run([listening])
        finally:
            ended.set()
            looking.join(5)


def _warm() -> None:
    with contextlib.suppress(CamelError):  # who has no extra for plots hears of it where they want one
        statistics.warm()


def link_to(host: str, port: int, token: str) -> str:
    """The link under which the explorer is opened."""
    name = "127.0.0.1" if _is_any(host) else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/" + (f"?token={token}" if token else "")


def _is_any(host: str) -> bool:
    return host in ("0.0.0.0", "::", "")  # noqa: S104 - asked whether it is, not bound here


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, reuse_port=False)
    except socket.gaierror as error:
        raise InputError(f"cannot listen on {host}: {error.strerror}: give an address with --host") from None
    except OSError as error:
        hint = ": choose another with --port" if port else ""
        raise InputError(f"cannot listen on {host} port {port}: {error.strerror or error}{hint}") from None


def can_open() -> bool:
    """Whether somebody sits before a screen here."""
    return sys.stdout.isatty() and sys.stdin.isatty()
