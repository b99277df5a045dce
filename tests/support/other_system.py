"""`python -m tests.support.other_system macos|windows ARGS…`: the `camel` command without what that system lacks.

This shows what CAMEL itself asks of the system. It does not show how another system's Python or file system behaves.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from importlib.abc import MetaPathFinder
from typing import Any

LACKING: dict[str, dict[str, tuple[str, ...]]] = {
    "macos": {"time": ("CLOCK_BOOTTIME",), "os": ("fdatasync",)},
    "windows": {
        "time": ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC", "clock_gettime"),
        "os": ("fdatasync", "fork", "O_NOFOLLOW", "O_DIRECTORY", "O_CLOEXEC", "O_NONBLOCK", "killpg", "setsid", "getuid"),
        "signal": ("SIGHUP", "SIGKILL", "SIGUSR1", "SIGPROF", "pthread_sigmask", "sigwait", "setitimer"),
        "": ("fcntl", "termios", "resource", "pwd", "grp", "pty", "tty"),
    },
}  # fmt: skip


class Missing(MetaPathFinder):
    """Finds no module of these names."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name in self._names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def main() -> None:
    lacking = LACKING[sys.argv.pop(1)]
    for module in (time, os, signal):
        for name in lacking.get(module.__name__, ()):
            delattr(module, name)
    for name in lacking.get("", ()):
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Missing(lacking.get("", ())))
    from camel.cli import main as camel

    camel()


if __name__ == "__main__":
    main()
