"""How long a large run takes to resume: what is done, by the names of its markers, on a disk and on an S3 server.

    python -m benchmarks.markers                                  # 73,000 shards: 300 million conversations
    python -m benchmarks.markers --markers 600000                 # minutes, most of them to make the files
    python -m benchmarks.markers --markers 20000 --places disk    # under 60 s

Each place is measured in a process of its own. `bare` is one plain listing of the markers' names by the disk or the store's
client, and `list` the same by CAMEL; `again` is each further listing of the same process. `plan` is the estimate that is shown
first, from a sample of the markers. `start` is a whole job begun on such a run with one shard left, until its first call.
`totals` reads every marker; only a budget waits for it. `memory` is the largest memory of the process before `totals`.

The S3 server is moto's, in Python, on the same cores, with a listing of our own; `--moto` leaves that to moto, which sorts and
renders for 0.45 s of CPU a page of a thousand. `server` is the CPU it took for all but `totals`. Exits with 1 when `start` takes
more than 15 s on the disk, or on the server more than 60 s and twice the bare listing, or more memory than 300 MB.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from benchmarks import recorded
from camel.core.model import Model, Reply, Request
from camel.engine.halt import Halt
from camel.generation.config import CONVERSATIONS, GenerateConfig
from camel.generation.maker import Maker
from camel.generation.opening import open_run
from camel.generation.plan import committed_in, make_plan
from camel.models.spec import ModelSpec
from camel.runs.markers import Marker, marker_name
from camel.runs.run import open_folder
from camel.scenarios import render_lists
from camel.storage.store import DiskStore
from tests.support.jobs import generation
from tests.support.s3_faults import BUCKET, spawn

LIMITS, MEMORY = {"disk": 15.0, "s3": 60.0}, 300
SHARD = 4096
TOTALS = {
    "prompt": 7.0e8,
    "completion": 3.6e7,
    "cached": 6.0e8,
    "calls": 163840.0,
    "failed": 3.0,
    "stop.done": 4000.0,
}


class _First(Exception):
    """The first call has been made."""


class _Model(Model):
    """A model that only notes when it is first asked."""

    context_tokens = None
    at = 0.0

    async def reply(self, request: Request) -> Reply:
        self.at = self.at or time.perf_counter()
        raise _First


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--markers", type=int, default=73_000)
    parser.add_argument("--places", nargs="+", choices=["disk", "s3"], default=["disk", "s3"])
    parser.add_argument(
        "--totals", action="store_true", help="also read every marker from the S3 server: minutes"
    )
    parser.add_argument("--moto", action="store_true", help="list as moto does")
    parser.add_argument("--measure", metavar="WHERE", help=argparse.SUPPRESS)
    recorded.option(parser)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(_measure(given.measure, given.markers, given.totals)))
        return 0
    slow = False
    print(
        f"{given.markers:,} markers      bare     list    again     plan    start   totals   memory  server"
    )
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        os.environ["CAMEL_JOURNALS"] = f"{scratch}/journals"
        for kind in given.places:
            command = [sys.executable, "-m", "benchmarks.markers", "--markers", str(given.markers)]
            if kind == "disk":
                where, begun, server = f"{scratch}/run", 0.0, None
                for name, text in _files(_config(where, given.markers), given.markers):
                    path = Path(where) / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(text)
            else:
                server = stack.enter_context(spawn(fast_list=not given.moto))
                os.environ.update(server.environment)
                where = server.address("run")
                prefix = where.removeprefix(f"s3://{BUCKET}/")
                files = _files(_config(where, given.markers), given.markers)
                while some := dict(islice(files, 20_000)):
                    server.fill({f"{prefix}/{name}": text for name, text in some.items()})
                begun = _cpu_seconds(server.pid)
            command += ["--measure", where, *(["--totals"] * (kind == "disk" or given.totals))]
            found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
            memory = found.pop("memory")
            shown = "".join(f"{one:7.2f} s" if one is not None else "      — " for one in found.values())
            spent = f"{_cpu_seconds(server.pid) - begun:6.1f} s" if server and not given.totals else ""
            print(f"{kind:>12} {shown}   {memory:,} MB {spent}", flush=True)
            if given.record:
                recorded.record("markers", {f"{kind}_{name}_s": found[name] for name in ("list", "start")})
            limit = max(LIMITS[kind], 2 * found["bare"] if server else 0.0)
            slow = slow or found["start"] > limit or memory > MEMORY
    return int(slow)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _config(where: str, markers: int) -> GenerateConfig:
    # One shard more than there are markers, so that something is left to do.
    items = (markers + 1) * SHARD
    counts = {"assistant_role": 1, "user_role": 1, "task": items}
    return GenerateConfig("ai_society", ModelSpec("m"), out=where, counts=counts, shard_size=SHARD)


def _files(config: GenerateConfig, markers: int) -> Iterator[tuple[str, str]]:
    """Markers as a run writes them, the names of the data files that a start misses none of, and the lists that the last
    shard needs."""
    encode = msgspec.json.encode
    fingerprint = open_run(config, config.loaded_scenario()).settings().fingerprint
    for level in config.loaded_scenario().asked:
        file = f"data/{level.name}/000000-aaaaaaaaaaaa.txt"
        yield file, render_lists([([], ["x"])])
        marker = Marker(level.name, 0, file, 1, "0" * 64, fingerprint)
        yield marker_name(level.name, 0), encode(marker).decode()
    for shard in range(markers):
        file = f"data/{CONVERSATIONS}/{shard:06d}-aaaaaaaaaaaa.parquet"
        yield file, ""
        marker = Marker(CONVERSATIONS, shard, file, SHARD, "0" * 64, fingerprint, TOTALS, 40_000_000)
        yield marker_name(CONVERSATIONS, shard), encode(marker).decode()


def _measure(where: str, markers: int, totals: bool) -> dict[str, float | None]:
    config, folder = _config(where, markers), open_folder(where)
    figures: dict[str, float | None] = {}

    def timed(name: str, do: Callable[[], Any]) -> Any:
        begun = time.perf_counter()
        result = do()
        figures[name] = time.perf_counter() - begun
        return result

    place = f"committed/{CONVERSATIONS}"
    if isinstance(folder.store, DiskStore):
        timed("bare", lambda: sum(1 for _ in os.scandir(Path(where) / place)))
    else:
        client: Any = folder.store._client
        timed("bare", lambda: sum(len(page) for page in client.list(place, chunk_size=1000)))
    assert len(timed("list", lambda: folder.committed(CONVERSATIONS))) == markers
    timed("again", lambda: folder.committed(CONVERSATIONS))
    timed("plan", lambda: make_plan(config, committed=committed_in(folder, config)))
    model, begun = _Model(), time.perf_counter()
    asyncio.run(_start(config, model))
    figures["start"] = model.at - begun
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    figures["totals"] = None
    if totals:
        every = folder.markers(CONVERSATIONS, folder.committed(CONVERSATIONS))
        timed("totals", lambda: sum(marker.rows for marker in every))
    return {**figures, "memory": memory}


async def _start(config: GenerateConfig, model: _Model) -> None:
    halt = Halt()
    # The lists are of one item; the conversations of the shard that is left all get it.
    with mock.patch.object(Maker, "lists", return_value=_Same()):
        try:
            await generation(config, model, halt=halt).run()
        except _First:
            halt.set("measured")


class _Same(list[str]):
    """A list whose every item is the same, however long it is to be."""

    def __getitem__(self, index: Any) -> Any:
        return "item"

    def __len__(self) -> int:
        return 2**40


if __name__ == "__main__":
    sys.exit(main())
