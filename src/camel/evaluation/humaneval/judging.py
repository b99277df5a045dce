"""Judges a program: tests run in this process, the program runs in a sandbox, and only calls and plain values pass between.

The one decision to know: the tests are outside the sandbox. HumanEval's `check(candidate)` runs in this process with a
candidate that sends each call to the sandbox. For HumanEval+, the inputs are sent and the answers are compared here. Expected
values never enter the sandbox, and answers have only built-in types, so a program cannot read or forge results.
"""

from __future__ import annotations

import builtins
import math
import random
import threading
from functools import cache
from types import CodeType, ModuleType
from typing import Any, Literal, cast

import msgspec

from camel.evaluation.humaneval.problems import Problem
from camel.sandbox.process import Killed, Limits, Program, ProgramFailed, Sandbox, SandboxFailed, request_for
from camel.sandbox.values import BadBytes, decode

Suite = Literal["humaneval", "plus"]
SECONDS = 3
"""CPU seconds per test suite, as in HumanEval. HumanEval+ adds four times the time of the reference solution."""
PATIENCE = 10
"""Wall-clock seconds per CPU second: enough for a busy machine, and a limit for a program that sleeps."""
KILLS = 3
"""Number of times that the kernel may kill a program before this counts as its failure."""
RELATIVE = 1e-7
_SPARE = 8 << 20
CLOSE = 1e-6
"""Tolerance for floats in HumanEval+ if the problem defines none."""


class ProgramVerdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of running a program against both test suites."""

    humaneval: bool
    plus: bool
    why: str = ""
    """Why the program failed a suite: wrong, raised, foreign, ended, time, size, damaged, killed or no code."""
    detail: str = ""
    seconds: float = 0.0
    """CPU time of the program in seconds."""


NO_CODE = ProgramVerdict(False, False, "no code")


class ProgramJudge:
    """Judges programs in a sandbox, from any number of threads."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._expected: dict[str, _Expected] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    @property
    def contained(self) -> bool:
        """Whether programs run in a sandbox."""
        return self._sandbox.contained

    def judge(self, problem: Problem, source: str) -> ProgramVerdict:
        """Run a program against both test suites. Raises `SandboxFailed` if the sandbox or the reference solution fails."""
        expected = self.expected(problem)
        for _ in range(KILLS):
            try:
                return self._judge(problem, source, expected)
            except Killed:
                continue
        return ProgramVerdict(False, False, "killed")

    def _judge(self, problem: Problem, source: str, expected: _Expected) -> ProgramVerdict:
        seconds = 2 * SECONDS + math.ceil(4 * expected.seconds)
        limits = Limits(seconds, float(seconds * PATIENCE), answer=expected.largest, answers=expected.most)
        passed: list[Suite] = []
        why = detail = ""
        program: Program | None = None
        try:
            with self._sandbox.start(source, problem.entry, limits) as program:
                for suite in ("humaneval", "plus"):
                    try:
                        if suite == "humaneval":
                            _check(problem, program)
                        else:
                            _compare(problem, program, expected)
                        passed.append(suite)
                    except ProgramFailed as failed:
                        why, detail = why or failed.kind, detail or failed.text
                        if failed.kind not in ("wrong", "raised", "foreign"):
                            break  # the program no longer runs
        except ProgramFailed as failed:
            why, detail = failed.kind, failed.text
        return ProgramVerdict(
            "humaneval" in passed,
            "plus" in passed,
            why,
            detail[:300],
            round(program.seconds, 3) if program else 0.0,
        )

    def expected(self, problem: Problem) -> _Expected:
        """Return the expected answers, from HumanEval+'s reference solution. It runs once per problem."""
        with self._lock:
            lock = self._locks.setdefault(problem.name, threading.Lock())
        with lock:
            if problem.name not in self._expected:
                self._expected[problem.name] = self._ask_reference(problem)
            return self._expected[problem.name]

    def forget(self, problem: Problem) -> None:
        """Free the cached answers of the reference solution, up to 150 MB. It runs again if they are needed."""
        self._expected.pop(problem.name, None)

    def _ask_reference(self, problem: Problem) -> _Expected:
        requests = [request_for(one) for one in problem.plus_inputs]
        try:
            with self._sandbox.start(problem.plus_solution, problem.entry, Limits(60, 600.0)) as program:
                answers = list(program.answers(requests))
        except (ProgramFailed, Killed) as error:
            raise SandboxFailed(f"the reference solution of {problem.name} failed to run: {error}") from None
        if any(answer[:1] != b"V" for answer in answers):
            raise SandboxFailed(f"the reference solution of {problem.name} returned no value")
        sizes = [len(answer) for answer in answers]
        return _Expected(requests, answers, program.seconds, _SPARE + 4 * max(sizes), _SPARE + 4 * sum(sizes))


