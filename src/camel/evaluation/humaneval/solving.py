"""HumanEval as a job: a model writes samples, then the programs in them are judged.

The stage *samples* makes paid calls, and every reply is journaled before it is used. The stage *verdicts* runs programs on
this machine. The one decision to know: a shard of samples has one sample of every problem, so that an evaluation with more
samples continues a smaller one. Equal programs of a problem run once.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter

import msgspec
from msgspec import to_builtins

from camel._version import __version__
from camel.core.checks import shown
from camel.core.errors import CamelError, InputError
from camel.core.history import History, estimate_tokens
from camel.core.inception import fill
from camel.core.message import Usage, with_seed
from camel.core.model import Model, Request
from camel.engine.halt import Halted
from camel.engine.stage import write_lines
from camel.evaluation.humaneval.extract import extract
from camel.evaluation.humaneval.judging import NO_CODE, ProgramJudge, ProgramVerdict
from camel.evaluation.humaneval.problems import Problem, problems
from camel.evaluation.humaneval.records import (
    LIKELY_TOKENS,
    RULES,
    SAMPLES,
    VERDICTS,
    HumanEvalConfig,
    JudgedProblem,
    Sample,
)
from camel.evaluation.humaneval.report import (
    SUITES,
    WORDS,
    HumanEvalReport,
    ShownSample,
    notes,
    report_of,
    table,
)
from camel.jobs.item import Item, item_seed
from camel.jobs.job import Job, Stage, Step
from camel.models.spec import ModelSpec
from camel.reports import blocks as kinds
from camel.reports.html import write_report
from camel.reports.numbers import FEW, bounds, cost, counted
from camel.reports.plots import Plot, bars, drawing, plot
from camel.runs.markers import Marker, marker_name
from camel.runs.run import RunFolder, open_folder
from camel.runs.settings import Settings
from camel.sandbox.process import Sandbox
from camel.storage.files import make_folder


def plots(made: HumanEvalReport) -> list[Plot]:
    """Return the plots for which there is enough data."""
    found = [_curve(made)] if made.n > 1 and made.problems >= FEW else []
    if made.problems > 1:
        found.append(_by_problem(made))
    return [*found, _outcomes(made)] if len(made.outcomes) > 1 else found


def _curve(made: HumanEvalReport) -> Plot:
    rows = [
        {"suite": SUITES[suite], **to_builtins(one)} for suite, found in made.curve.items() for one in found
    ]
    ticks = [one.k for one in made.curve["humaneval"] if str(one.k)[0] in "125"]
    caption = f"Unbiased estimates from {made.n:,} samples for each of {made.problems:,} problems. Bands are 95% intervals."
    return plot("pass-at-k", "pass@k", caption, lambda width: drawing("curve", rows, width - 50, ticks=ticks))


def _outcomes(made: HumanEvalReport) -> Plot:
    rows = [{"name": WORDS.get(kind, kind), "count": count} for kind, count in made.outcomes.items()]
    caption = f"{sum(made.outcomes.values()):,} samples, by their first failure."
    return plot("outcomes", "Results of the samples", caption, lambda width: bars(rows, width))


def _by_problem(made: HumanEvalReport) -> Plot:
    rows = [
        {"suite": title, "problem": place, "share": getattr(one, suite) / made.n}
        for suite, title in SUITES.items()
        for place, one in enumerate(made.by_problem)
    ]
    caption = f"Each of {made.problems:,} problems is a column. A darker column has a larger share of samples that pass."
    return plot(
        "by-problem",
        "Share of samples that pass, by problem",
        caption,
        lambda width: drawing("strips", rows, width - 90, problems=made.problems),
    )


def report(made: HumanEvalReport) -> kinds.Report:
    """Build the report from its figures."""
    problems = [
        (one.problem, f"{one.humaneval:,}", f"{one.plus:,}", f"{one.programs:,}") for one in made.by_problem
    ]
    head = ("Problem", "Pass HumanEval", "Pass HumanEval+", "Programs")
    return kinds.Report(
        "HumanEval",
        _headline(made),
        kinds.TEXTS["humaneval"]["lede"].format(programs=counted(made.n, "program"), problems=made.problems),
        _facts(made),
        {
            "Results": _results(made),
            "Problems": [
                kinds.Picture("by-problem"),
                kinds.Details("Each problem", [kinds.Grid(head, problems)]),
            ],
            "Failures": [kinds.Picture("outcomes")],
            "Samples": _samples(made),
            "Method": _method(made),
        },
        plots(made),
    )


def _headline(made: HumanEvalReport) -> str:
    one = made.humaneval[0]
    passed = (
        f"{100 * one.rate:.1f}%"
        if made.problems >= FEW
        else f"{one.rate * made.problems:.1f} of {made.problems}"
    )
    return f"{made.model} solves {passed} of the HumanEval problems with {counted(one.k, 'attempt')}"


def _facts(made: HumanEvalReport) -> kinds.Facts:
    rates: kinds.Facts = {
        f"{title}, pass@{one.k}": [
            f"{100 * one.rate:.1f}% ",
            kinds.Span(bounds(one.low, one.high), "interval"),
        ]
        for title, found in zip(SUITES.values(), (made.humaneval, made.plus), strict=True)
        for one in (found[0], found[-1])
        if made.problems >= FEW
    }
    return {
        "Model": made.model,
        "Samples": f"{made.n:,} for each of {counted(made.problems, 'problem')}",
        **rates,
        "Calls": f"{made.usage.calls:,}, {cost(made.money)}",
    }


def _results(made: HumanEvalReport) -> list[kinds.Block]:
    note = "In percent, with 95% intervals by bootstrap over the problems. The rows of the paper's Table 3 have no intervals."
    return [
        table({made.model: (made.humaneval, made.plus)}),
        kinds.Note(note),
        kinds.Points(notes(made)),
        kinds.Picture("pass-at-k"),
    ]


def _samples(made: HumanEvalReport) -> list[kinds.Block]:
    folds: list[kinds.Block] = []
    for kind in dict.fromkeys(one.kind for one in made.examples):
        title = WORDS.get(kind, kind)
        quotes = [_sample(one) for one in made.examples if one.kind == kind]
        folds.append(kinds.Details(title[:1].upper() + title[1:], quotes, open=not folds))
    note = "Random samples of each result: the program that ran, or the reply if it contained none."
    return [kinds.Heading("Samples"), kinds.Note(note), *folds]


def _sample(one: ShownSample) -> kinds.Quote:
    head = [
        kinds.Span(one.problem, "good" if one.kind == "passed" else "bad"),
        kinds.Span(f"sample {one.number}", "source"),
    ]
    return kinds.Quote(head, one.program or one.answer, reason=one.detail, mono=True)


def _method(made: HumanEvalReport) -> list[kinds.Block]:
    usage = made.usage
    where = kinds.TEXTS["humaneval"]["sandbox"] if made.contained else "The programs ran without a sandbox."
    used = f"{usage.calls:,} calls, {usage.prompt:,} prompt and {usage.completion:,} completion tokens, {cost(made.money)}"
    return [
        kinds.Heading("Method"),
        kinds.Paragraph(kinds.TEXTS["humaneval"]["method"].format(where=where)),
        kinds.Paragraph(
            kinds.styled("{}. Fingerprint `{}`. All figures are in `humaneval.json`.", used, made.fingerprint)
        ),
        kinds.settings_block(made.config),
    ]


@dataclass(frozen=True)
class HumanEval(Job):
    """A job that evaluates one model on HumanEval and HumanEval+."""

    name = "evaluate humaneval"
    place: str
    config: HumanEvalConfig
    n: int
    """Number of samples per problem."""
    model: Model | ModelSpec
    contained: bool = True
    """Whether programs run in the sandbox."""
    processes: int | None = None
    """Number of programs that run at the same time. Default: one per core."""
    ks: tuple[int, ...] = ()
    """The values of k in pass@k. Default: those of 1, 10 and 100 that are at most n."""
    window: int | None = None
    """Maximum number of samples that are requested at the same time. None uses the limit of the job."""
    models: Mapping[str, Model | ModelSpec] = field(init=False)

    def __post_init__(self) -> None:
        if self.n < 1:
            raise InputError(f"n must be at least 1, not {self.n}")
        object.__setattr__(self, "models", {"": self.model})

    @property
    def problems(self) -> Sequence[Problem]:
        """The problems to solve."""
        return problems()[: self.config.problems]

    @property
    def folder(self) -> RunFolder:
        """The folder in which samples and verdicts are stored."""
        return open_folder(self.place)

    @property
    def total(self) -> int:
        """Total number of samples."""
        return self.n * self.config.problems

    def open(self, accept: Collection[str] = ()) -> RunFolder:
        """Open the folder. Raises an `InputError` if its samples were made with other settings."""
        folder, wanted = self.folder, msgspec.to_builtins(self.config)
        if not folder.exists:
            make_folder(folder.root)
            # Without a plan, so that an evaluation with more samples can continue here.
            folder.create(Settings(self.config.fingerprint, wanted, __version__))
            return folder
        begun = folder.settings()
        if begun.fingerprint == self.config.fingerprint:
            return folder
        differs = [name for name in wanted if begun.config.get(name) != wanted[name]]
        details = "; ".join(
            f"{name} was {shown(begun.config.get(name))} and is {shown(wanted[name])}" for name in differs
        )
        raise InputError(
            f"'{folder.address}' was begun with other settings ({details}): use the same settings, or another --out"
        )

    def outline(self, run: RunFolder) -> Sequence[Stage]:
        """Return the stage that requests samples. It is the only one that calls a model."""
        return [self._samples()]

    def stages(self, run: RunFolder) -> Iterator[Step]:
        """Yield the stage that requests samples, then the stage that runs the programs."""
        with Sandbox(contained=self.contained) as sandbox:
            sandbox.check()  # before the first paid call
            yield self._samples()
            workers = self.processes or os.cpu_count() or 1
            with ThreadPoolExecutor(workers, "camel-judge") as pool:
                yield self.judged(ProgramJudge(sandbox), pool, workers)

    # --- samples --------------------------------------------------------------------------------------------------

    def left(self) -> int:
        """Return the number of samples that are not committed yet."""
        done = [shard for shard in self.folder.committed(SAMPLES) if shard < self.n]
        return self.total - len(done) * self.config.problems

    def estimate(self, calls: int) -> Usage:
        """Estimate the usage of `calls` calls to the model."""
        sizes = [estimate_tokens(self.question(one)) for one in self.problems]
        # `estimate_tokens` assumes three bytes per token, which is about 25% too many tokens for these prompts.
        prompt = calls * sum(sizes) * 4 // (5 * len(sizes))
        return Usage(
            prompt, calls * min(LIKELY_TOKENS, self.config.sampling.max_tokens or 10**9), calls=calls
        )

    def question(self, problem: Problem) -> str:
        """Return the prompt for a problem."""
        return fill(self.config.prompt, {"PROMPT": problem.prompt.rstrip()})

    def _samples(self) -> Stage:
        asked = self.problems
        return Stage(
            name=SAMPLES,
            count=self.total,
            work=partial(self._ask, asked),
            write=write_lines,
            failed=partial(_failed_sample, asked),
            failure=attrgetter("error"),
            id=lambda index: asked[index % len(asked)].name,
            read=self._read_samples,
            fingerprint=self.config.fingerprint,
            suffix=".jsonl",
            shard_size=len(asked),
            concurrency=self.window,
        )

    async def _ask(self, asked: Sequence[Problem], item: Item) -> Sample:
        number, place = divmod(item.index, len(asked))
        problem, sampling = asked[place], with_seed(self.config.sampling, item_seed(self.config.seed, number))
        history = History()
        history.add("user", self.question(problem))
        reply = await item.model().reply(Request(history, sampling, problem.name, "programmer"))
        return Sample(problem.name, number, reply.content, reply.choices[0].finish, reply.model, reply.usage)

    def _read_samples(self, marker: Marker) -> list[Sample]:
        return msgspec.json.Decoder(Sample).decode_lines(self.folder.read(marker.file))

    def samples(self) -> list[list[Sample]]:
        """Return the n samples of each problem."""
        found: list[list[Sample]] = [[] for _ in self.problems]
        places = {problem.name: place for place, problem in enumerate(self.problems)}
        folder = self.folder
        for shard in range(self.n):
            for one in self._read_samples(folder.marker(SAMPLES, shard)):
                found[places[one.problem]].append(one)
        return found

    # --- verdicts -------------------------------------------------------------------------------------------------

    def judged(self, judge: ProgramJudge, pool: ThreadPoolExecutor, workers: int) -> Stage:
        """Return the stage that runs the programs."""
        samples, known, asked = self.samples(), self._known(judge.contained), self.problems
        name = f"{_verdicts(judge.contained)}{self.n}"
        self._forget(name, samples)

        async def work(item: Item) -> JudgedProblem:
            return await _judge(judge, pool, asked[item.index], samples[item.index], known, item)

        return Stage(
            name=name,
            count=len(asked),
            work=work,
            write=write_lines,
            id=lambda index: asked[index].name,
            fingerprint=self.config.fingerprint,
            suffix=".jsonl",
            shard_size=1,
            # One problem more than threads keeps all threads busy while the last programs of a problem run.
            concurrency=workers + 1,
        )

    def _forget(self, name: str, samples: Sequence[Sequence[Sample]]) -> None:
        """Remove the verdicts on samples that have changed since, because failed samples were requested again."""
        shards = sorted(self.folder.committed(name))
        for shard, record in zip(shards, self._records(name), strict=True):
            if record.of != _hash(samples[shard]):
                self.folder.store.remove([marker_name(name, shard)])

    def _known(self, contained: bool) -> dict[tuple[str, str], ProgramVerdict]:
        """Return the stored verdicts of all numbers of samples under the same rules, by problem and program."""
        known: dict[tuple[str, str], ProgramVerdict] = {}
        prefix = _verdicts(contained)
        for name in self.folder.stages():
            if name.startswith(prefix) and name.removeprefix(prefix).isdecimal():
                for one in self._records(name):
                    known |= {
                        (one.problem, program): found
                        for program, found in zip(one.programs, one.verdicts, strict=True)
                    }
        return known

    def verdicts(self, *, contained: bool = True) -> list[JudgedProblem]:
        """Return the verdicts by problem. If `contained` is false, return those of programs that ran without the sandbox."""
        return self._records(f"{_verdicts(contained)}{self.n}")

    def _records(self, name: str) -> list[JudgedProblem]:
        decode, folder = msgspec.json.Decoder(JudgedProblem).decode, self.folder
        return [
            decode(folder.read(marker.file))
            for marker in folder.markers(name, sorted(folder.committed(name)))
        ]

    def result(self, run: RunFolder) -> HumanEvalReport:
        """Compute the figures, write the report, and return the figures."""
        made = report_of(self)
        write_report(run.root, report(made), made)
        return made

    @property
    def title(self) -> str:
        """The name of the model."""
        return f"HumanEval of {self.config.model}"


async def _judge(
    judge: ProgramJudge,
    pool: ThreadPoolExecutor,
    problem: Problem,
    samples: Sequence[Sample],
    known: Mapping[tuple[str, str], ProgramVerdict],
    item: Item,
) -> JudgedProblem:
    """Run the programs of one problem that have no known verdict, and return the verdicts on all of them."""
    loop = asyncio.get_running_loop()
    contents = [one.content for one in samples]
    extracted = await loop.run_in_executor(pool, lambda: [extract(problem, text) for text in contents])
    programs = list(dict.fromkeys(extracted))

    def run(program: str) -> ProgramVerdict:
        item.check()  # programs that wait for a thread must not start after a halt
        try:
            return judge.judge(problem, program)
        except CamelError as error:
            item.halt.set(str(error))
            raise

    if any(program and (problem.name, program) not in known for program in programs):
        # Run the reference first, because otherwise all threads would wait for it.
        await loop.run_in_executor(pool, judge.expected, problem)

    async def verdict(program: str) -> ProgramVerdict:
        if not program:
            return NO_CODE
        return known.get((problem.name, program)) or await loop.run_in_executor(pool, run, program)

    ended = await asyncio.gather(*map(verdict, programs), return_exceptions=True)
    judge.forget(problem)
    failed = [one for one in ended if isinstance(one, BaseException)]
    if failed:  # prefer the error that caused the halt
        raise next((one for one in failed if not isinstance(one, Halted)), failed[0])
    places = {program: place for place, program in enumerate(programs)}
    return JudgedProblem(
        problem.name,
        programs,
        [one for one in ended if isinstance(one, ProgramVerdict)],
        [places[text] for text in extracted],
        of=_hash(samples),
    )


def _hash(samples: Sequence[Sample]) -> str:
    """Return a hash of the samples."""
    return hashlib.sha256(msgspec.json.encode([one.content for one in samples])).hexdigest()[:16]


def _failed_sample(asked: Sequence[Problem], item: Item, error: CamelError) -> Sample:
    number, place = divmod(item.index, len(asked))
    return Sample(asked[place].name, number, "", "other", error=f"{type(error).__name__}: {error}"[:500])


def _verdicts(contained: bool) -> str:
    """Return the prefix of the names of verdict stages. Verdicts found without the sandbox have their own prefix."""
    return f"{VERDICTS}-{RULES}-" if contained else f"{VERDICTS}-{RULES}-bare-"
