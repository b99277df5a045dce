"""Packages that need other versions than the rest, in a folder of their own, which tools/environment makes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ASIDE = Path(sys.prefix) / "aside"
ROOT = Path(__file__).parents[2]


def with_aside(folder: Path, **variables: str) -> dict[str, str]:
    """The environment of a program that imports these packages, and modules in `folder`."""
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "home"), "CUDA_VISIBLE_DEVICES": ""}
    path = os.pathsep.join(map(str, (ASIDE, folder, ROOT)))
    return {**os.environ, **offline, "PYTHONPATH": path, **variables}
