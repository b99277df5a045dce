"""Divides an endpoint's limits among the workers of a cluster; runs in the coordinator.

The one decision to know: shares are safe even if a worker is silent. A share expires by itself at the worker, and no other
worker gets it before that. Pure: no clock and no I/O, so it runs in any process.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from camel.models.governor import EndpointReport, Rates, Share

RENEWED = 5.0
"""Seconds for which a share is valid."""
TALKING = 2.5
"""Seconds without a report after which a worker is assumed to use its last share in full."""
TURN = 5
"""Number of ticks for which the same workers come first, if there are fewer calls than workers."""
SILENT = 2 * RENEWED + 1
"""Seconds after which a silent worker has stopped making calls, so that its share can be assigned to others."""


def share_out(
    limits: Mapping[str, Rates],
    reports: Mapping[str, Mapping[str, EndpointReport]],
    previous: Mapping[str, Mapping[str, Share]] | None = None,
    tick: int = 0,
) -> dict[str, dict[str, Share]]:
    """Return each worker's share of each endpoint: worker → endpoint → share.

    `limits` apply to the whole cluster; an endpoint without a ceiling is limited only by the workers' own governors. Every
    worker gets its demand (in flight and waiting) if there is enough, otherwise an equal part. The rest is spread evenly, so
    that a worker that becomes busy can start at once. If there are fewer calls than workers, they take turns by `tick`.
    `previous` has the last shares: a silent worker keeps its share until it has expired.
    """
    shares: dict[str, dict[str, Share]] = {worker: {} for worker in reports}
    for endpoint in sorted({name for report in reports.values() for name in report}):
        rates = limits.get(endpoint, limits.get("*", Rates()))
        heard = {w: r[endpoint] for w, r in reports.items() if endpoint in r}
        alive = {w: r for w, r in heard.items() if r.age < SILENT}
        talking = {w: r for w, r in alive.items() if r.age < TALKING}
        kept = {w: ((previous or {}).get(w) or {}).get(endpoint) for w in alive if w not in talking}
        ceilings: dict[str, float] = dict.fromkeys(talking, math.inf)
        if rates.ceiling is not None:
            held = sum(share.ceiling for share in kept.values() if share and math.isfinite(share.ceiling))
            ceilings = _ceilings(max(0, math.floor(rates.ceiling - held)), talking, tick)
        demand = {w: 1 + r.in_flight + r.waiting for w, r in talking.items()}
        rpm = _parts(rates.rpm, demand, [share.rpm for share in kept.values() if share])
        tpm = _parts(rates.tpm, demand, [share.tpm for share in kept.values() if share])
        for worker in talking:
            shares[worker][endpoint] = Share(
                ceiling=ceilings[worker],
                rpm=rpm.get(worker),
                tpm=tpm.get(worker),
                seconds=RENEWED,
            )
    return shares


def _ceilings(total: int, reports: Mapping[str, EndpointReport], tick: int) -> dict[str, float]:
    """Return each worker's maximum number of calls in flight, at most `total` together. Calls in flight above a reduced share
    still count."""
    workers = sorted(reports)
    if not workers:
        return {}
    turn = tick // TURN % len(workers)
    workers = workers[turn:] + workers[:turn]
    wanted = {w: math.ceil(reports[w].in_flight + reports[w].waiting) for w in workers}
    fair = _filled(total, wanted, workers)
    spare = total - sum(fair.values())
    for place, worker in enumerate(workers):
        fair[worker] += spare // len(workers) + (place < spare % len(workers))
    # A reduced share is free only after its worker has the new one and its excess calls have ended.
    held = {w: math.ceil(max(reports[w].in_flight, reports[w].allowed)) for w in workers}
    over = sum(max(0, held[w] - fair[w]) for w in workers)
    for worker in sorted(workers, key=lambda w: held[w] - fair[w]):
        back = min(over, max(0, fair[worker] - held[worker]))
        fair[worker] -= back
        over -= back
    return {worker: float(share) for worker, share in fair.items()}


def _filled(total: int, wanted: Mapping[str, int], order: list[str]) -> dict[str, int]:
    """Divide `total` max-min fairly: small demands are met, the others get equal parts. Remainders follow `order`."""
    given = dict.fromkeys(order, 0)
    left = total
    hungry: list[str] = [w for w in order if wanted[w] > 0]
    while left > 0 and hungry:
        part, odd = divmod(left, len(hungry))
        for place, worker in enumerate(hungry):
            more = min(part + (place < odd), wanted[worker] - given[worker])
            given[worker] += more
            left -= more
        hungry = [w for w in hungry if given[w] < wanted[w]]
    return given


def _parts(total: float | None, demand: Mapping[str, float], kept: list[float | None]) -> dict[str, float]:
    """Divide a rate among workers, half of it evenly and half by demand. Shares in `kept` are subtracted first."""
    if total is None or not demand:
        return {}
    left = max(0.0, total - sum(rate or 0.0 for rate in kept))
    asked = sum(demand.values())
    return {w: left * (0.5 / len(demand) + 0.5 * wants / asked) for w, wants in demand.items()}
