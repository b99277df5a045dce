"""HumanEval: references pass, forged answers fail, pass@k is exact, and programs are extracted from chat answers."""

from __future__ import annotations

import ast
import itertools
import math
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camel.evaluation.humaneval import judging
from camel.evaluation.humaneval.extract import extract
from camel.evaluation.humaneval.judging import ProgramJudge, ProgramVerdict, same
from camel.evaluation.humaneval.problems import Problem, problems
from camel.evaluation.humaneval.report import pass_at, passing
from camel.sandbox.process import Killed, Sandbox, SandboxFailed
from tests.support import hostile_programs as hostile


@pytest.fixture(scope="module")
def judge(sandbox: Sandbox) -> ProgramJudge:
    return ProgramJudge(sandbox)


def named(number: int) -> Problem:
    return problems()[number]


def whole(problem: Problem) -> str:
    """HumanEval's reference solution as a complete program."""
    return problem.prompt + problem.solution


def all_of(judge: ProgramJudge, work: list[tuple[Problem, str]]) -> list[ProgramVerdict]:
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda one: judge.judge(*one), work))


# --- the judge -----------------------------------------------------------------------------------------------------

FEW = (0, 2, 4, 32, 33, 38, 50, 53, 72, 87, 115, 133, 162)
"""Problems with tolerances, helpers in the prompt, random tests, `is True`, and a different prompt in HumanEval+."""


def check_references(judge: ProgramJudge, some: list[Problem]) -> None:
    for problem in some:
        # HumanEval's references run only against HumanEval, because some are too slow for HumanEval+.
        with judge._sandbox.start(whole(problem), problem.entry) as program:
            judging._check(problem, program)
    for problem, verdict in zip(some, all_of(judge, [(p, p.plus_solution) for p in some]), strict=True):
        assert (verdict.humaneval, verdict.plus, verdict.why) == (True, True, ""), (problem.name, verdict)


def check_forgeries(judge: ProgramJudge, some: list[Problem]) -> None:
    work = [(problem, kind) for problem in some for kind in hostile.FORGERIES]
    verdicts = all_of(judge, [(problem, hostile.forged(kind, problem.entry)) for problem, kind in work])
    assert len(hostile.FORGERIES) == 9
    accepted = [
        (problem.name, kind)
        for (problem, kind), one in zip(work, verdicts, strict=True)
        if one.humaneval or one.plus
    ]
    assert accepted == []


@pytest.mark.slow
def test_some_reference_solutions_pass(judge: ProgramJudge):
    check_references(judge, [named(number) for number in FEW])


def test_some_forged_answers_are_rejected(judge: ProgramJudge):
    """The answers of these problems are a boolean, a root, a list and a number."""
    check_forgeries(judge, [named(number) for number in (0, 32, 33, 53)])


@pytest.mark.thorough
def test_all_reference_solutions_pass(judge: ProgramJudge):
    assert len(problems()) == 164
    check_references(judge, list(problems()))


@pytest.mark.thorough
def test_all_forged_answers_are_rejected(judge: ProgramJudge):
    check_forgeries(judge, list(problems()))


def test_a_checker_without_a_sandbox_accepts_the_forgery():
    """Shows that the forgery works if program and test share a process."""
    problem, namespace = named(0), {}
    exec(hostile.forged("always equal", problem.entry) + problem.test, namespace)
    namespace["check"](namespace[problem.entry])


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return 12345", "wrong"),
        ("return 1 / 0", "raised"),
        ("return (x for x in ())", "foreign"),
        ("import os; os._exit(0)", "ended"),
        ("import sys; sys.exit(0)", "raised"),
    ],
)
def test_each_failure_has_its_kind(judge: ProgramJudge, body: str, why: str):
    problem = named(0)
    verdict = judge.judge(problem, f"def {problem.entry}(*args):\n    {body}\n")
    assert (verdict.humaneval, verdict.plus, verdict.why) == (False, False, why)


def test_a_program_that_passes_only_the_base_inputs(judge: ProgramJudge):
    problem = named(124)
    verdict = judge.judge(problem, whole(problem))
    assert (verdict.humaneval, verdict.plus, verdict.why) == (True, False, "wrong")


