"""Agents against single shot (paper, section 5.1): solutions, judges, and every call of theirs as a stage of the engine.

    summary-…   a strong model writes down the solution that a conversation arrived at
    answer-…    a model answers the task in one go
    verdict-…   a judge compares two solutions, in both orders
    repeat-…    the same judge is asked the same again, for a part of the tasks: how far does it agree with itself?

The one decision to know: a stage is named by a hash of all that decides its answers (prompt, model, sampling, run, seed) and
its items are the tasks in the order in which they were drawn, each committed by itself. So a larger sample, a further judge
or a further system asks only what is new; and after a kill the same command asks only what was in flight.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from camel.core.answers import read_comparison
from camel.core.checks import shown, whole
from camel.core.errors import Damaged, InputError, ModelError
from camel.core.history import History, estimate_tokens
from camel.core.inception import fill
from camel.core.judge import quoted
from camel.core.message import Sampling, Usage, in_one_line, well_formed
from camel.core.model import Model, Request
from camel.core.transcript import Transcript
from camel.engine.halt import Halt
from camel.engine.journaled import journaled
from camel.engine.stage import Stage, Steps, Written, write_whole
from camel.engine.supervisor import run_stages
from camel.evaluation.pairs import Pair, Winner
from camel.evaluation.tasks import Drawn, DrawnTasks, draw_tasks
from camel.jobs.failures import FailedItems, failure_of, grouped
from camel.jobs.replies import CheckedModel, Cut
from camel.models.recorded import RecordedModel
from camel.runs.reader import RunReader
from camel.runs.run import RunFolder

AGENTS, SINGLE_SHOT = "agents", "single-shot"
"""Names of systems: the run that is evaluated, and the base model's answer in one go."""
PASSES = 3
ASKS = 3
"""Times a judge is asked until its answer can be read."""
PROMPTS = Path(__file__).parent / "prompts"
JUDGE_PROMPT = "judge-1"
"""Versions: a file is never changed once it was used; a better one is a new file."""
NEEDED = ("TASK", "FIRST", "SECOND")
MOST_QUOTED = 2_000
"""Characters of an answer that could not be read, when it is shown to whoever gave it."""
LARGE = 32_768
"""Tokens of a window into which a conversation of the paper's length fits twice."""
GUESSED = (150, 500, 1_200)
"""Tokens of a solution that is not written yet: low, likely, high."""
GUESSED_REASON = (40, 90, 200)

Kind = Literal["summary", "answer", "verdict", "repeat"]
KINDS: tuple[Kind, ...] = ("summary", "answer", "verdict", "repeat")


class AgentsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that decides the figures besides the runs and the models; kept in the report."""

    tasks: int = 100
    """Of each run (paper, section 5.1: 100)."""
    seed: int = 0
    """Of the draw."""
    repeats: int = 20
    """Tasks about which each judge is asked twice, to see how far it agrees with itself."""
    judge_prompt: str = JUDGE_PROMPT
    """A shipped version's name, or the path of a text file with <TASK>, <FIRST> and <SECOND>."""
    summary_prompt: str = "summary-1"
    single_shot_prompt: str = "single-shot-1"
    summary_sampling: Sampling = Sampling(temperature=0.0, max_tokens=2_048)
    single_shot_sampling: Sampling = Sampling(temperature=0.2, max_tokens=2_048)
    """The temperature is that of the original's agents."""
    judge_sampling: Sampling = Sampling(temperature=0.0, max_tokens=500)
    acknowledge: tuple[str, ...] = ()
    """Labels, such as `misalignment`, whose conversations may be drawn."""
    cut_replies: Cut = "fail"
    """Whether a solution that ends at the limit of tokens fails its task, or is kept and marked."""

    def __post_init__(self) -> None:
        whole("tasks", self.tasks, 1, 100_000)
        whole("repeats", self.repeats, 0, 100_000)


