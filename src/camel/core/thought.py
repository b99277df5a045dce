"""Separates a model's reasoning ("thought") from its reply ("speech") if both are in one text; the only place that does.

A thought is the text between `<think>` and `</think>` (or `<thinking>`, or `<thought>`), anywhere outside quoted code. It is
also the text before an unopened `</think>`, because some chat templates write the `<think>` themselves. Ambiguous text
counts as thought: a thought in the conversation corrupts it, while speech taken for thought is still in the record.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_TAG = re.compile(r"<(/?)(?:think(?:ing)?|thought)>", re.IGNORECASE)
_TOKEN = re.compile(r"(?P<tag></?(?:think(?:ing)?|thought)>)|(?P<ticks>`+)|(?P<tildes>~{3,})", re.IGNORECASE)
_TICKS = re.compile(r"`+")
_LONGEST_TAG = len("</thinking>")
_LONGEST_QUOTE = 2_000
"""Longest inline code, in characters, that is recognized."""


class Parts(NamedTuple):
    """A model's text, split into thought (reasoning in tags) and speech."""

    thought: str
    speech: str


def separate(text: str) -> Parts:
    """Split a model's text into thought and speech. A text without a tag is speech, unchanged."""
    if _TAG.search(text) is None or not (thoughts := _Thoughts(text).spans):
        return Parts("", text)
    thought: list[str] = []
    speech: list[str] = []
    place = 0
    for start, end in thoughts:
        speech.append(text[place:start])
        thought.append(_TAG.sub("", text[start:end]).strip())
        place = end
    speech.append(text[place:])
    return Parts("\n\n".join(filter(None, thought)), "".join(speech).strip())


class _Thoughts:
    """The positions of thoughts in a text, tags included, found in linear time."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._ends = _match_tags(text)
        self._no_fence: set[str] = set()
        """Fence lengths that are known to have no closing fence ahead."""
        self.spans: list[tuple[int, int]] = []
        place = 0
        while token := _TOKEN.search(text, place):
            if token["tag"] is None:
                place = self._end_of_code(token)
            elif token["tag"][1] == "/":  # unopened: everything before it is thought
                self.spans, place = [(0, token.end())], token.end()
            else:
                end = self._ends.get(token.start())
                if end is None and self._begins_line(token.start()):
                    end = len(text)
                if end is not None:
                    self.spans.append((token.start(), end))
                place = token.end() if end is None else end  # an opening tag inside a sentence is only a word

    def _begins_line(self, at: int) -> bool:
        """Return whether only blanks come before a position on its line."""
        spoken = self.spans[-1][1] if self.spans else 0
        return not self._text[max(spoken, self._text.rfind("\n", 0, at) + 1) : at].strip()

    def _end_of_code(self, mark: re.Match[str]) -> int:
        """Return the end of the code that starts at a mark. If no code starts there, return the end of the mark."""
        text, run = self._text, mark[0]
        if len(run) >= 3 and self._begins_line(mark.start()) and run not in self._no_fence:
            close = re.compile(rf"^ {{0,3}}{run[0]}{{{len(run)},}}[ \t]*$", re.MULTILINE).search(
                text, mark.end()
            )
            if close:
                return close.end()
            self._no_fence.add(run)
        if run[0] == "`":
            line = text.find("\n", mark.end(), mark.end() + _LONGEST_QUOTE)
            end = mark.end() + _LONGEST_QUOTE if line < 0 else line
            for other in _TICKS.finditer(text, mark.end(), end):
                if len(other[0]) == len(run):
                    return other.end()
        return mark.end()


def _match_tags(text: str) -> dict[int, int]:
    """Return the end of the thought for each opening tag that has a closing tag.

    Code is ignored here: a fence left open inside a thought must not hide the end of the thought.
    """
    ends: dict[int, int] = {}
    opened: list[int] = []
    last = 0
    for tag in _TAG.finditer(text):
        if not tag[1]:
            opened.append(tag.start())
            continue
        last = tag.end()
        if opened:
            ends[opened.pop()] = last
    # More opening than closing tags: the thought mentions tags. It ends at the last closing tag.
    return ends | {start: last for start in opened if start < last}


class SpeechFilter:
    """Returns the speech of a streamed text piece by piece, for display.

    The record uses `separate` on the complete text, because an unopened `</think>` may still arrive.
    """

    def __init__(self) -> None:
        self._held = ""
        self._thinking = False
        self._at_line_start = True

    def feed(self, piece: str) -> str:
        """Add a piece and return the text that can be shown now."""
        self._held += piece
        shown: list[str] = []
        while tag := _TAG.search(self._held):
            before, self._held = self._held[: tag.start()], self._held[tag.end() :]
            if self._thinking:
                self._thinking = not tag[1]
                continue
            shown.append(self._passed(before))
            if tag[1] or not self._at_line_start:
                shown.append(self._passed(tag[0]))
            else:
                self._thinking = True
        if self._thinking:
            self._held = self._held[-_LONGEST_TAG:]
            return "".join(shown)
        # A tag may be split between pieces: hold its beginning back.
        cut = self._held.rfind("<", max(0, len(self._held) - _LONGEST_TAG))
        whole = self._held if cut < 0 else self._held[:cut]
        self._held = "" if cut < 0 else self._held[cut:]
        shown.append(self._passed(whole))
        return "".join(shown)

    def rest(self) -> str:
        """Return the text that was held back. Call it at the end of the stream."""
        rest, self._held = ("" if self._thinking else self._held), ""
        return rest

    def _passed(self, text: str) -> str:
        if text:
            line = text.rpartition("\n")[2]
            self._at_line_start = not line.strip() and ("\n" in text or self._at_line_start)
        return text
