"""Scorers: each makes one column of scores for the conversations of a run.

An item scorer gets one conversation at a time, and what it pays for or computes is journaled: a model with a rubric, your own
function. A shard scorer gets all conversations of a shard at once, costs no call and is repeated after a kill.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import Any, cast

import msgspec

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.core.identity import identity_of
from camel.core.message import well_formed
from camel.core.model import Model
from camel.core.rubric import Rubric
from camel.core.stops import EXCLUDED
from camel.core.transcript import Score, Transcript
from camel.detectors import DETECTORS
from camel.detectors.languages import beginning_of, language_of
from camel.detectors.marks import find_in
from camel.jobs.item import Item
from camel.jobs.job import ItemFailed
from camel.jobs.state import name_of
from camel.models.spec import ModelSpec
from camel.record.arrow import stream_groups, to_table
from camel.record.parquet import arrow
from camel.runs.reader import RunReader, need_module

MOST_REASON = 1_000
"""Maximum number of characters of a reason that are stored."""
NEAR = 0.8
"""Similarity to an earlier conversation from which one is a near duplicate."""


class Scorer(ABC):
    """Makes one column of scores."""

    model: Model | ModelSpec | None = None
    """The model that is called. None if the scores cost nothing; then a changed scorer replaces its earlier scores."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return what determines the scores, as JSON."""


class ItemScorer(Scorer):
    """Scores one conversation at a time."""

    @abstractmethod
    async def score(self, item: Item, name: str, transcript: Transcript) -> Score:
        """Return the score of a conversation. `name` is the column, and the seat of the scorer's model."""


class ShardScorer(Scorer):
    """Scores all conversations of a shard at once."""

    def prepare(self, run: RunReader, scored: Collection[int]) -> None:
        """Called before the first shard, with the numbers of the shards that have scores already."""

    @abstractmethod
    def scores(self, transcripts: Sequence[Transcript], shard: int) -> list[Score]:
        """Return the scores of a shard's conversations, in order."""


@dataclass(frozen=True)
class RubricScorer(ItemScorer):
    """Asks a model that rates by a rubric."""

    rubric: Rubric
    model: Model | ModelSpec

    def identity(self) -> dict[str, Any]:
        """Return the rubric and the model."""
        return {**self.rubric.identity(), "model": name_of(self.model)}

    async def score(self, item: Item, name: str, transcript: Transcript) -> Score:
        """Ask the model. Raises `ItemFailed` if no answer contains a rating."""
        said = await self.rubric.rate(item.model(name), transcript, item.id)
        if said.rating is None:
            raise ItemFailed(f"no rating in {self.rubric.asks} answers, the last: {shown(said.text)}")
        return Score(said.rating.value, said.rating.reason[:MOST_REASON], name_of(self.model))


@dataclass(frozen=True)
class FunctionScorer(ItemScorer):
    """Calls your function with each conversation. It is identified by its name and, if it has one, its `version`."""

    function: Callable[[Transcript], Any]

    def identity(self) -> dict[str, Any]:
        """Return the function's name and version."""
        return {"function": identity_of(self.function)}

    async def score(self, item: Item, name: str, transcript: Transcript) -> Score:
        """Call the function: an async one for several conversations at once, another one in a thread of its own."""

        async def make() -> bytes:
            try:
                if inspect.iscoroutinefunction(self.function):
                    value = await self.function(transcript)
                else:
                    loop = asyncio.get_running_loop()
                    value = await loop.run_in_executor(self._thread, self.function, transcript)
            except Exception as error:
                raise ItemFailed(f"{name} raised {type(error).__name__}: {error}") from error
            return msgspec.json.encode(as_score(value, name))

        return msgspec.json.decode(await item.once(f"{name} {item.id}".encode(), make), type=Score)

    @cached_property
    def _thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "camel-score")


def as_score(value: Any, name: str) -> Score:
    """Return the result of a function as a score: a number, true or false, a word, None, or one of these with a reason."""
    if isinstance(value, Score):
        return value
    reason = ""
    if isinstance(value, tuple) and len(cast("tuple[Any, ...]", value)) == 2:
        value, reason = cast("tuple[Any, Any]", value)
    if isinstance(value, str):
        return Score(None, well_formed(str(reason))[:MOST_REASON], text=well_formed(value))
    try:
        number = None if value is None else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if number is not None and not math.isfinite(number):
        raise ItemFailed(
            f"{name} returned {shown(value)}: return a number, a bool, a str or None, or (value, reason)"
        )
    return Score(number, well_formed(str(reason))[:MOST_REASON])


