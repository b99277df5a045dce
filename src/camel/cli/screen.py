"""How a conversation looks in a terminal.

The one decision to know: model text is untrusted, so control characters (which can move the cursor, set the title or
fake a prompt) are made visible before anything is printed, and it is never read as markup.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text as Styled

from camel.cli.wrapping import Wrapping
from camel.core.message import Message, Usage
from camel.core.model import Event, Retrying
from camel.core.planner import CASTING, PLANNER
from camel.core.task import SPECIFIER
from camel.core.transcript import Speaker, Transcript
from camel.models.prices import cost as cost_of
from camel.reports.numbers import cost, counted

STYLES = {"user": "bold cyan", "assistant": "bold green", SPECIFIER: "bold magenta", "critic": "bold yellow"}
FIRST_STEPS = {SPECIFIER: "Task specifier", PLANNER: "Task planner", CASTING: "Role assignment"}
PALETTE = (
    "cyan",
    "green",
    "yellow",
    "blue",
    "red",
    "bright_cyan",
    "bright_green",
    "bright_yellow",
    "bright_blue",
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Replace what would act on the terminal instead of being shown."""
    return _CONTROL.sub("\N{SYMBOL FOR SUBSTITUTE}", text)


class Screen:
    """Prints a conversation as it happens; its `watch` is what a role play calls."""

    def __init__(self, console: Console, roles: dict[str, str]) -> None:
        self.console = console
        self._roles = roles
        self._speaking = ""
        self._wrapping: Wrapping | None = None
        self.you = ""
        """The seat of the person at the keyboard, while what they said is shown."""
        self._together = False
        self._shown: set[str] = set()
        """Those of the current round who were seen speaking."""

    def introduce(self, speakers: Sequence[Speaker], *, together: bool) -> None:
        """Learn who takes part, where that is not known from the start, and whether several speak at the same time."""
        self._roles = {speaker.name: speaker.role for speaker in speakers}
        self._together = together

    def style(self, speaker: str) -> str:
        """A colour of the speaker's own; of many, some share one."""
        if speaker in STYLES or speaker not in self._roles:
            return STYLES.get(speaker, "bold magenta" if speaker in FIRST_STEPS else "bold")
        return f"bold {PALETTE[list(self._roles).index(speaker) % len(PALETTE)]}"

    def watch(self, event: Event) -> None:
        """Show one event of a reply in the making."""
        if isinstance(event, Retrying):
            if self._together and self._speaking not in ("", event.speaker):
                return  # not seen, and in the way of who is
            broke_off = f"{event.speaker}'s reply is void; " if self._speaking == event.speaker else ""
            self.end_message()
            self.note(f"{broke_off}trying again in {event.wait:.1f} s: {event.error}", "yellow")
            return
        if self._speaking != event.speaker:
            if self._speaking and self._together:
                return  # two at the same time cannot be read; `said` shows the other's words when they are whole
            if self._speaking:
                self.end_message()
            self._speaking = event.speaker
            self._heading(event.speaker)
            self._wrapping = Wrapping(self.console.width) if self.console.is_terminal else None
        text = visible(event.text)
        self._put(self._wrapping.feed(text) if self._wrapping else text)

    def _put(self, text: str) -> None:
        self.console.print(text, end="", markup=False, emoji=False, highlight=False, soft_wrap=True)

    def end_message(self) -> None:
        """Close the current message."""
        if self._speaking:
            self._put(f"{self._wrapping.flush() if self._wrapping else ''}\n\n")
        self._speaking = self.you = ""

    def deliberation(self, message: Message) -> None:
        """Say how a message was chosen, where somebody chose."""
        if (found := message.deliberation) is None:
            return
        how = f"settled without the critic ({found.fallback})" if found.fallback else found.reason
        revised = ", revised" if found.proposals[found.choice].revises else ""
        count = len(found.proposals)
        self.note(
            f"  ◆ critic: {found.choice + 1} of {count}{revised}{f', {how}' if how else ''}\n", "magenta"
        )

    def said(self, message: Message) -> None:
        """Close a message that was seen coming, or show one that was not because others were speaking."""
        if self._speaking:
            self._shown.add(self._speaking)
            self.end_message()
        if message.speaker in self._shown:
            self._shown.discard(message.speaker)
            return
        self._heading(message.speaker)
        self.console.print(
            visible(message.content), end="\n\n", markup=False, emoji=False, highlight=False, soft_wrap=True
        )

    def note(self, text: str, style: str = "dim") -> None:
        """Say something that is not part of the conversation."""
        # Files and pipes get lines as they are.
        self.console.print(Styled(visible(text), style), soft_wrap=not self.console.is_terminal)

    def table(self, rows: Mapping[str, str]) -> None:
        """Show names and what they mean."""
        from rich.table import Table

        grid = Table.grid(padding=(0, 2, 0, 1))
        for name, meaning in rows.items():
            grid.add_row(Styled(name, no_wrap=True), Styled(meaning, "dim"))
        self.console.print(grid, "")

    def proposals(self, speaker: str, options: Sequence[str], *, new: bool = False) -> None:
        """Show what a speaker might say, numbered; nothing in a proposal can pose as the number of another.

        `new` says that the last one was written after feedback.
        """
        what = f"wrote it again: {len(options)} is new" if new else "proposes"
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
        """Show the inception prompts."""
        for speaker in transcript.speakers:
            self.note(f"── system prompt of {speaker.role} ({speaker.name})", self.style(speaker.name))
            self.note(f"{speaker.system}\n")

    def summary(self, transcript: Transcript, seconds: float) -> None:
        """Say why it ended and what it took."""
        usage, stop = transcript.usage, transcript.stop
        self.note(f"■ {_sentence(stop.detail) if stop else 'Not finished.'}", "bold")
        cached = f", {usage.cached:,} of them cached" if usage.cached else ""
        least = "at least " if usage.unknown else ""
        self.note(
            f"  {counted(len(transcript.messages), 'message')}, {counted(usage.calls, 'call')}, "
            f"{least}{usage.prompt:,} prompt tokens{cached}, {usage.completion:,} completion tokens, "
            f"{seconds:.1f} s, {price(transcript)}"
        )

    def title(self, speaker: str, you: bool = False) -> str:
        """What stands above the words of a speaker."""
        if speaker in FIRST_STEPS:
            return FIRST_STEPS[speaker]
        if speaker not in self._roles:
            return visible(f"{speaker.capitalize()} (you)" if you else speaker)
        role, seat = self._roles[speaker], f"{speaker}, you" if you else speaker
        return visible(role if role == seat else f"{role} ({seat})")

    def _heading(self, speaker: str) -> None:
        title = self.title(speaker, speaker == self.you)
        self.console.print(Styled(f"▌ {title}", self.style(speaker)))


def price(transcript: Transcript) -> str:
    """What the conversation cost, in words."""
    # What a person said took no call.
    calls = [(message.model, message.usage) for message in transcript.messages if message.usage.calls]
    if transcript.task.usage.calls:
        calls.append((transcript.task.model, transcript.task.usage))
    total, prices = 0.0, 0.0
    if not calls:
        return "nothing paid"
    for model, usage in calls:
        paid = cost_of(model, usage)
        if paid is None:
            return f"cost unknown (no price for {visible(model) or 'the model'})"
        total += paid
        prices += cost_of(model, Usage(1, 1)) or 0.0
    if prices == 0:
        return "free"
    return f"at least {cost(total)}" if transcript.usage.unknown else cost(total)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
