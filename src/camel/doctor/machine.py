"""Checks this machine: Python, extras, disk, Ray, the sandbox, the local model, plug-ins. Makes no model calls."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from camel.core.errors import CamelError, InputError, MissingExtra
from camel.core.plugins import Registry, offered, taken
from camel.core.stops import STOP_RULES
from camel.core.toml import read_table
from camel.detectors import DETECTORS
from camel.doctor.target import CheckResult
from camel.models.connect import MODELS
from camel.reports.numbers import counted
from camel.runs.run import JOURNALS, journals
from camel.sandbox.process import ProgramFailed, Sandbox
from camel.scenarios import shipped
from camel.scenarios.critics import CRITICS
from camel.scenarios.reading import PLUGGED
from camel.storage.store import BucketStore, is_remote
from camel.storage.system import fcntl

PACKAGE, OTHER = "camel-society", "camel-ai"
EXTRAS: dict[str, str] = read_table(Path(__file__).with_name("advice.toml"))["extras"]
"""What each optional extra of the package is for."""
LITTLE, TOO_LITTLE = 2**30, 100 * 2**20
"""Free disk space in bytes below which a check warns or fails. A conversation takes about 30 kB with its journal."""
SLOW = 0.25
"""Duration of a disk sync in seconds from which the journal slows a run down."""
PATIENCE = 10.0
"""Seconds to wait for an object store in a check. A run waits longer."""

Tell = Callable[[CheckResult], None]


def examine_machine(
    where: str = "runs", *, address: str = "", generating: bool = False, tell: Tell = lambda finding: None
) -> list[CheckResult]:
    """Check this machine. `where` is the run's folder or address, `address` that of a Ray cluster, if one is used.

    `generating` means that a dataset will be generated here, which needs more than a single conversation.
    """
    findings: list[CheckResult] = []
    for finding in _all(where, address, generating):
        findings.append(finding)
        tell(finding)
    return findings


def _all(where: str, address: str, generating: bool) -> Iterator[CheckResult]:
    version = ".".join(str(part) for part in sys.version_info[:3])
    yield CheckResult("Python", "ok", f"{version}, {os.cpu_count()} cores")
    # Files of two packages with the same import name overwrite each other.
    with suppress(metadata.PackageNotFoundError):
        found = f"{OTHER} {metadata.version(OTHER)} is installed here and uses the import name camel, too"
        yield CheckResult("packages", "error", found, f"pip uninstall {OTHER}, then reinstall {PACKAGE}")
    if generating and find_spec("pyarrow") is None:
        said, _, install = str(MissingExtra("Generating", "data")).partition(": ")
        yield CheckResult("extras", "error", said, install)
    yield from _extras()
    yield _disk(where)
    yield _ray(address)
    yield _sandbox()
    yield from _plugins()


# ---------------------------------------------------------------- extras


def _extras() -> Iterator[CheckResult]:
    try:
        lines = metadata.requires(PACKAGE) or []
    except metadata.PackageNotFoundError:
        fix = "install it: pip install . in its folder"
        yield CheckResult("extras", "note", f"{PACKAGE} is not installed, but imported from a folder", fix)
        return
    there: list[str] = []
    lacking: list[str] = []
    for extra, use in EXTRAS.items():
        missing, old = missing_of(extra, lines)
        if old:
            yield CheckResult(
                "extras", "warning", f"{extra}: {', '.join(old)}", f"for {use}: {_install(extra)}"
            )
        elif missing:
            whole = len(missing) == sum(map(partial(_is_of, extra), lines))
            lacking.append(f"{extra} ({use})" if whole else f"{extra}, of which {_listed(missing)} ({use})")
        else:
            there.append(extra)
    yield CheckResult(
        "extras", "ok", f"installed: {', '.join(there) or 'none, which is enough for camel play'}"
    )
    if lacking:
        fix = f"when you need one: {_install('NAME')}"
        yield CheckResult("extras", "skipped", f"not installed: {', '.join(lacking)}", fix)


def _install(extra: str) -> str:
    return str(MissingExtra("", extra)).partition(": ")[2]


def missing_of(extra: str, requirements: list[str]) -> tuple[list[str], list[str]]:
    """Return the packages of an extra that are missing, and those that have a wrong version."""
    missing: list[str] = []
    old: list[str] = []
    for line in requirements:
        text = line.partition(";")[0]
        if not _is_of(extra, line):
            continue
        found = re.match(r"[A-Za-z0-9._-]+", text.strip())
        name = found[0] if found else text.strip()
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
            continue
        if not _fits(text, version):
            old.append(f"{name} {version} is installed, but {text.strip()} is needed")
    return missing, old


def _is_of(extra: str, requirement: str) -> bool:
    return f"extra == '{extra}'" in requirement.partition(";")[2].replace('"', "'")


def _listed(names: list[str]) -> str:
    """Return a text that lists at most three names and states that they are missing."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more + (" is missing" if len(names) == 1 else " are missing")


def _fits(requirement: str, version: str) -> bool:
    """Return whether a version satisfies a requirement. Return True if versions cannot be compared."""
    try:
        from packaging.requirements import Requirement
    except ImportError:
        return True
    return Requirement(requirement.strip()).specifier.contains(version, prereleases=True)


