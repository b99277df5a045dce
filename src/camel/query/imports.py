"""Imports files of other formats as a run, into a temporary folder or the user's cache."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import time
from pathlib import Path

from camel._version import __version__
from camel.core.errors import InputError
from camel.formats.documents import IMPORTERS, store
from camel.index.facets import VERSION
from camel.models.prices import cost
from camel.runs.markers import new_attempt
from camel.runs.run import RunFolder, open_folder

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
