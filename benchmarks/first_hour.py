"""How long a newcomer waits: seconds by the clock and of CPU (children included) of the first commands.

    python -m benchmarks.first_hour

The demonstration and the doctor run with the real local model, so the figures mean something on a quiet machine only.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time

COMMANDS = (
    ("camel --help", ["--help"]),
    ("Tab after camel run status", []),
    ("camel init", ["init", "first.toml", "--local"]),
    ("camel doctor --no-calls", ["doctor", "--no-calls", "--model", "any"]),
    ("camel doctor --local", ["doctor", "--local"]),
    ("camel demo --live, up to the explorer", ["demo", "--live", "--no-explore"]),
)
TAB = {"_CAMEL_COMPLETE": "complete_bash", "COMP_WORDS": "camel run status ", "COMP_CWORD": "3"}
CAMEL = "import sys; sys.argv[0] = 'camel'; from camel.cli import main; main()"


def used() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'command':32} {'seconds':>8} {'CPU':>8}")
        for name, words in COMMANDS:
            environment = {**os.environ, **({} if words else TAB)}
            began, before = time.perf_counter(), used()
            done = subprocess.run(
                [sys.executable, "-c", CAMEL, *words],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
            )
            if done.returncode:
                sys.exit(f"{name} failed:\n{done.stdout}{done.stderr}")
            print(f"{name:32} {time.perf_counter() - began:8.1f} {used() - before:8.2f}", flush=True)


if __name__ == "__main__":
    main()
