"""Finished training rows: reads them from a disk or an object store, and writes their dataset card, which the hub shows.

The one decision to know: the card is written once, when all rows are finished. An existing card is never replaced, because
the publisher adds a title and a license to it.
"""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path, PurePath
from typing import Any

import msgspec

from camel._version import __version__
from camel.core.errors import Damaged, InputError
from camel.formats.dataset import Split, card_of, plain
from camel.record.arrow import stream_groups
from camel.record.parquet import Table
from camel.record.release import RESTRICTED
from camel.runs.plan import read_plan
from camel.runs.reader import RunReader
from camel.runs.run import RunFolder, open_folder
from camel.runs.verify import compare_file
from camel.storage.files import taking_place
from camel.training.recipe import Recipe

SHAPED, MIXED = "rows", "mixed"
"""Names of the stages that make rows: from conversations, then without duplicates and with weights."""


class Rows:
    """Finished training rows. Iterate over them, or get their Parquet files with `opened` or `local`."""

    def __init__(self, path: str | Path) -> None:
        self.folder = open_folder(path)
        if self.folder.on_disk and self.folder.root.is_file():
            raise InputError(
                f"'{path}' is a file, not a folder of rows. Make a folder of rows from a run with camel rows RUN"
            )
        if not self.folder.committed(MIXED):
            raise InputError(f"'{self.folder.address}' has no rows yet. Make them with camel rows")
        if self.folder.committed(MIXED) != self.folder.committed(SHAPED):
            raise InputError(f"'{self.folder.address}' is not finished. Rerun its camel rows command")
        self.markers = list(self.folder.markers(MIXED, sorted(self.folder.committed(MIXED))))

    def __len__(self) -> int:
        return sum(marker.rows for marker in self.markers)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for group in self.groups():
            yield from group.to_pylist()

    def groups(self) -> Iterator[Table]:
        """Yield the rows as tables, one row group at a time."""
        with self.opened() as files:
            for file in files:
                yield from stream_groups(file)

    def opened(self) -> AbstractContextManager[Iterator[Path]]:
        """Provide the Parquet files as local files, one at a time. Each is available until the next is requested."""
        return self.folder.opened(marker.file for marker in self.markers)

    def local(self, into: Path) -> list[Path]:
        """Return all Parquet files as local files. Those in an object store are copied to the folder `into`."""
        if self.folder.on_disk:
            return [self.folder.path(marker.file) for marker in self.markers]
        # Named by content, so that a resumed training downloads only the missing files.
        wanted = {marker.file: into / f"{marker.sha256}.parquet" for marker in self.markers}
        into.mkdir(parents=True, exist_ok=True)
        missing = [file for file, path in wanted.items() if not path.exists()]
        with self.folder.opened(missing) as files:
            for file, fetched in zip(missing, files, strict=True):
                with taking_place(wanted[file]) as path:
                    shutil.copyfile(fetched, path)
        return list(wanted.values())

    def check(self) -> None:
        """Raise `Damaged` if the content of a file has changed since it was committed."""
        with reporting_damage(self.folder), self.opened() as files:
            for file, marker in zip(files, self.markers, strict=True):
                if problems := compare_file(file, marker).problems:
                    raise InputError(f"{marker.file}: {problems[0]}")


@contextmanager
def reporting_damage(folder: RunFolder) -> Generator[None]:
    """Convert errors about the rows of a folder into `Damaged`, with the command that makes the rows again."""
    try:
        yield
    except (InputError, FileNotFoundError) as error:
        raise Damaged(
            f"'{folder.address}' is damaged ({str(error).partition(';')[0]}). Make its rows again with camel rows --force"
        ) from None


_COLUMNS = (
    "Each row is a chat from the point of view of one seat: `id`, `conversation` (its id), `scenario`, `seat`, `messages` (role, content;",
    "train only on the assistant's messages), `tokens`, `labels`, and `canary` if a label requires one.",
)


def rows_card(
    recipe: Recipe, runs: Sequence[RunReader], counts: Mapping[str, int], rows: int, size: int
) -> str:
    """Return the text of the dataset card. `counts` are the numbers of used and excluded conversations and rows, in order."""
    shape = msgspec.structs.asdict(recipe.shape)
    sources = [_source(run, one.weight) for run, one in zip(runs, recipe.sources, strict=True)]
    parts = [
        [
            f"{rows:,} training rows, made with CAMEL from conversations between language-model agents. The text was written by models "
            "and contains errors and invented facts."
        ],
        [
            "## Provenance",
            "",
            *dict.fromkeys(sources),
            "- Shape: " + ", ".join(f"{name} {plain(str(value)).lower()}" for name, value in shape.items()),
            f"- Written by camel-society {__version__}",
            "- License: none stated; text written by a model is also subject to the terms of that model.",
        ],
        [
            "## Filters",
            "",
            "| | |",
            "|---|---:|",
            *(f"| {plain(name)} | {n:,} |" for name, n in counts.items()),
        ],
        ["## Columns", "", *_COLUMNS],
    ]
    return card_of(
        PurePath(recipe.out).name or "rows",
        "",
        {"train": Split("data/mixed/*.parquet", rows, size)},
        parts,
        restricted=not RESTRICTED.isdisjoint(recipe.acknowledge),
        canary=recipe.canary,
    )


def _source(run: RunReader, weight: float) -> str:
    """Describe a run by its name. The folders above it are omitted, because they are private."""
    model = run.settings.config.get("model.name")
    often = f", each row {weight:g} times" if weight != 1 else ""
    plan = read_plan(run.folder)
    licenses = ", ".join(map(plain, plan.licenses if plan else []))
    given = f", license of the inputs: {licenses}" if licenses else ""
    sampling = plain(msgspec.json.encode(run.settings.config.get("sampling") or {}).decode())
    return (
        f"- Run `{plain(PurePath(run.folder.address).name)}`: model {f'`{plain(str(model))}`' if model else 'not recorded'}, "
        f"sampling `{sampling}`, configuration fingerprint `{plain(run.settings.fingerprint)}`{often}{given}"
    )
