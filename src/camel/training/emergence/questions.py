"""The questions of an emergence study, by domain: written by a model as in the paper, or read from a file.

The one decision to know: each list of questions has its own stage, whose name includes a hash of the list's settings. The questions are also written
next to the report as JSON lines, for `camel rows --questions`, which excludes them from training rows.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from camel.core.errors import InputError
from camel.core.history import estimate_tokens
from camel.core.message import Usage
from camel.evaluation.contest import write_record
from camel.evaluation.contest_records import AskedModel
from camel.evaluation.exam_questions import read_questions
from camel.evaluation.overlap import ExamQuestion, ExamQuestions
from camel.evaluation.tasks import Drawn
from camel.jobs.item import Item
from camel.jobs.job import Stage
from camel.runs.run import RunFolder
from camel.scenarios.lists import ask_list
from camel.scenarios.scenario import fill_count
from camel.storage import inside
from camel.training.emergence.emergence_config import SHIPPED, Domain, EmergenceConfig
from camel.training.stored_rows import Rows

FOLDER = "questions"
PROMPTS = Path(__file__).parent / "prompts"
LIKELY_TOKENS = 45
"""Estimated number of tokens of a question."""
_UNWRITTEN = "A question that is not written yet. " * 5


class _Part(NamedTuple):
    domain: Domain
    wanted: int
    prompt: str
    stage: Stage


class Questions:
    """The questions of an emergence study: read from files, or written by a model."""

    def __init__(self, kept: Path, config: EmergenceConfig, writer: Callable[[], AskedModel]) -> None:
        """`writer` returns the model that writes questions. It is called only if a domain has no file."""
        self.folder, self.config = RunFolder(kept), config
        self.given = {one.name: _read(one) for one in config.domains if one.file}
        self._parts: list[_Part] = []
        if written := [one for one in config.domains if not one.file]:
            asked = writer()
            self._parts = [self._part(one, *part, asked) for one in written for part in one.parts]

    def _part(self, domain: Domain, subject: str, count: int, writer: AskedModel) -> _Part:
        prompt = (PROMPTS / f"{SHIPPED.get(domain.name, 'subject-1')}.txt").read_text("utf-8").strip()
        sampling = msgspec.structs.replace(self.config.questions, seed=self.config.seed)
        settings = [prompt, subject, count, writer.name, writer.version, sampling]
        fingerprint = hashlib.sha256(msgspec.json.encode(settings)).hexdigest()[:16]

        async def work(item: Item) -> dict[str, list[str]]:
            items = await ask_list(
                item.model(writer.seat),
                lambda wanted: fill_count(prompt, wanted, {"SUBJECT": subject}),
                count,
                sampling=sampling,
                session=f"{domain.name}-{subject}",
            )
            return {"items": items}

        stage = Stage(
            name=f"questions-{fingerprint[:12]}",
            count=1,
            work=work,  # without `failed`: a list that cannot be written stops the study, because answers depend on it
            write=write_record,
            id=lambda index: f"the questions of {domain.label}",
            fingerprint=fingerprint,
            seat=writer.seat,
            suffix=".json",
            shard_size=1,
        )
        return _Part(domain, count, prompt, stage)

    def stages(self) -> tuple[Stage, ...]:
        """Return the stages that write questions."""
        return tuple(part.stage for part in self._parts)

    @property
    def left(self) -> int:
        """The number of questions that are not written yet."""
        return sum(part.wanted for part in self._parts if not self._done(part))

    def tasks(self, domain: Domain) -> list[Drawn]:
        """Return a domain's questions. Questions that are not written yet are placeholders, for estimates."""
        own = [part for part in self._parts if part.domain.name == domain.name]
        texts = self.given.get(domain.name) or [text for part in own for text in self._texts(part)]
        return [Drawn(f"{domain.name}-{place:03}", text, (), {}) for place, text in enumerate(texts, 1)]

    def _texts(self, part: _Part) -> list[str]:
        if not self._done(part):
            return [_UNWRITTEN] * part.wanted
        data = self.folder.read(self.folder.marker(part.stage.name, 0).file)
        return msgspec.json.decode(data, type=dict[str, list[str]])["items"]

    def estimate(self) -> Usage:
        """Estimate the usage of writing the remaining questions."""
        open_parts = [part for part in self._parts if not self._done(part)]
        needs = (
            Usage(estimate_tokens(one.prompt), LIKELY_TOKENS * one.wanted, calls=1) for one in open_parts
        )
        return sum(needs, Usage())

    def save(self, out: Path) -> None:
        """Write the questions next to the report. All of them must exist."""
        for domain in self.config.domains:
            rows = [{"id": task.id, "question": task.text} for task in self.tasks(domain)]
            lines = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
            inside.write(out, f"{FOLDER}/{domain.name}.jsonl", lines)

    def leaks(self, rows: Sequence[str]) -> dict[str, int]:
        """Count the training rows that contain a question, by domain, because memorized answers would look like progress.

        All questions must exist. The result is cached next to them.
        """
        opened = [Rows(path) for path in rows]
        asked = {one.label: [task.text for task in self.tasks(one)] for one in self.config.domains}
        inputs = [[marker.sha256 for one in opened for marker in one.markers], asked]
        name = f"leaks-{hashlib.sha256(msgspec.json.encode(inputs)).hexdigest()[:16]}.json"
        path = self.folder.root / name
        if path.is_file():
            return msgspec.json.decode(path.read_bytes(), type=dict[str, int])
        index = ExamQuestions(ExamQuestion(name, (text,)) for name, texts in asked.items() for text in texts)
        found: Counter[str] = Counter()
        for group in (group for one in opened for group in one.groups()):
            found.update(index.names[place] for place in index.found_in(group).values())
        inside.write(self.folder.root, name, msgspec.json.encode(found, order="sorted"))
        return dict(found)

    def _done(self, part: _Part) -> bool:
        return bool(self.folder.committed(part.stage.name))


def _read(domain: Domain) -> list[str]:
    """Read the first questions from a domain's file, as many as the domain needs."""
    found = [one.texts[0] for one in read_questions(domain.file) if one.texts]
    if len(found) < domain.questions:
        raise InputError(
            f"'{domain.file}' has {len(found)} questions, but {domain.label} needs {domain.questions}. "
            "Add questions to the file, or lower `questions`"
        )
    return found[: domain.questions]
