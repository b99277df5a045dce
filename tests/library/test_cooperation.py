"""Methods at equal budgets: what they spend, what they answer, and whether planted effects are found."""

from __future__ import annotations

import contextlib
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import camel
from camel.core.errors import CamelError, InputError, RequestRejected
from camel.core.message import Sampling
from camel.core.model import Choice, Model, Reply, Request, Usage
from camel.core.society import Ending
from camel.evaluation.cooperation.exercises import Exercise, read_exercises
from camel.evaluation.cooperation.methods import METHODS, vote
from camel.evaluation.cooperation.report import ProblemSolution, figures_of, report

ALL = [name for name in METHODS if name != "single"]


class Adder(Model):
    """Adds two numbers, right with a chance of `alone`, or of `together` in a role play. It counts its tokens."""

    name = "adder"

    def __init__(self, alone: float = 0.4, together: float | None = None) -> None:
        self._alone, self._together = alone, alone if together is None else together
        self.usage = Usage()
        self.checked = ""
        """Everything that the model was sent."""

    async def reply(self, request: Request) -> Reply:
        said = "\n".join(entry.content for entry in request.history.entries)
        chance = random.Random(request.digest())
        problem = re.search(r"Add (\d+) and (\d+)", said)
        assert problem
        right = int(problem[1]) + int(problem[2])
        share = self._together if request.speaker == "assistant" else self._alone
        answer = right if chance.random() < share else right + 1 + chance.randrange(5)
        if request.speaker == "user":
            done = request.history.entries[-1].content.startswith("Solution:")
            text = "<CAMEL_TASK_DONE>" if done else "Instruction: Solve it.\nInput: None"
        else:
            text = f"Solution: That is it.\n#### {answer}"
        usage = Usage(len(said) // 4, 20 + chance.randrange(20), calls=1)
        self.usage += usage
        return Reply((Choice(text),), usage)


def sums(count: int) -> list[Exercise]:
    return [
        Exercise(f"sum/{n}", f"Add {37 * n % 91} and {n}.", str(37 * n % 91 + n), "number")
        for n in range(count)
    ]


def compared(model: Model, out: Path, **given: Any) -> camel.CooperationFigures:
    methods, problems = given.pop("methods", ALL), given.pop("problems", sums(100))
    return camel.compare_methods(
        methods, problems, **{"tokens": 1500, **given}, model=model, out=out, progress=False
    )


def test_the_budgets_are_equal_by_the_models_own_count(tmp_path: Path):
    model = Adder()
    duo = camel.Society("Solve <problem>", members=("Ada", "Ben"), title="duo", stop=Ending(max_rounds=1))  # pyright: ignore[reportArgumentType]
    made = compared(model, tmp_path / "out", methods=[*ALL, duo])
    assert made.spread <= 0.02
    assert sum(one.usage.total for one in made.methods) == model.usage.total
    assert sum(one.usage.calls for one in made.methods) == model.usage.calls
    assert made["single"].usage.calls == 100
    for one in made.methods[1:]:
        assert one.usage.total == pytest.approx(150_000, rel=0.02), one.name
    again = Adder()
    assert compared(again, tmp_path / "out", methods=[*ALL, duo]) == made
    assert again.usage.calls == 0
    assert "role_play" in str(made)
    assert "<svg" in made._repr_html_()
    with pytest.raises(InputError, match="tokens"):
        compared(again, tmp_path / "out", methods=[*ALL, duo], tokens=1600)


def test_many_small_blocks_together_spend_what_one_would(tmp_path: Path):
    """The last block spends what is left of the others, so that the totals do not differ by half an attempt per block."""
    methods = ["self_consistency", "role_play", "society"]
    made = compared(Adder(), tmp_path / "out", methods=methods, problems=sums(40), block=4)
    assert made.spread <= 0.02


def test_planted_differences_are_found_and_none_is_invented(tmp_path: Path):
    made = compared(
        Adder(0.2, 0.9), tmp_path / "helps", methods=["self_consistency", "role_play"], tokens=1200
    )
    assert made["role_play"].sure
    against = made["role_play"].against
    assert against is not None
    assert against.difference > 0.2
    same = compared(Adder(1.0), tmp_path / "same", methods=["self_consistency", "role_play"], tokens=1200)
    assert not same["role_play"].sure
    assert "No method" in report(same).headline


def solved(method: str, right: list[bool]) -> tuple[str, list[ProblemSolution], list[list[bool]]]:
    made = [ProblemSolution(str(n), ["x"], [10], 0, "x", Usage(5, 5, calls=1)) for n in range(len(right))]
    return method, made, [[one] for one in right]


@pytest.mark.parametrize(
    ("seeds", "least"),
    # 100 seeds notice intervals that contain the truth in 80 instead of 95 of 100 cases.
    [(100, 89), pytest.param(1000, 930, marks=pytest.mark.thorough)],
)
@pytest.mark.parametrize(("effect", "called"), [(0.0, (0.0, 0.07)), (0.15, (0.2, 1.0))])
def test_intervals_contain_the_truth(seeds: int, least: int, effect: float, called: tuple[float, float]):
    """Problems differ in difficulty, and both methods meet the same ones."""
    covered = found = 0
    for seed in range(seeds):
        chance = random.Random(seed)
        hard = [chance.uniform(0.1, 0.8) for _ in range(120)]
        one = [chance.random() < p for p in hard]
        two = [chance.random() < p + effect for p in hard]
        made = figures_of(
            ["self_consistency", "role_play"],
            10,
            "m",
            [solved("self_consistency", one), solved("role_play", two)],
        )
        against = made["role_play"].against
        assert against
        covered += against.low <= effect <= against.high
        found += made["role_play"].sure
    assert covered >= least
    assert called[0] <= found / seeds <= called[1]


def test_a_method_that_costs_more_than_its_budget_leaves_problems_out(tmp_path: Path):
    made = compared(Adder(), tmp_path / "out", methods=["society", "self_consistency"], tokens=100)
    assert made["society"].unanswered > 50
    assert made["society"].solved.of == 100


def test_votes_count_equal_answers():
    assert vote(["", "3", "4", "4"]) == 2
    assert vote(["3", "4"]) == 0
    assert vote(["", ""]) == -1


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("so 3 + 4 = 7\n#### 7", "7"),
        ("#### 1,200.50", "1200.5"),
        ("The answer is $18.", "18"),
        (r"\boxed{-3}", "-3"),
        ("It is 4, then 5", "5"),
        ("none", ""),
        ("#### 7\nI also thought of 9", "7"),
    ],
)
def test_the_number_in_an_answer(text: str, key: str):
    assert Exercise("x", "?", "7", "number").key(text) == key


