"""Reaching a Ray cluster: one started here, or one that is there.

The one decision to know: a cluster that CAMEL starts listens on loopback only, asks for a token that exists only as long as
it does, has no dashboard and reports to nobody.
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
"""Seconds for a head to let itself be reached."""
OBJECT_STORE = 80 * 2**20
"""Bytes, the least that Ray takes: nothing of size goes through it."""
_START = "start one (ray start --head), or give host:port of its head, from a node of the cluster"
_ASKED = (
    "export RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH=FILE, the file of the token with which its head was started "
    "(~/.ray/auth_token unless given)"
)


@contextlib.contextmanager
def connected(address: str, *, workers: int | None = None) -> Generator[None]:
    """Be a driver on the cluster at `address`: `local`, `auto` or `host:port`."""
    if address.startswith("ray://"):
        raise InputError(
            "ray:// is Ray's client for other people's machines, and a run's driver must be a part of the cluster; "
            "give host:port from a node of it, or send the command there with ray job submit"
        )
    if address not in (LOCAL, AUTO):
        _check_listens(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address == LOCAL:
        # Said of other systems: what is no cluster lives on 127.0.0.1, and all its ports listen there only.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        if not os.environ.get("RAY_AUTH_TOKEN") and not os.environ.get("RAY_AUTH_TOKEN_PATH"):
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    try:
        ray: Any = import_module("ray")
    except ImportError:
        raise MissingExtra("A Ray cluster", "cluster") from None
    with _quiet():
        with _overheard(address) as heard:
            try:
                ray.init(**_settings(address, workers))
            except Exception as error:
                raise InputError(_refusal(address, error, heard())) from None
        try:
            yield
        finally:
            ray.shutdown()


def _check_listens(address: str) -> None:
    """Fail within seconds where nobody listens: Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    where = "give host:port of its head, whose port is 6379 unless ray start was told another"
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InputError(f"no Ray cluster at {address}: that is no address of one; {where}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
    except OSError as error:
        raise InputError(f"no Ray cluster at {address}: {error.strerror or error}; {where}") from None


class Seen(NamedTuple):
    """A cluster as a driver sees it."""

    nodes: int
    cpus: float


def look_at(address: str) -> Seen:
    """Reach the cluster at `address` and say what it offers; an `InputError` where there is none."""
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
    """Keep Ray from printing to where the run is shown; what it has to say comes as errors as well."""
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
def _overheard(address: str) -> Generator[Callable[[], str]]:
    """Keep what Ray's C++ writes while it connects: twenty lines that hold the reason, where its error holds none.

    A cluster that is started here must not get such a file as its standard error.
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
    """Why there is no cluster for us, and after the last semicolon what to do."""
    if type(error).__name__ == "AuthenticationError" or "Unauthenticated" in heard:
        given = os.environ.get("RAY_AUTH_MODE", "") == "token"
        why = "it asks for a token" + (", and there is none here, or a wrong one" if given else "")
        return f"no Ray cluster at {address} that lets us in: {why}; {_ASKED}"
    return f"no Ray cluster at {address}: {_line(error)}; {_START}"


def _say_nothing(*args: Any, **kwargs: Any) -> None:
    return None


def _line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]
