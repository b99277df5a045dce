"""The instruction grammar of the paper, and its one parser.

    user       Instruction: <what to do>            assistant   Solution: <what was done>
               Input: <context, or None>                        Next request.
               <CAMEL_TASK_DONE>  (when satisfied)

The one decision to know: a marker counts only where a speaker *uses* it. It must open a line or a sentence;
inside code, a block quote, an HTML comment or quotation marks it is text that somebody mentions. Within that,
the parser takes what models really write: any case, Markdown headings and bold, numbers, full-width colons,
prose before and after. It never fails, and its time grows in step with the text, whatever the text: every
pattern below starts at a character that ends the one before, or is bounded, or possessive.
"""

from __future__ import annotations

import re
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

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


_END = r".!?…。！？☀-➿\U0001f300-\U0001faff"  # what ends a sentence; chatty models end them with a picture
_TAIL = re.compile(
    r"(?P<number>[ \t]?\#?\d{1,3})?(?P<mark>[*_]{0,3}[ \t]?[:：][*_]{0,3}|[*_]{0,3}[ \t]*+(?=\n|\Z))"
)
_LINE_LEAD = re.compile(r"[ \t]*(?:[-+•*][ \t]+|\d{1,3}[.)][ \t]+)?(?:\#{1,6}[ \t]*)?[*_]{0,3}")
_SENTENCE_LEAD = re.compile(rf"(?:[{_END}:][\"'”’)\]*_]{{0,3}}[ \t]+|[。！？：])([*_]{{0,3}})\Z")
_WORD_LEAD = re.compile(r"[ \t]([*_]{0,3})\Z")
_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_NOTHING = re.compile(
    r"[\W_]*+(?:none|n/?a|nil|null|nothing|not? (?:applicable|needed|required)|"
    r"no(?:ne)? (?:(?:further|more|additional|specific) )?(?:instructions?|inputs?)?(?: ?(?:is |are )?(?:needed|required|provided))?|"
    r"your_(?:instruction|input|solution))?[\W_]*+",
    re.IGNORECASE,
)
_NEXT_REQUEST = re.compile(r"(?:^|(?<=[\s.!?*_]))[*_]{0,3}next request[\s.!?…*_]{0,8}\Z", re.IGNORECASE)
# With Markdown's escapes; in ASCII only, so that no look-alike letter (ſ, K) passes for one of the token's.
_TOKEN = r"(?a:</?CAMEL\\?_TASK\\?_DONE/?>|CAMEL\\?_TASK\\?_DONE)"  # noqa: S105
# The whole message is the token, however it is dressed up.
_DONE_ALONE = re.compile(rf"[\s*_`\"'“”#()\[\]]*+{_TOKEN}[^\w<>]*", re.IGNORECASE)
# Or the token is a sentence of its own: at the end of a line of prose, or with a full stop.
_DONE_SENTENCE = re.compile(
    rf"(?:^|(?<=[{_END}\ufe0f])[*_]{{0,2}})[ \t]*+[*_]{{0,3}}{_TOKEN}(?:[^\w\n\"'“”`<>?]{{0,8}}$|[.!](?=[ \t]))",
    re.IGNORECASE | re.MULTILINE,
)
_FENCE = re.compile(
    r"(?:^[ \t]*(?:[-+•*][ \t]+|\d{1,3}[.)][ \t]+)?|[:：][*_]{0,3}[ \t]*)(`{3,}(?=[^`]*$)|~{3,})"
)
_PLAIN_FENCES = ("", "text", "txt", "plaintext", "markdown", "md")
_BLOCK_QUOTE = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
# Quotation marks open before a word and close within the paragraph: inches and apostrophes do neither.
_QUOTED = re.compile(
    r'"(?<!\w")(?=\S)[^"\n]*+(?:\n(?![ \t]*\n)[^"\n]*+)*+"'
    r"|'(?<!\w')(?=[^\s\d])(?:[^'\n]|(?<=\w)'(?=\w))*+'(?!\w)"
    r"|[“„«「『][^“”„«»「」『』]*+[”“»」』]"
    r"|`[^`\n]+`"
    r"|<!--(?:[^-]|-(?!->))*+(?:-->|\Z)"
)
_QUOTING = re.compile(r"[\"'“„«「『`>]|~~~|<!--")


class _Label(NamedTuple):
    name: str
    start: int
    """Where the marker begins, with its decoration."""
    end: int
    """Where what it introduces begins."""


