"""`camel play`: one conversation, streamed to the terminal."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from camel.cli.leaving import Leaving
    from camel.cli.screen import Screen
    from camel.cli.seat import CriticSeat
    from camel.core.role_playing import RolePlaying
    from camel.core.transcript import Transcript
    from camel.models.chat import ChatModel
    from camel.models.person import Person

HUNG_UP = 129
"""Exit code when the terminal was closed: there is nobody to tell anything."""


def play(
    assistant: Annotated[
        str, typer.Option(metavar="ROLE", help="Role of the AI assistant.")
    ] = "Python Programmer",
    user: Annotated[
        str, typer.Option(metavar="ROLE", help="Role of the AI user, who instructs.")
    ] = "Stock Trader",
    task: Annotated[
        str, typer.Option(metavar="TEXT", help="What they are to do.")
    ] = "Develop a trading bot for the stock market",
    human: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SEAT",
            help="Take a seat yourself: user, assistant or critic; repeatable. There, type /help.",
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            envvar="CAMEL_MODEL",
            metavar="NAME",
            help="Model name. Left out: what the server serves, or gpt-4.1-mini.",
        ),
    ] = "",
    base_url: Annotated[
        str,
        typer.Option(
            envvar="OPENAI_BASE_URL",
            metavar="URL",
            help="Any OpenAI-compatible endpoint. The key comes from OPENAI_API_KEY.",
        ),
    ] = "",
    local: Annotated[
        bool,
        typer.Option(
            "--local",
            help="Use the tiny real model on this machine, whatever --model and --base-url say; no key.",
        ),
    ] = False,
    temperature: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER", help="0.2 unless given (0.8 with --local); 'default' for the model's own."
        ),
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Longest reply, in tokens.")] = None,
    seed: Annotated[int | None, typer.Option(help="For endpoints that can repeat themselves.")] = None,
    max_messages: Annotated[int, typer.Option(help="Stop after so many messages.")] = 40,
    context: Annotated[
        int | None, typer.Option(help="The model's window in tokens, if it is not known.")
    ] = None,
    guided: Annotated[
        str,
        typer.Option(metavar="SERVER", help="Hold replies to the format: llama.cpp, vllm, openai or off."),
    ] = "",
    critic: Annotated[
        int, typer.Option(metavar="N", help="Let the model choose each message out of so many; 0: no critic.")
    ] = 0,
    specify: Annotated[bool, typer.Option(help="Let the model make the task more specific first.")] = True,
    word_limit: Annotated[int, typer.Option(help="Longest specified task, in words.")] = 50,
    show_prompts: Annotated[
        bool, typer.Option("--show-prompts", help="Print the inception prompts.")
    ] = False,
    save: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Write the transcript here (.json or .md); repeatable."),
    ] = None,
    verbatim: Annotated[
        bool,
        typer.Option(
            "--verbatim", help="With --human: send what you type as it is, without 'Instruction:' around it."
        ),
    ] = False,
    history: Annotated[
        bool, typer.Option(help="With --human: keep what you type for the arrow keys of the next time.")
    ] = True,
) -> None:
    """Let two agents play roles and work on a task, and watch them talk, or take a seat yourself."""
    from rich.console import Console

    from camel.cli.keyboard import keyboard
    from camel.cli.leaving import Leaving
    from camel.cli.screen import Screen
    from camel.cli.seat import CriticSeat, Seat
    from camel.core.critic import PROPOSALS, BestOf
    from camel.core.judge import ModelJudge
    from camel.core.message import Sampling
    from camel.core.role_playing import AGENT_SAMPLING, RolePlaying
    from camel.core.stopping import paper_rules
    from camel.core.task import TaskSpecifier
    from camel.models.connect import connect
    from camel.models.local import LOCAL_SAMPLING
    from camel.models.person import Person

    seats = _checked_seats(human or [])
    files = [_checked_file(path) for path in save or []]
    usual = LOCAL_SAMPLING if local else AGENT_SAMPLING
    sampling = Sampling(
        temperature=usual.temperature if temperature is None else _temperature(temperature),
        max_tokens=usual.max_tokens if max_tokens is None else max_tokens,
        seed=seed,
    )
    if max_messages < 1 or word_limit < 1:
        raise _input_error("--max-messages and --word-limit must be at least 1")
    specifier = TaskSpecifier(
        word_limit, Sampling(temperature=1.0, max_tokens=sampling.max_tokens, seed=seed)
    )
    screen = Screen(Console(highlight=False), {"assistant": assistant, "user": user})
    with ExitStack() as stack:
        chat = (
            _local_model(stack, screen, guided)
            if local
            else connect(
                model, base_url=base_url, context_tokens=context, guided=_guide(guided), max_attempts=4
            )
        )
        seat = Seat(screen, keyboard(keep_history=history)) if seats else None
        people = {
            name: Person(seat.ask, model=chat, verbatim=verbatim) for name in seats - {"critic"} if seat
        }
        person = CriticSeat(seat, screen, chat, critic or PROPOSALS) if seat and "critic" in seats else None
        model_critic = BestOf(judge=ModelJudge(chat, sampling=sampling), proposals=critic) if critic else None
        judge = person or model_critic
        role_playing = RolePlaying(
            assistant=assistant,
            user=user,
            task=task,
            model=people.get("assistant", chat),
            user_model=people.get("user", chat),
            critic=None if "assistant" in seats else judge,
            user_critic=None if "user" in seats else judge,
            sampling=sampling,
            specifier=specifier if specify else None,
            rules=paper_rules(max_messages=max_messages),
            watch=screen.watch,
        )
        handed = [*people.values(), *([person] if person else [])]
        leaving = Leaving(lambda: _take_back(handed, screen))

        def keep() -> None:
            for path in files:
                _write(path, role_playing.transcript)

        with leaving:
            try:
                code = _watch(role_playing, chat, screen, show_prompts, leaving, keep if seats else None)
            finally:
                # Whatever happens to the screen (a closed pipe, say), what was paid for is kept.
                leaving.deafen()
                keep()
    if code == HUNG_UP:
        raise typer.Exit(code)
    for path in files:
        screen.note(f"  saved {path}")
    if code or (seat and seat.interrupted):
        raise typer.Exit(code or 130)


def _watch(
    role_playing: RolePlaying,
    chat: ChatModel,
    screen: Screen,
    show_prompts: bool,
    leaving: Leaving,
    keep: Callable[[], None] | None,
) -> int:
    """Run the conversation on the screen; returns the exit code. `keep` is called after each message."""
    from camel.cli.keyboard import unechoed
    from camel.cli.screen import visible
    from camel.core.errors import ModelError
    from camel.models.person import PERSON

    async def talk() -> None:
        leaving.task = asyncio.current_task()
        async with chat:
            conversation = await role_playing.prepare()
            screen.end_message()
            if show_prompts:
                screen.prompts(role_playing.transcript)
            async for message in conversation:
                screen.end_message()
                if not (message.deliberation and message.deliberation.critic == PERSON):
                    screen.deliberation(message)
                if keep:
                    # A full disk is told at the end, and does not end the conversation.
                    with suppress(OSError):
                        keep()

    started, code = time.monotonic(), 0
    try:
        with unechoed() if keep else nullcontext():
            asyncio.run(talk())
    except (KeyboardInterrupt, asyncio.CancelledError):
        role_playing.end(leaving.words)
        code = leaving.code
    except ModelError as error:
        role_playing.end(f"{type(error).__name__}: {error}", "error")
        typer.echo(f"camel: {visible(str(error))}", err=True)
        code = 1
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        role_playing.end("the terminal is gone")
        code = HUNG_UP
    if code != HUNG_UP:
        screen.end_message()
        screen.summary(role_playing.transcript, time.monotonic() - started)
    return code


def _take_back(people: Iterable[Person | CriticSeat], screen: Screen) -> bool:
    """Give a person the seat back that they handed to the model, if they did."""
    if not sum(person.take_back() for person in people):
        return False
    screen.end_message()
    screen.note("You have the seat back after this message; Ctrl+C again stops.", "yellow")
    return True


def _local_model(stack: ExitStack, screen: Screen, guided: str) -> ChatModel:
    from camel.models.local import local_model

    model = stack.enter_context(local_model(guided=_guide(guided or "llama.cpp"), say=screen.note))
    screen.note(
        "SmolLM2-135M on this machine: a tiny model for trying things out. Held to the format, what it says is mostly "
        "nonsense. For real work point --base-url or OPENAI_API_KEY at a capable model.\n",
        "yellow",
    )
    return model


def _guide(text: str) -> Any:
    if text in ("", "off"):
        return None
    if text not in ("llama.cpp", "vllm", "openai"):
        raise _input_error(f"--guided takes llama.cpp, vllm, openai or off, not {text!r}")
    return text


def _checked_seats(names: list[str]) -> set[str]:
    from camel.cli.seat import SEATS

    for name in names:
        if name not in SEATS:
            raise _input_error(f"--human takes user, assistant or critic, not {name!r}")
    if set(names) == set(SEATS):
        raise _input_error("--human critic has nobody to judge where people sit in both other seats")
    return set(names)


def _temperature(text: str) -> float | None:
    if text == "default":
        return None
    try:
        return float(text)
    except ValueError:
        raise _input_error(f"--temperature takes a number or 'default', not {text!r}") from None


def _checked_file(path: Path) -> Path:
    """Refuse a file that cannot be written before anything is paid for."""
    if path.suffix not in (".json", ".md"):
        raise _input_error(f"--save takes a name that ends in .json or .md, not {path.name!r}")
    try:
        if path.is_dir():
            raise IsADirectoryError("it is a folder")
        _temporary(path).touch()
        _temporary(path).unlink()
    except OSError as error:
        raise _input_error(f"--save cannot write {path}: {error.strerror or error}") from None
    return path


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")


def _write(path: Path, transcript: Transcript) -> None:
    """Write whole or not at all."""
    data = transcript.to_json() if path.suffix == ".json" else transcript.to_markdown().encode()
    _temporary(path).write_bytes(data)
    _temporary(path).replace(path)


def _input_error(text: str) -> Exception:
    from camel.core.errors import InputError

    return InputError(text)
