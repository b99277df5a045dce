"""Runs a conversation on the terminal for `camel play` and `camel society`, and saves it however it ends."""

from __future__ import annotations

import asyncio
import errno
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryFile
from types import FrameType
from typing import Any

import typer

from camel.cli.keyboard import disable_echo
from camel.cli.output import visible
from camel.cli.screen import Screen
from camel.core.errors import InputError, ModelError
from camel.core.message import Message, Sampling
from camel.core.model import Model
from camel.core.play import Play
from camel.core.role_playing import AGENT_SAMPLING
from camel.core.transcript import Transcript
from camel.models.local import LOCAL, LOCAL_SAMPLING
from camel.models.person import PERSON
from camel.models.spec import ModelSpec, find_spec
from camel.storage.files import replacing

_REASONS = {
    signal.Signals[name]: reason
    for name, reason in {
        "SIGINT": "you stopped it",
        "SIGTERM": "the process was terminated (SIGTERM)",
        "SIGHUP": "the terminal was closed (SIGHUP)",
    }.items()
    if hasattr(signal, name)  # Windows has no SIGHUP
}


class SignalHandler:
    """Ends the conversation on Ctrl-C, SIGTERM or a closed terminal, so that its transcript is saved before the process exits.

    The first signal cancels `task`, the next one interrupts at once. `intercept` may handle Ctrl-C in another way; it returns
    whether it did."""

    def __init__(self, intercept: Callable[[], bool]) -> None:
        self._intercept = intercept
        self._before: dict[signal.Signals, Any] = {}
        self.task: asyncio.Task[Any] | None = None
        self._pending = False
        """Whether a signal has arrived that the event loop has not handled yet."""
        self.received: signal.Signals | None = None
        """The signal that ended the conversation."""

    def __enter__(self) -> SignalHandler:
        self._before = {number: signal.signal(number, self._receive) for number in _REASONS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def ignore(self) -> None:
        """Ignore further signals: the remaining work is short and must finish."""
        for number in _REASONS:
            signal.signal(number, signal.SIG_IGN)

    @property
    def reason(self) -> str:
        """Why the conversation ended."""
        return _REASONS[self.received or signal.SIGINT]

    @property
    def exit_status(self) -> int:
        """The exit status of the process, following the convention of shells."""
        return 128 + (self.received or signal.SIGINT)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        first, ended = self.received is None, self.task is not None and self.task.done()
        if first and not ended and self.task is not None and not self._pending:
            self._pending = True
            # Not here: the signal may interrupt a write to the terminal, and handling it writes to the terminal too.
            self.task.get_loop().call_soon_threadsafe(self._handle, signal.Signals(number))
            return
        self.received = self.received or signal.Signals(number)
        if first and ended:
            return  # the remaining work is short and saves the transcript
        raise KeyboardInterrupt

    def _handle(self, number: signal.Signals) -> None:
        self._pending = False
        if number == signal.SIGINT and self._intercept():
            return
        self.received = number
        if self.task is not None:
            self.task.cancel()


HUNG_UP = 129
"""Exit status after the terminal was closed. Nothing is printed in that case."""
SMALL_MODEL = "SmolLM2-135M on this machine is for trying things out: the format of its replies is right, their content rarely is."


def run_session(
    play: Play,
    chat: Model,
    screen: Screen,
    *,
    files: Sequence[Path] = (),
    show_prompts: bool = False,
    show_reasoning: bool = False,
    on_start: Callable[[], None] = lambda: None,
    on_message: Callable[[Message], None] | None = None,
    intercept: Callable[[], bool] = lambda: False,
    people: bool = False,
) -> int:
    """Run and show a conversation, and write its transcript to `files` even if it fails. Return the exit status.

    `on_start` is called before the first message, `on_message` with each message. `intercept` is called on Ctrl-C and returns
    whether it handled it. If `people` is true, the files are written after every message.
    """

    def save() -> None:
        for path in files:
            _write(path, play.transcript)

    async def converse() -> None:
        signals.task = asyncio.current_task()
        async with chat:
            conversation = await play.prepare()
            screen.end_message()
            on_start()
            if show_prompts:
                screen.prompts(play.transcript)
            async for message in conversation:
                on_message(message) if on_message else _show_critic(screen, message)
                if show_reasoning and message.reasoning:
                    screen.note(f"  reasoning: {message.reasoning}\n")
                if people:
                    # A full disk is reported at the end and does not stop the conversation.
                    with suppress(OSError):
                        save()

    started, code = time.monotonic(), 0
    with SignalHandler(intercept) as signals:
        try:
            try:
                with disable_echo() if people else nullcontext():
                    asyncio.run(converse())
            except (KeyboardInterrupt, asyncio.CancelledError):
                play.end(signals.reason)
                code = signals.exit_status
            except ModelError as error:
                play.end(f"{type(error).__name__}: {error}", "error")
                typer.echo(f"camel: {visible(str(error))}", err=True)
                code = 1
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                play.end("the terminal was closed")
                code = HUNG_UP
            if code != HUNG_UP:
                screen.end_message()
                screen.summary(play.transcript, time.monotonic() - started)
        finally:
            # Whatever happens to the terminal, such as a closed pipe, the transcript is saved.
            signals.ignore()
            save()
    if code != HUNG_UP:
        for path in files:
            screen.note(f"  saved {path}")
    return code


def _show_critic(screen: Screen, message: Message) -> None:
    screen.end_message()
    if not (message.deliberation and message.deliberation.critic == PERSON):
        screen.deliberation(message)


def open_chat(
    say: Callable[[str], None],
    model: str,
    base_url: str,
    local: bool,
    context: int | None,
    guided: str = "",
    dialect: str = "",
) -> Model:
    """Return the model that the options name, ready for its first call."""
    guide = read_guide(guided or ("llama.cpp" if local else ""))
    settings: dict[str, Any] = {"context_tokens": context, "guided": guide, "dialect": dialect}
    spec = ModelSpec(LOCAL, **settings) if local else find_spec(model, base_url=base_url, **settings)
    spec.prepare(say)
    return spec.open(None, max_attempts=4)


def warn_small_model(screen: Screen) -> None:
    """Tell the user what to expect of the small model."""
    screen.note(f"{SMALL_MODEL} For real work, set OPENAI_API_KEY or --base-url.\n", "yellow")


def read_sampling(
    local: bool,
    temperature: str | None,
    max_tokens: int | None,
    *,
    seed: int | None = None,
    most: int | None = None,
) -> Sampling:
    """Return the sampling settings of the options. Defaults are the paper's, or those of the local model. `most` limits the
    reply's tokens if neither the option nor the default does."""
    default = LOCAL_SAMPLING if local else AGENT_SAMPLING
    return Sampling(
        temperature=default.temperature if temperature is None else read_temperature(temperature),
        max_tokens=(default.max_tokens or most) if max_tokens is None else max_tokens,
        seed=seed,
    )


def read_guide(text: str) -> Any:
    """Return the value of `--guided`, or raise an error if it is unknown."""
    if text in ("", "off"):
        return None
    if text not in ("llama.cpp", "vllm", "openai"):
        raise InputError(f"--guided must be llama.cpp, vllm, openai or off, not {text!r}")
    return text


def read_temperature(text: str) -> float | None:
    """Return the value of `--temperature`, or raise an error if it is invalid."""
    if text == "default":
        return None
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--temperature must be a number or 'default', not {text!r}") from None


def check_file(path: Path) -> Path:
    """Return `path`, or raise an `InputError` if it cannot be written. Called before the first paid call."""
    if path.suffix not in (".json", ".md"):
        raise InputError(f"--save needs a file that ends in .json or .md, not {path.name!r}")
    try:
        if path.is_dir():
            raise IsADirectoryError("it is a folder")
        with TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise InputError(f"--save cannot write '{path}': {error.strerror or error}") from None
    return path


def _write(path: Path, transcript: Transcript) -> None:
    """Write the transcript to a temporary file, then replace `path` by it."""
    data = transcript.to_json() if path.suffix == ".json" else transcript.to_markdown().encode()
    with replacing(path) as file:
        file.write(data)
