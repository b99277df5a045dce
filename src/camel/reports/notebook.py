"""A transcript as a notebook shows it: a little HTML that stands on its own.

The one decision to know: every text is escaped and shown as it was written. A notebook runs what it is given, so there is
no Markdown, no link, no style sheet and no script here; colours are faint and let the notebook's own theme through.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from camel.core.transcript import Transcript

MOST_MESSAGES = 200
MOST_CHARS = 4_000
"""Of one message. A notebook's file holds what it shows, and a long one does not open any more."""
_HUES = ("#2a8fd0", "#d2691e", "#1f9e77", "#b5578f", "#a87b10", "#7a66d0")
_SOFT = "opacity:.65;font-size:.9em"


def transcript_html(transcript: Transcript) -> str:
    """A conversation: who, what about, every message, how it ended."""
    roles = dict.fromkeys([s.role for s in transcript.speakers] + [m.role for m in transcript.messages])
    hues = {role: _HUES[number % len(_HUES)] for number, role in enumerate(roles)}
    title = " and ".join(f'<b style="color:{hues[role]}">{_text(role)}</b>' for role in list(roles)[:12])
    labels = "".join(
        f' <span style="border:1px solid #c2410c;color:#c2410c;border-radius:9px;padding:0 7px">{_text(label)}</span>'
        for label in transcript.labels
    )
    usage = transcript.usage
    stop = transcript.stop
    end = f"{_text(stop.reason)}: {_text(stop.detail)}" if stop else "It has no end yet"
    said = [
        f'<div style="border-left:3px solid {hues[message.role]};padding:2px 0 2px 12px;margin:10px 0">'
        f'<div><b style="color:{hues[message.role]}">{_text(message.role)}</b> '
        f'<span style="{_SOFT}">{_text(message.speaker)} · {message.index + 1}</span></div>'
        f'<div style="white-space:pre-wrap;overflow-wrap:anywhere">{_text(message.content)}</div></div>'
        for message in transcript.messages[:MOST_MESSAGES]
    ]
    if (left := len(transcript.messages) - MOST_MESSAGES) > 0:
        said.append(f'<div style="{_SOFT}">… and {left:,} more messages</div>')
    return _box(
        f"<div>{title or _text(transcript.id)}{labels}</div>",
        f'<div style="white-space:pre-wrap;overflow-wrap:anywhere;margin:4px 0">{_text(transcript.task.text)}</div>',
        f'<div style="{_SOFT}">{len(transcript.messages):,} messages · {usage.total:,} tokens · {_text(transcript.id)}</div>',
        '<div style="max-height:32em;overflow:auto">',
        *said,
        "</div>",
        f'<div style="{_SOFT}">{end}</div>',
    )


def facts_html(title: str, facts: Iterable[tuple[str, str]], hint: str = "") -> str:
    """Something with figures, such as a run: its name, and what there is to say about it."""
    rows = "".join(
        f'<tr><td style="text-align:left;{_SOFT}">{_text(name)}</td><td style="text-align:left">{_text(value)}</td></tr>'
        for name, value in facts
    )
    shown = f'<div style="{_SOFT}">{_text(hint)}</div>' if hint else ""
    return _box(f"<div><b>{_text(title)}</b></div>", f"<table>{rows}</table>", shown)


def _box(*parts: str) -> str:
    style = "border:1px solid rgba(128,128,128,.35);border-radius:8px;padding:10px 14px;max-width:60em"
    return f'<div style="{style}">{"".join(parts)}</div>'


def _text(text: str) -> str:
    """Escaped, and not too long."""
    more = len(text) - MOST_CHARS
    shown = escape(text[:MOST_CHARS].encode("utf-8", "replace").decode())
    # A dollar sign would begin a formula in some notebooks.
    shown = shown.replace("$", "&#36;")
    return f"{shown}… ({more:,} more characters)" if more > 0 else shown
