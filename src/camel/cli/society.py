"""`camel society`: a society of any size, streamed to the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from camel.cli import options as shared
from camel.cli.options import argument

if TYPE_CHECKING:
    from camel.core.society import Society


def society(
    file: Annotated[Path, argument("FILE", "TOML file, or a folder that contains society.toml.")],
    task: shared.TaskText = "",
    model: shared.ModelName = "",
    base_url: shared.BaseUrl = "",
    dialect: shared.Dialect = "",
    local: shared.Local = False,
    temperature: shared.Temperature = None,
    max_tokens: shared.MaxTokens = None,
    seed: shared.Seed = None,
    max_messages: shared.MaxMessages = None,
    allow: shared.Allow = None,
    context: shared.Context = None,
    show_prompts: shared.ShowPrompts = False,
    show_reasoning: shared.ShowReasoning = False,
    save: shared.Save = None,
) -> None:
    """Watch any number of agents work on a task."""
    from msgspec.structs import replace
    from rich.console import Console

    from camel.cli.screen import Screen
    from camel.cli.session import check_file, open_chat, read_temperature, run_session, warn_small_model
    from camel.generation.toolboxes import allow_tools
    from camel.models.local import LOCAL, LOCAL_SAMPLING
    from camel.scenarios import load_society

    declared = allow_tools(load_society(file), allow or ())
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

    def on_start() -> None:
        together = play.society.turns.together(len(play.society.members)) > 1
        screen.introduce(play.transcript.speakers, together=together)

    code = run_session(
        play,
        chat,
        screen,
        files=files,
        show_prompts=show_prompts,
        show_reasoning=show_reasoning,
        on_start=on_start,
        on_message=screen.show_message,
    )
    if code:
        raise typer.Exit(code)


def _change_sampling(declared: Society, changes: dict[str, Any]) -> Society:
    """Return a copy of the society in which all members use these sampling settings."""
    from msgspec.structs import replace

    members = tuple(
        replace(member, sampling=replace(member.sampling, **changes)) if member.sampling else member
        for member in declared.members
    )
    return replace(declared, members=members, sampling=replace(declared.usual_sampling, **changes))
