"""The comparison of methods as a job: blocks of problems are solved by each method, then the answers are checked.

The one decision to know: a block of problems is one item, because a method carries tokens over from one problem to the next.
So the totals of all methods differ by less than one attempt per block, and blocks are solved in parallel.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any

import msgspec

from camel.core.checks import shown
from camel.core.errors import CamelError, InputError
from camel.core.identity import identity_of
from camel.core.message import Sampling, Usage
from camel.core.model import Model
from camel.engine.stage import write_lines
from camel.evaluation.cooperation.exercises import Check, Exercise, digest
from camel.evaluation.cooperation.methods import Attempts, Method, Purse
from camel.evaluation.cooperation.report import CooperationFigures, ProblemSolution, figures_of, report
from camel.evaluation.humaneval.judging import ProgramJudge
from camel.jobs.item import Item, item_seed
from camel.jobs.job import Job, Stage, Step
from camel.jobs.replies import CheckedModel
from camel.jobs.state import name_of
from camel.models.spec import ModelSpec
from camel.reports.html import write_report
from camel.runs.markers import Marker
from camel.runs.run import RunFolder, open_folder
from camel.sandbox.process import Sandbox

SOLUTIONS, LAST, CHECKED = "solutions", "last", "checked-"
BLOCK = 50
"""Number of problems in a block."""
SAMPLING = Sampling(temperature=0.7, max_tokens=1024)
PROMPTS = 1
"""Version of the prompts in `methods`."""


class SolvedBlock(msgspec.Struct, frozen=True):
    """The solutions of one method to a block of problems."""

    method: str
    solutions: list[ProblemSolution]
    error: str = ""


class CheckedBlock(msgspec.Struct, frozen=True):
    """Which answers of a block are right, by problem and attempt."""

    right: list[list[bool]]


@dataclass(frozen=True)
class Cooperation(Job):
    """A job that compares methods on problems with equal numbers of tokens."""

    name = "evaluate cooperation"
    place: str
    methods: Sequence[Method]
    exercises: Sequence[Exercise]
    tokens: int
    """Number of tokens per problem, on average."""
    model: Model | ModelSpec
    sampling: Sampling = SAMPLING
    seed: int | None = 0
    check: Check | None = None
    block: int = BLOCK
    models: Mapping[str, Model | ModelSpec] = field(init=False)

    def __post_init__(self) -> None:
        if self.tokens < 1 or self.block < 1 or not self.methods:
            raise InputError("tokens must be at least 1, and at least one method is needed")
        names = [one.name for one in self.exercises]
        if again := next((name for name, count in Counter(names).items() if count > 1), ""):
            raise InputError(f"two problems are called {shown(again)}")
        object.__setattr__(self, "models", {"": self.model})

    def identity(self) -> dict[str, Any]:
        """Return what determines the answers."""
        return {
            "methods": {one.name: one.identity for one in self.methods},
            "problems": digest(self.exercises),
            "tokens": self.tokens,
            "block": self.block,
            "model": name_of(self.model),
            "sampling": msgspec.to_builtins(self.sampling),
            "seed": self.seed,
            "prompts": PROMPTS,
        }

    @property
    def blocks(self) -> list[Sequence[Exercise]]:
        """The problems in blocks."""
        return [
            self.exercises[start : start + self.block] for start in range(0, len(self.exercises), self.block)
        ]

    def _given(self, stage: str, index: int) -> tuple[int, int]:
        """Return the numbers of the method and the block of an item."""
        count = len(self.blocks)
        if stage == LAST:
            return index, count - 1
        return divmod(index, count - (stage == SOLUTIONS))

    def outline(self, run: RunFolder) -> Sequence[Stage]:
        """Return the stages that solve the problems. They are the only ones that call a model.

        The last blocks wait for the others, because they spend what is left of these. So the totals of two methods differ by
        at most one attempt.
        """
        stages = [LAST] if len(self.blocks) == 1 else [SOLUTIONS, LAST]
        return [
            self._stage(name, partial(self._solve, run, name), SolvedBlock, attrgetter("error"), self._failed)
            for name in stages
        ]

    def stages(self, run: RunFolder) -> Iterator[Step]:
        """Yield the stage that solves the problems, then the one that checks the answers."""
        programs = any(one.kind == "program" for one in self.exercises) and self.check is None
        with contextlib.ExitStack() as stack:
            judge = None
            if programs:
                sandbox = stack.enter_context(Sandbox())
                sandbox.check()  # before the first paid call
                judge = ProgramJudge(sandbox)
            yield from self.outline(run)
            yield self._stage(self._checked(run), partial(self._check, run, judge), CheckedBlock)

    def _checked(self, run: RunFolder) -> str:
        """Return the name of the stage that checks these answers: others, or another check, have another stage."""
        whole = msgspec.json.encode([[one.sha256 for one in self._solutions(run)], identity_of(self.check)])
        return CHECKED + hashlib.sha256(whole).hexdigest()[:12]

    def _stage(
        self,
        name: str,
        work: Callable[[Item], Any],
        kind: type[Any],
        failure: Callable[[Any], str] | None = None,
        failed: Callable[[Item, CamelError], Any] | None = None,
    ) -> Stage:
        more: dict[str, Any] = {"failure": failure, "failed": failed} if failure else {}
        return Stage(
            name=name,
            count=len(self.methods) * {SOLUTIONS: len(self.blocks) - 1, LAST: 1}.get(name, len(self.blocks)),
            work=work,
            write=write_lines,
            id=lambda index: self._id(*self._given(name, index)),
            read=partial(self._read, kind),
            suffix=".jsonl",
            shard_size=1,
            identity=self.identity(),
            **more,
        )

    def _id(self, method: int, block: int) -> str:
        return f"{self.methods[method].name}-{block}"

    def _solutions(self, run: RunFolder) -> list[Marker]:
        """Return the markers of all solved blocks, by method and block."""
        rest = len(self.blocks) - 1
        return [
            run.marker(LAST, method) if block == rest else run.marker(SOLUTIONS, method * rest + block)
            for method in range(len(self.methods))
            for block in range(rest + 1)
        ]

    def _read(self, kind: type[Any], marker: Marker) -> list[Any]:
        return msgspec.json.Decoder(kind).decode_lines(open_folder(self.place).read(marker.file))

    # --- solving --------------------------------------------------------------------------------------------------

    def _left(self, run: RunFolder, method: int) -> int:
        """Return what is left of the budget of a method after all blocks but the last. It can be negative."""
        rest, left = len(self.blocks) - 1, 0
        for block, exercises in enumerate(self.blocks[:-1]):
            made: SolvedBlock = self._read(SolvedBlock, run.marker(SOLUTIONS, method * rest + block))[0]
            if not made.error:
                left += self.tokens * len(exercises) - sum(one.usage.total for one in made.solutions)
        return left

    async def _solve(self, run: RunFolder, stage: str, item: Item) -> SolvedBlock:
        number, block = self._given(stage, item.index)
        method, exercises = self.methods[number], self.blocks[block]
        purse = Purse(CheckedModel(item.model(), "keep"), self.sampling.max_tokens)
        carried = await asyncio.to_thread(self._left, run, number) if stage == LAST else 0
        left, attempts, paid = 0.0, 0, 0
        solutions: list[ProblemSolution] = []
        for place, exercise in enumerate(exercises):
            purse.usage, left = Usage(), left + self.tokens + carried / len(exercises)
            seed = item_seed(self.seed, (number * len(self.blocks) + block) * self.block + place)
            made = Attempts(exercise, purse, self.sampling, f"{item.id}-{place}", seed)
            spent: list[int] = []
            while not (method.once and made.texts):
                used = purse.usage.total
                room = left - used - method.reserve(made)
                # An attempt is made if at least half of it fits. The difference is carried over to the next problem.
                if not method.once and room < (paid / attempts / 2 if attempts else 0):
                    break
                made.add(await method.attempt(made))
                spent.append(purse.usage.total)
                attempts, paid = attempts + 1, paid + spent[-1] - used
            chosen = await method.chosen(made)
            left -= purse.usage.total
            text = made.texts[chosen] if chosen >= 0 else ""
            solutions.append(ProblemSolution(exercise.name, made.keys, spent, chosen, text, purse.usage))
            purse.release(made.session)
        return SolvedBlock(method.name, solutions)

    def _failed(self, item: Item, error: CamelError) -> SolvedBlock:
        return SolvedBlock(item.id.rpartition("-")[0], [], f"{type(error).__name__}: {error}"[:500])

    # --- checking -------------------------------------------------------------------------------------------------

    async def _check(self, run: RunFolder, judge: ProgramJudge | None, item: Item) -> CheckedBlock:
        solved: SolvedBlock = self._read(SolvedBlock, self._solutions(run)[item.index])[0]
        exercises, known = {one.name: one for one in self.exercises}, dict[tuple[str, str], bool]()

        def right(problem: str, key: str) -> bool:
            item.check()
            if (problem, key) not in known:
                known[problem, key] = exercises[problem].right(key, judge, self.check)
            return known[problem, key]

        def mark() -> list[list[bool]]:
            return [[right(one.problem, key) for key in one.keys] for one in solved.solutions]

        return CheckedBlock(await asyncio.to_thread(mark))

    def result(self, run: RunFolder) -> CooperationFigures:
        """Compute the figures, and write the report into the folder."""
        markers, checked = self._solutions(run), self._checked(run)
        solved: list[SolvedBlock] = [self._read(SolvedBlock, one)[0] for one in markers]
        marked = [self._read(CheckedBlock, run.marker(checked, one))[0] for one in range(len(markers))]
        made = figures_of(
            [one.name for one in self.methods],
            self.tokens,
            name_of(self.model),
            [(one.method, one.solutions, two.right) for one, two in zip(solved, marked, strict=True)],
            sum(bool(one.error) for one in solved),
        )
        if run.on_disk:
            write_report(run.root, report(made), made)
        return made

    def expected(self) -> dict[str, Usage]:
        """Return the expected usage of the methods with a budget. Two thirds of the tokens are usually input."""
        total = (len(self.methods) - 1) * len(self.exercises) * self.tokens
        return {"": Usage(total * 2 // 3, total // 3)}

    @property
    def title(self) -> str:
        """What is compared."""
        return f"{len(self.methods)} methods on {len(self.exercises):,} problems"
