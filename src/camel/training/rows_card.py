"""The dataset card of training rows, which the hub shows.

The one decision to know: the card is written once, when all rows are finished. An existing card is never replaced, because
the publisher adds a title and a license to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath

import msgspec

from camel._version import __version__
from camel.formats.dataset import Split, card_of, plain
from camel.record.release import RESTRICTED
from camel.runs.plan import read_plan
from camel.runs.reader import RunReader
from camel.training.recipe import Recipe

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
