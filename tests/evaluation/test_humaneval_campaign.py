"""An evaluation's two stages: a dead sandbox scores nobody, a stop leaves what was done, a refusal is no program."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from camel.core.errors import ContextOverflow, InputError, ServerFailed
from camel.core.message import Sampling
from camel.core.model import Request
from camel.engine.halt import Halt
from camel.evaluation.humaneval.campaign import Config, HumanEval, prompt_text
from camel.evaluation.humaneval.judging import ProgramJudge, ProgramVerdict
from camel.evaluation.humaneval.problems import Problem, problems
from camel.evaluation.humaneval.report import report_of
from camel.models.scripted import ScriptedModel
from camel.sandbox.process import Sandbox, SandboxFailed


def numbered(request: Request) -> str:
    """A program that differs with each sample."""
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


def evaluation(folder: Path, n: int = 6, halt: Halt | None = None, count: int = 3) -> HumanEval:
    config = Config("scripted", prompt_text(), Sampling(temperature=0.5), 0, count)
    return HumanEval(folder, config, n, ScriptedModel(numbered), halt=halt)


def test_each_different_program_is_judged_once(tmp_path: Path):
    one, judge = evaluation(tmp_path), Counting()
    assert asyncio.run(one.sample())
    assert asyncio.run(one.judge(judge, threads=2))
    assert len(judge.seen) == len(set(judge.seen)) == 18
    assert [sum(row.verdicts[place].humaneval for place in row.samples) for row in one.verdicts()] == [
        3,
        3,
        3,
    ]
    # Twice as many samples: what was judged stays.
    more, again = evaluation(tmp_path, 12), Counting()
    assert asyncio.run(more.sample())
    assert asyncio.run(more.judge(again, threads=2))
    assert len(again.seen) == 18
    assert not set(again.seen) & set(judge.seen)
    # And by the same command nothing is.
    last = Counting()
    assert asyncio.run(evaluation(tmp_path, 12).judge(last))
    assert not last.seen


def test_what_ran_without_a_sandbox_is_judged_again_in_one(tmp_path: Path):
    one, bare = evaluation(tmp_path), Counting(contained=False)
    assert asyncio.run(one.sample())
    assert asyncio.run(one.judge(bare))
    assert not one.verdicts()
    assert len(one.verdicts(contained=False)) == 3
    for n in (6, 12):
        inside, more = Counting(), evaluation(tmp_path, n)
        assert asyncio.run(more.sample())
        assert asyncio.run(more.judge(inside))
        assert len(inside.seen) == 18
        assert len(more.verdicts()) == 3


def test_equal_programs_run_once(tmp_path: Path):
    config, judge = Config("same", prompt_text(), problems=2), Counting()
    said = "```python\ndef has_close_elements(a, b):\n    return 1\n```"
    one = HumanEval(tmp_path, config, 50, ScriptedModel(lambda request: said))
    assert asyncio.run(one.sample())
    assert asyncio.run(one.judge(judge))
    assert [name for name, _ in judge.seen] == ["HumanEval/0"]


def test_a_dead_sandbox_stops_the_evaluation_and_scores_nobody(tmp_path: Path):
    class Dead(Counting):
        def judge(self, problem: Problem, source: str) -> ProgramVerdict:
            raise SandboxFailed("dead")

    one = evaluation(tmp_path)
    assert asyncio.run(one.sample())
    with pytest.raises(SandboxFailed, match="dead"):
        asyncio.run(one.judge(Dead()))
    assert not one.verdicts()
    alive = Counting()
    assert asyncio.run(evaluation(tmp_path).judge(alive))
    assert len(alive.seen) == 18


def test_no_program_waits_on_a_thread_for_the_reference(tmp_path: Path):
    """With two threads two references are computed at a time."""

    class Meeting(Counting):
        meeting = threading.Barrier(2)

        def expected(self, problem: Problem) -> Any:
            self.meeting.wait(120)  # breaks unless another one is here at the same time

    one = evaluation(tmp_path, 8, count=4)
    assert asyncio.run(one.sample())
    assert asyncio.run(one.judge(Meeting(), threads=2))


def test_a_stop_lets_programs_end_and_the_rest_comes_later(tmp_path: Path):
    halt, judge = Halt(), Counting()
    one = evaluation(tmp_path, 40, halt, count=4)
    assert asyncio.run(one.sample())
    judge.after = lambda: halt.set("stopped by you") if len(judge.seen) == 50 else None
    assert not asyncio.run(one.judge(judge, threads=2))
    assert 50 <= len(judge.seen) <= 53
    done = len(one.verdicts())
    rest = Counting()
    assert asyncio.run(evaluation(tmp_path, 40, count=4).judge(rest))
    assert len(rest.seen) == 40 * (4 - done)


def test_what_will_never_be_answered_is_no_program(tmp_path: Path):
    config = Config("short", prompt_text(), problems=2)
    one = HumanEval(tmp_path, config, 3, ScriptedModel(lambda request: ContextOverflow("too long")))
    assert asyncio.run(one.sample())
    assert asyncio.run(one.judge(Counting()))
    made = report_of(config, 3, [1], one.samples(), one.verdicts(), price=None, contained=True)
    assert (made.refused, made.outcomes, made.humaneval[0].rate) == (6, {"no code": 6}, 0.0)


def test_what_may_be_answered_later_stops(tmp_path: Path, snapshot: Callable[..., None]):
    config = Config("down", prompt_text(), problems=2)
    one = HumanEval(tmp_path, config, 3, ScriptedModel(lambda request: ServerFailed("down")))
    with pytest.raises(ServerFailed) as caught:
        asyncio.run(one.sample())
    snapshot("errors", caught.value)


def test_another_configuration_is_refused_and_named(tmp_path: Path):
    asyncio.run(evaluation(tmp_path).sample())
    other = Config("another", prompt_text(), Sampling(temperature=0.5), 0, 3)
    with pytest.raises(InputError, match=r"model.*'scripted'.*'another'"):
        HumanEval(tmp_path, other, 6, ScriptedModel(numbered))
    for wrong in (0, 165):
        with pytest.raises(InputError, match="164"):
            Config("m", "p", problems=wrong)


def test_an_estimate_is_near_what_it_takes(tmp_path: Path):
    one = evaluation(tmp_path, count=164)
    need = one.estimate(one.left())
    assert need.calls == 6 * 164
    assert 150 < need.prompt / need.calls < 400
