"""The card of rows for training: what the hub shows of them, in the frame of a dataset's card.

The one decision to know: it is written once, when the rows are whole, and never over a card that is there: whoever publishes
writes a title and a licence into it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath

import msgspec

from camel._version import __version__
from camel.formats.dataset import Split, card_of, plain
from camel.record.release import RESTRICTED
from camel.runs.reader import RunReader
from camel.training.recipe import Recipe

_COLUMNS = (
    "One row a chat, as the model in one seat took part in it: `id`, `conversation` (its id), `scenario`, `seat`, `messages` (role, content;",
    "only the assistant's are meant to be learnt), `tokens`, `labels`, and `canary` where a label asks for one.",
)


def rows_card(
    recipe: Recipe, runs: Sequence[RunReader], counts: Mapping[str, int], rows: int, size: int
) -> str:
    """The text of the card; `counts` says what became of conversations and rows, in order."""
    shape = msgspec.structs.asdict(recipe.shape)
    sources = [_source(run, one.weight) for run, one in zip(runs, recipe.sources, strict=True)]
    parts = [
        [
            f"{rows:,} rows for training, made with CAMEL from conversations between language-model agents. Text written by models: "
            "it contains errors and inventions."
        ],
        [
            "## Provenance",
            "",
            *dict.fromkeys(sources),
            "- Shape: " + ", ".join(f"{name} {plain(str(value)).lower()}" for name, value in shape.items()),
            f"- Written by camel-society {__version__}",
            "- Licence: none stated; what a model wrote is also subject to the terms of that model.",
        ],
        [
            "## What became of them",
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
    """A run by its name: the folders above it are nobody's business."""
    model = run.settings.config.get("model.name")
    often = f", each row {weight:g} times" if weight != 1 else ""
    return (
        f"- Run `{plain(PurePath(run.folder.address).name)}`: model {f'`{plain(str(model))}`' if model else 'not recorded'}, "
        f"configuration fingerprint `{plain(run.settings.fingerprint)}`{often}"
    )
