"""Facts about the runs of the catalogue, for the table on the first page and the top of a run's pages.

The one decision to know: figures from a run's folder (its markers, its log) include conversations with any label. They are
shown only if no conversation of the run is hidden from the reader.

Reports that commands have written next to a run are served only if they were found by these names. No path comes from a URL.

    RUN/<folder>/<name>.html          a study or an evaluation, and the votes on its pairs
    RUN/branches.html                 the effect of the changes that the branches of a run have
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from camel.core.checks import shown as quoted
from camel.core.errors import CamelError
from camel.evaluation.votes import latest, read_records, votes_folder
from camel.explorer.colors import ending, ending_order
from camel.explorer.routing import PageRequest
from camel.explorer.views import day, url
from camel.index.facets import elements
from camel.jobs.progress import Snapshot
from camel.jobs.status import read_status
from camel.maps.table import maps_of
from camel.query.answers import NeedsConsent, NotThere
from camel.query.catalogue import Catalogue
from camel.query.sources import CatalogueRun
from camel.query.where import Query
from camel.record.release import RESTRICTED
from camel.reports.numbers import counted
from camel.scenarios import load
from camel.storage import inside

KINDS = {"evaluation": "Evaluation", "study": "Study", "branches": "Branches", "humaneval": "HumanEval"}
"""The kind of a report, by the name of its file."""
FILES = {"html": "text/html; charset=utf-8", "md": "text/plain; charset=utf-8", "json": "application/json"}


class StoredReport(NamedTuple):
    """A report that a command has written next to a run on this machine."""

    root: Path
    folder: str
    """The folder of the report below `root`. Empty if it is in `root` itself."""
    name: str

    @property
    def key(self) -> str:
        """The name of the report's folder in URLs."""
        return self.folder or self.name

    def read(self, ending: str) -> bytes:
        """Return the file of the report with this ending. Symbolic links are not followed."""
        return inside.read(self.root, f"{self.folder}/{self.name}.{ending}".lstrip("/"))

    def shown(self, base: str) -> Iterator[dict[str, str]]:
        """Yield list entries for the report and for the votes on its pairs: kind, title, first sentence, date and link."""
        with contextlib.suppress(CamelError, OSError):
            lines = self.read("md")[:20_000].decode("utf-8", "replace").splitlines()
            texts = [
                line.lstrip("# ").translate({ord(mark): None for mark in "\\*`"})
                for line in lines
                if line.strip()
            ]
            changed = (self.root / self.folder / f"{self.name}.html").stat().st_mtime
            made = {
                "kind": KINDS[self.name],
                "title": texts[0] if texts else KINDS[self.name],
                "about": texts[1][:300] if texts[1:] else "",
                "date": day(datetime.fromtimestamp(changed, UTC).isoformat()),
                "link": f"{base}/{self.key}/{self.name}.html",
            }
            yield made
            votes = latest(read_records(votes_folder(self.root / self.folder)))
            if total := sum(map(len, votes.values())):
                people = "1 person" if len(votes) == 1 else f"{len(votes):,} people"
                title = f"{counted(total, 'vote')} by {people}"
                yield made | {"kind": "Vote", "title": title, "about": f"On the pairs of the {self.name}."}


def reports_of(source: CatalogueRun) -> list[StoredReport]:
    """Return the reports about a run that is on a disk."""
    found: list[StoredReport] = []
    if source.folder.on_disk:
        root = source.folder.root
        with contextlib.suppress(CamelError, OSError):
            places = [(folder, name) for folder in sorted(inside.folders(root, "")) for name in KINDS]
            found += [
                StoredReport(root, *one) for one in places if (root / one[0] / f"{one[1]}.html").is_file()
            ]
        if (root / "branches.html").is_file():
            found.append(StoredReport(root, "", "branches"))
    return found


def labels_in(source: CatalogueRun) -> frozenset[str]:
    """Return the labels of the conversations that are already in a run."""
    return frozenset(one for part in source.parts for labels in part.labels for one in elements(labels))


def hidden_labels(source: CatalogueRun, allowed: Collection[str]) -> frozenset[str]:
    """Return the restricted labels of a run, also those that its scenario will add, to which the reader has not consented."""
    found = labels_in(source)
    with contextlib.suppress(CamelError, OSError):  # an import, or a scenario that is not on this machine
        found |= set(load(str(source.folder.settings().config.get("scenario", ""))).labels)
    return found.intersection(RESTRICTED) - set(allowed)


def source_of(catalogue: Catalogue, name: str) -> CatalogueRun:
    """Return a run by its name. Raise `NotThere` if there is no such run."""
    for source in catalogue.runs:
        if source.name == name:
            return source
    raise NotThere(f"there is no run {quoted(name)}")


def open_source(asked: PageRequest) -> CatalogueRun:
    """Return the run in the URL. Raise `NeedsConsent` if a part of it is hidden from the reader."""
    source = source_of(asked.catalogue, asked.request.path_params["run"])
    if hidden := hidden_labels(source, asked.allowed):
        raise NeedsConsent(hidden)
    return source


def run_facts(asked: PageRequest, source: CatalogueRun, *, state: bool = True) -> dict[str, Any]:
    """Return what pages show about a run: settings, number of conversations and reports and, if `state` is true, status."""
    hidden, config = hidden_labels(source, asked.allowed), source.folder.settings().config
    now: Snapshot | None = None
    with contextlib.suppress(CamelError, OSError):
        now = read_status(source.address) if state and not hidden and "imported" not in config else None
    time = now.as_of if now else ""
    if not time and source.folder.on_disk:  # without a log: when the folder was made
        time = datetime.fromtimestamp((source.folder.root / "run.json").stat().st_mtime, UTC).isoformat()
    return {
        "name": source.name,
        "address": "" if "imported" in config else source.address,
        "config": config,
        "now": now,
        "count": asked.catalogue.count(Query(runs=(source.name,))),
        "hidden": sorted(hidden),
        "reports": 0 if hidden else len(reports_of(source)),
        "has_map": bool(maps_of(source.folder)),
        "time": time,
    }


def run_rows(asked: PageRequest) -> list[dict[str, Any]]:
    """Return the rows of the table of runs on the first page, newest run first."""
    rows = [run_facts(asked, source) for source in asked.catalogue.runs]
    for row in rows:
        facets = asked.catalogue.facets(Query(runs=(row["name"],))) if row["count"] else {}
        stops = sorted(facets.get("stop", ()), key=lambda one: ending_order(one[0]))
        row["endings"] = [(ending(stop), count) for stop, count in stops if count]
        row["models"] = [name for name, count in facets.get("model", ()) if name and count]
    return sorted(rows, key=lambda row: row["time"], reverse=True)


def run_head(asked: PageRequest, name: str, tab: str) -> dict[str, Any]:
    """Return the facts about a run for the template `run_head.html`, and the name of the open tab."""
    return run_facts(asked, source_of(asked.catalogue, name), state=tab == "run") | {"tab": tab}


def measured(source: CatalogueRun, allowed: Collection[str]) -> list[dict[str, str]]:
    """Return the kind, title, first sentence, date and link of each report and map of a run. Hidden runs have none."""
    if hidden_labels(source, allowed):  # reports quote conversations
        return []
    made = [
        shown
        for stored in reports_of(source)
        for shown in stored.shown(f"/reports/{quote(source.name, safe='')}")
    ]
    for of in maps_of(source.folder):
        link = url("/map", [("run", source.name), ("of", of)])
        made.append({"kind": "Map", "title": f"Map of {of}", "about": "", "date": "", "link": link})
    return made
