"""Prints `--help`: commands by group, one row per option with its default, and an example at the end.

Typer's own help shows Python types and changes between releases. This module uses only names that all releases have. A
command's first sentence is its docstring; the rest is in help.toml.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand, TyperGroup

GROUP, NAME = 10, 11
"""Widths of the two left columns of `camel --help`; a sentence of 59 characters fits next to them."""


@cache
def _texts() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("help.toml").read_text("utf-8"))


def texts(path: str) -> dict[str, Any]:
    """Return the help texts of a command, given its full name such as `camel run pause`."""
    return _texts().get(path.partition(" ")[2], {})


class _HelpTexts(TyperCommand if TYPE_CHECKING else object):
    """Formatting of the description and the example, shared by commands and groups."""

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the description."""
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"{self.help}\n\n{texts(ctx.command_path).get('text', '')}".strip())

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the example."""
        if example := texts(ctx.command_path).get("example"):
            formatter.write(f"\nExample:\n  {example}\n")


class HelpCommand(_HelpTexts, TyperCommand):
    """A command whose help is formatted with these sections."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words after the command's name in its usage line."""
        return ["[OPTIONS]", *(_argument(one) for one in self.params if not _is_option(one))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the sections of arguments and options."""
        params = [one for one in self.get_params(ctx) if not getattr(one, "hidden", False)]
        for title, kind in (("Arguments", False), ("Options", True)):
            if rows := [row(one, ctx.command_path) for one in params if _is_option(one) == kind]:
                with formatter.section(title):
                    formatter.write_dl(rows, col_max=24)


class HelpGroup(_HelpTexts, TyperGroup):
    """A group of commands; those with a `rich_help_panel` are listed next to its name."""

    order: tuple[str, ...] = ()
    """The command names in the order of the list. If empty, the order in which the commands were added."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words after the group's name in its usage line."""
        return ["[COMMAND] [OPTIONS]" if self.invoke_without_command else "COMMAND [OPTIONS]"]

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the group's commands."""
        return list(self.order or self.commands)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands, and the group's own options in one line."""
        panel = ""
        formatter.write_paragraph()
        for name in self.list_commands(ctx):
            group = getattr(self.commands[name], "rich_help_panel", "")
            group = group if isinstance(group, str) else ""
            title, panel = ("" if group == panel else group), group
            left = f"{title:<{GROUP}}" if group else "  "
            formatter.write(f"{left}{name:<{NAME}}{first_sentence(self.commands[name])}\n")
        if own := [param.opts[0] for param in self.get_params(ctx) if param.opts[0] != "--help"]:
            formatter.write(f"\n{'Options':<{GROUP}}{'  '.join([*own, '--help'])}\n")
        formatter.write(
            f"\n`{ctx.command_path} COMMAND --help` shows the options of a command and an example.\n"
        )


def first_sentence(command: Any) -> str:
    """Return the first sentence of a command's help."""
    return re.split(r"(?<=\.)\s", " ".join((command.help or "").split()), maxsplit=1)[0]


def row(param: Any, path: str) -> tuple[str, str]:
    """Return a parameter of the command `path` as it is typed, and its help with the default."""
    name = _option(param) if _is_option(param) else str(param.metavar)
    shown = texts(path).get("defaults", {}).get(param.name) or _default(param)
    note = f"[default: {shown}]" if shown else "[required]" if _is_option(param) and param.required else ""
    text = f"{param.help[:-1]}; repeatable." if getattr(param, "multiple", False) else param.help
    return name, f"{texts(path).get('options', {}).get(param.name, text)}  {note}".strip()


def _is_option(param: Any) -> bool:
    return param.param_type_name == "option"


def _argument(param: Any) -> str:
    """Return an argument for the usage line: in brackets if it is optional, with dots if it can be repeated."""
    name = str(param.metavar)
    name = f"{name}..." if param.nargs == -1 and "..." not in name else name
    return name if param.required else f"[{name}]"


def _option(param: Any) -> str:
    names = ", ".join(sorted(param.opts, key=len))
    if param.secondary_opts:
        return f"{names} / {param.secondary_opts[0]}"
    return names if getattr(param, "is_flag", False) else f"{names} {param.metavar or 'VALUE'}"


def _default(param: Any) -> str:
    """Return the default of a parameter as text, or an empty string if the help should not show one."""
    value = param.default
    if isinstance(value, bool):
        return (param.opts if value else param.secondary_opts)[0] if param.secondary_opts else ""
    if isinstance(value, int | float) or hasattr(value, "__fspath__") or (value and isinstance(value, str)):
        return str(value)
    return _texts()["defaults"].get(param.name, "")
