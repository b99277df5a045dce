"""The numbers in the documentation are those that benchmarks recorded.

A page puts `<!-- recorded: NAME.FIGURE -->` before the number it quotes. A range is quoted as `LEAST to MOST`. A number can
have fewer digits than the recorded value, rounded correctly.

A number with a unit and without such a mark must be in a row of docs/performance.md that ends with its command, on a line that
links to that page, or in ALLOWED with the reason why it needs no measurement.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

from benchmarks import recorded  # noqa: E402 - benchmarks are no part of the package

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NUMBER = r"-?\d[\d,]*(?:\.\d+)?"
MARK = re.compile(rf"<!-- recorded: ([\w.]+) -->[^\d\n]{{0,3}}({NUMBER})(?: to ({NUMBER}))?")
ANY_MARK = re.compile(r"<!-- recorded: ([\w.]+) -->")
UNIT = r"(?:ms|µs|s|x|kB|MB|GB|TB|MiB|GiB|%)(?!\w)"
FIGURE = re.compile(rf"(?<![\w.,-])({NUMBER})(?: to ({NUMBER}))? ?{UNIT}")
CITED = re.compile(r"\]\((?:\.\./|docs/)*performance\.md[)#]")
COMMAND = re.compile(r"\| (?:`[^|]*|the same) \|$")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
PERFORMANCE = "docs/performance.md"
EVERYWHERE = ""
ALLOWED = {
    EVERYWHERE: {
        "98 MB": "the size of a file that is checked by its hash",
        "95%": "the level of an interval",
    },
    "docs/cooperation.md": {"2%": "a setting: evaluation/cooperation/report.py"},
    "docs/cluster.md": {"10 s": "a setting: engine/leases.py"},
    "docs/endpoints.md": {
        "2 s": "a setting: models/pool.py",
        "30 s": "a setting: models/pool.py",
        "60%": "a setting: models/pool.py",
        "600 s": "a setting: models/chat.py",
        "4 MiB": "a setting: models/chat.py",
    },
    PERFORMANCE: {
        "24 GB": "the machine",
    },
    "docs/storage.md": {"256 MB": "a setting: the command above it"},
    "docs/study.md": {"1.9%": "arithmetic: Wilson's interval of 0 in 200"},
}
"""Figures that need no measurement: page, figure, reason."""
FIGURES = recorded.figures()


def quoted() -> list[object]:
    found = []
    for page in PAGES:
        text = page.read_text()
        where = page.relative_to(ROOT)
        found += [pytest.param(*mark, id=f"{where}-{mark[0]}") for mark in MARK.findall(text)]
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


def unmarked(text: str, commands: bool = False) -> list[str]:
    """The figures of a page without a mark and a link; with `commands`, table rows that end with a command are fine."""
    lines = text.splitlines()
    plain = CODE.sub(lambda code: "\n" * code[0].count("\n"), text)
    found: list[str] = []
    for written, line in zip(lines, plain.splitlines(), strict=True):
        if CITED.search(line) or (commands and COMMAND.search(written)):
            continue
        marked = [match.span() for match in MARK.finditer(line)]
        found += [
            figure[0]
            for figure in FIGURE.finditer(line)
            if not any(start < figure.start() < end for start, end in marked)
        ]
    return found


def test_no_figure_comes_from_nowhere():
    used: set[tuple[str, str]] = set()
    unknown: list[str] = []
    for page in PAGES:
        where = page.relative_to(ROOT).as_posix()
        if where.startswith("docs/decisions/"):
            continue  # with their own dates
        for figure in unmarked(page.read_text(), commands=where == PERFORMANCE):
            at = [place for place in (EVERYWHERE, where) if figure in ALLOWED.get(place, {})]
            used |= {(place, figure) for place in at}
            unknown += [] if at else [f"{where}: {figure}"]
    assert not unknown, (
        "mark them <!-- recorded: … -->, link to docs/performance.md, or say in ALLOWED why not"
    )
    assert used == {(place, figure) for place, figures in ALLOWED.items() for figure in figures}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It takes 3 ms.", ["3 ms"]),
        ("It takes 3 to 4.5 s, 2.5x, 1,000 MB and 12%.", ["3 to 4.5 s", "2.5x", "1,000 MB", "12%"]),
        ("<!-- recorded: a.b -->3 to 4 s, and <!-- recorded: a.c -->5 ms", []),
        ("<!-- recorded: a.b -->3 ms, so 4 ms", ["4 ms"]),
        ("It takes 3 ms ([Performance](../performance.md)).", []),
        ("It takes 3 ms ([Performance](../other.md)).", ["3 ms"]),
        ("`--size 256 MB`, gpt-4 sizes, 5 seats", []),
        ("```text\n3 ms\n```\n4 s", ["4 s"]),
    ],
)
def test_figures_are_found(text: str, found: list[str]):
    assert unmarked(text) == found


def test_a_row_with_a_command_needs_no_mark():
    row = "| what | 3 ms | `python -m benchmarks.x` |"
    assert unmarked(row, commands=True) == []
    assert unmarked(row) == ["3 ms"]
    assert unmarked("| what | 3 ms | guessed |", commands=True) == ["3 ms"]


def test_every_recorded_figure_has_its_date_and_command():
    for path in sorted(recorded.FOLDER.glob("*.json")):
        for name, entry in json.loads(path.read_text()).items():
            assert entry["date"], (path.name, name)
            assert entry["command"], (path.name, name)


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
