"""A conversation on the screen: watched as it is said, ended by whoever wants it, and kept however it ends.

What `camel play` and `camel society` have in common.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import typer

from camel.cli.keyboard import unechoed
from camel.cli.leaving import Leaving
from camel.cli.screen import Screen, visible
from camel.core.errors import InputError, ModelError
from camel.core.message import Message, Sampling
from camel.core.model import Model
from camel.core.play import Play
from camel.core.role_playing import AGENT_SAMPLING
from camel.core.transcript import Transcript
from camel.models.local import LOCAL, LOCAL_SAMPLING
from camel.models.person import PERSON
from camel.models.spec import ModelSpec, find_spec

HUNG_UP = 129
"""Exit code of a process whose terminal was closed; nobody is there to read more."""


def show(
    play: Play,
    chat: Model,
    screen: Screen,
    *,
    files: Sequence[Path] = (),
    show_prompts: bool = False,
    show_reasoning: bool = False,
    begun: Callable[[], None] = lambda: None,
    said: Callable[[Message], None] | None = None,
    spare: Callable[[], bool] = lambda: False,
    people: bool = False,
) -> int:
    """Run a play on the screen and write its transcript to `files`, however it ends; returns the exit code.

    `begun` is called when the table is set, `said` with each message, `spare` on a Ctrl-C that may mean something else.
    With `people` at the table the files are written after every message.
    """

    def keep() -> None:
        for path in files:
            _write(path, play.transcript)

    async def talk() -> None:
        leaving.task = asyncio.current_task()
        async with chat:
            conversation = await play.prepare()
            screen.end_message()
            begun()
            if show_prompts:
                screen.prompts(play.transcript)
            async for message in conversation:
                said(message) if said else _said(screen, message)
                if show_reasoning and message.reasoning:
                    screen.note(f"  thought: {message.reasoning}\n")
                if people:
                    # A full disk is told at the end, and does not end the conversation.
                    with suppress(OSError):
                        keep()

    started, code = time.monotonic(), 0
    with Leaving(spare) as leaving:
        try:
            try:
                with unechoed() if people else nullcontext():
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
        finally:
            # Whatever happens to the screen (a closed pipe, say), what was paid for is kept.
            leaving.deafen()
            keep()
    if code != HUNG_UP:
        for path in files:
            screen.note(f"  saved {path}")
    return code


def _said(screen: Screen, message: Message) -> None:
    screen.end_message()
    if not (message.deliberation and message.deliberation.critic == PERSON):
        screen.deliberation(message)


def open_chat(
    say: Callable[[str], None],
    model: str,
    base_url: str,
    local: bool,
    context: int | None,
    guided: str = "",
    dialect: str = "",
) -> Model:
    """The model that the options name."""
    held = guide(guided or ("llama.cpp" if local else ""))
    how: dict[str, Any] = {"context_tokens": context, "guided": held, "dialect": dialect}
    spec = ModelSpec(LOCAL, **how) if local else find_spec(model, base_url=base_url, **how)
    spec.prepare(say)
    return spec.open(None, max_attempts=4)


def warn_of_nonsense(screen: Screen) -> None:
    """Say what may be expected of the tiny model."""
    screen.note(
        "SmolLM2-135M on this machine: a tiny model for trying things out. Held to the format, what it says is mostly "
        "nonsense. For real work point --base-url or OPENAI_API_KEY at a capable model.\n",
        "yellow",
    )


def read_sampling(
    local: bool,
    temperature: str | None,
    max_tokens: int | None,
    *,
    seed: int | None = None,
    most: int | None = None,
) -> Sampling:
    """The sampling that the options ask for; what they leave open is the paper's, or the tiny model's. `most`: tokens where none are set."""
    usual = LOCAL_SAMPLING if local else AGENT_SAMPLING
    return Sampling(
        temperature=usual.temperature if temperature is None else checked_temperature(temperature),
        max_tokens=(usual.max_tokens or most) if max_tokens is None else max_tokens,
        seed=seed,
    )


def guide(text: str) -> Any:
    """The `--guided` of a command line."""
    if text in ("", "off"):
        return None
    if text not in ("llama.cpp", "vllm", "openai"):
        raise InputError(f"--guided takes llama.cpp, vllm, openai or off, not {text!r}")
    return text


def checked_temperature(text: str) -> float | None:
    """The `--temperature` of a command line."""
    if text == "default":
        return None
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--temperature takes a number or 'default', not {text!r}") from None


def checked_file(path: Path) -> Path:
    """Refuse a file that cannot be written before anything is paid for."""
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
