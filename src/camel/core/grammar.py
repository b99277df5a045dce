"""The instruction grammar of the paper, and its one parser.

    user       Instruction: <what to do>            assistant   Solution: <what was done>
               Input: <context, or None>                        Next request.
               <CAMEL_TASK_DONE>  (when satisfied)

The one decision to know: a marker counts only where a speaker *uses* it. It must open a line or a sentence; inside
code, a block quote, an HTML comment or quotation marks it is only mentioned. Apart from that the parser accepts what
models write: any case, Markdown headings and bold, numbers, full-width colons, prose before and after. It never raises,
and its time is bounded for any text: plain string search finds the candidates, and patterns only look at their
surroundings (bounded by `_NEAR`) or cannot backtrack.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter

import msgspec

DONE_TOKEN = "<CAMEL_TASK_DONE>"  # noqa: S105 - a word of the grammar, not a secret


class Move(msgspec.Struct, frozen=True, gc=False):
    """The parts of a message, such as instruction and input. A part that is absent, empty or "None" is `None`."""

    instruction: str | None = None
    input: str | None = None
    solution: str | None = None
    next_request: bool = False
    """Whether the message ends with the assistant's `Next request.`"""
    done: bool = False
    """Whether the message declares the task done. A stop rule decides whether the speaker may do so."""

    def render(self) -> str:
        """Return the move as text, in the format that the inception prompts ask for."""
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


_NEAR = 2000
"""Maximum number of characters around a marker to search for quotation marks, so that long lines stay fast."""
_END = r".!?…。！？☀-➿\U0001f300-\U0001faff"  # ends of sentences, emoji included
_TAIL = re.compile(
    r"(?P<number>[ \t]?\#?\d{1,3})?(?P<mark>[*_]{0,3}[ \t]?[:：][*_]{0,3}|[*_]{0,3}[ \t]*+(?=\n|\Z))"
)
_LINE_LEAD = re.compile(r"[ \t]*(?:[-+•*][ \t]+|\d{1,3}[.)][ \t]+)?(?:\#{1,6}[ \t]*)?[*_]{0,3}")
_SENTENCE_LEAD = re.compile(rf"(?:[{_END}:][\"'”’)\]*_]{{0,3}}[ \t]+|[。！？：])([*_]{{0,3}})\Z")
_WORD_LEAD = re.compile(r"[ \t]([*_]{0,3})\Z")
_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_NOTHING = re.compile(
    r"[\W_]*+(?:none(?: needed| required| provided)?|n/?a|nil|null|nothing|not (?:applicable|needed|required)|"
    r"no (?:(?:further|more|additional) )?(?:instruction|input)s?(?: (?:(?:is|are) )?(?:needed|required|provided))?|"
    r"your_(?:instruction|input|solution))?[\W_]*+",
    re.IGNORECASE,
)
_NEXT_REQUEST = re.compile(r"(?:^|(?<=[\s.!?*_]))[*_]{0,3}next request[\s.!?…*_]{0,8}\Z", re.IGNORECASE)
# Also with Markdown escapes. ASCII only: look-alike letters (ſ, K) must not match.
_TOKEN = r"(?a:</?CAMEL\\?_TASK\\?_DONE/?>|CAMEL\\?_TASK\\?_DONE)"  # noqa: S105
# The whole message is the token, with any decoration.
_DONE_ALONE = re.compile(rf"[\s*_`\"'“”#()\[\]]*+{_TOKEN}[^\w<>]*", re.IGNORECASE)
# Or the token is a sentence of its own: at the end of a line of prose, or with a full stop.
_DONE_SENTENCE = re.compile(
    rf"(?:^|(?<=[{_END}\ufe0f])[*_]{{0,2}})[ \t]*+[*_]{{0,3}}(?P<token>{_TOKEN})(?:[^\w\n\"'“”`<>?]{{0,8}}$|[.!](?=[ \t]))",
    re.IGNORECASE | re.MULTILINE,
)
# A fence opens a line, or follows a label ("Input: ```"); inline code closes on its line.
_FENCE = re.compile(
    r"(?:^[ \t]*(?:[-+•*][ \t]+|\d{1,3}[.)][ \t]+)?|[:：][*_]{0,3}[ \t]*)(`{3,}(?=[^`]*$)|~{3,})"
)
_PLAIN_FENCES = ("", "text", "txt", "plaintext", "markdown", "md")
_COMMENT = re.compile(r"<!--(?:[^-]|-(?!->))*+(?:-->|\Z)")
_BLOCK_QUOTE = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
_SINGLE_QUOTES = re.compile(r"(?<!\w)'(?=[^\s\d])(?:[^'\n]|(?<=\w)'(?=\w))*+'(?!\w)")


