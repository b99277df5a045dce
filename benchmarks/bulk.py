"""Bulk work over a run with one and with two processes: CPU per conversation, speed-up, memory and core-hours at 300 million.

    python -m benchmarks.bulk                              # a million conversations; study of 100,000; hours
    python -m benchmarks.bulk --conversations 100000
    python -m benchmarks.bulk --short                      # 2,048, which says nothing about speed

The run has conversations of 20 messages of random words. Each stage is the command that a user runs, in a process of its own
that is pinned to as many cores as it has processes. The results must be the same. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.integrity import make
from camel.runs.run import RunFolder

GOAL, MOST_MB, MOST_STUDY_MS, AT_SIZE = 1.7, 1_024, 3.0, 300e6
STUDIED = 0.1
"""Share of the conversations that are studied."""
STAGES: dict[str, list[str]] = {
    "verify": ["run", "verify", "RUN", "--unfinished"],
    "index": ["run", "index", "RUN"],
    "export": ["export", "RUN", "messages", "OUT", "--force"],
    "compact": ["run", "compact", "RUN"],
    "study": ["study", "RUN", "--out", "OUT"],
}


def main() -> int:
    """Measure each stage with one and two processes, print a table and compare with the goals."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--conversations", type=int, default=1_000_000)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--stages", nargs="+", choices=[*STAGES], default=[*STAGES])
    parser.add_argument("--folder", type=Path, help="For the runs; default: a temporary folder.")
    args = parser.parse_args()
    count = 2_048 if args.short else args.conversations
    reached = True
    with tempfile.TemporaryDirectory(dir=args.folder) as scratch:
        source, small = (RunFolder(Path(scratch) / name) for name in ("run", "studied"))
        make(source, count, messages=20, words=50)
        if "study" in args.stages:
            make(small, max(512, int(count * STUDIED)), messages=20, words=50)
        print(
            "| stage | ms of CPU per conversation | core-hours at 300M | speed-up | MB per process | same |\n|---|---|---|---|---|---|"
        )
        for stage in args.stages:
            run = small if stage == "study" else source
            rows = sum(
                marker.rows for marker in run.markers("conversations", sorted(run.committed("conversations")))
            )
            (wall, cpu, size, first), (less, _, more, second) = (
                measure(stage, run.root, Path(scratch) / f"{stage}-{processes}", processes)
                for processes in (1, 2)
            )
            memory, same = max(size, more), first == second
            print(
                f"| {stage} | {1e3 * cpu / rows:.2f} | {cpu / rows * AT_SIZE / 3600:,.0f} | {wall / less:.2f} | {memory:.0f} | {same} |",
                flush=True,
            )
            quick = stage != "study" or 1e3 * cpu / rows <= MOST_STUDY_MS
            reached &= same and memory <= MOST_MB and wall / less >= GOAL and quick
    return 0 if reached or args.short else 1


def measure(stage: str, source: Path, place: Path, processes: int) -> tuple[float, float, float, str]:
    """Return the seconds, CPU seconds and largest process in MB of a stage on a copy of a run, and a digest of its result."""
    run, out = place / "run", place / ("out" if stage == "study" else "out.jsonl")
    # Hard links, because no stage changes a file. Indexes are made again.
    shutil.copytree(source, run, copy_function=os.link, ignore=shutil.ignore_patterns("index"))
    words = [{"RUN": str(run), "OUT": str(out)}.get(word, word) for word in STAGES[stage]]
    before, began = os.times(), time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-m", "camel", *words, "--processes", str(processes)],
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:processes]),
    )
    most = 0.0
    while child.poll() is None:
        most = max(most, largest(child.pid))
        time.sleep(0.05)
    wall, after = time.monotonic() - began, os.times()
    if child.returncode:
        raise SystemExit(f"{stage} with {processes} processes: exit status {child.returncode}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    digest = digest_of(stage, run, out)
    shutil.rmtree(place)
    return wall, cpu, most, digest


def largest(pid: int) -> float:
    """Return the memory in MB of the largest process among a process and its children."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        own = (
            next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")), 0) / 1024
        )
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return max([own, *(largest(int(child)) for child in children)])


def digest_of(stage: str, run: Path, out: Path) -> str:
    """Return a digest of what a stage wrote. Names of files have random parts, so only their contents count."""
    paths = {
        "index": [*run.glob("index/*/m*.parquet")],
        "export": [out],
        "compact": [*run.glob("data/*/c*.parquet")],
        "study": [*out.glob("kept/data/*/*.parquet")],
    }.get(stage, [])
    return " ".join(sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in paths))


if __name__ == "__main__":
    sys.exit(main())
