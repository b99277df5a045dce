"""A job whose items ask one question each, in batches; also in a process of its own, so that it can be killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from camel.core.errors import CamelError
from camel.core.history import History
from camel.core.message import Sampling, Usage
from camel.core.model import Model, Request
from camel.engine.halt import Halt
from camel.engine.stage import write_lines
from camel.jobs import batched
from camel.jobs.item import Item
from camel.jobs.job import Job, Stage
from camel.jobs.ledger import MONEY
from camel.jobs.replies import CheckedModel
from camel.jobs.runner import Outcome, Runner
from camel.jobs.signals import STOPPED
from camel.models.chat import WIRES
from camel.models.spec import ModelSpec
from camel.runs.markers import Marker
from camel.runs.run import RunFolder
from tests.support.batch_server import PRICE, BatchServer, MessagesWire


class Answered(msgspec.Struct):
    id: str
    text: str = ""
    usage: Usage = Usage()
    failed: str = ""


@dataclass(frozen=True)
class Questions(Job):
    """`count` questions to one model."""

    name = "questions"
    place: str
    url: str
    count: int
    batch: bool = True
    shard_size: int = 16
    sampling: Sampling = Sampling()  # noqa: RUF009 - frozen
    models: Mapping[str, Model | ModelSpec] = field(init=False)

    def __post_init__(self) -> None:
        spec = ModelSpec("m", self.url, price=PRICE, batch=self.batch)
        object.__setattr__(self, "models", {"": spec})

    def outline(self, run: RunFolder) -> list[Stage]:
        return [
            Stage(
                name="answers",
                count=self.count,
                work=partial(_ask, self.sampling),
                write=write_lines,
                failed=_failed,
                failure=lambda record: record.failed,
                id=lambda index: f"question-{index}",
                read=lambda marker: read(run, marker),
                shard_size=self.shard_size,
                suffix=".jsonl",
            )
        ]

    def result(self, run: RunFolder) -> list[Answered]:
        markers = run.markers("answers", sorted(run.committed("answers")))
        return [one for marker in markers for one in read(run, marker)]


def read(run: RunFolder, marker: Marker) -> list[Answered]:
    return msgspec.json.Decoder(Answered).decode_lines(run.read(marker.file))


async def _ask(sampling: Sampling, item: Item) -> Answered:
    history = History()
    history.add("user", f"What is {item.id}?")
    request = Request(history, sampling, session=item.id, speaker="one")
    reply = await CheckedModel(item.model()).reply(request)
    return Answered(item.id, reply.content, reply.usage)


def _failed(item: Item, error: CamelError) -> Answered:
    return Answered(item.id, failed=f"{type(error).__name__}: {error}")


def recorded_cost(place: Path) -> float:
    """Dollars, by the markers."""
    folder = RunFolder(place)
    return sum(one.totals[MONEY] for one in folder.markers("answers", folder.committed("answers")))


@contextmanager
def quick(*, messages: bool = False, **settings: Any) -> Generator[None]:
    """Without pauses; `messages` is Anthropic's protocol."""
    quickly = {"QUIET": 0.05, "TICK": 0.005, "FIRST_LOOK": 0.01, "LONGEST_LOOK": 0.04}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (quickly | settings).items():
            patch.setattr(batched, name, value)
        # The default was taken when the class was made.
        fields = cast("Any", batched)._Batch.__init__
        patch.setattr(fields, "__defaults__", (*fields.__defaults__[:-1], batched.FIRST_LOOK))
        if messages:
            patch.setitem(cast("Any", WIRES), "completions", MessagesWire)
        yield


def run(job: Questions, **options: Any) -> Outcome:
    """Run it to its end."""
    return asyncio.run(Runner(job, **options).run())


def run_heard(job: Questions, heard: list[str]) -> Outcome:
    """Run it to its end, and take note of what it tells."""
    runner = Runner(job)
    runner.tell = lambda event, text, **fields: heard.append(text)
    return asyncio.run(runner.run())


def run_until(job: Questions, reached: Callable[[], bool], halt: Halt) -> Outcome:
    """Run it, and stop it as a person does once something is so."""

    async def main() -> Outcome:
        running = asyncio.ensure_future(Runner(job, halt=halt).run())
        while not reached():
            assert not running.done(), running.result()
            await asyncio.sleep(0.005)
        halt.set(STOPPED)
        async with asyncio.timeout(60):
            return await running

    return asyncio.run(main())


_CODE = """
import sys
from tests.support.batch_jobs import Questions, quick, run
place, url, count, messages = sys.argv[1:]
with quick(messages=bool(int(messages))):
    outcome = run(Questions(place, url, int(count)))
print(outcome.status, outcome.reason)
"""


def run_in_process(
    server: BatchServer, place: Path, count: int, *, messages: bool = False
) -> tuple[int, str]:
    """Run the job in a process that the server may kill; its exit status and what it printed."""
    command = [sys.executable, "-c", _CODE, str(place), server.url, str(count), str(int(messages))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        server.pid = process.pid
        said, _ = process.communicate(timeout=600)
    return process.returncode, said.strip()
