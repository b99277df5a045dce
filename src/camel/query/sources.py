"""The sources of a catalogue: runs on a disk or in an object store, and files of the original CAMEL formats.

The one decision to know: every source becomes a run with an index, so that queries need only one implementation. Shards
without an index get one in a temporary folder. Files of other formats are imported into such a folder, or into the user's
cache if they are large.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import stat
import time
from bisect import bisect_right
from collections.abc import Collection, Generator, Iterator, Mapping
from functools import cached_property, partial
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import msgspec

from camel._version import __version__
from camel.core.checks import shown
from camel.core.errors import CamelError, Damaged, InputError
from camel.core.transcript import Transcript
from camel.detectors.marks import looked_by, marks_of
from camel.formats.documents import IMPORTERS, store
from camel.index.build import build, complete, count, write
from camel.index.cube import digest_of, read_cubes
from camel.index.facets import FOLDER, VERSION
from camel.index.files import (
    Readable,
    are_newest,
    files_of,
    is_for,
    is_of,
    name_of,
    read_footer,
    rewritten_files,
)
from camel.index.merge import marked
from camel.index.sorted import ordered_name
from camel.index.text import FOLDER as TEXT
from camel.models.prices import cost
from camel.query.answers import first_few
from camel.query.parts import CountedParts, IndexPart, annotated_part, group_starts
from camel.record.arrow import rows
from camel.record.parquet import arrow
from camel.runs.annotations import Annotation, Annotations, files_for
from camel.runs.bits import BitSet
from camel.runs.compact import compactions, damaged, open_parts, parts_of
from camel.runs.markers import Marker, new_attempt
from camel.runs.reader import LAST_STAGES
from camel.runs.run import RunFolder, open_folder
from camel.runs.scores import SCORE_STAGE, score_names
from camel.storage.store import BucketStore, DiskStore, is_remote

KEPT_FROM = 4_000_000
"""Minimum size in bytes of data whose import is cached for the user."""
FORGOTTEN = 30 * 86_400.0
"""Seconds after which an unused import is removed from the cache."""


def import_files(path: Path, scratch: Path) -> RunFolder:
    """Import files of the original CAMEL formats as a run. Large imports are stored in the user's cache."""
    kept = _kept_import(path)
    if kept is None:
        return _import(path, scratch)
    for name in IMPORTERS:
        if (kept / name / "run.json").exists():  # it is written last
            with contextlib.suppress(OSError):
                os.utime(kept)
            return open_folder(kept / name)
    writing = kept.with_name(f".{kept.name}-{new_attempt()}")
    try:
        writing.mkdir(mode=0o700, parents=True)
        _forget_imports(kept.parent)
        name = _import(path, writing).root.name
        with contextlib.suppress(OSError):  # another process was first, and its import is equal
            writing.rename(kept)
        return open_folder((kept if (kept / name).exists() else writing) / name)
    except OSError:  # the cache is not writable
        shutil.rmtree(writing, ignore_errors=True)
        return _import(path, scratch)
    except BaseException:
        shutil.rmtree(writing, ignore_errors=True)
        raise


