"""What was measured about a run: the reports and votes that commands have written next to it.

    RUN/<folder>/<name>.html          a study, an evaluation
    RUN/../../ablation.html           the ablation that a run is one variant of
    RUN/../<folder>/<name>.html       a report about no single run, such as HumanEval

The one decision to know: a report is served only if it was found by looking for these names. No path comes from a URL.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from camel.core.errors import CamelError
from camel.evaluation.votes import latest, read_records, votes_folder
from camel.query.sources import CatalogueRun
from camel.reports.numbers import counted
from camel.storage import inside

KINDS = {
    "evaluation": "Evaluation",
    "study": "Study",
    "ablation": "Ablation",
    "humaneval": "HumanEval",
    "emergence": "Emergence study",
}
"""By the names of their files."""
FILES = {"html": "text/html; charset=utf-8", "md": "text/plain; charset=utf-8", "json": "application/json"}


class StoredReport(NamedTuple):
    """A report on this machine."""

    root: Path
    folder: str
    """Below `root`; empty for `root` itself."""
    name: str

    @property
    def key(self) -> str:
        """Its folder in URLs."""
        return self.folder or self.name

    def read(self, ending: str) -> bytes:
        """One of its files; no link is followed."""
        return inside.read(self.root, f"{self.folder}/{self.name}.{ending}".lstrip("/"))

    def shown(self, base: str) -> dict[str, str]:
        """What a list shows: kind, title, first sentence, date and link."""
        with contextlib.suppress(CamelError, OSError):
            lines = [
                line.strip() for line in self.read("md")[:20_000].decode("utf-8", "replace").splitlines()
            ]
            texts = [_plain(line) for line in lines if line]
            file = f"{self.folder}/{self.name}.html".lstrip("/")
            changed = datetime.fromtimestamp(inside.status_of(self.root, file).st_mtime, UTC)
            return {
                "kind": KINDS[self.name],
                "title": next(iter(texts), "") or KINDS[self.name],
                "about": next(iter(texts[1:]), "")[:300],
                "date": day(changed.isoformat()),
                "link": f"{base}/{self.key}/{self.name}.html",
            }
        return {}


def _plain(line: str) -> str:
    """A line of our own Markdown without its marks."""
    return line.lstrip("# ").replace("\\", "").replace("**", "").replace("`", "")


def reports_of(source: CatalogueRun) -> list[StoredReport]:
    """The reports about a run on a disk."""
    if not source.folder.on_disk:
        return []
    root = source.folder.root
    found = list(_below(root))
    above = root.parent.parent
    found += [StoredReport(above, "", "ablation")] if (above / "ablation.html").is_file() else []
    return found


def other_reports(sources: Iterable[CatalogueRun]) -> list[StoredReport]:
    """Reports in the folders that have runs, about no single one of them."""
    parents = dict.fromkeys(one.folder.root.parent for one in sources if one.folder.on_disk)
    return [
        report
        for parent in parents
        for report in _below(parent)
        if not (parent / report.folder / "run.json").exists()
    ]


def _below(root: Path) -> Iterator[StoredReport]:
    with contextlib.suppress(CamelError, OSError):
        for folder in sorted(inside.folders(root, "")):
            for name in KINDS:
                if (root / folder / f"{name}.html").is_file():
                    yield StoredReport(root, folder, name)


def votes_on(report: StoredReport) -> str:
    """How many votes people have cast on the pairs of an evaluation, in words; empty if none."""
    with contextlib.suppress(CamelError, OSError):
        votes = latest(read_records(votes_folder(report.root / report.folder)))
        total = sum(map(len, votes.values()))
        people = "1 person" if len(votes) == 1 else f"{len(votes):,} people"
        return f"{counted(total, 'vote')} by {people}" if total else ""
    return ""


def day(time: str) -> str:
    """The day of an ISO time, as people write it: 3 May 2025."""
    try:
        then = datetime.fromisoformat(time)
    except ValueError:
        return ""
    return f"{then.day} {then:%b %Y}"
