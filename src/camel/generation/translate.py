"""Translation: every message of a run into another language, as a stage of its own.

The markers of the grammar stay as they are, so that a translated conversation still parses. A reply that lost one, that is
empty, cut off or not in the language is asked for again, each time in other words, a bounded number of times.

The one decision to know: a language is done by one model with one prompt. What it was begun with is kept with the run,
and going on with anything else is refused.
"""

from __future__ import annotations

import hashlib
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from camel.core.checks import shown
from camel.core.errors import InputError, ModelError, ServerFailed
from camel.core.history import History, estimate_tokens
from camel.core.message import Message, Sampling, Usage
from camel.core.model import Model, Request
from camel.core.stops import Stop
from camel.core.transcript import Transcript
from camel.engine.halt import Halt
from camel.engine.journaled import journaled
from camel.engine.stage import Stage, Steps, Written
from camel.engine.supervisor import run_stage
from camel.generation.campaign import Counted, Tally, failures_in, totals_of
from camel.generation.config import fingerprint, shard_size_for
from camel.jobs.budget import Budget, Meter, MeteredModel
from camel.jobs.failures import failure_of
from camel.models.catalogue import find
from camel.models.recorded import RecordedModel
from camel.record.arrow import write_shard
from camel.runs.reader import RunReader
from camel.scenarios import Translate, load

STAGE = "translated-"
"""Begins the name of a stage; the language's code ends it."""
DAMAGED = "damaged-translation"
TRIES = 3
SAMPLED = 100
"""Conversations by which the cost of a translation is told beforehand."""
SAMPLING = Sampling(temperature=0.2)
TRANSLATOR = "translator"
AGAIN = "Please translate the message again, all of it, and keep every marker as it is."
SCRIPTS = {
    "ar": "ARABIC",
    "zh": "CJK",
    "ko": "HANGUL",
    "ja": ("CJK", "HIRAGANA", "KATAKANA"),
    "hi": "DEVANAGARI",
    "ru": "CYRILLIC",
}
"""Scripts by which a translation is told from its English original; for the others the words must differ."""


def damage(text: str, translated: str, language: str, translate: Translate) -> str:
    """What is wrong with a translation, in words; empty when nothing can be seen."""
    if translate.kept(text) != translate.kept(translated):
        return "a marker is missing, added or out of order"
    said = _letters(text, translate)
    if len(said) < 12:
        return ""
    got = _letters(translated, translate)
    if not got:
        return "it is empty"
    if not 0.15 <= len(got) / len(said) <= 6:
        return "its length is far from the original's"
    if script := SCRIPTS.get(language):
        share = sum(unicodedata.name(c, "").startswith(script) for c in got) / len(got)
        if share < 0.3:
            return "it is not in the language"
    elif "".join(got).lower() == "".join(said).lower():
        return "it is not translated"
    return ""


def _letters(text: str, translate: Translate) -> list[str]:
    for marker in translate.keep:
        text = text.replace(marker, " ")
    return [c for c in text if c.isalpha()]


