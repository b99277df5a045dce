"""The same job with CAMEL, DataDesigner, distilabel and curator, measured by the endpoint's ledger.

    python -m benchmarks.peers distilabel --python PYTHON    # the interpreter of an environment with that package
    python -m benchmarks.peers camel

The job: a CSV of 500 customers; for each a conversation of four messages between the customer and an agent; a judge's score
from 1 to 5 with a reason; the conversations with a score of at least 3 as rows in the format `messages`. It needs 2,500 calls.
Each script gets the endpoint's address, the table and the file to write. It allows 32 requests in flight.

A run is measured undisturbed. Then the job is started in a new folder, all its processes are killed with SIGKILL after half of
the calls, and the same command is run again. The ledger counts the calls of both.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks import recorded
from benchmarks.peers.endpoint import BAR, CALLS, MESSAGES, names, score, write_table
from camel.models.simulator import Constant, SimulatorSettings, spawn
from camel.models.simulator.ledger import Counters
from camel.models.simulator.server import SimulatorProcess

HERE = Path(__file__).parent
PACKAGES = {
    "camel": "camel-society",
    "data_designer": "data-designer",
    "distilabel": "distilabel",
    "curator": "bespokelabs-curator",
}
LATENCY = 0.2
STALLED = 180.0
"""A job that sends no request for so many seconds is stopped."""
_BECOME_SUBREAPER = 36


class Outcome(NamedTuple):
    """One execution of a job."""

    status: int | None
    """The exit status; None if the job was killed or stopped."""
    wall: float
    cpu: float
    ledger: Counters


class Job:
    """The script of one system, in a folder of its own that is also its home."""

    def __init__(self, system: str, python: str, folder: Path, endpoint: SimulatorProcess) -> None:
        self.folder, self.endpoint = folder, endpoint
        self.out = folder / "rows.jsonl"
        customers = folder / "customers.csv"
        write_table(customers)
        script = HERE / f"{system}_job.py"
        self.command = [python, str(script), endpoint.base_url, str(customers), str(self.out)]
        # Caches stay in the folder, and nothing tries to reach a server other than the endpoint.
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "OPENAI_API_KEY": "none",
            "HF_HUB_OFFLINE": "1",
            "TELEMETRY_ENABLED": "false",
            "NEMO_TELEMETRY_ENABLED": "false",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }
        # curator counts tokens with a table that it downloads; LiteLLM, which it needs, contains the same table.
        tables = "lib/python*/site-packages/litellm/litellm_core_utils/tokenizers"
        for found in Path(python).parent.parent.glob(tables):
            self.environment["TIKTOKEN_CACHE_DIR"] = str(found)
        if system == "camel":
            self.environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))

    def execute(self, kill_after: int | None = None) -> Outcome:
        """Run the command to its end, or kill all its processes after that many requests."""
        before, started = _cpu_of_children(), time.perf_counter()
        with (self.folder / "log.txt").open("ab") as log:
            child = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            seen, changed = 0, started
            while (status := child.poll()) is None:
                requests, now = self.endpoint.ledger().requests, time.perf_counter()
                if requests != seen:
                    seen, changed = requests, now
                if now - changed > STALLED or (kill_after is not None and requests >= kill_after):
                    break
                time.sleep(0.05)
            wall = time.perf_counter() - started
            _end_group(child.pid)
            child.wait()
        time.sleep(2 * LATENCY)  # the endpoint notices closed connections
        return Outcome(status, wall, _cpu_of_children() - before, self.endpoint.ledger())

    def kept(self) -> list[str]:
        """Return the kept customers' names, after a check of all rows."""
        rows = [json.loads(line)["messages"] for line in self.out.read_text().splitlines()]
        spoken = [[one for one in messages if one["role"] != "system"] for messages in rows]
        for messages in spoken:
            assert [one["role"] for one in messages] == ["user", "assistant"] * (MESSAGES // 2), messages
        return [" ".join(messages[0]["content"].split()[2:4]).rstrip(".") for messages in spoken]


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _end_group(group: int) -> None:
    """Kill what remains of a process group and wait for it, so that its CPU time is counted."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
    while True:
        try:
            os.waitpid(-group, 0)
        except ChildProcessError:
            return


def measure(system: str, python: str, half: bool) -> dict[str, float]:
    """Run the job once, undisturbed or with a kill, and return its figures."""
    settings = SimulatorSettings(author="benchmarks.peers.endpoint:reply", latency=Constant(LATENCY))
    with tempfile.TemporaryDirectory() as folder, spawn(settings) as endpoint:
        job = Job(system, python, Path(folder), endpoint)
        found: dict[str, float] = {}
        if half:
            killed = job.execute(kill_after=CALLS // 2)
            found = {"at": killed.ledger.billed, "in_flight": killed.ledger.outcomes.get("client_gone", 0)}
        done = job.execute()
        if done.status != 0:
            print((job.folder / "log.txt").read_text()[-6000:])
            if not half:
                raise SystemExit(f"{system}: exit status {done.status}")
        kept = job.kept() if done.status == 0 else []
        expected = [name for name in names() if score(name) >= BAR]
        print(
            f"{system}: {done.wall:.1f} s, {done.cpu:.1f} s of CPU, {len(kept)} rows of {len(expected)}, {done.ledger}"
        )
        found |= {
            "finished": int(done.status == 0),
            "calls": done.ledger.billed,
            "rejected": done.ledger.outcomes.get("rejected", 0),
            "repeats": done.ledger.billed_repeats,
            "rows": len(kept),
            "rows_missing": len(set(expected) - set(kept)),
            "rows_twice": len(kept) - len(set(kept)),
        }
        if half:
            return {f"kill_{key}": value for key, value in found.items()}
        return found | {"cpu_s": done.cpu, "wall_s": done.wall, "in_flight": done.ledger.max_in_flight}


def version(system: str, python: str) -> str:
    """Return the installed version of the system's package."""
    program = f"from importlib.metadata import version; print(version({PACKAGES[system]!r}))"
    return subprocess.run([python, "-c", program], capture_output=True, text=True).stdout.strip()


def lines(system: str) -> int:
    """Return the number of lines of a script that are not blank."""
    return sum(1 for line in (HERE / f"{system}_job.py").read_text().splitlines() if line.strip())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("system", choices=PACKAGES)
    parser.add_argument("--python", default=sys.executable, help="interpreter of the system's environment")
    parser.add_argument("--rounds", type=int, default=3, help="undisturbed runs")
    recorded.option(parser)
    args = parser.parse_args()
    # Orphans of a killed job become children of this process, which waits for them.
    ctypes.CDLL(None).prctl(_BECOME_SUBREAPER, 1, 0, 0, 0)
    rounds = [measure(args.system, args.python, half=False) for _ in range(args.rounds)]
    figures: dict[str, float | list[float]] = {"lines": lines(args.system), **rounds[0]}
    for key in ("cpu_s", "wall_s"):
        figures[key] = [min(one[key] for one in rounds), max(one[key] for one in rounds)]
    figures |= measure(args.system, args.python, half=True)
    print(json.dumps(figures, indent=2))
    if args.record:
        used = f"{PACKAGES[args.system]} {version(args.system, args.python)}"
        named = {f"{args.system}_{key}": value for key, value in figures.items()}
        recorded.record("peers", named, package=used, hardware="2 cores, 24 GB")


if __name__ == "__main__":
    main()
