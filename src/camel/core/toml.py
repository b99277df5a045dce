"""Reads TOML files that people write; errors name the file, the key and the name that was probably meant."""

from __future__ import annotations

import functools
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
from msgspec.inspect import ListType, LiteralType, StructType, Type, UnionType, VarTupleType, type_info

from camel.core.checks import similar
from camel.core.errors import InputError

T = TypeVar("T")

MISSING = "Object missing required field "
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
_KIND = re.compile(rf"\b({'|'.join(_KINDS)})\b")


def read_table(path: Path, missing: str = "") -> dict[str, Any]:
    """Read a TOML file. If the file does not exist, the error contains the advice in `missing`."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = missing if missing and isinstance(error, FileNotFoundError) else error
        raise InputError(f"cannot read '{path}': {why}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"'{path}' is not valid TOML: {error}") from None


def convert_table(table: dict[str, Any], kind: type[T], path: Path | None = None) -> T:
    """Convert a table to a struct. An unknown key or an invalid value raises an `InputError` that names the file."""
    place = f"{path}: " if path else ""
    for problem in drop_unknown_keys(table, kind):
        raise InputError(f"{place}{problem}")
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{place}{plain_message(error)}") from None


def to_toml(value: Any) -> str:
    """Return a JSON value as TOML in one line. Keys without a value are omitted."""
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return f"{{ {', '.join(f'{to_toml(name)} = {to_toml(one)}' for name, one in items if one is not None)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(to_toml(one) for one in cast('list[Any]', value) if one is not None)}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def plain_message(error: msgspec.ValidationError) -> str:
    """Return the error in one line of plain words, with the field named as in the file."""
    text, _, path = " ".join(str(error).replace("`", "").split()).partition(" - at $")
    path = path.removeprefix(".")
    place = f"in {path if '[' in path else f'[{path}]'}" if path else ""
    if text.startswith(MISSING):
        name = text.removeprefix(MISSING)
        return f"{name} is missing {place}".rstrip() + ": add it"
    if text.startswith("Expected "):
        text = _KIND.sub(lambda kind: _KINDS[kind[0]], text.replace(" | null", "")).replace(" | ", " or ")
        return f"{path or 'the value'} must be {text.removeprefix('Expected ').replace(', got', ', not')}"
    return f"{text} ({place})" if place else text


def drop_unknown_keys(table: dict[str, Any], kind: type[Any]) -> list[str]:
    """Drop keys at any depth that the struct `kind` does not have. Return a message for each, and for each wrong tag."""
    root = _type_info(kind)
    sections: dict[str, list[str]] = {}
    for field in root.fields if isinstance(root, StructType) else ():
        if isinstance(field.type, StructType):
            sections[field.encode_name] = [inner.encode_name for inner in field.type.fields]
    return list(_drop(table, root, "", sections))


_type_info = functools.cache(type_info)
"""The description of a struct takes 30 ms for a scenario, and a run reads its scenario several times."""


def _drop(value: Any, kind: Type, where: str, sections: dict[str, list[str]]) -> Iterator[str]:
    kinds = kind.types if isinstance(kind, UnionType) else (kind,)
    structs = [one for one in kinds if isinstance(one, StructType)]
    literal = [choice for one in kinds if isinstance(one, LiteralType) for choice in one.values]
    if isinstance(value, str) and literal and len(kinds) <= 2 and value not in literal:
        yield f"{where} must be one of {', '.join(map(str, literal))}, not {value!r}"
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
            wrong = f"{where}.{tag} must be one of {listed}, not {chosen!r}{similar(str(chosen), tags)}"
            yield f"{where}.{tag} is missing: set it to one of {listed}" if chosen is None else wrong
            return
        struct, known = tags[chosen], [tag]
    known += [field.encode_name for field in struct.fields]
    for key in sorted(table.keys() - {*known}):
        del table[key]
        place = f" in {where}" if where else ""
        homes = [name for name, names in sections.items() if key in names]
        listed = f"{similar(key, known)}. Use one of {', '.join(known)}"
        yield f"unknown key {key!r}{place}" + (f": move it below [{homes[0]}]" if len(homes) == 1 else listed)
    for field in struct.fields:
        below = f"{where}.{field.encode_name}" if where else field.encode_name
        yield from _drop(table.get(field.encode_name), field.type, below, sections)
