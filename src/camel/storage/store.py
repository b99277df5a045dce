"""Stores: where the files of a run last, a folder on a disk or a place in an object store.

    runs/trial                 a folder: `DiskStore`
    s3://bucket/prefix         S3 and what speaks its protocol: `BucketStore`; also gs:// and az://

Names are relative to the run and have forward slashes. The one decision to know: what is made with `create` is made
whole and once, however many processes try, so that a marker settles a race. On a disk a link does that, in a bucket a
conditional put; where the answer to one was lost, the content of the object tells whose it was.

Credentials come from the usual environment (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, …) and are never shown: an error
says the operation, the name, and the status that the store gave, nothing else of what it said.
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
from concurrent.futures import Future, ThreadPoolExecutor
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
"""Seconds for which a store that fails is tried again; then a run stops, and can be resumed."""
AT_ONCE = 64
"""Requests for small objects in flight."""
_CHUNK = 8 * 2**20
_AHEAD = 2**18
"""Bytes that are fetched at least when a part of an object is read."""
_SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss")

A = TypeVar("A")
B = TypeVar("B")


class StoreFailed(CamelError):
    """An object store did not do what it was asked, however often; what is committed is safe."""

    lost = False
    """Whether there was no answer at all, so that it may have been done."""


def is_remote(where: str | Path) -> bool:
    """Whether an address is a place in an object store; also one that a `Path` has taken a slash from."""
    scheme, _, rest = str(where).partition(":/")
    return rest.startswith("/") or (scheme in _SCHEMES and bool(rest))


def absolute_place(where: str | Path) -> str:
    """The same place in every process that sees the same file system."""
    return str(where) if is_remote(where) else str(Path(where).absolute())


class DiskStore:
    """A folder on a disk. Durable means synced: the file, and the names that lead to it. No link in it is followed.

    What is missing raises `FileNotFoundError`, here and in a `BucketStore`.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.address = root, str(root)

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        return inside.exists(self.root, name)

    def get(self, name: str) -> bytes:
        """A small file."""
        return inside.read(self.root, name)

    def create(self, name: str, data: bytes) -> bool:
        """Make a small file whole and durably; False where another process has, and its file stays."""
        return inside.create(self.root, name, data)

    def put(self, name: str, data: bytes) -> None:
        """Make or replace a small file, durably."""
        inside.write(self.root, name, data)

    def names(self, folder: str, *, after: str = "") -> list[str]:
        """The files right in a folder, without its name. `after` is for object stores: a disk lists all of them."""
        with contextlib.suppress(FileNotFoundError):
            return [name for name in inside.names(self.root, folder) if not name.startswith(".")]
        return []

    def folders(self, folder: str) -> list[str]:
        """The folders in a folder. At the top these may be links: it may be a folder of runs, and a run can be linked to."""
        with contextlib.suppress(FileNotFoundError):
            if folder:
                found = inside.folders(self.root, folder)
            else:
                found = [path.name for path in self.root.iterdir() if path.is_dir()]
            return sorted(name for name in found if not name.startswith("."))
        return []

    def entries(self, folder: str) -> Iterator[FileEntry]:
        """All files below a folder."""
        return inside.entries(self.root, folder)

    def remove(self, names: Sequence[str]) -> None:
        """Delete files."""
        for name in names:
            inside.remove(self.root, name)


