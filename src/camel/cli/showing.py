"""A conversation on the screen: watched as it is said, ended by whoever wants it, and kept however it ends.

What `camel play` and `camel society` have in common.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from camel.cli.leaving import Leaving
    from camel.cli.screen import Screen
    from camel.core.message import Message
    from camel.core.model import Model
    from camel.core.play import Play
    from camel.core.transcript import Transcript

HUNG_UP = 129
"""Exit code of a process whose terminal was closed; nobody is there to read more."""


def show(
    play: Play,
    chat: Model,
    screen: Screen,
    *,
    files: Sequence[Path] = (),
    show_prompts: bool = False,
    begun: Callable[[], None] = lambda: None,
    said: Callable[[Message], None] | None = None,
    spare: Callable[[], bool] = lambda: False,
    people: bool = False,
) -> int:
    """Run a play on the screen and write its transcript to `files`, however it ends; returns the exit code.

    `begun` is called when the table is set, `said` with each message, `spare` on a Ctrl-C that may mean something else.
    With `people` at the table the files are written after every message.
    """
    from camel.cli.leaving import Leaving

    def keep() -> None:
        for path in files:
            _write(path, play.transcript)

    with Leaving(spare) as leaving:
        try:
            code = _watch(
                play,
                chat,
                screen,
                show_prompts,
                leaving,
                begun,
                said or (lambda message: _said(screen, message)),
                keep if people else None,
            )
        finally:
            # Whatever happens to the screen (a closed pipe, say), what was paid for is kept.
            leaving.deafen()
            keep()
    if code != HUNG_UP:
        for path in files:
            screen.note(f"  saved {path}")
    return code


def _said(screen: Screen, message: Message) -> None:
    from camel.models.person import PERSON

    screen.end_message()
    if not (message.deliberation and message.deliberation.critic == PERSON):
        screen.deliberation(message)


def _watch(
    play: Play,
    chat: Model,
    screen: Screen,
    show_prompts: bool,
    leaving: Leaving,
    begun: Callable[[], None],
    said: Callable[[Message], None],
    keep: Callable[[], None] | None,
) -> int:
    """Run the conversation on the screen; returns the exit code. `keep` is called after each message."""
    from camel.cli.keyboard import unechoed
    from camel.cli.screen import visible
    from camel.core.errors import ModelError

    async def talk() -> None:
        leaving.task = asyncio.current_task()
        async with chat:
            conversation = await play.prepare()
            screen.end_message()
            begun()
            if show_prompts:
                screen.prompts(play.transcript)
            async for message in conversation:
                said(message)
                if keep:
                    # A full disk is told at the end, and does not end the conversation.
                    with suppress(OSError):
                        keep()

    started, code = time.monotonic(), 0
    try:
        with unechoed() if keep else nullcontext():
            asyncio.run(talk())
    except (KeyboardInterrupt, asyncio.CancelledError):
        play.end(leaving.words)
        code = leaving.code
    except ModelError as error:
        play.end(f"{type(error).__name__}: {error}", "error")
        typer.echo(f"camel: {visible(str(error))}", err=True)
        code = 1
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        play.end("the terminal is gone")
        code = HUNG_UP
    if code != HUNG_UP:
        screen.end_message()
        screen.summary(play.transcript, time.monotonic() - started)
    return code


def local_chat(stack: ExitStack, screen: Screen, guided: str) -> Model:
    """The small model on this machine, started; it says what may be expected of it."""
    from camel.models.local import local_model

    model = stack.enter_context(local_model(guided=guide(guided or "llama.cpp"), say=screen.note))
    screen.note(
        "SmolLM2-135M on this machine: a tiny model for trying things out. Held to the format, what it says is mostly "
        "nonsense. For real work point --base-url or OPENAI_API_KEY at a capable model.\n",
        "yellow",
    )
    return model


def guide(text: str) -> Any:
    """The `--guided` of a command line."""
    from camel.core.errors import InputError

    if text in ("", "off"):
        return None
    if text not in ("llama.cpp", "vllm", "openai"):
        raise InputError(f"--guided takes llama.cpp, vllm, openai or off, not {text!r}")
    return text


def checked_temperature(text: str) -> float | None:
    """The `--temperature` of a command line."""
    from camel.core.errors import InputError

    if text == "default":
        return None
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--temperature takes a number or 'default', not {text!r}") from None


def checked_file(path: Path) -> Path:
    """Refuse a file that cannot be written before anything is paid for."""
    from camel.core.errors import InputError

    if path.suffix not in (".json", ".md"):
        raise InputError(f"--save takes a name that ends in .json or .md, not {path.name!r}")
    try:
        if path.is_dir():
            raise IsADirectoryError("it is a folder")
        _temporary(path).touch()
        _temporary(path).unlink()
    except OSError as error:
        raise InputError(f"--save cannot write {path}: {error.strerror or error}") from None
    return path


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")


def _write(path: Path, transcript: Transcript) -> None:
    """Write whole or not at all."""
    data = transcript.to_json() if path.suffix == ".json" else transcript.to_markdown().encode()
    _temporary(path).write_bytes(data)
    _temporary(path).replace(path)
