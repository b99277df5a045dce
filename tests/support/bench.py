"""A workload whose steps are counted, run by the engine's own worker."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from camel.engine.halt import Halt
from camel.engine.stage import Steps, Workload, Written
from camel.engine.supervisor import StepPass, run_here
from camel.engine.worker import Window
from camel.runs.run import RunFolder
from camel.runs.settings import Settings


def write(path: Path, records: Sequence[Any]) -> Written:
    data = json.dumps(list(records)).encode()
    path.write_bytes(data)
    return Written(len(records), hashlib.sha256(data).hexdigest(), {})


class Bench:
    """A run of a workload whose steps are counted, over as many starts as it takes."""

    def __init__(
        self,
        root: Path,
        count: int = 20,
        *,
        shard_size: int = 4,
        steps: int = 3,
        name: str = "conversations",
        folder: RunFolder | None = None,
        items: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        """`folder` is that of another bench, for several workloads in one run."""
        self.folder = folder or RunFolder(root / "run")
        if folder is None:
            self.folder.create(Settings("f", {}, "0"))
        self.steps = steps
        self.taken: Counter[tuple[int, int]] = Counter()
        self.running = self.most = 0
        self.before: Callable[[int, int], Awaitable[None]] = self.nothing
        self.workload = Workload(
            name=name,
            count=count,
            work=self.work,
            write=write,
            fingerprint=f"of {name}",
            shard_size=shard_size,
            items=items,
        )

    async def nothing(self, index: int, step: int) -> None:
        await asyncio.sleep(0)

    def check(self, index: int, step: int) -> bytes:
        return b"%d %d" % (index, step)

    async def work(self, index: int, steps: Steps) -> list[Any]:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            said = [
                (await steps.once(self.check(index, step), lambda step=step: self.make(index, step))).decode()
                for step in range(self.steps)
            ]
        finally:
            self.running -= 1
        return [index, said]

    async def make(self, index: int, step: int) -> bytes:
        self.taken[index, step] += 1
        await self.before(index, step)
        return b"said %d %d" % (index, step)

    async def run(self, *, concurrency: int | Window = 5, halt: Halt | None = None, **kwargs: Any) -> bool:
        work = StepPass(
            workloads=[self.workload],
            folder=self.folder,
            concurrency=concurrency,
            halt=halt or Halt(),
            **kwargs,
        )
        return await asyncio.wait_for(run_here(work), 30)

    def data(self) -> list[Any]:
        """What the markers name, in order."""
        name = self.workload.name
        markers = [self.folder.marker(name, shard) for shard in sorted(self.folder.committed(name))]
        return [
            row for marker in markers for row in json.loads((self.folder.root / marker.file).read_bytes())
        ]

    def expected(self) -> list[Any]:
        return [
            [index, [f"said {index} {step}" for step in range(self.steps)]]
            for shard in self.workload.numbers
            for index in self.workload.indices(shard)
        ]

    def files(self, part: str) -> list[Path]:
        return [path for path in (self.folder.root / part).rglob("*") if path.is_file()]
