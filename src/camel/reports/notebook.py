"""Renders a transcript as HTML for a notebook, without a style sheet or a script.

The one decision to know: every text is escaped and shown unformatted. A notebook executes the HTML that it displays, so there
is no Markdown and no link. Seats have their colors, in shades that are readable on light and dark backgrounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

from camel.core.action_text import action_texts, call_line, failure_line

if TYPE_CHECKING:
    from camel.core.message import Action
    from camel.core.transcript import Transcript

MOST_MESSAGES = 200
MOST_CHARS = 4_000
"""Maximum length of a message. A notebook's file stores its output, and a very long file cannot be opened."""
MOST_ACTIONS = 64
_SEATS = ("user", "assistant", "critic")
_HUES = ("#3a7fd5", "#c8681f", "#8b6fd8", "#1a8f8a", "#a3830a", "#c25a50", "#3b8fb8", "#a8629a")
_SOFT = "opacity:.65;font-size:.9em"


def transcript_html(transcript: Transcript) -> str:
    """Render a conversation: roles, task, messages and ending."""
    roles = {one.name: one.role for one in transcript.speakers}
    roles |= {one.speaker: one.role for one in transcript.messages}
    seats = [*(seat for seat in _SEATS if seat in roles), *(seat for seat in roles if seat not in _SEATS)]
    free = iter(_HUES[3 if any(seat in _SEATS for seat in seats) else 0 :])
    hues = {seat: _HUES[_SEATS.index(seat)] if seat in _SEATS else next(free, "#808388") for seat in seats}
    link = " instructs " if seats == ["user", "assistant"] else ", "
    title = link.join(f'<b style="color:{hues[seat]}">{_text(roles[seat])}</b>' for seat in seats[:12])
    labels = "".join(
        f' <span style="border:1px solid #c2410c;color:#c2410c;border-radius:9px;padding:0 7px">{_text(label)}</span>'
        for label in transcript.labels
    )
    usage = transcript.usage
    stop = transcript.stop
    end = f"{_text(stop.reason)}: {_text(stop.detail)}" if stop else "unfinished"
    said = [
        f'<div style="border-left:2px solid {hues[message.speaker]};padding:2px 0 2px 12px;margin:10px 0">'
        f'<div><b style="color:{hues[message.speaker]}">{_text(message.role)}</b> '
        f'<span style="{_SOFT}">{_text(message.speaker)} · {message.index + 1}</span></div>'
        f"{''.join(map(_action, message.actions[:MOST_ACTIONS]))}"
        f'<div style="white-space:pre-wrap;overflow-wrap:anywhere">{_text(message.content)}</div></div>'
        for message in transcript.messages[:MOST_MESSAGES]
    ]
    if (left := len(transcript.messages) - MOST_MESSAGES) > 0:
        said.append(f'<div style="{_SOFT}">… and {left:,} more messages</div>')
    if transcript.unspoken:
        said.append(f'<div style="{_SOFT}">Calls before a message that was never said</div>')
        said += map(_action, transcript.unspoken[:MOST_ACTIONS])
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
    """A titled table of facts, such as those of a run."""
    rows = "".join(
        f'<tr><td style="text-align:left;{_SOFT}">{_text(name)}</td><td style="text-align:left">{_text(value)}</td></tr>'
        for name, value in facts
    )
    shown = f'<div style="{_SOFT}">{_text(hint)}</div>' if hint else ""
    return _box(f"<div><b>{_text(title)}</b></div>", f"<table>{rows}</table>", shown)


def _action(action: Action) -> str:
    """Render a tool call, folded."""
    rows = "".join(
        f'<div style="{_SOFT}">{name}</div><pre style="white-space:pre-wrap;margin:0 0 6px">{_text(text)}</pre>'
        for name, text in action_texts(action)
    )
    line = f"{'Failed' if action.error else 'Called'} <code>{_text(call_line(action.tool, action.arguments))}</code>"
    line += f" {_text(failure_line(action.error))}" if action.error else ""
    took = f' <span style="{_SOFT}">{action.seconds:.1f} s</span>' if action.seconds >= 0.1 else ""
    return f'<details style="margin:4px 0"><summary>{line}{took}</summary><div style="padding-left:16px">{rows}</div></details>'


def _box(*parts: str) -> str:
    style = "border:1px solid rgba(128,128,128,.35);border-radius:4px;padding:10px 14px;max-width:60em"
    return f'<div style="{style}">{"".join(parts)}</div>'


def _text(text: str) -> str:
    """Escape a text and limit its length."""
    more = len(text) - MOST_CHARS
    shown = escape(text[:MOST_CHARS].encode("utf-8", "replace").decode())
    # In some notebooks, a dollar sign would start a formula.
    shown = shown.replace("$", "&#36;")
    return f"{shown}… ({more:,} more characters)" if more > 0 else shown
