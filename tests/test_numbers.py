"""The numbers in the documents are those that benchmarks have recorded.

A document puts `<!-- recorded: NAME.FIGURE -->` before the number it quotes; a range is quoted as `LEAST to MOST`. A
number may be quoted with fewer digits than were recorded, and must then be rounded rightly. What the README says in its own
words, without such marks, is found by the patterns below.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import recorded  # noqa: E402 - benchmarks are no part of the package

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NUMBER = r"-?\d[\d,]*(?:\.\d+)?"
MARK = re.compile(rf"<!-- recorded: ([\w.]+) -->[^\d\n]{{0,3}}({NUMBER})(?: to ({NUMBER}))?")
ANY_MARK = re.compile(r"<!-- recorded: ([\w.]+) -->")
README = {
    rf"CPU per model call, whole loop \| ({NUMBER}) ms": "orchestration.role_playing_ms",
    rf"a bare aiohttp loop: ({NUMBER})\)": "orchestration.bare_ms",
    rf"a bare aiohttp loop[^|]*\| ({NUMBER}) to ({NUMBER}) ms": "others.camel_ai_call_ms",
    rf"`import` \|[^|]*\| ({NUMBER}) s": "others.camel_ai_import_s",
    rf"packages in a core install \|[^|]*\| ({NUMBER})": "others.camel_ai_packages",
}
FIGURES = recorded.figures()


def quoted() -> list[object]:
    found = []
    for page in PAGES:
        text = page.read_text()
        where = page.relative_to(ROOT)
        found += [pytest.param(*mark, id=f"{where}-{mark[0]}") for mark in MARK.findall(text)]
    readme = (ROOT / "README.md").read_text()
    for pattern, name in README.items():
        match = re.search(pattern, readme)
        if match and ANY_MARK.search(match[0]) is None:
            numbers = [*match.groups(), ""][:2]
            found.append(pytest.param(name, *numbers, id=f"README.md-{name}"))
    return found


def says(text: str, value: float) -> bool:
    """Whether a number as written is a recorded value, rounded to the digits written."""
    plain = text.replace(",", "")
    decimals = len(plain.partition(".")[2])
    return abs(float(plain) - value) <= 0.5 * 10**-decimals + 1e-9


@pytest.mark.parametrize(("name", "first", "second"), quoted())
def test_a_quoted_number_is_the_recorded_one(name: str, first: str, second: str):
    assert name in FIGURES, f"{name} is in no file of benchmarks/results"
    value = FIGURES[name]
    if isinstance(value, list):
        assert second, f"{name} is a range, {value}: quote both ends"
        assert says(first, value[0]), (first, value)
        assert says(second, value[1]), (second, value)
    else:
        assert says(first, value), (first, value)


def test_every_mark_has_its_number():
    for page in PAGES:
        text = page.read_text()
        assert len(ANY_MARK.findall(text)) == len(MARK.findall(text)), page


def test_what_was_taken_from_the_log_is_there():
    log = (ROOT / "docs" / "LOG.md").read_text()
    for path in sorted(recorded.FOLDER.glob("*.json")):
        for name, entry in json.loads(path.read_text()).items():
            assert entry["date"], (path.name, name)
            assert entry["command"], (path.name, name)
            if heading := entry.get("log"):
                assert f"## {entry['date']}: {heading}\n" in log, (path.name, name)


@pytest.mark.parametrize(
    ("text", "value", "right"),
    [
        ("0.27", 0.272, True),
        ("0.28", 0.272, False),
        ("8,811", 8811, True),
        ("3", 3.4, True),
        ("4", 3.4, False),
    ],
)
def test_rounding(text: str, value: float, right: bool):
    assert says(text, value) is right


def test_recording_keeps_the_other_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(recorded, "FOLDER", tmp_path / "benchmarks" / "results")
    (tmp_path / "benchmarks").mkdir()
    recorded.record("speed", {"a": 1.23456, "b": 2})
    recorded.record("speed", {"b": [1.0, 3.00001]})
    assert recorded.figures() == {"speed.a": 1.235, "speed.b": [1.0, 3.0]}
