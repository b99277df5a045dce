"""What `core` needs from packages above it, as functions that `camel/__init__` fills in.

`core` imports only itself, so it calls packages above it through these functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from camel.core.model import Model
    from camel.core.transcript import Transcript


class Resolvers:
    """Functions of higher layers that `core` needs. They are set when the package is imported."""

    model: Callable[[str], Model]
    """Returns a model by its name. An empty name means the model that the environment names."""
    tools: Callable[[str], Sequence[Any]]
    """Returns the tools of a name such as `python`, `mcp:SERVER` or `module:function`."""
    findings: Callable[[Transcript], Sequence[Any]]
    """Returns what detectors find in a transcript."""
    html: Callable[[Transcript], str]
    """Returns a transcript as HTML for a notebook."""


resolvers = Resolvers()
