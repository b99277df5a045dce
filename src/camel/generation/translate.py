"""Translation: a stage that translates every message of a run into another language.

The grammar's markers stay unchanged, so that a translated conversation still parses. If a reply has lost a marker, is empty,
cut off or not in the language, the model is asked again with another wording, a limited number of times.

The one decision to know: a language is translated by one model with one prompt. Both are stored with the run, and resuming
with others raises an error.
"""

from __future__ import annotations

import asyncio
import hashlib
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path

import msgspec
from msgspec.structs import replace as replaced

from camel.core.errors import CamelError, InputError
from camel.core.history import History, estimate_tokens
from camel.core.message import Message, Sampling, Usage
from camel.core.model import Model, Request
from camel.core.stops import Stop
from camel.core.transcript import Transcript
from camel.generation.conversations import read_transcripts, returned_record, why_failed
from camel.generation.table_plan import rewrite_shards
from camel.jobs.item import Item
from camel.jobs.job import Job, Stage
from camel.jobs.ledger import spent_on, usage_of
from camel.jobs.progress import expect_line
from camel.jobs.state import name_of, price_of
from camel.jobs.status import check_finished
from camel.models.spec import ModelSpec
from camel.record.arrow import write_shard
from camel.runs.markers import Marker
from camel.runs.plan import layout_of, read_plan
from camel.runs.reader import RunReader
from camel.runs.run import RunFolder
from camel.scenarios import Translate, load

STAGE = "translated-"
"""Prefix of a stage's name. The language's code follows."""
DAMAGED = "damaged-translation"
TRIES = 3
IN_BATCHES = 2_000
"""Number of conversations whose messages are translated together in batches."""
SAMPLED = 100
"""Number of conversations in the sample for the estimate."""
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
"""Scripts by which a translation from English is recognized. In other languages, only the words must differ."""


def damage(text: str, translated: str, language: str, translate: Translate) -> str:
    """Return what is wrong with a translation, or an empty string if no problem is found."""
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


@dataclass(frozen=True)
class Translation(Job):
    """The job that translates a run. Its stages are stored in the folder of that run."""

    name = "translate"
    log = "translate.jsonl"
    run: str
    """The run's folder or address."""
    languages: tuple[str, ...]
    """Codes of languages, such as `ar`."""
    model: Model | ModelSpec
    sampling: Sampling = SAMPLING
    place: str = field(init=False)
    models: Mapping[str, Model | ModelSpec] = field(init=False)

    def __post_init__(self) -> None:
        known = translation().languages
        if wrong := [one for one in self.languages if one not in known]:
            raise InputError(f"unknown language {wrong[0]!r}: choose from {', '.join(known)}")
        object.__setattr__(self, "place", self.run)
        object.__setattr__(self, "models", {"": self.model})

    def open(self, accept: Collection[str] = ()) -> RunFolder:
        """Open the run's folder. Raise an `InputError` if the run is incomplete, because its records must not change."""
        if unknown := sorted(set(accept) - {"model.name"}):
            raise InputError(f"--accept-change must be model.name, not {unknown[0]!r}")
        check_finished(self.run, "translated")
        return RunReader(self.run).folder

    def prepare(self, run: RunFolder) -> None:
        """Begin to rewrite the translation's shards whose conversations changed because rows of the table were removed or returned."""
        if plan := read_plan(run):
            with run.locked():
                for language in dict.fromkeys(self.languages):
                    rewrite_shards(run, plan, f"{STAGE}{language}")

    def outline(self, run: RunFolder) -> Sequence[Stage]:
        """Return all stages."""
        originals = Originals(RunReader(self.run))
        return [
            Translator(originals, language, self.sampling, self.model.batch).stage(name_of(self.model))
            for language in dict.fromkeys(self.languages)
        ]

    def result(self, run: RunFolder) -> dict[str, int]:
        """Return the number of conversations with a failed translation, by language. These conversations are labeled."""
        return {language: damaged_in(run, language) for language in dict.fromkeys(self.languages)}

    def estimator(self, run: RunFolder) -> TranslationEstimator:
        """Return an estimator: from finished items, or one call per message with a reply as long as the original."""
        return TranslationEstimator(self, run)

    @property
    def title(self) -> str:
        """The run and the languages."""
        return f"{Path(self.run).name} in {', '.join(self.languages)}"


class TranslationEstimator:
    """Estimates a translation when it starts."""

    def __init__(self, job: Translation, run: RunFolder) -> None:
        self._model, originals = job.model, Originals(RunReader(job.run))
        done, self._left = Usage(), Usage()
        for language in dict.fromkeys(job.languages):
            translator = Translator(originals, language, job.sampling)
            self._left += translator.estimate()
            done += spent_on(run, [translator.stage_name])
        price = price_of(self._model)
        self._expected = done + (
            msgspec.structs.replace(self._left, usd=price.cost(self._left)) if price else self._left
        )

    def add(self, marker: Marker) -> None:
        """Ignore a finished shard: the estimate is fixed."""

    def expected(self) -> Usage:
        """Return the estimated total usage over all processes."""
        return self._expected

    def forecast(self) -> Iterator[str]:
        """Yield a line about what remains to be translated."""
        if self._left.calls:
            yield expect_line("expect", name_of(self._model), self._left, price_of(self._model))


def translation() -> Translate:
    """Return the prompt, the languages and the markers to keep."""
    end = load("translation").end
    assert isinstance(end, Translate)
    return end


