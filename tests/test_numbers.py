"""The numbers in the documents are those that benchmarks have recorded.

A document puts `<!-- recorded: NAME.FIGURE -->` before the number it quotes; a range is quoted as `LEAST to MOST`. A
number may be quoted with fewer digits than were recorded, and must then be rounded rightly.

A number with a unit that has no such mark is found, too: its line must say where in the log it stands
(`([log](LOG.md), 2026-11-15)`), or it must be in ALLOWED, with the reason why nobody needs to measure it.
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
CITED = re.compile(r"\[log\]\((?:\.\./|docs/)*LOG\.md\), 20\d\d-\d\d-\d\d")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
EVERYWHERE = ""
ALLOWED = {
    EVERYWHERE: {
        "98 MB": "the size of a file that is checked by its hash",
        "95%": "the level of an interval",
    },
    "docs/cluster.md": {"10 s": "a setting: engine/leases.py"},
    "docs/endpoints.md": {
        "2 s": "a setting: models/pool.py",
        "30 s": "a setting: models/pool.py",
        "60%": "a setting: models/pool.py",
        "600 s": "a setting: models/chat.py",
        "4 MiB": "a setting: models/chat.py",
    },
    "docs/scaling.md": {
        "9.6 TB": "arithmetic: 12 billion messages of 800 bytes",
        "5 s": "an assumption, and said to be one",
        "5 MB": "arithmetic: 4,630 calls of a kB",
        "1 kB": "arithmetic: a message and its envelope",
        "40 kB": "arithmetic: a conversation of 40 messages",
        "15 GB": "arithmetic: 91 workers, a shard each, by kB",
        "37 GB": "arithmetic: the same by 2.5",
        "254 MB": "the figure further up, which has its mark",
        "2.5 s": "arithmetic: a quarter of the lease, engine/coordinator.py",
        "4.5 s": "arithmetic: 905 workers by 200 a second, engine/coordinator.py",
        "10 s": "a setting: engine/ray/supervisor.py",
        "0.7 ms": "arithmetic on the figure beside it",
        "40 s": "advice: a setting",
        "1x": "a size, not a speed",
        "10x": "a size, not a speed",
        "100x": "a size, not a speed",
    },
    "docs/storage.md": {"256 MB": "a setting: the command above it"},
    "docs/study.md": {"1.9%": "arithmetic: Wilson's interval of 0 in 200"},
}
"""What needs no measurement: page, figure, why."""
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


def unmarked(text: str) -> list[str]:
    """The figures of a page that neither a mark nor a place in the log vouches for."""
    plain = CODE.sub(lambda code: "\n" * code[0].count("\n"), text)
    found: list[str] = []
    for line in plain.splitlines():
        if CITED.search(line):
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
    strangers: list[str] = []
    for page in PAGES:
        where = page.relative_to(ROOT).as_posix()
        if where == "docs/LOG.md" or where.startswith("docs/decisions/"):
            continue  # these are where figures come from, with their dates
        for figure in unmarked(page.read_text()):
            at = [place for place in (EVERYWHERE, where) if figure in ALLOWED.get(place, {})]
            used |= {(place, figure) for place in at}
            strangers += [] if at else [f"{where}: {figure}"]
    assert not strangers, (
        "mark them <!-- recorded: … -->, cite the log with its date, or say in ALLOWED why not"
    )
    assert used == {(place, figure) for place, figures in ALLOWED.items() for figure in figures}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It takes 3 ms.", ["3 ms"]),
        ("It takes 3 to 4.5 s, 2.5x, 1,000 MB and 12%.", ["3 to 4.5 s", "2.5x", "1,000 MB", "12%"]),
        ("<!-- recorded: a.b -->3 to 4 s, and <!-- recorded: a.c -->5 ms", []),
        ("<!-- recorded: a.b -->3 ms, so 4 ms", ["4 ms"]),
        ("It takes 3 ms ([log](../LOG.md), 2026-11-15).", []),
        ("It takes 3 ms ([log](../LOG.md)).", ["3 ms"]),
        ("`--size 256 MB`, gpt-4 sizes, 5 seats", []),
        ("```text\n3 ms\n```\n4 s", ["4 s"]),
    ],
)
def test_figures_are_found(text: str, found: list[str]):
    assert unmarked(text) == found


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
