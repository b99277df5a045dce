"""What `core` needs from packages above it, as functions that `camel/__init__` fills in.

`core` imports nothing but itself, so whatever is shown or looked up elsewhere is reached through here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from camel.core.transcript import Transcript


class Resolvers:
    """One function for each thing that lives above `core`."""

    html: Callable[[Transcript], str]
    """A transcript as a notebook shows it."""


resolvers = Resolvers()
