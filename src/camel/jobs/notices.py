"""Endpoints that stop answering, and answer again: a notice of each.

The one decision to know: it is found by comparing two looks at the endpoints, about a second apart, so that nothing on the
way of a call has to tell, and a cluster's workers report no more than they did.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from camel.engine.notices import Tell
from camel.models.replica import FAILURES, ReplicaState


class Endpoints:
    """Tells of the endpoints of one run."""

    def __init__(self, tell: Tell, now: Callable[[], float] = time.monotonic) -> None:
        self._tell, self._now = tell, now
        self._down: dict[str, float] = {}
        """Those that do not answer, and since when."""

    def look(self, endpoints: Sequence[ReplicaState]) -> None:
        """Compare with the last look."""
        for one in endpoints:
            known = one.url in self._down
            if _is_down(one) and not known:
                self._down[one.url] = self._now()
                what = (
                    "left alone for a while, its conversations go on at the others"
                    if len(endpoints) > 1
                    else "trying again; if none comes, the run stops, and the same command goes on with it"
                )
                said = f" ({one.said[:300]})" if one.said else ""
                self._tell("endpoint", f"no answer from {one.url}: {what}{said}", url=one.url, state="down")
            elif known and one.state == "closed" and not one.failing:
                gone = self._now() - self._down.pop(one.url)
                self._tell(
                    "endpoint", f"{one.url} answers again, after {gone:.0f} s", url=one.url, state="up"
                )


def _is_down(one: ReplicaState) -> bool:
    # A single endpoint is never left alone, and of one that never answered a first failure says enough.
    return one.state == "open" or one.failing >= FAILURES or (one.failing > 0 and one.calls == one.failed)
