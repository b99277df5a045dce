"""The stage of a run's conversations: writes records with their index, reads them, and marks failed ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from camel.core.errors import CamelError
from camel.core.message import Usage
from camel.core.model import Price
from camel.core.stops import Stop
from camel.core.task import Task
from camel.core.transcript import Transcript
from camel.engine.stage import Written
from camel.index.build import write_indexed
from camel.jobs.item import Item
from camel.jobs.job import Stage
from camel.jobs.ledger import STOPPED
from camel.record.arrow import stream_shard
from camel.runs.layout import Layout
from camel.runs.markers import Marker
from camel.runs.plan import RunPlan, earlier_record
from camel.runs.run import RunFolder


def conversation_stage(
    folder: RunFolder,
    price: Price | None,
    *,
    name: str,
    work: Callable[[Item], Awaitable[Transcript]],
    id: Callable[[int], str],
    layout: Layout,
) -> Stage:
    """Return the stage with the run's records. `work` stores the record so far in `item.draft`."""
    settings = folder.settings()

    def cost(model: str, usage: Usage) -> float | None:
        return price.cost(usage) if price else None

    def write(path: Path, records: Sequence[Transcript]) -> Written:
        return write_indexed(folder, path.parent.name, path, records, settings.fingerprint, cost)

    return Stage(
        name=name,
        count=layout.count,
        work=work,
        write=write,
        failed=failed_transcript,
        failure=why_failed,
        counts=lambda record: (f"{STOPPED}{record.stop.reason}",) if record.stop else (),
        id=id,
        read=lambda marker: read_transcripts(folder, marker),
        fingerprint=settings.fingerprint,
        shard_size=int(settings.config.get("shard_size") or 1),
        segments=layout.segments,
        inactive=layout.inactive,
        number=lambda record: record.item,
    )


def read_transcripts(folder: RunFolder, marker: Marker) -> list[Transcript]:
    """Return the records of a committed shard."""
    with folder.opened([marker.file]) as files:
        return list(stream_shard(next(files)))


async def returned_record(plan: RunPlan | None, stage: str, item: int) -> Transcript | None:
    """Return the record that an item had before its row was deleted. None if it has to be made."""
    if plan is None or item not in plan.ever_inactive:
        return None
    return await asyncio.to_thread(earlier_record, plan, stage, item)


def failed_transcript(item: Item, error: CamelError) -> Transcript:
    """Return the record of a failed conversation: its messages so far, and the reason."""
    transcript: Transcript = item.draft or Transcript(item.id, Task(""))
    if not transcript.failed:
        transcript.stop = Stop.failed(error)
    return transcript


def why_failed(record: Transcript) -> str:
    """Return why a conversation failed, as `Class: text`. Empty if it did not fail."""
    return record.stop.detail if record.failed and record.stop else ""