def _kept_import(path: Path) -> Path | None:
    """Return the cache folder for the current contents of a file or folder. Return None if it is too small to be cached."""
    below = sorted(path.rglob("*")) if path.is_dir() else [path]
    seen = [
        (str(one), status.st_size, status.st_mtime_ns)
        for one in below
        if stat.S_ISREG((status := one.stat()).st_mode)
    ]
    if sum(size for _, size, _ in seen) < KEPT_FROM:
        return None
    what = repr((str(path.resolve()), seen, __version__, VERSION))
    name = hashlib.blake2b(what.encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "camel" / "imports" / name


def _forget_imports(folder: Path) -> None:
    """Remove imports from the cache that are old or incomplete."""
    for one in folder.iterdir():
        with contextlib.suppress(OSError):
            age = time.time() - one.stat().st_mtime
            if age > (86_400 if one.name.startswith(".") else FORGOTTEN):
                shutil.rmtree(one, ignore_errors=True)


def _import(path: Path, into: Path) -> RunFolder:
    errors: list[str] = []
    for name, read in IMPORTERS.items():
        folder = open_folder(into / name)
        try:
            store(folder, read(path), name, cost)
        except InputError as error:
            errors.append(str(error))
            shutil.rmtree(into / name, ignore_errors=True)
        else:
            return folder
    raise InputError(f"'{path}' is neither a run nor a file in a known format. {errors[0]}")


_READ_ROWS = 64
MANY_PARTS = 200
"""Above this number of index files, queries become noticeably slower."""


class CatalogueRun:
    """One run of a catalogue, with its index files at one time."""

    def __init__(
        self,
        name: str,
        folder: RunFolder,
        stage: str,
        parts: list[IndexPart],
        counted: CountedParts | None = None,
        annotations: Mapping[str, Annotation] | None = None,
        scratch: Path = Path(),
    ) -> None:
        self.name, self.folder, self.stage, self.parts, self.counted = name, folder, stage, parts, counted
        self.annotations, self._scratch = annotations or {}, scratch
        self._first = [part.first for part in parts]
        self._sound: set[str] = set()

    @property
    def address(self) -> str:
        """The path or URL of the run."""
        return self.folder.address

    @property
    def damage(self) -> list[str]:
        """Notes about files that the detectors could not scan."""
        bad = [part for part in self.parts if part.damage]
        said = "conversations cannot be scanned for behaviors"
        return first_few(self.name, [f"{self.name}: {part.rows:,} {said}: {part.damage}" for part in bad])

    @cached_property
    def annotated(self) -> IndexPart | None:
        """The index file of annotated conversations, if there are any."""
        return annotated_part(self.parts, self.annotations, self._scratch) if self.annotations else None

    def part_of(self, shard: int) -> IndexPart:
        """Return the index file that covers a shard."""
        return self.parts[bisect_right(self._first, shard) - 1]

    def read(self, shard: int, row: int) -> Transcript:
        """Read one conversation. Only one row group of one file is read."""
        with self._opened(shard) as (file, start):
            return _one(file, start + row)

    def check(self, shard: int) -> None:
        """Raise an error if the data file of a shard has changed since it was committed. Only files on a disk are checked."""
        if self.folder.on_disk:
            marker = self.folder.marker(self.stage, shard)
            parts = parts_of(self.folder, self.stage, [marker])
            held = [part for part in parts if part.first <= shard <= part.last]
            with open_parts(self.folder, held, self._sound) as files:
                next(files)

    def shard(self, shard: int, count: int) -> Iterator[Transcript]:
        """Yield the first `count` conversations of a shard."""
        with self._opened(shard) as (file, start):
            for group, (first, end) in enumerate(pairwise(group_starts(file.metadata))):
                low, high = max(first, start), min(end, start + count)
                if low < high:
                    yield from rows(file.read_row_group(group).slice(low - first, high - low))

    @contextlib.contextmanager
    def _opened(self, shard: int) -> Generator[tuple[Any, int]]:
        """Open the data file that contains a shard. Yield the file and the index of the shard's first row in it."""
        name, start = self.data_of(shard)
        pq, store = arrow("pyarrow.parquet"), self.folder.store
        try:
            place = store.reader(name) if isinstance(store, BucketStore) else self.folder.path(name)
            with pq.ParquetFile(place) as file:
                yield file, start
        except FileNotFoundError:
            raise damaged(self.folder, name, "is missing") from None
        except (OSError, arrow().ArrowException, UnicodeDecodeError, msgspec.MsgspecError) as error:
            said = " ".join(str(error).split()).rstrip(".")
            raise damaged(self.folder, name, f"is damaged: {said}") from None

    def data_of(self, shard: int) -> tuple[str, int]:
        """Return the name of the data file that contains a shard, and the shard's first row in it."""
        for one in self._compactions:
            if shard in one.shards:
                return one.file, sum(one.rows[: shard - one.first])
        name = self.folder.marker(self.stage, shard).file
        if not self.folder.store.exists(name):
            # The shard was compacted since, and its small file removed.
            del self._compactions
            if any(shard in one.shards for one in self._compactions):
                return self.data_of(shard)
        return name, 0

    @cached_property
    def _compactions(self) -> list[Any]:
        return compactions(self.folder, self.stage)


def _one(file: Any, position: int) -> Transcript:
    """Read one row. Rows after it in its row group are not read."""
    for group, (start, end) in enumerate(pairwise(group_starts(file.metadata))):
        if start <= position < end:
            for batch in file.iter_batches(_READ_ROWS, row_groups=[group]):
                if position < start + batch.num_rows:
                    return next(iter(rows(arrow().Table.from_batches([batch.slice(position - start, 1)]))))
                start += batch.num_rows
    raise InputError("an index has more rows than its data file: remove the run's folder 'index'")


AGAIN = 30.0
"""Seconds until the scan of a damaged file is retried, because the file may have been restored."""
LOOKED_THROUGH = 5_000
"""Maximum number of unscanned conversations per run that are scanned in the background. Above it, a note is shown."""


class WatchedRun:
    """A run that may grow, and the index files that were read so far."""

    def __init__(self, name: str, folder: RunFolder, scratch: Path, annotations: Annotations) -> None:
        self.name, self.folder, self._scratch = name, folder, scratch / f"{new_attempt()}"
        self.annotations = annotations
        self._files = Readable(folder, self._scratch)
        self._parts: dict[int, IndexPart] = {}
        """Index files of single shards, by shard."""
        self._merged: dict[str, IndexPart | None] = {}
        """Merged index files by name. The value is None if a file is damaged or belongs to another run."""
        self._unread: dict[int, str] = {}
        """Notes about shards that have no index and whose data is unreadable, by shard."""
        self._built = 0
        """Number of shards without a stored index, for which a temporary one was built."""
        self._seen: Any = None
        self._doubted = False
        """Whether a file was unreadable. If so, files are read completely before they are used."""
        self.source = CatalogueRun(name, folder, LAST_STAGES[0], [])

    def look(self) -> bool:
        """Check for new shards, index files and annotations. Return whether anything has changed."""
        stage = next((name for name in LAST_STAGES if self.folder.committed(name)), LAST_STAGES[0])
        committed = self.folder.committed(stage)
        files = files_of(self.folder, stage)
        texts = DiskStore(self.folder.root).folders(f"{TEXT}/{stage}")
        rewritten = rewritten_files(self.folder, stage)
        annotations = self.annotations.read()
        scored = {name: self.folder.committed(SCORE_STAGE + name) for name in score_names(self.folder)}
        seen = (stage, committed, files.merged, files.cubes, texts, rewritten, annotations, scored)
        if seen == self._seen:
            return False
        fingerprint = self.folder.settings().fingerprint
        self._parts = {
            shard: part for shard, part in self._parts.items() if are_newest(part.header.shards, rewritten)
        }
        merged: dict[str, IndexPart] = {}
        reached = -1
        for first, last, name in files.merged:
            if first <= reached or not BitSet.of_range(first, last + 1) <= committed:
                continue
            part = self._read_merged(name, fingerprint, stage, first, last)
            if part is not None and are_newest(part.header.shards, rewritten):
                merged[name] = part
                reached = last
        covered = {one.shard for part in merged.values() for one in part.header.shards}
        left = sorted(committed - covered)
        for marker in self.folder.markers(stage, [shard for shard in left if shard not in self._parts]):
            try:
                self._parts[marker.shard] = self._single(marker, files.single)
                self._unread.pop(marker.shard, None)
            except (Damaged, FileNotFoundError) as error:
                self._unread[marker.shard] = f"{marker.rows:,} conversations cannot be shown: {error}"
        parts = [*merged.values(), *(self._parts[shard] for shard in left if shard in self._parts)]
        parts = sorted((part for part in parts if part.rows), key=lambda part: part.first)
        cubes = self._read_cubes(merged, stage, files.cubes)
        self.source = CatalogueRun(self.name, self.folder, stage, parts, cubes, annotations, self._scratch)
        self._seen = seen
        return True

    def doubt(self) -> None:
        """Check every index file again, because one is missing or unreadable. Files that fail are no longer used."""
        self._parts = {shard: part for shard, part in self._parts.items() if part.sound}
        there = [(name, part) for name, part in self._merged.items() if part is None or part.path.exists()]
        self._merged = {name: part if part is not None and part.sound else None for name, part in there}
        for part in self._merged.values():
            if part is not None:
                part.forget_copies()
        self._seen, self._doubted = None, True

    def unmarked(self) -> list[IndexPart]:
        """Return the index files with conversations to scan. Return none if there are too many conversations."""
        unknown = [part for part in self.source.parts if part.unknown]
        few = sum(part.unknown for part in unknown) <= LOOKED_THROUGH
        tried = time.monotonic() - AGAIN
        return [part for part in unknown if part.tried < tried] if few else []

    def leave(self, part: IndexPart, error: Exception) -> None:
        """Skip an index file in scans for a while, because its data was unreadable or a detector failed."""
        part.damage, part.tried = " ".join(str(error).split()), time.monotonic()
        self._seen = None

    def mark(self, part: IndexPart) -> IndexPart:
        """Scan the conversations of an index file, and return a copy of it with the findings."""
        by, whole = looked_by(), complete(arrow("pyarrow.parquet").read_table(part.path))
        pieces: list[Any] = []
        start = 0
        for known, some in groupby(part.header.shards, lambda one: one.looked == by):
            shards = list(some)
            piece = whole.slice(start, sum(one.rows for one in shards))
            start += piece.num_rows
            if not known:
                read = (row for one in shards for row in self.source.shard(one.shard, one.rows))
                piece = marked(piece, [marks_of(transcript) for transcript in read])
            pieces.append(piece)
        table = arrow().concat_tables(pieces)
        shards = [msgspec.structs.replace(one, looked=by) for one in part.header.shards]
        header = msgspec.structs.replace(part.header, shards=shards, counts=count(table))
        path = self._scratch / f"marked-{new_attempt()}.parquet"
        write(path, table.replace_schema_metadata(None), header)
        return IndexPart(path, header)

    def take(self, part: IndexPart, better: IndexPart) -> None:
        """Replace an index file by `better`, its copy with findings."""
        for shard, known in self._parts.items():
            if known is part:
                self._parts[shard] = better
        for name, known in self._merged.items():
            if known is part:
                self._merged[name] = better
        self._seen = None

    @property
    def notes(self) -> list[str]:
        """Notes about problems of the run, with the command that fixes them."""
        how = f"camel run index {shlex.quote(self.folder.address)}"
        said: list[str] = []
        unknown = sum(part.unknown for part in self.source.parts)
        if unknown > LOOKED_THROUGH:
            said.append(
                f"{self.name}: {unknown:,} conversations have not been scanned for behaviors; run {how} --findings"
            )
        said += [f"{self.name}: {note}" for note in list(self._unread.values())[:3]]
        said += self.source.damage
        if self._built:
            said.append(f"{self.name}: {self._built:,} shards have no index; run {how} to add it")
        elif len(self.source.parts) > MANY_PARTS:
            said.append(
                f"{self.name}: its index has {len(self.source.parts):,} files; run {how} to merge them"
            )
        return said

    def _read_merged(
        self, name: str, fingerprint: str, stage: str, first: int, last: int
    ) -> IndexPart | None:
        if name not in self._merged:
            self._merged[name] = None
            with contextlib.suppress(CamelError, OSError):
                path = self._files.path(name)
                header, metadata = read_footer(path)
                if is_of(header, stage, fingerprint, first, last, {}):
                    self._merged[name] = IndexPart(path, header, metadata, partial(self._copy, name))
        return self._merged[name]

    def _copy(self, index: str, number: str) -> Path | None:
        """Return the path of the copy of an index file that is sorted by a number. Return None if there is none."""
        name = ordered_name(index, number)
        return self._files.path(name) if self.folder.store.exists(name) else None

    def _read_cubes(self, merged: dict[str, IndexPart], stage: str, listed: list[str]) -> CountedParts | None:
        """Return the cubes of these files. Return None if one was replaced by a copy with findings, which the cubes lack."""
        digest = digest_of(list(merged))
        name = f"{FOLDER}/{stage}/cube-{digest}.parquet"
        if merged and name in listed:
            with contextlib.suppress(CamelError, OSError, arrow().ArrowException):
                if any(part.path != self._files.path(file) for file, part in merged.items()):
                    return None
                path = self._files.path(name)
                cubes = read_cubes(path)
                readable = arrow("pyarrow.parquet").read_table(path).num_rows if self._doubted else 0
                if cubes.digest == digest and readable >= 0:
                    return CountedParts(path, cubes, frozenset(part for part in merged.values() if part.rows))
        return None

    def _single(self, marker: Marker, listed: dict[str, str]) -> IndexPart:
        """Return the index of a shard. If none is stored, build a temporary one from the data."""
        stem = Path(marker.file).stem
        if stem in listed:
            with contextlib.suppress(CamelError, OSError):
                path = self._files.path(name_of(marker))
                header, _ = read_footer(path)
                if is_for(header, marker):
                    return IndexPart(path, header)
        path = self._scratch / f"{stem}.parquet"
        source = CatalogueRun(self.name, self.folder, marker.stage, [])
        file, start = source.data_of(marker.shard)
        with self.folder.opened([file]) as opened:
            header = build(path, next(opened), marker, cost, start)
        self._built += 1
        return IndexPart(path, header)


def watch_run(run: str, taken: Collection[str], scratch: Path, annotated: bool) -> WatchedRun:
    """Open a run under a name that is not in `taken`. If `annotated` is false, it has no annotations."""
    folder = _folder(run, scratch)
    own = folder.root if folder.on_disk and folder.root == Path(run) else None
    files = files_for(run, own) if annotated else []
    return WatchedRun(_name(run, taken), folder, scratch, Annotations(files))


def _name(run: str, taken: Collection[str]) -> str:
    """Return a short name for a run that is valid in a URL and unique in the catalogue."""
    last = [part for part in re.split(r"[/\\]", run) if part not in ("", ".", "..")][-1:] or ["run"]
    base = re.sub(r"[^\w.-]+", "-", last[0]).strip(".-") or "run"
    return next(
        one for n in range(1, len(taken) + 2) if (one := base if n == 1 else f"{base}-{n}") not in taken
    )


def _folder(run: str, scratch: Path) -> RunFolder:
    folder = open_folder(run)
    if is_remote(run) or folder.exists:
        folder.settings()
        return folder
    path = Path(run)
    if not path.exists():
        raise InputError(f"there is no run {shown(run)}: `camel run list FOLDER` lists the runs in a folder")
    return import_files(path, scratch / f"import-{new_attempt()}")
