"""HumanEval at the paper's size, 164 problems x 200 samples, against the simulated endpoint with planted outcomes.

    python -m benchmarks.humaneval [--short]

Says what it took, and fails unless what is reported is what was planted and the endpoint was asked once for each sample.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from camel.core.message import Sampling
from camel.evaluation.humaneval.records import HumanEvalConfig, prompt_text
from camel.evaluation.humaneval.report import HumanEvalReport
from camel.evaluation.humaneval.solving import HumanEval
from camel.jobs.job import Step
from camel.jobs.runner import Runner
from camel.models.simulator import SimulatorProcess, SimulatorSettings, spawn
from camel.models.spec import connect
from camel.runs.run import RunFolder
from tests.support import planted


def used() -> float:
    return sum(
        one.ru_utime + one.ru_stime
        for one in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


class Timed(HumanEval):
    """Says what each of its steps took."""

    def stages(self, run: RunFolder) -> Iterator[Step]:
        steps = super().stages(run)
        started, before = time.perf_counter(), used()
        yield next(steps)
        seconds, cpu = time.perf_counter() - started, used() - before
        print(f"samples   {self.total:,} in {seconds:.1f} s, {cpu:.1f} cpu s")
        started, before = time.perf_counter(), used()
        yield next(steps)
        seconds, cpu = time.perf_counter() - started, used() - before
        programs = sum(program != "" for one in self.verdicts() for program in one.programs)
        print(
            f"verdicts  {programs:,} different programs in {seconds:.1f} s, {cpu:.1f} cpu s: "
            f"{cpu / seconds:.2f} of {os.cpu_count()} cores"
        )
        yield from steps

    def result(self, run: RunFolder) -> HumanEvalReport:
        started = time.perf_counter()
        made = super().result(run)
        print(f"report    {time.perf_counter() - started:.1f} s")
        return made


async def evaluate(folder: Path, n: int, endpoint: SimulatorProcess) -> HumanEvalReport:
    chat = connect("simulated", base_url=endpoint.base_url)
    config = HumanEvalConfig("simulated", prompt_text(), Sampling(temperature=0.8), 1)
    evaluation = Timed(str(folder), config, n, chat)
    async with chat:
        ended = await Runner(evaluation).run()
    assert ended.status == "complete"
    made: HumanEvalReport = ended.result
    samples = evaluation.samples()
    wanted = {row[0].problem: planted.planted(one.content for one in row) for row in samples}
    found = {one.problem: (one.humaneval, one.plus) for one in made.by_problem}
    wrong = {
        name: (found.get(name), planted) for name, planted in wanted.items() if found.get(name) != planted
    }
    assert not wrong, f"passed and planted: {wrong}"
    for suite, found in ((0, made.curve["humaneval"]), (1, made.curve["plus"])):
        for one in found:
            assert abs(one.rate - counted(n, one.k, [counts[suite] for counts in wanted.values()])) < 1e-12
    return made


def counted(n: int, k: int, passed: list[int]) -> float:
    """pass@k as one would count it: draw one after the other, each failing."""
    total = Fraction(0)
    for count in passed:
        none = Fraction(1)
        for drawn in range(k):
            none *= Fraction(max(0, n - count - drawn), n - drawn)
        total += 1 - none
    return float(total / len(passed))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true")
    n = 5 if parser.parse_args().short else 200
    settings = SimulatorSettings(author="tests.support.planted:author")
    with tempfile.TemporaryDirectory() as folder, spawn(settings) as endpoint:
        made = asyncio.run(evaluate(Path(folder), n, endpoint))
        ledger = endpoint.ledger()
    assert (ledger.served, ledger.billed_repeats) == (164 * n, 0)
    for name, found in (("HumanEval", made.humaneval), ("HumanEval+", made.plus)):
        figures = ", ".join(
            f"pass@{one.k} {100 * one.rate:.1f} ({100 * one.low:.1f} – {100 * one.high:.1f})" for one in found
        )
        print(f"{name:<10}{figures}")
    print("reported as planted; each sample asked for once")


if __name__ == "__main__":
    main()
