"""A job on a cluster, and nodes that are sick in one way each.

`python -m tests.support.sick_nodes ADDRESS PLACE URL` runs the job.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import msgspec

import camel
from camel import Item, Job, ModelSpec, Stage, write_lines

ITEMS, CALLS = 300, 3
IN_FLIGHT = 8
_WRITTEN = 2 << 20
"""Bytes that each item writes to a temporary file: more than the disk of the sick node has."""
_WALL = """
import asyncio.selector_events, os
loop = asyncio.selector_events.BaseSelectorEventLoop
connect = loop.sock_connect

async def blocked(self, sock, address):
    if isinstance(address, tuple) and address[1] == int(os.environ["BLOCKED_PORT"]):
        raise ConnectionRefusedError(111, "Connection refused")
    return await connect(self, sock, address)

loop.sock_connect = blocked
"""


class Line(msgspec.Struct):
    id: int
    said: list[str]


class Lines(Job):
    """Items that ask a model and write a temporary file."""

    name = "lines"

    def __init__(self, place: str, model: ModelSpec) -> None:
        self.place, self.models = place, {"": model}

    async def ask(self, item: Item) -> Line:
        said: list[str] = []
        for number in range(CALLS):
            said.append(await item.model().ask(f"Line {number} of {item.index}"))
            with tempfile.TemporaryFile() as file:
                file.write(bytes(_WRITTEN))
                file.flush()
        return Line(item.index, said)

    def stages(self, run: object) -> Iterator[Stage]:
        yield Stage(
            name="lines", count=ITEMS, work=self.ask, write=write_lines, suffix=".jsonl", shard_size=2
        )


@contextlib.contextmanager
def small_disk(folder: Path) -> Generator[Path | None]:
    """Mount a small disk. Yield None where this is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def without_route(folder: Path, port: int) -> dict[str, str]:
    """The environment of a node on which a firewall refuses connections to the endpoint."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_WALL)
    return {"PYTHONPATH": _first(folder), "BLOCKED_PORT": str(port)}


def with_other_code(folder: Path) -> dict[str, str]:
    """The environment of a node on which one file of the package differs."""
    assert camel.__file__ is not None
    shutil.copytree(
        Path(camel.__file__).parent, folder / "camel", ignore=shutil.ignore_patterns("__pycache__")
    )
    with (folder / "camel/core/stops.py").open("a") as file:
        file.write("# changed\n")
    return {"PYTHONPATH": _first(folder)}


def _first(folder: Path) -> str:
    return os.pathsep.join([str(folder), *filter(None, sys.path)])


if __name__ == "__main__":
    address, place, url = sys.argv[1:]
    from tests.support.sick_nodes import Lines as Job_  # workers import it by this name

    outcome = camel.run_job(
        Job_(place, ModelSpec("simulated", base_url=url)),
        address=address,
        concurrency=IN_FLIGHT,
        progress=False,
    )
    sys.exit(0 if outcome.complete else 3)
