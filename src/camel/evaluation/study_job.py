"""A study as a job: the detectors scan a run, then a judge sees some of its conversations."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as fields_replaced
from functools import cached_property
from pathlib import Path

from msgspec.structs import replace

from camel.core.errors import InputError
from camel.core.expressions import Expression, parse_expression
from camel.core.model import Model
from camel.evaluation.deserved import Judging
from camel.evaluation.findings import Looker
from camel.evaluation.study import Gatherer, Study
from camel.evaluation.study_report import report
from camel.evaluation.windows import AskedModel
from camel.jobs.job import KEPT, Job, Stage, Step
from camel.jobs.ledger import MONEY
from camel.jobs.status import check_finished
from camel.models.spec import ModelSpec
from camel.query.columns import known_columns, select_by_shard
from camel.record.arrow import read_shard
from camel.record.parquet import arrow
from camel.record.release import Release, check_labels
from camel.reports.report_files import write_report
from camel.runs.canary import canary_of
from camel.runs.reader import RunReader
from camel.runs.run import RunFolder
from camel.storage import inside
from camel.storage.store import absolute_place


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
                f"'{self.run}' has no finished conversations yet: camel run status {self.run} shows its progress"
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
        write_report(Path(self.out), "study", report(study), study.to_json())
        return study

    def absolute(self) -> StudyJob:
        """Return a copy with absolute paths."""
        return fields_replaced(self, out=absolute_place(self.out), run=absolute_place(self.run))

    @property
    def title(self) -> str:
        """The name of the run."""
        return Path(self.run).name
