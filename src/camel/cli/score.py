"""`camel score`: add columns of scores to a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from camel.cli import options as shared
from camel.cli.command import MODEL_OPTIONS, Invocation, long_command
from camel.cli.options import flag, option
from camel.cli.output import table
from camel.core.errors import InputError

if TYPE_CHECKING:
    from camel.evaluation.scoring import ScoreColumn

RubricOption = Annotated[str, option("What the judge rates: a text, or a file with it.", "TEXT|FILE")]
ScaleOption = Annotated[str, option("Scale of the judge, such as 1-5, 0-10 or yes/no.", "SCALE")]
NameOption = Annotated[str, option("Name of the column of --judge, --classifier or --function.", "NAME")]
ClassifierOption = Annotated[str, option("Classifier or reward model: a name on the Hugging Face hub, or a folder.", "NAME")]  # fmt: skip
LabelOption = Annotated[str, option("Label of the classifier whose probability is the score.", "LABEL")]
FunctionOption = Annotated[str, option("Your function of a transcript.", "MODULE:NAME")]


@long_command(MODEL_OPTIONS)
def score(
    call: Invocation,
    run: shared.RunPlace,
    judge: shared.Judge = None,
    rubric: RubricOption = "",
    rating_scale: ScaleOption = "1-5",
    name: NameOption = "",
    base_url: shared.BaseUrl = "",
    batch: shared.Batch = False,
    accept_change: shared.AcceptChange = None,
    classifier: ClassifierOption = "",
    label: LabelOption = "",
    function: FunctionOption = "",
    detectors: Annotated[bool, flag("--detectors", "Count the findings of each detector.")] = False,
    languages: Annotated[bool, flag("--languages", "Detect the language.")] = False,
    duplicates: Annotated[bool, flag("--duplicates", "Find exact and near duplicates.")] = False,
    questions: shared.Questions = None,
    force: shared.Force = False,
) -> None:
    """Add scores to the conversations of a run."""
    from camel.core.rubric import Rubric
    from camel.evaluation.scorers import classifier_scorer
    from camel.evaluation.scoring import ScoreJob
    from camel.jobs.progress import expect_line
    from camel.jobs.state import name_of, price_of
    from camel.library.scores import find_scorers, import_function, read_rubric
    from camel.library.studies import read_judges
    from camel.models.spec import find_spec

    judges, budget = read_judges(judge or (), batch=batch)
    if bool(judges) != bool(rubric):
        raise InputError("--judge and --rubric belong together: give both, or neither")
    if len(judges) > 1:
        raise InputError(
            f"camel score takes one --judge, not {len(judges)}. Run it once per judge, with another --name"
        )
    if name and [bool(judges), bool(classifier), bool(function)].count(True) != 1:
        raise InputError("--name names one column: give it with one of --judge, --classifier and --function")
    columns: dict[str, Any] = {"detectors": detectors, "language": languages, "duplicates": duplicates}
    if judges:
        chat = (
            find_spec(judges[0], base_url=base_url, batch=batch) if isinstance(judges[0], str) else judges[0]
        )
        columns[name or "judge"] = Rubric(read_rubric(rubric), rating_scale, chat)
    if classifier:
        columns[name or "classifier"] = classifier_scorer(classifier, label)
    if function:
        found = import_function(function)
        columns[name or str(getattr(found, "__name__", "function"))] = found
    if questions:
        columns["questions"] = questions
    job = ScoreJob(str(run), find_scorers(columns), replace=force)
    in_flight = call.concurrency or (
        2 if any(getattr(one, "is_here", False) for one in job.models.values()) else 64
    )

    def announce() -> Iterator[str]:
        for column, usage in job.estimate().items():
            model = job.models[column]
            yield expect_line("expect", name_of(model), usage, price_of(model))

    call.run(
        job,
        call.options(
            in_flight, budget=call.budget if call.budget.counts else budget, accept=accept_change or ()
        ),
        announce=announce,
        show=lambda made: _show(made),
    )


def _show(made: list[ScoreColumn]) -> None:
    rows: list[tuple[str, ...]] = []
    for one in made:
        words = ", ".join(f"{word} {count:,}" for word, count in list(one.words.items())[:3])
        mean = "" if one.mean is None else f"{one.mean:.3g}"
        rows.append((f"score.{one.name}", f"{one.scored:,}", f"{one.missing:,}", mean, words))
    table(("column", "scored", "missing", "mean or share", "words"), rows, {1, 2, 3})
