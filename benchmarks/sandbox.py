"""What the sandbox costs: starting a program in it against bare Python, both cores at once, and calls of the tool `python`.

    python -m benchmarks.sandbox [--short]

Times are of this machine as it is now; the ratios and the processor's seconds say more. It fails when a program in the
sandbox takes more than four times the processor's time of bare Python, or when the first call of a conversation's tool
takes more than three times the time of `python -I -c`, side by side. Later calls use the same interpreter.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from camel.evaluation.humaneval.judging import ProgramJudge
from camel.evaluation.humaneval.problems import problems
from camel.sandbox.process import Sandbox
from camel.tools.python import Interpreter

PROGRAM = "def add(a, b):\n    return a + b\n"
MOST, MOST_TOOL = 4.0, 3.0
CODE = "print(sum(n * n for n in range(1000)))"


class Cost:
    """Wall and processor time of many runs."""

    def __init__(self, run: Callable[[], object], times: int, threads: int = 1) -> None:
        run()
        before, started = _used(), time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            walls = list(pool.map(lambda _: _timed(run), range(times)))
        self.each = median(walls)
        self.best = min(walls)
        self.rate = times / (time.perf_counter() - started)
        self.processor = (_used() - before) / times

    def line(self, name: str) -> str:
        return f"{name:<34} {1000 * self.best:7.1f} {1000 * self.each:7.1f} {1000 * self.processor:9.1f} {self.rate:8.1f}"


def _timed(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def _used() -> float:
    """Processor seconds of this process and of those that it has waited for."""
    return sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def first_call() -> None:
    """The first call of a conversation: a new interpreter."""
    interpreter = Interpreter()
    assert interpreter.execute(CODE) == ("332833500", "")
    interpreter.end()


def tool_ratio(times: int) -> tuple[float, float]:
    """Return the time of a first call and of a later one, as multiples of `python -I -c`. The runs alternate."""

    def bare() -> None:
        subprocess.run([sys.executable, "-I", "-c", CODE], check=True, stdout=subprocess.DEVNULL)

    kept = Interpreter()
    kept.execute(CODE)
    runs: list[Callable[[], object]] = [bare, first_call, lambda: kept.execute(CODE)]
    took = [[_timed(run) for run in runs] for _ in range(times)]
    kept.end()
    alone, first, later = map(median, zip(*took, strict=True))
    return first / alone, later / alone


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true")
    times = 20 if parser.parse_args().short else 200
    cores = os.cpu_count() or 1

    def bare() -> None:
        subprocess.run([sys.executable, "-I", "-S", "-B", "-c", PROGRAM + "add(1, 2)"], check=True)

    def contained(sandbox: Sandbox) -> None:
        with sandbox.start(PROGRAM, "add") as program:
            assert program.call((1, 2)) == 3

    print(f"{'':<34} {'best ms':>7} {'ms':>7} {'cpu ms':>9} {'a second':>8}")
    with Sandbox() as sandbox, Sandbox(contained=False) as open_one:
        started = time.perf_counter()
        sandbox.check()
        made = time.perf_counter() - started
        python = Cost(bare, times)
        print(python.line("bare Python"))
        print(Cost(lambda: contained(open_one), times).line("a program, without a sandbox"))
        one = Cost(lambda: contained(sandbox), times)
        print(one.line("a program in the sandbox"))
        all_cores = Cost(lambda: contained(sandbox), times, cores)
        print(all_cores.line(f"the same, {cores} at a time"))
        judge, problem = ProgramJudge(sandbox), problems()[0]
        judge.expected(problem)
        print(
            Cost(lambda: judge.judge(problem, problem.plus_solution), times, cores).line(
                f"{problem.name}, both suites"
            )
        )
    print(f"the copy of Python: {made:.2f} s, once for each command")
    ratio = one.processor / python.processor
    print(
        f"processor time against bare Python: {ratio:.2f}x; {cores} at a time: {all_cores.rate / one.rate:.2f}x as many a second"
    )
    first, later = tool_ratio(times)
    print(f"the tool python against python -I -c: first call {first:.2f}x, later calls {later:.2f}x")
    if first > MOST_TOOL:
        sys.exit(f"a call of the tool python takes {first:.1f} times python -I -c, more than {MOST_TOOL}")
    if ratio > MOST:
        sys.exit(
            f"a program in the sandbox takes {ratio:.1f} times the processor's time of bare Python, more than {MOST}"
        )


if __name__ == "__main__":
    main()
