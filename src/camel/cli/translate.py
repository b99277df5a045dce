"""`camel translate`: a run's conversations in other languages."""

from __future__ import annotations

import asyncio
import os
import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from camel.cli.options import RunPlace

if TYPE_CHECKING:
    from rich.console import Console

    from camel.generation.translate import Translation
    from camel.models.chat import ChatModel


def translate(
    run: RunPlace,
    to: Annotated[
        list[str], typer.Option(metavar="CODE", help="A language: ar zh ko ja hi ru es fr de it; repeatable.")
    ],
    model: Annotated[
        str, typer.Option(envvar="CAMEL_MODEL", metavar="NAME", help="The model that translates.")
    ] = "",
    base_url: Annotated[
        str, typer.Option(envvar="OPENAI_BASE_URL", metavar="URL", help="Its endpoint.")
    ] = "",
    local: Annotated[
        bool, typer.Option("--local", help="Use the tiny real model on this machine; no key.")
    ] = False,
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", help="Conversations in flight: 64, with --local 2.")
    ] = None,
) -> None:
    """Put every message of a run into other languages, keeping the markers. The same command goes on after a stop."""
    from rich.console import Console

    from camel.cli.asking import check_finished, chosen_model
    from camel.cli.panel import say
    from camel.cli.stopping import HALTED, INTERRUPTED, STOPPED
    from camel.engine.worker import Halt
    from camel.generation.translate import Translation
    from camel.storage.reader import Run

    console, halt = Console(highlight=False), Halt()
    in_flight = concurrency or (2 if local else 64)
    check_finished(run, "translated")
    with chosen_model(console, model, base_url, local, in_flight) as chat:
        # All of them before the first call: what cannot go on is refused before anything is paid.
        records = Run(run)
        wanted = [Translation(records, language, chat, halt=halt) for language in to]
        complete = asyncio.run(_work(console, wanted, chat, in_flight))
    if complete:
        say(console, f"export  camel export {shlex.quote(str(run))} chat FILE --language {to[0]}")
        return
    mine = halt.reason == STOPPED
    say(console, halt.reason if mine else f"stopped: {halt.reason}")
    own_url = base_url if base_url != os.environ.get("OPENAI_BASE_URL", "") else ""
    say(console, f"resume  {_resume(run, to, model, own_url, local, concurrency)}")
    raise typer.Exit(INTERRUPTED if mine else HALTED)


async def _work(console: Console, wanted: list[Translation], chat: ChatModel, concurrency: int) -> bool:
    """Do all translations, one after the other; False when something stopped them."""
    from camel.cli.panel import say
    from camel.cli.progress import CALLS_END, worked
    from camel.generation.translate import translate as put_into

    now = wanted[0]

    async def work() -> bool:
        nonlocal now
        for now in wanted:
            if not await put_into(now, concurrency=concurrency):
                return False
            note = f", {now.damaged:,} with a message that could not be mended" if now.damaged else ""
            say(console, f"{_line(now)} · complete{note}")
        return True

    return await worked(console, now.halt, CALLS_END, lambda seconds: _line(now, seconds), work(), chat)


def _line(translation: Translation, seconds: float | None = None) -> str:
    from camel.cli.panel import duration, money, short

    tally, meter = translation.tally, translation.meter
    parts = [
        f"{translation.language}  {tally.finished:,} / {tally.planned:,} conversations",
        f"{meter.usage.calls:,} calls" if meter.usage.calls else "",
        f"{short(meter.usage.total)} tokens" if meter.usage.total else "",
        money(meter.money) if meter.money else "",
        f"{sum(meter.errors.values()):,} errors" if meter.errors else "",
        f"{duration(seconds)} gone" if seconds else "",
    ]
    return " · ".join(part for part in parts if part)


def _resume(run: str, to: list[str], model: str, base_url: str, local: bool, concurrency: int | None) -> str:
    words: list[Any] = ["camel", "translate", run]
    for language in to:
        words += ["--to", language]
    words += ["--model", model] if model else []
    words += ["--base-url", base_url] if base_url else []
    words += ["--local"] if local else []
    words += ["--concurrency", concurrency] if concurrency is not None else []
    return shlex.join(str(word) for word in words)
