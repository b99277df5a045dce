"""Files below a folder: no name leads out of it, and no symbolic link in it is followed.

A run may come from an untrusted source. A link in it would let `camel run gc` remove, a log append to, or a page show a file that
is not part of the run. The folder itself may be reached through a link, because you name it.

Each component of a name is opened relative to the descriptor of its parent folder, so nothing can be swapped
between the check and the use. A library that takes a path, such as Arrow or DuckDB, gets one from `path`, which checks it
right before.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from camel.core.checks import shown
from camel.core.errors import Damaged, InputError
from camel.storage.files import file_mode
from camel.storage.files import make_folder as make_durably
from camel.storage.system import OPEN_FILE, OPEN_FOLDER

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


class LinkInside(Damaged):
    """Raised if a path in a run that would be read, written or removed is a symbolic link."""


class FileEntry(NamedTuple):
    """A file in a listing."""

    name: str
    """Path of the file relative to the run."""
    size: int
    modified: float
    """Modification time, in seconds since 1970."""


def check_name(name: str) -> str:
    """Return a name that stays in its folder. Raise an `InputError` for any other."""
    if "\\" in name or "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise InputError(f"{shown(name)} is not a valid file name in a run: use a relative name without '..'")
    return name


def path(root: Path, name: str) -> Path:
    """Return the path of an existing or new file or folder. Raise `LinkInside` if it leads through a symbolic link."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        status_of(root, name)
    return root / name


def status_of(root: Path, name: str) -> os.stat_result:
    """Return the status of a file or folder. Raise `LinkInside` if it is a symbolic link."""
    with _parent(root, name) as (folder, last):
        found = os.stat(last, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            raise _refused(root / name)
        return found


def exists(root: Path, name: str) -> bool:
    """Return whether the file or folder exists."""
    try:
        status_of(root, name)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def open_file(root: Path, name: str, flags: int = os.O_RDONLY) -> IO[Any]:
    """Open a file in binary mode. If `flags` is `APPEND`, a missing file is created, but not its folder."""
    with _parent(root, name) as (folder, last):
        try:
            descriptor = os.open(last, flags | OPEN_FILE, file_mode(os.fstat(folder)), dir_fd=folder)
        except OSError:
            _check(folder, last, root / name)
            raise
    return os.fdopen(descriptor, "ab" if flags & os.O_APPEND else "rb")


def read(root: Path, name: str) -> bytes:
    """Return the content of a file."""
    with open_file(root, name) as file:
        return file.read()


def create(root: Path, name: str, data: bytes) -> bool:
    """Create a file and its folders atomically and durably. If the file exists, change nothing and return False."""
    made = False
    with _parent(root, name, make=True) as (folder, last):
        with _temporary(folder, last, data) as temporary:
            try:
                # Unlike a rename, a link fails if the name exists.
                os.link(temporary, last, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
                made = True
            except FileExistsError:
                # A network file system may have repeated the request after a lost answer.
                ours = os.stat(temporary, dir_fd=folder, follow_symlinks=False)
                with contextlib.suppress(FileNotFoundError):
                    theirs = os.stat(last, dir_fd=folder, follow_symlinks=False)
                    made = os.path.samestat(ours, theirs)
        os.fsync(folder)  # also for another process's file, because ours is discarded in its favor
    return made


def write(root: Path, name: str, data: bytes | str) -> None:
    """Create or replace a file atomically and durably. Missing folders are created."""
    data = data.encode() if isinstance(data, str) else data
    with _parent(root, name, make=True) as (folder, last):
        _check(folder, last, root / name)
        with _temporary(folder, last, data) as temporary:
            os.replace(temporary, last, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)


def names(root: Path, folder: str = "") -> list[str]:
    """Return all names in a folder, unordered. Raise `LinkInside` if one of them is a symbolic link."""
    return list(each_name(root, folder))


def each_name(root: Path, folder: str = "") -> Generator[str]:
    """Yield the names in a folder that may have a million of them."""
    with _opened(root, folder) as descriptor, os.scandir(descriptor) as found:
        for one in found:
            if one.is_symlink():
                raise _refused(root / folder / one.name)
            yield one.name


def folders(root: Path, folder: str) -> list[str]:
    """Return the names of the folders in a folder, unordered."""
    with _opened(root, folder) as descriptor, os.scandir(descriptor) as found:
        return [one.name for one in found if _plain(one, root / folder).is_dir(follow_symlinks=False)]


def entries(root: Path, folder: str) -> Iterator[FileEntry]:
    """Yield all files below a folder, sorted. A missing folder has none."""
    found: list[tuple[str, os.stat_result]] = []
    with (
        contextlib.suppress(FileNotFoundError),
        _opened(root, folder) as descriptor,
        os.scandir(descriptor) as listed,
    ):
        for one in listed:
            _plain(one, root / folder)
            with contextlib.suppress(FileNotFoundError):
                found.append((one.name, one.stat(follow_symlinks=False)))
    for last, status in sorted(found, key=lambda one: one[0]):
        name = f"{folder}/{last}"
        if stat.S_ISDIR(status.st_mode):
            yield from entries(root, name)
        elif stat.S_ISREG(status.st_mode):
            yield FileEntry(name, status.st_size, status.st_mtime)


def remove(root: Path, name: str) -> None:
    """Delete a file. A symbolic link is deleted itself, not its target. Does nothing if the file is missing."""
    with (
        contextlib.suppress(FileNotFoundError),
        _parent(root, name) as (folder, last),
    ):
        os.unlink(last, dir_fd=folder)


@contextlib.contextmanager
def _temporary(folder: int, last: str, data: bytes) -> Generator[str]:
    """Create a durable file with a temporary name in a folder. The file is removed unless it was renamed."""
    name = f".{last[:100]}.{secrets.token_hex(6)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN_FILE
    try:
        with os.fdopen(os.open(name, flags, file_mode(os.fstat(folder)), dir_fd=folder), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield name
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)


@contextlib.contextmanager
def _parent(root: Path, name: str, make: bool = False) -> Generator[tuple[int, str]]:
    """Yield the descriptor of a file's folder, and the file's name in it."""
    folder, _, last = check_name(name).rpartition("/")
    with _opened(root, folder, make) as descriptor:
        yield descriptor, last


@contextlib.contextmanager
def _opened(root: Path, folder: str, make: bool = False) -> Generator[int]:
    """Yield a descriptor of a folder. If `make` is true, a missing folder is created durably."""
    parts: Sequence[str] = check_name(folder).split("/") if folder else ()
    if make:
        make_durably(root)
    changed: list[int] = []
    with contextlib.ExitStack() as stack:
        descriptor, reached = os.open(root, OPEN_FOLDER), root
        stack.callback(os.close, descriptor)
        for part in parts:
            reached = reached / part
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o700 | (0o077 & os.fstat(descriptor).st_mode), dir_fd=descriptor)
                    changed.append(descriptor)
            try:
                below = os.open(part, OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
            except OSError:
                _check(descriptor, part, reached)
                raise
            stack.callback(os.close, below)
            descriptor = below
        for one in changed:
            os.fsync(one)
        yield descriptor


def _check(folder: int, name: str, where: Path) -> None:
    """Raise `LinkInside` if a name in a folder is a link."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise _refused(where)


def _plain(entry: os.DirEntry[str], folder: Path) -> os.DirEntry[str]:
    if entry.is_symlink():
        raise _refused(folder / entry.name)
    return entry


def _refused(where: Path) -> LinkInside:
    return LinkInside(
        f"{where} is a symbolic link, and links in a run are not followed: replace it with a copy of its target, or remove it"
    )
