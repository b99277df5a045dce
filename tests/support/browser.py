"""Pages in a real browser: Debian's chromium driven by Playwright, and `camel explore` as a user starts it."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


def chromium() -> str | None:
    """Debian's chromium. Its headless shell takes half the CPU time of the whole browser."""
    return shutil.which("chromium-headless-shell") or shutil.which("chromium")


class Server:
    """`camel explore` as a user starts it."""

    def __init__(self, *runs: Path, port: int = 0, options: tuple[str, ...] = ()) -> None:
        command = [
            sys.executable,
            "-m",
            "camel",
            "explore",
            *map(str, runs),
            "--no-open",
            "--no-token",
            "--port",
            str(port),
            *options,
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout
        line = self.process.stdout.readline()
        found = re.search(r"at (http://\S+)", line)
        if not found:
            self.stop()
            raise AssertionError(line + (self.process.stderr.read() if self.process.stderr else ""))
        self.link = found[1]
        self.url = self.link.partition("?")[0].rstrip("/")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            for stream in (self.process.stdout, self.process.stderr):
                if stream:
                    stream.close()


class Serves(Protocol):
    """A server of pages."""

    url: str


class Reader:
    """A page of the browser that takes note of all that must not happen."""

    def __init__(self, browser: Any, server: Serves, **options: Any) -> None:
        self.context = browser.new_context(
            base_url=server.url, viewport={"width": 1280, "height": 900}, **options
        )
        self.context.set_default_timeout(120_000)  # of milliseconds; on a machine that others use, too
        self.page = self.context.new_page()
        self.wrong: list[str] = []
        self.page.on(
            "console", lambda m: self.wrong.append(m.text) if m.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.wrong.append("dialog"), dialog.dismiss()))
        self.page.on(
            "request",
            lambda r: None if r.url.startswith(server.url) else self.wrong.append(f"request {r.url}"),
        )

    def go(self, path: str) -> Any:
        answer = self.page.goto(path, wait_until="load")
        assert answer is not None
        return answer

    def close(self) -> None:
        self.context.close()
        assert self.wrong == []
