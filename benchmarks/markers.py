"""How long a large run takes to resume: what is done, by the names of its markers, on a disk and on an S3 server.

    python -m benchmarks.markers                    # 73,000 shards: 300 million conversations
    python -m benchmarks.markers --markers 2000

`list` is what a start needs: one process, nothing known before. `again` is each further look of the same process. `plan` is
the estimate that is shown first, from a sample of the markers. `start` is a whole `Campaign` begun on such a run with one shard
left, until its first call. `totals` reads every marker; only a budget waits for it.

The S3 server is moto's, in Python, on the same cores, with a listing of our own; `--moto` leaves that to moto, which sorts and renders
for 0.45 s of CPU a page of a thousand. `server` is the CPU it took for all but `totals`. Exits with 1 when `start` takes more
than 15 s on the disk or 60 s on the server.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
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
from camel.runs.markers import Marker
from camel.runs.run import RunFolder, open_folder
from camel.scenarios import render_lists
from tests.support.jobs import generation
from tests.support.s3_faults import BUCKET, spawn

LIMITS = {"disk": 15.0, "s3": 60.0}
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
    parser.add_argument(
        "--totals", action="store_true", help="also read every marker from the S3 server: minutes"
    )
    parser.add_argument("--moto", action="store_true", help="list as moto does")
    recorded.option(parser)
    given = parser.parse_args()
    slow = False
    print(f"{given.markers:,} markers      list    again     plan    start   totals   memory  server")
    with tempfile.TemporaryDirectory() as scratch, spawn(fast_list=not given.moto) as server:
        os.environ.update(server.environment)
        os.environ["CAMEL_JOURNALS"] = f"{scratch}/journals"
        for kind, where in (("disk", f"{scratch}/run"), ("s3", server.address("run"))):
            config = _config(where, given.markers)
            folder = open_run(config, config.loaded_scenario())
            files = dict(_files(config, folder, given.markers))
            if kind == "disk":
                for name, text in files.items():
                    path = Path(where) / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(text)
            else:
                prefix = where.removeprefix(f"s3://{BUCKET}/")
                server.fill({f"{prefix}/{name}": text for name, text in files.items()})
            del files
            begun = _cpu_seconds(server.pid)
            figures = _measure(config, where, given.markers, kind == "disk" or given.totals)
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            shown = "".join(f"{one:8.2f} s" if one is not None else "       — " for one in figures)
            spent = f"{_cpu_seconds(server.pid) - begun:6.1f} s" if kind == "s3" and not given.totals else ""
            print(f"{kind:>14} {shown}   {memory:,} MB {spent}", flush=True)
            if given.record:
                recorded.record(
                    "markers", {f"{kind}_list_s": figures[0] or 0.0, f"{kind}_start_s": figures[3] or 0.0}
                )
            slow = slow or (figures[3] or 0.0) > LIMITS[kind]
    return int(slow)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _config(where: str, markers: int) -> GenerateConfig:
    # One shard more than there are markers, so that something is left to do.
    items = (markers + 1) * SHARD
    counts = {"assistant_role": 1, "user_role": 1, "task": items}
    return GenerateConfig("ai_society", ModelSpec("m"), out=where, counts=counts, shard_size=SHARD)


def _files(config: GenerateConfig, folder: RunFolder, markers: int) -> Any:
    """Markers as a run writes them, the names of the data files that a start misses none of, and the lists that the last
    shard needs."""
    encode = msgspec.json.encode
    fingerprint = folder.settings().fingerprint
    for level in config.loaded_scenario().asked:
        file = f"data/{level.name}/000000-aaaaaaaaaaaa.txt"
        yield file, render_lists([([], ["x"])])
        yield (
            f"committed/{level.name}/000000.json",
            encode(Marker(level.name, 0, file, 1, "0" * 64, fingerprint)).decode(),
        )
    for shard in range(markers):
        file = f"data/{CONVERSATIONS}/{shard:06d}-aaaaaaaaaaaa.parquet"
        yield file, ""
        marker = Marker(CONVERSATIONS, shard, file, SHARD, "0" * 64, fingerprint, TOTALS, 40_000_000)
        yield f"committed/{CONVERSATIONS}/{shard:06d}.json", encode(marker).decode()


def _measure(config: GenerateConfig, where: str, markers: int, totals: bool) -> list[float | None]:
    folder = open_folder(where)
    figures: list[float | None] = []

    def timed(do: Callable[[], Any]) -> Any:
        begun = time.perf_counter()
        result = do()
        figures.append(time.perf_counter() - begun)
        return result

    assert len(timed(lambda: folder.committed(CONVERSATIONS))) == markers
    timed(lambda: folder.committed(CONVERSATIONS))
    timed(lambda: make_plan(config, committed=committed_in(folder, config)))
    model, begun = _Model(), time.perf_counter()
    asyncio.run(_start(config, model))
    figures.append(model.at - begun)
    if totals:
        timed(
            lambda: sum(
                marker.rows for marker in folder.markers(CONVERSATIONS, folder.committed(CONVERSATIONS))
            )
        )
    else:
        figures.append(None)
    return figures


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
        return 2**31


if __name__ == "__main__":
    sys.exit(main())
