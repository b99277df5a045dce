"""One sandbox per test process: it copies a Python installation when it is made."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from camel.evaluation.sandbox.process import Sandbox


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as made:
        made.check()
        yield made
