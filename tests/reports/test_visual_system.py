"""The visual system: its colors have enough contrast, and plots use no color that a page does not map to its theme."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from camel.reports.plots import LOOK

TOKENS = (LOOK / "tokens.css").read_text()
COMPONENTS = (LOOK / "components.css").read_text()
LIGHT = set(re.findall(r"light-dark\((#\w{6}),", TOKENS))


@pytest.fixture(scope="module")
def contrast() -> ModuleType:
    file = Path(__file__).parents[2] / "tools" / "contrast.py"
    spec = importlib.util.spec_from_file_location("contrast", file)
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_all_colors_can_be_read_and_told_apart(contrast: ModuleType):
    assert contrast.problems(TOKENS) == []
    assert len(list(contrast.measure(TOKENS))) > 200


@pytest.mark.parametrize(
    ("token", "value"), [("--ink-3", "#8a8c8f"), ("--c2-ink", "#c46a2a"), ("--c7", "#1144a0")]
)
def test_a_color_that_is_too_faint_or_too_near_is_found(contrast: ModuleType, token: str, value: str):
    changed = re.sub(rf"({token}:\s*light-dark\()#\w{{6}}", rf"\g<1>{value}", TOKENS)
    assert changed != TOKENS
    assert contrast.problems(changed)


def test_black_on_white_has_the_highest_contrast(contrast: ModuleType):
    assert contrast.contrast(contrast.linear("#000000"), contrast.linear("#ffffff")) == pytest.approx(21)


def test_plots_are_configured_in_colors_that_pages_map_to_their_theme():
    used = set(re.findall(r"#\w{6}", (LOOK / "vega-config.json").read_text()))
    for spec in (LOOK.parent / "specs").glob("*.json"):
        used |= set(re.findall(r"#\w{6}", spec.read_text()))
    assert used <= LIGHT
    mapped = set(re.findall(r'\.plot \[fill="(#\w{6})"\]', COMPONENTS))
    assert used <= mapped


def test_pages_use_no_color_of_their_own():
    """Black and white in masks and on the letters of sides are the exceptions."""
    found = set(re.findall(r"#[0-9a-fA-F]{3,8}\b", COMPONENTS)) - LIGHT
    assert found <= {"#000", "#fff", "#151618"}
