"""Studies of a run, and comparisons of two runs of the same items.

The detectors' findings are stored in the run's folder, shared with `camel study`, so the detectors run only once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from camel.core.errors import InputError
from camel.core.model import Model
from camel.detectors import DETECTORS
from camel.evaluation.branch_report import SURE
from camel.evaluation.contest_records import AgentsConfig, AskedModel, Group
from camel.evaluation.findings import Findings, Looker, study_folder
from camel.generation.config import read_config
from camel.jobs.budget import Budget
from camel.jobs.job import KEPT
from camel.library.execution import finish_job
from camel.models.spec import ModelSpec, spec_of
from camel.reports.intervals import Difference, Rate, holm, paired, wilson
from camel.reports.numbers import percent, points
from camel.runs.reader import RunReader
from camel.storage import inside
from camel.storage.processes import cores

if TYPE_CHECKING:
    from camel.evaluation.results import Evaluation
    from camel.evaluation.study import Study


DONE = "ended_done"
"""Name of a measure that is counted like a behavior: that a conversation ended as done."""


class Effect(msgspec.Struct, frozen=True):
    """The difference of the rates of one behavior in two runs."""

    measure: str
    title: str
    rate: Rate
    """Rate of the behavior in run `b`."""
    difference: Difference
    """Rate in run `b` minus rate in run `a`."""
    adjusted: float
    """The p-value of the difference, corrected for the number of comparisons."""


class RunComparison(msgspec.Struct, frozen=True):
    """The comparison of two runs. `print` shows it as a table."""

    a: str
    b: str
    pairs: int
    """Number of conversations that exist in both runs."""
    rates: dict[str, Rate]
    """Rate of each behavior in run `a`, by name."""
    effects: list[Effect]
    """Rate of each behavior in run `b`, and its difference over the conversations that exist in both runs."""
    judged: Evaluation | None = None
    """The judge's results, if there was a judge. The report is in the folder `out`."""

    def __str__(self) -> str:
        lines = [f"{self.a} and {self.b}: {self.pairs:,} conversations in both"]
        for one in self.effects:
            rates = f"{percent(self.rates[one.measure].rate):>5} → {percent(one.rate.rate):>5}"
            difference = f"{points(one.difference.difference):>4} points{' *' if one.adjusted < SURE else ''}"
            lines.append(f"  {one.title:<28} {rates}  {difference}")
        for row in self.judged.headline if self.judged else ():
            won, lost = percent(row.shares.wins.rate), percent(row.shares.losses.rate)
            lines.append(f"  judged: {row.a} better in {won}, {row.b} in {lost}, otherwise equal")
        return "\n".join(lines)


def study(
    run: str | Path,
    *,
    out: str | Path = "",
    judge: Model | str | None = None,
    sample: int = 100,
    acknowledge: Collection[str] = (),
    where: str = "",
    progress: bool = True,
    **limits: Any,
) -> Study:
    """Measure how often each behavior occurs in a run, and write the page of `camel study` to `out` (default: RUN/study).

        for one in camel.study("runs/trial").behaviors:
            print(one.title, one.conversations.rate)

    A `judge` checks for `sample` conversations whether the task was done when they ended as done. `limits`: see `run_job`.
    """
    from camel.evaluation.study_job import StudyJob  # needs the extra study

    asked, models = _judge(judge)
    job = StudyJob(
        str(out or study_folder(RunReader(run).folder)),
        str(run),
        processes=cores(),
        judge=asked,
        sample=sample,
        acknowledge=tuple(acknowledge),
        where=where,
        models=models,
    )
    return finish_job(job, progress=progress, **limits)


