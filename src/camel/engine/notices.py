"""Word of what happens to a run beside its work: a worker that died, a wait for leases to run out.

The one decision to know: there is one way for it. Whoever notices something calls the run's `Tell`; the driver writes it
to the log and shows it, as a line or as an object.
"""

from __future__ import annotations

from typing import Any, Protocol


class Tell(Protocol):
    """Takes a notice: its kind, a line for people, and what programs want to know."""

    def __call__(self, event: str, text: str, **fields: Any) -> None:
        """Take it. Called on the event loop of the run."""
        ...


def unheard(event: str, text: str, **fields: Any) -> None:
    """Nobody listens."""


def shards_again(shards: list[int]) -> str:
    """What becomes of the shards of a worker that is out, in words."""
    if not shards:
        return "it held no shard"
    named = ", ".join(map(str, shards[:8])) + (f" and {len(shards) - 8} more" if len(shards) > 8 else "")
    its = "shard" if len(shards) == 1 else "shards"
    return f"its {its} {named} can be leased again; what it had in flight is asked again, nothing else"
