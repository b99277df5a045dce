"""Agents compared with single-shot answers (paper, section 5.1): the stages that make and judge solutions.

    summary-…   a strong model summarizes a conversation into one solution
    answer-…    a model answers the task in one reply
    verdict-…   a judge compares two solutions, in both orders
    repeat-…    the same judge compares some of the pairs again, to measure how often it agrees with itself

The one decision to know: a stage's name contains a hash of everything that determines its answers (prompt, model, sampling,
run, seed). Its items are the tasks in the order in which they were drawn, and each is committed separately. So a larger
sample, another judge or another system causes calls only for what is new. After a kill, only calls in flight are repeated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from camel.core.checks import shown
from camel.core.errors import CamelError, Damaged, InputError
from camel.core.history import History, estimate_tokens
from camel.core.inception import fill
from camel.core.judge import quoted, quoted_talk, read_comparison, shortened
from camel.core.message import Sampling, Usage, well_formed
from camel.core.model import Request
from camel.core.transcript import Transcript
from camel.engine.stage import Written, write_whole
from camel.evaluation.contest_records import (
    ASKS,
    GUESSED,
    GUESSED_REASON,
    MOST_QUOTED,
    NEEDED,
    NO_SOLUTION,
    AgentsConfig,
    AskedModel,
    Group,
    JudgedPair,
    Kind,
    Solution,
    StepNeed,
    read_prompt,
)
from camel.evaluation.pairs import Pair, Winner
from camel.evaluation.tasks import Drawn, DrawnTasks, draw_tasks
from camel.jobs.item import Item
from camel.jobs.job import Stage
from camel.jobs.replies import CheckedModel
from camel.query.columns import narrow
from camel.runs.markers import Marker
from camel.runs.reader import RunReader
from camel.runs.run import RunFolder


class ContestStage(NamedTuple):
    """A stage with its purpose: the kind of question, the group, the systems and the asked model."""

    kind: Kind
    group: str
    systems: tuple[str, ...]
    model: str
    stage: Stage
    asked: Callable[[int, int], int]
    """Estimates the prompt tokens of an item from the item's index and the assumed tokens of a missing solution."""
    most: int | None
    """Maximum tokens of an answer."""


