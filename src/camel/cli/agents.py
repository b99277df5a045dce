"""`camel agents`: two agents talk in your browser, and you may take a seat."""

from __future__ import annotations

from typing import Annotated

import typer

from camel.cli.options import (
    AllowHost,
    BaseUrl,
    Context,
    FrameIn,
    Guided,
    Host,
    Local,
    ModelName,
    OpenBrowser,
    Port,
    Public,
    Temperature,
    argument,
    flag,
    option,
)  # fmt: skip
from camel.core.errors import MissingExtra


def agents(
    runs: Annotated[list[str] | None, argument("RUN…", "Further runs to explore in the same app.")] = None,
    out: Annotated[
        str, option("The run that keeps what is saved; made where there is none.", "RUN")
    ] = "runs/agents",
    model: ModelName = "",
    base_url: BaseUrl = "",
    local: Local = False,
    temperature: Temperature = None,
    max_tokens: Annotated[int | None, option("Longest reply, in tokens; 1,024 unless given.")] = None,
    context: Context = None,
    guided: Guided = "",
    max_messages: Annotated[int, option("Longest conversation that may be asked for.")] = 40,
    at_once: Annotated[int, option("Conversations that may go on at the same time.", "N")] = 4,
    budget_tokens: Annotated[
        int, option("Tokens that all of them may use together, until it is started again.", "N")
    ] = 1_000_000,
    budget_usd: Annotated[float | None, option("Money that they may use together.", "DOLLARS")] = None,
    keep_all: Annotated[
        bool, flag("--keep-all", "Save every conversation when it ends, whether asked to or not.")
    ] = False,
    port: Port = 8091,
    host: Host = "127.0.0.1",
    allow_host: AllowHost = None,
    frame_in: FrameIn = None,
    public: Public = False,
    open_browser: OpenBrowser = None,
) -> None:
    """Let agents talk in the browser until Ctrl-C: choose roles and a task, watch, take a seat, save. Needs the extra `explore`."""
    from camel.cli.showing import open_chat, read_sampling

    try:
        from camel.explorer.rooms import Agents, RoomLimits
        from camel.explorer.serving import serve
    except ImportError as error:
        raise MissingExtra(f"The agents app ({error.name})", "explore") from None
    from camel.jobs.budget import Budget

    local = local or model == "local"
    sampling = read_sampling(local, temperature, max_tokens, most=1024)
    limits = RoomLimits(at_once=at_once, messages=max_messages)
    budget = Budget(usd=budget_usd, tokens=budget_tokens)
    chat = open_chat(typer.echo, model, base_url, local, context, guided)
    table = Agents(chat, out, sampling=sampling, limits=limits, budget=budget, keep_all=keep_all)
    if local:
        typer.echo("A tiny model for trying things out: held to the format, what it says is mostly nonsense.")

    def ready(link: str) -> None:
        typer.echo(f"{table.name} talks at {link}")
        typer.echo(f"What is saved goes to {table.folder.address}. Ctrl-C stops it.")

    serve(
        [table.folder.address, *(runs or [])],
        host=host,
        port=port,
        allow_hosts=allow_host or (),
        frames=frame_in or (),
        public=public,
        agents=table,
        open_browser=open_browser,
        ready=ready,
    )
