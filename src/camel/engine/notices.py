"""Notices about events of a run: a worker that died, a wait for leases to expire.

The one decision to know: there is one channel. Code that notices an event calls the run's `Tell`; the driver writes the
notice to the log and shows it, as a line or as JSON.
"""

from __future__ import annotations

from typing import Any, Protocol


class Tell(Protocol):
    """Takes a notice: its kind, a line of text, and fields for programs."""

    def __call__(self, event: str, text: str, **fields: Any) -> None:
        """Take a notice. Called on the event loop of the run."""
        ...


def ignore_notice(event: str, text: str, **fields: Any) -> None:
    """Ignore a notice."""


def describe_release(shards: list[int]) -> str:
    """Describe what happens to the shards of a worker that lost its lease."""
    if not shards:
        return "it had no shard"
    named = ", ".join(map(str, shards[:8])) + (f" and {len(shards) - 8} more" if len(shards) > 8 else "")
    its = "shard" if len(shards) == 1 else "shards"
    return f"its {its} {named} can be leased again; only its calls in flight are repeated"
