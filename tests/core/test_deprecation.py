"""What goes says so, and what should be gone is."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import pytest

import camel
from camel.core import deprecation
from camel.core.deprecation import deprecated, overdue


def test_whoever_calls_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(deprecation, "KNOWN", [])

    @deprecated(since="0.2", removed_in="0.4", use="camel.new")
    def old(number: int) -> int:
        """The old one."""
        return number + 1

    with pytest.warns(
        DeprecationWarning, match=r"old is deprecated since 0\.2 and goes in 0\.4: use camel\.new"
    ) as told:
        assert old(1) == 2
    assert told[0].filename == __file__
    assert old.__doc__ == "The old one."
    assert overdue("0.3.9") == []
    assert [one.use for one in overdue("0.4.0")] == ["camel.new"]
    assert overdue("0.10.0"), "numbers are compared, not letters"


def test_nothing_is_overdue():
    for module in pkgutil.iter_modules(camel.core.__path__, "camel.core."):  # where it may be used so far
        import_module(module.name)
    assert overdue(camel.__version__) == []
