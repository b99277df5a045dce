"""Reads the items of a list from a model's reply.

The one decision to know: the first line with a mark (a number, a bullet) decides what the items look like; everything
else is preamble, continuation or remark. Only a reply without any mark is read line by line, and only a reply of a
single line is split at its commas. It never raises: a reply without a list gives an empty list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple, cast

import msgspec

from camel.core.message import well_formed
from camel.core.thought import separate

NAME_CHARS = 200
"""Longest name in characters. A longer text is not the name of a role or a topic."""
SENTENCE_CHARS = 4_000
"""Longest task or problem in characters. Longer items are dropped, not cut."""

_FENCED = re.compile(r"^[ \t]*```[ \t]*\w*[ \t]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
_FENCE = re.compile(r"[ \t]*(?:```|~~~)[^`]*")
_RULE = re.compile(r"[ \t]*(?:[-*_=][ \t]*){3,}")
_NUMBER = re.compile(
    r"""[ ]*(?:\#{1,6}[ ]+)?(?P<lead>[*_]{0,3})
    (?:(?:task|role|problem|item|topic|sub-?topic|question|exercise|example|idea|domain|language)[ ]+)?
    [#(\[]?(?P<number>\d{1,4})
    (?: \\?\.\)? (?!\d) | [)\]] | :(?=[*_]{0,3}[ ]) | [ ]+[-–—](?=[ ]) | [*_]{1,3}(?=:[ ]) )
    [*_]{0,3}:?[ ]*""",
    re.VERBOSE | re.IGNORECASE,
)
_BULLET = re.compile(r"[ ]*(?:[-*+•‣▪●○◦·–—→]|&bull;)[ ]+(?:\[[ xX]?\][ ]+)?")
_LETTER = re.compile(r"\A\(?[a-zA-Z]\)[ ]+")
_INLINE_START = re.compile(r"^([^\d\n]{0,200}:)[ \t]+(?=\(?1[.)][ \t])", re.MULTILINE)
_INLINE_NUMBER = re.compile(r"[\s,;]\(?(\d{1,4})[.)]\s+")
_CHATTER = re.compile(
    r"""(?:sure|certainly|of\ course|absolutely|okay|ok|great)[!.,:]*\Z
    |(?:sure|certainly|of\ course|absolutely|okay|ok|great|here\ (?:is|are)|here['’]s|below\ (?:is|are)|i\ hope|i['’]ve|
    i\ have\ (?:listed|provided|tried)|let\ me\ know|feel\ free|note|please\ note|i['’]m\ sorry|i\ am\ sorry|sorry|
    i\ apologi[sz]e|i\ can(?:no|['’])t|i\ cannot|i['’]m\ (?:unable|not\ able)|as\ an\ ai|if\ you|would\ you\ like|
    do\ you\ want|these\ (?:are|\w+\ (?:are|cover|can|should|range))|each\ of\ these|this\ list|
    the\ (?:above|following|list)|remember\ that|happy\ to|thank)\b.*[:.!?…)]\W*\Z""",
    re.VERBOSE | re.IGNORECASE,
)
_CHATTER_CHARS = 400
_HEADING = re.compile(r"[ ]*(?:\#{1,6}[ ].*|(?P<bold>\*\*|__)[^*_]+(?P=bold):?|.*[:：][*_]{0,3})[ ]*")
_BOLD = re.compile(r"(?<!\w)(?:\*\*(?=\S)([^*]+)(?<=\S)\*\*|__(?=\S)([^_]+)(?<=\S)__)(?!\w)")
_BOLD_HEAD = re.compile(r"(\*\*|__)(?P<name>[^*_]+)\1(?:(?<=:..).*|\s*[:：–—(-].*|\s*)\Z")
_EXPLAINED = re.compile(r"\s*[:：]\s+|\s+[-–—]+\s+|\s*—\s*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_WRAPPERS = ("**", "__", '"', "“", "'", "‘", "`", "*", "_")
_CLOSING = {"“": "”", "‘": "’"}

Style = Literal["number", "bullet", ""]


class _Line(NamedTuple):
    indent: int
    style: Style
    text: str
    number: int
    after_blank: bool


def parse_list(text: str, *, names: bool = False) -> list[str]:
    """Return the items of the list in `text`, each on one line, stripped and not empty.

    If `names` is true, items are short names: explanations behind a colon or a dash or on the lines below are removed.
    Otherwise items are sentences: lines below belong to them, and nothing is removed.
    """
    # Keep leading spaces: the indentation of the first item decides which lines are on its level.
    text = separate(well_formed(text)).speech.lstrip("\ufeff\r\n")
    found = _from_json(text, names)
    items = list(_from_lines(text, names) if found is None else found)
    if names:
        items = _without_explanations(items)
    limit = NAME_CHARS if names else SENTENCE_CHARS
    # Drop items that are far too long first: cleaning takes time that grows faster than the text.
    cleaned = (_clean(item, names) for item in items if len(item) <= 2 * limit)
    return [item for item in cleaned if len(item) <= limit and any(map(str.isalnum, item))]


def _from_json(text: str, names: bool) -> list[str] | None:
    """Return the strings of a JSON array: alone, in a fence or after a preamble."""
    candidates = [found[1] for found in _FENCED.finditer(text)] if "```" in text else []
    candidates.append(text)
    if (start := text.find("\n[")) >= 0:
        candidates.append(text[start : text.rfind("]") + 1])
    for candidate in candidates:
        if not candidate.lstrip().startswith(("[", "{")):
            continue
        try:
            strings = list(_strings(msgspec.json.decode(candidate), names))
        except (msgspec.DecodeError, RecursionError):
            continue
        if strings:
            return strings
    return None


def _strings(value: Any, names: bool) -> Iterator[str]:
    if isinstance(value, dict):
        inside: list[Any] = list(cast("dict[str, Any]", value).values())
        value = next((cast("Any", one) for one in inside if isinstance(one, list)), inside)
    for one in cast("list[Any]", value) if isinstance(value, list) else []:
        if isinstance(one, dict):
            one = _of_object(cast("dict[str, Any]", one), names)
        if isinstance(one, str):
            yield one


_SENTENCE_KEYS = {"task", "problem", "question", "exercise", "problem_statement"}


def _of_object(one: dict[str, Any], names: bool) -> str | None:
    """Return the item in a JSON object. A name is the first string; a sentence has a known key or is the longest string."""
    strings = [(key, inner) for key, inner in one.items() if isinstance(inner, str)]
    if names:
        return strings[0][1] if strings else None
    called = (inner for key, inner in strings if key.lower() in _SENTENCE_KEYS)
    return next(called, max((inner for _, inner in strings), key=len, default=None))


def _from_lines(text: str, names: bool) -> Iterable[str]:
    text = _INLINE_START.sub(r"\1\n", text)
    lines = list(_lines(text))
    first = next((line for line in lines if line.style), None)
    if first is None:
        return _unmarked([line.text for line in lines], names)
    items: list[list[str]] = []
    held: list[str] = []
    loose: list[str] = []  # looks like a remark right below an item; it is one only if no item follows
    for line in lines:
        if line.style == first.style and line.indent < first.indent + 2:
            if held or loose:
                # Separate paragraphs belong to an item only if another item follows; at the end they are remarks.
                items[-1] += [*held, *(text for text in loose if not text.endswith(":"))]
                held, loose = [], []
            items.append([line.text])
        elif items and not (names and items[-1][-1]) and not _is_aside(line, first.indent):
            indented = line.indent > first.indent
            if not (indented or line.style) and _is_chatter(line.text):
                loose.append(line.text)
                continue
            below = indented or not line.after_blank
            (items[-1] if below and not held else held).extend([*loose, line.text])
            loose = []
    if len(items) == 1 and first.style == "number":
        return _inline(" ".join(items[0]), first.number)
    return map(_joined, items)


def _lines(text: str) -> Iterator[_Line]:
    blank, listed = True, False
    for raw in text.splitlines():
        line = raw.expandtabs(4).rstrip()
        if not line:
            blank = True
            continue
        if _FENCE.fullmatch(line) or _RULE.fullmatch(line):
            continue
        indent = len(line) - len(line.lstrip(" "))
        line = " " * min(indent, 80) + " ".join(line.split())
        if not listed and line.endswith("|") and line.lstrip().startswith("|"):
            # A row of a table. In a list it is |x|, or an item's table.
            if (cell := _cell(line)) is not None:
                yield _Line(indent, "bullet", cell, 0, blank)
        elif number := _NUMBER.match(line):
            text, lead = line[number.end() :], number["lead"]
            # "**3. Baker**": the mark includes the opening asterisks of the bold text.
            opened = lead and lead not in number[0][number.end("lead") - number.start() :]
            listed = True
            yield _Line(indent, "number", f"{lead}{text}" if opened else text, int(number["number"]), blank)
        elif bullet := _BULLET.match(line):
            listed = True
            yield _Line(indent, "bullet", line[bullet.end() :], 0, blank)
        else:
            yield _Line(indent, "", line.strip(), 0, blank)
        blank = False


_HEADER_CELL = re.compile(r"n[or]\.?|number|name|role|task|(?:sub)?topic|problem|item")


def _cell(line: str) -> str | None:
    """Return the first cell of a table row that has letters. Return None for a header or a rule."""
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    named = [cell for cell in cells if any(map(str.isalpha, cell))]
    return None if not named or _HEADER_CELL.fullmatch(named[0].strip("*").lower().rstrip("s")) else named[0]


def _is_aside(line: _Line, margin: int) -> bool:
    """Return whether a line between items is a heading or a remark rather than part of an item."""
    if line.style:
        return False
    if line.indent == 0 and _HEADING.fullmatch(line.text) and (line.after_blank or line.text.startswith("#")):
        return True
    return line.after_blank and line.indent <= margin and _is_chatter(line.text)


def _is_chatter(text: str) -> bool:
    return len(text) <= _CHATTER_CHARS and _CHATTER.match(text) is not None


def _joined(parts: list[str]) -> str:
    parts = [part for part in parts if part]
    if len(parts) > 1 and _BOLD.fullmatch(parts[0]) and parts[0].strip("*_")[-1:].isalnum():
        parts[0] += ":"
    return " ".join(parts)


def _inline(text: str, number: int) -> list[str]:
    """Return items that are all on one line: `1. Actor 2. Baker 3. Chef`."""
    items: list[str] = []
    start = 0
    for found in _INLINE_NUMBER.finditer(text):
        if int(found[1]) == number + 1:
            items.append(text[start : found.start()])
            start, number = found.end(), number + 1
    return [*items, text[start:]]


def _unmarked(lines: list[str], names: bool) -> list[str]:
    last = len(lines) - 1
    items = [
        _LETTER.sub("", line)
        for place, line in enumerate(lines)
        if not _is_chatter(line)
        and not line.startswith("# ")
        and not (place < last and line.endswith((":", "：")))
    ]
    if names and not items and len(lines) == 1 and "," in lines[0].partition(": ")[2]:
        items = lines  # "Here are three: a, b, c."
    if len(items) != 1 or not names:
        return items
    _, colon, behind = items[0].partition(": ")
    line = behind if colon and "," in behind else items[0]
    parts = re.split(r"\s*[,;，、]\s*(?:and\s+)?", line.strip("[]{}() ."))
    return parts if len(parts) > 2 else items


def _without_explanations(items: list[str]) -> list[str]:
    """Remove explanations from names.

    Bold text is the name. A colon or a dash may be part of a name, so it separates only if most items have it.
    """
    heads = [
        found["name"].rstrip(":：") if (found := _BOLD_HEAD.match(item.strip())) else item for item in items
    ]
    explained = sum(1 for head in heads if _EXPLAINED.search(head.strip()))
    if explained * 2 <= len(heads):
        return heads
    return [_EXPLAINED.split(head.strip(), maxsplit=1)[0] or head for head in heads]


def _clean(item: str, names: bool) -> str:
    item = " ".join(_CONTROL.sub(" ", item).split())
    item = _BOLD.sub(lambda found: found[1] or found[2], item)
    while True:
        before = item
        item = item.strip().rstrip(",;")
        if item.count('"') == 1:
            item = item.strip('"')  # of a JSON array that was cut off
        for mark in _WRAPPERS:
            close = _CLOSING.get(mark, mark)
            inner = item[len(mark) : -len(close)]
            if inner and item.startswith(mark) and item.endswith(close) and mark not in inner:
                item = inner
        if names and item.endswith(".") and not item.endswith(".."):
            item = item[:-1]
        if item == before:
            return item