def test_a_failed_sandbox_is_an_error_and_not_a_score():
    class Broken(Sandbox):
        def start(self, *args: object, **more: object) -> None:  # pyright: ignore
            raise SandboxFailed("dead")

    with pytest.raises(SandboxFailed):
        ProgramJudge(Broken()).judge(named(0), whole(named(0)))


def test_a_killed_program_runs_again(judge: ProgramJudge, monkeypatch: pytest.MonkeyPatch):
    left = [judging.KILLS - 1]
    start = judge._sandbox.start

    def killed(*args: object, **more: object) -> object:
        if left[0]:
            left[0] -= 1
            raise Killed
        return start(*args, **more)  # pyright: ignore

    judge.expected(named(0))
    monkeypatch.setattr(judge._sandbox, "start", killed)
    assert judge.judge(named(0), whole(named(0))).humaneval
    left[0] = judging.KILLS
    assert judge.judge(named(0), whole(named(0))).why == "killed"


def test_numbers_may_be_close_where_the_data_says_so():
    exact, tolerant, zero = named(9), named(4), named(32)
    assert same(tolerant, [], 1.0000001, 1.0)
    assert not same(tolerant, [], 1.001, 1.0)
    assert same(exact, [], [1.0, 2.0 + 1e-8], [1.0, 2.0])
    assert not same(exact, [], [1, 3], [1, 2])
    assert same(exact, [], [1, 2], [True, 2.0])
    assert not same(exact, [], (1.0, 2.0 + 1e-8), [1.0, 2.0])
    assert not same(exact, [], "x", 1.0)
    assert same(zero, [[-1, 1]], 1.0 + 1e-5, None)
    for wrong in (2.0, "x", None, [1.0], 10**400, math.nan, math.inf):
        assert not same(zero, [[-1, 1]], wrong, None)


# --- pass@k --------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(1, 9), st.data())
def test_pass_at_k_equals_counting_all_choices(n: int, data: st.DataObject):
    passed, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    outcomes = [True] * passed + [False] * (n - passed)
    choices = list(itertools.combinations(outcomes, k))
    assert pass_at(n, passed, k) == pytest.approx(sum(map(any, choices)) / len(choices), abs=1e-12)


def test_pass_at_k_of_many_samples_is_exact():
    assert pass_at(200, 1, 100) == pytest.approx(0.5, abs=1e-15)
    assert pass_at(200, 100, 1) == pytest.approx(0.5, abs=1e-15)
    assert pass_at(10_000, 1, 10_000) == 1.0
    assert pass_at(200, 0, 100) == 0.0
    for wrong in ((5, 1, 6), (5, 1, 0), (5, 6, 1)):
        with pytest.raises(ValueError, match=r"\bk\b"):
            pass_at(*wrong)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, 20), min_size=2, max_size=60))
def test_an_interval_contains_its_rate(passed: list[int]):
    found = passing(20, passed, [1, 5, 20])
    for one in found:
        assert 0 <= one.low <= one.rate <= one.high <= 1
        assert one.low < one.high or len(set(passed)) == 1 or one.k == 20
    assert [one.rate for one in found] == sorted(one.rate for one in found)


def test_equal_problems_still_have_an_interval():
    none, every = passing(5, [0] * 164, [1])[0], passing(5, [5] * 164, [1])[0]
    assert (none.rate, none.low, every.rate, every.high) == (0.0, 0.0, 1.0, 1.0)
    assert 0.01 < none.high < 0.04
    assert 0.96 < every.low < 0.99


def test_intervals_have_about_their_nominal_coverage():
    import random

    rng, held = random.Random(5), 0
    for _ in range(20):
        # The probability of each problem is uniform, so pass@1 is 1/2.
        passed = [
            sum(rng.random() < chance for _ in range(10)) for chance in [rng.random() for _ in range(40)]
        ]
        one = passing(10, passed, [1])[0]
        held += one.low <= 0.5 <= one.high
    assert held >= 17


# --- extracting the program ----------------------------------------------------------------------------------------

