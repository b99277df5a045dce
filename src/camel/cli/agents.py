"""`camel agents`: let agents converse in the browser, and take a seat yourself."""

from __future__ import annotations

from typing import Annotated

import typer

from camel.cli import options as shared
from camel.cli.options import argument, complete_runs, flag
from camel.core.errors import MissingExtra

CONCURRENCY, MESSAGES = 4, 40

RunsArgument = Annotated[list[str] | None, argument("RUN", "Other runs to show in the same web app.", autocompletion=complete_runs)]  # fmt: skip


def agents(
    runs: RunsArgument = None,
    out: shared.Out = "runs/agents",
    model: shared.ModelName = "",
    base_url: shared.BaseUrl = "",
    local: shared.Local = False,
    temperature: shared.Temperature = None,
    max_tokens: shared.MaxTokens = None,
    context: shared.Context = None,
    guided: shared.Guided = "",
    max_messages: shared.MaxMessages = MESSAGES,
    concurrency: shared.Concurrency = CONCURRENCY,
    budget_tokens: shared.BudgetTokens = 1_000_000,
    budget_usd: shared.BudgetUsd = None,
    keep_all: Annotated[bool, flag("--keep-all", "Save every conversation when it ends.")] = False,
    port: shared.Port = 8091,
    host: shared.Host = "127.0.0.1",
    allow_host: shared.AllowHost = None,
    frame_in: shared.FrameIn = None,
    public: shared.Public = False,
    no_token: shared.NoToken = False,
    open_browser: shared.OpenBrowser = None,
) -> None:
    """Watch agents in the browser, or play one of them yourself."""
    from camel.cli.session import SMALL_MODEL, open_chat, read_sampling

    try:
        from camel.explorer.app import serve
        from camel.explorer.rooms import Agents, RoomLimits
    except ImportError as error:
        raise MissingExtra(f"The agents app ({error.name})", "explore") from None
    from camel.jobs.budget import Budget

    local = local or model == "local"
    sampling = read_sampling(local, temperature, max_tokens, most=1024)
    limits = RoomLimits(at_once=concurrency or CONCURRENCY, messages=max_messages or MESSAGES)
    budget = Budget(usd=budget_usd, tokens=budget_tokens)
    chat = open_chat(typer.echo, model, base_url, local, context, guided)
    options = ["--local"] if local else [f"--model={model or chat.name}"]
    options += [f"--base-url={base_url}"] if base_url else []
    table = Agents(
        chat,
        out,
        sampling=sampling,
        limits=limits,
        budget=budget,
        keep_all=keep_all,
        fork_options=options,
    )
    if local:
        typer.echo(SMALL_MODEL)

    def ready(link: str, runs: int) -> None:
        typer.echo(f"{table.name} is ready at {link}")
        typer.echo(f"Saved conversations go to {table.folder.address}. Press Ctrl-C to stop.")

    serve(
        runs or [],
        host=host,
        port=port,
        allow_hosts=allow_host or (),
        frames=frame_in or (),
        public=public,
        needs_token=not no_token,
        agents=table,
        open_browser=open_browser,
        ready=ready,
    )
