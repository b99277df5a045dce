"""Runs the detectors over a run, and stores what they find in each conversation and how long its messages are.

It is a stage of the engine, and its items are the shards of the run. Each shard is scanned once, in one of several processes,
and its findings are stored in a file with a marker. So the next study scans only new shards.

The one decision to know: the stage's name depends on the versions of all detectors. A new version of one of them begins a
new stage, which reuses the findings of the other detectors from earlier stages.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from camel.core.errors import InputError
from camel.core.model import Model
from camel.core.transcript import Transcript
from camel.detectors import DETECTORS, Finding
from camel.detectors.marks import STAGE, Mark, find_in, looked_by, mark_of, versions
from camel.engine.stage import Written
from camel.jobs.item import Item
from camel.jobs.job import Job, Stage, Step
from camel.models.spec import ModelSpec
from camel.record.arrow import read_shard
from camel.record.parquet import arrow, write_batches
from camel.runs.derived import schema_with_source, source_of, valid_shards
from camel.runs.markers import marker_name
from camel.runs.reader import RunReader
from camel.runs.run import RunFolder
from camel.storage.processes import explained, workers

EXAMPLES = 5
"""Number of findings per detector and shard that are stored with the text around them."""
EXCERPT_CHARS = 2_000
CONTEXT_CHARS = 500
_STORED = ("detector", "version", "index", "evidence", "reason")
"""Fields of a finding that are stored for each one."""
FEW = 400
"""Maximum number of conversations that are scanned in one process. For so few, starting more processes takes longer."""


def study_folder(run: RunFolder) -> Path:
    """Return the default folder of a run's study. It is in the run's folder if the run is on a disk."""
    if run.on_disk:
        return run.path("study")
    return Path("studies") / run.address.rstrip("/").rpartition("/")[2]


@cache
def schema() -> Any:
    """Return the Arrow schema of a table of findings, with one row per conversation."""
    pa = arrow()
    text, whole = pa.string(), pa.int64()
    message = [("speaker", text), ("role", text), ("model", text)]
    message += [(name, whole) for name in ("chars", "prompt", "completion", "cached")]
    finding = [("detector", text), ("version", whole), ("index", whole)]
    finding += [(name, text) for name in ("evidence", "reason", "before", "excerpt")]
    lists = [("messages", pa.list_(pa.struct(message))), ("findings", pa.list_(pa.struct(finding)))]
    return pa.schema([("id", text), ("stop", text), *lists])


class Looked(NamedTuple):
    """The findings of all detectors in one shard of a run, as a table with one row per conversation."""

    shard: int
    table: Any
    rows: Sequence[int] | None = None
    """The rows of the shard that are in the table; None: all."""


class Looker:
    """Runs the detectors over a run, and stores the findings in the folder `kept`."""

    def __init__(self, run: RunReader, kept: Path, *, processes: int = 1) -> None:
        self.run, self.folder = run, RunFolder(kept)
        self.versions = versions()
        self.name = looked_by()
        self._processes = processes
        self._markers = {marker.shard: marker for marker in run.markers}
        self._older: dict[str, list[str]] = {}

    def stages(self) -> Iterator[Stage]:
        """Yield the stage that runs the detectors. The processes of the detectors stop after it."""
        self._older = self._earlier_stages()
        left = self._markers.keys() - valid_shards(self.folder, self.name, self.run)
        conversations = sum(self._markers[shard].rows for shard in left)
        with workers(self._processes if conversations > FEW else 1) as pool:
            yield self._stage(pool)

    def tables(self) -> Iterator[Looked]:
        """Yield the stored findings, one shard at a time."""
        for shard, marker in sorted(self._markers.items()):
            table = self._load(shard)
            if source_of(table) != marker.sha256:
                raise InputError(
                    f"'{self.folder.root}' contains the findings of another run: remove that folder, or use another --out"
                )
            yield Looked(shard, table)

    def found(self, shard: int) -> list[list[Mark]] | None:
        """Return the findings in each conversation of a shard, for the run's index. Return None if the shard was not
        scanned."""
        marker = self._markers.get(shard)
        if marker is None or not self.folder.is_committed(self.name, shard):
            return None
        columns = [
            "messages.list.element.speaker",
            "findings.list.element.detector",
            "findings.list.element.index",
        ]
        table = self._load(shard, columns)
        if source_of(table) != marker.sha256:
            return None
        marks: list[list[Mark]] = []
        for messages, findings in zip(table["messages"], table["findings"], strict=True):
            found = findings.as_py()
            said: list[dict[str, str]] = messages.as_py() if found else []
            seats = [message["speaker"] for message in said]
            marks.append([mark_of(one["detector"], one["index"], seats) for one in found])
        return marks

    def _load(self, shard: int, columns: Sequence[str] | None = None) -> Any:
        """Read the stored findings of a shard. If the file is damaged, remove it and raise an `InputError`, because a new scan
        is free."""
        try:
            return read_shard(self.folder.path(self.folder.marker(self.name, shard).file), columns)
        except InputError:
            self.folder.store.remove([marker_name(self.name, shard)])
            raise InputError(
                f"the stored findings of shard {shard} in '{self.folder.root}' were damaged and have been removed: run the "
                "command again to scan this shard again"
            ) from None

    def _stage(self, pool: Executor) -> Stage:
        async def work(item: Item) -> Any:
            shard = item.index
            older = [(str(path), names) for path, names in self._reusable(shard)]
            sha256 = self._markers[shard].sha256
            job = (self.run.folder.address, self.run.stage, len(self._markers), shard, sha256, older)
            with explained():
                batch = await asyncio.get_running_loop().run_in_executor(pool, _look, *job)
            return sha256, batch

        def write(path: Path, records: Sequence[Any]) -> Written:
            ((source, batch),) = records
            layout = schema_with_source(schema(), source)
            written = write_batches(path, [batch.replace_schema_metadata(layout.metadata)], layout)
            return Written(written.rows, written.sha256, {})

        return Stage(
            name=self.name,
            count=max(self._markers, default=-1) + 1,
            work=work,
            write=write,
            identity={"detectors": self.versions},
            fingerprint=self.run.settings.fingerprint,
            shard_size=1,
            items={shard: [shard] for shard in self._markers},
            concurrency=self._processes + 1,
        )

    def _earlier_stages(self) -> dict[str, list[str]]:
        """Return the names of earlier stages, each with those of its detectors whose version has not changed."""
        same: dict[str, list[str]] = {}
        for stage in self.folder.stages():
            if stage.startswith(STAGE) and stage != self.name:
                versions: dict[str, int] = self.folder.begun_with(stage).get("detectors", {})
                same[stage] = [
                    name for name, version in versions.items() if self.versions.get(name) == version
                ]
        return same

    def _reusable(self, shard: int) -> Iterator[tuple[Path, list[str]]]:
        """Yield stored files with findings in a shard, each with the names of the detectors whose findings can be reused."""
        wanted = set(self.versions)
        for stage, names in sorted(self._older.items(), key=lambda item: -len(item[1])):
            use = sorted(wanted & set(names))
            if use and self.folder.is_committed(stage, shard):
                try:
                    path = self.folder.path(self.folder.marker(stage, shard).file)
                    source = source_of(read_shard(path, ["id"]))
                except InputError:  # damaged, so the shard is scanned again
                    continue
                if source == self._markers[shard].sha256:
                    wanted -= set(use)
                    yield path, use


@dataclass(frozen=True)
class Findings(Job):
    """A job that runs the detectors over a run."""

    name = "study"
    place: str
    """The folder in which the findings are stored."""
    run: str
    processes: int = 1
    models: Mapping[str, Model | ModelSpec] = field(default_factory=dict[str, Model | ModelSpec], init=False)

    def stages(self, run: RunFolder) -> Iterator[Step]:
        """Yield one stage, whose items are the shards of the run."""
        yield from Looker(RunReader(self.run), run.root, processes=self.processes).stages()


@lru_cache(maxsize=1)
def _open_run(address: str, stage: str, shards: int) -> RunReader:
    """Open a run. `shards` is part of the cache key, so that the run is opened again when it has more shards."""
    return RunReader(address, stage)


def _look(
    address: str, stage: str, shards: int, shard: int, sha256: str, older: list[tuple[str, list[str]]]
) -> Any:
    """Run the detectors over one shard. With several processes, a child process calls this."""
    for opened in (partial(_open_run, address, stage, shards), partial(RunReader, address, stage)):
        run = opened()  # the second time without the cache, in case a retry has rewritten the shard since
        # Search by number, because the position changes when other shards are committed.
        for place, marker in enumerate(run.markers):
            if marker.shard == shard and marker.sha256 == sha256:
                return look_at(run.shard(place), older)
    raise InputError(f"shard {shard} of '{address}' has changed since the study began: start the study again")


def look_at(transcripts: list[Transcript], older: Sequence[tuple[str, list[str]]] = ()) -> Any:
    """Return the findings in the conversations as a record batch. `older` lists files to reuse, each with its detectors."""
    names = [name for name in DETECTORS if not any(name in known for _, known in older)]
    found = [list[Finding]() for _ in transcripts]
    for path, known in older:
        stored = read_shard(Path(path), ["findings"])["findings"].to_pylist()
        for kept, findings in zip(stored, found, strict=True):
            mine = (row for row in kept if row["detector"] in known)
            findings += [Finding(*(row[name] for name in _STORED)) for row in mine]
    for transcript, findings in zip(transcripts, found, strict=True):
        findings += find_in(transcript, names)
        findings.sort(key=lambda finding: finding.index)
    chosen = _chosen(transcripts, found)
    rows = [
        {
            "id": transcript.id,
            "stop": transcript.stop.reason if transcript.stop else "",
            "messages": [
                {
                    "speaker": message.speaker,
                    "role": message.role,
                    "model": message.model,
                    "chars": len(message.content),
                    "prompt": message.usage.prompt,
                    "completion": message.usage.completion,
                    "cached": message.usage.cached,
                }
                for message in transcript.messages
            ],
            "findings": [_row(transcript, finding, id(finding) in chosen) for finding in findings],
        }
        for transcript, findings in zip(transcripts, found, strict=True)
    ]
    return arrow().RecordBatch.from_pylist(rows, schema=schema())


def _chosen(transcripts: list[Transcript], found: list[list[Finding]]) -> set[int]:
    """Return the `id()` of findings to store as examples: pseudorandom, at most one per conversation and detector."""
    candidates: dict[str, list[tuple[bytes, int]]] = {}
    for transcript, findings in zip(transcripts, found, strict=True):
        drawn = draw(transcript.id)
        seen: set[str] = set()
        for finding in findings:
            if finding.detector not in seen and finding.index >= 0:
                seen.add(finding.detector)
                candidates.setdefault(finding.detector, []).append((drawn, id(finding)))
    return {finding for of in candidates.values() for _, finding in sorted(of)[:EXAMPLES]}


def draw(id: str) -> bytes:
    """Return a pseudorandom key for a conversation; the same id always gives the same key."""
    return hashlib.blake2b(id.encode("utf-8", "replace"), digest_size=8).digest()


def _row(transcript: Transcript, finding: Finding, example: bool) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.structs.asdict(finding)
    del row["confirmed"]
    if example:
        before = transcript.messages[finding.index - 1].content if finding.index > 0 else ""
        row["before"] = before if len(before) <= CONTEXT_CHARS else f"{before[:CONTEXT_CHARS]} …"
        row["excerpt"] = around(transcript.messages[finding.index].content, finding.evidence)
    return row


def around(text: str, evidence: str) -> str:
    """Return a message. If it is long, return only an excerpt around the evidence."""
    if len(text) <= EXCERPT_CHARS:
        return text
    at = max(0, text.find(evidence)) if evidence else 0
    start = max(0, min(at - EXCERPT_CHARS // 4, len(text) - EXCERPT_CHARS))
    end = start + EXCERPT_CHARS
    return ("… " if start else "") + text[start:end] + (" …" if end < len(text) else "")