class Translation:
    """A run being put into another language; its stage belongs to the same run's folder."""

    def __init__(
        self,
        run: RunReader,
        language: str,
        model: Model,
        *,
        sampling: Sampling = SAMPLING,
        halt: Halt | None = None,
        meter: Meter | None = None,
        accept_model: bool = False,
    ) -> None:
        """`accept_model` continues with another model than the one it was begun with. `meter` has the budget, and the halt that it sets; several languages may share one."""
        scenario = load("translation")
        assert isinstance(scenario.end, Translate)
        if language not in scenario.end.languages:
            known = ", ".join(scenario.end.languages)
            raise InputError(f"no language {language!r}: known are {known}")
        self.run, self.language, self.translate = run, language, scenario.end
        self.name = f"{STAGE}{language}"
        self.meter = meter or Meter(Budget(), find(model.name), halt or Halt())
        self.halt = self.meter.halt
        self.last_pass = False
        """Whether a failure becomes the conversation's record, as no other try follows."""
        self.tally, self._counted = Tally(len(run)), Counted()
        self._model, self._sampling = MeteredModel(model, self.meter), sampling
        settings = self._begun(model.name or type(model).__name__, accept_model)
        self._shard_size = int(settings["shard_size"])
        self.fingerprint = fingerprint(settings)
        self._starts = [0]
        for marker in run.markers:
            self._starts.append(self._starts[-1] + marker.rows)
        self._shard = lru_cache(maxsize=2)(self._read)

    def _begun(self, model: str, accept_model: bool) -> dict[str, Any]:
        """What the translation was begun with, if it may go on with what it has now."""
        done = self.run.folder.committed(self.name)
        prompt = [self.translate.prompt, *self.translate.keep, AGAIN]
        wanted: dict[str, Any] = {
            "model": model,
            "prompt": hashlib.sha256(repr(prompt).encode()).hexdigest()[:16],
            "sampling": msgspec.to_builtins(self._sampling),
            "conversations": len(self.run),
            "of": self.run.settings.fingerprint,
            # Before this was kept, all had shards of 512.
            "shard_size": 512 if done else shard_size_for(len(self.run)),
        }
        with self.run.folder.locked():
            begun = self.run.folder.begun(self.name, wanted)
            changed = f"{self.name}.model"
            if accept_model and self.run.folder.accepted().get(changed, begun.get("model")) != model:
                self.run.folder.accept({changed: model})
            model_now = self.run.folder.accepted().get(changed, begun.get("model"))
        now = {**begun, "model": model_now}
        differs = [name for name in wanted if name != "shard_size" and now.get(name) != wanted[name]]
        if differs:
            details = ", ".join(
                f"{name} was {shown(now.get(name))} and is {shown(wanted[name])}" for name in differs
            )
            hint = (
                f": continue with --model {model_now}, or say --accept-change model.name"
                if differs == ["model"]
                else ""
            )
            raise InputError(f"the stage {self.name} was begun with something else ({details}){hint}")
        return begun

    @property
    def damaged(self) -> int:
        """Conversations with a message that no try could mend; it is kept, and they are labelled."""
        folder = self.run.folder
        markers = (folder.marker(self.name, shard) for shard in folder.committed(self.name))
        return sum(int(marker.totals.get("damaged", 0)) for marker in markers)

    def spent(self) -> Usage:
        """What earlier starts have used, by the markers and by the journals of shards that are still open."""
        return sum(
            journaled(self.run.folder, self.name, self.run.folder.journaled(self.name)), self._kept().usage
        )

    def dearer(self) -> float:
        """Dollars that earlier starts have paid beyond what the same would cost today."""
        return self._kept().dearer

    def _kept(self) -> Counted:
        """What the markers say; each is read once."""
        folder = self.run.folder
        for marker in folder.markers(self.name, sorted(folder.committed(self.name) - self._counted.shards)):
            self._counted.add(marker, self.meter.price)
        return self._counted

    def estimate(self) -> Usage:
        """What is left will take about this: as what is done did, else each message once, as long as the original."""
        self.recount()
        done, left = self.tally.committed, self.tally.planned - self.tally.committed
        used = self._kept().usage
        if not done:
            some = [self._original(index) for index in range(0, left, max(1, left // SAMPLED))]
            done = len(some)
            for message in (message for record in some for message in record.messages):
                if _letters(message.content, self.translate):
                    # Three bytes a token is on the high side by a quarter, for English.
                    size, asked = (
                        estimate_tokens(text) * 4 // 5
                        for text in (message.content, self.translate.asked(message.content, self.language))
                    )
                    used += Usage(asked, size, calls=1)
        share = left / max(1, done)
        return Usage(
            round(used.prompt * share), round(used.completion * share), calls=round(used.calls * share)
        )

    def stage(self) -> Stage:
        """The stage that does it."""
        return Stage(
            name=self.name,
            count=len(self.run),
            work=self._tallied,
            write=self._write,
            shard_size=self._shard_size,
        )

    def recount(self) -> None:
        """Count what is committed, by the markers."""
        stage = self.stage()
        done = sum(len(stage.indices(shard)) for shard in self.run.folder.committed(self.name))
        self.tally = Tally(stage.count, done, done)

    async def _tallied(self, index: int, steps: Steps) -> Transcript:
        self.tally.open += 1
        try:
            record = await self._work(index, steps)
        finally:
            self.tally.open -= 1
        self.tally.finished += 1
        return record

    def _read(self, shard: int) -> list[Transcript]:
        return self.run.shard(shard)

    def _original(self, index: int) -> Transcript:
        shard = bisect_right(self._starts, index) - 1
        return self._shard(shard)[index - self._starts[shard]]

    async def _work(self, index: int, steps: Steps) -> Transcript:
        original = self._original(index)
        model = RecordedModel(self._model, steps.once)
        translated = msgspec.structs.replace(
            original, messages=[], inputs={**original.inputs, "language": self.language}
        )
        if original.failed:
            return translated  # it is in no export
        sound = True
        try:
            for message in original.messages:
                said, fine = await self._message(model, original.id, message)
                translated.messages.append(said)
                sound = sound and fine
        except ModelError as error:
            failure_of(error, self.halt, last=self.last_pass)
            translated.stop = Stop.failed(error, TRANSLATOR)
        if not sound:
            translated.labels = [*original.labels, DAMAGED]
        return translated

    async def _message(self, model: Model, identity: str, message: Message) -> tuple[Message, bool]:
        """Translate one message; the last try is kept even if it is damaged."""
        if not _letters(message.content, self.translate):  # nothing but markers
            return msgspec.structs.replace(message, usage=Usage(), latency=0.0, deliberation=None), True
        history = History()
        history.add("user", self.translate.asked(message.content, self.language))
        sampling = self._sampling
        if sampling.max_tokens is None:
            # A model that runs on must not be paid for a book: other scripts take a few times the tokens, not more.
            sampling = msgspec.structs.replace(sampling, max_tokens=4 * estimate_tokens(message.content) + 50)
        usage, attempts = Usage(), 0
        while True:
            request = Request(history, sampling, f"{identity}-{self.language}", TRANSLATOR)
            reply = await model.reply(request)
            usage, attempts, content = usage + reply.usage, attempts + 1, reply.content.strip()
            wrong = damage(message.content, content, self.language, self.translate)
            if not wrong or attempts == TRIES:
                break
            history.add("assistant", content)
            history.add("user", f"That cannot be used: {wrong}. {AGAIN}")
        # What it was chosen from was said in another language, and stays with the original.
        said = msgspec.structs.replace(
            message,
            content=content,
            model=reply.model,
            usage=usage,
            finish=reply.choices[0].finish,
            deliberation=None,
        )
        return said, not wrong

    def _write(self, path: Path, records: Sequence[Any]) -> Written:
        shard = write_shard(path, records)
        usage = sum((message.usage for record in records for message in record.messages), Usage())
        damaged = sum(DAMAGED in record.labels for record in records)
        failed = sum(record.failed for record in records)
        totals = {"damaged": float(damaged), "failed": float(failed), **failures_in(records)}
        return Written(shard.rows, shard.sha256, {**totals_of(usage, self.meter.price), **totals})


async def translate(translation: Translation, *, concurrency: int = 64) -> bool:
    """Do a translation, or go on with it; what is committed is not done again. True when all of it is there."""
    folder = translation.run.folder
    with folder.locked():
        for attempt in range(TRIES):
            translation.last_pass = attempt == TRIES - 1
            translation.recount()
            if translation.tally.committed < translation.tally.planned:
                folder.hold_journals(translation.name)
            complete = await run_stage(
                translation.stage(),
                folder,
                concurrency=concurrency,
                fingerprint=translation.fingerprint,
                halt=translation.halt,
            )
            if not complete and (reason := translation.meter.failures.all_rejected()):
                translation.halt.set(reason)
            if complete or translation.halt.reason:
                return complete
    raise ServerFailed(
        f"some conversations could not be put into {translation.language}: run the same command again"
    )
