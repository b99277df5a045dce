"""When two items of a list are the same thing in other words.

The one decision to know: a duplicate that stays costs a little variety, a distinct item that goes costs the list its
completeness, so the rules are conservative. Case, punctuation, plurals, British or American spelling and the order of words do not
count, unless they carry meaning: text with figures or formulas is compared to the letter (`C` is not `C++`, `x + 1`
not `x - 1`), and "CSV to JSON" is not "JSON to CSV". Beyond that only long items that share nearly all words agree.
There is no edit distance on purpose: by it "Microeconomics" is "Macroeconomics".
"""

from __future__ import annotations

import re
from typing import NamedTuple

SIMILARITY = 0.85
"""Share of words in common (Jaccard) from which two items are the same. Items of up to five words must agree in all."""

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
    """What is compared to the letter."""
    any_order: str
    """The words in alphabetical order; empty where their order means something."""
    words: tuple[str, ...]


def _key(item: str) -> _Key:
    plain = " ".join(item.split()).casefold().strip(" .,;:!?\"'“”‘’`")
    if _EXACT.search(item):
        return _Key(f"={plain}", "", ())
    found = _WORD.findall(item)
    # An article is small; the A of "Vitamin A" is not.
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
        # "Teacher of physics" is a "physics teacher"; "history of science" is no "science of history".
        head = [word for word in found[: lowered.index("of")] if word in strong]
        words = words[len(head) :] + words[: len(head)]
    return _Key(" ".join(words), "", words)


def _stem(word: str) -> str:
    """Without what marks number or one side of an ocean: `s`, `es`, `ies`; `isation`, `our`, `ll`."""
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
    """Items that differ from each other, in the order in which they came."""

    def __init__(self) -> None:
        self.items: list[str] = []
        self._known: set[str] = set()
        # Only these can be similar without being equal, so short items, the many, are looked up and not compared.
        self._long: list[_Key] = []

    def add(self, item: str) -> bool:
        """Keep `item` unless it is there already in other words; returns whether it was kept."""
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