def parse(text: str) -> Move:
    """Read `text` as a move of the instruction grammar."""
    text = _unwrapped(text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text)
    lowered = text.lower()
    if len(lowered) != len(text):  # some capitals lower to two characters, which would shift every position
        lowered = text.translate(_ASCII_LOWER)
    shown = _without_mentions(text) if _QUOTING.search(text) else text
    may_be_done = "_done" in lowered
    done = _done_at(text, shown) if may_be_done else None
    end = len(text.rstrip())
    closing = _NEXT_REQUEST.search(text, max(0, end - 40), end)
    instruction = input_ = solution = None
    labels = _labels(text, lowered, shown)
    if labels:
        end = min(closing.start() if closing else end, end if done is None or done < labels[-1].end else done)
        paired = False
        for label, following in pairwise([*labels, _Label("", end, end)]):
            content = _content(text[label.end : max(label.end, following.start)])
            if label.name == "instruction":
                # One instruction at a time: the first that says something, and the input that goes with it.
                paired = instruction is None
                instruction = instruction or content
            elif label.name == "input":
                input_ = content if paired and instruction else input_
            else:
                solution = solution or content
    if may_be_done and instruction and _DONE_ALONE.fullmatch(instruction):
        instruction, input_, done = None, None, 0
    # Whoever still asks for something is not done, whatever else the message says.
    return Move(instruction, input_, solution, closing is not None, done is not None and instruction is None)


def _labels(text: str, lowered: str, shown: str) -> list[_Label]:
    """Find the markers in use."""
    found: list[_Label] = []
    current = ""
    for name, at, end in _words(lowered):
        # `Input:` belongs to an instruction; in a solution it is an example's.
        if shown[at] == _HIDDEN or (name == "input" and current != "instruction"):
            continue
        plural = name == "instruction" and lowered[end : end + 1] == "s"
        tail = _TAIL.match(text, end + plural)
        start = _marker_start(text, name, at, tail["mark"]) if tail else None
        if tail is None or start is None:
            continue
        # A recipe's `Instructions:` or a step's `Instruction 3:` commands nobody, unless the message opens with it;
        # and a solution's `Solution:` opens no second one.
        if (plural and text[:start].strip()) or (
            current == "solution" and (tail["number"] or name == current)
        ):
            continue
        found.append(_Label(name, start, tail.end()))
        current = name
    return found


def _words(lowered: str) -> list[tuple[str, int, int]]:
    """Every occurrence of a marker's bare word. Plain string search: a pattern tried at each character costs ten times this."""
    found: list[tuple[str, int, int]] = []
    for word in ("instruction", "input", "solution"):
        at = lowered.find(word)
        while at >= 0:
            found.append((word, at, at + len(word)))
            at = lowered.find(word, at + len(word))
    found.sort(key=itemgetter(1))
    return found


def _marker_start(text: str, name: str, at: int, mark: str) -> int | None:
    """Where the marker whose word is at `at` begins if it opens a line or a sentence, else None."""
    # Bounded, so that a line of a megabyte with ten thousand such words is not copied for each of them.
    floor = max(0, at - 200)
    line = max(text.rfind("\n", floor, at) + 1, floor)
    before = text[line:at]
    has_colon = ":" in mark or "：" in mark
    if _LINE_LEAD.fullmatch(before) and (line != floor or not floor):
        # Without a colon it is a marker only as a heading or in bold, alone on its line.
        return line if has_colon or "#" in before or ("**" in before and "**" in mark) else None
    if not has_colon:
        return None
    lead = _SENTENCE_LEAD.search(before, max(0, len(before) - 12))
    if lead is None and name == "input" and text[at] == "I":
        # Models that write everything on one line leave out the full stop before `Input:`.
        lead = _WORD_LEAD.search(before, max(0, len(before) - 4))
    return line + lead.start(1) if lead else None


_HIDDEN = "\0"


def _without_mentions(text: str) -> str:
    """The text, at the same length, with everything hidden that is shown rather than said: code, quotations, comments."""
    if "```" in text or "~~~" in text:
        text = _without_fences(text)
    if ">" in text:
        text = _BLOCK_QUOTE.sub(_hide, text)
    return _QUOTED.sub(_hide, text)


def _without_fences(text: str) -> str:
    """Hide fenced code, as Markdown reads it; a fence that is never closed runs to the end."""
    lines = text.split("\n")
    fence = ""
    for i, line in enumerate(lines):
        if fence:
            bare = line.strip()
            if bare.startswith(fence) and not bare.strip(fence[0]):
                fence = ""
            lines[i] = _HIDDEN * len(line)
        elif ("```" in line or "~~~" in line) and (opening := _FENCE.search(line)):
            fence = opening[1]
            lines[i] = line[: opening.start(1)] + _HIDDEN * (len(line) - opening.start(1))
    return "\n".join(lines)


def _hide(found: re.Match[str]) -> str:
    return _HIDDEN * len(found[0])


def _unwrapped(text: str) -> str:
    """Take off a fence around the whole message: a wrapping that models add, not code."""
    bare = text.strip()
    if not bare.startswith(("```", "~~~")):
        return text
    fence = bare[:3]
    first, _, rest = bare.partition("\n")
    body, _, last = rest.rpartition("\n")
    plain = first.strip(f"{fence[0]} \t").lower() in _PLAIN_FENCES
    return body if plain and last.strip().startswith(fence) and fence not in body else text


def _done_at(text: str, shown: str) -> int | None:
    """Where the task is declared done, if it is."""
    if _DONE_ALONE.fullmatch(text):
        return 0
    declared = _DONE_SENTENCE.search(shown)
    return declared.start() if declared else None


def _content(text: str) -> str | None:
    return None if _NOTHING.fullmatch(text) else text.strip()
