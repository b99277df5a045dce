"""Decides whether two items of a list mean the same.

The one decision to know: the rules are conservative, because a lost item is worse than a duplicate. Case, punctuation,
plurals, British or American spelling and word order are ignored, unless they carry meaning: text with figures or formulas
is compared exactly (`C` is not `C++`, `x + 1` not `x - 1`), and "CSV to JSON" is not "JSON to CSV". Otherwise only long
items that share nearly all words are equal. Edit distance is not used: "Microeconomics" is close to "Macroeconomics".
"""

from __future__ import annotations

import re
from typing import NamedTuple

SIMILARITY = 0.85
"""Share of common words (Jaccard) from which two items are equal. Items of up to five words must share all."""

_WORD = re.compile(r"\w+")
_EXACT = re.compile(r"[\d+=^*<>|\\$_{}~#%²³¹½√∫∑∏∂∇±×÷≤≥≠≈∞∈∉⊂∪∩→←↔°′]|\w['′]?\(")
_WEAK = {"a", "an", "the", "of", "and"}
_ORDERED = {
    *("to", "from", "into", "onto", "than", "before", "after", "over", "under", "of"),
    *("by", "versus", "vs", "against", "via"),
}
_NEGATIVE = {"not", "no", "non", "without", "never", "neither", "nor", "except", "unlike"}


class _Key(NamedTuple):
    text: str
    """Normalized text. Two items with the same text are duplicates."""
    any_order: str
    """The words in alphabetical order. Empty if their order matters."""
    words: tuple[str, ...]


def _key(item: str) -> _Key:
    plain = " ".join(item.split()).casefold().strip(" .,;:!?\"'“”‘’`")
    if _EXACT.search(item):
        return _Key(f"={plain}", "", ())
    found = _WORD.findall(item)
    # Articles are in lower case; the A of "Vitamin A" is not an article.
    strong = [
        word for place, word in enumerate(found) if word.lower() not in _WEAK or (place and word.isupper())
    ]
    words = tuple(_stem(word.casefold()) for word in strong)
    if not words:
        return _Key(f"={plain}", "", ())
    if _ORDERED.isdisjoint(word.lower() for word in found):
        return _Key(" ".join(words), " ".join(sorted(words)), words)
    lowered = [word.lower() for word in found]
    if lowered.count("of") == 1 and _ORDERED.isdisjoint({*lowered} - {"of"}):
        # "Teacher of physics" equals "physics teacher", but "history of science" does not equal "science of history".
        head = [word for word in found[: lowered.index("of")] if word in strong]
        words = words[len(head) :] + words[: len(head)]
    return _Key(" ".join(words), "", words)


def _stem(word: str) -> str:
    """Remove plural endings (`s`, `es`, `ies`) and British spellings (`isation`, `our`, `ll`)."""
    if not word.isascii() or len(word) < 4:
        return word
    if word.endswith("ies"):
        word = f"{word[:-3]}y"
    elif word.endswith(("sses", "xes", "ches", "shes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    word = word.replace("isation", "ization").replace("ll", "l")
    return word.replace("our", "or") if len(word) > 5 else word


def _same(one: _Key, other: _Key) -> bool:
    if one.text == other.text or (one.any_order and one.any_order == other.any_order):
        return True
    first, second = set(one.words), set(other.words)
    shorter, longer = sorted((len(first), len(second)))
    if shorter < SIMILARITY * longer or not shorter:
        return False
    common = first & second
    if len(common) < SIMILARITY * len(first | second) or (first ^ second) & _NEGATIVE:
        return False
    if one.any_order and other.any_order:
        return True
    return [w for w in one.words if w in common] == [w for w in other.words if w in common]


class Distinct:
    """Distinct items in their order."""

    def __init__(self) -> None:
        self.items: list[str] = []
        self._known: set[str] = set()
        # Only long items can be similar without being equal, so short items, the majority, need only a lookup.
        self._long: list[_Key] = []

    def add(self, item: str) -> bool:
        """Add `item` unless it means the same as another one. Return whether it was added."""
        key = _key(item)
        exact = {key.text, f"~{key.any_order}" if key.any_order else key.text}
        if exact & self._known:
            return False
        is_long = len(key.words) > 1 / (1 - SIMILARITY) - 1
        if is_long and any(_same(key, other) for other in self._long):
            return False
        self._known |= exact
        if is_long:
            self._long.append(key)
        self.items.append(item)
        return True

    def __len__(self) -> int:
        return len(self.items)
