"""`camel translate`: a run's conversations in other languages."""

from __future__ import annotations

import asyncio
import shlex
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from camel.cli.options import MaxCalls, MaxMoney, MaxTokens, RunPlace

if TYPE_CHECKING:
    from rich.console import Console

    from camel.core.model import Model
    from camel.generation.translate import Translation


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
    max_calls: MaxCalls = None,
    max_tokens: MaxTokens = None,
    max_money: MaxMoney = None,
    accept_change: Annotated[
        Literal["model.name"] | None,
        typer.Option(help="Continue with another model; what is translated already stays."),
    ] = None,
) -> None:
    """Put every message of a run into other languages, keeping the markers. The same command goes on after a stop."""
    from rich.console import Console

    from camel.cli.asking import check_finished, chosen_model
    from camel.cli.panel import say
    from camel.cli.progress import leave
    from camel.cli.spending import expect, metered
    from camel.cli.stopping import FAILED_ITEMS, failed_lines
    from camel.core.message import Usage
    from camel.engine.halt import Halt
    from camel.generation.campaign import failed_items
    from camel.generation.translate import Translation
    from camel.jobs.budget import Budget
    from camel.runs.reader import RunReader

    console, halt = Console(highlight=False), Halt()
    budget = Budget(money=max_money, tokens=max_tokens, calls=max_calls)
    in_flight = concurrency or (2 if local else 64)
    check_finished(run, "translated")
    with chosen_model(console, model, base_url, local, in_flight) as chat:
        # All of them before the first call: what cannot go on is refused before anything is paid.
        records = RunReader(run)
        meter = metered(budget, chat.name, halt)
        accept = bool(accept_change)
        wanted = [
            Translation(records, language, chat, meter=meter, accept_model=accept)
            for language in dict.fromkeys(to)
        ]
        meter.before = sum((one.spent() for one in wanted), Usage())
        meter.dearer = sum(one.dearer() for one in wanted)
        if (need := sum((one.estimate() for one in wanted), Usage())).calls:
            expect(console, "expect", chat.name, need, meter.price)
        complete = asyncio.run(_work(console, wanted, chat, in_flight))
    if complete:
        failed = [one for made in wanted for one in failed_items(made.run.folder, made.name)]
        for line in failed_lines(failed):
            say(console, line)
        say(console, f"export  camel export {shlex.quote(str(run))} chat FILE --language {to[0]}")
        if failed:
            raise typer.Exit(FAILED_ITEMS)
        return
    leave(console, halt.reason)


async def _work(console: Console, wanted: list[Translation], chat: Model, concurrency: int) -> bool:
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
    used = meter.before + meter.usage
    parts = [
        f"{translation.language}  {tally.finished:,} / {tally.planned:,} conversations",
        f"{used.calls:,} calls" if used.calls else "",
        f"{short(used.total)} tokens" if used.total else "",
        money(meter.money) if meter.money else "",
        f"{sum(meter.errors.values()):,} errors" if meter.errors else "",
        f"{duration(seconds)} gone" if seconds else "",
    ]
    return " · ".join(part for part in parts if part)
