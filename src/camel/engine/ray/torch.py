"""Runs a function on several workers of a Ray cluster that communicate with torch.distributed (Ray Train).

The one decision to know: Ray places the workers, connects them and restarts them when one dies. They store their progress
in their own folder and resume from there; Ray keeps no checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from camel.core.errors import CamelError, InputError, MissingExtra
from camel.engine.ray.connect import connected

RESTARTS = 3
"""Maximum number of restarts after a worker has died."""


class WorkersFailed(CamelError):
    """The workers ended with an error, or died too often."""


def fit(
    work: Callable[[dict[str, Any]], None],
    given: dict[str, Any],
    *,
    address: str,
    workers: int,
    storage: str,
) -> None:
    """Call `work(given)` on all workers at once, each with a GPU if the cluster has enough."""
    os.environ["RAY_TRAIN_V2_ENABLED"] = "1"
    with connected(address, workers=workers):
        try:
            ray: Any = import_module("ray")
            parts: Any = import_module("ray.train")
            torch: Any = import_module("ray.train.torch")
        except ImportError:
            raise MissingExtra("Training on a Ray cluster", "train") from None
        there = ray.cluster_resources()
        gpu = there.get("GPU", 0) >= workers
        if not gpu and there.get("CPU", 0) < workers:
            raise InputError(
                f"the cluster has {there.get('CPU', 0):g} CPUs, but {workers} workers are requested: lower train.devices"
            )
        trainer = torch.TorchTrainer(
            work,
            train_loop_config=given,
            scaling_config=parts.ScalingConfig(num_workers=workers, use_gpu=gpu),
            run_config=parts.RunConfig(
                name="ray",
                storage_path=storage,  # Ray's own files
                failure_config=parts.FailureConfig(max_failures=RESTARTS),
                logging_config=parts.LoggingConfig(log_level="ERROR"),
            ),
        )
        try:
            trainer.fit()
        except Exception as error:
            raise WorkersFailed(f"{_reason(error)} (Ray's report is in {Path(storage) / 'ray'})") from None


def _reason(error: Exception) -> str:
    """Return the last line of a worker's error, without Ray's wrapping."""
    failures: dict[int, Any] = getattr(error, "worker_failures", {})
    text = str(next(iter(failures.values()), error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]