# ---------------------------------------------------------------- disk


def _disk(where: str) -> CheckResult:
    if is_remote(where):
        return _bucket(where)
    folder = Path(where).expanduser().absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    another = "choose another folder with out in the configuration or --out"
    try:
        free = shutil.disk_usage(folder).free
        began = time.perf_counter()
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".camel-doctor-") as file:
            file.write(bytes(2**20))
            file.flush()
            os.fsync(file.fileno())
            took = time.perf_counter() - began
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        said = f"cannot write to or lock {folder}: {error.strerror or error}"
        return CheckResult("disk", "error", said, another)
    says = f"{free / 2**30:,.1f} GiB free in {folder}, a MiB synced in {1000 * took:.0f} ms"
    if free < LITTLE:
        room = f"free some space, or {another}"
        return CheckResult("disk", "error" if free < TOO_LITTLE else "warning", says, room)
    if took > SLOW:
        slow = f"every reply is synced before it is used, so a slow disk slows a run down: {another}, on a local disk"
        return CheckResult("disk", "warning", says, slow)
    return CheckResult("disk", "ok", says)


def _bucket(where: str) -> CheckResult:
    """Test what a run does with a bucket: list, write, and reject an existing name."""
    fix = "check the address, the AWS_ variables (or those of another cloud), and their permission to list and write"
    name = f".camel-doctor-{secrets.token_hex(6)}"
    try:
        store = BucketStore(where)
        store.patience = PATIENCE
        store.folders("committed")  # a lookup of one object would not notice a missing bucket
        there = store.exists("run.json")
        once, twice = store.create(name, b"1"), store.create(name, b"2")
        store.remove([name])
    except (CamelError, OSError) as error:
        return CheckResult("disk", "error", f"cannot use {where}: {error}", fix)
    if not once or twice:
        said = (
            f"{where} ignores conditional writes (If-None-Match: *), so two workers could both commit a shard"
        )
        return CheckResult("disk", "error", said, "use a store that supports them: Amazon S3, MinIO, R2")
    said = f"{where} answers{' and contains a run' if there else ''}; journals go to {journals().absolute()}"
    if os.environ.get(JOURNALS):
        return CheckResult("disk", "ok", said)
    same = f"set {JOURNALS} to an absolute path, and keep it for later runs of the command; nodes may share it, or have their own"
    return CheckResult("disk", "warning", said, same)


# ---------------------------------------------------------------- Ray, sandbox


def _ray(address: str) -> CheckResult:
    if find_spec("ray") is None:
        state = "error" if address else "skipped"
        return CheckResult("Ray", state, "not installed", f"for clusters: {_install('cluster')}")
    version = metadata.version("ray")
    if not address:
        says = f"{version}; add --address local, auto or host:port to check a cluster"
        return CheckResult("Ray", "ok", says)
    from camel.engine.ray.connect import look_at

    try:
        seen = look_at(address)
    except InputError as error:
        said, _, fix = str(error).rpartition("; ")
        return CheckResult("Ray", "error", said, fix)
    says = f"{version} at {address}: {counted(seen.nodes, 'node')}, {seen.cpus:g} CPUs"
    if not seen.cpus:
        fix = "no node has a CPU, so no worker can start: add nodes"
        return CheckResult("Ray", "error", says, fix)
    return CheckResult("Ray", "ok", says)


def _sandbox() -> CheckResult:
    if not sys.platform.startswith("linux"):
        return CheckResult("sandbox", "skipped", "camel evaluate humaneval runs programs on Linux only")
    try:
        with Sandbox() as sandbox:
            sandbox.check()
    except (CamelError, OSError, ProgramFailed) as error:
        fix = (
            "only needed for camel evaluate humaneval: apt install bubblewrap, and allow users to create namespaces (in a "
            "container: one that allows it, or another machine)"
        )
        return CheckResult("sandbox", "warning", str(error), fix)
    return CheckResult("sandbox", "ok", "bubblewrap works and isolates programs")


# ---------------------------------------------------------------- plug-ins


def _plugins() -> Iterator[CheckResult]:
    sound: list[str] = []
    registries: list[Registry[Any]] = [DETECTORS, STOP_RULES, CRITICS, MODELS]
    if find_spec("pyarrow"):
        from camel.formats.exporters import FORMATS

        registries.append(FORMATS)
    for registry, own in [(PLUGGED, set(shipped())), *((one, one.own) for one in registries)]:
        for plugin in taken(registry.group, own):
            says = f"{plugin.name} of {plugin.package} is ignored: a built-in part has the same name"
            fix = f"ask its author for another name, or pip uninstall {plugin.bare}"
            yield CheckResult("plug-ins", "warning", says, fix)
        for name in (one for one in offered(registry.group) if one not in own):
            try:
                registry[name]
            except CamelError as error:
                said, _, fix = str(error).rpartition(": ")
                yield CheckResult("plug-ins", "error", said, fix)
            else:
                sound.append(f"{name} ({registry.kind})")
    if sound:
        yield CheckResult("plug-ins", "ok", ", ".join(sound))
