"""Waiting until something is so, with a deadline that a slow machine meets, too."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def wait_for(condition: Callable[[], object], seconds: float = 120, every: float = 0.02) -> None:
    """Ask until the condition is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(every)


def until(page: Any, expression: str, arg: Any = None, seconds: float = 120) -> None:
    """Wait until an expression is true in a page.

    It asks from outside, because Playwright's own `wait_for_function` evaluates text in the page, which our pages forbid.
    A page that is loading another one cannot be asked and is asked again.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            if page.evaluate(expression, arg):
                return
        except Exception as error:
            if "context was destroyed" not in str(error) and "navigation" not in str(error):
                raise
        assert time.monotonic() < end, f"not within {seconds} s: {expression}"
        page.wait_for_timeout(20)
