"""The `camel` command in this process, for tests that look at its output, its exit status and its files."""

from __future__ import annotations

from pathlib import Path

from tests.support import in_process


def camel(*args: str, cwd: Path, **environment: str) -> in_process.Done:
    """Run `camel ARGS` in `cwd`. A warning fails the test, as `python -W error` would."""
    done = in_process.camel(*args, folder=cwd, environment={"COLUMNS": "80", **environment})
    assert "Warning: " not in done.stderr, done.stderr
    return done
