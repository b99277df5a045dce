"""The latest benchmark results, which the documentation quotes: benchmarks/results/NAME.json.

Each figure has its own date, command and commit, so a benchmark that measures one part leaves the others unchanged. Pages put
`<!-- recorded: NAME.FIGURE -->` before a number, and tests/test_numbers.py compares the two: after recording a new figure, the
test names the sentences to change. Record only on a quiet machine. docs/performance.md lists all figures.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

FOLDER = Path(__file__).parent / "results"
Value = float | list[float]
"""A number, or the least and the most of several."""


def option(parser: argparse.ArgumentParser) -> None:
    """Add `--record` to a benchmark's command line."""
    parser.add_argument("--record", action="store_true", help="keep the figures in benchmarks/results/")


def record(name: str, figures: Mapping[str, Value], **details: str) -> None:
    """Keep figures, each in the unit in which documents quote it, with further details such as a package's version."""
    path = FOLDER / f"{name}.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    how = {
        "date": datetime.now(UTC).date().isoformat(),
        "command": _command(),
        "commit": _commit(),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        **details,
    }
    kept |= {key: {"value": _rounded(value), **how} for key, value in figures.items()}
    FOLDER.mkdir(exist_ok=True)
    path.write_text(json.dumps(dict(sorted(kept.items())), indent=2, ensure_ascii=False) + "\n")
    print(f"recorded in {path.relative_to(FOLDER.parent.parent)}: {', '.join(figures)}")


def figures() -> dict[str, Value]:
    """Every recorded figure, as `name.figure`."""
    return {
        f"{path.stem}.{key}": entry["value"]
        for path in sorted(FOLDER.glob("*.json"))
        for key, entry in json.loads(path.read_text()).items()
    }


def _rounded(value: Value) -> Value:
    if isinstance(value, list):
        return [float(f"{one:.4g}") for one in value]
    return value if isinstance(value, int) else float(f"{value:.4g}")


def _command() -> str:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    module = spec.name.removesuffix(".__main__") if spec else Path(sys.argv[0]).name
    # The path of an interpreter is private.
    given = ["PYTHON" if argument.startswith("/") else argument for argument in sys.argv[1:]]
    return " ".join(["python -m", module, *(argument for argument in given if argument != "--record")])


def _commit() -> str:
    said = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return said.stdout.strip()