class _Expected(msgspec.Struct):
    """HumanEval+'s inputs and expected answers, as bytes."""

    requests: list[bytes]
    answers: list[bytes]
    seconds: float
    largest: int
    """Maximum bytes of one answer, more than a correct answer needs."""
    most: int
    """Maximum bytes of all answers."""


# --- HumanEval -----------------------------------------------------------------------------------------------------


def _check(problem: Problem, program: Program) -> None:
    """Run HumanEval's test, which is code from the data. It gets only built-in values from the program."""

    def candidate(*positional: Any, **named: Any) -> Any:
        return program.call(positional, named)

    namespace: dict[str, Any] = {"__name__": "check", "__builtins__": _builtins()}
    # The prompt defines helpers that some tests use. The function itself is the candidate, as in HumanEval.
    exec(_compiled(problem.name, problem.prompt), namespace)  # noqa: S102 - code from the data, whose hash is checked in problems.py
    namespace[problem.entry] = candidate
    exec(_compiled(problem.name, problem.test), namespace)  # noqa: S102
    try:
        namespace["check"](candidate)
    except ProgramFailed:
        raise
    except AssertionError as error:
        raise ProgramFailed("wrong", str(error)[:200]) from None
    except Exception as error:
        # The answer has a type that the test cannot handle, such as a string where it subtracts.
        raise ProgramFailed("wrong", f"{type(error).__name__}: {error}"[:200]) from None


@cache
def _compiled(name: str, text: str) -> CodeType:
    """Return the prompt or the test of a problem as a code object. Each text is compiled once."""
    return compile(text, name, "exec", dont_inherit=True)


def _builtins() -> dict[str, Any]:
    """Return the built-ins for a test. Random numbers have a fixed seed, so that a verdict can be reproduced."""
    drawn = ModuleType("random")
    source = random.Random(20230331)  # noqa: S311 - no secret
    for name in ("randint", "choice", "random", "shuffle", "sample", "uniform"):
        setattr(drawn, name, getattr(source, name))
    drawn.__dict__["Random"] = random.Random

    def import_(name: str, *rest: Any) -> Any:
        return drawn if name == "random" else __import__(name, *rest)

    def discard(*said: object, **how: object) -> None:
        """Replace `print`, which must not reach the terminal."""

    return {**vars(builtins), "__import__": import_, "print": discard}


# --- HumanEval+ ----------------------------------------------------------------------------------------------------


def _compare(problem: Problem, program: Program, expected: _Expected) -> None:
    """Call the program with every input, and raise at the first wrong answer."""
    answers = program.answers(expected.requests)
    for number, (answer, wanted) in enumerate(zip(answers, expected.answers, strict=True)):
        if answer == wanted and problem.entry != "find_zero":
            continue  # equal bytes are equal values
        if answer[:1] == b"R":
            raise ProgramFailed("raised", answer[1:].decode("utf-8", "replace"))
        if answer[:1] == b"X":
            raise ProgramFailed("foreign", answer[1:].decode("utf-8", "replace"))
        if answer[:1] != b"V":
            raise ProgramFailed("damaged")
        try:
            got = decode(answer[1:])
        except BadBytes as error:
            raise ProgramFailed("damaged", str(error)) from None
        if not same(problem, problem.plus_inputs[number], got, decode(wanted[1:])):
            raise ProgramFailed("wrong", f"input {number} of HumanEval+")


def same(problem: Problem, given: list[Any], got: Any, wanted: Any) -> bool:
    """Return whether an answer is correct by the rules of HumanEval+: equal, or close for floats."""
    try:
        if problem.entry == "find_zero":  # any zero is correct
            return abs(sum(c * math.pow(got, power) for power, c in enumerate(given[0]))) <= problem.tolerance
        if got == wanted:
            return True
        tolerance = problem.tolerance or (CLOSE if _floats(wanted) else 0.0)
        return bool(tolerance) and type(got) is type(wanted) and _close(got, wanted, tolerance)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False


def _floats(value: Any) -> bool:
    """Return whether the expected value is a float or a nonempty sequence of floats."""
    if isinstance(value, list | tuple):
        items = cast("list[Any]", value)
        return bool(items) and all(isinstance(item, float) for item in items)
    return isinstance(value, float)


def _close(got: Any, wanted: Any, tolerance: float) -> bool:
    if isinstance(wanted, list | tuple):
        return len(got) == len(cast("list[Any]", wanted)) and all(
            _close(one, other, tolerance) for one, other in zip(got, cast("list[Any]", wanted), strict=True)
        )
    if not isinstance(got, int | float) or not isinstance(wanted, int | float):
        return False
    return got == wanted or abs(got - wanted) <= tolerance + RELATIVE * abs(wanted)
