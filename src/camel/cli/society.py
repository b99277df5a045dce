"""`camel society`: a society from its file, streamed to the terminal."""

# What a conversation on a screen needs besides (endpoints, files) is `camel play`'s.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camel.cli.play import _checked_file, _local_model, _temperature, _write

if TYPE_CHECKING:
    from camel.cli.screen import Screen
    from camel.core.society import SocietyPlay
    from camel.models.chat import ChatModel


def society(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A society's TOML file, or a folder with a society.toml.")
    ],
    task: Annotated[
        str, typer.Option(metavar="TEXT", help="What they are to do, in place of the file's task.")
    ] = "",
    model: Annotated[
        str,
        typer.Option(
            envvar="CAMEL_MODEL",
            metavar="NAME",
            help="Model name. Left out: what the server serves, or gpt-4.1-mini.",
        ),
    ] = "",
    base_url: Annotated[
        str,
        typer.Option(
            envvar="OPENAI_BASE_URL",
            metavar="URL",
            help="Any OpenAI-compatible endpoint. The key comes from OPENAI_API_KEY.",
        ),
    ] = "",
    local: Annotated[
        bool,
        typer.Option(
            "--local",
            help="Use the tiny real model on this machine, whatever --model and --base-url say; no key.",
        ),
    ] = False,
    temperature: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER", help="For all members, in place of the file's; 'default' for the model's own."
        ),
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Longest message, in tokens.")] = None,
    seed: Annotated[int | None, typer.Option(help="For endpoints that can repeat themselves.")] = None,
    max_messages: Annotated[
        int | None, typer.Option(help="Stop after so many messages at the latest.")
    ] = None,
    context: Annotated[
        int | None, typer.Option(help="The model's window in tokens, if it is not known.")
    ] = None,
    show_prompts: Annotated[bool, typer.Option("--show-prompts", help="Print the members' prompts.")] = False,
    save: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Write the transcript here (.json or .md); repeatable."),
    ] = None,
) -> None:
    """Let a society of any size work on a task, and watch its members talk."""
    from msgspec.structs import replace
    from rich.console import Console

    from camel.cli.screen import Screen
    from camel.models.connect import connect
    from camel.models.local import LOCAL_SAMPLING
    from camel.scenarios import load_society

    declared = load_society(file)
    files = [_checked_file(path) for path in save or []]
    sampling = LOCAL_SAMPLING if local else None
    if temperature is not None or max_tokens is not None:
        sampling = sampling or declared.usual_sampling
        if temperature is not None:
            sampling = replace(sampling, temperature=_temperature(temperature))
        if max_tokens is not None:
            sampling = replace(sampling, max_tokens=max_tokens)
    if max_messages is not None:
        declared = replace(declared, stop=replace(declared.stop, max_messages=max_messages))
    screen = Screen(Console(), {})
    with ExitStack() as stack:
        chat = (
            _local_model(stack, screen, "")
            if local
            else connect(model, base_url=base_url, context_tokens=context, max_attempts=4)
        )
        play = declared.play(chat, task=task, sampling=sampling, seed=seed, watch=screen.watch)
        try:
            code = _watch(play, chat, screen, show_prompts)
        finally:
            # Whatever happens to the screen (a closed pipe, say), what was paid for is kept.
            for path in files:
                _write(path, play.transcript)
    for path in files:
        screen.note(f"  saved {path}")
    if code:
        raise typer.Exit(code)


def _watch(play: SocietyPlay, chat: ChatModel, screen: Screen, show_prompts: bool) -> int:
    """Run the conversation on the screen; returns the exit code."""
    from camel.cli.screen import visible
    from camel.core.errors import ModelError

    async def talk() -> None:
        async with chat:
            conversation = await play.prepare()
            screen.end_message()
            together = play.society.turns.together(len(play.society.members)) > 1
            screen.introduce(play.transcript.speakers, together=together)
            if show_prompts:
                screen.prompts(play.transcript)
            async for message in conversation:
                screen.said(message)

    started, code = time.monotonic(), 0
    try:
        asyncio.run(talk())
    except KeyboardInterrupt:
        play.end("you stopped it")
        code = 130
    except ModelError as error:
        play.end(f"{type(error).__name__}: {error}", "error")
        typer.echo(f"camel: {visible(str(error))}", err=True)
        code = 1
    screen.end_message()
    screen.summary(play.transcript, time.monotonic() - started)
    return code
