"""`camel demo`: the explorer on conversations that come with CAMEL, or on a tiny run with the real local model."""

from __future__ import annotations

import shlex
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from camel.cli.options import OpenBrowser, Port, argument, flag, option
from camel.core.errors import InputError

NEEDED = {False: ("explore",), True: ("local", "explore")}
"""The extras that `camel demo` needs, by whether `--live` is given."""
INTRO = (
    "Agents in roles work on a task. A large language model wrote these conversations through CAMEL's own loop, "
    "and eight of them fail on purpose, because failures are what researchers study."
)


def demo(
    context: typer.Context,
    folder: Annotated[Path, argument("FOLDER", "Folder to copy the conversations to.")] = Path("camel-demo"),
    live: Annotated[
        bool, flag("--live", "Generate three short conversations with SmolLM2-135M on this machine instead.")
    ] = False,
    port: Port = 0,
    open_browser: OpenBrowser = None,
    explore: Annotated[
        bool, option("Start the web app that shows the conversations; --no-explore only writes the files.")
    ] = True,
) -> None:
    """Open about 30 example conversations, offline."""
    from camel.cli.explore import open_explorer

    _check_extras(live)
    runs = _generated(context, folder) if live else _gallery(folder / "gallery")
    if explore:
        open_explorer([runs], port=port, open_browser=open_browser, intro="" if live else INTRO)


def _gallery(folder: Path) -> str:
    """Copy the example conversations to `folder`, print how to generate your own, and return the folder."""
    from camel.library.run import open_gallery

    runs = open_gallery(folder)
    typer.echo(f"{sum(map(len, runs.values()))} conversations in {folder}; its README.md describes them.")
    typer.echo("Make your own: camel play --local, or camel demo --live, or with your model: camel init")
    return str(folder)


def _generated(context: typer.Context, folder: Path) -> str:
    """Generate conversations with the local model and return the folder of the new run."""
    from camel.cli.command import Invocation
    from camel.cli.generate import start
    from camel.generation.config import read_config
    from camel.generation.init import write_demo

    config = write_demo(folder)
    settings = read_config(config).adjusted(local=True)
    typer.echo(f"{config} and {config.parent / 'scenario'} are yours to change")
    how = Invocation(context=context)
    options = how.options(settings.run.concurrency, resume=f"camel generate {shlex.quote(str(config))}")
    start(how, settings, options)
    typer.echo(
        "The model is tiny: a grammar keeps its format right, but what it says is mostly nonsense. "
        "camel init sets up a capable one."
    )
    return settings.where


def _check_extras(live: bool) -> None:
    """Raise an `InputError` that names the missing packages if an extra is not installed."""
    from camel.doctor.machine import PACKAGE, missing_of

    try:
        requirements = metadata.requires(PACKAGE) or []
    except metadata.PackageNotFoundError:
        return  # used from its folder: each part names what it needs
    lacking = {extra: missing for extra in NEEDED[live] if (missing := missing_of(extra, requirements)[0])}
    if lacking:
        packages = ", ".join(name for missing in lacking.values() for name in missing)
        extras = ",".join(lacking)
        raise InputError(f"camel demo needs {packages}: pip install 'camel-society[{extras}]'")
