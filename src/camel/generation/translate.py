"""Translation: every message of a run into another language, as a stage of its own.

The markers of the grammar stay as they are, so that a translated conversation still parses. A reply that lost one, that is
empty, cut off or not in the language is asked for again, each time in other words, a bounded number of times.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from camel.core.errors import InputError, ModelError, ServerFailed
from camel.core.history import History, estimate_tokens
from camel.core.message import Message, Sampling, Usage
from camel.core.model import Model, Request
from camel.core.transcript import Transcript
from camel.engine.stage import Stage, Steps, Written
from camel.engine.supervisor import run_stage
from camel.engine.worker import Halt, Unfinished
from camel.models.recorded import RecordedModel
from camel.scenarios import Translate, load
from camel.storage.reader import Run
from camel.storage.table import write_shard

TRIES = 3
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

    def __init__(self, run: Run, language: str, model: Model, *, sampling: Sampling = SAMPLING) -> None:
        scenario = load("translation")
        assert isinstance(scenario.end, Translate)
        if language not in scenario.end.languages:
            known = ", ".join(scenario.end.languages)
            raise InputError(f"no language {language!r}: known are {known}")
        self.run, self.language, self.translate = run, language, scenario.end
        self._model, self._sampling = model, sampling
        self._starts = [0]
        for marker in run.markers:
            self._starts.append(self._starts[-1] + marker.rows)
        self._shard = lru_cache(maxsize=2)(self._read)
        self.calls = 0
        """Calls that its messages took, those of earlier starts that were replayed included."""
        self.damaged = 0
        """Messages that no try could mend; they are kept, and their conversations labelled `damaged-translation`."""

    def stage(self, shard_size: int = 512) -> Stage:
        """The stage that does it."""
        return Stage(
            name=f"translated-{self.language}",
            count=len(self.run),
            work=self._work,
            write=_write,
            shard_size=shard_size,
        )

    def _read(self, shard: int) -> list[Transcript]:
        return self.run.shard(shard)

    def _original(self, index: int) -> Transcript:
        shard = bisect_right(self._starts, index) - 1
        return self._shard(shard)[index - self._starts[shard]]

    async def _work(self, index: int, steps: Steps) -> Transcript:
        original = self._original(index)
        model = RecordedModel(self._model, steps.once)
        translated = msgspec.structs.replace(
            original, messages=[], facts={**original.facts, "language": self.language}
        )
        sound = True
        try:
            for message in original.messages:
                said, fine = await self._message(model, original.id, message)
                translated.messages.append(said)
                sound = sound and fine
        except ModelError as error:
            raise Unfinished(str(error)) from None
        if not sound:
            translated.labels = [*original.labels, "damaged-translation"]
        return translated

    async def _message(self, model: Model, identity: str, message: Message) -> tuple[Message, bool]:
        """Translate one message; the last try is kept even if it is damaged."""
        if not _letters(message.content, self.translate):  # nothing but markers
            return msgspec.structs.replace(message, usage=Usage(), latency=0.0), True
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
        self.calls += attempts
        self.damaged += bool(wrong)
        said = msgspec.structs.replace(
            message, content=content, model=reply.model, usage=usage, finish=reply.choices[0].finish
        )
        return said, not wrong


def _write(path: Path, records: Sequence[Any]) -> Written:
    shard = write_shard(path, records)
    return Written(shard.rows, shard.sha256, {})


async def translate(
    run: Run, language: str, model: Model, *, concurrency: int = 64, halt: Halt | None = None
) -> Translation:
    """Put a run into another language, or go on with it; what is committed is not done again."""
    translation = Translation(run, language, model)
    halt = halt or Halt()
    with run.folder.locked():
        for _ in range(TRIES):
            complete = await run_stage(
                translation.stage(),
                run.folder,
                concurrency=concurrency,
                fingerprint=run.settings.fingerprint,
                halt=halt,
            )
            if complete or halt.reason:
                break
        else:
            raise ServerFailed(
                f"some conversations could not be put into {language}: run the same command again"
            )
    return translation
