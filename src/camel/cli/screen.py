"""Prints a conversation to a terminal."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text as Styled

from camel.cli.output import visible
from camel.core.action_text import call_line, failure_line, one_line
from camel.core.message import Action, Message, Usage
from camel.core.model import Acted, Acting, Event, Retrying, Text
from camel.core.planner import CASTING, PLANNER
from camel.core.task import SPECIFIER
from camel.core.transcript import Speaker, Transcript
from camel.models.prices import cost as cost_of
from camel.reports.numbers import cost, counted

_WIDE = "\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\U0001f300-\U0003fffd"
_PIECE = re.compile(rf"\n|[^\S\n]+|[{_WIDE}]|[^\s{_WIDE}]+")


class LineWrapper:
    """Wraps a streamed message between words; a terminal alone breaks lines inside words.

    `feed` takes each piece, `flush` ends the message, and both return the text to print. A word is buffered until its end is
    known. Wide characters (Chinese, emoji) are words of their own. The terminal wraps words that are longer than a line.
    """

    def __init__(self, width: int) -> None:
        self._width, self._column = width, 0
        self._space = self._buffer = ""

    def feed(self, text: str) -> str:
        """Add text, and return what can be printed now."""
        pieces = _PIECE.findall(self._buffer + text.expandtabs(4))
        self._buffer = ""
        if pieces and not pieces[-1].isspace() and cell_len(pieces[-1]) < self._width:
            self._buffer = pieces.pop()
        return "".join(map(self._place, pieces))

    def flush(self) -> str:
        """Return the buffered rest of the message."""
        rest, self._buffer = self._buffer, ""
        return self._place(rest) if rest else ""

    def _place(self, piece: str) -> str:
        if piece == "\n":
            self._column, self._space = 0, ""
            return piece
        if piece.isspace():
            self._space += piece
            return ""
        space, self._space = self._space, ""
        needed = cell_len(space) + cell_len(piece)
        if self._column and self._column + needed > self._width:
            self._column = cell_len(piece) % self._width
            return f"\n{piece}"
        self._column = (self._column + needed - 1) % self._width + 1
        return space + piece


STYLES = {"user": "bold cyan", "assistant": "bold green", SPECIFIER: "bold magenta", "critic": "bold yellow"}
FIRST_STEPS = {SPECIFIER: "Task specifier", PLANNER: "Task planner", CASTING: "Role assignment"}
_COLORS = ("cyan", "green", "yellow", "blue")
PALETTE = (*_COLORS, "red", *(f"bright_{color}" for color in _COLORS))


class Screen:
    """Prints a conversation while it is written; a role play calls `watch`."""

    def __init__(self, console: Console, roles: dict[str, str]) -> None:
        self.console = console
        self._roles = roles
        self._speaking = ""
        self._calling, self._written = "", False
        """The tool call whose line is not complete, and whether the current message has text after its last call."""
        self._wrapper: LineWrapper | None = None
        self.you = ""
        """The seat of the person at the keyboard, while their message is shown."""
        self._together = False
        self._shown: set[str] = set()
        """Speakers of the current round whose message is already on the screen because it was streamed."""

    def introduce(self, speakers: Sequence[Speaker], *, together: bool) -> None:
        """Set the names and roles of the speakers, and whether several speak at the same time."""
        self._roles = {speaker.name: speaker.role for speaker in speakers}
        self._together = together

    def style(self, speaker: str) -> str:
        """Return the color of a speaker. If there are many speakers, some share a color."""
        if speaker in STYLES or speaker not in self._roles:
            return STYLES.get(speaker, "bold magenta" if speaker in FIRST_STEPS else "bold")
        return f"bold {PALETTE[list(self._roles).index(speaker) % len(PALETTE)]}"

    def watch(self, event: Event) -> None:
        """Show one event of a reply that is being written."""
        if isinstance(event, Retrying):
            if self._together and self._speaking not in ("", event.speaker):
                return  # this speaker is not shown now, another one is
            discarded = (
                f"the partial reply of {event.speaker} is discarded; "
                if self._speaking == event.speaker
                else ""
            )
            self.end_message()
            self.note(f"{discarded}retrying in {event.wait:.1f} s: {event.error}", "yellow")
            return
        if self._speaking != event.speaker:
            if self._speaking and self._together:
                return  # two streams at once are unreadable; `show_message` shows the other message when it is complete
            if self._speaking:
                self.end_message()
            self._speaking = event.speaker
            title = self.title(event.speaker, event.speaker == self.you)
            self.console.print(Styled(f"▌ {title}", self.style(event.speaker)))
            self._end_line()
        if isinstance(event, Acting):
            self._act(event.call.id, call_line(event.call.name, event.call.arguments))
        elif isinstance(event, Acted):
            self.show_action(event.action)
        elif text := visible(event.text):
            if self._calling:
                self._end_line()
            self._written = True
            self._put(self._wrapper.feed(text) if self._wrapper else text)

    def show_action(self, action: Action) -> None:
        """Print the result of a tool call at the end of its line, or the whole line if another line has begun since."""
        took = f" ({action.seconds:.1f} s)" if action.seconds >= 0.1 else ""
        found = f"failed: {failure_line(action.error)}" if action.error else action.result or "(empty)"
        self._act(action.call, call_line(action.tool, action.arguments), f" → {one_line(found)}", took)

    def _act(self, id: str, line: str, found: str = "", took: str = "") -> None:
        half = self.console.width // 2 - 3 if self.console.is_terminal else 100
        if not found or self._calling != (id or line):
            self._end_line()
            self._calling = id or line
            self._put(f"  ▸ {one_line(line, half)}", "dim")
        if found:
            self._put(f" {one_line(found, half - len(took))}{took}", "dim")
            self._end_line()

    def _end_line(self) -> None:
        """End the line of a tool call, or the text before it."""
        if self._calling or self._written:
            self._put(f"{self._wrapper.flush() if self._wrapper else ''}\n")
        self._wrapper = LineWrapper(self.console.width) if self.console.is_terminal else None
        self._calling, self._written = "", False

    def _put(self, text: str, style: str = "") -> None:
        self.console.print(Styled(text, style), end="", soft_wrap=True)

    def end_message(self) -> None:
        """Close the current message."""
        if self._speaking:
            self._end_line()
            self._put("\n")
        self._speaking = self.you = ""

    def deliberation(self, message: Message) -> None:
        """Show how a critic chose a message, if one did."""
        if (found := message.deliberation) is None:
            return
        how = f"chosen without the critic ({found.fallback})" if found.fallback else found.reason
        revised = ", revised" if found.proposals[found.choice].revises else ""
        count = len(found.proposals)
        self.note(
            f"  ◆ critic: {found.choice + 1} of {count}{revised}{f', {how}' if how else ''}\n", "magenta"
        )

    def show_message(self, message: Message) -> None:
        """End a message that was streamed. Print one that was not, because another speaker's was streamed at that time."""
        if self._speaking:
            self._shown.add(self._speaking)
            self.end_message()
        if message.speaker in self._shown:
            self._shown.discard(message.speaker)
            return
        for action in message.actions:
            self.watch(Text(message.speaker, action.said))
            self.watch(Acted(message.speaker, action))
        self.watch(Text(message.speaker, message.content))
        self.end_message()

    def note(self, text: str, style: str = "dim") -> None:
        """Print a note that is not part of the conversation."""
        # Files and pipes get unwrapped lines.
        self.console.print(Styled(visible(text), style), soft_wrap=not self.console.is_terminal)

    def table(self, rows: Mapping[str, str]) -> None:
        """Print names and their meaning."""
        from rich.table import Table

        grid = Table.grid(padding=(0, 2, 0, 1))
        for name, meaning in rows.items():
            grid.add_row(Styled(visible(name), no_wrap=True), Styled(visible(meaning), "dim"))
        self.console.print(grid, "")

    def proposals(self, speaker: str, options: Sequence[str], *, new: bool = False) -> None:
        """Print numbered proposals, with a mark on every line so that no text can imitate a number. If `new` is true, the last
        proposal is a revision made after feedback."""
        what = f"revised it: {len(options)} is new" if new else "proposes"
        self.console.print(Styled(f"▌ {self.title(speaker)} {what}", self.style(speaker)))
        for number, option in enumerate(options, 1):
            if number > 1:
                self.console.print()
            mark = f"{number:>2} │ "
            text = Styled(visible(option.strip()))
            lines = (
                list(text.wrap(self.console, max(10, self.console.width - len(mark))))
                if self.console.is_terminal
                else text.split()
            )
            for line in lines:
                line.rstrip()
                self.console.print(Styled.assemble((mark, "bold"), line), soft_wrap=True)
                mark = "   │ "
        self.console.print()

    def prompts(self, transcript: Transcript) -> None:
        """Print the system prompts."""
        for speaker in transcript.speakers:
            self.note(f"── system prompt of {speaker.role} ({speaker.name})", self.style(speaker.name))
            self.note(f"{speaker.system}\n")

    def summary(self, transcript: Transcript, seconds: float | None = None) -> None:
        """Print why the conversation ended, and the number of calls, tokens and dollars."""
        usage, stop = transcript.usage, transcript.stop
        why = stop.detail if stop else "not finished"
        self.note(f"■ {why[:1].upper()}{why[1:]}.", "bold")
        cached = f", {usage.cached:,} of them cached" if usage.cached else ""
        least = "at least " if usage.unknown else ""
        took = "" if seconds is None else f"{seconds:.1f} s, "
        self.note(
            f"  {counted(len(transcript.messages), 'message')}, {counted(usage.calls, 'call')}, "
            f"{least}{usage.prompt:,} prompt tokens{cached}, {usage.completion:,} completion tokens, "
            f"{took}{price(transcript)}"
        )

    def title(self, speaker: str, you: bool = False) -> str:
        """Return the heading of a speaker's messages."""
        if speaker in FIRST_STEPS:
            return FIRST_STEPS[speaker]
        if speaker not in self._roles:
            return visible(f"{speaker.capitalize()} (you)" if you else speaker)
        role, seat = self._roles[speaker], f"{speaker}, you" if you else speaker
        return visible(role if role == seat else f"{role} ({seat})")


def price(transcript: Transcript) -> str:
    """Return the cost of a conversation, as text."""
    # Messages of people need no call.
    calls = [(message.model, message.usage) for message in transcript.messages if message.usage.calls]
    others = (transcript.task, transcript.result_call)
    calls += [(one.model, one.usage) for one in others if one.usage.calls]
    total, prices = 0.0, 0.0
    if not calls:
        return "no cost"
    for model, usage in calls:
        paid = cost_of(model, usage)
        if paid is None:
            return f"cost unknown (no price for {visible(model) or 'the model'})"
        total += paid
        prices += cost_of(model, Usage(1, 1)) or 0.0
    if prices == 0:
        return "free"
    return f"at least {cost(total)}" if transcript.usage.unknown else cost(total)
