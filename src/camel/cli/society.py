"""`camel society`: a society of any size, streamed to the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from camel.cli.help import defaults
from camel.cli.options import (
    BaseUrl,
    Context,
    Dialect,
    Local,
    MaxMessages,
    MaxTokens,
    ModelName,
    Save,
    Seed,
    ShowPrompts,
    ShowReasoning,
    TaskText,
    Temperature,
    argument,
)

if TYPE_CHECKING:
    from camel.core.society import Society


@defaults(
    task="that of the file",
    temperature="that of the file",
    max_tokens="that of the file",
    max_messages="that of the file",
)
def society(
    file: Annotated[Path, argument("FILE", "Society's TOML file, or a folder with a society.toml.")],
    task: TaskText = "",
    model: ModelName = "",
    base_url: BaseUrl = "",
    dialect: Dialect = "",
    local: Local = False,
    temperature: Temperature = None,
    max_tokens: MaxTokens = None,
    seed: Seed = None,
    max_messages: MaxMessages = None,
    context: Context = None,
    show_prompts: ShowPrompts = False,
    show_reasoning: ShowReasoning = False,
    save: Save = None,
) -> None:
    """Watch a society of any size work on a task.

    --temperature and --max-tokens apply to all members.

    Example: camel society examples/societies/debate.toml --local
    """
    from msgspec.structs import replace
    from rich.console import Console

    from camel.cli.screen import Screen
    from camel.cli.session import check_file, open_chat, read_temperature, run_session, warn_small_model
    from camel.models.local import LOCAL, LOCAL_SAMPLING
    from camel.scenarios import load_society

    declared = load_society(file)
    files = [check_file(path) for path in save or []]
    changes: dict[str, Any] = {}
    if temperature is not None:
        changes["temperature"] = read_temperature(temperature)
    if max_tokens is not None:
        changes["max_tokens"] = max_tokens
    local = local or model == LOCAL
    sampling = replace(LOCAL_SAMPLING, **changes) if local else None
    if changes and not local:
        declared = _change_sampling(declared, changes)
    if max_messages is not None:
        declared = replace(declared, stop=replace(declared.stop, max_messages=max_messages))
    screen = Screen(Console(), {})
    chat = open_chat(screen.note, model, base_url, local, context, dialect=dialect)
    if local:
        warn_small_model(screen)
    play = declared.play(chat, task=task, sampling=sampling, seed=seed, watch=screen.watch)

    def begun() -> None:
        together = play.society.turns.together(len(play.society.members)) > 1
        screen.introduce(play.transcript.speakers, together=together)

    code = run_session(
        play,
        chat,
        screen,
        files=files,
        show_prompts=show_prompts,
        show_reasoning=show_reasoning,
        begun=begun,
        said=screen.said,
    )
    if code:
        raise typer.Exit(code)


def _change_sampling(declared: Society, changes: dict[str, Any]) -> Society:
    """The society with these sampling settings for all members."""
    from msgspec.structs import replace

    members = tuple(
        replace(member, sampling=replace(member.sampling, **changes)) if member.sampling else member
        for member in declared.members
    )
    return replace(declared, members=members, sampling=replace(declared.usual_sampling, **changes))
