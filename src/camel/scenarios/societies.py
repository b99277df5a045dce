"""Reads a society's file: `society.toml`, one table a decision.

The one decision to know: the tables are those of `Society` itself, so that what can be declared in Python can be
declared in a file and the other way round; this file only says what is wrong in words that help.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, cast, get_args

import msgspec

from camel.core.checks import similar
from camel.core.errors import InputError
from camel.core.grammar import DONE_TOKEN
from camel.core.graphs import Graph
from camel.core.member import Member
from camel.core.message import Sampling
from camel.core.planner import Casting, Planner
from camel.core.society import PLACEHOLDERS, Ending, Society
from camel.core.stops import Vote
from camel.core.turns import Policy
from camel.scenarios.scenario import placeholders

SOCIETY_FILE = "society.toml"
_MAX_BYTES = 10_000_000


def load_society(path: str | Path) -> Society:
    """Read a society from its file, or from the `society.toml` of a folder."""
    path = Path(path).expanduser()
    if path.is_dir():
        path = path / SOCIETY_FILE
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(f"{path} has more than {_MAX_BYTES:,} bytes: that is no society's file")
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(
            f"cannot read {path}: {reason}; a society's file is shown in docs/societies.md"
        ) from None
    society, problems = read_society(text)
    if society is not None:
        problems = [f"{where}: {message}" for where, message in unknown_placeholders(society)]
    if society is None or problems:
        raise InputError(f"{path}: {'; '.join(problems)}")
    return society


def templates(society: Society) -> Iterator[tuple[str, str, bool]]:
    """Its texts that may hold placeholders: where they stand, the text, and whether it is a prompt of the society's own."""
    yield "the prompt", society.prompt, True
    yield "the opening", society.opening, True
    for member in society.members:
        yield f"the role of {member.name}", member.role, False
        yield f"the brief of {member.name}", member.brief, False
        yield f"the prompt of {member.name}", member.prompt, True


def unknown_placeholders(society: Society, levels: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """Where a text mentions what nobody fills in: where, and what to do. `levels` are a scenario's own."""
    for where, text, is_prompt in templates(society):
        known = [*levels, *(PLACEHOLDERS if is_prompt else ())]
        for name in placeholders(text):
            if name not in known and f"<{name}>" != DONE_TOKEN:
                listed = ", ".join(f"<{one}>" for one in known) or "none"
                yield (
                    where,
                    f"<{name}> is not known here{similar(name, known)}; known: {listed}. "
                    "If it is meant as it stands, write it in lower case",
                )


def read_society(text: str) -> tuple[Society | None, list[str]]:
    """The society that a file's text declares, or None and everything that is wrong with it, a line each."""
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return None, [f"is not valid TOML: {' '.join(str(error).split())}"]
    if problems := list(_unknown(table)):
        return None, problems
    try:
        return msgspec.convert(table, Society), []
    except msgspec.ValidationError as error:
        return None, [" ".join(str(error).replace("`", "").replace("$.", "").split()).removesuffix(" - at $")]


def _unknown(table: dict[str, Any]) -> Iterator[str]:
    """Every key that nobody reads, wherever it stands, and every shape or policy that is none."""
    yield from _keys(table, Society, "")
    inner: list[tuple[str, Any, type]] = [
        ("stop", table.get("stop"), Ending),
        ("roles", table.get("roles"), Casting),
        ("planner", table.get("planner"), Planner),
        ("sampling", table.get("sampling"), Sampling),
    ]
    stop: Any = table.get("stop")
    if isinstance(stop, dict):
        inner.append(("stop.vote", cast("dict[str, Any]", stop).get("vote"), Vote))
    members: Any = table.get("members")
    if isinstance(members, list):
        for number, member in enumerate(cast("list[Any]", members), 1):
            inner.append((f"member {number}", member, Member))
            if isinstance(member, dict):
                sampling = cast("dict[str, Any]", member).get("sampling")
                inner.append((f"member {number}.sampling", sampling, Sampling))
    for where, value, kind in inner:
        if isinstance(value, dict):
            yield from _keys(cast("dict[str, Any]", value), kind, f" in {where}")
    for where, tag, union in (("turns", "policy", Policy), ("hears", "graph", Graph)):
        value = table.get(where)
        if isinstance(value, dict):
            yield from _tagged(cast("dict[str, Any]", value), where, tag, union)


def _tagged(table: dict[str, Any], where: str, tag: str, union: Any) -> Iterator[str]:
    kinds = {str(kind.__struct_config__.tag): kind for kind in get_args(union)}
    chosen: Any = table.get(tag)
    if chosen is None:
        yield f"{where} does not say {tag}: one of {', '.join(kinds)}"
    elif not isinstance(chosen, str) or chosen not in kinds:
        yield f"{where}.{tag} is {chosen!r}{similar(str(chosen), kinds)}; known: {', '.join(kinds)}"
    else:
        yield from _keys(table, kinds[chosen], f" in {where}", tag)


def _keys(table: Mapping[str, Any], kind: Any, where: str, tag: str = "") -> Iterator[str]:
    known: list[str] = [*([tag] if tag else []), *kind.__struct_fields__]
    for key in sorted(table.keys() - set(known)):
        yield f"unknown key {key!r}{where}{similar(key, known)}; known: {', '.join(known)}"