_Label = tuple[str, int, int]
"""A marker such as `Instruction:` in use: its word, its start including decoration, and the start of the text it introduces."""
_Span = tuple[int, int]


@lru_cache(maxsize=256)
def parse(text: str) -> Move:
    """Parse `text` as a move of the instruction grammar. Cached: every stop rule parses the same last messages."""
    return _as_prompted(text) or _as_written(text)


def _as_prompted(text: str) -> Move | None:
    """Parse a message exactly in the prompts' format: the common case, ten times faster, with the same result.

    Returns None if it has a marker twice or any character that could hide one.
    """
    lowered = text.lower()
    if "_done" in lowered or "\r" in text:
        return None
    if text.startswith("Solution: ") and text.endswith("\nNext request.") and "instruction" not in lowered:
        solution = text[10:-14].strip()
        return Move(solution=solution, next_request=True) if len(solution) > 60 else None
    if text.startswith("Instruction: ") and lowered.count("instruction") == lowered.count("input") == 1:
        instruction, found, given = text[13:].partition("\nInput: ")
        plain = (
            "solution" not in lowered and "next request" not in lowered and not _MAY_HIDE.search(instruction)
        )
        if found and plain and len(instruction) > 60:
            return Move(instruction=instruction.strip(), input=_content(given))
    return None


_MAY_HIDE = re.compile(r"[`~<>\"'“„«»「『]")


def _as_written(text: str) -> Move:
    """Parse any message."""
    text = _unwrapped(text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text)
    lowered = text.lower()
    if len(lowered) != len(text):  # some capitals lower to two characters, which would shift every position
        lowered = text.translate(_ASCII_LOWER)
    hidden = _hidden(text)
    may_be_done = "_done" in lowered
    done = _done_at(text, hidden) if may_be_done else None
    end = len(text.rstrip())
    closing = None
    if "next request" in lowered[max(0, end - 40) :]:
        closing = _NEXT_REQUEST.search(text, max(0, end - 40), end)
    labels = _labels(text, lowered, hidden)
    if not labels:
        return Move(next_request=closing is not None, done=done is not None)
    if closing:
        end = closing.start()
    if done is not None and done >= labels[-1][2]:
        end = min(end, done)
    instruction = input_ = solution = None
    paired = False
    for (name, _, start), (_, stop, _) in pairwise([*labels, ("", end, end)]):
        content = _content(text[start : max(start, stop)])
        if name == "instruction":
            # One instruction at a time: the first non-empty one, with its input.
            paired = instruction is None
            instruction = instruction or content
        elif name == "solution":
            solution = solution or content
        elif paired and instruction:
            input_ = content
    if may_be_done and instruction and _DONE_ALONE.fullmatch(instruction):
        instruction, input_, done = None, None, 0
    # A message that still contains an instruction does not end the task.
    return Move(instruction, input_, solution, closing is not None, done is not None and instruction is None)


