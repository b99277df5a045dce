"""The questions that models are asked, by domain: written by a model as the paper's were, or given as a file.

The one decision to know: each list is an item of a stage named by all that decides it, and what came of it lies beside the
report as JSON lines. That file is what `camel rows --questions` takes, so that nobody trains on what they are tested on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from camel.core.errors import InputError
from camel.core.history import estimate_tokens
from camel.core.message import Usage
from camel.engine.stage import Written, write_whole
from camel.evaluation.tasks import Drawn
from camel.evaluation.windows import AskedModel
from camel.jobs.item import Item
from camel.jobs.job import Stage
from camel.runs.run import RunFolder
from camel.scenarios.lists import ask_list
from camel.scenarios.scenario import fill_count
from camel.storage.files import replacing
from camel.training.emergence.emergence_config import SHIPPED, Domain, EmergenceConfig
from camel.training.recipe import read_questions

FOLDER = "questions"
PROMPTS = Path(__file__).parent / "prompts"
LIKELY_TOKENS = 45
"""Of a question."""
_UNWRITTEN = "A question that is not written yet. " * 5


class QuestionList(msgspec.Struct, frozen=True):
    """A list that a model wrote."""

    items: list[str]


class _Part(NamedTuple):
    domain: Domain
    subject: str
    wanted: int
    prompt: str
    stage: Stage


class Questions:
    """The questions of a study, in its folder."""

    def __init__(self, kept: Path, config: EmergenceConfig, writer: AskedModel | None) -> None:
        """`writer` may be None where every domain has a file."""
        self.folder, self.config = RunFolder(kept), config
        self.given = {one.name: _read(one) for one in config.domains if one.file}
        self._parts: list[_Part] = []
        if written := [one for one in config.domains if not one.file]:
            if writer is None:
                raise InputError(
                    f"name who writes the questions of {written[0].label}: writer, or judges; or give its file"
                )
            self._parts = [self._part(one, *part, writer) for one in written for part in one.parts]

    def _part(self, domain: Domain, subject: str, count: int, writer: AskedModel) -> _Part:
        prompt = (PROMPTS / f"{SHIPPED.get(domain.name, 'subject-1')}.txt").read_text("utf-8").strip()
        sampling = msgspec.structs.replace(self.config.questions, seed=self.config.seed)
        told = [prompt, subject, count, writer.name, writer.version, sampling]
        fingerprint = hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:16]

        async def work(item: Item) -> QuestionList:
            items = await ask_list(
                item.model(writer.seat),
                lambda wanted: fill_count(prompt, wanted, {"SUBJECT": subject}),
                count,
                sampling=sampling,
                session=f"{domain.name}-{subject}",
            )
            return QuestionList(items)

        stage = Stage(
            name=f"questions-{fingerprint[:12]}",
            count=1,
            work=work,  # without `failed`: all answers hang on it, so that a list that cannot be had stops the study
            write=_write,
            id=lambda index: f"the questions of {domain.label}",
            fingerprint=fingerprint,
            seat=writer.seat,
            suffix=".json",
            shard_size=1,
        )
        return _Part(domain, subject, count, prompt, stage)

    def stages(self) -> tuple[Stage, ...]:
        """The stages that write questions."""
        return tuple(part.stage for part in self._parts)

    # ---------------------------------------------------------------- what there is

    @property
    def left(self) -> int:
        """Questions that are still to be written."""
        return sum(part.wanted for part in self._parts if not self._done(part))

    @property
    def total(self) -> int:
        """Questions in all."""
        return sum(one.questions for one in self.config.domains)

    def tasks(self, domain: Domain) -> list[Drawn]:
        """A domain's questions; those that are not written yet are there in number, for whoever asks what it costs."""
        texts = self.given.get(domain.name)
        if texts is None:
            texts = [
                text for part in self._parts if part.domain.name == domain.name for text in self._texts(part)
            ]
        return [Drawn(f"{domain.name}-{place:03}", text, (), {}) for place, text in enumerate(texts, 1)]

    def _texts(self, part: _Part) -> list[str]:
        found = self._record(part)
        return found.items if found else [_UNWRITTEN] * part.wanted

    def estimate(self) -> Usage:
        """What is left to write will take about this."""
        need = Usage()
        for part in self._parts:
            if not self._done(part):
                need += Usage(estimate_tokens(part.prompt), LIKELY_TOKENS * part.wanted, calls=1)
        return need

    def save(self, out: Path) -> None:
        """Write the questions beside the report, once all of them are there."""
        (out / FOLDER).mkdir(exist_ok=True)
        for domain in self.config.domains:
            with replacing(file_of(out, domain)) as file:
                for task in self.tasks(domain):
                    file.write(msgspec.json.encode({"id": task.id, "question": task.text}) + b"\n")

    # ---------------------------------------------------------------- what is kept

    def _done(self, part: _Part) -> bool:
        return bool(self.folder.committed(part.stage.name))

    def _record(self, part: _Part) -> QuestionList | None:
        if not self._done(part):
            return None
        return msgspec.json.decode(
            self.folder.read(self.folder.marker(part.stage.name, 0).file), type=QuestionList
        )


def file_of(out: Path, domain: Domain) -> Path:
    """Where a domain's questions lie."""
    return out / FOLDER / f"{domain.name}.jsonl"


def _read(domain: Domain) -> list[str]:
    """The first questions of a domain's file."""
    found = [one.texts[0] for one in read_questions(domain.file) if one.texts]
    if len(found) < domain.questions:
        raise InputError(
            f"{domain.file} has {len(found)} questions, and {domain.label} is to have {domain.questions}: "
            "add some, or lower its number"
        )
    return found[: domain.questions]


def _write(path: Path, records: Sequence[Any]) -> Written:
    (record,) = records
    return write_whole(path, msgspec.json.encode(record), 1)
