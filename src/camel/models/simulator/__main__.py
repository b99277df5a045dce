"""`python -m camel.models.simulator`: serve until SIGTERM, SIGINT or the end of standard input."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys

import msgspec

from camel.models.simulator.server import Simulator, SimulatorProcess
from camel.models.simulator.settings import SimulatorSettings


def main() -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(
        prog="python -m camel.models.simulator",
        description="A simulated OpenAI-compatible endpoint on 127.0.0.1.",
    )
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 chooses a free one")
    parser.add_argument("--settings", default="{}", help="SimulatorSettings as JSON")
    options = parser.parse_args()
    try:
        settings = msgspec.json.decode(options.settings, type=SimulatorSettings)
    except msgspec.DecodeError as problem:
        parser.error(f"--settings: {problem}")
    try:
        asyncio.run(_serve(settings, options.port))
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        parser.exit(
            2,
            f"simulator: cannot listen on 127.0.0.1 port {options.port}: {reason}: choose another with --port\n",
        )


async def _serve(settings: SimulatorSettings, port: int) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    _stop_at_end_of_input(loop, stop)
    async with Simulator(settings, port=port) as simulator:
        ready = SimulatorProcess(simulator.url, simulator.base_url, os.getpid())
        sys.stdout.write(msgspec.json.encode(ready).decode() + "\n")
        sys.stdout.flush()
        await stop.wait()


def _stop_at_end_of_input(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    source = sys.stdin.fileno()

    def read() -> None:
        if not os.read(source, 4096):
            loop.remove_reader(source)
            stop.set()

    # /dev/null or a file: there is no parent at the other end, so only a signal stops the server.
    with contextlib.suppress(PermissionError):
        loop.add_reader(source, read)


if __name__ == "__main__":
    main()
