"""Finds the reports that commands have written next to a run.

    RUN/<folder>/<name>.html          a study or an evaluation, and the votes on its pairs
    RUN/../../ablation.html           the ablation that a run is one variant of

The one decision to know: a report is served only if it was found by looking for these names. No path comes from a URL.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from camel.core.errors import CamelError
from camel.evaluation.votes import latest, read_records, votes_folder
from camel.query.sources import CatalogueRun
from camel.reports.numbers import counted
from camel.storage import inside

KINDS = {"evaluation": "Evaluation", "study": "Study", "ablation": "Ablation", "humaneval": "HumanEval"}
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
        if (root.parent.parent / "ablation.html").is_file():
            found.append(StoredReport(root.parent.parent, "", "ablation"))
    return found


def day(time: str) -> str:
    """Return the day of an ISO time, written as 3 May 2025."""
    try:
        then = datetime.fromisoformat(time)
    except ValueError:
        return ""
    return f"{then.day} {then:%b %Y}"
