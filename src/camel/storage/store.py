"""Stores for the files of a run: a folder on a disk, or a prefix in an object store.

    runs/trial                 a folder: `DiskStore`
    s3://bucket/prefix         S3 and compatible stores: `BucketStore`; also gs:// and az://

Names are relative to the run and have forward slashes. The one decision to know: `create` is atomic, and of several
processes exactly one succeeds, so a marker decides a race. A disk uses a link for this, a bucket a conditional put. If
the answer to a put is lost, the content of the object shows which process wrote it.

Credentials come from the usual environment variables (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, …) and are never shown:
an error contains the operation, the name and the store's status, and nothing else from the store's answer.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from datetime import timedelta
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import IO, Any, TypeVar

from camel.core.checks import shown
from camel.core.errors import CamelError, InputError, MissingExtra
from camel.storage import inside
from camel.storage.inside import FileEntry

PATIENCE = 180.0
"""Seconds for which requests to a failing store are retried. After that, the run stops and can be resumed."""
AT_ONCE = 64
"""Maximum number of concurrent requests for small objects."""
PAGE = 1000
"""Number of names in a page of a listing."""
_CHUNK = 8 * 2**20
_AHEAD = 2**18
"""Minimum number of bytes to fetch when only a part of an object is read."""
_SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss")

A = TypeVar("A")
B = TypeVar("B")


class StoreFailed(CamelError):
    """Raised if requests to an object store fail after all retries. Committed data is safe."""

    lost = False
    """Whether the store did not respond, so that it may have executed the request."""


def is_remote(where: str | Path) -> bool:
    """Return whether an address is in an object store. Also accepts an address from which `Path` has removed a slash."""
    scheme, _, rest = str(where).partition(":/")
    return rest.startswith("/") or (scheme in _SCHEMES and bool(rest))


def absolute_place(where: str | Path) -> str:
    """Return an absolute path or URL, which is valid in every process with the same file system."""
    return str(where) if is_remote(where) else str(Path(where).absolute())


class DiskStore:
    """A folder on a disk. Writes are synced, and symbolic links are not followed.

    A missing file raises `FileNotFoundError`, here and in a `BucketStore`.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.address = root, str(root)

    def exists(self, name: str) -> bool:
        """Return whether the file exists."""
        return inside.exists(self.root, name)

    def get(self, name: str) -> bytes:
        """Return the content of a small file."""
        return inside.read(self.root, name)

    def create(self, name: str, data: bytes) -> bool:
        """Create a small file atomically and durably. If it exists, change nothing and return False."""
        return inside.create(self.root, name, data)

    def put(self, name: str, data: bytes) -> None:
        """Create or replace a small file durably."""
        inside.write(self.root, name, data)

    def names(self, folder: str) -> list[str]:
        """Return the names of the files directly in a folder."""
        return list(self.each_name(folder))

    def each_name(self, folder: str) -> Iterator[str]:
        """Yield the names of the files directly in a folder."""
        with contextlib.suppress(FileNotFoundError):
            yield from (name for name in inside.each_name(self.root, folder) if not name.startswith("."))

    def folders(self, folder: str) -> list[str]:
        """Return the names of folders in a folder. At the top level they may be links, because a folder of runs may link to
        runs.
        """
        with contextlib.suppress(FileNotFoundError):
            if folder:
                found = inside.folders(self.root, folder)
            else:
                found = [path.name for path in self.root.iterdir() if path.is_dir()]
            return sorted(name for name in found if not name.startswith("."))
        return []

    def entries(self, folder: str) -> Iterator[FileEntry]:
        """Yield all files below a folder."""
        return inside.entries(self.root, folder)

    def remove(self, names: Sequence[str]) -> None:
        """Delete files."""
        for name in names:
            inside.remove(self.root, name)


