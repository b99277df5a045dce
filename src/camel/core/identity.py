"""How a run identifies the Python objects it was made with: rules, critics, tools.

The one decision to know: an object is identified by its type and, if it has them, its `name` and `version`. When you
change what it does, raise its version, so that the run does not mix old and new results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, cast

import msgspec

from camel.core.model import Model
from camel.core.tools import Toolbox


def identity_of(value: Any) -> Any:
    """Return a JSON value that identifies `value` and is the same in every process."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Mapping):
        given = cast("Mapping[Any, Any]", value)
        return {str(name): identity_of(one) for name, one in given.items()}
    if isinstance(value, list | tuple | set | frozenset):
        found = [identity_of(one) for one in cast("list[Any]", value)]
        return sorted(found, key=repr) if isinstance(value, set | frozenset) else found
    if isinstance(value, Model):
        return {"model": value.name}
    if isinstance(value, Toolbox):
        return value.identity()
    kind: Any = value if callable(value) and hasattr(value, "__qualname__") else type(cast("object", value))
    named = {"type": f"{kind.__module__}.{kind.__qualname__}"}
    if isinstance(value, msgspec.Struct):
        names: tuple[str, ...] = value.__struct_fields__
    elif is_dataclass(value) and not isinstance(value, type):
        names = tuple(field.name for field in fields(value))
    else:
        names = tuple(name for name in ("name", "version") if hasattr(value, name))
    # Omit later fields that are not set: runs from before these fields existed keep their identity.
    found = {name: getattr(value, name) for name in names}
    return named | {
        name: identity_of(one)
        for name, one in found.items()
        if one or name not in ("history", "tools", "hear_actions", "world")
    }
