"""The instruction grammar of the paper, and its one parser.

    user       Instruction: <what to do>            assistant   Solution: <what was done>
               Input: <context, or None>                        Next request.
               <CAMEL_TASK_DONE>  (when satisfied)

The one decision to know: a marker counts only where a speaker *uses* it. It must open a line or a sentence;
inside a fenced code block, a block quote or quotation marks it is text that somebody mentions. Within that,
the parser takes what models really write: any case, Markdown headings and bold, numbers, full-width colons,
prose before and after. It never fails: text without markers is an empty `Move`.
"""

from __future__ import annotations

import re
from itertools import pairwise
from operator import itemgetter

import msgspec

DONE_TOKEN = "<CAMEL_TASK_DONE>"  # noqa: S105 - a word of the grammar, not a secret


class Move(msgspec.Struct, frozen=True):
    """What a message does. A part that is absent, empty or said to be none is `None`."""

    instruction: str | None = None
    input: str | None = None
    solution: str | None = None
    next_request: bool = False
    """The message ends with the assistant's `Next request.`"""
    done: bool = False
    """The message declares the task done. Only a rule decides whether its speaker may."""

    def render(self) -> str:
        """Write the move as the inception prompts ask for it."""
        lines: list[str] = []
        if self.instruction is not None:
            lines += [f"Instruction: {self.instruction}", f"Input: {self.input or 'None'}"]
        if self.solution is not None:
            lines.append(f"Solution: {self.solution}")
        if self.next_request:
            lines.append("Next request.")
        if self.done:
            lines.append(DONE_TOKEN)
        return "\n".join(lines)


_TAIL = re.compile(r"(?:[ \t]?\#?\d{1,3})?(?P<mark>[*_]{0,3}[ \t]?[:：][*_]{0,3}|[*_]{0,3}[ \t]*(?=\n|\Z))")
_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_LINE_LEAD = re.compile(r"[ \t]*(?:[-+•*][ \t]+|\d{1,3}[.)][ \t]+)?(?:\#{1,6}[ \t]*)?[*_]{0,3}")
_SENTENCE_LEAD = re.compile(r"[.!?…:;,。！？][\"'”’)\]*_]{0,3}[ \t]+[*_]{0,3}\Z")
_FENCE = re.compile(r"^[ \t]*(```+|~~~+)", re.MULTILINE)
_NOTHING = re.compile(
    r"[\W_]*(?:none|n/?a|nil|null|nothing|no (?:further|more) instructions?|your_(?:instruction|input|solution))?[\W_]*",
    re.IGNORECASE,
)
_NEXT_REQUEST = re.compile(r"(?:^|(?<=[\s.!?*_]))[*_]{0,3}next request[\s.!…*_]{0,8}\Z", re.IGNORECASE)
_TOKEN = r"<?CAMEL\\?_TASK\\?_DONE>?"  # noqa: S105 - the same word, with Markdown's escapes
# The whole message is the token, however it is dressed up.
_DONE_ALONE = re.compile(rf"[\s*_`\"'“”]*{_TOKEN}[\s*_`\"'“”.!]*", re.IGNORECASE)
# Or the token is a sentence of its own at the end of a line of prose.
_DONE_SENTENCE = re.compile(
    rf"(?:^|(?<=[.!?…。！？][ \t]))[ \t]*[*_]{{0,3}}{_TOKEN}[*_.! \t]{{0,8}}$", re.IGNORECASE | re.MULTILINE
)


def parse(text: str) -> Move:
    """Read `text` as a move of the instruction grammar."""
    text = _unwrapped(text)
    done = _done_at(text)
    closing = _NEXT_REQUEST.search(text, max(0, len(text) - 40))
    labels = _labels(text)
    if not labels:
        return Move(next_request=closing is not None, done=done is not None)
    end = min(len(text), closing.start() if closing else len(text), len(text) if done is None else done)
    parts: dict[str, str] = {}
    for (name, _, start), (_, stop, _) in pairwise([*labels, ("", end, end)]):
        parts.setdefault(name, text[start : max(start, stop)])
    instruction = _content(parts.get("instruction"))
    return Move(
        instruction=instruction,
        input=_content(parts.get("input")),
        solution=_content(parts.get("solution")),
        next_request=closing is not None,
        # Whoever still asks for something is not done, whatever else the message says.
        done=instruction is None and done is not None,
    )