class BucketStore:
    """A prefix in an object store, accessed with `obstore`, which retries with increasing waits.

    Can be pickled; another process opens its own connections.
    """

    patience = PATIENCE
    """Seconds for which requests are retried. Callers that only read may set a smaller number."""

    def __init__(self, url: str) -> None:
        scheme, _, rest = url.partition(":/")
        bucket, _, prefix = rest.removeprefix("/").rstrip("/").partition("/")
        if scheme not in _SCHEMES or not bucket:
            raise InputError(
                f"{shown(url)} is not a location for a run: use a folder, s3://bucket/prefix, gs://… or az://…"
            )
        if "@" in rest or "?" in rest or ".." in prefix.split("/"):
            raise InputError(
                "the address of an object store must not contain credentials: set them in the environment, and use scheme://bucket/prefix"
            )
        self.address = f"{scheme}://{bucket}/{prefix}".rstrip("/")

    @property
    def lists_ranges(self) -> bool:
        """Whether the store itself skips the names before a range. In others, the client reads and drops them."""
        return self.address.startswith(("s3", "gs"))

    def __getstate__(self) -> dict[str, str]:
        return {"address": self.address}

    @cached_property
    def _client(self) -> Any:
        try:
            store = import_module("obstore.store")
        except ImportError:
            raise MissingExtra(f"A run in {self.address}", "cluster") from None
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
        with self._typed("opening", ""):
            return store.from_url(
                self.address,
                client_options={
                    "allow_http": endpoint.startswith("http://"),
                    # Limits on the whole request, a shard's download included, and on the wait for the next byte.
                    "timeout": timedelta(seconds=self.patience),
                    "read_timeout": timedelta(seconds=30),
                },
                retry_config={"max_retries": 12, "retry_timeout": timedelta(seconds=self.patience)},
            )

    def _ask(self, doing: str, name: str, request: Callable[[], A]) -> A:
        """Return the result of an idempotent request. If the store does not respond, repeat the request.

        The client itself repeats rejected requests and interrupted reads, but not a write whose answer was lost.
        """
        until, wait = time.monotonic() + self.patience, 0.1
        while True:
            try:
                with self._typed(doing, name):
                    return request()
            except StoreFailed as failed:
                if not failed.lost or time.monotonic() + wait > until:
                    raise
            time.sleep(wait * random.uniform(0.5, 1))  # noqa: S311 - jitter
            wait = min(2 * wait, 15.0)

    @contextlib.contextmanager
    def _typed(self, doing: str, name: str) -> Generator[None]:
        """Convert the client's errors into errors of this package, without the secrets that they may contain."""
        what = f"{doing} {self.address}/{name}".rstrip("/")
        try:
            yield
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise InputError(f"{what} failed: the bucket does not exist; create it first") from None
            raise FileNotFoundError(2, f"{self.address}/{name} does not exist") from None
        except (CamelError, OSError):  # errors of the local disk pass unchanged
            raise
        except Exception as error:  # errors of obstore and its dependencies have no common base
            said = _said(error)
            if said.startswith(("401", "403")):
                hint = "check the credentials in the environment and their permissions"
            elif "NoSuchBucket" in said:
                hint = "create the bucket first"
            else:
                hint = "committed data is safe; run the same command again when the store is available"
            failed = StoreFailed(f"{what} failed: {said}; {hint}")
            failed.lost = not said[:1].isdecimal()
            raise failed from None

    def exists(self, name: str) -> bool:
        """Return whether the object exists."""
        try:
            self._ask("reading", name, lambda: self._client.head(name))
        except FileNotFoundError:
            return False
        return True

    def get(self, name: str) -> bytes:
        """Return the content of a small object."""
        return self._ask("reading", name, lambda: bytes(self._client.get(name).bytes()))

    def create(self, name: str, data: bytes) -> bool:
        """Create an object with a conditional put. Return False if another object has this name.

        A put whose answer was lost may have succeeded. So an existing object is compared with `data`, which names a file
        that no other attempt has.
        """
        exists = import_module("obstore.exceptions").AlreadyExistsError

        def request() -> bool:
            try:
                self._client.put(name, data, mode="create")
            except exists:
                try:
                    return bytes(self._client.get(name).bytes()) == data
                except FileNotFoundError:  # a concurrent put is in progress; retry
                    raise RuntimeError from None
            return True

        return self._ask("writing", name, request)

    def put(self, name: str, data: bytes) -> None:
        """Create or replace a small object."""
        self._ask("writing", name, lambda: self._client.put(name, data))

    def upload(self, path: Path, name: str) -> None:
        """Upload a finished local file under a name that no other process uses."""
        self._ask("writing", name, lambda: self._client.put(name, path))

    def fetch(self, name: str, path: Path) -> None:
        """Copy an object to a local file."""

        def request() -> None:
            with path.open("wb") as file:
                for chunk in self._client.get(name).stream(_CHUNK):
                    file.write(chunk)

        self._ask("reading", name, request)

    def reader(self, name: str) -> IO[bytes]:
        """Return an object as a seekable file. Only the parts that are read are fetched."""
        size: int = self._ask("reading", name, lambda: self._client.head(name)["size"])

        def part(start: int, end: int) -> bytes:
            return self._ask(
                "reading", name, lambda: bytes(self._client.get_range(name, start=start, end=end))
            )

        return io.BufferedReader(_Ranges(part, size), _AHEAD)

    def names(self, folder: str) -> list[str]:
        """Return the names of objects directly in a folder. They do not include the folder's name."""
        return self.names_between(folder)[0]

    def names_between(self, folder: str, after: str = "", until: str = "") -> tuple[list[str], bool]:
        """Return the names directly in a folder that sort after `after`, and whether there may be more.

        There may be more only if the listing has reached `until`: it ends with the page that has this name or a later one.
        """
        start, offset = len(folder) + 1, f"{folder}/{after}" if after else None

        def request() -> tuple[list[str], bool]:
            found: list[str] = []
            for chunk in self._client.list(folder, offset=offset, chunk_size=PAGE):
                found += [entry["path"][start:] for entry in chunk]
                if until and found and found[-1] >= until:
                    return found, True
            return found, False

        found, more = self._ask("listing", folder, request)
        return [name for name in found if "/" not in name and not name.startswith(".")], more

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders directly in a folder."""

        def request() -> list[str]:
            return self._client.list_with_delimiter(folder or None)["common_prefixes"]

        found = [name.rstrip("/").rpartition("/")[2] for name in self._ask("listing", folder, request)]
        return sorted(name for name in found if not name.startswith("."))

    def entries(self, folder: str) -> Iterator[FileEntry]:
        """Yield all objects below a folder."""

        def request() -> list[FileEntry]:
            return [
                FileEntry(entry["path"], entry["size"], entry["last_modified"].timestamp())
                for chunk in self._client.list(folder, chunk_size=1000)
                for entry in chunk
            ]

        return iter(self._ask("listing", folder, request))

    def remove(self, names: Sequence[str]) -> None:
        """Delete objects, many per request if the store supports it."""
        if names:
            with contextlib.suppress(FileNotFoundError):
                self._ask("removing", names[0], lambda: self._client.delete(list(names)))


Store = DiskStore | BucketStore
"""A store for a run's files. Listings skip names that begin with a dot."""


