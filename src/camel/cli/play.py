"""`camel play`: one conversation, streamed to the terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from camel.cli import options as shared
from camel.cli.options import flag, option
from camel.core.errors import InputError

if TYPE_CHECKING:
    from camel.cli.keyboard import Keyboard
    from camel.cli.screen import Screen
    from camel.cli.seat import CriticSeat
    from camel.core.inception import Inception
    from camel.core.tools import Confirm, Tool
    from camel.models.person import Person

ROLES, TASK = ("Python Programmer", "Stock Trader"), "Develop a trading bot for the stock market"

SetOption = Annotated[list[str] | None, option("With --scenario: an item of one of its lists, such as language=Rust. Default: the first of each list.", "LIST=ITEM", "--set")]  # fmt: skip
AssistantOption = Annotated[str, option("Role of the assistant, who follows instructions.", "ROLE")]  # fmt: skip
HumanOption = Annotated[list[str] | None, option("Seat that you take: user, assistant, or critic, who chooses between proposed messages.", "SEAT")]  # fmt: skip
CriticOption = Annotated[int, option("Let the model choose each message from N proposals; 0 turns this off.", "N")]  # fmt: skip
ToolsOption = Annotated[list[str] | None, option("Tool that the assistant may use: python, module:function, 'mcp:NAME=COMMAND' or mcp:NAME=URL.", "TOOL")]  # fmt: skip
ConfirmOption = Annotated[bool, flag("--confirm", "With --tools: ask you before each call of a tool.")]  # fmt: skip
WordLimitOption = Annotated[int, option("Maximum length of the more specific task, in words.", "WORDS", min=1)]  # fmt: skip
PromptsOption = Annotated[Path | None, option("Folder with your own prompts: assistant.txt, user.txt, specifier.txt and opening.txt.", "FOLDER")]  # fmt: skip
VerbatimOption = Annotated[bool, flag("--verbatim", "With --human: send your text as typed, without adding Instruction: or Solution: to it.")]  # fmt: skip
HistoryOption = Annotated[bool, option("With --human: save what you type, to recall it in later sessions.")]  # fmt: skip


def play(
    assistant: AssistantOption = ROLES[0],
    user: Annotated[str, option("Role of the user, who gives instructions.", "ROLE")] = ROLES[1],
    task: shared.TaskText = TASK,
    scenario: shared.ScenarioName = "",
    chosen: SetOption = None,
    human: HumanOption = None,
    model: shared.ModelName = "",
    base_url: shared.BaseUrl = "",
    dialect: shared.Dialect = "",
    local: shared.Local = False,
    temperature: shared.Temperature = None,
    max_tokens: shared.MaxTokens = None,
    seed: shared.Seed = None,
    max_messages: shared.MaxMessages = None,
    context: shared.Context = None,
    guided: shared.Guided = "",
    critic: CriticOption = 0,
    tools: ToolsOption = None,
    confirm: ConfirmOption = False,
    specify: Annotated[bool, option("Let the model make the task more specific first.")] = True,
    word_limit: WordLimitOption = 50,
    prompts: PromptsOption = None,
    show_prompts: shared.ShowPrompts = False,
    show_reasoning: shared.ShowReasoning = False,
    save: shared.Save = None,
    verbatim: VerbatimOption = False,
    history: HistoryOption = True,
) -> None:
    """Watch two agents work on a task, or play one yourself."""
    from msgspec.structs import replace
    from rich.console import Console

    from camel.cli.keyboard import open_keyboard
    from camel.cli.screen import Screen
    from camel.cli.seat import CriticSeat, Seat
    from camel.cli.session import check_file, open_chat, read_sampling, run_session, warn_small_model
    from camel.core.critic import PROPOSALS, BestOf
    from camel.core.inception import paper
    from camel.core.judge import ModelJudge
    from camel.core.message import Sampling
    from camel.core.role_playing import RolePlaying
    from camel.core.stops import MAX_MESSAGES, play_rules
    from camel.core.task import TaskSpecifier
    from camel.core.tools import Toolbox, Workplace
    from camel.models.person import Person
    from camel.scenarios.choosing import choose_cast
    from camel.scenarios.scenario import Cast

    seats = _check_seats(human or [])
    files = [check_file(path) for path in save or []]
    local = local or model == "local"
    if confirm and not tools:
        raise InputError("--confirm needs --tools")
    if tools and "assistant" in seats:
        raise InputError("--tools are for a model: remove --tools or --human assistant")
    toolbox = Toolbox(tools or [], form="text" if local else "native")
    sampling = read_sampling(local, temperature, max_tokens, seed=seed)
    end, cast = None, Cast(assistant, user, task, paper(), {})
    if prompts:
        cast = cast._replace(inception=_read_prompts(prompts))
    if scenario:
        if (assistant, user) != ROLES or prompts:
            raise InputError(
                "a scenario has its own roles and prompts. Remove --assistant, --user and --prompts, or use --set"
            )
        end, cast = choose_cast(scenario, "" if task == TASK else task, _values(chosen or []))
        specify, word_limit = specify and end.specify, end.word_limit
        end = replace(end, max_messages=max_messages or end.max_messages)
    elif chosen:
        raise InputError("--set needs --scenario")
    specifier = TaskSpecifier(
        word_limit, Sampling(temperature=1.0, max_tokens=sampling.max_tokens, seed=seed)
    )
    screen = Screen(Console(highlight=False), {"assistant": cast.assistant, "user": cast.user})
    chat = open_chat(screen.note, model, base_url, local, context, guided, dialect)
    if local:
        warn_small_model(screen)
    keyboard = open_keyboard(keep_history=history) if seats or confirm else None
    seat = Seat(screen, keyboard) if seats and keyboard else None
    people = {name: Person(seat.ask, model=chat, verbatim=verbatim) for name in seats - {"critic"} if seat}
    person = CriticSeat(seat, screen, chat, critic or PROPOSALS) if seat and "critic" in seats else None
    model_critic = BestOf(judge=ModelJudge(chat, sampling=sampling), proposals=critic) if critic else None
    judge = person or model_critic
    role_playing = RolePlaying(
        **cast._asdict(),
        model=people.get("assistant", chat),
        user_model=people.get("user", chat),
        critic=None if "assistant" in seats else judge,
        user_critic=None if "user" in seats else judge,
        sampling=sampling,
        specifier=specifier if specify else None,
        rules=end.rules() if end else play_rules(max_messages=max_messages or MAX_MESSAGES),
        assistant_tools=toolbox,
        workplace=Workplace(confirm=_ask_first(screen, keyboard) if confirm and keyboard else None),
        watch=screen.watch,
    )
    handed = [*people.values(), *([person] if person else [])]
    code = run_session(
        role_playing,
        chat,
        screen,
        files=files,
        show_prompts=show_prompts,
        show_reasoning=show_reasoning,
        intercept=lambda: _take_back(handed, screen),
        people=bool(seats) or confirm,
    )
    if code or (seat and seat.interrupted):
        raise typer.Exit(code or 130)


def _ask_first(screen: Screen, keyboard: Keyboard) -> Confirm:
    """Return a function that asks the person whether a call of a tool is allowed."""
    from camel.core.tools import as_text

    one_at_a_time = asyncio.Lock()

    async def ask(speaker: str, tool: Tool, arguments: dict[str, Any]) -> bool:
        async with one_at_a_time:
            screen.end_message()
            screen.note(f"The {speaker} wants to call {tool.name}({as_text(arguments, 4_000)})", "yellow")
            try:
                text = await keyboard.read("Allow this call?", "yellow", ("y allows it", "n refuses it"))
            except EOFError:
                return False
            return text.strip().lower() in ("y", "yes")

    return ask


def _take_back(people: Iterable[Person | CriticSeat], screen: Screen) -> bool:
    """Let the person speak again if they had handed their seat to the model. Return whether they had."""
    if not sum(person.take_back() for person in people):
        return False
    screen.end_message()
    screen.note("You get the seat back after this message; press Ctrl+C again to stop.", "yellow")
    return True


def _read_prompts(folder: Path) -> Inception:
    """Read the prompts in a folder. Raise an `InputError` for an unknown placeholder, which would be sent to the model as it
    is."""
    from camel.core import inception
    from camel.scenarios.checking import unknown_in_prompts

    own = inception.load(folder)
    for name, problem in unknown_in_prompts(own):
        raise InputError(f"{folder / f'{name}.txt'}: {problem}")
    return own


def _values(chosen: list[str]) -> dict[str, str]:
    """Parse `LIST=ITEM`."""
    for one in chosen:
        if not all(one.partition("=")):
            raise InputError(f"--set must be LIST=ITEM, such as language=Rust, not {one!r}")
    return {one.partition("=")[0].strip(): one.partition("=")[2].strip() for one in chosen}


def _check_seats(names: list[str]) -> set[str]:
    from camel.cli.seat import SEATS

    for name in names:
        if name not in SEATS:
            raise InputError(f"--human must be user, assistant or critic, not {name!r}")
    if set(names) == set(SEATS):
        raise InputError("you cannot take all three seats: remove --human user or --human assistant")
    return set(names)
