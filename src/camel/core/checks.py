"""Helpers for error messages: show a rejected value, suggest the name that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable

from camel.core.errors import InputError


def shown(value: object) -> str:
    """Return a rejected value shortened to fit the one line of an error."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # an integer too long for `str`
        text = f"a very large {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


def whole(name: str, value: object, low: int, high: int) -> None:
    """Raise an `InputError` unless `value` is a whole number between the bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(f"{name} must be a whole number from {low} to {high}, not {shown(value)}")


def at_least(low: int, **values: object) -> None:
    """Raise an `InputError` unless all values are whole numbers of at least `low`."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise InputError(f"{name} must be a whole number of at least {low}, not {shown(value)}")


def similar(name: str, known: Iterable[str]) -> str:
    """Return a suggestion to append to the error about an unknown name. Empty if no known name is similar."""
    close = closest(name, known)
    return f" (did you mean {close}?)" if close else ""


def closest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is nearly equal to `name` or begins with it, or an empty string."""
    import difflib

    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.7)
    longer = [one for one in names if len(name) >= 3 and one.startswith(name)]
    return next(iter(close or longer), "")