def compare(
    a: str | Path,
    b: str | Path,
    *,
    judge: Model | str | None = None,
    tasks: int = 100,
    seed: int = 0,
    out: str | Path = "",
    progress: bool = True,
    **limits: Any,
) -> RunComparison:
    """Compare two runs of the same items, such as one configuration with two models: `print(camel.compare("runs/a", "runs/b"))`.

    Conversations with the same id are compared: how often the detectors find each behavior, and how often they end as done.
    That needs no calls. A `judge`, a model or its name, also decides for `tasks` of them which run solved the task better, in
    both orders; its report is written to `out`. `limits` are those of `run_job`, such as `budget_usd`.
    """
    first, second = (_outcomes(run, progress) for run in (a, b))
    ids = first.keys() & second.keys()
    if not ids:
        raise InputError(f"{a} and {b} share no conversation id: compare runs of the same scenario or rows")
    names = _names(str(a), str(b))
    measures = [
        name for name in (*DETECTORS, DONE) if any(name in one for one in (*first.values(), *second.values()))
    ]
    differences = [
        paired(
            sum(name in first[id] and name not in second[id] for id in ids),
            sum(name not in first[id] and name in second[id] for id in ids),
            len(ids),
        )
        for name in measures
    ]
    rates, others = (
        {name: wilson(sum(name in one for one in run.values()), len(run)) for name in measures}
        for run in (first, second)
    )
    effects = [
        Effect(
            name, DETECTORS[name].title if name in DETECTORS else "Ended as done", others[name], difference, p
        )
        for name, difference, p in zip(
            measures, differences, holm([one.p for one in differences]), strict=True
        )
    ]
    asked, models = _judge(judge)
    judged = None
    if asked is not None:
        if not out:
            raise InputError("out is missing: pass the folder of the judge's report, such as out='compared'")
        from camel.evaluation.agents import AgentsEvaluation  # needs the extra evaluate

        contest = Group(names[0], dict(zip(names, (str(a), str(b)), strict=True)))
        config = AgentsConfig(tasks=tasks, seed=seed)
        job = AgentsEvaluation(str(out), (contest,), config, models, asked, {}, (asked,))
        judged = finish_job(job, progress=progress, **limits)
    return RunComparison(*names, len(ids), rates, effects, judged)


def read_judges(names: Sequence[str], *, batch: bool = False) -> tuple[list[str | ModelSpec], Budget]:
    """Return the judges in `names`. The path of a configuration, such as `camel.toml`, is replaced by its judges or its model.

    Also returns the judges' budget, if a configuration has one. `batch` applies to judges of configurations.
    """
    found: list[str | ModelSpec] = []
    budget = Budget()
    for name in names:
        if name.endswith(".toml"):
            config = read_config(Path(name))
            found += [msgspec.structs.replace(one, batch=one.batch or batch) for one in config.judges]
            budget = config.judge.budget if config.judge else budget
        else:
            found.append(name)
    return found, budget


def _judge(judge: Model | str | None) -> tuple[AskedModel | None, dict[str, Model | ModelSpec]]:
    """Return the description of a judge, and the models of its job. Return None and no models if there is no judge."""
    if judge is None:
        return None, {}
    model = read_judges([judge])[0][0] if isinstance(judge, str) else judge
    model = spec_of(model)
    if isinstance(model, ModelSpec):
        return AskedModel(model.name, "judge", model.window, model.weights), {"judge": model}
    return AskedModel(model.name, "judge", model.context_tokens), {"judge": model}


def _outcomes(run: str | Path, progress: bool) -> dict[str, Collection[str]]:
    """Run the detectors on a run, and return the behaviors, and perhaps `DONE`, of each conversation."""
    records = RunReader(run)
    kept = inside.path(study_folder(records.folder), KEPT)
    finish_job(Findings(str(kept), records.folder.address, cores()), progress=progress)
    shown: dict[str, Collection[str]] = {}
    for one in Looker(records, kept).tables():
        columns = (one.table[name].to_pylist() for name in ("id", "stop", "findings"))
        for id, stop, findings in zip(*columns, strict=True):
            shown[id] = {finding["detector"] for finding in findings} | ({DONE} if stop == "done" else set())
    return shown


def _names(a: str, b: str) -> tuple[str, str]:
    """Return the last parts of two paths as names. Return the whole paths if these would be equal."""
    short = Path(a).name, Path(b).name
    return short if short[0] != short[1] else (a, b)
