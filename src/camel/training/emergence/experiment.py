"""The emergence study as a job: questions, trainings, answers and verdicts.

    kept/        stages of the engine with all replies: questions, answers, verdicts
    questions/   the questions, one file per domain
    models/      the trainings of the chain; a hash of all settings and data is part of the name of each folder
    humaneval/   samples and verdicts of each model, if HumanEval is part of the study

The one decision to know: these folders are the only state. Each part finds out from its folder what is done, so the same
command resumes a study after a kill, after it was made larger, and after a training was removed.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, get_args

import msgspec

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.core.message import Usage
from camel.core.model import Model, Price
from camel.engine.halt import Halted
from camel.engine.stage import write_lines
from camel.evaluation.contest import Contest
from camel.evaluation.contest_records import AgentsConfig, AskedModel, Group, StepNeed
from camel.evaluation.humaneval.records import HumanEvalConfig, prompt_text
from camel.evaluation.humaneval.solving import HumanEval
from camel.evaluation.report import write_evidence
from camel.evaluation.report_table import STEPS
from camel.jobs.item import Item
from camel.jobs.job import KEPT, Job, Stage, Step
from camel.models.connect import NamedModel, label
from camel.models.guided import Guide
from camel.models.local import LocalServer, Say, ServedModel, find_model, weights_digest
from camel.models.prices import FREE, find
from camel.models.spec import ModelSpec, find_spec, read_name
from camel.models.trust import trusted_hosts
from camel.reports.html import write_report
from camel.runs.markers import marker_name
from camel.runs.run import RunFolder
from camel.sandbox.process import Sandbox
from camel.training.config import TrainConfig, made_config
from camel.training.emergence.emergence_config import EmergenceConfig
from camel.training.emergence.emergence_report import report
from camel.training.emergence.questions import Questions
from camel.training.emergence.results import Figures, figures
from camel.training.launch import launched as train
from camel.training.stored_rows import Rows
from camel.training.train import CONFIG, RESULT, Trained
from camel.training.weights import GGUF, MERGED, check_template, converter, template_text, to_gguf

PARALLEL = 2
"""Maximum number of calls in flight to a model that the study serves itself."""


class ModelPlace(NamedTuple):
    """The location of a model: a path or an endpoint."""

    name: str
    """Name of the model in requests and in price lists."""
    path: Path | None
    """A GGUF file or a folder of transformers. None for a model at an endpoint."""
    url: str = ""
    """URL of the model's endpoint. Empty for the default endpoint of the study."""

    @property
    def label(self) -> str:
        """The name of the model in reports, with the host of its endpoint."""
        return label(self.name, self.url)


def find_place(name: str, say: Say) -> ModelPlace:
    """Return the location of a model. `name` is a folder or a name as in `ModelSpec`. The `local` model is downloaded if
    needed."""
    path, (label, url, file) = Path(name), read_name(name)
    if path.is_dir():
        return ModelPlace(path.resolve().name, trained(path) or path)
    if not file:
        return ModelPlace(label, None, url)
    path = ModelSpec(name).server(say=say).model_path or find_model(say)
    return ModelPlace(path.parent.name if path.name == GGUF else label.removesuffix(".gguf"), path)


def trained(folder: Path) -> Path | None:
    """Return the GGUF file of a training, or None if the training is not finished."""
    return folder / GGUF if (folder / RESULT).is_file() and (folder / GGUF).is_file() else None


def version_of(place: ModelPlace) -> str:
    """Return a hash that changes when the model is trained again. It is empty for a model at an endpoint."""
    if place.path is None:
        return ""
    folder, digest = place.path.parent, hashlib.sha256()
    if place.path.name == GGUF and (folder / RESULT).is_file():
        # Settings, losses and seconds differ between any two trainings, and are faster to hash than the weights.
        for name in (CONFIG, RESULT):
            digest.update((folder / name).read_bytes())
    elif place.path.is_file():
        digest.update(weights_digest(place.path).encode())
    else:
        for file in sorted(_folder(place.path).glob("*.safetensors")):
            digest.update(f"{file.name} {file.stat().st_size} {file.stat().st_mtime_ns}".encode())
    return digest.hexdigest()[:16]


def _folder(path: Path) -> Path:
    """Return the folder with the model in the format of transformers. `path` is that folder or the folder of a training."""
    found = path / MERGED if (path / MERGED).is_dir() else path
    if not (found / "config.json").is_file():
        raise InputError(f"'{path}' contains no model. Use a GGUF file or a folder for transformers")
    return found


