"""The first page: every run that was given, how far it is and what it used.

The one decision to know: figures of a run's folder (its markers, its log) know no labels. They are shown only where the
run has no conversation that this reader may not see.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Any
from urllib.parse import quote

from camel.core.errors import CamelError
from camel.explorer.views import PageState
from camel.index.facets import elements
from camel.jobs.progress import Snapshot
from camel.jobs.status import read_status
from camel.maps.table import maps_of
from camel.query.catalogue import Catalogue
from camel.query.sources import CatalogueRun
from camel.query.where import Query
from camel.record.release import RESTRICTED
from camel.reports.numbers import counted, money, short
from camel.scenarios import load

STATES = {"working": "live", "complete": "good", "stopped": "", "new": ""}


def labels_of(source: CatalogueRun) -> frozenset[str]:
    """The labels that conversations of a run have, or will have."""
    found = labels_in(source)
    with contextlib.suppress(CamelError, OSError):  # an import, or a scenario that is elsewhere now
        found |= set(load(str(source.folder.settings().config.get("scenario", ""))).labels)
    return found


def labels_in(source: CatalogueRun) -> frozenset[str]:
    """The labels of the conversations that a run has."""
    return frozenset(one for part in source.parts for labels in part.labels for one in elements(labels))


def hidden_labels(source: CatalogueRun, allowed: Collection[str]) -> frozenset[str]:
    """Restricted labels of a run for which its reader has not given consent."""
    return labels_of(source).intersection(RESTRICTED) - set(allowed)


def run_cards(catalogue: Catalogue, allowed: Collection[str]) -> list[dict[str, Any]]:
    """The runs as the first page shows them."""
    return [_card(catalogue, source, allowed) for source in catalogue.runs]


def _card(catalogue: Catalogue, source: CatalogueRun, allowed: Collection[str]) -> dict[str, Any]:
    state = PageState(Query(runs=(source.name,)))
    hidden = hidden_labels(source, allowed)
    config = source.folder.settings().config
    count = catalogue.count(state.query)
    imported = "imported" in config
    card: dict[str, Any] = {
        "title": source.name.replace("_", " "),
        "where": "" if imported else source.address,
        "state": f"imported ({config['imported']})" if imported else "",
        "state_class": "",
        "scenario": "" if imported else str(config.get("scenario", "")),
        "labels": sorted(labels_of(source)),
        "figures": [("conversations", f"{count:,}")] if count or not hidden else [],
        "planned": 0,
        "done": 0,
        "progress": "",
        "hidden": sorted(hidden),
        "closed": bool(hidden) and not count,
        "link": state.url("/list"),
        "random": state.url("/random"),
        "statistics": state.url("/statistics"),
        "map": state.url("/map") if maps_of(source.folder) else "",
        "watch": "" if imported else f"/watch/{quote(source.name, safe='')}",
    }
    if imported or hidden:
        return card
    try:
        now = read_status(source.address)
    except (CamelError, OSError):
        return card
    return card | _figures(now, card)


def _figures(now: Snapshot, card: dict[str, Any]) -> dict[str, Any]:
    figures = list(card["figures"])
    if now.usage.calls:
        figures.append(("tokens", short(now.usage.total)))
    if now.money:
        figures.append(("spent", money(now.money)))
    stage = next((one for one in now.stages if one.committed < one.planned), None)
    done: dict[str, Any] = {"state": now.state, "state_class": STATES[now.state], "figures": figures}
    if stage is not None and stage.planned:
        done |= {
            "planned": stage.planned,
            "done": stage.finished,
            "progress": f"{stage.title}: {stage.finished:,} of {counted(stage.planned, 'item')}",
        }
    return done