class Originals:
    """The conversations of a run by item. A few shards are cached."""

    def __init__(self, run: RunReader) -> None:
        self.run, self.layout, self.plan = run, layout_of(run), read_plan(run.folder)
        self._shard = lru_cache(maxsize=2)(run.shard)

    def __len__(self) -> int:
        return len(self.run)

    def __getitem__(self, item: int) -> Transcript:
        shard = self.layout.shard_of(item)
        return self._shard(shard)[self.layout.items(shard).index(item)]


class _Try:
    """A message and the state of its translation."""

    def __init__(self, message: Message) -> None:
        self.message, self.history, self.wrong = message, History(), ""
        # The deliberation is in the original language and stays with the original.
        self.said = replaced(message, usage=Usage(), latency=0.0, deliberation=None)


class Translator:
    """Translates the conversations of a run into one language."""

    def __init__(self, originals: Originals, language: str, sampling: Sampling, batch: bool = False) -> None:
        """If `batch` is true, all messages of a conversation are translated at once."""
        self._originals, self.language, self._sampling, self._batch = originals, language, sampling, batch
        self.translate, self.stage_name = translation(), f"{STAGE}{language}"
        self._folder = originals.run.folder

    def stage(self, model: str) -> Stage:
        """Return the stage that translates the run."""
        originals = self._originals
        prompt = [self.translate.prompt, *self.translate.keep, AGAIN]
        return Stage(
            name=self.stage_name,
            count=originals.layout.count,
            work=self._work,
            write=write_shard,
            failed=self._failed,
            failure=why_failed,
            counts=lambda record: ("damaged",) if DAMAGED in record.labels else (),
            id=lambda index: originals[index].id,
            read=partial(read_transcripts, self._folder),
            identity={
                "model": model,
                "prompt": hashlib.sha256(repr(prompt).encode()).hexdigest()[:16],
                "sampling": msgspec.to_builtins(self._sampling),
                "of": originals.run.settings.fingerprint,
            },
            segments=originals.layout.segments,
            inactive=originals.layout.inactive,
            number=(lambda record: record.item) if originals.plan else None,
            concurrency=IN_BATCHES if self._batch else None,
        )

    def estimate(self) -> Usage:
        """Estimate the usage of the remaining messages."""
        done, used = 0, Usage()
        for marker in self._folder.markers(self.stage_name, sorted(self._folder.committed(self.stage_name))):
            done += marker.rows
            used += usage_of(marker.totals)
        left = len(self._originals) - done
        if not done:
            some = [self._originals[item] for item in self._sampled(left)]
            done = len(some)
            for message in (message for record in some for message in record.messages):
                if _letters(message.content, self.translate):
                    # For English, three bytes per token overestimates by 25 %.
                    size, asked = (
                        estimate_tokens(text) * 4 // 5
                        for text in (message.content, self.translate.asked(message.content, self.language))
                    )
                    used += Usage(asked, size, calls=1)
        share = left / max(1, done)
        return Usage(
            round(used.prompt * share), round(used.completion * share), calls=round(used.calls * share)
        )

    def _sampled(self, count: int) -> list[int]:
        """Return some items, spread over the run."""
        layout, step = self._originals.layout, max(1, count // SAMPLED)
        return [item for item in range(0, layout.count, step) if item in layout.items(layout.shard_of(item))]

    async def _work(self, item: Item) -> Transcript:
        if found := await returned_record(self._originals.plan, self.stage_name, item.index):
            return found
        original = self._originals[item.index]
        inputs = {**original.inputs, "language": self.language}
        translated = item.draft = replaced(original, messages=[], inputs=inputs)
        if original.excluded:
            return translated  # excluded conversations are not exported
        model, tries = item.model(), [_Try(one) for one in original.messages]
        # Messages with markers only are skipped.
        left = [one for one in tries if _letters(one.said.content, self.translate)]
        for _ in range(TRIES):
            # In rounds, so that the order of steps is the same with and without batches.
            asks = (self._message(model, original.id, one) for one in left)
            if self._batch:
                ended = await asyncio.gather(*asks, return_exceptions=True)
                if errors := [error for error in ended if error]:
                    raise errors[0]
            for ask in asks:
                await ask
            left = [one for one in left if one.wrong]
        translated.messages = [one.said for one in tries]
        if left:
            translated.labels = [*original.labels, DAMAGED]
        return translated

    def _failed(self, item: Item, error: CamelError) -> Transcript:
        translated: Transcript = item.draft
        translated.stop = Stop.failed(error, TRANSLATOR)
        return translated

    async def _message(self, model: Model, identity: str, one: _Try) -> None:
        """Translate one message. The result of the last attempt is stored even if it has a problem."""
        message, history, sampling = one.message, one.history, self._sampling
        if one.wrong:
            history.add("assistant", one.said.content)
            history.add("user", f"That cannot be used: {one.wrong}. {AGAIN}")
        else:
            history.add("user", self.translate.asked(message.content, self.language))
        if sampling.max_tokens is None:
            # Limit the length: other scripts take a few times as many tokens, not more.
            sampling = replaced(sampling, max_tokens=4 * estimate_tokens(message.content) + 50)
        reply = await model.reply(Request(history, sampling, f"{identity}-{self.language}", TRANSLATOR))
        content = reply.content.strip()
        one.wrong = damage(message.content, content, self.language, self.translate)
        finish, usage = reply.choices[0].finish, one.said.usage + reply.usage
        one.said = replaced(one.said, content=content, model=reply.model, usage=usage, finish=finish)


def damaged_in(folder: RunFolder, language: str) -> int:
    """Return the number of conversations with a message that no attempt translated properly. They are labeled."""
    stage = f"{STAGE}{language}"
    markers = folder.markers(stage, sorted(folder.committed(stage)))
    return sum(int(marker.totals.get("damaged", 0)) for marker in markers)
