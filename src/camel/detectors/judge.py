"""A model as judge of findings: one yes-or-no question for each.

The one decision to know: rules decide what is asked and a judge only confirms. It never finds anything by itself,
so its cost is bounded by the number of findings, and a judge that does not decide leaves the finding as it was.
"""

from __future__ import annotations

from collections.abc import Iterable

from camel.core.message import Sampling
from camel.core.model import Model
from camel.core.transcript import Transcript
from camel.detectors.finding import Finding

JUDGE_SAMPLING = Sampling(temperature=0.0, max_tokens=200)


async def confirm(
    transcript: Transcript,
    findings: Iterable[Finding],
    model: Model,
    *,
    sampling: Sampling = JUDGE_SAMPLING,
    asks: int = 3,
    context: int = 2,
) -> list[Finding]:
    """Ask `model` about each finding and return them with `confirmed` set, in the same order."""
    raise NotImplementedError
