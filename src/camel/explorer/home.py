"""The runs of the catalogue: their table on the first page, and what the top of a run's pages shows.

The one decision to know: figures from a run's folder (its markers, its log) know no labels. They are shown only if the
run has no conversation that is hidden from this reader.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from camel.core.checks import shown
from camel.core.errors import CamelError
from camel.explorer.colors import ending, ending_order
from camel.explorer.measured import day, reports_of
from camel.explorer.routing import PageRequest
from camel.explorer.views import PageState, run_url, words
from camel.index.facets import elements
from camel.jobs.progress import Snapshot
from camel.jobs.status import read_status
from camel.maps.table import maps_of
from camel.query.answers import NotThere
from camel.query.catalogue import Catalogue
from camel.query.sources import CatalogueRun
from camel.query.where import Query
from camel.record.release import RESTRICTED
from camel.reports.numbers import counted, duration, money, short
from camel.scenarios import load


def labels_of(source: CatalogueRun) -> frozenset[str]:
    """The labels that conversations of a run have, or will have."""
    found = labels_in(source)
    with contextlib.suppress(CamelError, OSError):  # an import, or a scenario that is not on this machine
        found |= set(load(str(source.folder.settings().config.get("scenario", ""))).labels)
    return found


def labels_in(source: CatalogueRun) -> frozenset[str]:
    """The labels of the conversations that a run has."""
    return frozenset(one for part in source.parts for labels in part.labels for one in elements(labels))


def hidden_labels(source: CatalogueRun, allowed: Collection[str]) -> frozenset[str]:
    """Restricted labels of a run for which its reader has not given consent."""
    return labels_of(source).intersection(RESTRICTED) - set(allowed)


def source_of(catalogue: Catalogue, name: str) -> CatalogueRun:
    """A run by its name; raises `NotThere`."""
    source = next((one for one in catalogue.runs if one.name == name), None)
    if source is None:
        raise NotThere(f"there is no run {shown(name)}")
    return source


def snapshot_of(source: CatalogueRun, hidden: Collection[str]) -> Snapshot | None:
    """The state of a run; None for an import, or where labels of it are hidden."""
    if hidden or "imported" in source.folder.settings().config:
        return None
    with contextlib.suppress(CamelError, OSError):
        return read_status(source.address)
    return None


def run_rows(catalogue: Catalogue, allowed: Collection[str]) -> list[dict[str, Any]]:
    """The runs as the first page lists them, newest first."""
    rows = [_row(catalogue, source, allowed) for source in catalogue.runs]
    return sorted(rows, key=lambda row: row["time"], reverse=True)


def _row(catalogue: Catalogue, source: CatalogueRun, allowed: Collection[str]) -> dict[str, Any]:
    query = Query(runs=(source.name,))
    hidden = hidden_labels(source, allowed)
    config, count = source.folder.settings().config, catalogue.count(query)
    now = snapshot_of(source, hidden)
    facets = catalogue.facets(query) if count else {}
    models = [name for name, of in facets.get("model", ()) if name and of]
    time = _time(source, now)
    stage = next((one for one in now.stages if one.committed < one.planned), None) if now else None
    return {
        "name": source.name,
        "link": run_url(source.name),
        "address": source.address,
        "scenario": f"imported ({config['imported']})" if "imported" in config else _scenario(config),
        "model": models[0]
        if len(models) == 1
        else f"{len(models)} models"
        if models
        else now.model
        if now
        else "",
        "count": count,
        "tokens": short(now.usage.total) if now and now.usage.calls else "",
        "cost": money(now.money) if now and now.money else "",
        "endings": endings_bar(facets.get("stop", ())),
        "reports": 0 if hidden else len(reports_of(source)),
        "state": ("paused" if now.paused else now.state) if now and now.state != "complete" else "",
        "progress": f"{stage.finished:,} of {stage.planned:,} {stage.title}"
        if stage and stage.planned
        else "",
        "done": 100 * stage.finished / stage.planned if stage and stage.planned else 0,
        "watch": f"/watch/{quote(source.name, safe='')}" if now else "",
        "hidden": sorted(hidden),
        "closed": bool(hidden) and not count,
        "time": time,
        "date": day(time),
    }


def _scenario(config: dict[str, Any]) -> str:
    return str(config.get("scenario", "")).rstrip("/").rpartition("/")[2]


def _time(source: CatalogueRun, now: Snapshot | None) -> str:
    """When a run was last worked on; of one without a log, when its folder was made."""
    if now and now.as_of:
        return now.as_of
    with contextlib.suppress(OSError):
        return datetime.fromtimestamp((source.folder.root / "run.json").stat().st_mtime, UTC).isoformat()
    return ""


def endings_bar(counts: Collection[tuple[str, int]], width: float = 110.0) -> dict[str, Any]:
    """A bar with a segment for each ending, and what it says in words."""
    there = [
        (ending(stop), count) for stop, count in sorted(counts, key=lambda one: ending_order(one[0])) if count
    ]
    total = sum(count for _, count in there)
    segments, x = [], 0.0
    for mark, count in there:
        wide = max(1.0, (width - len(there) + 1) * count / total)
        segments.append({"css": mark.css, "x": round(x, 1), "width": round(wide, 1)})
        x += wide + 1
    done = sum(count for mark, count in there if mark.css == "e-done")
    says = f"{done:,} of {total:,} done" if total else ""
    return {"segments": segments, "says": says, "marks": list({mark.css: mark for mark, _ in there}.values())}


def run_head(asked: PageRequest, name: str, here: str, *, full: bool = False) -> dict[str, Any]:
    """The title, facts and tabs of a run, for the template `run_head.html`; `full` adds facts that are read from its log."""
    source = source_of(asked.catalogue, name)
    hidden = hidden_labels(source, asked.allowed)
    config, state = source.folder.settings().config, PageState(Query(runs=(name,)))
    now = snapshot_of(source, hidden) if full else None
    counts = config.get("counts")
    facts = [
        f"imported ({config['imported']})" if "imported" in config else _scenario(config),
        " × ".join(counted(number, words(level)) for level, number in counts.items())
        if isinstance(counts, dict)
        else "",
        now.model if now else str(config.get("model.name", "")),
        _finished(now) if now else "",
    ]
    reports = [] if hidden else reports_of(source)
    count = asked.catalogue.count(state.query)
    tabs = [
        ("run", "Overview", "", run_url(name)),
        ("list", "Conversations", f"{count:,}", state.url("/list")),
        ("statistics", "Statistics", "", state.url("/statistics")),
        ("map", "Map", "", state.url("/map")) if maps_of(source.folder) else None,
        ("reports", "Reports", str(len(reports) or ""), f"{run_url(name)}#measured") if reports else None,
        ("watch", "Live", "", f"/watch/{quote(name, safe='')}") if "imported" not in config else None,
        ("configuration", "Configuration", "", f"{run_url(name)}/configuration"),
    ]
    return {
        "name": name,
        "link": run_url(name),
        "facts": [fact for fact in facts if fact],
        "address": "" if "imported" in config else source.address,
        "tabs": [tab for tab in tabs if tab],
        "tab": here,
        "count": count,
        "hidden": sorted(hidden),
        "random": state.url("/random"),
        "snapshot": now,
    }


def _finished(now: Snapshot) -> str:
    then = day(now.as_of)
    took = f" in {duration(now.elapsed)}" if now.elapsed >= 1 else ""
    if now.state == "complete":
        return f"finished {then}{took}" if then else "finished"
    return f"{now.state}{f', last active {then}' if then and now.state != 'working' else ''}"
