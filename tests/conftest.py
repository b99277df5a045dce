"""Holds for every test: no network beyond this machine, and no key or endpoint from the developer's shell.

The guard covers this process only; a child process is safe because it inherits neither key nor base URL.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support import snapshots
from tests.support.s3_faults import Faults, Server, spawn

if TYPE_CHECKING:
    from camel.runs.run import RunFolder
    from camel.sandbox.process import Sandbox

# Without it, every text of a command's help is looked up in catalogs of languages that are not there: 3% of the CPU time.
os.environ["LANGUAGE"] = "C"

# No verdict depends on the speed of the machine. `--hypothesis-profile=thorough` draws many new examples.
settings.register_profile(
    "default", max_examples=50, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=1_000, derandomize=False)
settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-snapshots", action="store_true", help="update the texts in tests/snapshots")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Put all tests with a cluster into one process: clusters that start at the same moment disturb each other."""
    if item.get_closest_marker("cluster"):
        item.add_marker(pytest.mark.xdist_group("cluster"))


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name a long text by its length: xdist and the report carry the names of all tests, which were 12 MB."""
    return f"{argname} of {len(val)}" if isinstance(val, str | bytes) and len(val) > 200 else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin the longest tests first, so that none is left over at the end; refuse a pytest that ignores xdist's groups."""
    items.sort(key=lambda item: item.get_closest_marker("longest") is None)
    if getattr(config.option, "loadgroup", False):
        loose = [item for item in items if item.get_closest_marker("xdist_group") and "@" not in item.nodeid]
        if loose:
            raise pytest.UsageError(
                f"pytest {pytest.__version__} and pytest-xdist do not group {loose[0].nodeid}"
            )


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--update-snapshots") and not hasattr(session.config, "workerinput"):
        snapshots.merge()


def snapshot_key(nodeid: str, name: str = "") -> str:
    """The test's place, its parameters and the name of the text, as one line."""
    function, _, parameters = nodeid.removeprefix("tests/").partition("[")
    parts = [function, parameters.removesuffix("]"), name]
    return " ".join(part.replace("\n", " ") for part in parts if part)


@pytest.fixture
def snapshot(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., None]:
    """`snapshot("errors", text, "name")`: the whole text is the one in tests/snapshots/errors.txt.

    `make snapshots` updates all texts; the diff shows what users will see.
    """

    def check(surface: str, text: object, name: str = "") -> None:
        folders = [tmp_path_factory.getbasetemp()]
        if "tmp_path" in request.fixturenames:
            folders.insert(0, request.getfixturevalue("tmp_path"))
        found = snapshots.plain(str(text), folders)
        key = snapshot_key(request.node.nodeid, name)
        if request.config.getoption("--update-snapshots"):
            snapshots.remember(surface, key, found)
            return
        known = snapshots.read(surface)
        assert key in known, f"{key} has no text in tests/snapshots/{surface}.txt: run `make snapshots`"
        assert found == known[key]

    return check


class NetworkBlocked(RuntimeError):
    """Not an OSError, so that no client under test takes it for an endpoint that is down."""


def _is_local(host: str | bytes | None) -> bool:
    if isinstance(host, bytes):
        host = host.decode()
    if host is None or host in ("", "localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _check(host: str | bytes | None) -> None:
    if not _is_local(host):
        raise NetworkBlocked(f"tests stay on loopback, and this one tried to reach {host!r}")


@pytest.fixture(autouse=True, scope="session")
def _loopback_only() -> Iterator[None]:
    resolve = socket.getaddrinfo
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex

    def guarded_resolve(host: Any, *args: Any, **kwargs: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if isinstance(name, str) and name.endswith(".invalid"):
            # Reserved never to resolve (RFC 2606): answered as a resolver would, without asking one.
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        _check(name)
        return resolve(host, *args, **kwargs)

    def guarded_connect(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            _check(address[0])
        connect(self, address)

    def guarded_connect_ex(self: socket.socket, address: Any) -> int:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            _check(address[0])
        return connect_ex(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", guarded_resolve)
        patch.setattr(socket.socket, "connect", guarded_connect)
        patch.setattr(socket.socket, "connect_ex", guarded_connect_ex)
        yield


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("CAMEL_MODEL", raising=False)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files and folders that are synced from now on, in order."""
    names: list[str] = []
    sync = os.fsync

    def noted(descriptor: int) -> None:
        names.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    return names


@pytest.fixture(scope="session")
def small_server() -> Iterator[Any]:
    """The small real model in the one server of this test process: a `camel.models.local.Running`."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("needs the extra 'local'")
    from tests.support import small_model

    with small_model.shared() as server:
        yield server


@pytest.fixture
def small_model(small_server: Any) -> Any:
    """A `ChatModel` on that server, held to the instruction format."""
    from tests.support.small_model import connect

    return connect(small_server)


@pytest.fixture(scope="session")
def _server() -> Iterator[Server]:
    pytest.importorskip("moto")
    pytest.importorskip("obstore")
    with spawn() as server:
        yield server


@pytest.fixture
def s3(
    _server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Server]:
    """An S3 server of its own process, over real HTTP, with nothing wrong with it; in the environment."""
    for name, value in _server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CAMEL_JOURNALS", str(tmp_path / "journals"))
    _server.set(Faults())
    yield _server
    _server.set(Faults())


@pytest.fixture
def bucket(s3: Server, tmp_path: Path) -> Callable[[str], str]:
    """Addresses in it that no other test uses."""
    return lambda name: s3.address(f"{tmp_path.parent.name}-{tmp_path.name}/{name}")


@pytest.fixture(params=["disk", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], RunFolder]:
    """Gives a place for a run, of either kind."""
    from camel.runs.run import open_folder

    if request.param == "disk":
        return lambda name: open_folder(tmp_path / name)
    addresses = request.getfixturevalue("bucket")
    return lambda name: open_folder(addresses(name))


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the client of object stores wait milliseconds, not seconds, before it repeats a request."""
    store = pytest.importorskip("obstore.store")
    from_url = store.from_url
    backoff = {
        "init_backoff": timedelta(milliseconds=2),
        "max_backoff": timedelta(milliseconds=40),
        "base": 2,
    }

    def quick(*args: Any, retry_config: dict[str, Any], **kwargs: Any) -> Any:
        return from_url(*args, retry_config={**retry_config, "backoff": backoff}, **kwargs)

    monkeypatch.setattr(store, "from_url", quick)


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """One sandbox per test process: it copies a Python installation when it is made."""
    from camel.sandbox.process import Sandbox

    with Sandbox() as made:
        made.check()
        yield made