PROBLEM = named(2)  # truncate_number(number: float) -> float
BODY = "    return number % 1.0\n"
WHOLE = "def truncate_number(number: float) -> float:\n" + BODY
TYPED = "def truncate_number(number: List[float]) -> float:\n" + BODY


def session(code: str) -> str:
    first, *rest = code.rstrip().split("\n")
    return "\n".join(
        [f">>> {first}", *(f"... {line}" for line in rest), "...", ">>> truncate_number(3.5)", "0.5"]
    )


WAYS = {
    "bare": WHOLE,
    "fenced": f"```python\n{WHOLE}```",
    "fenced without a name": f"```\n{WHOLE}```",
    "fenced in capitals": f"```Python\n{WHOLE}```",
    "tildes": f"~~~python\n{WHOLE}~~~",
    "longer fence": f"````python\n{WHOLE}````",
    "never closed": f"Here:\n```python\n{WHOLE}",
    "between prose": f"Sure, here it is:\n\n```python\n{WHOLE}```\n\nThis returns the fraction. Isn't that nice?",
    "prose without fences": f"Sure, here it is:\n\n{WHOLE}\nThis returns the fraction. It's simple.",
    "the whole prompt again": f"```python\n{PROBLEM.prompt}{BODY}```",
    "only the body": BODY,
    "only the body, fenced": f"```python\n{BODY}```",
    "the body without indentation": "return number % 1.0",
    "the body, its first line trimmed": "whole = int(number)\n    return number - whole\n",
    "the body and prose": f"{BODY}\n\nExplanation: this returns the fraction.",
    "the body at two columns": "  whole = int(number)\n  return number - whole",
    "indented block": textwrap.indent(WHOLE, "    "),
    "list item": "1. Write it:\n\n   ```python\n" + textwrap.indent(WHOLE, "   ") + "   ```\n",
    "a first block that is none of it": f"```sh\npip install nothing\n```\n```python\n{WHOLE}```",
    "an example first": f"```python\ntruncate_number(3.5)\n```\nso\n```python\n{WHOLE}```",
    "imports in a block of their own": f"```python\nimport math\n```\n```python\n{WHOLE.replace('% 1.0', '- math.floor(number)')}```",
    "a helper after it": "```python\ndef truncate_number(number):\n    return helper(number)\n\n\ndef helper(x):\n    return x % 1\n```",
    "interactive": session(WHOLE),
    "interactive and fenced": f"```pycon\n{session(WHOLE)}\n```",
    "notebook": "In [1]: def truncate_number(number):\n   ...:     return number % 1\n",
    "printing": f"```python\n{WHOLE}\nprint(truncate_number(3.5))\n```",
    "asking": f"```python\n{WHOLE}\nn = float(input())\nprint(truncate_number(n))\n```",
    "asserting what is wrong": f"```python\n{WHOLE}\nassert truncate_number(3.5) == 3\n```",
    "with a main": f"```python\n{WHOLE}\nif __name__ == '__main__':\n    print(truncate_number(1.5))\n```",
    "windows lines": f"```python\r\n{WHOLE}```".replace("\n", "\r\n"),
    "a lambda": "```python\ntruncate_number = lambda number: number % 1.0\n```",
    "thinking aloud": f"<think>maybe def truncate_number(number): pass</think>\n```python\n{WHOLE}```",
    "tags": f"[PYTHON]\n{WHOLE}[/PYTHON]",
    "a stub, then the function": f"```python\ndef truncate_number(number):\n    pass\n```\n```python\n{WHOLE}```",
    "a name without its import": f"```python\n{TYPED.replace('List[float]', 'float')}```",
    "a quotation": "> ```python\n" + WHOLE + "> ```",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_program_is_extracted_from_each_layout(way: str):
    program = extract(PROBLEM, WAYS[way])
    namespace: dict[str, object] = {}
    exec(program, namespace)
    assert namespace["truncate_number"](3.5) == 0.5  # pyright: ignore


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "I cannot do that.",
        "Sorry",
        "yes",
        "```\n```",
        "```python\nimport os\n```",
        "?" * 50,
        "```json\n{}\n```",
    ],
)
def test_an_answer_without_a_program_gives_none(answer: str):
    assert extract(PROBLEM, answer) == ""


