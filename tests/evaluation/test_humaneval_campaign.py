"""The two stages of an evaluation with HumanEval: sandbox failures, stops, refusals and reuse of verdicts."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from camel.core.errors import ContextOverflow, InputError, ModelError, ServerFailed
from camel.core.message import Sampling
from camel.core.model import Model, Request
from camel.engine.halt import Halt
from camel.evaluation.humaneval import solving
from camel.evaluation.humaneval.judging import ProgramJudge, ProgramVerdict
from camel.evaluation.humaneval.problems import Problem, problems
from camel.evaluation.humaneval.records import HumanEvalConfig, prompt_text
from camel.evaluation.humaneval.report import HumanEvalReport, report_of
from camel.evaluation.humaneval.solving import HumanEval
from camel.jobs.failures import AGAIN, PLAIN
from camel.jobs.runner import PASSES, Outcome, Runner
from camel.models.scripted import ScriptedModel
from camel.runs.run import RunFolder
from camel.sandbox.process import Sandbox, SandboxFailed
from tests.support.virtual_time import run_virtual


def numbered(request: Request) -> str:
    """Writes a different program for each sample."""
    asked = request.history.entries[0].content
    problem = next(one for one in problems() if one.prompt.rstrip() in asked)
    return f"```python\ndef {problem.entry}(*args):\n    return {request.sampling.seed}\n```"


class Counting(ProgramJudge):
    """Judges by the sample's number, and without a sandbox."""

    def __init__(self, *, contained: bool = True) -> None:
        super().__init__(Sandbox(contained=contained))
        self.seen: list[tuple[str, str]] = []
        self.after = lambda: None
        self._counting = threading.Lock()

    def expected(self, problem: Problem) -> Any:
        return None

    def judge(self, problem: Problem, source: str) -> ProgramVerdict:
        with self._counting:
            self.seen.append((problem.name, source))
            self.after()
        return ProgramVerdict(source.rstrip().endswith(("0", "2", "4")), False, "wrong")


class Unreported(HumanEval):
    """Writes no report."""

    def result(self, run: RunFolder) -> HumanEvalReport:
        return report_of(self)


def evaluation(
    folder: Path,
    n: int = 6,
    *,
    count: int = 3,
    model: Model | None = None,
    contained: bool = True,
    processes: int | None = None,
) -> HumanEval:
    config = HumanEvalConfig("scripted", prompt_text(), Sampling(temperature=0.5), 0, count)
    model = model or ScriptedModel(numbered)
    return Unreported(str(folder), config, n, model, contained=contained, processes=processes)


def run(job: HumanEval, judge: ProgramJudge, **options: Any) -> Outcome:
    """Run an evaluation in virtual time, with programs judged by `judge`."""

    def chosen(sandbox: Sandbox) -> ProgramJudge:
        return judge

    def checked(sandbox: Sandbox) -> None:
        pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solving, "ProgramJudge", chosen)
        patch.setattr(Sandbox, "check", checked)
        return run_virtual(Runner(job, **options).run())


def test_each_different_program_is_judged_once(tmp_path: Path):
    one, judge = evaluation(tmp_path, processes=2), Counting()
    assert run(one, judge).status == "complete"
    assert len(judge.seen) == len(set(judge.seen)) == 18
    assert [sum(row.verdicts[place].humaneval for place in row.samples) for row in one.verdicts()] == [
        3,
        3,
        3,
    ]
    # With twice as many samples, earlier verdicts are reused.
    more, again = evaluation(tmp_path, 12, processes=2), Counting()
    assert run(more, again).status == "complete"
    assert len(again.seen) == 18
    assert not set(again.seen) & set(judge.seen)
    # The same command judges nothing again.
    last = Counting()
    assert run(evaluation(tmp_path, 12, model=ScriptedModel([])), last).status == "complete"
    assert not last.seen


def test_verdicts_without_a_sandbox_are_not_reused_in_one(tmp_path: Path):
    one, bare = evaluation(tmp_path, contained=False), Counting(contained=False)
    assert run(one, bare).status == "complete"
    assert not one.verdicts()
    assert len(one.verdicts(contained=False)) == 3
    for n in (6, 12):
        inside, more = Counting(), evaluation(tmp_path, n)
        assert run(more, inside).status == "complete"
        assert len(inside.seen) == 18
        assert len(more.verdicts()) == 3


def test_equal_programs_run_once(tmp_path: Path):
    said = "```python\ndef has_close_elements(a, b):\n    return 1\n```"
    one, judge = evaluation(tmp_path, 50, count=2, model=ScriptedModel(lambda request: said)), Counting()
    assert run(one, judge).status == "complete"
    assert [name for name, _ in judge.seen] == ["HumanEval/0"]


