"""`camel demo`: a tiny run with the real local model, then the explorer opens on it."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from camel.cli.options import OpenBrowser, Port, argument, option
from camel.core.errors import InputError

NEEDED = ("local", "explore")


def demo(
    context: typer.Context,
    folder: Annotated[
        Path, argument("FOLDER", "Folder for the scenario, the configuration and the run.")
    ] = Path("camel-demo"),
    port: Port = 0,
    open_browser: OpenBrowser = None,
    explore: Annotated[bool, option("Open the explorer on the finished run.")] = True,
) -> None:
    """Generate three short conversations and explore them."""
    from camel.cli.command import Invocation
    from camel.cli.explore import explore as open_explorer
    from camel.cli.generate import start
    from camel.generation.config import read_config
    from camel.generation.init import write_demo

    _check_extras()
    config = write_demo(folder)
    settings = read_config(config).adjusted(local=True)
    run = settings.where
    typer.echo(f"{config} and {config.parent / 'scenario'} are yours to change")
    how = Invocation(context=context)
    options = how.options(settings.run.concurrency, resume=f"camel generate {config}")
    start(how, settings, options)
    typer.echo(
        "A tiny model: held to the format, what it says is mostly nonsense. camel init sets up a capable one."
    )
    if explore:
        open_explorer([run], port=port, open_browser=open_browser)


def _check_extras() -> None:
    """Say exactly what is missing before anything is begun."""
    from camel.doctor.machine import PACKAGE, missing_of

    try:
        requirements = metadata.requires(PACKAGE) or []
    except metadata.PackageNotFoundError:
        return  # used from its folder: each part says what it lacks
    lacking = {extra: missing for extra in NEEDED if (missing := missing_of(extra, requirements)[0])}
    if lacking:
        packages = ", ".join(name for missing in lacking.values() for name in missing)
        extras = ",".join(lacking)
        raise InputError(f"camel demo lacks {packages}: pip install 'camel-society[{extras}]'")
