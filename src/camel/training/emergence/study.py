"""The emergence study as one piece of work: questions, trainings, answers, verdicts, in a folder.

    kept/        every answer that was paid for: questions, answers, verdicts (stages of the engine)
    questions/   the questions, a file for each domain
    models/      the trainings of the chain, each in a folder named by all that decides its weights
    humaneval/   the samples and verdicts of each model, where they were asked for

The one decision to know: nothing is remembered but what is in these folders. Each part says by itself what of it is
done, so that the same command goes on from anything: a kill, a larger study, a training that was removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec

from camel.core.errors import InputError, ServerFailed
from camel.core.message import Usage
from camel.core.model import Model, Reply, Request
from camel.engine.halt import Halt
from camel.evaluation.agents import KINDS, AgentsConfig, Contest, Group, Kind, NamedModel, StepNeed
from camel.evaluation.humaneval.campaign import Config as ProgramConfig
from camel.evaluation.humaneval.campaign import HumanEval as Programs
from camel.evaluation.humaneval.campaign import prompt_text
from camel.evaluation.humaneval.judging import ProgramJudge
from camel.evaluation.humaneval.report import HumanEvalReport as ProgramReport
from camel.evaluation.humaneval.report import default_ks, report_of
from camel.evaluation.report import STEPS
from camel.models.catalogue import ModelPrice
from camel.runs.run import RunFolder
from camel.sandbox.process import Sandbox
from camel.training.config import TrainConfig, made_config
from camel.training.emergence.config import EmergenceConfig
from camel.training.emergence.leaks import leaks
from camel.training.emergence.questions import Questions
from camel.training.emergence.serving import FREE, Lent, ModelPlace, find_place, trained, version_of
from camel.training.launch import launched as train
from camel.training.results import Step, Trained
from camel.training.stored_rows import Rows
from camel.training.train import RESULT
from camel.training.weights import converter

KEPT, MODELS, HUMANEVAL = "kept", "models", "humaneval"
LOCAL_PARALLEL = 2
"""Calls at a time of a model that is served here."""
WORDS: dict[Kind, str] = {
    "summary": "summaries",
    "answer": "answers",
    "verdict": "verdicts",
    "repeat": "repeats",
}
Metered = Callable[[str, Model, ModelPrice | None], Model]


class ChainMember(NamedTuple):
    """A model of the chain."""

    label: str
    """By the data that it has seen; the base model by its own name."""
    training: TrainConfig | None
    """How it is made here; None: it is there already."""
    place: ModelPlace | None
    """Where it is; None: it is not trained yet."""


class Emergence:
    """A study, in its folder."""

    def __init__(
        self,
        config: EmergenceConfig,
        *,
        base_url: str = "",
        metered: Metered = lambda name, model, price: model,
        say: Callable[[str], None] = lambda line: None,
        halt: Halt | None = None,
        concurrency: int = 16,
    ) -> None:
        """`base_url` is the endpoint of all models that name none; `metered` may count and stop the calls of each."""
        self.config, self.out, self.halt = config, Path(config.out), halt or Halt()
        self._base_url, self._metered, self._say, self._concurrency = base_url, metered, say, concurrency
        self._lent: dict[ModelPlace, Lent] = {}
        self.doing = ""
        """What is being done, in words."""
        self._contest: Contest | None = None
        if not config.judges:
            raise InputError("name who judges, a strong model: judges, or --judge")
        self._base = find_place(config.base, say)
        self._judges = [find_place(one, say) for one in dict.fromkeys(config.judges)]
        self._writer = find_place(config.writer, say) if config.writer else self._judges[0]
        self._trainings = [self._training(number) for number in range(len(config.steps))]
        labels = [one.label for one in self.members()]
        if len(set(labels)) != len(labels):
            raise InputError(f"two models of the chain are called {labels[0]}: name the step otherwise")
        written = any(not one.file for one in config.domains)
        self.questions = Questions(
            self.out / KEPT, config, self._named(self._writer) if written else None, self.halt
        )

    # ---------------------------------------------------------------- the chain

    def members(self) -> list[ChainMember]:
        """The models, the base model first, as far as they are there."""
        found = [ChainMember(self._base.label, None, self._base)]
        for number, (step, training) in enumerate(zip(self.config.steps, self._trainings, strict=True)):
            label = self.config.label(number)
            if training is None:
                found.append(ChainMember(label, None, find_place(step.model, self._say)))
            else:
                file = trained(Path(training.out))
                found.append(ChainMember(label, training, ModelPlace(label, file) if file else None))
        return found

    def matches(self) -> list[tuple[str, str]]:
        """Which models are compared: each with the one before, and the last with the first."""
        labels = [one.label for one in self.members()]
        pairs = [(after, before) for before, after in pairwise(labels)]
        return [*pairs, (labels[-1], labels[0])] if self.config.ends and len(labels) > 2 else pairs

    def results(self) -> Iterator[tuple[ChainMember, Trained | None]]:
        """The models, with what their trainings say."""
        for one in self.members():
            path = Path(one.training.out) / RESULT if one.training else None
            done = path is not None and path.is_file()
            yield one, msgspec.json.decode(path.read_bytes(), type=Trained) if path and done else None

    def _training(self, number: int) -> TrainConfig | None:
        config, step = self.config, self.config.steps[number]
        if step.model:
            return None
        settings = dict(config.train)
        if wrong := {"rows", "out"} & set(settings):
            raise InputError(f"train.{wrong.pop()} is each step's own: name its rows under [[steps]]")
        recipe, model = str(settings.pop("recipe", "lora")), str(settings.pop("model", ""))
        if not model and self._base.path is None:
            raise InputError(
                "the base model is at an endpoint: say where the weights are that are trained, train.model"
            )
        model, rows = model or config.base, step.rows
        if not config.onward:
            if given := [one.name for one in config.steps[:number] if one.model]:
                raise InputError(
                    f"{step.name} is trained on all data so far, and {given[0]} has a model instead of rows: "
                    "give it rows, or train onward = true"
                )
            rows = tuple(path for one in config.steps[: number + 1] for path in one.rows)
        elif number:
            before = config.steps[number - 1]
            model = before.model or self._trained_at(number - 1)
        made = made_config(recipe, {**settings, "model": model, "rows": rows})
        data = [marker.sha256 for path in rows for marker in Rows(path).markers]
        told = hashlib.sha256(msgspec.json.encode([made.decisive(), data], order="sorted")).hexdigest()[:10]
        slug = re.sub(r"[^a-z0-9]+", "-", step.name.lower()).strip("-")[:30]
        folder = self.out / MODELS / f"{number + 1}-{slug}-{told}"
        return msgspec.structs.replace(made, out=str(folder))

    def _trained_at(self, number: int) -> str:
        before = self._training(number)
        assert before is not None
        return before.out

    # ---------------------------------------------------------------- who is asked

    @property
    def writer(self) -> str:
        """Who writes the questions."""
        return self._writer.label

    @property
    def judges(self) -> list[str]:
        """Who judges."""
        return [one.label for one in self._judges]

    def served_here(self) -> set[str]:
        """The models that cost no money, by the names under which they are asked."""
        places = [*(one.place for one in self.members()), *self._judges, self._writer]
        return {place.label for place in places if place and place.path}

    def _lend(self, place: ModelPlace) -> Lent:
        """Each model once, however many parts it has."""
        if place not in self._lent:
            self._lent[place] = Lent(
                place,
                scratch=self.out / MODELS,
                base_url=self._base_url,
                guided=self.config.guided,
                context=self.config.context,
                parallel=LOCAL_PARALLEL,
                say=self._say,
            )
        return self._lent[place]

    def _named(self, place: ModelPlace) -> NamedModel:
        lent = self._lend(place)
        return NamedModel(place.label, self._metered(place.label, lent, lent.price), version_of(place))

    def _absent(self, label: str) -> NamedModel:
        """Stands for a model that is not trained yet, where it is only asked what it would cost."""
        return NamedModel(label, self._metered(label, _Absent(self.config.context), FREE), "not trained yet")

    def _window(self, places: Sequence[ModelPlace]) -> int:
        """Calls in flight: more than a server here has room for would only wait in it, and run out of time."""
        return min([self._concurrency, *(LOCAL_PARALLEL for one in places if one.path)])

    def contest(self) -> Contest:
        """The answers and verdicts of the study as it stands; what is not trained or written yet is there in number."""
        config = self.config
        writers = {
            one.label: self._named(one.place) if one.place else self._absent(one.label)
            for one in self.members()
        }
        return Contest(
            self.out / KEPT,
            [Group(one.label, {}, one.name, self.questions.tasks(one)) for one in config.domains],
            AgentsConfig(
                tasks=max(one.questions for one in config.domains),
                seed=config.seed,
                repeats=config.repeats,
                judge_prompt=config.judge_prompt,
                single_shot_prompt=config.question_prompt,
                single_shot_sampling=config.answers,
                judge_sampling=config.verdicts,
                cut_replies="keep",  # a model that is being trained may not know when to stop
            ),
            summariser=self._named(self._judges[0]),
            writers=writers,
            judges=[self._named(one) for one in self._judges],
            halt=self.halt,
            matches=self.matches(),
        )

    # ---------------------------------------------------------------- what it takes

    def untrained(self) -> list[TrainConfig]:
        """The trainings that are not over."""
        return [one.training for one in self.members() if one.training and not one.place]

    def estimate(self) -> list[tuple[str, StepNeed]]:
        """What is left to be asked will take about this, step by step and model by model."""
        writing = self.questions.estimate()
        steps = [("Questions", _need(self._writer.label, writing))] if writing.calls else []
        steps += [(STEPS[need.kind], need) for need in self.contest().estimate()]
        if self.config.humaneval:
            there = dict(self.programs(kept=False))
            for one in self.members():
                code = there.get(one.label)
                left = code.left() if code else self.config.humaneval * self.config.problems
                name = one.place.label if one.place else one.label
                if left:
                    usage = (code or next(iter(there.values()))).estimate(left)
                    steps.append(("HumanEval", _need(name, usage)))
        return steps

    def spent(self) -> dict[str, Usage]:
        """What all starts so far have used, by the names under which models are asked."""
        used = self.contest().spent()
        asked = {one.label: one.place.label for one in self.members() if one.place}
        more = [(self._writer.label, self.questions.spent())]
        more += [(asked[label], one.spent()) for label, one in self.programs(kept=False)]
        for name, usage in more:
            if usage.calls:
                used[name] = used.get(name, Usage()) + usage
        return used

    def programs(self, *, kept: bool = True) -> Iterator[tuple[str, Programs]]:
        """HumanEval of each model that is there, where it is asked for; with `kept` its folder is made."""
        if not self.config.humaneval:
            return
        for one in self.members():
            if one.place:
                _, model, version = self._named(one.place)
                told = hashlib.sha256(f"{one.place.label} {version}".encode()).hexdigest()[:10]
                config = ProgramConfig(one.label, prompt_text(), problems=self.config.problems)
                folder = self.out / HUMANEVAL / told
                yield (
                    one.label,
                    Programs(folder, config, self.config.humaneval, model, halt=self.halt, kept=kept),
                )

    def leaks(self) -> dict[str, dict[str, int]]:
        """Rows that hold a question, by the step that added them and the question's domain; once the questions are there."""
        tasks = {one.label: self.questions.tasks(one) for one in self.config.domains}
        found = {one.name: leaks(one.rows, tasks, self.out / KEPT) for one in self.config.steps if one.rows}
        return {name: counts for name, counts in found.items() if counts}

    # ---------------------------------------------------------------- doing it

    async def run(self) -> bool:
        """Do it, or go on with it; False when something stopped it."""
        if self.untrained():
            converter()  # who lacks it hears of it now, and not after the questions are paid for
        self.out.mkdir(parents=True, exist_ok=True)
        with RunFolder(self.out).locked(), contextlib.ExitStack() as stack:
            sandbox = stack.enter_context(Sandbox()) if self.config.humaneval else None
            if sandbox:
                sandbox.check()  # before anything is paid for
            return (
                await self._write_questions()
                and await self._train()
                and await self._answer()
                and await self._judge()
                and (sandbox is None or await self._run_programs(ProgramJudge(sandbox)))
            )

    async def _write_questions(self) -> bool:
        self.doing = "questions"
        async with contextlib.AsyncExitStack() as stack:
            if self.questions.left:
                await stack.enter_async_context(self._lend(self._writer).opened())
            return await self.questions.write(self.out, concurrency=self._window([self._writer]))

    async def _train(self) -> bool:
        for name, counts in (await asyncio.to_thread(self.leaks) if self.untrained() else {}).items():
            held = ", ".join(f"{count:,} of {domain}" for domain, count in sorted(counts.items()))
            self._say(
                f"{name}: rows hold questions that models are tested on ({held}); camel rows --questions leaves them out"
            )
        for one in self.members():
            if not one.training or one.place:
                continue
            if self.halt.reason:
                return False
            self.doing = f"training {one.label}"

            def notice(step: Step, label: str = one.label) -> None:
                self.doing = f"training {label}: step {step.step:,} of {step.of:,}, loss {step.loss:.3f}"

            # On a thread: it takes hours, and who looks at it or stops it is to be heard meanwhile.
            done = await asyncio.to_thread(
                train, one.training, notice=notice, stop=lambda: bool(self.halt.reason)
            )
            if done is None:
                return False
            self._say(
                f"{one.label}: loss {done.first_loss:.3f} to {done.last_loss:.3f} in {done.steps:,} steps"
            )
        return True

    async def _answer(self) -> bool:
        """One model after the other: each is served only while it is asked."""
        contest = self._contest = self.contest()
        programs = dict(self.programs())
        for one in self.members():
            assert one.place
            code = programs.get(one.label)
            left = code.left() if code else 0
            if not left and not contest.waiting(one.label):
                continue
            window = self._window([one.place])
            async with self._lend(one.place).opened():
                self.doing = f"{one.label} answers"
                if not await contest.answer(one.label, concurrency=window):
                    return False
                if code and left:
                    self.doing = f"{one.label} writes programs"
                    if not await code.sample(concurrency=window):
                        return False
        return True

    async def _judge(self) -> bool:
        assert self._contest
        self.doing = "judging"
        async with contextlib.AsyncExitStack() as stack:
            if self._contest.left():
                for place in self._judges:
                    await stack.enter_async_context(self._lend(place).opened())
            return await self._contest.run(concurrency=self._window(self._judges))

    async def _run_programs(self, judge: ProgramJudge) -> bool:
        for label, one in self.programs():
            self.doing = f"programs of {label}"
            if not await one.judge(judge):
                return False
        return True

    def line(self) -> str:
        """How it stands, in one line."""
        if self._contest is None:
            done = self.questions.total - self.questions.left
            return (
                f"questions {done:,} of {self.questions.total:,}" if self.doing == "questions" else self.doing
            )
        counts = [
            f"{WORDS[kind]} {self._contest.finished[kind]:,} of {total:,}"
            for kind in KINDS
            if (total := self._contest.total(kind))
        ]
        return " · ".join([self.doing, *counts])

    def tested(self) -> list[ProgramReport]:
        """HumanEval of each model, once everything is done."""
        return [
            report_of(
                one.config,
                one.n,
                default_ks(one.n),
                one.samples(),
                one.verdicts(),
                price=None,
                contained=True,
            )
            for _, one in self.programs()
        ]


def _need(model: str, usage: Usage) -> StepNeed:
    prompt, said = usage.prompt, usage.completion
    return StepNeed("answer", model, usage.calls, (prompt, prompt, prompt), (said // 2, said, 2 * said))


class _Absent(Model):
    def __init__(self, context_tokens: int) -> None:
        self.context_tokens = context_tokens

    async def reply(self, request: Request) -> Reply:
        raise ServerFailed("this model is not trained yet")
