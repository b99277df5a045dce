"""Figures of a run for Ray's Prometheus endpoint, set by the coordinator.

The one decision to know: counts by kind are one metric with the tag `kind`: `camel_errors` by class, `camel_stop` by
reason, `camel_open` by stage. `camel_endpoint` is only of the endpoints with most failures and the highest load.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict
from ray.util.metrics import Counter, Gauge

from camel.engine.coordinator import Totals
from camel.models.replica import ReplicaState
from camel.models.replica_totals import ReplicaTotals, worst_replicas

USED = ("calls", "prompt", "completion", "cached", "unknown")
"""Published fields of a usage."""


class Metrics:
    """Counters and gauges, created at first use."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._made: dict[str, Any] = {}
        self._before: dict[str, float] = {}
        """The counters as published."""
        self._shown: set[str] = set()
        """The gauges as last published."""

    def show(self, totals: Totals) -> None:
        """Publish the counts. Unchanged gauges are set, too, because Ray only exports recently set ones."""
        counters, gauges = figures(totals)
        for name, value in counters.items():
            if (more := value - self._before.get(name, 0.0)) > 0:
                self._before[name] = value
                self._metric(Counter, name).inc(more, tags=self._tags(name))
        for name, value in gauges.items():
            self._metric(Gauge, name).set(value, tags=self._tags(name))
        for name in self._shown - gauges.keys():  # zero once, and then no longer exported
            self._metric(Gauge, name).set(0.0, tags=self._tags(name))
        self._shown = set(gauges)

    def _metric(self, kind: type[Any], name: str) -> Any:
        name = "camel_" + name.partition(".")[0]
        if name not in self._made:
            about = name.removeprefix("camel_").replace("_", " ")
            self._made[name] = kind(name, description=f"CAMEL: {about}", tag_keys=("run", "kind"))
        return self._made[name]

    def _tags(self, name: str) -> dict[str, str]:
        return {"run": self._run, "kind": name.partition(".")[2]}


def figures(totals: Totals) -> tuple[dict[str, float], dict[str, float]]:
    """Return counters and gauges by name. The part of a name after a dot, as in `errors.RateLimited`, becomes a label."""
    report = totals.report
    counters = {name: float(getattr(report.usage, name)) for name in USED}
    gauges = {"workers": float(len(totals.live)), "in_flight": float(report.in_flight)}
    counters["retries"] = counters["rate_limited"] = 0.0
    for model in report.models.values():
        counters["retries"] += model.retries
        counters["rate_limited"] += model.rate_limited
        for kind, times in model.errors.items():
            counters[f"errors.{kind}"] = counters.get(f"errors.{kind}", 0.0) + times
    for name, stage in report.stages.items():
        gauges |= {f"open.{name}": stage.open, f"finished.{name}": stage.finished}
        gauges |= {f"failed.{name}": stage.failed, **stage.counts}
    gauges |= {f"shards.{state}": count for state, count in totals.shards.items()}
    states = [
        ReplicaState.from_report(url, one)
        for its in report.endpoints.values()
        for url, one in its.items()
        if one
    ]
    gauges |= {f"endpoints.{name}": count for name, count in asdict(ReplicaTotals.of(states)).items()}
    gauges |= {f"endpoint.{one.url}": one.in_flight for one in worst_replicas(states)}
    return counters, gauges
