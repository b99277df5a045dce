"""Reads a TOML declaration into a struct. All mistakes are reported at once: an unknown key is dropped, and reading continues."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any, TypeVar, cast

import msgspec
from msgspec import inspect

from camel.core.checks import similar

T = TypeVar("T", bound=msgspec.Struct)


def parse_declaration(text: str, kind: type[T]) -> tuple[T | None, list[str]]:
    """The struct that a text declares, or None where there is not enough for one, and what is wrong, a line each."""
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return None, [f"is not valid TOML: {' '.join(str(error).split())}"]
    problems = list(_drop_unknown(table, inspect.type_info(kind), ""))
    try:
        return msgspec.convert(table, kind), problems
    except msgspec.ValidationError as error:
        said = " ".join(str(error).replace("`", "").replace("$.", "").split()).removesuffix(" - at $")
        return None, [*problems, said]


def _drop_unknown(value: Any, kind: inspect.Type, where: str) -> Iterator[str]:
    """Drop every key that no struct has, at any depth, and report it."""
    structs = [one for one in getattr(kind, "types", (kind,)) if isinstance(one, inspect.StructType)]
    if isinstance(value, list) and isinstance(kind, inspect.VarTupleType):
        for number, element in enumerate(cast("list[Any]", value)):
            yield from _drop_unknown(element, kind.item_type, f"{where}[{number}]")
    elif isinstance(value, dict) and structs:
        table = cast("dict[str, Any]", value)
        found, known = structs[0], list[str]()
        if len(structs) > 1:
            tag, kinds = str(found.tag_field), {str(one.tag): one for one in structs}
            chosen: Any = table.get(tag)
            if not isinstance(chosen, str) or chosen not in kinds:
                listed = ", ".join(kinds)
                table.clear()
                table[tag] = next(iter(kinds))
                yield (
                    f"{where} does not say {tag}: one of {listed}"
                    if chosen is None
                    else (f"{where}.{tag} is {chosen!r}{similar(str(chosen), kinds)}; known: {listed}")
                )
                return
            found, known = kinds[chosen], [tag]
        known += [field.name for field in found.fields]
        for key in sorted(table.keys() - {*known}):
            del table[key]
            place = f" in {where}" if where else ""
            yield f"unknown key {key!r}{place}{similar(key, known)}; known: {', '.join(known)}"
        for field in found.fields:
            below = f"{where}.{field.name}" if where else field.name
            yield from _drop_unknown(table.get(field.name), field.type, below)
