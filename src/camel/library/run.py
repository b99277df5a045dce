"""`Run`, the API of a run for programs and notebooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Self

from camel.core.errors import InputError
from camel.core.transcript import Transcript
from camel.formats.dataset import dataset_rows, dataset_schema
from camel.formats.exporters import write_format
from camel.query.columns import narrow
from camel.record.arrow import read_shard, stream_shard
from camel.record.release import Exported, Release
from camel.reports.notebook import facts_html
from camel.reports.numbers import counted, money
from camel.runs.canary import canary_of
from camel.runs.plan import read_plan
from camel.runs.reader import RunReader, need_module
from camel.runs.scores import ScoredRun, scores_of_row

if TYPE_CHECKING:
    from camel.core.model import Model
    from camel.jobs.progress import Snapshot
    from camel.library.branches import Branches
    from camel.models.spec import ModelSpec
import os
import shutil
import tempfile
from datetime import UTC, datetime
from importlib.resources import as_file, files

MADE = datetime(2026, 11, 18, tzinfo=UTC).timestamp()
"""Time at which the conversations were made. The explorer shows it for the imported run, which has no log."""


def open_gallery(folder: str | Path = "camel-demo/gallery") -> dict[str, Run]:
    """Copy the gallery to a folder, unless it is there already, and open its runs by name.

        runs = camel.open_gallery()
        runs["ai-society"][0].show()

    Everything that works on a run works on these, without a model or a network. `README.md` in the folder describes the
    runs: a large language model composed them through CAMEL's own loop, and nine of them fail on purpose.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with as_file(files("camel") / "gallery") as gallery:
        for source in sorted(gallery.iterdir()):
            if not (folder / source.name).exists():
                _copy(source, folder)
        names = [one.name for one in sorted(gallery.iterdir()) if one.is_dir()]
    return {name: Run(folder / name) for name in names}


def _copy(source: Path, folder: Path) -> None:
    """Copy a file or a folder. If the copy is interrupted, nothing exists under the target's name."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".copy-") as scratch:
        copy = Path(scratch) / source.name
        if source.is_dir():
            shutil.copytree(source, copy, copy_function=shutil.copyfile)
            os.utime(copy / "run.json", (MADE, MADE))
        else:
            shutil.copyfile(source, copy)
        copy.replace(folder / source.name)


@dataclass(frozen=True)
class StoredConversation:
    """One conversation of a run, returned by `run[0]` and `run["id"]`."""

    run: Run
    transcript: Transcript

    @property
    def id(self) -> str:
        """The id of the conversation in the run."""
        return self.transcript.id

    def fork(self, at: int, **given: Any) -> Branches:
        """Continue the conversation from message `at`, its number as displayed, with a change and without one.

            run["017"].fork(at=7, model="gpt-4.1", n=20).effect("done")

        See `camel.fork` for the arguments.
        """
        from camel.library.branches import fork

        given.setdefault("out", f"{self.run.folder.address.rstrip('/')}-branches-{self.id}-{at}")
        return fork([self.transcript], at, **given)

    @property
    def result(self) -> dict[str, Any] | None:
        """The conversation's structured result, if there is one."""
        return self.transcript.result

    def show(self) -> None:
        """Print the conversation with every message shortened to one line. A notebook cell that ends in it shows it in full."""
        print(self.transcript)  # noqa: T201

    def __str__(self) -> str:
        return str(self.transcript)

    def _repr_html_(self) -> str:
        """Return the conversation as HTML for a notebook."""
        return self.transcript._repr_html_()  # pyright: ignore[reportPrivateUsage] - the notebook's name for it


