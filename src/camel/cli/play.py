"""`camel play`: one conversation, streamed to the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camel.cli.options import (
    BaseUrl,
    Context,
    Dialect,
    Guided,
    Local,
    MaxTokens,
    ModelName,
    Save,
    Seed,
    ShowPrompts,
    ShowReasoning,
    Temperature,
    flag,
    option,
)  # fmt: skip
from camel.core.errors import InputError

if TYPE_CHECKING:
    from camel.cli.screen import Screen
    from camel.cli.seat import CriticSeat
    from camel.core.inception import Inception
    from camel.models.person import Person


def play(
    assistant: Annotated[str, option("Role of the AI assistant.", "ROLE")] = "Python Programmer",
    user: Annotated[str, option("Role of the AI user, who instructs.", "ROLE")] = "Stock Trader",
    task: Annotated[
        str, option("What they are to do.", "TEXT")
    ] = "Develop a trading bot for the stock market",
    human: Annotated[
        list[str] | None,
        option("Take a seat yourself: user, assistant or critic; repeatable. There, type /help.", "SEAT"),
    ] = None,
    model: ModelName = "",
    base_url: BaseUrl = "",
    dialect: Dialect = "",
    local: Local = False,
    temperature: Temperature = None,
    max_tokens: MaxTokens = None,
    seed: Seed = None,
    max_messages: Annotated[int, option("Stop after so many messages.")] = 40,
    context: Context = None,
    guided: Guided = "",
    critic: Annotated[
        int, option("Let the model choose each message out of so many; 0: no critic.", "N")
    ] = 0,
    specify: Annotated[bool, option("Let the model make the task more specific first.")] = True,
    word_limit: Annotated[int, option("Longest specified task, in words.")] = 50,
    prompts: Annotated[
        Path | None,
        option(
            "Prompts of your own: assistant.txt, user.txt, specifier.txt, opening.txt; what is missing is the paper's.",
            "FOLDER",
        ),
    ] = None,
    show_prompts: ShowPrompts = False,
    show_reasoning: ShowReasoning = False,
    save: Save = None,
    verbatim: Annotated[
        bool,
        flag("--verbatim", "With --human: send what you type as it is, without 'Instruction:' around it."),
    ] = False,
    history: Annotated[
        bool, option("With --human: keep what you type for the arrow keys of the next time.")
    ] = True,
) -> None:
    """Let two agents play roles and work on a task, and watch them talk, or take a seat yourself."""
    from rich.console import Console

    from camel.cli.keyboard import keyboard
    from camel.cli.screen import Screen
    from camel.cli.seat import CriticSeat, Seat
    from camel.cli.showing import checked_file, open_chat, read_sampling, show, warn_of_nonsense
    from camel.core.critic import PROPOSALS, BestOf
    from camel.core.judge import ModelJudge
    from camel.core.message import Sampling
    from camel.core.role_playing import RolePlaying
    from camel.core.stops import paper_rules
    from camel.core.task import TaskSpecifier
    from camel.models.person import Person

    seats = _checked_seats(human or [])
    files = [checked_file(path) for path in save or []]
    local = local or model == "local"
    sampling = read_sampling(local, temperature, max_tokens, seed=seed)
    own = _own_prompts(prompts) if prompts else None
    if max_messages < 1 or word_limit < 1:
        raise InputError("--max-messages and --word-limit must be at least 1")
    specifier = TaskSpecifier(
        word_limit, Sampling(temperature=1.0, max_tokens=sampling.max_tokens, seed=seed)
    )
    screen = Screen(Console(highlight=False), {"assistant": assistant, "user": user})
    chat = open_chat(screen.note, model, base_url, local, context, guided, dialect)
    if local:
        warn_of_nonsense(screen)
    seat = Seat(screen, keyboard(keep_history=history)) if seats else None
    people = {name: Person(seat.ask, model=chat, verbatim=verbatim) for name in seats - {"critic"} if seat}
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
        inception=own,
        watch=screen.watch,
    )
    handed = [*people.values(), *([person] if person else [])]
    code = show(
        role_playing,
        chat,
        screen,
        files=files,
        show_prompts=show_prompts,
        show_reasoning=show_reasoning,
        spare=lambda: _take_back(handed, screen),
        people=bool(seats),
    )
    if code or (seat and seat.interrupted):
        raise typer.Exit(code or 130)


def _take_back(people: Iterable[Person | CriticSeat], screen: Screen) -> bool:
    """Give a person the seat back that they handed to the model, if they did."""
    if not sum(person.take_back() for person in people):
        return False
    screen.end_message()
    screen.note("You have the seat back after this message; Ctrl+C again stops.", "yellow")
    return True


def _own_prompts(folder: Path) -> Inception:
    """The prompts of a folder, unless they mention what nobody fills in: the model would be sent it as it stands."""
    from camel.core import inception
    from camel.scenarios.checking import unknown_in_prompts

    own = inception.load(folder)
    for name, problem in unknown_in_prompts(own):
        raise InputError(f"{folder / f'{name}.txt'}: {problem}")
    return own


def _checked_seats(names: list[str]) -> set[str]:
    from camel.cli.seat import SEATS

    for name in names:
        if name not in SEATS:
            raise InputError(f"--human takes user, assistant or critic, not {name!r}")
    if set(names) == set(SEATS):
        raise InputError("--human critic has nobody to judge where people sit in both other seats")
    return set(names)
