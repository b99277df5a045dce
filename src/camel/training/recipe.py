"""Recipes of training rows: which runs, which shape and which filters. A recipe is read from TOML and stored with its rows."""

from __future__ import annotations

from pathlib import Path

import msgspec

from camel.core.errors import InputError
from camel.core.toml import convert_table, read_table
from camel.training.shaping import Shape


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A run to make rows from, and how often its rows are used."""

    run: str
    """A run's folder or address. `camel import` makes a run from data in the paper's formats."""
    weight: float = 1.0
    """How often each row is used: 2 uses every row twice, 0.25 uses a quarter of the rows."""

    def __post_init__(self) -> None:
        if not 0 < self.weight <= 100:
            raise InputError(f"the weight of '{self.run}' must be above 0, at most 100, not {self.weight:g}")


class Filters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which conversations and rows to use."""

    where: str = ""
    """A filter expression that selects the conversations to use, e.g. `stop = "done" and language = "English"`."""
    least_messages: int = 1
    exact: bool = True
    """Whether to remove rows whose text equals that of an earlier row."""
    near: float = 0.0
    """Minimum similarity to an earlier row from which a row is removed as a near duplicate, e.g. 0.8. 0 turns this off."""
    questions: tuple[str, ...] = ()
    """Test questions: files of JSON lines, `humaneval`, `humaneval+`, or a shipped set such as `table2_math`. Rows that
    contain one of them are excluded."""

    def __post_init__(self) -> None:
        if not (self.near == 0 or 0.5 <= self.near <= 1):
            raise InputError(f"filters.near must be 0 or between 0.5 and 1, not {self.near:g}")


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """All settings that determine a set of training rows."""

    sources: tuple[Source, ...]
    out: str = "rows"
    """The output folder."""
    shape: Shape = Shape()
    filters: Filters = Filters()
    acknowledge: tuple[str, ...] = ()
    """Labels of harmful conversations to train on, e.g. `misalignment`. Conversations with other such labels are excluded."""
    canary: str = ""
    """A GUID in every row with a restricted label, so that others can find the data in their training sets."""

    def __post_init__(self) -> None:
        if not self.sources:
            raise InputError("a recipe needs at least one run. Add one under [[sources]]")
        if self.acknowledge and not self.canary:
            raise InputError(
                "conversations labeled as harmful need a canary GUID, which is added to each of their rows"
            )


def read_recipe(path: Path) -> Recipe:
    """Read a recipe from a TOML file. Errors name the file and the field."""
    return convert_table(read_table(path), Recipe, path)
