"""The run's figures for Ray's Prometheus endpoint, set by the coordinator from the sums it has anyway.

The one decision to know: what a site calls `errors.RateLimited` is the metric `camel_errors` with the tag `kind`, so
that the engine needs no list of names.
"""

from __future__ import annotations

from typing import Any

from ray.util.metrics import Counter, Gauge

from camel.engine.coordinator import Totals


class Metrics:
    """Counters and gauges, made when their names first come up."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._made: dict[str, Any] = {}
        self._before: dict[str, float] = {}

    def show(self, totals: Totals) -> None:
        """Publish the figures. Gauges also where they have not changed: Ray exports those that were set lately."""
        for name, value in totals.counters.items():
            if (more := value - self._before.get(name, 0.0)) > 0:
                self._before[name] = value
                self._metric(Counter, name).inc(more, tags=self._tags(name))
        shards = {f"shards.{state}": count for state, count in totals.shards.items()}
        now = {**totals.gauges, **shards, "workers": float(len(totals.live))}
        gone = {name: 0.0 for name in self._before if name not in now and name not in totals.counters}
        for name, value in {**gone, **now}.items():
            self._before[name] = value
            self._metric(Gauge, name).set(value, tags=self._tags(name))

    def _metric(self, kind: type[Any], name: str) -> Any:
        name = "camel_" + name.partition(".")[0]
        if name not in self._made:
            about = name.removeprefix("camel_").replace("_", " ")
            self._made[name] = kind(name, description=f"CAMEL: {about}", tag_keys=("run", "kind"))
        return self._made[name]

    def _tags(self, name: str) -> dict[str, str]:
        return {"run": self._run, "kind": name.partition(".")[2]}
