"""Atomic writing of files and folders, and of collections of documents.

Everything is written under a temporary name in the same folder and renamed once it is durable. Names made from ids never
lead out of their folder.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import re
import secrets
import shutil
import tarfile
from collections.abc import Callable, Generator
from io import BytesIO
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import quote

from camel.core.checks import shown
from camel.core.errors import InputError

Put = Callable[[str, bytes], None]
"""A function that stores a document under a name. The document is JSON."""


@contextlib.contextmanager
def sink(path: Path, endings: tuple[str, ...]) -> Generator[Put]:
    """Open a destination for documents. The ending of the path decides the format."""
    ending = next(
        (end for end in sorted(endings, key=len, reverse=True) if path.name.lower().endswith(end)), None
    )
    if ending is None or (
        ending == "" and path.suffix in (".zip", ".gz", ".tar", ".parquet", ".csv", ".txt")
    ):
        known = ", ".join(end or "a folder" for end in endings)
        raise InputError(f"'{path.name}' has the wrong ending: for this format, use {known}")
    if ending == "":
        with new_folder(path) as folder:
            yield lambda name, data: _put_file(folder, name, data)
        return
    with replacing(path) as file, _compressed(file, ending) as stream:
        if ending in (".tar.gz", ".tgz"):
            with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
                yield _Archive(archive).put
        elif ending.startswith(".jsonl"):
            yield lambda name, data: stream.writelines((data, b"\n"))
        else:
            before = b"[\n"

            def put(name: str, data: bytes) -> None:
                nonlocal before
                stream.writelines((before, data))
                before = b",\n"

            yield put
            stream.write(b"[]\n" if before == b"[\n" else b"\n]\n")


def _put_file(folder: Path, name: str, data: bytes) -> None:
    try:
        with (folder / file_name(name)).open("xb") as file:
            file.write(data)
    except FileExistsError:
        raise InputError(f"two conversations have the id {shown(name)}: export them separately") from None


class _Archive:
    """A tar archive whose bytes depend only on the documents in it."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self._names: set[str] = set()

    def put(self, name: str, data: bytes) -> None:
        entry = tarfile.TarInfo(file_name(name))
        if entry.name in self._names:
            raise InputError(f"two conversations have the id {shown(name)}: export them separately")
        self._names.add(entry.name)
        entry.size = len(data)
        self._archive.addfile(entry, BytesIO(data))
        cast("Any", self._archive).members = []  # tarfile collects these for a listing that we never use


def file_name(id: str) -> str:
    """Return a file name for an id. Letters, digits, `_`, `-` and `.` stay, and the name never leads out of its folder.

    Different ids have different names; `urllib.parse.unquote` gives the id back unless it was very long.
    """
    name = quote(id, safe="", errors="replace").replace("~", "%7E") or "%"
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if len(name) > 180:
        start = re.sub(r"[^A-Za-z0-9_-]+", "-", id[:100])
        name = f"{start}-{hashlib.sha256(id.encode('utf-8', 'replace')).hexdigest()}"
    return f"{name}.json"


@contextlib.contextmanager
def replacing(path: Path) -> Generator[IO[bytes]]:
    """Open a file that replaces `path` once it is complete and durable."""
    if path.is_dir():
        raise InputError(f"'{path}' is a folder: give the name of a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    with taking_place(path) as temporary, temporary.open("wb") as file:
        yield file


@contextlib.contextmanager
def taking_place(path: Path) -> Generator[Path]:
    """Yield a temporary path. The file written there replaces `path` once it is complete. The folder must exist."""
    temporary = _temporary_name(path)
    try:
        yield temporary
        sync(temporary)
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):  # the first error is the one to report
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(path: Path) -> Generator[Path]:
    """Yield a temporary folder that becomes `path` once it is complete. Never replaces a folder that is not empty."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"'{path}' already exists: move it or choose another name")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary_name(path)
    temporary.mkdir()
    try:
        yield temporary
        sync_folder(temporary)
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def in_place_of(path: Path, force: bool) -> Generator[Path]:
    """Yield where to write the folder `path`. If `force` is true, it is a temporary folder that replaces a non-empty `path`.

    Raises if the old folder has files that the new one does not have, so that a mistyped name deletes nothing.
    """
    if not (force and path.is_dir() and any(path.iterdir())):
        yield path
        return
    temporary, old = _temporary_name(path), _temporary_name(path)
    try:
        yield temporary
        known = set(_kinds(temporary))
        if others := sorted(name for kind, name in _kinds(path).items() if kind not in known):
            raise InputError(
                f"'{path}' contains {shown(others[0])}, which this export does not write: choose another name, or remove that file"
            )
        path.replace(old)
        try:
            temporary.replace(path)
        except OSError:
            old.replace(path)
            raise
        sync_folder(path.parent)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _kinds(folder: Path) -> dict[tuple[str, str], str]:
    """Return one file per kind. Top-level files count by name. Those below count by folder and ending, because numbers vary."""
    found: dict[tuple[str, str], str] = {}
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_dir():
            inside = path.relative_to(folder)
            found[str(inside.parent), path.suffix if inside.parts[1:] else path.name] = str(inside)
    return found


def _temporary_name(path: Path) -> Path:
    path = path.absolute()
    return path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.partial")


@contextlib.contextmanager
def _compressed(file: IO[bytes], ending: str) -> Generator[IO[bytes]]:
    if not ending.endswith("gz"):
        yield file
        return
    # No name and no time in the header, so that the bytes are reproducible.
    with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0) as stream:
        yield cast("IO[bytes]", stream)


def make_folder(folder: Path) -> None:
    """Create `folder` and its parents, for this user only, and sync them to disk. An existing folder keeps its permissions."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for made in reversed(missing):
        made.mkdir(mode=0o700, exist_ok=True)
        sync_folder(made.parent)
    if not folder.is_dir():
        folder.mkdir()  # raises the error


def file_mode(folder: os.stat_result) -> int:
    """Return the mode of a new file: others may have only the rights that they have in its folder."""
    return 0o600 | (0o066 & folder.st_mode)


def open_private(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file with the `file_mode` of its folder, as an `opener`."""
    return os.open(path, flags | os.O_CLOEXEC, file_mode(Path(path).parent.stat()))


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that the names of new files in it survive a crash."""
    sync(folder)


def sync(path: Path) -> None:
    """Sync an existing file, or the names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