class BucketStore:
    """A place in an object store, through `obstore`, which repeats requests that fail and waits longer each time.

    Can be sent to another process, which opens its own connections.
    """

    patience = PATIENCE
    """Seconds for which requests are repeated. A caller that only looks may set fewer."""

    def __init__(self, url: str) -> None:
        scheme, _, rest = url.partition(":/")
        bucket, _, prefix = rest.removeprefix("/").rstrip("/").partition("/")
        if scheme not in _SCHEMES or not bucket:
            raise InputError(
                f"{shown(url)} is not a place for a run: a folder, or s3://bucket/prefix, gs://… or az://…"
            )
        if "@" in rest or "?" in rest or ".." in prefix.split("/"):
            raise InputError(
                "the address of an object store is scheme://bucket/prefix: credentials go into the environment"
            )
        self.address = f"{scheme}://{bucket}/{prefix}".rstrip("/")

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
                    # The whole request, a shard's download included; and no byte for so long.
                    "timeout": timedelta(seconds=self.patience),
                    "read_timeout": timedelta(seconds=30),
                },
                retry_config={"max_retries": 12, "retry_timeout": timedelta(seconds=self.patience)},
            )

    def _ask(self, doing: str, name: str, request: Callable[[], A]) -> A:
        """The result of a request that may be sent again: it is, while its answer is lost.

        The client repeats what the store refuses, and reads whose connection breaks. What it does not repeat is a write
        whose answer it has not seen.
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
        """Turn the client's errors into ours, without the secrets that they may quote."""
        what = f"{doing} {self.address}/{name}".rstrip("/")
        try:
            yield
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise InputError(f"{what} failed: there is no such bucket; make it first") from None
            raise FileNotFoundError(2, f"{self.address}/{name} does not exist") from None
        except (CamelError, OSError):  # a disk's are their own
            raise
        except Exception as error:  # obstore's own, and what its parts raise, have no common base
            said = _said(error)
            if said.startswith(("401", "403")):
                hint = "check the credentials in the environment, and what they allow"
            elif "NoSuchBucket" in said:
                hint = "make the bucket first"
            else:
                hint = "run the same command again when the store is well; what is committed is safe"
            failed = StoreFailed(f"{what} failed: {said}; {hint}")
            failed.lost = not said[:1].isdecimal()
            raise failed from None

    def exists(self, name: str) -> bool:
        """Whether there is such an object."""
        try:
            self._ask("reading", name, lambda: self._client.head(name))
        except FileNotFoundError:
            return False
        return True

    def get(self, name: str) -> bytes:
        """A small object."""
        return self._ask("reading", name, lambda: bytes(self._client.get(name).bytes()))

    def create(self, name: str, data: bytes) -> bool:
        """A conditional put; False when another object is there.

        One whose answer is lost may have been done. So an object that is found there is read: our own bytes mean that it was
        ours, for they name a file that no other attempt has.
        """
        exists = import_module("obstore.exceptions").AlreadyExistsError

        def request() -> bool:
            try:
                self._client.put(name, data, mode="create")
            except exists:
                try:
                    return bytes(self._client.get(name).bytes()) == data
                except FileNotFoundError:  # another is being decided, and we are to ask again
                    raise RuntimeError from None
            return True

        return self._ask("writing", name, request)

    def put(self, name: str, data: bytes) -> None:
        """Make or replace a small object."""
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
        """An object as a file that can be read anywhere, of which only what is read is fetched."""
        size: int = self._ask("reading", name, lambda: self._client.head(name)["size"])

        def part(start: int, end: int) -> bytes:
            return self._ask(
                "reading", name, lambda: bytes(self._client.get_range(name, start=start, end=end))
            )

        return io.BufferedReader(_Ranges(part, size), _AHEAD)

    def names(self, folder: str, *, after: str = "") -> list[str]:
        """The objects right in a folder, without its name; only those that sort after `after`."""
        start, offset = len(folder) + 1, f"{folder}/{after}" if after else None

        def request() -> list[str]:
            chunks = self._client.list(folder, offset=offset, chunk_size=1000)
            return [entry["path"][start:] for chunk in chunks for entry in chunk]

        found = self._ask("listing", folder, request)
        return [name for name in found if "/" not in name and not name.startswith(".")]

    def folders(self, folder: str) -> list[str]:
        """The folders right in a folder."""

        def request() -> list[str]:
            return self._client.list_with_delimiter(folder or None)["common_prefixes"]

        found = [name.rstrip("/").rpartition("/")[2] for name in self._ask("listing", folder, request)]
        return sorted(name for name in found if not name.startswith("."))

    def entries(self, folder: str) -> Iterator[FileEntry]:
        """All objects below a folder."""

        def request() -> list[FileEntry]:
            return [
                FileEntry(entry["path"], entry["size"], entry["last_modified"].timestamp())
                for chunk in self._client.list(folder, chunk_size=1000)
                for entry in chunk
            ]

        return iter(self._ask("listing", folder, request))

    def remove(self, names: Sequence[str]) -> None:
        """Delete objects, many with one request where the store can."""
        if names:
            with contextlib.suppress(FileNotFoundError):
                self._ask("removing", names[0], lambda: self._client.delete(list(names)))


Store = DiskStore | BucketStore
"""Where a run's files last. Names of folders and files that begin with a dot are hidden from every listing."""


def open_store(where: str | Path) -> Store:
    """The store at an address."""
    return BucketStore(str(where)) if is_remote(where) else DiskStore(Path(where))


class _Ranges(io.RawIOBase):
    """A file whose parts are fetched when they are read."""

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


def ahead(work: Callable[[A], B], given: Iterable[A], at_once: int) -> Generator[B]:
    """`work` of each in order, on threads, no more than `at_once` begun and not yet taken."""
    pool = ThreadPoolExecutor(at_once)
    begun: deque[Future[B]] = deque()
    try:
        for one in given:
            begun.append(pool.submit(work, one))
            if len(begun) >= at_once:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_STATUS = re.compile(r"status code: (\d{3}[\w ]*)")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")


def _said(error: Exception) -> str:
    """What of a client's error can be shown: a status and its code. The rest may quote a signature or a key."""
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    if status:
        return status[1].strip() + (f" ({code[1]})" if code else "")
    if "kind: Connect" in text:
        return "it cannot be reached"
    return "no answer in time" if "TimedOut" in text else "the connection broke"
