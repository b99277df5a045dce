"""Reads TOML files that people write; errors name the file, the key and the name that was probably meant."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
from msgspec.inspect import ListType, StructType, Type, UnionType, VarTupleType, type_info

from camel.core.checks import similar
from camel.core.errors import InputError

T = TypeVar("T")


def read_table(path: Path, missing: str = "") -> dict[str, Any]:
    """Read a TOML file. `missing` is the advice if there is no such file."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = missing if missing and isinstance(error, FileNotFoundError) else error
        raise InputError(f"cannot read {path}: {why}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: {error}") from None


def convert_table(table: dict[str, Any], kind: type[T], path: Path | None = None) -> T:
    """Convert a table to a struct; an unknown key or an invalid value raises an `InputError` that names the file."""
    place = f"{path}: " if path else ""
    for problem in drop_unknown_keys(table, kind):
        raise InputError(f"{place}{problem}")
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        message = plain_message(error).replace("Object missing required field", "missing:")
        raise InputError(f"{place}{message}") from None


def plain_message(error: msgspec.ValidationError) -> str:
    """Return the error in one line, with the field named as in the file."""
    return " ".join(str(error).replace("`", "").replace("$.", "").split()).removesuffix(" - at $")


def drop_unknown_keys(table: dict[str, Any], kind: type[Any]) -> list[str]:
    """Drop keys at any depth that the struct `kind` does not have, and return a message for each, also for wrong tags."""
    root = type_info(kind)
    sections: dict[str, list[str]] = {}
    for field in root.fields if isinstance(root, StructType) else ():
        if isinstance(field.type, StructType):
            sections[field.name] = [inner.name for inner in field.type.fields]
    return list(_drop(table, root, "", sections))


def _drop(value: Any, kind: Type, where: str, sections: dict[str, list[str]]) -> Iterator[str]:
    kinds = kind.types if isinstance(kind, UnionType) else (kind,)
    structs = [one for one in kinds if isinstance(one, StructType)]
    if isinstance(value, list):
        for one in kinds:
            if isinstance(one, ListType | VarTupleType):
                for number, item in enumerate(cast("list[Any]", value)):
                    yield from _drop(item, one.item_type, f"{where}[{number}]", sections)
    if not structs or not isinstance(value, dict):
        return
    table, struct, known = cast("dict[str, Any]", value), structs[0], list[str]()
    if len(structs) > 1:
        tag, tags = str(struct.tag_field), {str(one.tag): one for one in structs}
        chosen: Any = table.get(tag)
        if not isinstance(chosen, str) or chosen not in tags:
            listed = ", ".join(tags)
            table.clear()
            table[tag] = next(iter(tags))
            wrong = f"{where}.{tag} is {chosen!r}{similar(str(chosen), tags)}; known: {listed}"
            yield f"{where}.{tag} is missing: choose one of {listed}" if chosen is None else wrong
            return
        struct, known = tags[chosen], [tag]
    known += [field.name for field in struct.fields]
    for key in sorted(table.keys() - {*known}):
        del table[key]
        place = f" in {where}" if where else ""
        homes = [name for name, names in sections.items() if key in names]
        hint = f": it belongs below [{homes[0]}]" if len(homes) == 1 else similar(key, known)
        yield f"unknown key {key!r}{place}{hint}; known: {', '.join(known)}"
    for field in struct.fields:
        below = f"{where}.{field.name}" if where else field.name
        yield from _drop(table.get(field.name), field.type, below, sections)
