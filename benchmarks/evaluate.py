"""What an evaluation of agents at the paper's size costs besides the models, and how often its intervals hold the truth.

    python -m benchmarks.evaluate size [--tasks 100]     100 + 100 tasks, both orders, against the simulated endpoint
    python -m benchmarks.evaluate coverage               planted rates, drawn again and again

CPU seconds and counts do not depend on what else the machine does; seconds by the clock do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    size = commands.add_parser("size")
    size.add_argument("--tasks", type=int, default=100)
    size.add_argument("--concurrency", type=int, default=16)
    size.add_argument("--latency", type=float, default=0.0)
    coverage = commands.add_parser("coverage")
    coverage.add_argument("--draws", type=int, default=2_000)
    options = parser.parse_args()
    if options.command == "size":
        print(json.dumps(asyncio.run(_size(options)), indent=2))
    else:
        print(json.dumps(_coverage(options.draws), indent=2))


async def _size(options: argparse.Namespace) -> dict[str, Any]:
    from camel import ChatModel
    from camel.evaluation.agents import AgentsEvaluation
    from camel.evaluation.contest_records import AGENTS, SINGLE_SHOT, AgentsConfig, AskedModel, Group
    from camel.evaluation.results import Evaluation
    from camel.jobs.runner import Runner
    from camel.models.simulator import Constant, SimulatorSettings, spawn
    from camel.runs.run import RunFolder
    from tests.support import contests

    began = cpu = 0.0
    asked = 0.0, 0.0

    class Timed(AgentsEvaluation):
        def result(self, run: RunFolder) -> Evaluation:
            nonlocal asked
            asked = time.perf_counter() - began, time.process_time() - cpu
            return super().result(run)

    latency = Constant(options.latency) if options.latency else None
    with (
        tempfile.TemporaryDirectory() as name,
        spawn(SimulatorSettings(author="tests.support.contests:author", latency=latency)) as endpoint,
    ):
        folder = Path(name)
        for scenario in contests.PLANTED:
            contests.a_run(folder / scenario, scenario, range(options.tasks))
        groups = [Group(scenario, {AGENTS: str(folder / scenario)}) for scenario in contests.PLANTED]
        async with ChatModel("judge", base_url=endpoint.base_url, api_key="none") as model:
            me = AskedModel("judge", "", model.context_tokens)
            config = AgentsConfig(tasks=options.tasks)
            job = Timed(str(folder / "out"), tuple(groups), config, {"": model}, me, {SINGLE_SHOT: me}, (me,))
            began, cpu = time.perf_counter(), time.process_time()
            ended = await Runner(job, concurrency=options.concurrency).run()
            assert ended.status == "complete"
            calls = endpoint.ledger().served
        made: Evaluation = ended.result
        whole = time.perf_counter() - began, time.process_time() - cpu
        kept = [path for path in (folder / "out" / "kept").rglob("*") if path.is_file()]
        return {
            "calls": calls,
            "asking": {"seconds": round(asked[0], 2), "cpu": round(asked[1], 2), "cpu ms a call": round(1000 * asked[1] / calls, 2)},
            "figures and report": {"seconds": round(whole[0] - asked[0], 2), "cpu": round(whole[1] - asked[1], 2)},
            "kept": {"files": len(kept), "bytes": sum(path.stat().st_size for path in kept)},
            "page bytes": len((folder / "out" / "evaluation.html").read_bytes()),
            "rates": {one.group: [one.shares.wins.rate, one.shares.draws.rate, one.shares.losses.rate] for one in made.headline},
        }  # fmt: skip


def _coverage(draws: int) -> dict[str, Any]:
    """The share of intervals that hold the planted rate, for some sizes and rates; 0.95 is promised."""
    from camel.evaluation.standing import shares

    chance, found = random.Random(7), dict[str, Any]()
    for tasks in (20, 100):
        for wins, drawn, lost in ((0.73, 0.04, 0.23), (0.76, 0.0, 0.24), (0.5, 0.2, 0.3), (0.95, 0.03, 0.02)):
            held = [0, 0, 0, 0]
            for _ in range(draws):
                outcomes: list[Any] = chance.choices(["a", "draw", "b"], [wins, drawn, lost], k=tasks)
                made = shares(outcomes)
                for at, (rate, truth) in enumerate(
                    ((made.wins, wins), (made.draws, drawn), (made.losses, lost))
                ):
                    held[at] += rate.low <= truth <= rate.high
                held[3] += made.score.low <= wins + drawn / 2 <= made.score.high
            row = dict(
                zip(("wins", "draws", "losses", "score"), (round(h / draws, 3) for h in held), strict=True)
            )
            found[f"{tasks} tasks, {wins:g} / {drawn:g} / {lost:g}"] = row
    return found


if __name__ == "__main__":
    main()
