"""`camel explore`: read, find and watch runs in the browser."""

from __future__ import annotations

from typing import Annotated

import typer


def explore(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN…",
            help="Runs' folders, s3://bucket/prefix, a folder of runs, or files of the original's formats.",
        ),
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8090,
    host: Annotated[
        str, typer.Option(help="Address to listen on; on any but this machine's own a token is needed.")
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A further name under which this machine is reached, e.g. through a proxy."
        ),
    ] = None,
    open_browser: Annotated[
        bool | None, typer.Option("--open/--no-open", help="Open a browser; by default where a terminal is.")
    ] = None,
) -> None:
    """Explore runs in the browser until Ctrl-C. Needs the extra `explore`."""
    from camel.core.errors import MissingExtra

    try:
        from camel.explorer.serving import can_open, serve
    except ImportError as error:
        raise MissingExtra(f"The explorer ({error.name})", "explore") from None
    from camel.generation.status import find_runs

    found = [one for run in runs for one in (find_runs(run) or [run])]

    def ready(link: str) -> None:
        typer.echo(f"{len(found):,} {'run' if len(found) == 1 else 'runs'} at {link}")
        typer.echo("Ctrl-C stops it.")

    serve(
        found,
        host=host,
        port=port,
        allow_hosts=allow_host or (),
        open_browser=can_open() if open_browser is None else open_browser,
        ready=ready,
    )