@dataclass(frozen=True)
class DetectorScorer(ShardScorer):
    """Counts the findings of one detector."""

    detector: str

    def identity(self) -> dict[str, Any]:
        """Return the detector and its version."""
        return {"detector": self.detector, "version": DETECTORS[self.detector].version}

    def scores(self, transcripts: Sequence[Transcript], shard: int) -> list[Score]:
        """Run the detector."""
        found = [find_in(one, [self.detector]) for one in transcripts]
        return [Score(float(len(its)), its[0].reason if its else "") for its in found]


@dataclass(frozen=True)
class LanguageScorer(ShardScorer):
    """Detects the language of each conversation."""

    def identity(self) -> dict[str, Any]:
        """Return the method's name."""
        return {"language": 1}

    def scores(self, transcripts: Sequence[Transcript], shard: int) -> list[Score]:
        """Return each language as text. It is empty if no language is recognized."""
        said = (beginning_of([message.content for message in one.messages]) for one in transcripts)
        return [Score(None, text=language_of(text) or "") for text in said]


@dataclass(frozen=True)
class OverlapScorer(ShardScorer):
    """Finds conversations that contain a test question."""

    questions: tuple[str, ...]
    """Files of JSON lines, or names of shipped sets such as `humaneval`."""

    def identity(self) -> dict[str, Any]:
        """Return hashes of the questions."""
        from camel.evaluation.exam_questions import digest_of

        return {"questions": [digest_of(one) for one in self.questions]}

    @cached_property
    def _index(self) -> Any:
        from camel.evaluation.exam_questions import read_questions
        from camel.evaluation.overlap import ExamQuestions

        return ExamQuestions(one for name in self.questions for one in read_questions(name))

    def scores(self, transcripts: Sequence[Transcript], shard: int) -> list[Score]:
        """Return 1 for a conversation that contains a question, whose name is the reason."""
        found = self._index.found_in(to_table(transcripts))
        return [
            Score(float(row in found), self._index.names[found[row]] if row in found else "")
            for row in range(len(transcripts))
        ]


@dataclass(frozen=True)
class DuplicateScorer(ShardScorer):
    """Finds copies. Of equal conversations, the first one has no mark: the first in order among those scored together."""

    near: float = 0.0
    """Minimum similarity of near duplicates. 0 finds only exact duplicates."""
    _lock: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)
    _found: dict[int, Any] = field(default_factory=dict[int, Any], init=False, repr=False, compare=False)
    """An array for each shard: whether each conversation is a copy."""
    _order: list[Any] = field(default_factory=list[Any], init=False, repr=False, compare=False)

    def identity(self) -> dict[str, Any]:
        """Return the similarity."""
        return {"similarity": self.near or 1.0}

    def prepare(self, run: RunReader, scored: Collection[int]) -> None:
        """Note the run. Conversations with scores come first, because their scores do not change."""
        self._order[:] = [run, frozenset(scored)]
        self._found.clear()

    def scores(self, transcripts: Sequence[Transcript], shard: int) -> list[Score]:
        """Return 1 for each copy. The first call compares all conversations of the run."""
        with self._lock:
            if not self._found:
                self._found.update(self._compare(*self._order))
        return [Score(float(copy)) for copy in self._found[shard]]

    def _compare(self, run: RunReader, scored: Collection[int]) -> dict[int, Any]:
        from camel.evaluation.overlap import BANDS, BINS, bands, digests, equal_rows, signatures, similarity

        np, pc = arrow("numpy"), arrow("pyarrow.compute")
        ends = np.cumsum([0, *(marker.rows for marker in run.markers)])
        count, at = int(ends[-1]), 0
        keys, usable = np.zeros(count, np.int64), np.zeros(count, bool)
        with tempfile.TemporaryFile(prefix="camel-") as scratch:
            signed = np.memmap(scratch, np.uint16, "w+", shape=(count, BINS)) if self.near else None
            for part in run.parts:
                with run.opened([part]) as files:
                    for group in stream_groups(next(files)):
                        until = at + group.num_rows
                        keys[at:until] = digests(group).to_numpy()
                        if signed is not None:
                            signed[at:until] = signatures(group)
                        reasons = pc.struct_field(group.column("stop"), "reason").to_pylist()
                        sizes = group.column("num_messages").to_pylist()
                        usable[at:until] = [
                            bool(size) and reason not in EXCLUDED
                            for size, reason in zip(sizes, reasons, strict=True)
                        ]
                        at = until
            known = np.repeat([marker.shard in scored for marker in run.markers], np.diff(ends))
            order = np.argsort(~known, kind="stable")
            order = order[usable[order]]
            ranks, copies = np.arange(len(order)), np.zeros(len(order), bool)
            if signed is None:
                copies[equal_rows(keys[order], ranks)[1]] = True
            else:
                rows = signed[order]
                for band in range(BANDS):
                    alive = ~copies
                    firsts, others = equal_rows(bands(rows[alive])[:, band], ranks[alive])
                    copies[others[similarity(rows, firsts, others) >= self.near]] = True
        found = np.zeros(count, bool)
        found[order] = copies
        return {
            marker.shard: found[start:end]
            for marker, start, end in zip(run.markers, ends[:-1], ends[1:], strict=True)
        }


