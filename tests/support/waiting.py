"""Waiting for a page, from outside: Playwright's own `wait_for_function` evaluates text in the page, which our pages forbid."""

from __future__ import annotations

import time
from typing import Any


def until(page: Any, expression: str, arg: Any = None, seconds: float = 30) -> None:
    """Ask until it is so. A page that is on its way to another cannot be asked and is asked again."""
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
