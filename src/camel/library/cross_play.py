"""`cross_play`: whether outcomes depend on the model of the user, of the assistant, or on the pair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

from camel.core.errors import InputError
from camel.core.model import Model
from camel.core.transcript import Transcript
from camel.evaluation.cross_play_report import NAME, CrossPlayFigures, CrossPlayOutcome, report
from camel.evaluation.findings import Findings, Looked, Looker, study_folder
from camel.jobs.job import KEPT, Job, Step
from camel.library.branches import Check, outcome
from camel.library.execution import finish_job
from camel.models.spec import ModelSpec
from camel.query.columns import narrow
from camel.reports.html import write_report
from camel.runs.reader import RunReader
from camel.runs.run import RunFolder
from camel.runs.scores import with_scores
from camel.storage import inside
from camel.storage.processes import cores

Heated = tuple[str, float | None]
"""A model and its temperature."""


def cross_play(
    runs: str | Path | RunReader | Sequence[str | Path | RunReader],
    outcomes: Sequence[Check] = (),
    *,
    half_width: float = 0.05,
    where: str = "",
    out: str | Path = "",
    progress: bool = True,
) -> CrossPlayFigures:
    """Compare the models that play user and assistant, over one run with several models per seat, or over several runs.

        made = camel.cross_play(["runs/aa", "runs/ab", "runs/ba", "runs/bb"], outcomes=["done", "role_flipping"])
        made["done"]["user"].contrasts

    Every model that plays the user must meet every model that plays the assistant. `outcomes` are endings, detectors,
    `messages`, `tokens`, `score.NAME` or functions of a transcript that return a number, a bool or None. Default: all endings,
    findings and scores that occur, and `messages`. `half_width` is that of the intervals for which the number of conversations
    is computed, and `where` a filter expression. The report is written to `out`, by default the folder cross-play of the first
    run.
    """
    several = [runs] if isinstance(runs, str | Path | RunReader) else runs
    return finish_job(cross_play_job(several, outcomes, half_width, where, out), progress=progress)


def cross_play_job(runs: Sequence[str | Path | RunReader], outcomes: Sequence[Check], half_width: float, where: str, out: str | Path) -> CrossPlay:  # fmt: skip
    """Return the job of `cross_play`."""
    readers = [one if isinstance(one, RunReader) else RunReader(one) for one in runs]
    if not readers or not 0 < half_width < float("inf"):
        raise InputError(
            f"the half-width must be above 0, not {half_width}" if readers else "there is no run"
        )
    by_name = {getattr(check, "__name__", str(check)): outcome(check) for check in outcomes}
    if len(by_name) < len(outcomes) or len({one.folder.address for one in readers}) < len(readers):
        raise InputError("a run or the name of an outcome is given twice: remove one")
    place = out or study_folder(readers[0].folder).with_name(NAME)
    return CrossPlay(tuple(readers), str(place), by_name, half_width, where)


@dataclass(frozen=True)
class CrossPlay(Job):
    """The job of `cross_play`: runs the detectors and writes the report."""

    name = NAME
    runs: tuple[RunReader, ...]
    place: str
    checks: Mapping[str, Callable[[Transcript], float | bool | None]]
    """Functions of a transcript by the names of the outcomes. Empty: all that occur."""
    half_width: float = 0.05
    where: str = ""
    models: Mapping[str, Model | ModelSpec] = field(default_factory=dict[str, Model | ModelSpec], init=False)

    def stages(self, run: RunFolder) -> Iterator[Step]:
        """Yield the detectors' scan of each run, if all findings are needed. It is shared with `camel study`."""
        for one in () if self.checks else self.runs:
            yield Findings(str(_kept(one)), one.folder.address, cores())

    def result(self, run: RunFolder) -> CrossPlayFigures:
        """Compute the figures, write the report, and return the figures."""
        from camel.evaluation.cross_play import Pair, adjust, analyze  # needs the extra study

        played, failed = list[tuple[list[Heated], str, dict[str, float]]](), 0
        for reader in self.runs:
            found = {} if self.checks else _detected(Looker(reader, _kept(reader)).tables())
            for one in with_scores(narrow(reader, self.where)):
                if one.excluded:
                    failed += 1
                    continue
                own = {speaker.name: speaker for speaker in one.speakers}
                if not {"user", "assistant"} <= own.keys():
                    raise InputError(f"conversation {one.id} has no user and assistant: use runs of role plays")  # fmt: skip
                seats = own["user"], own["assistant"]
                task = "\n".join((seats[0].role, seats[1].role, one.task.original))
                played.append(([(seat.model, seat.sampling.temperature) for seat in seats], task, self._outcomes(one, found.get(one.id, ()))))  # fmt: skip
        if not played:
            raise InputError("there is no finished conversation to compare")
        users, assistants = (_names([models[side] for models, _, _ in played]) for side in (0, 1))
        made = list[CrossPlayOutcome]()
        for name in self.checks or dict.fromkeys(name for _, _, values in played for name in values):
            usual = None if self.checks or name.startswith("score.") else 0.0  # what did not occur
            values: dict[Pair, dict[str, list[float]]] = {}
            for (user, assistant), task, own in played:
                cell = values.setdefault((users[user], assistants[assistant]), {})
                if (value := own.get(name, usual)) is not None:
                    cell.setdefault(task, []).append(value)
            equal = len({value for cell in values.values() for found in cell.values() for value in found}) < 2
            if self.checks or not equal or (name == "messages" and not made):
                try:
                    made.append(analyze(name, values, self.half_width))
                except InputError:
                    if not name.startswith("score.") or self.checks:  # others need not exist for all pairs
                        raise
        counts = len(played), failed, self.half_width
        figures = CrossPlayFigures(sorted(users.values()), sorted(assistants.values()), *counts, adjust(made))
        write_report(run.root, report(figures), figures)
        return figures

    def _outcomes(self, one: Transcript, found: Collection[str]) -> dict[str, float]:
        """Return the outcomes of a conversation by name."""
        if self.checks:
            made = {name: check(one) for name, check in self.checks.items()}
        else:
            names = [*((one.stop.reason,) if one.stop else ()), *found]
            scores = {f"score.{name}": score.value for name, score in one.scores.items()}
            made = {**dict.fromkeys(names, 1.0), "messages": len(one.messages), **scores}
        return {name: float(value) for name, value in made.items() if value is not None and isfinite(value)}


def _detected(looked: Iterable[Looked]) -> dict[str, list[str]]:
    """Return the names of the behaviors that were found in each conversation, by its id."""
    made: dict[str, list[str]] = {}
    for one in looked:
        for id, found in zip(*(one.table[name].to_pylist() for name in ("id", "findings")), strict=True):
            made[id] = sorted({finding["detector"] for finding in found})
    return made


def _kept(run: RunReader) -> Path:
    return inside.path(study_folder(run.folder), KEPT)


def _names(models: Collection[Heated]) -> dict[Heated, str]:
    """Return the names of a seat's models. A model with several temperatures has several names."""
    often = Counter(name for name, _ in {*models})
    return {one: f"{one[0] or 'unknown model'}{f' at {one[1]}'.replace('None', 'its default') if often[one[0]] > 1 else ''}" for one in models}  # fmt: skip