def lend(
    place: ModelPlace,
    *,
    scratch: Path,
    base_url: str = "",
    guided: str = "",
    context: int = 4_096,
    template: str = "",
    say: Say = lambda line: None,
) -> Model:
    """Return a client for the model at a location. A folder of transformers is converted to GGUF once, in the folder
    `scratch`. `template` is the text of a chat template for a model that is served here."""
    if guided and guided not in get_args(Guide):
        raise InputError(f"guided must be one of {', '.join(get_args(Guide))}, not {shown(guided)}")
    if place.path is None:
        guide: Guide | None = guided or None  # pyright: ignore[reportAssignmentType]
        trusted = trusted_hosts() if place.url else None  # the URL is from a file, unless it was typed
        url = place.url or base_url
        model = find_spec(place.name, base_url=url, guided=guide, trusted=trusted).open()
        return NamedModel(model, place.label, find(place.name))

    def server() -> LocalServer:
        path = _file(place, scratch, say)
        return LocalServer(
            model_path=path,
            alias=place.name,
            context_tokens=context,
            parallel=PARALLEL,
            chat_template=template,
        )

    return ServedModel(place.label, server, context, say=say)


def _file(place: ModelPlace, scratch: Path, say: Say) -> Path:
    assert place.path is not None
    if not place.path.is_dir():
        return place.path
    made = scratch / f"{version_of(place)}.gguf"
    if not made.is_file():
        say(f"writing {place.name} as a GGUF file")
        to_gguf(_folder(place.path), made)
    return made


MODELS, HUMANEVAL = "models", "humaneval"


class ChainMember(NamedTuple):
    """A model in the chain of models that the study compares."""

    label: str
    """Label of the model: its training data, or the name of the base model."""
    training: TrainConfig | None
    """Settings of the model's training. None if the study does not train it."""
    place: ModelPlace
    """Location of the model, or its future location if it is not trained yet."""
    ready: bool = True
    """Whether the model exists. False until its training is finished."""


