"""`camel push`: upload a dataset to the Hugging Face hub."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from camel.cli.options import DryRun, argument, flag
from camel.cli.output import visible
from camel.core.errors import InputError


def push(
    folder: Annotated[
        Path, argument("FOLDER", "Folder that `camel export RUN dataset` or `camel rows` wrote.")
    ],
    repo: Annotated[
        str, argument("OWNER/NAME", "Name of the dataset on the hub; created if it does not exist.")
    ],
    private: Annotated[bool, flag("--private", "Make a new dataset private.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Upload a dataset to the Hugging Face hub."""
    from camel.formats.push import plan_upload, push_dataset
    from camel.reports.numbers import counted

    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repo, re.ASCII):
        raise InputError(f"the name of a dataset must be OWNER/NAME, not {repo!r}")
    if not dry_run:
        typer.echo(push_dataset(folder, repo, private=private))
        return
    upload = plan_upload(folder)
    what = f"{counted(len(upload.files), 'file')}, {sum(upload.files.values()):,} bytes"
    typer.echo(f"would upload {what}, to {repo}{' (private if it is new)' if private else ''}:")
    for name, size in upload.files.items():
        typer.echo(f"{size:>15,}  {visible(name)}")
    for name, value in upload.card.items():
        typer.echo(f"{name.replace('_', ' ')}: {visible(value)}")
    typer.echo(f"access: {'only readers that you approve' if upload.gated else 'not gated'}")
