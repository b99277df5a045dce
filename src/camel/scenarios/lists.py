"""Lists of roles, tasks and topics: requested from a model, and stored as text that users can edit.

The one decision to know: each request depends only on the replies so far (no clock, no randomness), so that a journaled
model repeats them after a crash and the list is the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from math import ceil
from typing import NamedTuple

from camel.core.checks import shown
from camel.core.errors import InputError, ModelError
from camel.core.history import History
from camel.core.lists import parse_list
from camel.core.message import Sampling, in_one_line
from camel.core.model import THOUGHT_ONLY, Model, Request
from camel.scenarios.scenario import DEFAULT_ASK, NamedList, fill_count

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
    """Distinct items in their order.

    The rules are conservative, because a lost item is worse than a duplicate. Case, punctuation, plurals, British or American
    spelling and word order are ignored, unless they carry meaning: text with figures or formulas is compared exactly (`C` is
    not `C++`), and "CSV to JSON" is not "JSON to CSV". Otherwise only long items that share nearly all words are equal. Edit
    distance is not used: "Microeconomics" is close to "Macroeconomics".
    """

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


ROUNDS = 8
"""Maximum number of calls beyond the minimum for the count."""
LISTER = "lister"
"""The speaker name of list requests."""


class ListTooShort(ModelError):
    """The model did not return enough different items, retries included."""

    def __init__(self, items: Sequence[str], wanted: int, calls: int, hint: str = "") -> None:
        hint = hint or "lower the level's count, change its prompt, or complete the list yourself"
        super().__init__(f"{calls} calls returned only {len(items)} different items of {wanted}: {hint}")
        self.items = list(items)
        self.wanted = wanted
        self.calls = calls

    @property
    def got(self) -> int:
        """Number of items that the model returned."""
        return len(self.items)


async def ask_list(
    model: Model,
    prompt: str | Callable[[int], str],
    count: int,
    *,
    sampling: Sampling = Sampling(),  # noqa: B008 - frozen
    session: str = "",
    ask: int = DEFAULT_ASK,
    rounds: int = ROUNDS,
    names: bool = False,
) -> list[str]:
    """Ask for `count` different items and return exactly that many, or raise `ListTooShort`.

    `prompt` is a text with `<COUNT>`, or a function of the number of items. A call asks for at most `ask` items; later calls
    list the items so far. At most `rounds` additional calls are made for duplicates and bad replies.
    """
    if count < 1 or ask < 1 or rounds < 0:
        raise InputError(f"count and ask must be at least 1 and rounds 0, not {count}, {ask} and {rounds}")
    distinct, calls, is_new, hint = Distinct(), 0, True, ""
    while len(distinct) < count and calls < ceil(count / ask) + rounds:
        wanted = min(ask, count - len(distinct))
        text = fill_count(prompt, wanted) if isinstance(prompt, str) else prompt(wanted)
        history = History()
        history.add("user", f"{text}{_more(distinct.items, wanted)}{'' if is_new else _again(calls)}")
        reply = await model.reply(Request(history, sampling, session, LISTER, "list"))
        calls += 1
        hint = THOUGHT_ONLY if reply.choices[0].thought_only else ""
        items = parse_list(reply.content, names=names)
        if reply.choices[0].finish == "length":
            del items[-1:]  # probably cut off
        before = len(distinct)
        for item in items:
            distinct.add(item)
        is_new = len(distinct) > before
    if len(distinct) < count:
        raise ListTooShort(distinct.items, count, calls, hint)
    return distinct.items[:count]


def _more(items: Sequence[str], wanted: int) -> str:
    if not items:
        return ""
    return (
        f"\n\nThese are on the list already:\n{_numbered(items)}\n\n"
        f"List {wanted} more, different from all of these; do not repeat or rephrase them."
    )


def _again(calls: int) -> str:
    # A deterministic model would repeat its reply, so the wording changes.
    return (
        "\n\nWrite a numbered list with one item on each line and nothing else. "
        f"The answer before this one brought nothing new; this is attempt {calls + 1}."
    )


# --- as text -----------------------------------------------------------------------------------------------------


_LINE_NUMBER = re.compile(r"\d+[.)](?:\s+|\Z)")
_ESCAPED = re.compile(r"\\([\\|])")


def render_lists(lists: Iterable[tuple[Sequence[str], Sequence[str]]]) -> str:
    """Write lists as text: a heading with the items that the list depends on, if any, then numbered lines."""
    blocks = [
        (f"# {heading(parents)}\n" if parents else "") + f"{_numbered(items)}\n" for parents, items in lists
    ]
    return "\n".join(blocks)


def heading(parents: Sequence[str]) -> str:
    """Return the heading of a list on one line: `Accountant | Actor`."""
    return " | ".join(in_one_line(parent).replace("\\", "\\\\").replace("|", "\\|") for parent in parents)


def read_lists(
    text: str,
    *,
    source: str = "the list",
    count: int | None = None,
    parents: Iterable[Sequence[str]] | None = None,
) -> list[NamedList]:
    """Parse lists with any spacing and numbering.

    Each list must have `count` items, and the headings must be `parents`, in that order. Errors name `source` and the line.
    """
    found: list[tuple[int, tuple[str, ...], list[str]]] = []
    last = 0
    for number, raw in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        line = " ".join(raw.split())
        last = number if line else last
        if line == "#" or line.startswith("# "):
            found.append((number, _parents(line[1:].strip()), []))
        elif item := _LINE_NUMBER.sub("", line, count=1):
            if not found:
                found.append((number, (), []))
            found[-1][2].append(item)
    for at, names, items in found:
        if count is not None and len(items) != count:
            what = f"the list '# {heading(names)}'" if names else "the list"
            raise InputError(f"{source}:{at}: {what} must have {count} items, but it has {len(items)}")
    if parents is not None:
        _check_parents(found, [tuple(map(in_one_line, one)) for one in parents], source, last)
    return [NamedList(names, tuple(items)) for _, names, items in found]


def _check_parents(
    found: Sequence[tuple[int, tuple[str, ...], list[str]]],
    wanted: Sequence[tuple[str, ...]],
    source: str,
    last: int,
) -> None:
    for (at, names, _), expected in zip(found, wanted, strict=False):
        if names != expected:
            raise InputError(
                f"{source}:{at}: expected the list {shown(f'# {heading(expected)}')}, "
                f"not {shown(f'# {heading(names)}')}. Do not change the headings or their order"
            )
    if len(found) > len(wanted):
        raise InputError(
            f"{source}:{found[len(wanted)][0]}: remove this list, there must be only {len(wanted)}"
        )
    if len(found) < len(wanted):
        missing = shown(f"# {heading(wanted[len(found)])}")
        raise InputError(
            f"{source}:{last}: add the list {missing} after this line"
            if last
            else f"{source} is empty: add the heading {missing}, and the items of its list below it"
        )


def _parents(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    # A pipe in a name is written `\|`, so a plain one between spaces is a separator.
    return tuple(_ESCAPED.sub(r"\1", part) for part in text.split(" | "))


def _numbered(items: Sequence[str]) -> str:
    return "\n".join(f"{number}. {in_one_line(item)}" for number, item in enumerate(items, 1))
