"""`camel society`: a society from its file, streamed to the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from camel.cli.options import (
    BaseUrl,
    Context,
    Dialect,
    Local,
    MaxTokens,
    ModelName,
    Save,
    Seed,
    ShowPrompts,
    ShowReasoning,
    argument,
    option,
)  # fmt: skip

if TYPE_CHECKING:
    from camel.core.society import Society


def society(
    file: Annotated[Path, argument("FILE", "A society's TOML file, or a folder with a society.toml.")],
    task: Annotated[str, option("What they are to do, in place of the file's task.", "TEXT")] = "",
    model: ModelName = "",
    base_url: BaseUrl = "",
    dialect: Dialect = "",
    local: Local = False,
    temperature: Annotated[
        str | None,
        option("For all members, in place of the file's; 'default' for the model's own.", "NUMBER"),
    ] = None,
    max_tokens: MaxTokens = None,
    seed: Seed = None,
    max_messages: Annotated[int | None, option("Stop after so many messages at the latest.")] = None,
    context: Context = None,
    show_prompts: ShowPrompts = False,
    show_reasoning: ShowReasoning = False,
    save: Save = None,
) -> None:
    """Let a society of any size work on a task, and watch its members talk."""
    from msgspec.structs import replace
    from rich.console import Console

    from camel.cli.screen import Screen
    from camel.cli.showing import checked_file, checked_temperature, open_chat, show, warn_of_nonsense
    from camel.models.local import LOCAL, LOCAL_SAMPLING
    from camel.scenarios import load_society

    declared = load_society(file)
    files = [checked_file(path) for path in save or []]
    changes: dict[str, Any] = {}
    if temperature is not None:
        changes["temperature"] = checked_temperature(temperature)
    if max_tokens is not None:
        changes["max_tokens"] = max_tokens
    local = local or model == LOCAL
    sampling = replace(LOCAL_SAMPLING, **changes) if local else None
    if changes and not local:
        declared = _sampled(declared, changes)
    if max_messages is not None:
        declared = replace(declared, stop=replace(declared.stop, max_messages=max_messages))
    screen = Screen(Console(), {})
    chat = open_chat(screen.note, model, base_url, local, context, dialect=dialect)
    if local:
        warn_of_nonsense(screen)
    play = declared.play(chat, task=task, sampling=sampling, seed=seed, watch=screen.watch)

    def begun() -> None:
        together = play.society.turns.together(len(play.society.members)) > 1
        screen.introduce(play.transcript.speakers, together=together)

    code = show(
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


def _sampled(declared: Society, changes: dict[str, Any]) -> Society:
    """A society whose members write as declared but for the changes, each of which holds for all of them."""
    from msgspec.structs import replace

    members = tuple(
        replace(member, sampling=replace(member.sampling, **changes)) if member.sampling else member
        for member in declared.members
    )
    return replace(declared, members=members, sampling=replace(declared.usual_sampling, **changes))