def _labels(text: str, lowered: str, hidden: list[_Span]) -> list[_Label]:
    """Return the markers that introduce a part of the message, without those that are only mentioned."""
    found: list[_Label] = []
    current = ""
    opening = len(text) - len(text.lstrip())
    for name, at, end in _words(lowered):
        # `Input:` belongs to an instruction; in a solution it is an example's.
        if name == "input" and current != "instruction":
            continue
        plural = name == "instruction" and lowered[end : end + 1] == "s"
        if at == 0 and text[end : end + 2] == ": ":
            # The common case. A marker at the start of the message cannot be inside a quotation.
            found.append((name, 0, end + 1))
            current = name
            continue
        tail = _TAIL.match(text, end + plural)
        start = _marker_start(text, name, at, tail["mark"]) if tail else None
        if tail is None or start is None or _is_mentioned(text, at, hidden):
            continue
        # Not an instruction: `Instructions:` of a recipe in mid-message, `Instruction 3:` inside a solution. Not a new
        # solution: `Solution:` inside a solution.
        if (plural and start > opening) or (current == "solution" and (tail["number"] or name == current)):
            continue
        found.append((name, start, tail.end()))
        current = name
    return found


def _words(lowered: str) -> list[tuple[str, int, int]]:
    """Return every occurrence of a marker's word. Plain string search is ten times faster than a pattern here."""
    found: list[tuple[str, int, int]] = []
    for word in ("instruction", "input", "solution") if "instruction" in lowered else ("solution",):
        at = lowered.find(word)
        while at >= 0:
            found.append((word, at, at + len(word)))
            at = lowered.find(word, at + len(word))
    found.sort(key=itemgetter(1))
    return found


def _marker_start(text: str, name: str, at: int, mark: str) -> int | None:
    """Return the start of the marker whose word is at `at`. Return None unless the marker begins a line or a sentence."""
    floor = max(0, at - 100)
    line = max(text.rfind("\n", floor, at) + 1, floor)
    before = text[line:at]
    has_colon = ":" in mark or "：" in mark
    if (line == 0 or text[line - 1] == "\n") and _LINE_LEAD.fullmatch(before):
        # Without a colon it is a marker only as a heading or in bold, alone on its line.
        return line if has_colon or "#" in before or ("**" in before and "**" in mark) else None
    if not has_colon:
        return None
    lead = _SENTENCE_LEAD.search(before, max(0, len(before) - 12))
    if lead is None and name == "input" and text[at] == "I":
        # Models that write everything on one line omit the period before `Input:`.
        lead = _WORD_LEAD.search(before, max(0, len(before) - 4))
    return line + lead.start(1) if lead else None


def mentions(text: str) -> Callable[[int], bool]:
    """Return a function that tells whether a position of `text` is inside code, a comment or a quotation."""
    hidden = _hidden(text)
    return lambda at: _is_mentioned(text, at, hidden)


