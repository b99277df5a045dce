"""Run `camel` commands and Python code in this process, with the folder, environment, streams and exit status of a new one.

Starting an interpreter and importing everything again costs a second or more per command. Use a real process only where
a signal, a terminal or the process itself is the subject.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import functools
import inspect
import io
import os
import runpy
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple
from unittest import mock

from typer.main import get_command as _get_command
from typer.testing import CliRunner


class Done(NamedTuple):
    """What a finished process leaves behind."""

    status: int
    stdout: str
    stderr: str


def camel(*arguments: str, folder: Path, environment: Mapping[str, str] | None = None) -> Done:
    """Run a command of the command line. Standard input is empty."""
    from camel.cli import main

    with mock.patch("typer.main.get_command", return_value=parser()):
        return _finish(["camel", *arguments], main, folder, environment, "default")


def invoke(words: Sequence[str], **options: Any) -> Any:
    """Run a command by Typer's runner, in this folder; `options` are those of `CliRunner.invoke`."""
    from camel.cli import app

    with mock.patch("typer.testing._get_command", return_value=parser()):
        return CliRunner().invoke(app, words, **options)


@functools.cache
def parser() -> Any:
    """The parser of all commands, made once per test process: it takes a tenth of a second."""
    from camel.cli import app

    return _get_command(app)


def python(source: str, *, folder: Path, environment: Mapping[str, str] | None = None) -> Done:
    """Run a piece of code as `python -W error -c` would; `await` is allowed, as in a notebook."""
    names: dict[str, Any] = {"__name__": "__main__"}
    code = compile(source, "<block>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)

    def run() -> None:
        if inspect.iscoroutine(awaiting := eval(code, names)):
            asyncio.run(awaiting)

    return _finish(["-c"], run, folder, environment, "error")


def script(path: Path, *arguments: str, folder: Path, environment: Mapping[str, str] | None = None) -> Done:
    """Run a file as `python -W error FILE` would."""
    return _finish(
        [str(path), *arguments],
        lambda: runpy.run_path(str(path), run_name="__main__"),
        folder,
        environment,
        "error",
    )


def _finish(
    argv: list[str],
    run: Callable[[], object],
    folder: Path,
    environment: Mapping[str, str] | None,
    on_warning: Literal["default", "error"],
) -> Done:
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)]
    status = 0
    with (
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, environment or {}),
        mock.patch.object(sys, "argv", argv),
        Path(os.devnull).open() as nothing,
        mock.patch.object(sys, "stdin", nothing),
        contextlib.redirect_stdout(streams[0]),
        contextlib.redirect_stderr(streams[1]),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter(on_warning)
        try:
            run()
        except SystemExit as left:
            status = left.code if isinstance(left.code, int) else int(left.code is not None)
    stdout, stderr = (stream.buffer.getvalue().decode() for stream in streams)  # type: ignore[attr-defined]
    return Done(status, stdout, stderr)
