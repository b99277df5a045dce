"""Stars, tags and notes that readers give to conversations.

    annotations.jsonl     {"id": "000_012", "star": true, "tags": ["odd"], "note": "Both repeat the task.", "time": 1767225600.0}

The one decision to know: each change appends one line with the whole annotation, under a lock, and the last line of an id
counts. So several processes can write, no reader waits, and a line that a crash cut off costs that change and nothing else.

The file is in the run's folder, where everybody who reads the run finds it. Where that folder cannot be written to, or the
run is in an object store or was imported, it is in the user's data folder. No annotation is part of the run's data: a run
can be verified, exported and compacted with or without them.
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.storage import inside
from camel.storage.files import make_folder, sync_folder
from camel.storage.store import absolute_place
from camel.storage.system import fcntl

FILE = "annotations.jsonl"
MOST_TAGS, TAG_CHARS, NOTE_CHARS = 20, 60, 10_000
_LARGEST = 64 * 2**20
"""Maximum size in bytes of a file that is read, because a run may come from an untrusted source."""


class Annotation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The star, tags and note that readers have given to one conversation."""

    id: str
    star: bool = False
    tags: tuple[str, ...] = ()
    note: str = ""
    time: float = 0.0
    """Time of the last change, in seconds since 1970."""

    def __bool__(self) -> bool:
        return bool(self.star or self.tags or self.note)


AnnotationFile = tuple[Path, str]
"""The folder and the name of a file with annotations."""


def files_for(where: str | Path, folder: Path | None) -> list[AnnotationFile]:
    """Return the files for a run's annotations, the preferred one first. `folder` is the run's folder, if it is on a disk."""
    given = absolute_place(where)
    home = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    readable = re.sub(r"[^\w.-]+", "-", Path(given).name).strip(".-")[:60]
    digest = hashlib.blake2b(given.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    own = home / "camel" / "annotations", f"{readable}-{digest}.jsonl"
    return [(folder, FILE), own] if folder else [own]


class Annotations:
    """The annotations of one run."""

    def __init__(self, files: Iterable[AnnotationFile]) -> None:
        self._files = list(files)
        self._read: tuple[object, dict[str, Annotation]] = (None, {})

    def read(self) -> dict[str, Annotation]:
        """Return the annotations by id of the conversation."""
        stamp: list[tuple[int, int, int]] = []
        for file in self._files:
            with contextlib.suppress(OSError):
                status = inside.status_of(*file)
                stamp.append((status.st_ino, status.st_size, status.st_mtime_ns))
        if stamp != self._read[0]:
            lines = heapq.merge(*map(_lines, self._files), key=lambda line: line.time)
            found = {line.id: line for line in lines}
            self._read = stamp, {id: one for id, one in found.items() if one}
        return self._read[1]

    def change(
        self, id: str, *, star: bool | None = None, tags: Iterable[str] | None = None, note: str | None = None
    ) -> Annotation:
        """Change the given fields of an annotation, and store it. None does not change a field."""
        given = {"star": star, "tags": None if tags is None else _clean_tags(tags), "note": note}
        changes = {name: value for name, value in given.items() if value is not None}
        if len(note or "") > NOTE_CHARS:
            raise InputError(f"a note has at most {NOTE_CHARS:,} characters, not {len(note or ''):,}")
        failed = "this explorer stores none"
        for file in self._files:
            try:
                return self._append(file, id, changes)
            except OSError as error:
                failed = error.strerror or str(error)
        raise InputError(f"the annotation cannot be stored: {failed}")

    def _append(self, file: AnnotationFile, id: str, changes: Mapping[str, object]) -> Annotation:
        if file[1] != FILE:
            make_folder(file[0])
        with inside.open_file(*file, inside.APPEND) as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            now = self.read().get(id, Annotation(id))
            made = msgspec.structs.replace(now, **changes, time=time.time())
            data = inside.read(*file)
            # After a line that a crash cut off, a new one begins.
            torn = b"\n" if data and not data.endswith(b"\n") else b""
            stream.write(torn + msgspec.json.encode(made) + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
        if not data:
            sync_folder(file[0])
        return made


def _lines(file: AnnotationFile) -> Iterator[Annotation]:
    with contextlib.suppress(OSError):
        if inside.status_of(*file).st_size > _LARGEST:
            return
        for line in inside.read(*file).splitlines():
            with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
                yield msgspec.json.decode(line, type=Annotation)


def _clean_tags(tags: Iterable[str]) -> tuple[str, ...]:
    clean = tuple(dict.fromkeys(" ".join(tag.split()) for tag in tags if tag.strip()))
    if len(clean) > MOST_TAGS:
        raise InputError(f"a conversation has at most {MOST_TAGS} tags, not {len(clean)}")
    for tag in clean:
        if len(tag) > TAG_CHARS or "," in tag or not tag.isprintable():
            raise InputError(f"a tag has at most {TAG_CHARS} characters and no comma: not {shown(tag)}")
    return clean
