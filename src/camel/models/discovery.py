"""Finds replicas: given as URLs, listed in a file, or behind a DNS name.

The one decision to know: if the list can no longer be read, the known replicas stay in use, and the pool finds out whether
they still answer.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.models.endpoint import checked_url

MOST_REPLICAS, MOST_BYTES = 4096, 2**20
FILE_SECONDS, DNS_SECONDS = 2.0, 5.0
_DNS = "dns+"

BaseUrl = str | Sequence[str]
"""One URL, several, `file:///path` or the path of a file with one per line, or `dns+http://host:port/v1`."""


class Source:
    """A source of replica URLs."""

    every = float("inf")
    """Seconds between two updates."""
    first: tuple[str, ...] = ()
    """The last known URLs."""
    check: Callable[[Sequence[str]], None] | None = None
    """Raises an `InputError` for URLs that a list may not name, after it has changed."""

    def look(self) -> tuple[str, ...]:
        """Return the current URLs. If the update fails, return the last known ones."""
        return self.first


class Given(Source):
    """A fixed list of replicas."""

    def __init__(self, urls: Sequence[Any]) -> None:
        self.first = _unique([checked_url(url) for url in urls])
        if not self.first:
            raise InputError("base_url is empty: pass at least one URL")


class Listed(Source):
    """Replicas in a file, one URL per line; blank lines and those that begin with # are skipped."""

    every = FILE_SECONDS

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self.first = self._read()

    def look(self) -> tuple[str, ...]:
        """Return the URLs in the file. If the file is missing or invalid, return the last known ones."""
        with contextlib.suppress(InputError):
            self.first = self._read()
        return self.first

    def _read(self) -> tuple[str, ...]:
        what = f"the list of endpoints {shown(str(self._path))}"
        try:
            with self._path.open("rb") as file:
                stat = self._path.stat()
                stamp = stat.st_mtime_ns, stat.st_size, stat.st_ino
                if stamp == self._stamp:
                    return self.first
                data = file.read(MOST_BYTES + 1)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "not a path"
            raise InputError(f"cannot read {what}: {why}") from None
        if len(data) > MOST_BYTES:
            raise InputError(f"{what} is larger than {MOST_BYTES:,} bytes")
        urls: list[str] = []
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            try:
                urls.append(checked_url(line))
            except InputError:
                # Do not show the line: it may contain a password, or the file may be something else.
                raise InputError(
                    f"line {number} of {shown(str(self._path))} must be a URL like http://host:port/v1, "
                    "without user, password or query"
                ) from None
        if not urls:
            raise InputError(f"{what} is empty: write one URL per line")
        if self.check:
            self.check(urls)
        self._stamp = stamp
        return _unique(urls)


class DnsName(Source):
    """All addresses behind a DNS name, for example of a headless service."""

    every = DNS_SECONDS

    def __init__(self, url: str) -> None:
        plain = url.removeprefix(_DNS)
        if not plain.startswith("http://"):
            raise InputError(
                "dns+ works only with http://, because certificates are for names, not addresses: list the replicas by name instead"
            )
        # Resolved at the first call, because creating a model sends nothing.
        self._parts = urlsplit(checked_url(plain))

    def look(self) -> tuple[str, ...]:
        """Return the URLs of all addresses. If the name cannot be resolved, return the last known ones."""
        host, port = self._parts.hostname or "", self._parts.port or 80
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError:
            return self.first
        hosts = sorted({str(address[4][0]) for address in found})
        urls = [
            self._parts._replace(netloc=f"[{host}]:{port}" if ":" in host else f"{host}:{port}").geturl()
            for host in hosts
            if "%" not in host  # a link-local address is useless without its interface
        ]
        self.first = _unique(urls[:MOST_REPLICAS]) or self.first
        return self.first


def find_replicas(base_url: object) -> Source:
    """Return the source for a `base_url`; raises an `InputError` if it is invalid."""
    if isinstance(base_url, list | tuple):
        return Given(cast("Sequence[Any]", base_url))
    if isinstance(base_url, str):
        if base_url.startswith("file://"):
            parts = urlsplit(base_url)
            if parts.netloc not in ("", "localhost"):
                raise InputError(f"a list of endpoints must be file:///path, not {shown(base_url)}")
            return Listed(Path(unquote(parts.path)))
        if base_url.startswith(_DNS):
            return DnsName(base_url)
        if "://" not in base_url and _is_file(base_url):
            return Listed(Path(base_url).expanduser())
    return Given([base_url])


def _is_file(path: str) -> bool:
    try:
        return Path(path).expanduser().is_file()
    except (OSError, ValueError, RuntimeError):
        return False


def _unique(urls: Sequence[str]) -> tuple[str, ...]:
    if len(urls) > MOST_REPLICAS:
        raise InputError(f"{len(urls):,} endpoints are listed, but the limit is {MOST_REPLICAS:,}")
    return tuple(dict.fromkeys(urls))
