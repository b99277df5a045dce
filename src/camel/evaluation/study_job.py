"""A study as a job: the detectors scan a run, then a judge sees some of its conversations."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from operator import attrgetter
from pathlib import Path

import msgspec
from msgspec.structs import replace

from camel.core.errors import CamelError, InputError
from camel.core.expressions import Expression, parse_expression
from camel.core.history import estimate_tokens
from camel.core.message import Sampling, Usage
from camel.core.model import Model
from camel.core.rubric import YES_NO, Rubric
from camel.core.transcript import Transcript
from camel.engine.stage import write_lines
from camel.evaluation.contest_records import AskedModel
from camel.evaluation.findings import Looker
from camel.evaluation.study import Candidate, Deserved, Gatherer, JudgedExample, Study
from camel.evaluation.study_report import report
from camel.jobs.item import Item
from camel.jobs.job import KEPT, Job, Stage, Step
from camel.jobs.ledger import MONEY
from camel.jobs.status import check_finished
from camel.models.spec import ModelSpec
from camel.query.columns import known_columns, select_by_shard
from camel.record.arrow import read_shard
from camel.record.parquet import arrow
from camel.record.release import Release, check_labels
from camel.reports.html import write_report
from camel.reports.intervals import wilson
from camel.runs.canary import canary_of
from camel.runs.markers import Marker
from camel.runs.reader import RunReader
from camel.runs.run import RunFolder
from camel.storage import inside

STAGE = "deserved-"
"""Prefix of the stage's name. A hash of the question, the judge and the sample follows."""
ASKS = 3
PER_SHARD = 10
TOKENS = 120
"""Maximum number of tokens of an answer."""
SAMPLING = Sampling(temperature=0.0, max_tokens=TOKENS)
SHOWN = 6
"""Half of this number of verdicts is shown of each kind: no, yes, undecided."""


class DeservedVerdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """A judge's verdict on one conversation."""

    id: str
    task: str
    deserved: bool | None
    """Whether the task was done. None if the judge did not decide."""
    reason: str
    usage: Usage
    failed: str = ""
    """Why the call to the judge failed. Empty if it did not fail."""