def test_a_failed_sandbox_stops_the_evaluation_without_scores(tmp_path: Path):
    class Dead(Counting):
        def judge(self, problem: Problem, source: str) -> ProgramVerdict:
            raise SandboxFailed("dead")

    one = evaluation(tmp_path)
    with pytest.raises(SandboxFailed, match="dead"):
        run(one, Dead())
    assert not one.verdicts()
    alive = Counting()
    assert run(evaluation(tmp_path, model=ScriptedModel([])), alive).status == "complete"
    assert len(alive.seen) == 18


def test_programs_do_not_block_threads_while_the_reference_runs(tmp_path: Path):
    """With two threads two references are computed at a time."""

    class Meeting(Counting):
        meeting = threading.Barrier(2)

        def expected(self, problem: Problem) -> Any:
            self.meeting.wait(120)  # fails unless another thread waits at the same time

    assert run(evaluation(tmp_path, 8, count=4, processes=2), Meeting()).status == "complete"


def test_a_stop_lets_running_programs_finish_and_a_later_run_continues(tmp_path: Path):
    halt, judge = Halt(), Counting()
    one = evaluation(tmp_path, 40, count=4, processes=2)
    judge.after = lambda: halt.set("stopped by you") if len(judge.seen) == 50 else None
    assert run(one, judge, halt=halt).status == "stopped"
    assert 50 <= len(judge.seen) <= 53
    done = len(one.verdicts())
    rest = Counting()
    again = evaluation(tmp_path, 40, count=4, model=ScriptedModel([]))
    assert run(again, rest).status == "complete"
    assert len(rest.seen) == 40 * (4 - done)


def test_a_refused_sample_counts_as_no_program(tmp_path: Path):
    model = ScriptedModel(lambda request: ContextOverflow("too long"))
    ended = run(evaluation(tmp_path, 3, count=2, model=model), Counting())
    assert [(failed.name, failed.count) for failed in ended.failed] == [("ContextOverflow", 6)]
    made: HumanEvalReport = ended.result
    assert (made.refused, made.outcomes, made.humaneval[0].rate) == (6, {"no code": 6}, 0.0)


def test_temporary_failures_are_retried_and_then_judged(tmp_path: Path):
    def busy(request: Request) -> str | ModelError:
        asked = request.history.entries[0].content
        if asked == PLAIN:
            return "OK."
        return ServerFailed("down") if "has_close_elements" in asked else numbered(request)

    down, first = ScriptedModel(busy), Counting()
    ended = run(evaluation(tmp_path, 3, count=2, model=down), first)
    assert [(failed.name, failed.count, failed.words) for failed in ended.failed] == [
        ("ServerFailed", 3, "down")
    ]
    tries = sum("has_close_elements" in asked[0].content for asked in down.heard)
    assert tries <= 3 * PASSES * (1 + AGAIN), "a bounded number of times"
    assert tries >= 3 * PASSES, "in each pass"
    assert ended.result.outcomes["no code"] == 3
    unasked, second = ScriptedModel([]), Counting()
    assert run(evaluation(tmp_path, 3, count=2, model=unasked), second).status == "failures"
    back = ScriptedModel(numbered)
    again = run(evaluation(tmp_path, 3, count=2, model=back), second, retry_failed=True)
    assert again.status == "complete"
    assert len(back.requests) == 3
    assert {name for name, _ in first.seen} == {"HumanEval/1"}
    assert {name for name, _ in second.seen} == {"HumanEval/0"}
    assert len(second.seen) == 3
    assert "no code" not in again.result.outcomes
    assert again.result.refused == 0


def test_another_configuration_is_an_error_that_names_the_difference(tmp_path: Path):
    run(evaluation(tmp_path), Counting())
    other = HumanEvalConfig("another", prompt_text(), Sampling(temperature=0.5), 0, 3)
    with pytest.raises(InputError, match=r"model.*'scripted'.*'another'"):
        run(HumanEval(str(tmp_path), other, 6, ScriptedModel(numbered)), Counting())
    for wrong in (0, 165):
        with pytest.raises(InputError, match="164"):
            HumanEvalConfig("m", "p", problems=wrong)


def test_an_estimate_is_close_to_the_real_usage(tmp_path: Path):
    one = evaluation(tmp_path, count=164)
    need = one.estimate(one.left())
    assert need.calls == 6 * 164
    assert 150 < need.prompt / need.calls < 400
