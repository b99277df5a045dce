"""Looks for words that are always wrong here (tests/words.toml), in text only; British spelling also in identifiers."""

from __future__ import annotations

import io
import re
import subprocess
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RULES = tomllib.loads((ROOT / "tests/words.toml").read_text())
SUFFIXES = {".py", ".pyi", ".md", ".toml", ".html", ".js", ".css", ".yml", ".yaml", ".ipynb", ".sh", ""}
FSTRING_MIDDLE = getattr(tokenize, "FSTRING_MIDDLE", -1)  # from Python 3.12


WORDS = {
    re.compile(rf"\b(?:{word})\b".replace(" ", r"[\s#]+")): write for word, write in RULES["words"].items()
}
SPELLING = {re.compile(word): write for word, write in RULES["spelling"].items()}
ALLOWED = re.compile("|".join(map(re.escape, RULES["allowed"]["texts"])))
ANY_WORD = re.compile("|".join(pattern.pattern for pattern in WORDS))


def python_text(source: str) -> Iterator[tuple[int, str]]:
    """Comments, strings and names of tests, each with its first line; comments on consecutive lines are one text."""
    comments: list[str] = []
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line, text = token.start[0], token.string
        if token.type == tokenize.COMMENT:
            if comments and line != last + 1:
                yield last - len(comments) + 1, "\n".join(comments)
                comments = []
            comments.append(text)
            last = line
        elif token.type == tokenize.STRING:
            formatted = "f" in text[: text.index(text[-1])]
            yield line, re.sub(r"\{[^{}]*\}", "", text) if formatted else text
        elif token.type == FSTRING_MIDDLE:
            yield line, text
        elif token.type == tokenize.NAME and text.startswith("test_"):
            yield line, text.replace("_", " ")
    if comments:
        yield last - len(comments) + 1, "\n".join(comments)


def findings(name: str, source: str) -> list[str]:
    """What is wrong in a file: place, words, what to write."""
    source = ALLOWED.sub(lambda found: "x" * len(found[0]), source.lower())
    texts = [(1, source)]
    if not ANY_WORD.search(source.replace("_", " ")):  # most files; to tokenize them takes long
        texts = []
    elif name.endswith((".py", ".pyi")):
        texts = list(python_text(source))
    places = [(line, text, WORDS) for line, text in texts] + [(1, source, SPELLING)]
    return [
        f"{name}:{line + text.count(chr(10), 0, found.start())}: {' '.join(found[0].split())!r}, write: {write}"
        for line, text, patterns in places
        for pattern, write in patterns.items()
        for found in pattern.finditer(text)
    ]


def below(name: str, folders: list[str]) -> bool:
    """Whether a file is one of these, or in one of these folders."""
    return any(name == folder or name.startswith(f"{folder}/") for folder in folders)


def test_no_word_that_is_always_wrong():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found: list[str] = []
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if path.suffix not in SUFFIXES or not path.is_file() or below(name, RULES["excluded"]["paths"]):
            continue
        found += findings(name, path.read_text())
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        ("a.py", "x = 1  # it goes\n# on", ["a.py:1: 'goes # on', write: continue, resume"]),
        ("a.py", "def test_a_Talk(): ...", ["a.py:1"]),
        ("a.py", "talk = 'a'\nseldom(f'{talk} {whoever}')", []),
        ("a.py", "'''One.\n\nIt was\ntold.'''", ["a.py:3"]),
        ("a.py", "x = f'{y} seldom'", ["a.py:1: 'seldom', write: rarely"]),
        ("a.py", "colours = {}", ["a.py:1: 'colour', write: color"]),
        ("a.md", "# A\n\nPut it\nbeside the other; besides, ahead on.", ["a.md:4: 'beside'"]),
    ],
)
def test_what_is_found(name: str, source: str, expected: list[str]):
    found = findings(name, source)
    assert len(found) == len(expected)
    assert all(one.startswith(start) for one, start in zip(found, expected, strict=True))
