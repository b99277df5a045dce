"""What the coordinator does with a division of limits: one round for all workers."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from camel.engine.site import Divider, WorkerReport, WorkerShare


def divide(
    shares: Divider, reports: Mapping[str, WorkerReport], live: Collection[str]
) -> tuple[dict[str, WorkerShare], str]:
    """A report of each live worker, then a tick; the share of each, and the reason to stop."""
    for worker in live:
        shares.hear(worker, reports.get(worker, WorkerReport()))
    halt = shares.tick(reports, live, len(live))
    return {worker: shares.share(worker) for worker in live}, halt