class Contest:
    """An evaluation of agents: its stages, and the answers so far."""

    def __init__(
        self,
        folder: RunFolder,
        groups: Sequence[Group],
        config: AgentsConfig,
        *,
        summarizer: AskedModel,
        writers: Mapping[str, AskedModel],
        judges: Sequence[AskedModel],
        matches: Sequence[tuple[str, str]] | None = None,
    ) -> None:
        """`writers` are the models of the single-shot systems, by the system's name. `matches` are the pairs of systems to
        compare; by default all pairs."""
        self.folder, self.config = folder, config
        self.groups, self.summarizer, self.writers, self.judges = groups, summarizer, writers, list(judges)
        if not judges or len({one.name for one in judges}) != len(judges):
            raise InputError("no judge is given, or one is given twice: give at least one, each once")
        if len({group.name for group in groups}) != len(groups):
            raise InputError(
                "two runs would have the same name in the table: evaluate them separately, each with its own --out"
            )
        self.runs: dict[str, dict[str, RunReader]] = {}
        """Readers of the runs, by group and system."""
        self.samples: dict[str, DrawnTasks] = {}
        for group in groups:
            runs = self.runs[group.name] = {name: RunReader(run) for name, run in group.runs.items()}
            runs |= {name: narrow(run, config.where) for name, run in [*runs.items()][:1]}
            sample = (
                draw_tasks(runs, config.tasks, seed=config.seed, acknowledge=config.acknowledge)
                if runs
                else DrawnTasks(list(group.tasks), len(group.tasks), 0, 0)
            )
            if not sample.tasks:
                why = f": {sample.excluded:,} labeled ones need --acknowledge" if sample.excluded else ""
                raise InputError(f"'{group.name}' has no conversation to judge{why}")
            if set(group.runs) & set(writers):
                raise InputError(
                    f"the run {min(set(group.runs) & set(writers))!r} has the name of a single-shot system: rename its folder"
                )
            self.samples[group.name] = sample
        self._matches = matches
        self.prompts = {
            "judge": read_prompt(config.judge_prompt, NEEDED),
            "again": read_prompt("again-1"),
            "summary": read_prompt(config.summary_prompt, ("TASK", "CONVERSATION")),
            "single-shot": read_prompt(config.single_shot_prompt, ("TASK",)),
        }
        self._solutions = {
            (group.name, system): self._solving(group, system)
            for group in groups
            for system in self.systems(group.name)
        }
        self._texts: dict[tuple[str, str], dict[int, Solution]] = {}
        self._comparisons = [
            self._verdicts(group.name, pair, judge, again)
            for again in (False, True)
            for group in groups
            for pair in self.matches(group.name)
            for judge in self.judges
            if not again or config.repeats
        ]

    # ---------------------------------------------------------------- systems, stages and pairs

    def systems(self, group: str) -> list[str]:
        """Return the systems of a group: its runs, then the single-shot systems."""
        return [*self.runs[group], *self.writers]

    def matches(self, group: str) -> list[tuple[str, str]]:
        """Return the pairs of systems that are compared in a group. Wins are reported for the first of each pair."""
        return list(combinations(self.systems(group), 2) if self._matches is None else self._matches)

    @property
    def steps(self) -> list[ContestStage]:
        """All stages in order. Stages with the same questions to the same model appear once."""
        return _unique([*self._solutions.values(), *self._comparisons])

    def solving(self, system: str = "") -> tuple[Stage, ...]:
        """Return the stages that make solutions, of all systems or of one."""
        found = [one for (_, name), one in self._solutions.items() if not system or name == system]
        return tuple(one.stage for one in _unique(found))

    def judging(self) -> tuple[Stage, ...]:
        """Return the stages that compare solutions."""
        self._texts.clear()
        return tuple(one.stage for one in _unique(self._comparisons))

    def pairs(self) -> list[Pair]:
        """Return all pairs in which both systems have a solution."""
        made: list[Pair] = []
        for group in self.groups:
            for one, two in self.matches(group.name):
                first, second = self._solutions_of(group.name, one), self._solutions_of(group.name, two)
                for index, task in enumerate(self.samples[group.name].tasks):
                    a, b = first.get(index), second.get(index)
                    if a and b and not a.failed and not b.failed:
                        sides = (one, a.text, two, b.text)
                        id = f"{task.id[:60]}-{_hash([group.name, one, two, task.id])[:10]}"
                        made.append(Pair(id, task.text, *sides, task.labels, group.name, task.id))
        return made

    def judged(
        self, kind: Literal["verdict", "repeat"] = "verdict"
    ) -> Iterator[tuple[ContestStage, dict[int, JudgedPair]]]:
        """Yield each stage of comparisons with its verdicts, by item: 2 × the task's index, plus 1 if `b` was shown first."""
        for job in self._comparisons:
            if job.kind == kind:
                yield job, self._records(job, JudgedPair)

    def solutions(self) -> Iterator[tuple[ContestStage, dict[int, Solution]]]:
        """Yield the stage of each system in each group, with its solutions by the task's index."""
        for (group, system), job in self._solutions.items():
            yield job, self._solutions_of(group, system)

    # ---------------------------------------------------------------- estimates

    def left(self) -> int:
        """Return the number of items of all stages that are not done yet."""
        return sum(len(self._open(step)) for step in self.steps)

    def estimate(self) -> list[StepNeed]:
        """Estimate the remaining calls and tokens per step and model. Retries after unreadable answers are not included."""
        needs: dict[tuple[Kind, str], StepNeed] = {}
        for step in self.steps:
            items = self._open(step)
            if not items:
                continue
            guess = GUESSED if step.kind in ("summary", "answer") else GUESSED_REASON
            sizes = [min(size, step.most or size) for size in guess]
            # Prompts have similar lengths, so about 20 of them are enough.
            some = items[:: max(1, len(items) // 20)]
            prompt = [
                len(items) * sum(step.asked(index, size) for index in some) * 4 // (5 * len(some))
                for size in GUESSED
            ]
            before = needs.get((step.kind, step.model), StepNeed(step.kind, step.model))
            needs[step.kind, step.model] = before._replace(
                calls=before.calls + len(items),
                prompt=_add(before.prompt, prompt),
                completion=_add(before.completion, [len(items) * size for size in sizes]),
            )
        return list(needs.values())

    # ---------------------------------------------------------------- stages

    def _solving(self, group: Group, system: str) -> ContestStage:
        """Return the stage that makes the solutions of a system: summaries of its run, or single-shot answers."""
        sample, runs = self.samples[group.name], self.runs[group.name]
        tasks, config = sample.tasks, self.config
        drawn = _hash_run(next(iter(runs.values()))) if runs else _hash([(one.id, one.text) for one in tasks])
        if system in group.runs:
            kind, writer, own = "summary", self.summarizer, _hash_run(runs[system])
            sampling = writer.fitting(config.summary_sampling)
            inputs: list[Any] = [self.prompts["summary"], writer.name, writer.small_window, sampling, own]
            # The tasks come from the first run. With another first run, their order may differ.
            more = [drawn] if drawn != own else []
        else:
            kind, writer = "answer", self.writers[system]
            sampling = writer.fitting(config.single_shot_sampling)
            inputs = [self.prompts["single-shot"], writer.name, sampling, drawn]
            more = [writer.version] if writer.version else []

        def prompt(index: int) -> tuple[str, int]:
            """Return the question, and the number of characters of the conversation that did not fit."""
            task = tasks[index]
            if kind == "summary":
                return self._summary_prompt(task, task.transcripts[system], sampling)
            return fill(self.prompts["single-shot"], {"TASK": task.text}), 0

        async def work(item: Item) -> Solution:
            asked, cut = prompt(item.index)
            history = History()
            history.add("user", asked)
            model = CheckedModel(item.model(writer.seat), config.cut_replies)
            reply = await model.reply(Request(history, sampling, f"{item.id}-{kind}", kind))
            text, finish = well_formed(reply.content).strip(), reply.choices[0].finish
            return Solution(item.id, text, reply.model, reply.usage, finish, cut)

        def tokens(index: int, size: int) -> int:
            return estimate_tokens(prompt(index)[0])

        inputs += [sample.specified, *more]
        return self._step(
            kind, group.name, (system,), writer, len(tasks), work, inputs, tokens, sampling.max_tokens
        )

    def _verdicts(self, group: str, systems: tuple[str, str], judge: AskedModel, again: bool) -> ContestStage:
        tasks = self.samples[group].tasks
        sampling, kind = judge.fitting(self.config.judge_sampling), "repeat" if again else "verdict"
        count = min(len(tasks), self.config.repeats) if again else len(tasks)

        def asked(index: int, size: int) -> int:
            task = tasks[index // 2]
            texts = [self._solutions_of(group, system).get(index // 2) for system in systems]
            lengths = sum(size if one is None else estimate_tokens(one.text) for one in texts)
            return estimate_tokens(self.prompts["judge"] + task.text) + lengths

        async def work(item: Item) -> JudgedPair:
            place, swapped = divmod(item.index, 2)
            task = tasks[place]
            a, b = (self._solutions_of(group, system)[place] for system in systems)
            if a.failed or b.failed:
                return JudgedPair(task.id, None, reason=f"{NO_SOLUTION}{a.failed or b.failed}")
            if a.text == b.text:
                return JudgedPair(task.id, "draw", reason="the solutions are the same")
            first, second = (b.text, a.text) if swapped else (a.text, b.text)
            prompt, cut = self._judge_prompt(task, first, second, judge, sampling)
            history = History()
            history.add("user", prompt)
            model, usage, answer = item.model(judge.seat), Usage(), ""
            for asks in range(1, ASKS + 1):
                # Both orders and repeated questions begin with the same text, so they share a session for prefix caching.
                request = Request(history, sampling, f"{task.id}-judge", kind, "comparison", options=2)
                reply = await model.reply(request)
                usage, answer = usage + reply.usage, well_formed(reply.content).strip()
                if found := read_comparison(answer):
                    places: tuple[Winner, ...] = ("draw", "b", "a") if swapped else ("draw", "a", "b")
                    one, two = found.scores[::-1] if swapped else found.scores
                    winner, reason = places[found.better], found.reason[:2_000]
                    return JudgedPair(task.id, winner, (one, two), reason, usage, asks, cut)
                history.add("assistant", answer[:MOST_QUOTED] or "…")
                history.add("user", self.prompts["again"])
            reason = f"none of {ASKS} answers was readable; the last one: {shown(answer)}"
            return JudgedPair(task.id, None, reason=reason, usage=usage, asks=ASKS)

        inputs = [
            self.prompts["judge"],
            self.prompts["again"],
            judge.name,
            *([judge.version] if judge.version else []),
            judge.small_window,
            sampling,
            *(self._solutions[group, system].stage.fingerprint for system in systems),
        ]
        return self._step(kind, group, systems, judge, 2 * count, work, inputs, asked, sampling.max_tokens)

    def _step(
        self,
        kind: Kind,
        group: str,
        systems: tuple[str, ...],
        model: AskedModel,
        count: int,
        work: Callable[[Item], Any],
        inputs: Sequence[Any],
        asked: Callable[[int, int], int],
        most: int | None,
    ) -> ContestStage:
        inputs = [kind, self.config.seed, self.config.acknowledge, *inputs]
        fingerprint = _hash(inputs)[:16]
        made = Solution if kind in ("summary", "answer") else JudgedPair
        tasks, each = self.samples[group].tasks, 1 if made is Solution else 2
        stage = Stage(
            name=f"{kind}-{fingerprint[:12]}",
            count=count,
            work=work,
            write=write_record,
            failed=partial(_failed, made),
            failure=_why_failed,
            id=lambda index: tasks[index // each].id,
            read=partial(self._read, made),
            fingerprint=fingerprint,
            seat=model.seat,
            suffix=".json",
            shard_size=1,
        )
        return ContestStage(kind, group, systems, model.name, stage, asked, most)

    # ---------------------------------------------------------------- prompts

    def _summary_prompt(self, task: Drawn, transcript: Transcript, sampling: Sampling) -> tuple[str, int]:
        said, text = quoted_talk(transcript), task.text
        room = self.summarizer.room(self.prompts["summary"] + text, sampling.max_tokens or 0)
        # A line that was cut in the middle must still begin with the quote sign.
        kept = shortened(said, room, "> ")
        values = {"TASK": quoted(text), "CONVERSATION": kept}
        return fill(self.prompts["summary"], values), max(0, len(said) - len(kept))

    def _judge_prompt(
        self, task: Drawn, first: str, second: str, judge: AskedModel, sampling: Sampling
    ) -> tuple[str, int]:
        reserved = ASKS * ((sampling.max_tokens or 0) + estimate_tokens(self.prompts["again"]))
        room = judge.room(self.prompts["judge"] + task.text, reserved)
        # A short solution leaves its unused room to the other one.
        shorter = min(len(first), len(second), room // 2)
        texts = [shortened(text, room - shorter) for text in (first, second)]
        values = {"TASK": quoted(task.text), "FIRST": quoted(texts[0]), "SECOND": quoted(texts[1])}
        return fill(self.prompts["judge"], values), len(first) + len(second) - sum(map(len, texts))

    # ---------------------------------------------------------------- stored answers

    def _open(self, step: ContestStage) -> list[int]:
        """Return the indices of the items that are not committed. Each item is a shard."""
        done = self.folder.committed(step.stage.name)
        return [index for index in range(step.stage.count) if index not in done]

    def _solutions_of(self, group: str, system: str) -> dict[int, Solution]:
        """Return the solutions of a system by the task's index. They are read from the folder once and then cached."""
        key = group, system
        if key not in self._texts:
            self._texts[key] = self._records(self._solutions[key], Solution)
        return self._texts[key]

    def _records(self, step: ContestStage, kind: type[Any]) -> dict[int, Any]:
        name = step.stage.name
        shards = [shard for shard in sorted(self.folder.committed(name)) if shard < step.stage.count]
        found: dict[int, Any] = {}
        for marker in self.folder.markers(name, shards):
            (one,) = self._read(kind, marker)
            found[marker.shard] = one
            if one.id != (wanted := step.stage.id(marker.shard)):
                raise Damaged(
                    f"'{marker.file}' in '{self.folder.address}' contains {shown(one.id)} instead of {shown(wanted)}: "
                    "use another --out"
                )
        return found

    def _read(self, kind: type[Any], marker: Marker) -> list[Any]:
        return [msgspec.json.decode(self.folder.read(marker.file), type=kind)]


def _failed(made: type[Solution | JudgedPair], item: Item, error: CamelError) -> Solution | JudgedPair:
    why = f"{type(error).__name__}: {error}"[:500]
    if made is Solution:
        return Solution(item.id, "", usage=item.usage, failed=why)
    return JudgedPair(
        item.id, None, reason=f"the call to the judge failed: {why}", usage=item.usage, failed=why
    )


def _why_failed(record: Solution | JudgedPair) -> str:
    """Return why a record failed. A comparison without a solution fails too, so that a retry of the solution repeats it."""
    if isinstance(record, JudgedPair) and record.winner is None and record.reason.startswith(NO_SOLUTION):
        return record.reason.removeprefix(NO_SOLUTION)
    return record.failed


def _unique(steps: Iterable[ContestStage]) -> list[ContestStage]:
    return list({step.stage.name: step for step in steps}.values())


def _hash(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()


def _hash_run(run: RunReader) -> str:
    """Return a hash of all conversations of a run, and of those that a filter expression selects."""
    hashes: list[Any] = [(marker.shard, marker.sha256) for marker in run.markers]
    if run.chosen is not None:
        hashes += sorted(run.chosen.items())
    return _hash(hashes)


def _add(one: tuple[int, int, int], other: Sequence[int]) -> tuple[int, int, int]:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def write_record(path: Path, records: Sequence[Any]) -> Written:
    """Write the only record of a shard as JSON, durably."""
    (record,) = records
    return write_whole(path, msgspec.json.encode(record), 1)