def _is_mentioned(text: str, at: int, hidden: list[_Span]) -> bool:
    """Return whether `at` is inside code, a comment or a quotation."""
    if hidden and (before := bisect_right(hidden, at, key=itemgetter(0))) and at < hidden[before - 1][1]:
        return True
    if '"' not in text and "'" not in text and "`" not in text:
        return False
    floor = max(0, at - _NEAR)
    paragraph = max(text.rfind("\n\n", floor, at), floor)
    # Quotation marks open before a word and close within the paragraph, unlike inch signs and apostrophes.
    if text.count('"', paragraph, at) % 2:
        opening, closing = text.rfind('"', paragraph, at), text.find('"', at, at + _NEAR)
        if (
            (opening == 0 or not text[opening - 1].isalnum())
            and not text[opening + 1].isspace()
            and closing > 0
            and "\n\n" not in text[at:closing]
        ):
            return True
    # The other quotation marks close on the same line.
    floor = max(0, at - _NEAR // 10)
    line = max(text.rfind("\n", floor, at) + 1, floor)
    if text.count("`", line, at) % 2:
        return True
    return "'" in text[line:at] and any(
        quoted.start() < at < quoted.end() for quoted in _SINGLE_QUOTES.finditer(text, line, at + _NEAR // 10)
    )


_CLOSES = {"“": "”", "„": "“”¶", "«": "»", "»": "«¶", "「": "」", "『": "』"}  # ¶: the paragraph's end
_OPENS = re.compile(r"[“„«「『]|(?<!\w)»(?=\S)")  # a » before a space is a bullet or a path separator


def _quotations(text: str) -> list[_Span]:
    """Return spans in paired quotation marks. The opening mark decides the closing mark: the “ of „so“ opens nothing.

    A mark without its closing mark within `_NEAR` characters opens nothing. A span may cross paragraphs, unless its
    closing mark is also an opening mark of another pair.
    """
    spans: list[_Span] = []
    ahead: dict[str, int] = {}  # next position of each closing mark, so that no part is searched twice
    free = 0
    for found in _OPENS.finditer(text):
        at = found.start()
        if at < free:
            continue
        for sign in _CLOSES[found[0]]:
            if ahead.get(sign, 0) <= at:
                place = text.find("\n\n" if sign == "¶" else sign, at + 1)
                ahead[sign] = place if place >= 0 else len(text)
        end = min(ahead[sign] for sign in _CLOSES[found[0]])
        if end < len(text) and text[end] != "\n":
            spans.append((at, min(end, at + _NEAR)))
            free = end + 1
    return spans


def _hidden(text: str) -> list[_Span]:
    """Return spans of fenced code, HTML comments, block quotes and quotations, sorted and merged."""
    # Most messages have none of these, and a search for one character is ten times faster than for three.
    spans = _fences(text) if "`" in text or "~" in text else []
    if "<" in text and "<!--" in text:
        spans += [found.span() for found in _COMMENT.finditer(text)]
    if ">" in text and (text.lstrip().startswith(">") or any(lead in text for lead in _QUOTE_LEADS)):
        spans += [found.span() for found in _BLOCK_QUOTE.finditer(text)]
    if not text.isascii() and any(sign in text for sign in _CLOSES):
        spans += _quotations(text)
    return _merged(spans) if len(spans) > 1 else spans


_QUOTE_LEADS = ("\n>", "\n >", "\n  >", "\n   >")


def _merged(spans: list[_Span]) -> list[_Span]:
    spans.sort()
    merged = spans[:1]
    for start, end in spans[1:]:
        if start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _fences(text: str) -> list[_Span]:
    """Return spans of fenced code as Markdown defines it; an unclosed fence runs to the end."""
    spans: list[_Span] = []
    if "```" not in text and "~~~" not in text:
        return spans
    fence, opened, at = "", 0, 0
    for line in text.split("\n"):
        if fence:
            # The closing fence has no label, the same kind and at least the same length: a ``` inside a ```` block is code.
            if fence in line and not (bare := line.strip()).strip(fence[0]) and bare.startswith(fence):
                spans.append((opened, at + len(line)))
                fence = ""
        elif ("```" in line or "~~~" in line) and (opening := _FENCE.search(line)):
            fence, opened = opening[1], at + opening.start(1)
        at += len(line) + 1
    return [*spans, (opened, len(text))] if fence else spans


def _unwrapped(text: str) -> str:
    """Remove a fence around the whole message, which models add although it is not code."""
    bare = text.strip()
    if not bare.startswith(("```", "~~~")):
        return text
    fence = bare[:3]
    first, _, rest = bare.partition("\n")
    body, _, last = rest.rpartition("\n")
    plain = first.strip(f"{fence[0]} \t").lower() in _PLAIN_FENCES
    return body if plain and last.strip().startswith(fence) and fence not in body else text


def _done_at(text: str, hidden: list[_Span]) -> int | None:
    """Return where the task is declared done, or None."""
    if _DONE_ALONE.fullmatch(text):
        return 0
    declared = (found.start("token") for found in _DONE_SENTENCE.finditer(text))
    return next((at for at in declared if not _is_mentioned(text, at, hidden)), None)


def _content(text: str) -> str | None:
    return None if _NOTHING.fullmatch(text) else text.strip()
