"""Starting a training where its configuration says: in this process, in several on this machine, or on a Ray cluster.

Over several devices every process makes the same call of `train`; the first writes. Who starts them, and who follows
them here, is all that differs.

The one decision to know: they are followed, and stopped, through the training's folder. Its progress is read as it is
written, and a file `stop` asks them to stop after a step. So the same holds for processes of this machine and for those
of a cluster, which sees the same folder.
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
from camel.training.train import PROGRESS, finished, prepared, train
from camel.training.trained import Step, Trained
from camel.training.weights import need

STOP, LOG = "stop", "launch.log"
LOOK_EVERY = 0.5
"""Seconds between two looks at how it stands."""


class ProcessesFailed(CamelError):
    """Processes that were started for a training ended without its result."""


def launched(
    config: TrainConfig,
    *,
    notice: Callable[[Step], None] = lambda step: None,
    stop: Callable[[], bool] = lambda: False,
    gguf: bool = True,
    address: str = "",
) -> Trained | None:
    """Train as `train` does, wherever `config.devices` and the `address` of a Ray cluster say."""
    if "WORLD_SIZE" in os.environ or (config.devices == 1 and not address):
        return train(config, notice=notice, stop=stop, gguf=gguf)
    prepared(config, gguf=gguf)
    if (done := finished(config)) is not None:
        return done
    with _followed(Path(config.out), notice, stop):
        if address:
            _on_ray(config, gguf, address)
        else:
            _here(config, gguf)
    return finished(config)


def command(config: TrainConfig, *, gguf: bool = True) -> list[str]:
    """What starts the processes of this machine; on several machines, torchrun's own options say which."""
    given = msgspec.json.encode({"config": config, "gguf": gguf}).decode()
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    return [*launcher, str(config.devices), "--module", "camel.training.launch", given]


def _here(config: TrainConfig, gguf: bool) -> None:
    path = Path(config.out) / LOG
    threads = max(1, (os.cpu_count() or 1) // config.devices)
    with path.open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - our own arguments
            command(config, gguf=gguf),
            env={"OMP_NUM_THREADS": str(threads), **os.environ},
            stdin=subprocess.PIPE,  # held open: they end when this process does, however it does
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is this process's to hear
        )
        try:
            code = process.wait()
        finally:
            process.terminate()
            process.wait()
    if code:
        raise ProcessesFailed(f"{_last_words(path)} (all they said is in {path})")


def _last_words(path: Path) -> str:
    """What a process said of its end, or the last line of them all."""
    lines = [line for line in path.read_text("utf-8", errors="replace").splitlines() if line.strip()]
    own = [line.partition(_SAID)[2] for line in lines if _SAID in line]
    return (own or lines or ["the processes ended without a word"])[-1].strip()[:300]


_SAID = "camel: "


def _on_ray(config: TrainConfig, gguf: bool, address: str) -> None:
    from camel.engine.ray.torch import fit

    given = {"config": msgspec.to_builtins(config), "gguf": gguf, "folder": str(Path.cwd())}
    fit(on_a_cluster, given, address=address, workers=config.devices, storage=str(Path(config.out).resolve()))


def on_a_cluster(given: dict[str, Any]) -> None:
    """What each process of a Ray cluster does: the same, in the same folder as the one who asked for it."""
    try:
        os.chdir(given["folder"])
    except OSError:
        raise InputError(
            f"this node does not see {given['folder']}: a training on a cluster needs a folder that all nodes share"
        ) from None
    _work(msgspec.convert(given["config"], TrainConfig), bool(given["gguf"]))


def _work(config: TrainConfig, gguf: bool) -> None:
    asked = Path(config.out) / STOP
    train(config, stop=asked.exists, gguf=gguf)


@contextlib.contextmanager
def _followed(out: Path, notice: Callable[[Step], None], stop: Callable[[], bool]) -> Generator[None]:
    """Tell of every step that is written meanwhile, and pass on a wish to stop."""
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


def _ends_with_its_parent() -> None:
    def watch() -> None:
        while os.read(0, 1024):  # not through sys.stdin, whose lock would be held when the interpreter ends
            pass
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _main(given: str) -> int:
    class Given(msgspec.Struct):
        config: TrainConfig
        gguf: bool

    asked = msgspec.json.decode(given, type=Given)
    _ends_with_its_parent()
    try:
        _work(asked.config, asked.gguf)
    except CamelError as error:
        sys.stderr.write(f"{_SAID}{error}\n")
        return 1
    finally:
        distributed = need("torch").distributed
        if distributed.is_initialized():
            distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))
