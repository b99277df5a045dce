"""Names on their way out: how users are told.

The one decision to know: what is deprecated says when it goes, and a test reads that in the sources and fails once that
version is there, so that nothing stays by being forgotten. docs/extending.md has the promise that goes with it.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def deprecated(*, since: str, removed_in: str, use: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a function: whoever calls it is told once for each place, as a `DeprecationWarning`, what to use instead."""

    def mark(function: Callable[P, R]) -> Callable[P, R]:
        name = f"{function.__module__}.{function.__qualname__}"

        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            text = f"{name} is deprecated since {since} and goes in {removed_in}: use {use}"
            warnings.warn(text, DeprecationWarning, stacklevel=2)
            return function(*args, **kwargs)

        return called

    return mark
