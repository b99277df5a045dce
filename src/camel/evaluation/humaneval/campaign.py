"""An evaluation in a folder: samples asked of a model, then the programs in them judged.

Two stages of the engine. *samples* is paid for: every reply is journaled before it is used. *verdicts* is not: programs run on
this machine. The one decision to know: a shard of samples is one sample of every problem, so an evaluation with more samples
goes on where a smaller one ended; and equal programs of a problem are run once.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from camel._version import __version__
from camel.core.checks import shown
from camel.core.errors import CamelError, InputError, ModelError, ServerFailed
from camel.core.history import History, estimate_tokens
from camel.core.inception import fill
from camel.core.message import Sampling, Usage
from camel.core.model import Model, Request
from camel.engine.halt import Halt, Halted
from camel.engine.journaled import journaled
from camel.engine.stage import Stage, Steps, Written, write_lines
from camel.engine.supervisor import run_stage
from camel.evaluation.humaneval.extract import extract
from camel.evaluation.humaneval.judging import NO_CODE, ProgramJudge, ProgramVerdict
from camel.evaluation.humaneval.problems import COUNT, HASHES, Problem, problems
from camel.jobs.failures import failure_of
from camel.models.recorded import RecordedModel
from camel.runs.run import RunFolder
from camel.runs.settings import Settings

SAMPLES, VERDICTS = "samples", "verdicts"
PASSES = 3
RULES = 2
"""Of extraction and judging: another number, other verdicts; those of an older one are made anew."""
SAMPLING = Sampling(temperature=0.8, top_p=0.95, max_tokens=1024)
"""As the authors of HumanEval sampled for large k."""
LIKELY_TOKENS = 220
"""Of an answer, for the estimate of what it costs: a function of ten lines and a sentence or two."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What decides the samples; kept with them, and going on with anything else is refused."""

    model: str
    prompt: str
    sampling: Sampling = SAMPLING
    seed: int | None = None
    """Makes each sample's seed, for endpoints that can repeat themselves."""
    problems: int = COUNT
    """The first so many."""
    data: dict[str, str] = msgspec.field(default_factory=HASHES.copy)

    def __post_init__(self) -> None:
        if not 0 < self.problems <= COUNT:
            raise InputError(f"there are {COUNT} problems: ask for 1 to {COUNT} of them, not {self.problems}")

    @property
    def fingerprint(self) -> str:
        """Identifies it."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:16]


class Sample(msgspec.Struct, frozen=True, omit_defaults=True):
    """One answer."""

    problem: str
    number: int
    content: str
    finish: str = "stop"
    model: str = ""
    usage: Usage = Usage()
    error: str = ""
    """Why there is none, where the endpoint will never give one."""


class JudgedProblem(msgspec.Struct, frozen=True):
    """The programs of one problem and what became of them."""

    problem: str
    programs: list[str]
    """Those that differ, in order of their first sample; "" is an answer without one."""
    verdicts: list[ProgramVerdict]
    samples: list[int]
    """For each sample, which of the programs it is."""
    rules: int = RULES


def prompt_text() -> str:
    """The words with which a model is asked."""
    return (Path(__file__).parent / "prompt.txt").read_text("utf-8").strip()


class HumanEval:
    """One model on HumanEval and HumanEval+, in a folder."""

    def __init__(
        self,
        folder: Path,
        config: Config,
        n: int,
        model: Model,
        *,
        halt: Halt | None = None,
        kept: bool = True,
    ) -> None:
        if n < 1:
            raise InputError(f"n must be at least 1, not {n}")
        self.folder, self.config, self.n, self.halt = RunFolder(folder), config, n, halt or Halt()
        self.problems = problems()[: config.problems]
        self.asked = self.judged = 0
        """Samples that are there, and programs of this start that were judged."""
        self.settled = 0
        """Problems whose programs have all been judged."""
        self._model = model
        if kept:  # not where it is only asked what it would cost
            self._claim()

    def _claim(self) -> None:
        wanted: dict[str, Any] = msgspec.to_builtins(self.config)
        if not self.folder.exists:
            self.folder.root.mkdir(parents=True, exist_ok=True)
            self.folder.create(Settings(self.config.fingerprint, wanted, __version__))
            return
        begun = self.folder.settings()
        if begun.fingerprint == self.config.fingerprint:
            return
        differs = [name for name in wanted if begun.config.get(name) != wanted[name]]
        details = "; ".join(
            f"{name} was {shown(begun.config.get(name))} and is {shown(wanted[name])}" for name in differs
        )
        raise InputError(
            f"{self.folder.address} was begun with something else ({details}): go on as it was, or give another --out"
        )

    # --- samples --------------------------------------------------------------------------------------------------

    @property
    def total(self) -> int:
        """Samples in all."""
        return self.n * len(self.problems)

    def left(self) -> int:
        """Samples that are not committed yet."""
        done = [shard for shard in self.folder.committed(SAMPLES) if shard < self.n]
        return self.total - len(done) * len(self.problems)

    def estimate(self, calls: int) -> Usage:
        """What as many calls will take, about."""
        sizes = [estimate_tokens(self.question(one)) for one in self.problems]
        # Three bytes a token is on the high side by a quarter, for prompts as they are.
        prompt = calls * sum(sizes) * 4 // (5 * len(sizes))
        return Usage(
            prompt, calls * min(LIKELY_TOKENS, self.config.sampling.max_tokens or 10**9), calls=calls
        )

    def spent(self) -> Usage:
        """What earlier starts have used, by the samples and by the journals of shards that are still open."""
        used = Usage()
        for shard in sorted(self.folder.committed(SAMPLES)):
            totals = self.folder.marker(SAMPLES, shard).totals
            used += Usage(**{name: int(totals.get(name, 0)) for name in Usage.__struct_fields__})
        still_open = set(range(self.n)) - self.folder.committed(SAMPLES)
        return sum(journaled(self.folder, SAMPLES, still_open), used)

    def question(self, problem: Problem) -> str:
        """What a model is asked about a problem."""
        return fill(self.config.prompt, {"PROMPT": problem.prompt.rstrip()})

    async def sample(self, *, concurrency: int = 64) -> bool:
        """Ask, or go on asking; False when something stopped it."""
        stage = Stage(
            name=SAMPLES,
            count=self.total,
            work=self._ask,
            write=_write_samples,
            suffix=".jsonl",
            shard_size=len(self.problems),
        )
        with self.folder.locked():
            for _ in range(PASSES):
                self.asked = self.total - self.left()
                complete = await run_stage(
                    stage,
                    self.folder,
                    concurrency=concurrency,
                    fingerprint=self.config.fingerprint,
                    halt=self.halt,
                )
                # A larger evaluation than this may lie in the folder.
                if complete or not self.left() or self.halt.reason:
                    return not self.left()
        raise ServerFailed("some samples could not be had: run the same command again")

    async def _ask(self, index: int, steps: Steps) -> Sample:
        number, place = divmod(index, len(self.problems))
        problem, sampling = self.problems[place], self.config.sampling
        if self.config.seed is not None:
            seed = (self.config.seed * 1_000_003 + number) % 2**31
            sampling = msgspec.structs.replace(sampling, seed=seed)
        history = History()
        history.add("user", self.question(problem))
        model = RecordedModel(self._model, steps.once)
        try:
            reply = await model.reply(Request(history, sampling, problem.name, "programmer"))
        except ModelError as error:
            why = failure_of(error, self.halt)
            self.asked += 1
            return Sample(problem.name, number, "", "other", error=why[:500])
        self.asked += 1
        return Sample(problem.name, number, reply.content, reply.choices[0].finish, reply.model, reply.usage)

    def samples(self) -> list[list[Sample]]:
        """The samples of each problem, n of each."""
        found: list[list[Sample]] = [[] for _ in self.problems]
        places = {problem.name: place for place, problem in enumerate(self.problems)}
        decode = msgspec.json.Decoder(Sample).decode_lines
        for shard in range(self.n):
            for one in decode(self.folder.read(self.folder.marker(SAMPLES, shard).file)):
                found[places[one.problem]].append(one)
        return found

    # --- verdicts -------------------------------------------------------------------------------------------------

    async def judge(self, judge: ProgramJudge, *, threads: int | None = None) -> bool:
        """Run the programs, or go on running them; False when something stopped it."""
        samples = self.samples()
        known = self._known(judge.contained)
        workers = threads or os.cpu_count() or 1
        name = f"{_verdicts(judge.contained)}{self.n}"
        self.judged, self.settled = 0, len(self.folder.committed(name))

        with self.folder.locked(), ThreadPoolExecutor(workers, "camel-judge") as pool:

            async def work(place: int, steps: Steps) -> JudgedProblem:
                problem = self.problems[place]
                return await self._judge(judge, pool, problem, samples[place], known)

            stage = Stage(
                name=name,
                count=len(self.problems),
                work=work,
                write=write_lines,
                suffix=".jsonl",
                shard_size=1,
            )
            # One problem more than there are threads keeps all of them busy while the last programs of one run.
            return await run_stage(
                stage,
                self.folder,
                concurrency=workers + 1,
                fingerprint=self.config.fingerprint,
                halt=self.halt,
                committed=self._settle,
            )

    def _settle(self, shard: int) -> None:
        self.settled += 1

    async def _judge(
        self,
        judge: ProgramJudge,
        pool: ThreadPoolExecutor,
        problem: Problem,
        samples: Sequence[Sample],
        known: dict[tuple[str, str], ProgramVerdict],
    ) -> JudgedProblem:
        loop = asyncio.get_running_loop()
        contents = [one.content for one in samples]
        extracted = await loop.run_in_executor(pool, lambda: [extract(problem, text) for text in contents])
        programs = list(dict.fromkeys(extracted))

        def run(program: str) -> ProgramVerdict:
            if self.halt.reason:  # many wait for a thread, and must not run any more when it is their turn
                raise Halted(self.halt.reason)
            try:
                return judge.judge(problem, program)
            except CamelError as error:
                self.halt.set(str(error))
                raise

        if any(program and (problem.name, program) not in known for program in programs):
            # Before the programs: they would all wait for it, each on a thread of its own.
            await loop.run_in_executor(pool, judge.expected, problem)

        async def verdict(program: str) -> ProgramVerdict:
            if not program:
                return NO_CODE
            found = known.get((problem.name, program)) or await loop.run_in_executor(pool, run, program)
            self.judged += 1
            return found

        ended = await asyncio.gather(*map(verdict, programs), return_exceptions=True)
        judge.forget(problem)
        failed = [one for one in ended if isinstance(one, BaseException)]
        if failed:  # what stopped the others says more than that they were stopped
            raise next((one for one in failed if not isinstance(one, Halted)), failed[0])
        places = {program: place for place, program in enumerate(programs)}
        return JudgedProblem(
            problem.name,
            programs,
            [one for one in ended if isinstance(one, ProgramVerdict)],
            [places[text] for text in extracted],
        )

    def _known(self, contained: bool) -> dict[tuple[str, str], ProgramVerdict]:
        """Verdicts of evaluations with fewer samples, by the same rules."""
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
        """What was found, problem by problem, in the sandbox or without it."""
        return self._records(f"{_verdicts(contained)}{self.n}")

    def _records(self, name: str) -> list[JudgedProblem]:
        decode = msgspec.json.Decoder(JudgedProblem).decode
        return [
            decode(self.folder.read(self.folder.marker(name, shard).file))
            for shard in sorted(self.folder.committed(name))
        ]


def _verdicts(contained: bool) -> str:
    """How the names of stages of verdicts begin: what was found without a sandbox never counts as found in it."""
    return f"{VERDICTS}-{RULES}-" if contained else f"{VERDICTS}-{RULES}-bare-"


def _write_samples(path: Path, records: Sequence[Any]) -> Written:
    written = write_lines(path, records)
    usage: dict[str, int] = msgspec.to_builtins(sum((one.usage for one in records), Usage()))
    return written._replace(totals={name: float(value) for name, value in usage.items()})
