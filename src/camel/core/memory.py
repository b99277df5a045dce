"""What a speaker remembers of a long conversation: all of it, a window, or a window and a summary of the rest.

The one decision to know: a speaker forgets rarely and a lot at once. Whole turns (what it heard, and its reply) are
dropped, oldest first, until half of their space is free. System prompt and first turns stay. So a prompt only grows for
many calls in a row and an endpoint's prefix cache stays warm; dropping one turn per call would change it every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import ceil
from typing import Literal, NamedTuple

from msgspec.structs import replace

from camel.core.errors import BadReply, InputError
from camel.core.history import PER_ENTRY_TOKENS, Entry, History, estimate_tokens
from camel.core.inception import fill, texts
from camel.core.message import Usage, well_formed
from camel.core.model import Model, Request

HistoryPolicy = Literal["full", "window", "summarize"]
"""`full`: the conversation ends when a prompt no longer fits. `window`: the speaker forgets its older turns.
`summarize`: the same, and its model summarizes them first."""
_SUMMARY_TOKENS, _REPLY_TOKENS = 512, 4_096
"""Maximum tokens of a summary, and of a reply for a speaker without a limit, because its model may reason first."""
_HEADS = {"user": "You heard:", "assistant": "You said:", "tool": "A tool returned:"}
# Part of the record's format: the prompt that was sent is rebuilt from the summary with this text.
_NOTE = "(Earlier messages are left out here. Your summary of them:)"


class Forgotten(NamedTuple):
    """Turns that a speaker dropped, and what its next message records about them."""

    turns: int = 0
    pending: tuple[Entry, ...] = ()
    """Entries that still have to be summarized."""
    room: int = 0
    summary: str = ""
    usage: Usage = Usage()


def remembered(entries: Sequence[Entry], opening: str, turns: int, summary: str = "") -> list[Entry]:
    """Return a chat that keeps the first turn, drops the next `turns` turns, and has the summary in their place."""
    if not turns and not summary:
        return list(entries)
    ends = _ends(entries, opening)
    if turns >= len(ends):
        raise InputError(f"cannot drop {turns} turns: the chat has {len(ends)}")
    rest = list(entries[ends[turns] :])
    if summary:
        heard = [rest.pop(0).content] if rest and rest[0].role == "user" else []
        rest.insert(0, Entry("user", "\n\n".join([f"{_NOTE}\n{_quoted(summary)}", *heard])))
    return [*entries[: ends[0]], *rest]


def forget(
    history: History, opening: str, room: int, before: Forgotten, *, summarizes: bool
) -> tuple[History, Forgotten] | None:
    """Shorten a history to fit into `room` tokens. Return it and what was dropped, or None if all turns must stay."""
    entries, ends = history.entries, _ends(history.entries, opening)
    if len(ends) < 2:
        return None
    sizes = list(accumulate(map(_size, entries), initial=0))
    note = min(_SUMMARY_TOKENS, room // 8) if summarizes else 0
    free = (room - note) / _scale(history) - sizes[ends[0]] - (sizes[-1] - sizes[ends[-1]])
    kept = (turns for turns, end in enumerate(ends) if turns and sizes[ends[-1]] - sizes[end] <= free / 2)
    turns = next(kept, len(ends) - 1)
    shorter = _rebuilt(history, remembered(entries, opening, turns))
    said = (*before.pending, *entries[ends[0] : ends[turns]])
    pending = said if summarizes and shorter.tokens + note <= room else ()
    return shorter, before._replace(turns=before.turns + turns, pending=pending, room=room)


async def summarize(
    model: Model, request: Request, opening: str, forgotten: Forgotten
) -> tuple[History, Forgotten]:
    """Ask a speaker's model to summarize the dropped turns. Return the history with the summary, and what to record."""
    room, most = forgotten.room, request.sampling.max_tokens
    if most is None:
        most = min(_REPLY_TOKENS, room // 4)
        room -= most
    longest = min(_SUMMARY_TOKENS, forgotten.room // 8, most // 2)
    template = fill(texts()["summary"], {"WORDS": str(longest // 2)})
    said = [f"{_HEADS[one.role]}\n{_quoted(one.text)}" for one in forgotten.pending]
    room_bytes = 3 * int(room / max(1.0, _scale(request.history)) - _size(Entry("user", template)))
    if sum(len(text.encode()) + 2 for text in said) > room_bytes:
        # An earlier summary is at the beginning of what was heard, and stays.
        said = [_cut(text, room_bytes // len(said) - 2) for text in said]
    asked = History()
    asked.add("user", fill(template, {"TURNS": "\n\n".join(said)}))
    sampling = replace(request.sampling, max_tokens=most, n=1, stop=(), logprobs=None)
    own = {"speaker": f"{request.speaker} summary", "expects": None, "watch": None}
    text = ""
    try:
        reply = await model.reply(replace(request, history=asked, sampling=sampling, **own))
        usage, choice = reply.usage, reply.choices[0]
        if choice.finish not in ("refusal", "content_filter"):
            text = _cut(well_formed(choice.content).strip(), 3 * longest)
    except BadReply as error:  # no usable reply: the turns are dropped without a summary
        usage = error.usage or Usage()
    history = _rebuilt(request.history, remembered(request.history.entries, opening, 0, text))
    if history.tokens > forgotten.room:
        history, text = request.history, ""
    return history, forgotten._replace(pending=(), summary=text, usage=usage)


def _ends(entries: Sequence[Entry], opening: str) -> list[int]:
    """Return the indexes at which turns end. The reply to the opening and the next reply count as one turn."""
    ends = [
        place for place, entry in enumerate(entries, 1) if entry.role == "assistant" and not entry.partial
    ]
    heard = (entry.content for entry in entries if entry.role == "user")
    first = next(heard, "") if ends and ends[0] > 1 else ""
    return ends[1:] if opening and well_formed(first) == well_formed(opening) else ends


def _rebuilt(history: History, entries: Sequence[Entry]) -> History:
    """Return a history of `entries`. Its estimated length is corrected by the ratio of count to estimate in `history`."""
    other = History()
    for entry in entries:
        other.append(entry)
    other.measured(ceil(other.tokens * _scale(history)))
    return other


def _scale(history: History) -> float:
    """Return the ratio of a history's counted length to its estimate."""
    return history.tokens / max(1, sum(map(_size, history.entries)))


def _size(entry: Entry) -> int:
    return estimate_tokens(entry.text) + PER_ENTRY_TOKENS


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())


def _cut(text: str, most_bytes: int) -> str:
    return text.encode()[: max(0, most_bytes)].decode(errors="ignore")
