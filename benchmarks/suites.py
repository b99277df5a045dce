"""Evaluation suites of others against a served society, which is killed and started again in between.

lm-eval and inspect-ai run unmodified on 50 problems of GSM8K, in an environment of their own. A simulated model solves 90 %
of them. The suites must report this accuracy, and the endpoint's ledger must be exact: every call once, and again only those
that were in flight when the server was killed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import recorded
from camel import Run
from camel.models.simulator import SimulatorProcess, SimulatorSettings, spawn
from camel.models.simulator.settings import Constant
from tests.support.gsm8k import AUTHOR, FOLDER, SOLVED, problems
from tests.support.served import CALLS, ServedProcess
from tests.support.waiting import wait_for

PACKAGES = ("lm-eval[api]==0.4.13", "inspect-ai==0.3.285", "openai")
CLIENTS = 16
SECONDS = 1800


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--environment", type=Path, help="an environment that has the suites; default: a new one"
    )
    recorded.option(parser)
    args = parser.parse_args()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="camel-suites-") as scratch:
        folder = Path(scratch)
        programs = args.environment or install(folder / "environment")
        settings = SimulatorSettings(author=AUTHOR, latency=Constant(0.25))
        with spawn(settings) as simulator:
            served = ServedProcess(folder, simulator)
            for name, run in (("lm_eval", lm_eval), ("inspect", inspect)):
                began = time.monotonic()
                accuracy = run_killed(run, programs / "bin", folder / name, served, simulator)
                figures[f"{name}_s"] = time.monotonic() - began
                assert accuracy == SOLVED / len(problems()), f"{name} reports {accuracy}"
            assert served.stop() == 0
            ledger = simulator.ledger()
        conversations = list(Run(served.out))
    wanted = 2 * len(problems())
    assert len(conversations) == wanted
    assert {one.usage.calls for one in conversations} == {CALLS}
    assert ledger.requests == wanted * CALLS + served.lost, ledger
    figures |= {"calls": ledger.requests, "in_flight_at_kills": served.lost}
    print("| what | figure |\n|---|---|")
    for name, figure in figures.items():
        print(f"| {name} | {figure:.0f} |")
    if args.record:
        recorded.record("suites", figures)
    return 0


def install(folder: Path) -> Path:
    """Make an environment with the suites."""
    subprocess.run(["uv", "venv", "--quiet", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    subprocess.run(["uv", "pip", "install", "--quiet", "--python", python, *PACKAGES], check=True)
    return folder


def run_killed(
    run: Callable[[Path, Path, str], float],
    programs: Path,
    folder: Path,
    served: ServedProcess,
    simulator: SimulatorProcess,
) -> float:
    """Run a suite, kill the server in the middle, and return the accuracy."""
    from concurrent.futures import ThreadPoolExecutor

    folder.mkdir()
    half = simulator.ledger().requests + len(problems()) * CALLS // 2
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run, programs, folder, served.url)
        wait_for(lambda: running.done() or simulator.ledger().requests >= half, SECONDS)
        assert not running.done(), "the suite ended before the kill"
        served.kill()
        served.start()
        return running.result(SECONDS)


def execute(folder: Path, *command: str, **environment: str) -> None:
    """Run a program of a suite, with its files in `folder`. Its output is in the error if it fails."""
    given = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    given |= {"HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "1", **environment}
    done = subprocess.run(command, cwd=FOLDER, env=given, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def lm_eval(programs: Path, folder: Path, url: str) -> float:
    settings = f"model=society,base_url={url}/chat/completions,num_concurrent={CLIENTS},max_retries=20"
    execute(
        folder,
        *(str(programs / "lm-eval"), "run", "--model", "local-chat-completions", "--model_args", settings),
        *(
            "--tasks",
            "gsm8k_local",
            "--include_path",
            ".",
            "--apply_chat_template",
            "--output_path",
            str(folder),
        ),
    )
    found = json.loads(next(folder.rglob("results_*.json")).read_text())
    return found["results"]["gsm8k_local"]["exact_match,answer"]


def inspect(programs: Path, folder: Path, url: str) -> float:
    execute(
        folder,
        *(str(programs / "inspect"), "eval", "inspect_task.py", "--model", "openai-api/camel/society"),
        *(
            "--max-connections",
            str(CLIENTS),
            "--log-dir",
            str(folder),
            "--log-format",
            "json",
            "--display",
            "plain",
        ),
        CAMEL_API_KEY="none",
        CAMEL_BASE_URL=url,
    )
    found = json.loads(next(folder.glob("*.json")).read_text())
    return found["results"]["scores"][0]["metrics"]["accuracy"]["value"]


if __name__ == "__main__":
    raise SystemExit(main())
