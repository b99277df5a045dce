"""The file system of the sandbox: this interpreter, its standard library and their C libraries, nothing else.

The one decision to know: it is a copy, made once per command, and becomes the root of the sandbox. So no list of files to
hide can be wrong: installed packages (including solutions of benchmarks), the user's files and the system's files are not in
it. An interpreter inside a private home directory still works.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from importlib import util
from pathlib import Path

from camel.core.errors import CamelError

PYTHON = "bin/python"
LIBRARY = f"{sys.platlibdir}/python{sys.version_info.major}.{sys.version_info.minor}"
_PREFIX = "camel-sandbox-"
_OLD = 24 * 3600.0
_LEFT_OUT = {
    *("__pycache__", "site-packages", "dist-packages", "test", "tests", "idlelib"),
    *("tkinter", "turtledemo", "lib2to3", "ensurepip", "distutils", "pydoc_data"),
}
_CARGO = re.compile(r"config-\d|.*-linux-gnu$")
_LINKED = re.compile(r"(?:=>\s*)?(/\S+) \(0x")


def make_image() -> Path:
    """Create the sandbox's file system in a temporary folder that every user can read. The caller must remove it."""
    _sweep(Path(tempfile.gettempdir()))
    root = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    try:
        root.chmod(0o755)
        interpreter = Path(sys.executable).resolve()
        _copy(interpreter, root / PYTHON)
        (root / PYTHON).chmod(0o755)
        modules = Path(sysconfig.get_path("stdlib"))
        extensions = [_extension(path, modules, root) for path in _walk(modules)]
        for library in _linked([interpreter, *(path for path in extensions if path)]):
            # The interpreter contains the full path of the loader; the other libraries are found by name.
            where = library.relative_to("/") if library.name.startswith("ld-") else Path("lib", library.name)
            _copy(library, root / where)
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(root, ignore_errors=True)
        raise CamelError(f"cannot create the sandbox's copy of Python in {root.parent}: {error}") from None
    return root


def _sweep(folder: Path) -> None:
    """Remove file systems that killed commands have left behind, of about 70 MB each."""
    for path in folder.glob(f"{_PREFIX}*"):
        owner = path.name.removeprefix(_PREFIX).partition("-")[0]
        if not owner.isdecimal() or Path(f"/proc/{owner}").exists():
            continue
        with contextlib.suppress(OSError):
            found = path.lstat()
            # Not those of other users, and no recent ones: another container may use them without visible processes.
            if found.st_uid == os.geteuid() and time.time() - found.st_mtime > _OLD:
                shutil.rmtree(path)


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name in _LEFT_OUT or _CARGO.match(path.name):
            continue
        if path.is_dir():
            yield from _walk(path)
        elif path.suffix in (".py", ".so"):
            yield path


def _extension(path: Path, modules: Path, root: Path) -> Path | None:
    """Copy one file of the standard library. A module is compiled first. Return its path if it is a C extension, otherwise
    None."""
    target = root / LIBRARY / path.relative_to(modules)
    if path.suffix == ".so":
        _copy(path, target)
        return path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.with_suffix(".pyc").write_bytes(_compiled(path))
    return None


def _compiled(path: Path) -> bytes:
    """Return a module's compiled code, from Python's cache if that is current."""
    source = path.stat()
    try:
        kept = Path(util.cache_from_source(str(path))).read_bytes()
        flags, changed, size = struct.unpack_from("<III", kept, 4)
        fresh = flags == 0 and changed == int(source.st_mtime) & 0xFFFFFFFF and size == source.st_size
        if kept[:4] == util.MAGIC_NUMBER and fresh:
            return kept
    except (OSError, struct.error):
        pass
    import marshal

    try:
        code = compile(path.read_bytes(), f"{LIBRARY}/{path.name}", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):  # test files that do not compile on purpose
        return util.MAGIC_NUMBER + bytes(12)
    return util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755 if os.access(source, os.X_OK) else 0o644)


def _linked(files: list[Path]) -> set[Path]:
    """Return the paths of all C libraries that the files need, as the system's loader finds them."""
    listed = subprocess.run(  # noqa: S603 - our own files
        ["ldd", *map(str, files)],  # noqa: S607 - found where the system has it
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return {Path(path) for path in _LINKED.findall(listed.stdout)}
