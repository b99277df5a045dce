"""What `core` needs from packages above it, as functions that `camel/__init__` fills in.

`core` imports nothing but itself, so whatever is shown or looked up elsewhere is reached through here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from camel.core.model import Model
    from camel.core.transcript import Transcript


class Resolvers:
    """One function for each thing that lives above `core`."""

    model: Callable[[str], Model]
    """A model by its name; empty: the one that the environment names."""
    findings: Callable[[Transcript], Sequence[Any]]
    """What detectors find in a transcript."""
    html: Callable[[Transcript], str]
    """A transcript as a notebook shows it."""


resolvers = Resolvers()