class Emergence(Job):
    """An emergence study, which writes a report at its end."""

    name = "evaluate emergence"

    def __init__(
        self,
        config: EmergenceConfig,
        *,
        base_url: str = "",
        say: Callable[[str], None] = lambda line: None,
        concurrency: int = 16,
    ) -> None:
        """`base_url` is the endpoint of models that have none of their own. `say` is called with lines about progress."""
        self.config, self.out = config, Path(config.out)
        self.place = str(self.out / KEPT)
        self._base_url, self._say, self._concurrency = base_url, say, concurrency
        self._lent: dict[ModelPlace, Model] = {}
        if not config.judges:
            raise InputError("no judge is given. Set --judge to a strong model, or judges in the file")
        self._base = find_place(config.base, say)
        self.judges = [find_place(one, say) for one in dict.fromkeys(config.judges)]
        self.writer = find_place(config.writer, say) if config.writer else self.judges[0]
        self._trainings = [self._training(number) for number in range(len(config.steps))]
        trained = [one for one in self._trainings if one]
        template = trained[0].chat_template if trained else str(config.train.get("chat_template", ""))
        for model in [str(self._base.path)] * bool(self._base.path) + [one.model for one in trained[:1]]:
            check_template(model, template)
        self._template = template_text(template) if template else ""
        labels = [one.label for one in self.members()]
        if len(set(labels)) != len(labels):
            raise InputError(f"a step has the name of another model, '{labels[0]}'. Rename the step")
        self.models: Mapping[str, Model | ModelSpec] = {
            "writer": self._lend(self.writer),
            **{f"judge {place.label}": self._lend(place) for place in self.judges},
            **{one.label: self._lend(one.place) for one in self.members()},
        }
        self.questions = Questions(self.out / KEPT, config, lambda: self._asked("writer", self.writer))

    # ---------------------------------------------------------------- the chain

    def members(self) -> list[ChainMember]:
        """Return all models of the chain, the base model first."""
        found = [ChainMember(self._base.label, None, self._base)]
        for number, (step, training) in enumerate(zip(self.config.steps, self._trainings, strict=True)):
            label = self.config.label(number)
            if training is None:
                found.append(ChainMember(label, None, find_place(step.model, self._say)))
            else:
                out = Path(training.out)
                place = ModelPlace(label, out / GGUF)
                found.append(ChainMember(label, training, place, ready=trained(out) is not None))
        return found

    def matches(self) -> list[tuple[str, str]]:
        """Return the pairs of models to compare: each model with the one before it, and the last with the first."""
        labels = [one.label for one in self.members()]
        pairs = [(after, before) for before, after in pairwise(labels)]
        return [*pairs, (labels[-1], labels[0])] if self.config.ends and len(labels) > 2 else pairs

    def _training(self, number: int) -> TrainConfig | None:
        config, step = self.config, self.config.steps[number]
        if step.model:
            return None
        settings = dict(config.train)
        if wrong := {"rows", "out"} & set(settings):
            raise InputError(
                f"[train] must not contain {min(wrong)!r}. Remove it: each of the [[steps]] has its own"
            )
        recipe, model = str(settings.pop("recipe", "lora")), str(settings.pop("model", ""))
        if not model and self._base.path is None:
            raise InputError(
                "the base model is at an endpoint and cannot be trained there. Set train.model to the path of its weights"
            )
        model, rows = model or config.base, step.rows
        if not config.onward:
            if given := [one.name for one in config.steps[:number] if one.model]:
                raise InputError(
                    f"step '{step.name}' is trained on the rows of all steps so far, but step '{given[0]}' has a model instead of rows. "
                    f"Give step '{given[0]}' rows, or set onward = true, so that each step continues with the model before it"
                )
            rows = tuple(path for one in config.steps[: number + 1] for path in one.rows)
        elif number:
            before = self._training(number - 1)
            model = before.out if before else config.steps[number - 1].model
        made = made_config(recipe, {**settings, "model": model, "rows": rows})
        data = [marker.sha256 for path in rows for marker in Rows(path).markers]
        digest = hashlib.sha256(msgspec.json.encode([made.decisive(), data], order="sorted")).hexdigest()[:10]
        slug = re.sub(r"[^a-z0-9]+", "-", step.name.lower()).strip("-")[:30]
        folder = self.out / MODELS / f"{number + 1}-{slug}-{digest}"
        return msgspec.structs.replace(made, out=str(folder))

    # ---------------------------------------------------------------- models

    def served_here(self) -> set[str]:
        """Return the labels of the models that the study serves itself, which cost no money."""
        places = [*(one.place for one in self.members()), *self.judges, self.writer]
        return {place.label for place in places if place.path}

    def _lend(self, place: ModelPlace) -> Model:
        """Return a client for the model at a location. The same location always gives the same object."""
        if place not in self._lent:
            self._lent[place] = lend(
                place,
                scratch=self.out / MODELS,
                base_url=self._base_url,
                guided=self.config.guided,
                context=self.config.context,
                template=self._template if place == self._base else "",
                say=self._say,
            )
        return self._lent[place]

    def _asked(self, seat: str, place: ModelPlace, *, ready: bool = True) -> AskedModel:
        """Describe a model for the evaluation. If it is not ready, the result is for estimates only."""
        version = version_of(place) if ready else "not trained yet"
        return AskedModel(place.label, seat, self._lend(place).context_tokens, version)

    def _window(self, places: Sequence[ModelPlace]) -> int:
        """Return the maximum number of calls in flight. A local server has few slots, and further calls would wait and time out."""
        return min([self._concurrency, *(PARALLEL for one in places if one.path)])

    def contest(self) -> Contest:
        """Return the contest of answers and verdicts. Models and questions that are missing are replaced by placeholders, for
        estimates."""
        config = self.config
        writers = {one.label: self._asked(one.label, one.place, ready=one.ready) for one in self.members()}
        return Contest(
            RunFolder(self.out / KEPT),
            [Group(one.label, {}, one.name, self.questions.tasks(one)) for one in config.domains],
            AgentsConfig(
                tasks=max(one.questions for one in config.domains),
                seed=config.seed,
                repeats=config.repeats,
                judge_prompt=config.judge_prompt,
                single_shot_prompt=config.question_prompt,
                single_shot_sampling=config.answers,
                judge_sampling=config.verdicts,
                cut_replies="keep",  # a model early in the chain may not end its answers
            ),
            summarizer=self._asked(f"judge {self.judges[0].label}", self.judges[0]),
            writers=writers,
            judges=[self._asked(f"judge {one.label}", one) for one in self.judges],
            matches=self.matches(),
        )

    # ---------------------------------------------------------------- estimates

    def untrained(self) -> list[TrainConfig]:
        """Return the settings of the trainings that are not finished."""
        return [one.training for one in self.members() if one.training and not one.ready]

    def estimate(self) -> list[tuple[str, StepNeed]]:
        """Estimate the remaining calls and tokens, by step and model."""
        writing = self.questions.estimate()
        steps = [("Questions", _need(self.writer.label, writing))] if writing.calls else []
        steps += [(STEPS[need.kind], need) for need in self.contest().estimate()]
        for name, code in self.programs():
            if left := code.left():
                steps.append(("HumanEval", _need(name, code.estimate(left))))
        return steps

    def programs(self) -> Iterator[tuple[str, HumanEval]]:
        """Yield the HumanEval job of each model, if HumanEval is part of the study."""
        if not self.config.humaneval:
            return
        for one in self.members():
            asked = self._asked("", one.place, ready=one.ready)
            digest = hashlib.sha256(f"{asked.name} {asked.version}".encode()).hexdigest()[:10]
            config = HumanEvalConfig(one.label, prompt_text(), problems=self.config.problems)
            folder = str(self.out / HUMANEVAL / digest)
            window, model = self._window([one.place]), self._lend(one.place)
            yield one.label, HumanEval(folder, config, self.config.humaneval, model, window=window)

    def leaks(self) -> dict[str, dict[str, int]]:
        """Count the training rows that contain a question, by step and domain. All questions must exist."""
        found = {one.name: self.questions.leaks(one.rows) for one in self.config.steps if one.rows}
        return {name: counts for name, counts in found.items() if counts}

    # ---------------------------------------------------------------- stages

    def outline(self, run: RunFolder) -> Sequence[Stage]:
        """Return all stages except HumanEval's. Return none until all questions are written and all models are trained."""
        if self.questions.left or self.untrained():
            return ()
        return [*self.questions.stages(), *(step.stage for step in self.contest().steps)]

    def stages(self, run: RunFolder) -> Iterator[Step]:
        """Yield the stages: questions, trainings, the answers of one model after the other, verdicts, and HumanEval
        programs."""
        if self.untrained():
            converter()  # fail now if it is missing, before the questions are paid for
        with ExitStack() as stack:
            if self.config.humaneval:
                stack.enter_context(Sandbox()).check()  # before anything is paid for
        yield self._within(self.questions.stages(), [self.writer])
        self.questions.save(self.out)
        first = next((one.label for one in self.members() if not one.ready), "")
        for one in self.members():
            if one.training:
                yield self._training_stage(one, run, report_leaks=one.label == first)
        contest = self.contest()
        for one in self.members():
            yield self._within(contest.solving(one.label), [one.place])
        yield self._within(contest.judging(), self.judges)
        for _, programs in self.programs():
            yield programs

    def _within(self, stages: Sequence[Stage], places: Sequence[ModelPlace]) -> tuple[Stage, ...]:
        window = self._window(places)
        return tuple(replace(stage, concurrency=window) for stage in stages)

    def _training_stage(self, one: ChainMember, run: RunFolder, *, report_leaks: bool) -> Stage:
        """Return the stage that trains a model. If the weights are missing, it runs again even if it was committed.

        With `report_leaks`, it first reports the rows of all trainings that contain questions.
        """
        config = one.training
        assert config is not None
        name = f"train-{Path(config.out).name}"
        if not one.ready and run.is_committed(name, 0):
            run.store.remove([marker_name(name, 0)])

        async def work(item: Item) -> Trained:
            found = await asyncio.to_thread(self.leaks) if report_leaks else {}
            for step, counts in found.items():
                by_domain = ", ".join(f"{count:,} of {domain}" for domain, count in sorted(counts.items()))
                item.say(
                    f"{step}: some rows contain test questions ({by_domain}). Exclude them with camel rows --questions"
                )
            # In a thread, because it takes hours in which progress and interrupts must be handled.
            done = await asyncio.to_thread(train, config, stop=lambda: bool(item.halt.reason))
            if done is None:
                raise Halted(item.halt.reason)
            item.say(
                f"{one.label}: loss {done.first_loss:.3f} to {done.last_loss:.3f} in {done.steps:,} steps"
            )
            return done

        return Stage(
            name=name,
            count=1,
            work=work,
            write=write_lines,
            id=lambda index: one.label,
            suffix=".json",
            shard_size=1,
            concurrency=1,
        )

    def result(self, run: RunFolder) -> Figures:
        """Write the report and return the figures."""
        made, pairs, verdicts = figures(self)
        prompts = self.contest().prompts
        used = {name: prompts[name] for name in ("judge", "again", "single-shot")}
        write_evidence(self.out, used, pairs, verdicts)
        write_report(self.out, report(made), made)
        return made

    def price(self, name: str) -> Price | None:
        """Return the price of a model by its label."""
        return next((lent.price for place, lent in self._lent.items() if place.label == name), FREE)

    @property
    def title(self) -> str:
        """The labels of the models in the chain."""
        return " → ".join(one.label for one in self.members())


def _need(model: str, usage: Usage) -> StepNeed:
    prompt, reply = usage.prompt, usage.completion
    return StepNeed("answer", model, usage.calls, (prompt, prompt, prompt), (reply // 2, reply, 2 * reply))
