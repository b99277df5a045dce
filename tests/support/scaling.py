"""Whether a function's time grows in step with its input, on a machine of any speed."""

from __future__ import annotations

import time
from collections.abc import Callable


def assert_linear(run: Callable[[int], object], size: int = 60_000) -> None:
    """Four times the input may take eight times the CPU; a quadratic function takes sixteen times."""
    quarter = min(_cpu_seconds(run, size // 4) for _ in range(2))
    whole = min(_cpu_seconds(run, size) for _ in range(2))
    assert whole < 8 * quarter + 0.2, f"{size // 4:,}: {quarter:.3f} s, {size:,}: {whole:.3f} s"


def _cpu_seconds(run: Callable[[int], object], size: int) -> float:
    started = time.process_time()
    run(size)
    return time.process_time() - started
