"""Reads what a person types: a multi-line editor in a terminal, plain lines elsewhere.

The editor removes the typed text from the screen when it is sent. It is then shown as a message like all others.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from prompt_toolkit.formatted_text import FormattedText
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.key_binding.key_processor import KeyPressEvent


class Keyboard(Protocol):
    """Reads the entries of a person."""

    async def read(self, heading: str, style: str, hints: Sequence[str]) -> str:
        """Read one entry of one or more lines, and show as many hints as fit. Raises `EOFError` or `KeyboardInterrupt` if the
        person stops."""
        ...


def open_keyboard(*, keep_history: bool = True) -> Keyboard:
    """Return an editor if the process runs in a terminal, otherwise a reader of standard input."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        return Terminal(history_file() if keep_history else None)
    return StandardInput()


def history_file() -> Path:
    """Return the path of the file that stores a person's entries between conversations."""
    state = os.environ.get("XDG_STATE_HOME", "")
    return (
        (Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state") / "camel" / "history"
    )


class Terminal:
    """A line editor in the terminal that shows hints while the line is empty."""

    def __init__(self, history: Path | None = None) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.output import create_output
        from prompt_toolkit.styles import Style

        output = create_output()
        # Do not query the cursor position: over a slow connection the reply would end up in the text.
        if hasattr(output, "enable_cpr"):
            output.enable_cpr = False  # pyright: ignore[reportAttributeAccessIssue]
        self._stopping = False
        self._hints: Sequence[str] = ()
        self._session: PromptSession[str] = PromptSession(
            multiline=True,
            prompt_continuation="  ",
            placeholder=self._hint,
            history=_history(history),
            key_bindings=self._bindings(),
            enable_suspend=True,
            enable_open_in_editor=True,
            erase_when_done=True,
            style=Style.from_dict({"placeholder": "ansibrightblack", "mark": "bold"}),
            output=output,
        )

    async def read(self, heading: str, style: str, hints: Sequence[str]) -> str:
        """Read one entry."""
        from prompt_toolkit.formatted_text import FormattedText

        self._hints, self._stopping = hints, False
        color = " ".join(word if word == "bold" else f"ansi{word}" for word in style.split())
        message = FormattedText([(color, f"▌ {heading}\n"), ("class:mark", "› ")])
        try:
            # The session handles signals.
            return await self._session.prompt_async(message, handle_sigint=False, set_exception_handler=False)
        finally:
            # An entry that was not sent can be recalled with the arrow keys next time.
            self._session.default_buffer.append_to_history()

    def _hint(self) -> FormattedText:
        """Return as many hints as fit on the empty line."""
        from prompt_toolkit.formatted_text import FormattedText

        width, shown = self._session.output.get_size().columns - 3, ""
        if self._session.layout.is_searching:
            return FormattedText()
        for hint in ("Ctrl+C again: stop and save",) if self._stopping else self._hints:
            longer = f"{shown} · {hint}" if shown else hint
            if len(longer) < width:
                shown = longer
        return FormattedText([("class:placeholder", shown)])

    def _bindings(self) -> KeyBindings:
        from prompt_toolkit.enums import DEFAULT_BUFFER
        from prompt_toolkit.filters import has_focus
        from prompt_toolkit.key_binding import KeyBindings

        keys, typing = KeyBindings(), has_focus(DEFAULT_BUFFER)

        @keys.add("enter", filter=typing)
        def _send(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.document.char_before_cursor == "\\" and buffer.document.is_cursor_at_the_end:
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            elif buffer.text.strip():
                buffer.validate_and_handle()

        @keys.add("escape", "enter", filter=typing)
        @keys.add("c-j", filter=typing)
        def _new_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c", filter=typing)
        def _interrupt(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.text:
                buffer.append_to_history()
                buffer.reset()
                self._stopping = False
            elif self._stopping:
                event.app.exit(exception=KeyboardInterrupt())
            else:
                self._stopping = True

        _ = (_send, _new_line, _interrupt)
        return keys


class StandardInput:
    """Reads entries from standard input, for a script or a pipe. A backslash at the end of a line continues the entry."""

    def __init__(self) -> None:
        self._ahead = b""

    async def read(self, heading: str, style: str, hints: Sequence[str]) -> str:
        """Read one entry."""
        from camel.models.person import called

        if sys.stdin.isatty():
            sys.stderr.write(f"{heading}> ")
            sys.stderr.flush()
        return await called(self._entry)

    def _entry(self) -> str:
        lines: list[str] = []
        while True:
            line = self._line()
            lines.append(line.removesuffix("\\"))
            if line == lines[-1] and any(map(str.strip, lines)):
                return "\n".join(lines)
            if line == lines[-1]:
                lines.clear()

    def _line(self) -> str:
        # Not through sys.stdin: a thread that holds its lock at exit would abort the process.
        while b"\n" not in self._ahead:
            more = os.read(sys.stdin.fileno(), 65536)
            if not more:
                if not self._ahead:
                    raise EOFError
                self._ahead += b"\n"
            self._ahead += more
        line, _, self._ahead = self._ahead.partition(b"\n")
        return line.decode("utf-8", "replace").removesuffix("\r")


@contextmanager
def disable_echo() -> Generator[None]:
    """Turn off the echo of keys while a model's message is printed. The keys appear at the next prompt instead."""
    try:
        import termios
    except ModuleNotFoundError:  # Windows
        termios = None
    if termios is None or not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    quiet = termios.tcgetattr(descriptor)
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _history(path: Path | None) -> History:
    """Return a history in a file that only its owner can read. If that is not possible, return one in memory."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    class StoredHistory(FileHistory):
        def store_string(self, string: str) -> None:
            with suppress(OSError):
                super().store_string(string)

    if path is None:
        return InMemoryHistory()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
    except OSError:
        return InMemoryHistory()
    return StoredHistory(path)
