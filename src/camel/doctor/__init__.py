"""The doctor: checks everything that a run needs, and says how to fix problems.

    from camel.doctor import Target, examine

    for finding in asyncio.run(examine(Target("gpt-4.1-mini"))):
        print(finding.state, finding.check, finding.says, finding.fix)

The endpoint checks make a few small calls (`calls_of` returns their cost); the checks of the machine make none.
"""

from camel.doctor.endpoint import examine
from camel.doctor.machine import examine_machine
from camel.doctor.target import (
    CheckResult,
    State,
    Target,
    calls_of,
    find_target,
    find_targets,
    price_of,
    worst,
)

__all__ = [
    "CheckResult", "State", "Target", "calls_of", "examine", "examine_machine", "find_target",
    "find_targets", "price_of", "worst",
]  # fmt: skip