def test_programs_are_compared_without_their_comments():
    task = read_exercises("humaneval+[:1]")[0]
    head = "def has_close_elements(numbers, threshold):\n"
    one, two = (task.key(f"```python\n{head}    return True{end}\n```") for end in ("", "  # easy"))
    assert one == two != ""


def test_problems_by_name_and_from_a_file(tmp_path: Path):
    assert len(read_exercises("gsm8k")) == 1319
    assert [one.answer for one in read_exercises("gsm8k[:2]")] == ["18", "3"]
    file = tmp_path / "own.jsonl"
    file.write_text(json.dumps({"question": "Who?", "answer": "Ada Lovelace"}))
    own = read_exercises(str(file))[0]
    assert own.kind == "text"
    assert own.right(own.key("It was her. #### ada  lovelace"), None, None)
    assert own.right("anything", None, lambda answer, expected: answer == "anything")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: read_exercises("gsm9k"), "gsm8k"),
        (lambda: read_exercises("gsm8k[2000:]"), "none"),
        (lambda: camel.compare_methods(["role_plai"], "gsm8k[:2]", model=Adder(), out="x"), "role_play"),
        (lambda: camel.compare_methods([], "gsm8k[:2]", model=Adder(), out="x"), "at least one"),
        (lambda: camel.compare_methods(["society"], "gsm8k[:2]", model=Adder()), "out is missing"),
        (lambda: camel.compare_methods([camel.Society("Plan", members=("A", "B"))], "gsm8k[:2]", model=Adder(), out="x"), "placeholder"),  # pyright: ignore[reportArgumentType]
    ],
)  # fmt: skip
def test_mistakes_are_named_before_any_call(make: Callable[[], Any], says: str):
    with pytest.raises(InputError, match=says):
        make()


def test_sampling_is_part_of_what_is_stored(tmp_path: Path):
    made = compared(
        Adder(),
        tmp_path / "a",
        methods=["self_consistency"],
        problems=sums(5),
        sampling=Sampling(temperature=1.0),
    )
    assert made.problems == 5


def test_no_reply_is_without_a_limit(tmp_path: Path):
    """A small model may otherwise write until the endpoint's timeout."""
    limits = list[int | None]()

    class Noting(Adder):
        async def reply(self, request: Request) -> Reply:
            limits.append(request.sampling.max_tokens)
            return await super().reply(request)

    compared(Noting(), tmp_path / "a", methods=["society", "role_play"], problems=sums(3))
    assert None not in limits


def test_another_check_is_applied_to_the_same_answers(tmp_path: Path):
    def never(answer: str, expected: str) -> bool:
        return False

    compared(Adder(1.0), tmp_path / "a", methods=["self_consistency"], problems=sums(4))
    again = Adder(1.0)
    made = compared(again, tmp_path / "a", methods=["self_consistency"], problems=sums(4), check=never)
    assert made["single"].solved.count == 0
    assert again.usage.calls == 0


def test_a_block_that_failed_is_solved_and_checked_when_it_is_retried(tmp_path: Path):
    class Broken(Adder):
        async def reply(self, request: Request) -> Reply:
            raise RequestRejected("no such model")

    with contextlib.suppress(CamelError):
        compared(Broken(), tmp_path / "a", methods=["self_consistency"], problems=sums(4))
    made = compared(
        Adder(1.0), tmp_path / "a", methods=["self_consistency"], problems=sums(4), retry_failed=True
    )
    assert made.failed == 0
    assert made["self_consistency"].solved.count == 4


def test_problems_have_names_of_their_own(tmp_path: Path):
    with pytest.raises(InputError, match="sum/0"):
        compared(Adder(), tmp_path / "a", problems=[*sums(2), *sums(1)])