class NamedModel(NamedTuple):
    """A model and the name under which it is reported."""

    name: str
    model: Model
    version: str = ""
    """Tells it from another of the same name: weights that were trained here may be trained again."""


class Group(NamedTuple):
    """A row of the table: a run and the other runs that it is compared with, by the names of their systems."""

    name: str
    runs: Mapping[str, RunReader]
    scenario: str = ""
    """By which the paper's lines are found; the name unless given."""
    tasks: Sequence[Drawn] = ()
    """Where there is no run: what is to be solved, all of it."""


class Solution(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a system says on a task."""

    id: str
    text: str
    model: str = ""
    usage: Usage = Usage()
    finish: str = "stop"
    cut: int = 0
    """Characters of the conversation that did not fit the summariser's window."""
    failed: str = ""
    """Why there is none."""


class JudgedPair(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a judge said of a pair in one order."""

    id: str
    winner: Winner | None
    """None: it did not decide."""
    scores: tuple[float, float] | None = None
    """Of `a` and `b`, whatever the order was."""
    reason: str = ""
    usage: Usage = Usage()
    asks: int = 0
    cut: int = 0
    """Characters of the solutions that did not fit the judge's window."""
    failed: str = ""
    """Why the judge could not be asked."""


class StepNeed(NamedTuple):
    """What one step will take, of one model."""

    kind: Kind
    model: str
    calls: int
    prompt: tuple[int, int, int]
    """Tokens: low, likely, high."""
    completion: tuple[int, int, int]


class ContestStage(NamedTuple):
    """A stage, with what is known of it."""

    kind: Kind
    group: str
    systems: tuple[str, ...]
    model: str
    stage: Stage
    fingerprint: str
    asked: Callable[[int, int], int]
    """Tokens of the prompt of an item, about, where a solution that is not there yet has so many."""
    most: int | None
    """Tokens that an answer may have."""


class Contest:
    """An evaluation of agents: what is to be asked, and what was said."""

    def __init__(
        self,
        kept: Path,
        groups: Sequence[Group],
        config: AgentsConfig,
        *,
        summariser: NamedModel,
        writers: Mapping[str, NamedModel],
        judges: Sequence[NamedModel],
        halt: Halt | None = None,
        matches: Sequence[tuple[str, str]] | None = None,
        rejected: Callable[[], str] = lambda: "",
    ) -> None:
        """`writers` are the models of the single-shot systems, by the names of the systems; `matches` are the pairs of systems
        that are compared, all of them unless given. `rejected` says why nothing can be had of one of the models."""
        self._rejected, self._last_pass = rejected, False
        self.folder, self.config, self.halt = RunFolder(kept), config, halt or Halt()
        self.groups, self.summariser, self.writers, self.judges = groups, summariser, writers, list(judges)
        if not judges or len({one.name for one in judges}) != len(judges):
            raise InputError("give at least one judge, each once")
        if len({group.name for group in groups}) != len(groups):
            raise InputError(
                "two runs have the same name in the table: evaluate them in folders of their own"
            )
        self.samples: dict[str, DrawnTasks] = {}
        for group in groups:
            sample = (
                draw_tasks(group.runs, config.tasks, seed=config.seed, acknowledge=config.acknowledge)
                if group.runs
                else DrawnTasks(list(group.tasks), len(group.tasks), 0, 0)
            )
            if not sample.tasks:
                why = f": {sample.excluded:,} are labelled, see --acknowledge" if sample.excluded else ""
                raise InputError(f"{group.name} has no conversation to judge{why}")
            if set(group.runs) & set(writers):
                raise InputError(
                    f"two systems have the same name: {', '.join(set(group.runs) & set(writers))}"
                )
            self.samples[group.name] = sample
        self._matches = matches
        self.prompts = {
            "judge": read_prompt(config.judge_prompt, NEEDED),
            "again": read_prompt("again-1"),
            "summary": read_prompt(config.summary_prompt, ("TASK", "CONVERSATION")),
            "single-shot": read_prompt(config.single_shot_prompt, ("TASK",)),
        }
        self.finished = dict.fromkeys(KINDS, 0)
        """Items of each step that are done, of this start and of earlier ones."""
        self._solutions: dict[tuple[str, str], ContestStage] = {}
        for group in groups:
            for system in self.systems(group.name):
                self._solutions[group.name, system] = (
                    self._summaries(group, system) if system in group.runs else self._answers(group, system)
                )
        self._texts: dict[tuple[str, str], dict[int, Solution]] = {}
        self._comparisons = [
            self._verdicts(group.name, pair, judge, again)
            for again in (False, True)
            for group in groups
            for pair in self.matches(group.name)
            for judge in self.judges
            if not again or config.repeats
        ]

    # ---------------------------------------------------------------- what there is

    def systems(self, group: str) -> list[str]:
        """The systems that compete in a row: its runs, then the single shots."""
        runs = next(one.runs for one in self.groups if one.name == group)
        return [*runs, *self.writers]

    def matches(self, group: str) -> list[tuple[str, str]]:
        """The pairs of systems that are compared in a row; the wins of the first are reported."""
        return list(combinations(self.systems(group), 2) if self._matches is None else self._matches)

    @property
    def jobs(self) -> list[ContestStage]:
        """All stages, in the order of the steps; those that ask the same of the same model are one."""
        return _once([*self._solutions.values(), *self._comparisons])

    def pairs(self) -> list[Pair]:
        """All pairs of solutions that could be made."""
        made: list[Pair] = []
        for group in self.groups:
            for one, two in self.matches(group.name):
                first, second = self._said(group.name, one), self._said(group.name, two)
                for index, task in enumerate(self.samples[group.name].tasks):
                    a, b = first.get(index), second.get(index)
                    if a and b and not a.failed and not b.failed:
                        pair = Pair(
                            _pair_id(group.name, one, two, task.id),
                            task.text,
                            one,
                            a.text,
                            two,
                            b.text,
                            task.labels,
                            group.name,
                            task.id,
                        )
                        made.append(pair)
        return made

    def judged(
        self, kind: Literal["verdict", "repeat"] = "verdict"
    ) -> Iterator[tuple[ContestStage, dict[int, JudgedPair]]]:
        """Each comparison by a judge, with what it said by the item: twice the task's number, one more where `b` came first."""
        for job in self._comparisons:
            if job.kind == kind:
                yield job, self._records(job, JudgedPair)

    def solutions(self) -> Iterator[tuple[ContestStage, dict[int, Solution]]]:
        """Each system of each row, with its solutions by the task's number."""
        for (group, system), job in self._solutions.items():
            yield job, self._said(group, system)

    # ---------------------------------------------------------------- what it takes

    def total(self, kind: Kind) -> int:
        """Items of a step."""
        return sum(job.stage.count for job in self.jobs if job.kind == kind)

    def left(self) -> int:
        """Items of all steps that are not done yet."""
        return sum(len(self._open(job)) for job in self.jobs)

    def waiting(self, system: str) -> int:
        """Solutions of a system that are not there yet."""
        jobs = [job for (_, name), job in self._solutions.items() if name == system]
        return sum(len(self._open(job)) for job in _once(jobs))

    def estimate(self) -> list[StepNeed]:
        """What is left to do will take about this, step by step and model by model; some answers are asked for again."""
        needs: dict[tuple[Kind, str], StepNeed] = {}
        for job in self.jobs:
            items = self._open(job)
            if not items:
                continue
            guess = GUESSED if job.kind in ("summary", "answer") else GUESSED_REASON
            sizes = [min(size, job.most or size) for size in guess]
            # Of many prompts some: they are alike.
            some = items[:: max(1, len(items) // 20)]
            prompt = [
                len(items) * sum(job.asked(index, size) for index in some) * 4 // (5 * len(some))
                for size in GUESSED
            ]
            before = needs.get((job.kind, job.model), StepNeed(job.kind, job.model, 0, (0, 0, 0), (0, 0, 0)))
            needs[job.kind, job.model] = before._replace(
                calls=before.calls + len(items),
                prompt=_plus(before.prompt, prompt),
                completion=_plus(before.completion, [len(items) * size for size in sizes]),
            )
        return list(needs.values())

    def spent(self) -> dict[str, Usage]:
        """What all starts so far have used, by model: what is kept, and the journals of what is still open."""
        used: dict[str, Usage] = {}
        for job in self.jobs:
            usage = used.get(job.model, Usage())
            for one in self._records(
                job, Solution if job.kind in ("summary", "answer") else JudgedPair
            ).values():
                usage += one.usage
            used[job.model] = sum(journaled(self.folder, job.stage.name, self._open(job)), usage)
        return used

    # ---------------------------------------------------------------- doing it

    async def run(self, *, concurrency: int = 16) -> bool:
        """Ask, or go on asking; False when something stopped it. First all solutions, then all verdicts."""
        self.folder.root.mkdir(parents=True, exist_ok=True)
        with self.folder.locked():
            for jobs in (_once(self._solutions.values()), _once(self._comparisons)):
                if not await self._finish(jobs, concurrency):
                    return False
        return True

    async def answer(self, system: str, *, concurrency: int = 16) -> bool:
        """Have the solutions of one system, where not all models can be there at the same time; False when stopped."""
        self.folder.root.mkdir(parents=True, exist_ok=True)
        with self.folder.locked():
            jobs = [job for (_, name), job in self._solutions.items() if name == system]
            return await self._finish(_once(jobs), concurrency)

    def failed(self) -> list[FailedItems]:
        """The tasks without a solution or a verdict because a model failed, by class, each with an example."""
        answers = (one for _, found in self.solutions() for one in found.values())
        verdicts = (
            one for kind in ("verdict", "repeat") for _, found in self.judged(kind) for one in found.values()
        )
        return grouped((one.id, one.failed) for one in (*answers, *verdicts) if one.failed)

    async def _finish(self, jobs: Sequence[ContestStage], concurrency: int) -> bool:
        for attempt in range(PASSES):
            self._last_pass = attempt == PASSES - 1
            self._recount()
            stages = [(job.stage, job.fingerprint) for job in jobs]
            await run_stages(stages, self.folder, concurrency=concurrency, halt=self.halt)
            # Not what the stages say: after a larger sample there is more than is asked for.
            if not any(self._open(job) for job in jobs):
                return True
            if reason := self._rejected():
                self.halt.set(reason)
            if self.halt.reason:
                break
        return False

    def _recount(self) -> None:
        self._texts.clear()
        for kind in KINDS:
            self.finished[kind] = sum(
                job.stage.count - len(self._open(job)) for job in self.jobs if job.kind == kind
            )

    # ---------------------------------------------------------------- the steps

    def _summaries(self, group: Group, system: str) -> ContestStage:
        tasks, (name, model, _), config = self.samples[group.name].tasks, self.summariser, self.config
        sampling = _fitting(config.summary_sampling, model)

        def asked(index: int) -> tuple[str, int]:
            return self._summary_prompt(tasks[index], system, model, sampling)

        async def work(index: int, steps: Steps) -> Solution:
            prompt, cut = asked(index)
            return await self._solve(
                "summary", tasks[index].id, prompt, cut, NamedModel(name, model), sampling, steps
            )

        own, drawn = _content(group.runs[system]), _content(next(iter(group.runs.values())))
        decides = [
            self.prompts["summary"],
            name,
            _small(model),
            sampling,
            own,
            self.samples[group.name].specified,
            # The tasks are the first run's: of another one, the same run may have them in another order.
            *([drawn] if drawn != own else []),
        ]
        return self._job(
            "summary",
            group.name,
            (system,),
            name,
            len(tasks),
            work,
            decides,
            lambda i, size: estimate_tokens(asked(i)[0]),
            sampling.max_tokens,
        )

    def _answers(self, group: Group, system: str) -> ContestStage:
        tasks, (name, model, version) = self.samples[group.name].tasks, self.writers[system]
        sampling = _fitting(self.config.single_shot_sampling, model)

        def asked(index: int) -> str:
            return fill(self.prompts["single-shot"], {"TASK": tasks[index].text})

        async def work(index: int, steps: Steps) -> Solution:
            return await self._solve(
                "answer", tasks[index].id, asked(index), 0, NamedModel(name, model), sampling, steps
            )

        decides = [
            self.prompts["single-shot"],
            name,
            sampling,
            _content(next(iter(group.runs.values()))) if group.runs else _asked(tasks),
            self.samples[group.name].specified,
            *([version] if version else []),
        ]
        return self._job(
            "answer",
            group.name,
            (system,),
            name,
            len(tasks),
            work,
            decides,
            lambda i, size: estimate_tokens(asked(i)),
            sampling.max_tokens,
        )

    def _verdicts(self, group: str, systems: tuple[str, str], judge: NamedModel, again: bool) -> ContestStage:
        tasks = self.samples[group].tasks
        sampling, kind = _fitting(self.config.judge_sampling, judge.model), "repeat" if again else "verdict"
        count = min(len(tasks), self.config.repeats) if again else len(tasks)

        def asked(index: int, size: int) -> int:
            task = tasks[index // 2]
            texts = [self._said(group, system).get(index // 2) for system in systems]
            lengths = sum(size if one is None else estimate_tokens(one.text) for one in texts)
            return estimate_tokens(self.prompts["judge"] + task.text) + lengths

        async def work(index: int, steps: Steps) -> JudgedPair:
            a, b = (self._said(group, system)[index // 2] for system in systems)
            return await self._compare(kind, tasks[index // 2], a, b, bool(index % 2), judge, sampling, steps)

        decides = [
            self.prompts["judge"],
            self.prompts["again"],
            judge.name,
            *([judge.version] if judge.version else []),
            _small(judge.model),
            sampling,
            *(self._solutions[group, system].fingerprint for system in systems),
        ]
        return self._job(
            kind, group, systems, judge.name, 2 * count, work, decides, asked, sampling.max_tokens
        )

    def _job(
        self,
        kind: Kind,
        group: str,
        systems: tuple[str, ...],
        model: str,
        count: int,
        work: Callable[[int, Steps], Any],
        decides: Sequence[Any],
        asked: Callable[[int, int], int],
        most: int | None,
    ) -> ContestStage:
        told = [kind, self.config.seed, self.config.acknowledge, *decides]
        fingerprint = hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:16]

        async def counted(index: int, steps: Steps) -> Any:
            record = await work(index, steps)
            self.finished[kind] += 1
            return record

        stage = Stage(
            name=f"{kind}-{fingerprint[:12]}",
            count=count,
            work=counted,
            write=_write,
            suffix=".json",
            shard_size=1,
        )
        return ContestStage(kind, group, systems, model, stage, fingerprint, asked, most)

    async def _solve(
        self, kind: Kind, id: str, prompt: str, cut: int, who: NamedModel, sampling: Sampling, steps: Steps
    ) -> Solution:
        history = History()
        history.add("user", prompt)
        try:
            request = Request(history, sampling, f"{id}-{kind}", kind)
            model = CheckedModel(RecordedModel(who.model, steps.once), self.config.cut_replies)
            reply = await model.reply(request)
        except ModelError as error:
            failed = failure_of(error, self.halt, last=self._last_pass)[:500]
            return Solution(id, "", usage=getattr(error, "usage", None) or Usage(), failed=failed)
        text, finish = well_formed(reply.content).strip(), reply.choices[0].finish
        return Solution(id, text, reply.model, reply.usage, finish, cut)

    async def _compare(
        self,
        kind: str,
        task: Drawn,
        a: Solution,
        b: Solution,
        swapped: bool,
        judge: NamedModel,
        sampling: Sampling,
        steps: Steps,
    ) -> JudgedPair:
        if a.failed or b.failed:
            return JudgedPair(task.id, None, reason=f"there is no solution to judge: {a.failed or b.failed}")
        if a.text == b.text:
            return JudgedPair(task.id, "draw", reason="the solutions are the same")
        first, second = (b.text, a.text) if swapped else (a.text, b.text)
        prompt, cut = self._judge_prompt(task, first, second, judge.model, sampling)
        history = History()
        history.add("user", prompt)
        model, usage, answer = RecordedModel(judge.model, steps.once), Usage(), ""
        try:
            for asks in range(1, ASKS + 1):
                # The session is the pair's: both orders begin with the same words, and so does the question asked again.
                session = f"{task.id}-judge"
                reply = await model.reply(Request(history, sampling, session, kind, "comparison", options=2))
                usage, answer = usage + reply.usage, well_formed(reply.content).strip()
                if found := read_comparison(answer):
                    places: tuple[Winner, Winner, Winner] = (
                        ("draw", "b", "a") if swapped else ("draw", "a", "b")
                    )
                    one, two = found.scores
                    scores = (two, one) if swapped else (one, two)
                    return JudgedPair(
                        task.id, places[found.better], scores, found.reason[:2_000], usage, asks, cut
                    )
                history.add("assistant", answer[:MOST_QUOTED] or "…")
                history.add("user", self.prompts["again"])
        except ModelError as error:
            why = failure_of(error, self.halt, last=self._last_pass)[:500]
            return JudgedPair(
                task.id, None, reason=f"the judge could not be asked: {why}", usage=usage, failed=why
            )
        return JudgedPair(
            task.id,
            None,
            reason=f"{ASKS} answers could not be read, the last: {shown(answer)}",
            usage=usage,
            asks=ASKS,
        )

    # ---------------------------------------------------------------- the prompts

    def _summary_prompt(self, task: Drawn, system: str, model: Model, sampling: Sampling) -> tuple[str, int]:
        said, text = quoted_talk(task.transcripts[system]), task.text
        room = _room(model, self.prompts["summary"] + text, sampling.max_tokens or 0)
        # What is left of a line that was cut must not stand there without its sign.
        kept = shortened(said, room, "> ")
        values = {"TASK": quoted(text), "CONVERSATION": kept}
        return fill(self.prompts["summary"], values), max(0, len(said) - len(kept))

    def _judge_prompt(
        self, task: Drawn, first: str, second: str, model: Model, sampling: Sampling
    ) -> tuple[str, int]:
        reserved = ASKS * ((sampling.max_tokens or 0) + estimate_tokens(self.prompts["again"]))
        room = _room(model, self.prompts["judge"] + task.text, reserved)
        # A short one leaves its room to the other.
        shorter = min(len(first), len(second), room // 2)
        texts = [shortened(text, room - shorter) for text in (first, second)]
        values = {"TASK": quoted(task.text), "FIRST": quoted(texts[0]), "SECOND": quoted(texts[1])}
        return fill(self.prompts["judge"], values), len(first) + len(second) - sum(map(len, texts))

    # ---------------------------------------------------------------- what is kept

    def _open(self, job: ContestStage) -> list[int]:
        """Items that are not committed; each is a shard."""
        done = self.folder.committed(job.stage.name)
        return [index for index in range(job.stage.count) if index not in done]

    def _said(self, group: str, system: str) -> dict[int, Solution]:
        """The solutions of a system; read once for each step, as verdicts are made when all of them are there."""
        key = group, system
        if key not in self._texts:
            self._texts[key] = self._records(self._solutions[key], Solution)
        return self._texts[key]

    def _records(self, job: ContestStage, kind: type[Any]) -> dict[int, Any]:
        shards = [shard for shard in sorted(self.folder.committed(job.stage.name)) if shard < job.stage.count]
        tasks, each = self.samples[job.group].tasks, 1 if kind is Solution else 2
        found: dict[int, Any] = {}
        for marker in self.folder.markers(job.stage.name, shards):
            one = found[marker.shard] = msgspec.json.decode(self.folder.read(marker.file), type=kind)
            if one.id != (wanted := tasks[marker.shard // each].id):
                raise Damaged(
                    f"{marker.file} of {self.folder.address} is about {shown(one.id)} and not {shown(wanted)}: "
                    "evaluate in another folder"
                )
        return found


def _once(jobs: Iterable[ContestStage]) -> list[ContestStage]:
    return list({job.stage.name: job for job in jobs}.values())


def read_prompt(name: str, needed: Collection[str] = ()) -> str:
    """A shipped prompt by its version's name, or a text file's; it must have the placeholders that are filled in."""
    shipped = {path.stem: path for path in PROMPTS.glob("*.txt")}
    path = shipped.get(name, Path(name))
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(sorted(shipped))
        raise InputError(f"cannot read the prompt {shown(name)}: {error}; shipped are {known}") from None
    if missing := [f"<{one}>" for one in needed if f"<{one}>" not in text]:
        raise InputError(f"the prompt {shown(name)} lacks {', '.join(missing)}")
    return text


def quoted_talk(transcript: Transcript) -> str:
    """What was said and by whom, behind a sign that no text can take away from itself."""
    return "\n\n".join(
        f"Message {message.index + 1}:\n{quoted(f'{in_one_line(message.role)} ({message.speaker}) says:')}\n{quoted(message.content)}"
        for message in transcript.messages
    )


def _content(run: RunReader) -> str:
    """Stands for all that is said in a run: two runs from one configuration are two."""
    hashes = [(marker.shard, marker.sha256) for marker in run.markers]
    return hashlib.sha256(msgspec.json.encode(hashes)).hexdigest()


def _asked(tasks: Sequence[Drawn]) -> str:
    """Stands for tasks that were given."""
    return hashlib.sha256(msgspec.json.encode([(one.id, one.text) for one in tasks])).hexdigest()


def _window(model: Model) -> int | None:
    window = model.context_tokens
    return window if isinstance(window, int) else None


def _small(model: Model) -> int | None:
    """A window that decides what is asked. A large one does not, and an endpoint may tell it at one start and not at the next."""
    window = _window(model)
    return window if window is not None and window < LARGE else None


def _fitting(sampling: Sampling, model: Model) -> Sampling:
    """At most a quarter of a small window for the answer."""
    window = _window(model)
    if window is None or sampling.max_tokens is None or sampling.max_tokens <= window // 4:
        return sampling
    return msgspec.structs.replace(sampling, max_tokens=max(64, window // 4))


def _room(model: Model, others: str, reserved: int) -> int:
    """Characters that fit a model's window beside all else; where the window is not known, as if there were no end."""
    window = _window(model)
    if window is None:
        return 10**9
    # Three bytes a token; signs before lines and other scripts take some of it.
    return max(300, int(2.5 * (window - reserved - 64 - estimate_tokens(others))))


def shortened(text: str, most: int, sign: str = "") -> str:
    """A text, or where it is too long its beginning and, mostly, its end, where solutions are; `sign` begins that."""
    if len(text) <= most:
        return text
    return f"{text[: most // 3]}\n[… {len(text) - most:,} characters are left out …]\n{sign}{text[-(most - most // 3) :]}"


def _pair_id(group: str, one: str, two: str, task: str) -> str:
    """Readable where names are plain, and never the same for two pairs."""
    told = hashlib.sha256(msgspec.json.encode([group, one, two, task])).hexdigest()[:10]
    return f"{task[:60]}-{told}"


def _plus(one: tuple[int, int, int], other: Sequence[int]) -> tuple[int, int, int]:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _write(path: Path, records: Sequence[Any]) -> Written:
    (record,) = records
    return write_whole(path, msgspec.json.encode(record), 1)
