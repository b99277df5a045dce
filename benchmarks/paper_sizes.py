"""All of the paper's datasets at their sizes, against the simulated endpoint on this machine.

    python -m benchmarks.paper_sizes                      # 205,000 items and AI Society in 2 more languages; about half an hour
    python -m benchmarks.paper_sizes --short              # a hundredth of it, for make thorough
    python -m benchmarks.paper_sizes --only ai_society    # one of them

For each: exact counts, unique ids and schema-valid rows are checked by reading every record back; calls by the endpoint's
own ledger. Each runs in a process of its own, whose CPU time and peak memory are read when it ends.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import recorded
from camel import ChatModel, Run
from camel.generation.config import GenerateConfig, RunSection
from camel.generation.translate import Translation
from camel.jobs.runner import Runner
from camel.models.simulator import SimulatorSettings, spawn
from camel.models.spec import ModelSpec
from camel.scenarios import load
from tests.support.jobs import generation

FULL = {
    "ai_society": (25_000, {}),
    "code": (50_000, {}),
    "math": (50_000, {}),
    "physics": (20_000, {}),
    "chemistry": (20_000, {}),
    "biology": (20_000, {}),
}
SHORT = {
    "ai_society": (250, {"assistant_role": 5, "user_role": 5, "task": 10}),
    "code": (500, {"language": 2, "domain": 5, "task": 50}),
    "math": (500, {"topic": 5, "subtopic": 5, "problem": 20}),
    "physics": (200, {"topic": 5, "subtopic": 5, "problem": 8}),
    "chemistry": (200, {"topic": 5, "subtopic": 5, "problem": 8}),
    "biology": (200, {"topic": 5, "subtopic": 5, "problem": 8}),
}
LANGUAGES = ("ar", "fr")
MOST_MB = {"translation": 500}
"""Peak memory by dataset; 400 where nothing is said. A translation holds originals and translations."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", action="append", choices=[*FULL, "translation"])
    parser.add_argument("--keep", help="A folder for the runs; left out: a temporary one.")
    parser.add_argument("--child", nargs=3, metavar=("WHAT", "URL", "FOLDER"))
    recorded.option(parser)
    args = parser.parse_args()
    sizes = SHORT if args.short else FULL
    if args.child:
        what, url, folder = args.child
        work = (
            _translate(url, Path(folder))
            if what == "translation"
            else _generate(what, url, Path(folder), sizes[what][1])
        )
        print(json.dumps(asyncio.run(work)))
        return 0
    wrong = 0
    print(
        "| dataset | items | calls by the ledger | wall, s | CPU, s | CPU per call, ms | peak MB | checks |"
    )
    print("|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(args.keep or temporary)
        for what in args.only or [*sizes, "translation"]:
            wrong += _report(what, folder, sizes, short=args.short, record=args.record)
    print(f"\n{'all checks hold' if not wrong else f'{wrong} CHECKS FAILED'}")
    return 1 if wrong else 0


def _report(
    what: str,
    folder: Path,
    sizes: dict[str, tuple[int, dict[str, int]]],
    *,
    short: bool,
    record: bool = False,
) -> int:
    """Run one dataset and print its row; returns how many checks failed."""
    with spawn(SimulatorSettings(words=60)) as endpoint:
        command = [
            sys.executable,
            "-m",
            "benchmarks.paper_sizes",
            "--child",
            what,
            endpoint.base_url,
            str(folder),
        ]
        started = time.monotonic()
        child = subprocess.Popen(
            [*command, *(["--short"] if short else [])], stdout=subprocess.PIPE, text=True
        )
        out = child.stdout.read() if child.stdout else ""
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        wall, ledger = time.monotonic() - started, endpoint.ledger()
    if child.returncode:
        print(f"| {what} | failed with {child.returncode} |", flush=True)
        return 1
    items = sizes["ai_society"][0] * len(LANGUAGES) if what == "translation" else sizes[what][0]
    problems = _checked(what, folder, items)
    cpu, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
    calls = json.loads(out)["calls"]
    if calls != ledger.served:
        problems.append(f"{calls:,} calls counted, {ledger.served:,} served")
    if peak > (most := MOST_MB.get(what, 400)):
        problems.append(f"more than {most} MB")
    print(
        f"| {what} | {items:,} | {ledger.served:,} | {wall:.0f} | {cpu:.0f} | {cpu / max(1, calls) * 1e3:.2f} | {peak:.0f} | "
        f"{'; '.join(problems) or 'exact'} |",
        flush=True,
    )
    if record:
        recorded.record("paper_sizes", {f"{what}_ms": cpu / max(1, calls) * 1e3, f"{what}_mb": peak})
    return len(problems)


def _checked(what: str, folder: Path, items: int) -> list[str]:
    """Read every record back: counts, ids, schema."""
    stages = [f"translated-{language}" for language in LANGUAGES] if what == "translation" else [""]
    root = folder / ("ai_society" if what == "translation" else what)
    seen, rows, bad = set[tuple[str, str]](), 0, 0
    for stage in stages:
        for record in Run(root, stage=stage):
            rows += 1
            seen.add((stage, record.id))
            bad += not (
                record.messages and record.stop and record.scenario and record.inputs and record.fingerprint
            )
    problems = [f"{rows:,} rows instead of {items:,}"] if rows != items else []
    if len(seen) != rows:
        problems.append(f"{rows - len(seen):,} ids twice")
    return [*problems, *([f"{bad:,} rows incomplete"] if bad else [])]


async def _generate(name: str, url: str, folder: Path, counts: dict[str, int]) -> dict[str, int]:
    config = GenerateConfig(
        scenario=name,
        model=ModelSpec("simulated", base_url=url),
        out=str(folder / name),
        counts=counts,
        lists="asked",
        run=RunSection(concurrency=128),
    )
    assert config.loaded_scenario().count == load(name).resized(counts).count
    async with ChatModel("simulated", base_url=url, api_key="") as model:
        campaign = generation(config, model)
        outcome = await campaign.run()
        assert outcome.complete, outcome
    return {"calls": campaign.meter.usage.calls}


async def _translate(url: str, folder: Path) -> dict[str, int]:
    run, calls = Run(folder / "ai_society"), 0
    async with ChatModel("simulated", base_url=url, api_key="") as model:
        for language in LANGUAGES:
            runner = Runner(Translation(run.folder.address, (language,), model), concurrency=128)
            assert (await runner.run()).result == {language: 0}
            calls += runner.meter.usage.calls
    return {"calls": calls}


if __name__ == "__main__":
    sys.exit(main())
