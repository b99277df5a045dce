"""Progress of a long command in one line: in place on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, NoReturn

import typer
from rich.console import Console

from camel.cli.panel import say
from camel.cli.stopping import HALTED, INTERRUPTED, STOPPED, Stopping
from camel.engine.halt import Halt

CALLS_END = "stopping: the calls in flight end first; again to leave at once"
EVERY = 10.0
"""Seconds between two lines where the output is no terminal."""


@contextlib.asynccontextmanager
async def shown(console: Console, line: Callable[[float], str]) -> AsyncGenerator[None]:
    """Say `line` while the block runs; it is given the seconds that have passed."""
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(console.status("")) if console.is_terminal else None

        async def show() -> None:
            while True:
                await asyncio.sleep(EVERY if place is None else 0.25)
                text = line(time.monotonic() - started)
                if place is None:
                    say(console, text)
                else:
                    place.update(text)

        async with asyncio.TaskGroup() as group:
            shower = group.create_task(show())
            try:
                yield
            finally:
                shower.cancel()


async def worked(
    console: Console,
    halt: Halt,
    note: str,
    line: Callable[[float], str],
    work: Awaitable[bool],
    *models: AbstractAsyncContextManager[Any],
) -> bool:
    """Do `work`, with `models` open, and say `line` meanwhile; whoever stops it is told `note`.

    False when it was left before its end.
    """
    stopping = Stopping(halt, lambda: say(console, note))
    done = False
    with stopping.heard():
        async with contextlib.AsyncExitStack() as stack:
            for model in models:
                await stack.enter_async_context(model)
            async with shown(console, line):
                done = await work
    return done


def leave(console: Console, reason: str) -> NoReturn:
    """End a command that was stopped before its end: say why, and how to go on."""
    mine = reason == STOPPED
    how = ""
    if reason.startswith("the budget"):
        how = " with a larger one"
    elif "--max-calls" in reason:
        how = " with --max-calls"
    say(console, f"{reason if mine else f'stopped: {reason}'}; the same command goes on{how}")
    raise typer.Exit(INTERRUPTED if mine else HALTED)
