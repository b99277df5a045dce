"""Starts a training in this process, in several processes on this machine, or on a Ray cluster.

With several devices, every process calls `train`, and the first one writes the files.

The one decision to know: this process watches and stops the others through the training's folder. It reads the progress
file as it grows, and creates a file `stop`, after which the processes stop at the end of a step. This works in the same way
on this machine and on a cluster, whose nodes share the folder.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import msgspec

from camel.core.errors import CamelError, InputError
from camel.training.config import TrainConfig
from camel.training.train import PROGRESS, Step, Trained, finished, prepared, train
from camel.training.weights import need

STOP, LOG = "stop", "launch.log"
LOOK_EVERY = 0.5
"""Seconds between two reads of the training's progress file."""


class ProcessesFailed(CamelError):
    """The processes of a training ended without a result."""


def launched(
    config: TrainConfig,
    *,
    notice: Callable[[Step], None] = lambda step: None,
    stop: Callable[[], bool] = lambda: False,
    gguf: bool = True,
    address: str = "",
) -> Trained | None:
    """Train like `train`. With several devices or an `address`, start `config.devices` processes, here or on that Ray cluster."""
    if "WORLD_SIZE" in os.environ or (config.devices == 1 and not address):
        return train(config, notice=notice, stop=stop, gguf=gguf)
    prepared(config, gguf=gguf)
    if (done := finished(config)) is not None:
        return done
    with _following(Path(config.out), notice, stop):
        if address:
            from camel.engine.ray.torch import fit

            given = {"config": msgspec.to_builtins(config), "gguf": gguf, "folder": str(Path.cwd())}
            storage = str(Path(config.out).resolve())
            fit(on_a_cluster, given, address=address, workers=config.devices, storage=storage)
        else:
            _train_here(config, gguf)
    return finished(config)


def command(config: TrainConfig, *, gguf: bool = True) -> list[str]:
    """Return the command that starts the training processes on this machine. For more machines, add torchrun's options."""
    given = msgspec.json.encode({"config": config, "gguf": gguf}).decode()
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    return [*launcher, str(config.devices), "--module", "camel.training.launch", given]


def _train_here(config: TrainConfig, gguf: bool) -> None:
    path = Path(config.out) / LOG
    threads = max(1, (os.cpu_count() or 1) // config.devices)
    with path.open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - our own arguments
            command(config, gguf=gguf),
            env={"OMP_NUM_THREADS": str(threads), **os.environ},
            stdin=subprocess.PIPE,  # held open, so that they end when this process ends for any reason
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # only this process handles Ctrl-C
        )
        try:
            code = process.wait()
        finally:
            process.terminate()
            process.wait()
    if code:
        raise ProcessesFailed(f"{_last_error(path)} (the full output is in {path})")


def _last_error(path: Path) -> str:
    """Return the last error message of CAMEL in a log file. If there is none, return the last line."""
    lines = [line for line in path.read_text("utf-8", errors="replace").splitlines() if line.strip()]
    own = [line.partition(_PREFIX)[2] for line in lines if _PREFIX in line]
    return (own or lines or ["the training processes ended without output"])[-1].strip()[:300]


_PREFIX = "camel: "


def on_a_cluster(given: dict[str, Any]) -> None:
    """Train in a worker process of a Ray cluster. It changes to the working directory of the process that started the
    training."""
    try:
        os.chdir(given["folder"])
    except OSError:
        raise InputError(
            f"this node cannot open {given['folder']}. Start the training in a folder that all nodes share"
        ) from None
    _work(msgspec.convert(given["config"], TrainConfig), bool(given["gguf"]))


def _work(config: TrainConfig, gguf: bool) -> None:
    asked = Path(config.out) / STOP
    train(config, stop=asked.exists, gguf=gguf)


@contextlib.contextmanager
def _following(out: Path, notice: Callable[[Step], None], stop: Callable[[], bool]) -> Generator[None]:
    """Call `notice` for each new step in the progress file, and create the stop file when `stop` returns true."""
    progress, asked, over = out / PROGRESS, out / STOP, threading.Event()
    asked.unlink(missing_ok=True)
    place = progress.stat().st_size if progress.is_file() else 0

    def look() -> None:
        nonlocal place
        if stop():
            asked.touch()
        if not progress.is_file():
            return
        with progress.open("rb") as file:
            file.seek(place)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                place += len(line)
                notice(msgspec.json.decode(line, type=Step))

    def follow() -> None:
        while not over.wait(LOOK_EVERY):
            look()

    thread = threading.Thread(target=follow, name="follow", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        look()
        asked.unlink(missing_ok=True)


def _exit_with_parent() -> None:
    def watch() -> None:
        while os.read(0, 1024):  # sys.stdin would hold its lock when the interpreter ends
            pass
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _main(given: str) -> int:
    class Given(msgspec.Struct):
        config: TrainConfig
        gguf: bool

    asked = msgspec.json.decode(given, type=Given)
    _exit_with_parent()
    try:
        _work(asked.config, asked.gguf)
    except CamelError as error:
        sys.stderr.write(f"{_PREFIX}{error}\n")
        return 1
    finally:
        distributed = need("torch").distributed
        if distributed.is_initialized():
            distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))
