"""The table `[inputs]` of a configuration: where the rows come from, and which of them are used."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.models.hub import HUB


class SecondTable(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename={"source": "from"}
):
    """One of several tables: `[[inputs.tables]]`. Rows of the first table are combined with rows of the others."""

    source: str
    license: str = ""
    """The license of the table, for the cards of datasets."""
    on: str | tuple[str, ...] = ()
    """Columns whose values must be equal in this table and in those before it. Without them, each row is combined with all rows."""


class Inputs(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    kw_only=True,
    omit_defaults=True,
    rename={"source": "from"},
):
    """The table of inputs: each row is one conversation, and its columns fill placeholders."""

    source: str = ""
    """A CSV, TSV, JSON or Parquet file, a folder of text files, or `hf:OWNER/NAME`. In Python also a DataFrame, an Arrow
    table or an iterable of dictionaries."""
    tables: tuple[SecondTable, ...] = ()
    """Several tables that are joined or crossed, instead of `from`."""
    id: str = ""
    """The column with the id of each row. Default: a hash of the columns that are used."""
    where: str = ""
    """Use only rows for which this filter expression is true."""
    limit: int | None = None
    """Use at most this number of rows, in the order of the table."""
    sample: int | float | None = None
    """Use a random sample: a number of rows, or a share below 1. A row that is added does not change which others are used."""
    seed: int = 0
    """Seed of the sample."""
    duplicates: Literal["skip", "keep"] = "skip"
    """What to do with a row that is equal to an earlier one. `keep` appends `#2`, `#3` … to its id."""
    repeat: int = 1
    """Number of conversations per row, for example to compare their scores. Their ids end in `~2`, `~3` …"""
    keep: tuple[str, ...] = ()
    """Further columns to store. They do not count for a row's identity."""
    max_messages: str = ""
    """The column with the maximum number of messages of each conversation. An empty cell means the scenario's limit."""
    max_tokens: str = ""
    """The column with the maximum number of tokens of each reply. An empty cell means the configured limit."""
    license: str = ""
    """The license of the table, such as `cc-by-4.0`, for the cards of datasets."""
    encoding: str = "utf-8"
    """The encoding of CSV, TSV and text files."""

    def __post_init__(self) -> None:
        if self.tables and self.source:
            raise InputError("[inputs] has both from and tables: use from for one table, tables for several")
        if not self.tables and isinstance(self.source, str) and not self.source:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError('[inputs] needs a table: add from = "table.csv"')
        if self.tables and self.tables[0].on:
            raise InputError(
                "the first of [[inputs.tables]] must not have on: remove it, and use on in later tables"
            )
        for name, value in (("limit", self.limit), ("repeat", self.repeat)):
            if value is not None and value < 1:
                raise InputError(f"inputs.{name} must be at least 1, not {value}")
        count = self.sample
        if count is not None and not (0 < count < 1 or (isinstance(count, int) and count >= 1)):
            raise InputError(f"inputs.sample must be a number of rows or a share below 1, not {count}")
        try:
            "".encode(self.encoding)
        except (LookupError, ValueError):
            raise InputError(
                f'inputs.encoding {shown(self.encoding)} is unknown: use "utf-8", "latin-1" or "utf-16"'
            ) from None

    @property
    def licenses(self) -> list[str]:
        """The licenses of the tables, each once."""
        return list(dict.fromkeys(filter(None, [self.license, *(one.license for one in self.tables)])))

    @property
    def limits(self) -> tuple[str, ...]:
        """The columns with limits for each row."""
        return tuple(filter(None, (self.max_messages, self.max_tokens)))

    def located(self, folder: Path) -> Inputs:
        """Return these settings with paths resolved against `folder`. A path changes only if the file exists there."""

        def locate(source: str) -> str:
            if source.startswith(HUB) or not (folder / source).exists():
                return source
            return str(folder / source)

        tables = tuple(replace(one, source=locate(one.source)) for one in self.tables)
        return replace(self, source=locate(self.source) if self.source else "", tables=tables)


def split_hub_name(source: str) -> tuple[str, str | None, str]:
    """Return the place, the configuration (or None) and the split (may be empty) of `hf:OWNER/NAME[/CONFIG][:SPLIT]`."""
    place, _, split = source.removeprefix(HUB).partition(":")
    if place.count("/") == 2 and not Path(place).exists():
        place, _, config = place.rpartition("/")
        return place, config, split
    return place, None, split


def column_key(name: str) -> str:
    """Return the form of a column's name in which placeholders are compared: `First Name` becomes `first_name`."""
    return re.sub(r"[\s-]", "_", name.strip()).lower()