@dataclass(frozen=True)
class ClassifierScorer(ShardScorer):
    """Runs a sequence classifier or reward model of Hugging Face on this machine, on a GPU if there is one."""

    name: str
    """A model on the Hugging Face hub, or a folder."""
    label: str = ""
    """The label whose probability is the score. Default: the most likely label as text, with its probability."""
    batch: int = 16
    _lock: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)

    def identity(self) -> dict[str, Any]:
        """Return the model and the label."""
        return {"classifier": self.name, "label": self.label}

    @cached_property
    def _loaded(self) -> tuple[Any, Any, Any]:
        torch, transformers = need_module("torch", "train"), need_module("transformers", "train")
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(self.name)
            model = transformers.AutoModelForSequenceClassification.from_pretrained(self.name)
        except (OSError, ValueError) as error:
            raise InputError(f"cannot load the classifier {shown(self.name)}: {error}") from None
        labels = dict[str, int](model.config.label2id or {})
        if self.label and self.label not in labels:
            raise InputError(f"{self.name} has no label {self.label!r}. Use one of {', '.join(labels)}")
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        model.config.pad_token_id = tokenizer.pad_token_id
        return torch, tokenizer, model.eval().to("cuda" if torch.cuda.is_available() else "cpu")

    def scores(self, transcripts: Sequence[Transcript], shard: int) -> list[Score]:
        """Run the model in batches. A model with one output gives its value, such as a reward."""
        with self._lock:  # threads would only compete for the same processor
            torch, tokenizer, model = self._loaded
            texts = [_text_of(one, tokenizer) for one in transcripts]
            most = min(
                tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None) or 512
            )
            made: list[Score] = []
            for at in range(0, len(texts), self.batch):
                given = tokenizer(
                    texts[at : at + self.batch],
                    truncation=True,
                    max_length=most,
                    padding=True,
                    return_tensors="pt",
                ).to(model.device)
                with torch.inference_mode():
                    logits = model(**given).logits.float().cpu()
                made += [self._score(row, model.config) for row in logits]
            return made

    def _score(self, logits: Any, config: Any) -> Score:
        if len(logits) == 1:
            return Score(float(logits[0]), by=self.name)
        shares = logits.softmax(0)
        if self.label:
            return Score(float(shares[config.label2id[self.label]]), by=self.name)
        best = int(shares.argmax())
        return Score(float(shares[best]), by=self.name, text=str(config.id2label[best]))


def _text_of(transcript: Transcript, tokenizer: Any) -> str:
    """Return a conversation as text: by the tokenizer's chat template if it has one."""
    names = [one.name for one in transcript.speakers] or [one.speaker for one in transcript.messages]
    if tokenizer.chat_template and names:
        seat = "assistant" if "assistant" in names else names[-1]
        return tokenizer.apply_chat_template(transcript.to_messages(seat), tokenize=False)
    return "\n\n".join(f"{one.role}: {one.content}" for one in transcript.messages)
