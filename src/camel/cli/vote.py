"""`camel vote`: people compare two solutions without knowing whose they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from camel.explorer.vote.serving import Links


def vote(
    pairs: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="An evaluation's folder, or a file of pairs (.jsonl).")
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8091,
    host: Annotated[
        str, typer.Option(help="Address to listen on; on any but this machine's own people come by links.")
    ] = "127.0.0.1",
    url: Annotated[
        str,
        typer.Option(metavar="URL", help="The address that voters open, where a proxy stands before this."),
    ] = "",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A further name under which this machine is reached."),
    ] = None,
    invite: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Print a link for this voter; repeatable.")
    ] = None,
    open_browser: Annotated[
        bool | None, typer.Option("--open/--no-open", help="Open a browser; by default where a terminal is.")
    ] = None,
) -> None:
    """Have people vote on pairs of solutions in the browser until Ctrl-C. Needs the extra `explore`."""
    from camel.core.errors import MissingExtra

    try:
        from camel.explorer.serving import can_open
        from camel.explorer.vote.serving import serve
    except ImportError as error:
        raise MissingExtra(f"Voting in the browser ({error.name})", "explore") from None

    def ready(links: Links) -> None:
        typer.echo(f"{links.pairs:,} {'pair' if links.pairs == 1 else 'pairs'} to vote on at {links.anybody}")
        for name, link in links.own.items():
            typer.echo(f"for {name}: {link}")
        typer.echo(f"Ctrl-C stops it, and the same command goes on. Results: camel vote {pairs} --results")

    serve(
        pairs,
        host=host,
        port=port,
        url=url,
        allow_hosts=allow_host or (),
        invite=invite or (),
        open_browser=can_open() if open_browser is None else open_browser,
        ready=ready,
    )