def open_store(where: str | Path) -> Store:
    """Return the store for a path or URL."""
    return BucketStore(str(where)) if is_remote(where) else DiskStore(Path(where))


class _Ranges(io.RawIOBase):
    """A read-only file that fetches parts of an object when they are read."""

    def __init__(self, part: Callable[[int, int], bytes], size: int) -> None:
        self._part, self._size, self._at = part, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._size, self._at + len(buffer))
        if self._at >= end:
            return 0
        data = self._part(self._at, end)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def ahead(
    work: Callable[[A], B], given: Iterable[A], at_once: int, executor: Executor | None = None
) -> Generator[B]:
    """Call `work` on threads, or on `executor`, and yield the results in order. At most `at_once` calls run ahead of the
    reader."""
    pool = executor or ThreadPoolExecutor(at_once)
    begun: deque[Future[B]] = deque()
    try:
        for one in given:
            begun.append(pool.submit(work, one))
            if len(begun) >= at_once:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        for one in begun:
            one.cancel()
        if pool is not executor:
            pool.shutdown()


_STATUS = re.compile(r"status code: (\d{3}[\w ]*)")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")


def _said(error: Exception) -> str:
    """Return the status and code of a client's error. The rest of its text may contain a signature or a key."""
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    if status:
        return status[1].strip() + (f" ({code[1]})" if code else "")
    if "kind: Connect" in text:
        return "it cannot be reached"
    return "no answer in time" if "TimedOut" in text else "the connection broke"
