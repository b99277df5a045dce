"""The doctor: is everything there that a run will need, and how is what is missing mended?

    from camel.doctor import Target, examine

    for finding in asyncio.run(examine(Target("gpt-4.1-mini"))):
        print(finding.state, finding.check, finding.says, finding.mend)

The endpoint is asked a few small questions (`calls_of` says what they take); the machine is looked at without any.
"""

from camel.doctor.endpoint import examine
from camel.doctor.finding import CheckResult, State, worst
from camel.doctor.machine import examine_machine
from camel.doctor.target import Target, calls_of, find_target, find_targets, price_of

__all__ = [
    "CheckResult", "State", "Target", "calls_of", "examine", "examine_machine", "find_target",
    "find_targets", "price_of", "worst",
]  # fmt: skip
