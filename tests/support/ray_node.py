"""`ray` as on the command line, with more time to start: `python -m tests.support.ray_node start --head ...`

Ray gives a node 30 s to register, fixed in its code. On a busy machine that is too short for the processes that it starts.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from ray._private import node
from ray.scripts.scripts import main

SLOWER = 10


class _PatientTime:
    """The module `time`, with a clock that runs slower for deadlines."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def monotonic(self) -> float:
        return time.monotonic() / SLOWER


if __name__ == "__main__":
    node.time = _PatientTime()  # type: ignore[assignment]
    sys.argv[0] = "ray"
    main()
