"""How a conversation looks in a terminal.

The one decision to know: model text is untrusted, so control characters (which can move the cursor, set the title or
fake a prompt) are made visible before anything is printed, and it is never read as markup.
"""

from __future__ import annotations

import re

from rich.console import Console
from rich.text import Text as Styled

from camel.core.message import Message, Usage
from camel.core.model import Event, Retrying
from camel.core.task import SPECIFIER
from camel.core.transcript import Transcript
from camel.models import catalogue

STYLES = {"user": "bold cyan", "assistant": "bold green", SPECIFIER: "bold magenta"}
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

    def watch(self, event: Event) -> None:
        """Show one event of a reply in the making."""
        if isinstance(event, Retrying):
            broke_off = f"{event.speaker}'s reply is void; " if self._speaking else ""
            self.end_message()
            self.note(f"{broke_off}trying again in {event.wait:.1f} s: {event.error}", "yellow")
            return
        if self._speaking != event.speaker:
            self._speaking = event.speaker
            self._heading(event.speaker)
        self.console.print(
            visible(event.text), end="", markup=False, emoji=False, highlight=False, soft_wrap=True
        )

    def end_message(self) -> None:
        """Close the current message."""
        if self._speaking:
            self.console.print("\n")
        self._speaking = ""

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

    def note(self, text: str, style: str = "dim") -> None:
        """Say something that is not part of the conversation."""
        self.console.print(Styled(visible(text), style), soft_wrap=True)

    def prompts(self, transcript: Transcript) -> None:
        """Show the inception prompts."""
        for speaker in transcript.speakers:
            self.note(
                f"── system prompt of {speaker.role} ({speaker.name})", STYLES.get(speaker.name, "bold")
            )
            self.note(f"{speaker.system}\n")

    def summary(self, transcript: Transcript, seconds: float) -> None:
        """Say why it ended and what it took."""
        usage, stop = transcript.usage, transcript.stop
        self.note(f"■ {_sentence(stop.detail) if stop else 'Not finished.'}", "bold")
        cached = f", {usage.cached:,} of them cached" if usage.cached else ""
        counted = "at least " if usage.unknown else ""
        self.note(
            f"  {_count(len(transcript.messages), 'message')}, {_count(usage.calls, 'call')}, "
            f"{counted}{usage.prompt:,} prompt tokens{cached}, {usage.completion:,} completion tokens, "
            f"{seconds:.1f} s, {price(transcript)}"
        )

    def _heading(self, speaker: str) -> None:
        title = (
            "Task specifier" if speaker == SPECIFIER else f"{self._roles.get(speaker, speaker)} ({speaker})"
        )
        self.console.print(Styled(f"▌ {visible(title)}", STYLES.get(speaker, "bold")))


def price(transcript: Transcript) -> str:
    """What the conversation cost, in words."""
    calls = [(message.model, message.usage) for message in transcript.messages]
    if transcript.task.usage.calls:
        calls.append((transcript.task.model, transcript.task.usage))
    total, prices = 0.0, 0.0
    if not calls:
        return "nothing paid"
    for model, usage in calls:
        cost = catalogue.cost(model, usage)
        if cost is None:
            return f"cost unknown (no price for {visible(model) or 'the model'})"
        total += cost
        prices += catalogue.cost(model, Usage(1, 1)) or 0.0
    if prices == 0:
        return "free"
    return f"at least ${total:.4f}" if transcript.usage.unknown else f"${total:.4f}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
