"""Ablation: one sentence of the system prompts is removed at a time, to see what each sentence prevents."""

from __future__ import annotations

import re
from collections.abc import Sequence

from camel.core.branches import Change, template_of
from camel.core.checks import similar
from camel.core.errors import InputError
from camel.core.transcript import Transcript

# A period with closing quotes before the start of a sentence, but not that of "1." at the start of a line. Or the end of a
# line without a period, before a line that begins with a capital or as a list item.
_END = re.compile(
    r"(?<=[.!?])[\"'”’)]*(?=\s+[^\sa-z])|\n\s*\n|\n(?=\d+\. )|(?P<line>(?<=[\w\"'”’)>])\n(?=[ \t]*(?:[-*•] |[A-Z])))"
)
_NUMBER = re.compile(r"(?:^|\n)\s*\d+\.$")


def sentences(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each sentence of a prompt. A line that ends with a colon belongs to the next text."""
    cuts = [0]
    for end in _END.finditer(text):
        before = text[cuts[-1] : end.end()].rstrip()
        if _NUMBER.search(before):
            continue
        # A blank line ends a sentence, unless it ends with a colon; a numbered line starts a new one.
        if end[0].startswith("\n") and before.endswith(":") and not text[end.end() :].lstrip()[:1].isdigit():
            continue
        if end["line"] and ":" in before.rpartition("\n")[2]:  # "Instruction: …", then "Input: …": a template
            continue
        cuts.append(end.end())
    found: list[tuple[int, int]] = []
    for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True):
        if piece := text[start:end].strip():
            begin = text.index(piece, start)
            found.append((begin, begin + len(piece)))
    return found


def removals(record: Transcript, names: Sequence[str] = ()) -> dict[str, Change]:
    """Return the removal of each sentence of a record's prompts, or of those in `names`. `user-03` removes the third sentence
    of the user's prompt. Values of the record, such as its task, are placeholders, so that other records have the sentence, too.
    """
    made: dict[str, Change] = {}
    for speaker in record.speakers:
        text = template_of(speaker.system, record)
        spans = sentences(text)
        for number, (start, end) in enumerate(spans if len(spans) > 1 else (), 1):
            made[f"{speaker.name}-{number:02d}"] = Change(seat=speaker.name, without=text[start:end])
    if not made:
        raise InputError(f"{record.id} has no system prompt of several sentences")
    for name in names:
        if name not in made:
            raise InputError(f"there is no sentence {name!r}{similar(name, made)}: --list shows the names")
    return {name: one for name, one in made.items() if not names or name in names}
