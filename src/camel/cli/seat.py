"""A person's seat at the terminal: they type a message, or a command that starts with a slash."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from camel.cli.screen import STYLES, Screen
from camel.core.conversation import Agent, Conversation
from camel.core.critic import PROPOSALS, BestOf, Case
from camel.core.errors import Left
from camel.core.grammar import DONE_TOKEN
from camel.core.model import Model, Reply, Request
from camel.core.toml import read_table
from camel.models.person import REVISIONS, Answer, HandOver, PersonJudge, Ruling

if TYPE_CHECKING:
    from camel.cli.keyboard import Keyboard

SEATS = ("user", "assistant", "critic")
STOPPED = "you stopped it"

_COMMAND = re.compile(r"/([a-z?]*)(?:\s+(.*))?", re.DOTALL | re.IGNORECASE)
_AI, _DONE, _STOP = "/ai [n]", "/done", "/stop"
_TEXTS = read_table(Path(__file__).with_name("seat.toml"))
"""Keys and commands with their meaning, for `/help`, and the meaning of each seat."""


_RULING = re.compile(r"#?(\d{1,4})(?:\s*[.):,–-](?!\d)\s*|\s+|\Z)(.*)", re.DOTALL)


def read_ruling(text: str, count: int) -> Ruling | None:
    """Parse a person's decision, or return None for a number that is not one of the `count` options. A number chooses an
    option. A number followed by text asks for a revision of that option, text alone for one of the first."""
    found = _RULING.fullmatch(text.strip())
    if found is None:
        return Ruling(None, text.strip())
    number, words = int(found[1]), found[2].strip()
    if 1 <= number <= count:
        return Ruling(number - 1, words)
    return Ruling(None, text.strip()) if words else None


class Seat:
    """Asks the person at the keyboard; `ask` is the callback of a `Person`."""

    def __init__(self, screen: Screen, keyboard: Keyboard) -> None:
        self._screen, self._keyboard = screen, keyboard
        self._greeted: set[str] = set()
        self._revised = False
        self.interrupted = False
        """Whether the person stopped the conversation with Ctrl-C."""

    async def ask(self, request: Request) -> Answer:
        """Read the person's message for the seat of `request`, and run the commands they type."""
        seat = request.speaker
        self.greet(seat)
        commands = (_AI, _DONE, _STOP) if seat == "user" else (_AI, _STOP)
        hints = ("Enter sends", "/help", "Alt+Enter new line", "/ai 3", *commands[1:])
        text = await self._entry(seat, hints, commands)
        if isinstance(text, HandOver):
            many = f", {text.turns} times; Ctrl+C returns the seat to you" if text.turns > 1 else ""
            self._screen.note(f"The model speaks for you{many}.\n")
        else:
            self._screen.you = seat
        return text

    async def choose(self, speaker: str, options: Sequence[str], final: bool) -> Ruling | HandOver:
        """Ask the person to choose one of the options of `speaker`. If `final` is true, the person cannot give feedback."""
        self._screen.end_message()
        self._screen.proposals(speaker, options, new=self._revised)
        self._revised = False
        numbers = "1" if len(options) == 1 else f"1–{len(options)}"
        wanted = f"{numbers} chooses"
        hints = (wanted, "/help", *(() if final else ("text: what to change",)), "/ai", "/stop")
        while True:
            text = await self._entry("critic", hints, (_AI, _STOP))
            if isinstance(text, HandOver):
                self._screen.note(f"The model judges{f', {text.turns} times' if text.turns > 1 else ''}.\n")
                return text
            ruling = read_ruling(text, len(options))
            if ruling is None:
                self._screen.note(f"There is no such option: {wanted}.\n", "yellow")
            elif ruling.feedback and final:
                self._screen.note(f"No more revisions are possible: {wanted}.\n", "yellow")
            else:
                self._revised = bool(ruling.feedback)
                return ruling

    def greet(self, seat: str) -> None:
        """Explain a seat to the person once."""
        if seat not in self._greeted:
            self._greeted.add(seat)
            self._screen.note(f"You are the {self._screen.title(seat)}. {_TEXTS['meaning'][seat]}\n")

    async def _entry(self, seat: str, hints: tuple[str, ...], commands: Sequence[str]) -> str | HandOver:
        """Read entries and run the commands among them, until the person has written a text or handed the seat over."""
        while True:
            self._screen.end_message()
            try:
                entry = await self._keyboard.read(
                    self._screen.title(seat, True), STYLES.get(seat, "bold"), hints
                )
            except (KeyboardInterrupt, EOFError) as error:
                self.interrupted = isinstance(error, KeyboardInterrupt)
                raise Left(STOPPED) from None
            text = entry.strip()
            command = _COMMAND.fullmatch(text)
            if command is None:
                return text[1:] if text.startswith("//") else text
            name, rest = command[1].lower(), (command[2] or "").strip()
            if name == "done" and _DONE in commands and not rest:
                return DONE_TOKEN
            if name == "ai" and (turns := _count(rest)):
                return HandOver(turns)
            self._run_command(name, rest, commands)

    def _run_command(self, name: str, rest: str, commands: Sequence[str]) -> None:
        """Run a command that every seat has, or report an unknown one."""
        if name == "stop" and not rest:
            raise Left(STOPPED)
        if name in ("help", "?", "h"):
            known = {command: _TEXTS["commands"][command] for command in commands}
            self._screen.table(_TEXTS["editing"] | known)
        elif name == "ai":
            self._screen.note(f"/ai needs a number of turns of at least 1, not {rest!r}\n", "yellow")
        else:
            known = ", ".join([*(command.split()[0] for command in commands), "/help"])
            self._screen.note(
                f"/{name} is not a command; known: {known}. Start a message with // to send a slash.\n",
                "yellow",
            )


def _count(text: str) -> int:
    """Parse a number of turns. An empty text means 1, and an invalid one returns 0."""
    return 1 if not text else int(text) if text.isdecimal() and len(text) < 5 else 0


class CriticSeat:
    """A critic whose judge is the person at the keyboard. After `/ai`, a model judges for some turns."""

    def __init__(self, seat: Seat, screen: Screen, model: Model, proposals: int = PROPOSALS) -> None:
        self._seat, self._screen = seat, screen
        self._judge = PersonJudge(self._choose, model)
        self._critic = BestOf(judge=self._judge, proposals=proposals, revisions=REVISIONS)

    async def reply(self, conversation: Conversation, agent: Agent, request: Request) -> Reply:
        """Return the next message of `agent`. Print a note first, because proposals are not streamed."""
        self._seat.greet("critic")
        self._screen.end_message()
        self._screen.note(f"{self._screen.title(agent.name)} is writing {self._critic.proposals} proposals …")
        return await self._critic.reply(conversation, agent, request)

    async def _choose(self, case: Case) -> Ruling | HandOver:
        return await self._seat.choose(
            case.agent.name, [option.content for option in case.options], case.final
        )

    def take_back(self) -> bool:
        """Let the person judge again. Return whether the model still had turns."""
        return self._judge.take_back()