class Run(RunReader):
    """The stored conversations of a run, in the order of their items.

    `for transcript in Run("runs/ai_society")`, `run[0].show()`, `run["000017"].transcript`, `run.status()`,
    `run.export("chat", "chats.jsonl")`, `run.to_pandas()`, `run.sql("select stop.reason, count(*) …")`.
    """

    def __getitem__(self, which: int | str) -> StoredConversation:
        """Return a conversation by its index among the committed ones, from 0, or by its id."""
        if isinstance(which, int) and not -len(self) <= which < len(self):
            raise IndexError(
                f"{self.folder.address} has {counted(len(self), 'conversation')}; there is no index {which}"
            )
        place = range(len(self))[which] if isinstance(which, int) else self._place_of(which)
        for part in self.parts:
            rows = range(sum(part.rows)) if self.chosen is None else self.chosen[part.file]
            if place < len(rows):
                with self.opened([part]) as files:
                    found = next(stream_shard(next(files), rows[place], rows[place] + 1))
                found.scores = found.scores | scores_of_row(self, part, rows[place])
                return StoredConversation(self, found)
            place -= len(rows)
        raise AssertionError("a run has as many rows as its parts")

    def _place_of(self, id: str) -> int:
        before = 0
        for part in self.parts:
            with self.opened([part]) as files:
                ids: list[str] = read_shard(next(files), ["id"])["id"].to_pylist()
            ids = ids if self.chosen is None else [ids[row] for row in self.chosen[part.file]]
            if id in ids:
                return before + ids.index(id)
            before += len(ids)
        raise KeyError(f"{self.folder.address} has no conversation {id!r}")

    @property
    def name(self) -> str:
        """The name of the run's folder. The folders above it are private."""
        return PurePath(self.folder.address).name

    def where(self, text: str) -> Self:
        """Return a view of the run with the conversations that a filter expression selects.

            run.where('score.helpful >= 4 and stop = "done"').export("messages", "good.jsonl")

        A view has all methods of a run. docs/formats.md lists the columns.
        """
        return narrow(self, text)

    def status(self) -> Snapshot:
        """Return the run's progress, its usage, and the estimated total."""
        from camel.jobs.status import read_status

        return read_status(self.folder.address)

    def export(
        self,
        format: str,
        path: str | Path,
        *,
        acknowledge: bool = False,
        with_reasoning: bool = False,
        metadata: bool | None = None,
        split: Mapping[str, float] | None = None,
        split_by: str = "",
        by: str = "",
        margin: float = 0.0,
        processes: int = 1,
        **options: Any,
    ) -> Exported:
        """Export committed conversations: `run.export("messages", "rows.jsonl")`. docs/formats.md lists the formats.

        `acknowledge` is required for conversations that simulate misuse; the export then includes their scenario's canary.
        `with_reasoning` adds the models' reasoning, in the formats that support it. `metadata` adds or removes the key with
        id, run, inputs, scores and result. `split={"train": 0.9, "test": 0.1}` writes a folder; conversations with the same
        value of `split_by`, such as `input.customer`, stay together. `by="score.helpful"` compares scores for the format
        preferences, at least `margin` apart. `title` and `license` are for the card of the format dataset, and `seat` is
        the speaker to train on in the formats messages, sharegpt and preferences. `processes` is the number of processes
        that make rows of JSON, without `split`. More than one needs `if __name__ == "__main__":` in a program.
        """
        if (margin and not by) or (split_by and not split):
            raise InputError("`margin` needs `by`, and `split_by` needs `split`")
        canary = canary_of(self.folder) if acknowledge else ""
        options |= {"by": by, "margin": margin} if by else {}
        if format == "dataset":
            options["input_licenses"] = plan.licenses if (plan := read_plan(self.folder)) else []
        release = Release(acknowledge, canary, with_reasoning, self.name, metadata)
        return write_format(
            format, lambda: ScoredRun(self, processes), Path(path), release, split or {}, split_by, **options
        )

    def score(
        self,
        *,
        model: Model | ModelSpec | str | None = None,
        replace: bool = False,
        limits: Mapping[str, Any] | None = None,
        **columns: Any,
    ) -> Run:
        """Add columns of scores, and return the run with them. Later calls score only new conversations.

            def short(transcript):
                return len(transcript.messages) < 8

            run.score(short=short, clear=camel.Rubric("Is the advice clear?", scale=(1, 5)), model="gpt-4.1-mini")

        A column is a function that returns a number, a bool, a word or None, each alone or with a reason as `(value,
        reason)`; a `Rubric` by which `model` rates; or `language=True`, `duplicates=True`, `detectors=True`,
        `questions="humaneval"`. A function is identified by its name and `version`. `replace` replaces paid
        scores of another rubric. `limits` are arguments of `run_job`, such as `{"budget_usd": 5}`.
        """
        from camel.evaluation.scoring import ScoreJob
        from camel.library.execution import finish_job
        from camel.library.scores import find_scorers

        job = ScoreJob(self.folder.address, find_scorers(columns, model), replace)
        finish_job(job, **(limits or {}))
        return Run(self.folder.address, self.stage)

    def to_hf(self) -> Any:
        """Return all conversations as a Hugging Face `Dataset` in the layout of the export. It is stored in the cache of
        `datasets`."""
        datasets = need_module("datasets")
        self.need_some()
        if self.chosen is not None:
            raise InputError('to_hf works only for a whole run: use where(...).export("dataset", path)')
        # `datasets` identifies its cache by these; the hashes distinguish runs that were at the same path.
        given = {
            "files": [str(file.resolve()) for file in self.files],
            "content": " ".join(marker.sha256 for marker in self.markers),
            "run": self.name,
        }
        features = datasets.Features.from_arrow_schema(dataset_schema())
        return datasets.Dataset.from_generator(dataset_rows, features=features, gen_kwargs=given)

    def sql(self, query: str) -> Any:
        """Query the conversations with DuckDB as the table `run`. Returns a DuckDB relation: `.fetchall()`, `.df()`,
        `.show()`. Like `to_arrow` and `to_pandas`, it does not check the files' hashes: `camel run verify` does."""
        duckdb = need_module("duckdb")
        self.need_some()
        connection = duckdb.connect()
        if self.chosen is not None:
            connection.register("run", self.to_arrow())
            return connection.sql(query)
        # By name, because shards of earlier versions have other columns.
        connection.read_parquet([str(file) for file in self.files], union_by_name=True).create_view("run")
        return connection.sql(query)

    def view(self, *, port: int = 0, height: int = 640) -> Any:
        """Open the explorer for this run on this machine. A notebook shows it in a frame, and `url` is its address.

        It runs in a thread of this process until the process ends or `.stop()` is called. Needs the extra `explore`.
        """
        explorer = need_module("camel.explorer.app", "explore")
        return explorer.view(self.folder.address, port=port, height=height)

    def __repr__(self) -> str:
        return f"<Run {self.folder.address!r}: {counted(len(self), 'conversation')}>"

    def _repr_html_(self) -> str:
        """Return a summary of the run as HTML for a notebook. Reads only markers, so it is fast for any size."""
        config, totals = self.settings.config, Counter[str]()
        for marker in self.markers:
            totals.update(marker.totals)  # pyright: ignore[reportArgumentType] - numbers of any kind
        facts = [
            ("scenario", str(config.get("scenario", ""))),
            (self.stage, f"{len(self):,} in {counted(len(self.markers), 'shard')}"),
            *(
                (name, money(value) if name == "money" else f"{value:,.0f}")
                for name, value in sorted(totals.items())
                if value
            ),
            ("fingerprint", self.settings.fingerprint),
            ("made with", f"camel {self.settings.version}"),
        ]
        return facts_html(
            self.folder.address, [fact for fact in facts if fact[1]], "run.view() opens the explorer"
        )
