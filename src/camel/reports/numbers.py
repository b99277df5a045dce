"""Formats numbers for reports, web pages and the terminal.

The one decision to know: intervals are whole percents, and there is no percentage for fewer than `FEW` items.
"""

from __future__ import annotations

from camel.reports.intervals import Rate

FEW = 10
"""Below this number of items a share is written as "1 of 3", because a percentage would suggest too much precision."""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 item, 2 items."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def short(number: float) -> str:
    """Format a number in few characters: 950, 12.3k, 4.56M, 7.89B."""
    for unit, name in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= unit:
            scaled = number / unit
            return f"{scaled:.{2 if scaled < 10 else 1 if scaled < 100 else 0}f}{name}"
    return f"{number:.0f}" if number >= 10 or abs(number - round(number)) < 0.05 else f"{number:.1f}"


def money(dollars: float | None) -> str:
    """Format an amount in dollars with as many digits as matter. Return an empty string if it is unknown."""
    if dollars is None:
        return ""
    if 0 < dollars < 0.0001:
        return "less than $0.0001"
    return f"${dollars:,.{4 if 0 < dollars < 0.01 else 2 if dollars < 1000 else 0}f}"


def cost(dollars: float | None) -> str:
    """Format the cost of a step in a report. Amounts below a dollar have four digits, so that small steps can be compared."""
    return "price unknown" if dollars is None else f"${dollars:,.{4 if dollars < 1 else 2}f}"


def duration(seconds: float) -> str:
    """Format a duration: 0.3 s, 45 s, 12 min, 3 h 20 min, 4 d 2 h."""
    whole = round(seconds)
    if 0 < seconds < 0.95:
        return f"{seconds:.1g} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole < 600 else f"{whole // 60} min"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400:,} d {whole % 86400 // 3600} h"


def percent(value: float) -> str:
    """Format a share in whole percents, with more digits below 10% and where rounding would show 100%."""
    points = value * 100
    if not points or points == 100:
        return f"{points:.0f}%"
    if points < 0.1:
        return f"{points:.1g}%" if points >= 1e-4 else "<0.0001%"
    digits = 1 if points < 10 else 0
    while round(points, digits) == 100 and digits < 6:  # less than 100% must not be shown as 100%
        digits += 1
    return f"{points:.{digits}f}%"


def share(rate: Rate) -> str:
    """Format a share: 61%, or 1 of 3 for few items."""
    return percent(rate.rate) if rate.of >= FEW else f"{rate.count:,} of {rate.of:,}"


def share_with_interval(rate: Rate) -> str:
    """Format a share with its interval: 61% (51 to 70%), or 1 of 3 for few items."""
    return f"{share(rate)} ({interval(rate)})" if rate.of >= FEW else share(rate)


def interval(rate: Rate) -> str:
    """Format the interval of a share: 53 to 89%."""
    return bounds(rate.low, rate.high)


def bounds(low: float, high: float) -> str:
    """Format an interval of shares, or of their differences, in whole percents. It has more digits if both ends would be
    equal."""
    digits = 0
    while low != high and digits < 4 and f"{100 * low:.{digits}f}" == f"{100 * high:.{digits}f}":
        digits += 1
    return f"{100 * low:.{digits}f} to {100 * high:.{digits}f}%".replace("-", "−")


def signed(value: float) -> str:
    """Format a number, rounded to an integer, with its sign. Zero has no sign."""
    whole = round(value)
    return f"{whole:+,d}".replace("-", "−") if whole else "0"


def points(value: float) -> str:
    """Format a difference of shares in percentage points."""
    return signed(100 * value)


def probability(p: float) -> str:
    """Format a p-value."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"
