"""What goes says so, and what should be gone is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import camel
from camel.core.deprecation import deprecated


def overdue(source: str, version: str) -> list[str]:
    """The versions in which what a source marks should have gone, as of `version`."""
    marked = re.findall(r"@deprecated\([^)]*removed_in=\"([^\"]+)\"", source)
    return [one for one in marked if numbers(one) <= numbers(version)]


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def test_whoever_calls_is_told():
    @deprecated(since="0.2", removed_in="0.4", use="camel.new")
    def old(number: int) -> int:
        """The old one."""
        return number + 1

    with pytest.warns(DeprecationWarning, match=r"old.*0\.2.*0\.4.*camel\.new") as told:
        assert old(1) == 2
    assert told[0].filename == __file__
    assert old.__doc__ == "The old one."
    source = Path(__file__).read_text("utf-8")
    assert overdue(source, "0.3.9") == []
    assert overdue(source, "0.4.0") == ["0.4"]
    assert overdue(source, "0.10.0"), "numbers are compared, not letters"


def test_nothing_is_overdue():
    for path in Path(camel.__file__).parent.rglob("*.py"):
        assert overdue(path.read_text("utf-8"), camel.__version__) == [], path