def test_imports_and_helpers_of_the_problem_are_included():
    cyclic = named(38)
    program = extract(
        cyclic, "```python\ndef decode_cyclic(s):\n    return encode_cyclic(encode_cyclic(s))\n```"
    )
    assert "def encode_cyclic" in program
    typed = extract(
        named(0),
        "```python\ndef has_close_elements(numbers: List[float], threshold: float) -> bool:\n    return False\n```",
    )
    exec(typed, {})
    future = extract(PROBLEM, f"from __future__ import annotations\n{WHOLE}")
    exec(future, {})


@pytest.mark.parametrize(
    ("number", "answer", "values", "wanted"),
    [
        (
            0,
            "from __future__ import annotations\n\ndef has_close_elements(numbers: List[float], threshold: X) -> bool:\n    return True\n",
            ([1.0], 0.5),
            True,
        ),
        (
            38,
            "```python\nimport math\n```\n```python\nfrom __future__ import annotations\ndef decode_cyclic(s: X) -> str:\n    return encode_cyclic(encode_cyclic(s))\n```",
            ("bca",),
            "abc",
        ),
        (55, "```python\nfib = lambda n: n if n < 2 else fib(n-1) + fib(n-2)\nprint(fib(3))\n```", (10,), 55),
    ],
)
def test_future_imports_and_recursive_functions_are_kept(
    number: int, answer: str, values: tuple[object, ...], wanted: object
):
    problem, namespace = named(number), dict[str, Any]()
    program = extract(problem, answer)
    exec(compile(program, "program", "exec", dont_inherit=True), namespace)
    assert namespace[problem.entry](*values) == wanted
    assert "print" not in program


@pytest.mark.parametrize("number", range(0, 164, 9))
def test_every_reference_is_extracted_from_every_layout(number: int):
    problem = named(number)
    for text in (
        problem.solution,
        whole(problem),
        f"```python\n{whole(problem)}\n```",
        f"Here you go!\n```\n{problem.solution}```\nDone.",
        whole(problem).rstrip() + "\n\nThis is how it works: it's simple.",
    ):
        program = extract(problem, text)
        assert program, text
        assert any(
            isinstance(n, ast.FunctionDef) and n.name == problem.entry for n in ast.parse(program).body
        )


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "```python\n",
                "```\n",
                ">>> ",
                "... ",
                "def truncate_number(number):\n",
                "    return 1\n",
                "\n",
                "text ",
                '"""',
                "\t",
                "é",
                "(",
                "\\",
                "[PYTHON]",
                "~~~",
            ]
        )
        | st.text(max_size=20),
        max_size=12,
    ).map("".join)
)
def test_any_text_gives_a_valid_program_or_none(answer: str):
    program = extract(PROBLEM, answer)
    if program:
        tree = ast.parse(program)
        assert "truncate_number" in program
        assert tree.body
    assert extract(PROBLEM, answer) == program


@settings(max_examples=60, deadline=None)
@given(
    st.text(max_size=200).filter(lambda t: "`" not in t and "~" not in t and "<think" not in t.lower()),
    st.text(max_size=200).filter(lambda t: "`" not in t and "~" not in t),
)
def test_a_fenced_program_is_extracted_from_any_prose(before: str, after: str):
    program = extract(PROBLEM, f"{before}\n```python\n{WHOLE}```\n{after}")
    namespace: dict[str, object] = {}
    exec(program, namespace)
    assert namespace["truncate_number"](3.5) == 0.5  # pyright: ignore


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(piece * times, id=repr(piece))
        for piece, times in (
            ("(", 200_000),
            ("def f(:\n", 20_000),
            ("```\n", 50_000),
            (">>> x\n", 4_000),
            ("x", 10**6),
        )
    ],
)
def test_a_long_answer_is_parsed_quickly(text: str):
    """Takes less than a second each; a quadratic algorithm would take minutes."""
    before = time.process_time()
    assert extract(PROBLEM, text) == ""
    assert time.process_time() - before < 10