class Judging:
    """Asks a judge whether conversations that declared their task done had done it, for a sample of a run.

    A judge that answers neither yes nor no is asked again, up to `ASKS` times in all. After that the conversation counts as
    undecided.
    """

    def __init__(self, run: RunReader, kept: Path, sample: Sequence[Candidate], judge: AskedModel) -> None:
        self.run, self.folder, self._judge = run, RunFolder(kept), judge
        # In the order in which they are stored, so that each shard is read once.
        self.sample = sorted(sample, key=lambda one: (one.shard, one.row))
        text = (Path(__file__).parent / "deserved.txt").read_text("utf-8").strip()
        self.rubric = Rubric(text, YES_NO, sampling=SAMPLING, asks=ASKS)
        ids = [one.id for one in self.sample]
        asked = [self.rubric.identity(), judge.name, ids, run.settings.fingerprint]
        self.fingerprint = hashlib.sha256(msgspec.json.encode(asked)).hexdigest()[:16]
        self.name = STAGE + self.fingerprint[:12]
        self._places = {marker.shard: place for place, marker in enumerate(run.markers)}
        self._shard = lru_cache(maxsize=2)(run.shard)

    def estimate(self, calls: int) -> Usage:
        """Estimate the usage of `calls` calls, from about 20 prompts of the sample and answers of half the maximum length."""
        some = range(0, len(self.sample), max(1, len(self.sample) // 20))
        sizes = [
            estimate_tokens(self.rubric.question(self._transcript(index), self._judge.window))
            for index in some
        ]
        # `estimate_tokens` assumes three bytes per token, which is about 25% too many tokens for these prompts.
        prompt = calls * sum(sizes) * 4 // (5 * len(sizes))
        return Usage(prompt, calls * TOKENS // 2, calls=calls)

    def left(self) -> int:
        """Return the number of conversations that are not judged yet."""
        done = self.folder.markers(self.name, self.folder.committed(self.name))
        return len(self.sample) - sum(marker.rows for marker in done)

    def stage(self) -> Stage:
        """Return the stage that asks the judge."""
        return Stage(
            name=self.name,
            count=len(self.sample),
            work=self._work,
            write=write_lines,
            failed=self._failed,
            failure=attrgetter("failed"),
            id=lambda index: self.sample[index].id,
            read=self._verdicts_in,
            fingerprint=self.fingerprint,
            seat=self._judge.seat,
            suffix=".jsonl",
            shard_size=PER_SHARD,
        )

    def verdicts(self) -> list[DeservedVerdict]:
        """Return the verdicts so far."""
        said: list[DeservedVerdict] = []
        for marker in self.folder.markers(self.name, sorted(self.folder.committed(self.name))):
            said += self._verdicts_in(marker)
        return said

    def _verdicts_in(self, marker: Marker) -> list[DeservedVerdict]:
        return msgspec.json.Decoder(DeservedVerdict).decode_lines(self.folder.read(marker.file))

    def result(self, ended_done: int, money: float | None = None) -> Deserved:
        """Return the figures of the verdicts. `ended_done` is the number of conversations of the run that ended as done."""
        said = self.verdicts()
        decided = [one for one in said if one.deserved is not None]
        usage = sum((one.usage for one in said), Usage())
        # Some of each kind, in the order in which the sample was drawn.
        order = {one.id: one.drawn for one in self.sample}
        drawn = sorted(said, key=lambda one: order[one.id])
        examples = [
            one
            for kind in (False, True, None)
            for one in [v for v in drawn if v.deserved is kind][: SHOWN // 2]
        ]
        return Deserved(
            wilson(sum(one.deserved is True for one in decided), len(decided)),
            len(said),
            len(said) - len(decided),
            ended_done,
            self._judge.name,
            usage,
            money,
            [JudgedExample(one.id, one.task, one.deserved, one.reason) for one in examples],
        )

    def _transcript(self, index: int) -> Transcript:
        one = self.sample[index]
        return self._shard(self._places[one.shard])[one.row]

    async def _work(self, item: Item) -> DeservedVerdict:
        model = item.model(self._judge.seat)
        said = await self.rubric.rate(model, self._transcript(item.index), f"{item.id}-judge")
        return self._verdict(item, None if said.rating is None else said.rating.value == 1, said.text)

    def _failed(self, item: Item, error: CamelError) -> DeservedVerdict:
        why = f"{type(error).__name__}: {error}"[:500]
        return self._verdict(item, None, f"the call to the judge failed: {why}", why)

    def _verdict(self, item: Item, deserved: bool | None, answer: str, failed: str = "") -> DeservedVerdict:
        task = self._transcript(item.index).task.text
        return DeservedVerdict(item.id, task[:1_000], deserved, answer[:1_000], item.usage, failed)


@dataclass(frozen=True)
class StudyJob(Job):
    """A job that studies a run."""

    name = "study"
    out: str
    """The folder of the report. Findings and verdicts are stored in a subfolder."""
    run: str
    processes: int = 1
    judge: AskedModel | None = None
    """The model that judges whether conversations that ended as done had done their task. None for no judge."""
    sample: int = 100
    """Number of conversations that the judge sees."""
    acknowledge: tuple[str, ...] = ()
    """Restricted labels, such as `misalignment`, whose conversations may be studied."""
    where: str = ""
    """A filter expression that selects the conversations to count."""
    models: Mapping[str, Model | ModelSpec] = field(default_factory=dict[str, Model | ModelSpec])
    place: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", str(inside.path(Path(self.out), KEPT)))

    def open(self, accept: Collection[str] = ()) -> RunFolder:
        """Open the folder of findings and verdicts. Raises an `InputError` if the run cannot be studied."""
        if not len(RunReader(self.run)):
            raise InputError(
                f"'{self.run}' has no finished conversations yet: camel run status {shlex.quote(self.run)} shows its progress"
            )
        if self.judge is not None:
            check_finished(self.run, "judged")
        self._expression  # noqa: B018 - raises if it is malformed
        self._labels  # noqa: B018 - raises for labels that are not acknowledged, before anything is shown or sent
        return super().open(accept)

    @property
    def _release(self) -> Release:
        known = bool(self.acknowledge)
        return Release(known, canary_of(RunReader(self.run).folder) if known else "")

    @cached_property
    def _labels(self) -> list[str]:
        """The restricted labels in the run."""
        found: set[str] = set()
        run, release = RunReader(self.run), self._release
        with run.folder.opened(part.file for part in run.parts) as files:
            for file in files:
                table = read_shard(file, ["id", "labels"])
                for id, labels in zip(table["id"].to_pylist(), table["labels"].to_pylist(), strict=True):
                    found |= check_labels(id, labels or (), release)
        return sorted(found)

    @cached_property
    def _expression(self) -> Expression | None:
        return (
            parse_expression(self.where, known_columns(RunReader(self.run))) if self.where.strip() else None
        )

    @cached_property
    def _looker(self) -> Looker:
        return Looker(RunReader(self.run), Path(self.place), processes=self.processes)

    @cached_property
    def _found(self) -> tuple[Study, Gatherer]:
        settings, tables = self._looker.run.settings, self._looker.tables()
        if self._expression:
            chosen = dict(select_by_shard(self._looker.run, self._expression))
            shards = ((one, chosen.get(one.shard, [])) for one in tables)
            tables = (
                one._replace(table=one.table.take(arrow().array(rows, "int64")), rows=rows)
                for one, rows in shards
            )
        gathered = Gatherer(tables)
        study = gathered.study(
            run=self._looker.run.folder.address,
            scenario=Path(str(settings.config.get("scenario", ""))).name,
            fingerprint=settings.fingerprint,
        )
        return study, gathered

    def judging(self) -> Judging | None:
        """Return the judging of a sample. Return None if there is no judge or no conversation ended as done. Call it after the
        scan."""
        drawn = self._found[1].done[: self.sample]
        if self.judge is None or not drawn:
            return None
        return Judging(self._looker.run, Path(self.place), drawn, self.judge)

    def judging_known(self) -> Judging | None:
        """Return the judging of a sample if all shards are already scanned. Otherwise return None."""
        known = self._looker.folder.committed(self._looker.name) >= {
            one.shard for one in self._looker.run.markers
        }
        try:
            return self.judging() if known else None
        except InputError:  # a shard of the run was rewritten since, and is scanned again first
            return None

    def outline(self, run: RunFolder) -> Sequence[Stage]:
        """Return the stage that asks the judge, so that failed questions can be asked again. It is empty before the scan is
        complete."""
        judging = self.judging_known()
        return () if judging is None else [judging.stage()]

    def stages(self, run: RunFolder) -> Iterator[Step]:
        """Yield the stage that runs the detectors, then the stage that asks the judge."""
        yield from self._looker.stages()
        if judging := self.judging():
            yield judging.stage()

    def result(self, run: RunFolder) -> Study:
        """Compute the figures of the study, write the report, and return the figures."""
        study, gathered = self._found
        if judging := self.judging():
            markers = run.markers(judging.name, sorted(run.committed(judging.name)))
            paid = [marker.totals.get(MONEY) for marker in markers]
            money = None if None in paid else sum(one or 0.0 for one in paid)
            study = replace(study, deserved=judging.result(gathered.ended_done, money))
        study = replace(study, labels=self._labels, canary=self._release.canary if self._labels else "")
        write_report(Path(self.out), report(study), study)
        return study

    @property
    def title(self) -> str:
        """The name of the run."""
        return Path(self.run).name
