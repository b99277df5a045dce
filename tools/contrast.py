#!/usr/bin/env python3
"""Check the colors of src/camel/reports/look/tokens.css: `tools/contrast.py` prints all ratios and fails if one is too low.

Text needs 4.5:1 on paper, on a well and on its own tint; marks and borders of controls need 3:1 (WCAG 2.2, AA). Two
categorical colors must be at least 0.08 apart in OKLab, for normal vision and for simulated protanopia, deuteranopia and
tritanopia (Machado et al. 2009).
"""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TOKENS = Path(__file__).parent.parent / "src" / "camel" / "reports" / "look" / "tokens.css"
TEXT, MARK, APART = 4.5, 3.0, 0.08
THEMES = ("light", "dark")
MARKS = [f"c{number}" for number in range(1, 9)]
VISIONS = {
    "normal": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}  # fmt: skip
Color = list[float]
"""Red, green and blue in linear light, or the three coordinates of OKLab."""


class Measured(NamedTuple):
    """A ratio or a distance, and the least that is allowed."""

    theme: str
    what: str
    value: float
    least: float


def linear(color: str) -> Color:
    """A color such as #0f4299 in linear light."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def contrast(one: Color, other: Color) -> float:
    """The contrast of two colors, from 1 to 21."""
    dark, light = sorted(0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in (one, other))
    return (light + 0.05) / (dark + 0.05)


def _times(matrix: list[list[float]], vector: Color) -> Color:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


_TO_LMS = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566], [0.0883024619, 0.2817188376, 0.6299787005]]  # fmt: skip
_TO_LAB = [[0.2104542553, 0.793617785, -0.0040720468], [1.9779984951, -2.428592205, 0.4505937099], [0.0259040371, 0.7827717662, -0.808675766]]  # fmt: skip
_FROM_LAB = [
    [1, 0.3963377774, 0.2158037573],
    [1, -0.1055613458, -0.0638541728],
    [1, -0.0894841775, -1.291485548],
]
_FROM_LMS = [[4.0767416621, -3.3077115913, 0.2309699292], [-1.2684380046, 2.6097574011, -0.3413193965], [-0.0041960863, -0.7034186147, 1.707614701]]  # fmt: skip


def oklab(color: Color) -> Color:
    """A color in OKLab, in which distances are about as large as they look."""
    return _times(_TO_LAB, [max(part, 0.0) ** (1 / 3) for part in _times(_TO_LMS, color)])


def mixed(color: Color, ground: Color, share: float) -> Color:
    """The tint of a color on a ground, mixed in OKLab as the style sheet mixes it."""
    both = [share * a + (1 - share) * b for a, b in zip(oklab(color), oklab(ground), strict=True)]
    return _times(_FROM_LMS, [part**3 for part in _times(_FROM_LAB, both)])


def seen(color: Color, vision: str) -> Color:
    """How a color looks to a reader with this kind of vision, in OKLab."""
    return oklab([min(1.0, max(0.0, part)) for part in _times(VISIONS[vision], color)])


def measure(css: str) -> Iterator[Measured]:
    """Every ratio and distance that is checked."""
    pairs = {name: pair for name, *pair in re.findall(r"--([\w-]+):\s*light-dark\((#\w{6}), (#\w{6})\)", css)}
    tint = re.search(r"--tint: (\d+)%", css)
    share = int(tint[1]) / 100 if tint else 0.0
    for at, theme in enumerate(THEMES):
        colors = {name: linear(pair[at]) for name, pair in pairs.items()}
        texts = ["ink", "ink-2", "ink-3", *(f"{name}-ink" for name in MARKS)]
        for name in [*texts, "control", "focus", "c0", *MARKS]:
            grounds = {"paper": colors["paper"], "well": colors["well"]}
            if name.endswith("-ink"):
                grounds["its tint"] = mixed(colors[name.removesuffix("-ink")], colors["paper"], share)
            for ground, color in grounds.items():
                least = TEXT if name in texts else MARK
                yield Measured(theme, f"{name} on {ground}", contrast(colors[name], color), least)
        yield Measured(theme, "on-ink on ink", contrast(colors["on-ink"], colors["ink"]), TEXT)
        yield Measured(theme, "ink on a search hit", contrast(colors["ink"], colors["found"]), TEXT)
        for one, other in itertools.combinations(MARKS, 2):
            for vision in VISIONS:
                apart = math.dist(seen(colors[one], vision), seen(colors[other], vision))
                yield Measured(theme, f"{one} and {other}, {vision}", apart, APART)


def problems(css: str) -> list[Measured]:
    """Whatever is below what is allowed."""
    return [one for one in measure(css) if one.value < one.least]


if __name__ == "__main__":
    for one in measure(TOKENS.read_text("utf-8")):
        bad = "TOO LOW" if one.value < one.least else ""
        sys.stdout.write(f"{one.theme:6} {one.what:34} {one.value:6.2f} of {one.least:g} {bad}\n")
    sys.exit(bool(problems(TOKENS.read_text("utf-8"))))
