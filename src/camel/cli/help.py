"""The text that `--help` prints: commands by group, one row per option with its default, an example at the end.

Typer's own help shows Python types and changes between releases. This relies only on names that all of them have.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from typer.core import TyperCommand, TyperGroup

GROUP, NAME = 10, 11
"""Widths of the two left columns of `camel --help`; a sentence of 59 characters fits next to them."""
_EXAMPLE = re.compile(r"\s*^Example: ", re.MULTILINE)


def defaults(**shown: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Describe defaults that a command computes: `@defaults(out="RUN/study")`."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        vars(function).setdefault("shown_defaults", {}).update(shown)
        return function

    return decorate


class HelpCommand(TyperCommand):
    """A command; the last paragraph of its docstring begins with `Example: `."""

    example = ""

    def __init__(self, *given: Any, help: str | None = None, **more: Any) -> None:
        text, self.example = _split(help or "")
        super().__init__(*given, help=text, **more)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What follows the command's name in its synopsis."""
        return ["[OPTIONS]", *(_argument(one) for one in self.params if not _is_option(one))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the sections of arguments and options."""
        params = [one for one in self.get_params(ctx) if not getattr(one, "hidden", False)]
        for title, kind in (("Arguments", False), ("Options", True)):
            if rows := [self.row(one) for one in params if _is_option(one) == kind]:
                with formatter.section(title):
                    formatter.write_dl(rows, col_max=24)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the example."""
        _write_example(formatter, self.example)

    def row(self, param: Any) -> tuple[str, str]:
        """A parameter as it is typed, and what it does."""
        name = _option(param) if _is_option(param) else str(param.metavar)
        shown = getattr(self.callback, "shown_defaults", {}).get(param.name) or _default(param)
        note = (
            f"[default: {shown}]" if shown else "[required]" if _is_option(param) and param.required else ""
        )
        return name, f"{param.help or ''}  {note}".strip()


class HelpGroup(TyperGroup):
    """A group of commands; those with a `rich_help_panel` are listed next to its name."""

    example = ""
    order: tuple[str, ...] = ()
    """Names in the order of the list; empty: as they were added."""

    def __init__(self, *given: Any, help: str | None = None, **more: Any) -> None:
        text, self.example = _split(help or "")
        super().__init__(*given, help=text, **more)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What follows the group's name in its synopsis."""
        return ["[COMMAND] [OPTIONS]" if self.invoke_without_command else "COMMAND [OPTIONS]"]

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of its commands."""
        return list(self.order or self.commands)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands, and its own options in one line."""
        panel = ""
        formatter.write_paragraph()
        for name in self.list_commands(ctx):
            command = self.commands[name]
            group = getattr(command, "rich_help_panel", "")
            group = group if isinstance(group, str) else ""
            title, panel = ("" if group == panel else group), group
            left = f"{title:<{GROUP}}" if group else "  "
            formatter.write(f"{left}{name:<{NAME}}{first_sentence(command)}\n")
        own = [param.opts[0] for param in self.get_params(ctx) if param.opts[0] != "--help"]
        if own:
            formatter.write(f"\n{'Options':<{GROUP}}{'  '.join([*own, '--help'])}\n")

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the example."""
        formatter.write(f"\n`{ctx.command_path} COMMAND --help` shows the options of a command and an example.\n")
        _write_example(formatter, self.example)


def _split(help: str) -> tuple[str, str]:
    text, *example = _EXAMPLE.split(help, maxsplit=1)
    return text, " ".join(" ".join(example).split())


def first_sentence(command: Any) -> str:
    """What a command does, in one line."""
    text = " ".join((command.help or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", text, maxsplit=1)[0]


def _write_example(formatter: Any, example: str) -> None:
    if example:
        formatter.write(f"\nExample:\n  {example}\n")


def _is_option(param: Any) -> bool:
    return param.param_type_name == "option"


def _argument(param: Any) -> str:
    """An argument in a synopsis: in brackets where it may be left out, with dots where it may be repeated."""
    name = str(param.metavar)
    name = f"{name}..." if param.nargs == -1 and "..." not in name else name
    return name if param.required else f"[{name}]"


def _option(param: Any) -> str:
    names = ", ".join(sorted(param.opts, key=len))
    if param.secondary_opts:
        return f"{names} / {param.secondary_opts[0]}"
    return names if getattr(param, "is_flag", False) else f"{names} {param.metavar or 'VALUE'}"


def _default(param: Any) -> str:
    """The default of a parameter; empty where leaving it out needs no explanation."""
    value, text = param.default, getattr(param, "show_default", "")
    if isinstance(value, bool):
        return (param.opts if value else param.secondary_opts)[0] if param.secondary_opts else ""
    if isinstance(value, int | float) or hasattr(value, "__fspath__") or (value and isinstance(value, str)):
        return str(value)
    return text if isinstance(text, str) else ""