def _labels(text: str) -> list[tuple[str, int, int]]:
    """Find the markers in use, as (name, start of the marker, start of what it introduces)."""
    found: list[tuple[str, int, int]] = []
    fenced = _fenced(text)
    current = ""
    for name, at, end in _words(text):
        plural = name == "instruction" and text[end : end + 1] in ("s", "S")
        # `Input:` belongs to an instruction; in a solution it is an example's. A recipe's plural
        # `Instructions:` inside a solution commands nobody, and a solution's `Solution:` opens no second one.
        if (name == "input" and current != "instruction") or (
            current == "solution" and (plural or name == current)
        ):
            continue
        tail = _TAIL.match(text, end + plural)
        start = _marker_start(text, at, tail["mark"]) if tail else None
        if tail is None or start is None or _inside(start, fenced):
            continue
        found.append((name, start, tail.end()))
        current = name
    return found


def _words(text: str) -> list[tuple[str, int, int]]:
    """Every occurrence of a marker's bare word. Plain string search: a pattern tried at each character costs ten times this."""
    lowered = text.lower()
    if len(lowered) != len(text):  # some capitals lower to two characters, which would shift every position
        lowered = text.translate(_ASCII_LOWER)
    found: list[tuple[str, int, int]] = []
    for word in ("instruction", "input", "solution"):
        at = lowered.find(word)
        while at >= 0:
            found.append((word, at, at + len(word)))
            at = lowered.find(word, at + len(word))
    found.sort(key=itemgetter(1))
    return found


def _marker_start(text: str, at: int, mark: str) -> int | None:
    """Where the marker whose word is at `at` begins if it opens a line or a sentence, else None."""
    # Bounded, so that a line of a megabyte with ten thousand such words is not copied for each of them.
    floor = max(0, at - 2000)
    line = max(text.rfind("\n", floor, at) + 1, floor)
    before = text[line:at]
    has_colon = ":" in mark or "：" in mark
    if _LINE_LEAD.fullmatch(before):
        # Without a colon it is a marker only as a heading or in bold, alone on its line.
        return line if has_colon or "#" in before or ("**" in before and "**" in mark) else None
    lead = _SENTENCE_LEAD.search(before, max(0, len(before) - 12)) if has_colon else None
    if lead is None or before.lstrip().startswith(">") or _in_quotation(before):
        return None
    return line + lead.start() + 1


def _in_quotation(before: str) -> bool:
    return before.count('"') % 2 == 1 or before.count("“") > before.count("”")


def _fenced(text: str) -> list[tuple[int, int]]:
    """Spans of fenced code; a fence that is never closed runs to the end."""
    if "```" not in text and "~~~" not in text:
        return []
    marks = [m.start() for m in _FENCE.finditer(text)]
    if len(marks) % 2:
        marks.append(len(text))
    return list(zip(marks[::2], marks[1::2], strict=True))


def _inside(at: int, spans: list[tuple[int, int]]) -> bool:
    return any(a <= at < b for a, b in spans)


def _unwrapped(text: str) -> str:
    """Take off a fence around the whole message: a wrapping that models add, not code."""
    stripped = text.strip()
    if not stripped.startswith(("```", "~~~")) or len(_FENCE.findall(stripped)) != 2:
        return text
    lines = stripped.split("\n")
    return "\n".join(lines[1:-1]) if lines[-1].strip() in ("```", "~~~") else text


def _done_at(text: str) -> int | None:
    """Where the task is declared done, if it is."""
    if "_DONE" not in text and "_done" not in text.lower():
        return None
    if _DONE_ALONE.fullmatch(text):
        return 0
    fenced = _fenced(text)
    return next((m.start() for m in _DONE_SENTENCE.finditer(text) if not _inside(m.start(), fenced)), None)


def _content(text: str | None) -> str | None:
    if text is None or _NOTHING.fullmatch(text):
        return None
    return text.strip()
