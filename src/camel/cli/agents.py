"""`camel agents`: let agents converse in the browser, and take a seat yourself."""

from __future__ import annotations

from typing import Annotated

import typer

from camel.cli.completion import runs as complete_runs
from camel.cli.help import defaults
from camel.cli.options import (
    AllowHost,
    BaseUrl,
    BudgetTokens,
    BudgetUsd,
    Concurrency,
    Context,
    FrameIn,
    Guided,
    Host,
    Local,
    MaxMessages,
    MaxTokens,
    ModelName,
    OpenBrowser,
    Out,
    Port,
    Public,
    Temperature,
    argument,
    flag,
)
from camel.core.errors import MissingExtra

CONCURRENCY, MESSAGES = 4, 40


@defaults(temperature="0.2, or 0.8 with --local", max_tokens="1024, or 160 with --local")
def agents(
    runs: Annotated[
        list[str] | None,
        argument("RUN", "More runs to show in the same app.", autocompletion=complete_runs),
    ] = None,
    out: Out = "runs/agents",
    model: ModelName = "",
    base_url: BaseUrl = "",
    local: Local = False,
    temperature: Temperature = None,
    max_tokens: MaxTokens = None,
    context: Context = None,
    guided: Guided = "",
    max_messages: MaxMessages = MESSAGES,
    concurrency: Concurrency = CONCURRENCY,
    budget_tokens: BudgetTokens = 1_000_000,
    budget_usd: BudgetUsd = None,
    keep_all: Annotated[
        bool, flag("--keep-all", "Save every conversation, not only those saved in the browser.")
    ] = False,
    port: Port = 8091,
    host: Host = "127.0.0.1",
    allow_host: AllowHost = None,
    frame_in: FrameIn = None,
    public: Public = False,
    open_browser: OpenBrowser = None,
) -> None:
    """Let agents converse in the browser, or take a seat there.

    Choose roles and a task, watch the conversation, speak for one of them, and save it to the run that --out names. The
    budget covers all conversations until you stop the command with Ctrl-C. Needs the extra `explore`.

    Example: camel agents --local
    """
    from camel.cli.session import SMALL_MODEL, open_chat, read_sampling

    try:
        from camel.explorer.rooms import Agents, RoomLimits
        from camel.explorer.serving import serve
    except ImportError as error:
        raise MissingExtra(f"The agents app ({error.name})", "explore") from None
    from camel.jobs.budget import Budget

    local = local or model == "local"
    sampling = read_sampling(local, temperature, max_tokens, most=1024)
    limits = RoomLimits(at_once=concurrency or CONCURRENCY, messages=max_messages or MESSAGES)
    budget = Budget(usd=budget_usd, tokens=budget_tokens)
    chat = open_chat(typer.echo, model, base_url, local, context, guided)
    table = Agents(chat, out, sampling=sampling, limits=limits, budget=budget, keep_all=keep_all)
    if local:
        typer.echo(SMALL_MODEL)

    def ready(link: str) -> None:
        typer.echo(f"{table.name} is ready at {link}")
        typer.echo(f"Saved conversations go to {table.folder.address}. Press Ctrl-C to stop.")

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
