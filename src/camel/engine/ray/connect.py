"""Connects to a Ray cluster: a local one that is started here, or an existing one.

The one decision to know: a cluster that CAMEL starts listens only on loopback, requires a temporary token, has no
dashboard and sends no usage statistics.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import tempfile
from collections.abc import Callable, Generator
from importlib import import_module
from typing import Any, NamedTuple

from camel.core.errors import InputError, MissingExtra

LOCAL, AUTO = "local", "auto"
PATIENCE = 10.0
"""Seconds to wait for a connection to the head."""
OBJECT_STORE = 80 * 2**20
"""Ray's minimum size of the object store in bytes: nothing large goes through it."""
_START = "start one with `ray start --head`, or pass host:port of its head, from a node of the cluster"
_ASKED = (
    "export RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH=FILE, the token file of its head "
    "(default: ~/.ray/auth_token)"
)


@contextlib.contextmanager
def connected(address: str, *, workers: int | None = None) -> Generator[None]:
    """Connect as a driver to the cluster at `address`: `local`, `auto` or `host:port`."""
    if address.startswith("ray://"):
        raise InputError(
            "ray:// addresses are not supported, because a run's driver must be part of the cluster: pass host:port on a "
            "node of the cluster, or send the command there with `ray job submit`"
        )
    if address not in (LOCAL, AUTO):
        _check_listens(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address == LOCAL:
        # Treat it as a single machine: all ports listen on 127.0.0.1 only.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        if not os.environ.get("RAY_AUTH_TOKEN") and not os.environ.get("RAY_AUTH_TOKEN_PATH"):
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    try:
        ray: Any = import_module("ray")
    except ImportError:
        raise MissingExtra("A Ray cluster", "cluster") from None
    with _quiet():
        with _captured_output(address) as heard:
            try:
                ray.init(**_settings(address, workers))
            except Exception as error:
                raise InputError(_refusal(address, error, heard())) from None
        try:
            yield
        finally:
            ray.shutdown()


def _check_listens(address: str) -> None:
    """Raise an error within seconds if nothing listens at the address. Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    where = "pass host:port of its head (the default port of `ray start` is 6379)"
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InputError(f"'{address}' is not the address of a Ray cluster: {where}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
    except OSError as error:
        raise InputError(f"no Ray cluster at '{address}': {error.strerror or error}; {where}") from None


class Seen(NamedTuple):
    """The size of a cluster."""

    nodes: int
    cpus: float


def look_at(address: str) -> Seen:
    """Connect to the cluster at `address` and return what it offers; raises an `InputError` if there is none."""
    with connected(address):
        ray: Any = import_module("ray")
        nodes = [node for node in ray.nodes() if node["Alive"]]
        return Seen(len(nodes), sum(node["Resources"].get("CPU", 0.0) for node in nodes))


def _settings(address: str, workers: int | None) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "address": address,
        "log_to_driver": False,
        "logging_level": logging.ERROR,
        "configure_logging": True,
    }
    if address == LOCAL:
        settings |= {
            "num_cpus": max(workers or 0, os.cpu_count() or 1),
            "include_dashboard": False,
            "object_store_memory": OBJECT_STORE,
        }
    return settings


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Stop Ray from printing to the terminal; its problems arrive as errors anyway."""
    worker: Any = import_module("ray._private.worker")
    name = "print_to_stdstream"
    before = getattr(worker, name, None)
    if before is not None:
        setattr(worker, name, _say_nothing)
    try:
        yield
    finally:
        if before is not None:
            setattr(worker, name, before)


@contextlib.contextmanager
def _captured_output(address: str) -> Generator[Callable[[], str]]:
    """Capture what Ray's C++ code writes to standard error while it connects: it contains the reason, the exception does not.

    A cluster that is started here must not inherit such a file as its standard error.
    """
    if address == LOCAL:
        yield lambda: ""
        return
    with tempfile.TemporaryFile() as file:

        def heard() -> str:
            file.seek(0)
            return file.read().decode(errors="replace")

        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield heard
        finally:
            os.dup2(before, 2)
            os.close(before)


def _refusal(address: str, error: Exception, heard: str) -> str:
    """Return why the connection failed. The text after the last semicolon is what to do."""
    if type(error).__name__ == "AuthenticationError" or "Unauthenticated" in heard:
        given = os.environ.get("RAY_AUTH_MODE", "") == "token"
        why = "it requires a token" + (", and the one set here is wrong or missing" if given else "")
        return f"the Ray cluster at {address} refused the connection: {why}; {_ASKED}"
    return f"no Ray cluster at {address}: {_line(error)}; {_START}"


def _say_nothing(*args: Any, **kwargs: Any) -> None:
    return None


def _line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]
