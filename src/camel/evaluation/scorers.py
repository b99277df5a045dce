"""Scorers: each makes one column of scores for the conversations of a run.

A scorer of items gets one conversation at a time, and what it pays for or computes is journaled: a model with a rubric, your own
function. A scorer of shards gets all conversations of a shard at once, costs no call and is repeated after a kill.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import tempfile
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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
BATCH = 16
"""Number of conversations that a classifier gets at once."""
ScoreShard = Callable[[Sequence[Transcript], int], list[Score]]
"""Returns the scores of a shard's conversations, in order, from them and the shard's number."""


class Scorer(msgspec.Struct, frozen=True, kw_only=True):
    """Makes one column of scores: of each item, or of a shard at once."""

    identity: Mapping[str, Any]
    """What determines the scores, as JSON."""
    item: Callable[[Item, str, Transcript], Awaitable[Score]] | None = None
    """Returns the score of a conversation. The name of the column is also the seat of the model."""
    shard: ScoreShard | None = None
    prepare: Callable[[RunReader, Collection[int]], None] = lambda run, scored: None
    """Called before the first shard, with the numbers of the shards that have scores already."""
    model: Model | ModelSpec | None = None
    """The model that is called. None if the scores cost nothing; then a changed scorer replaces its earlier scores."""
    rubric: Rubric | None = None


def rubric_scorer(rubric: Rubric, model: Model | ModelSpec) -> Scorer:
    """Return a scorer that asks a model. An item fails if no answer contains a rating."""

    async def score(item: Item, name: str, transcript: Transcript) -> Score:
        said = await rubric.rate(item.model(name), transcript, item.id)
        if said.rating is None:
            raise ItemFailed(f"no rating in {rubric.asks} answers, the last: {shown(said.text)}")
        return Score(said.rating.value, said.rating.reason[:MOST_REASON], name_of(model))

    identity = {**rubric.identity(), "model": name_of(model)}
    return Scorer(identity=identity, item=score, model=model, rubric=rubric)


def function_scorer(function: Callable[[Transcript], Any]) -> Scorer:
    """Return a scorer that calls your function: an async one for several conversations at once, another one in one thread."""
    thread = ThreadPoolExecutor(1, "camel-score")

    async def score(item: Item, name: str, transcript: Transcript) -> Score:
        async def make() -> bytes:
            try:
                if inspect.iscoroutinefunction(function):
                    value = await function(transcript)
                else:
                    value = await asyncio.get_running_loop().run_in_executor(thread, function, transcript)
            except Exception as error:
                raise ItemFailed(f"{name} raised {type(error).__name__}: {error}") from error
            return msgspec.json.encode(as_score(value, name))

        return msgspec.json.decode(await item.once(f"{name} {item.id}".encode(), make), type=Score)

    return Scorer(identity={"function": identity_of(function)}, item=score)


def as_score(value: Any, name: str) -> Score:
    """Return the result of a function as a score: a number, true or false, a word, None, or one of these with a reason."""
    if isinstance(value, Score):
        return value
    value, reason = split_reason(value)
    if isinstance(value, str):
        return Score(None, well_formed(reason)[:MOST_REASON], text=well_formed(value))
    try:
        number = None if value is None else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if number is not None and not math.isfinite(number):
        raise ItemFailed(
            f"{name} returned {shown(value)}: return a number, a bool, a str or None, or (value, reason)"
        )
    return Score(number, well_formed(reason)[:MOST_REASON])


def split_reason(made: Any) -> tuple[Any, str]:
    """Return the value and the reason of what a function returned: a value, or a pair of both."""
    pair: tuple[Any, ...] = cast("tuple[Any, ...]", made) if isinstance(made, tuple) else (made, "")
    return (pair[0], str(pair[1])) if len(pair) == 2 else (pair, "")


def detector_scorer(detector: str) -> Scorer:
    """Return a scorer that counts the findings of one detector."""

    def scores(transcripts: Sequence[Transcript], shard: int) -> list[Score]:
        found = [find_in(one, [detector]) for one in transcripts]
        return [Score(float(len(its)), its[0].reason if its else "") for its in found]

    return Scorer(identity={"detector": detector, "version": DETECTORS[detector].version}, shard=scores)


def language_scorer() -> Scorer:
    """Return a scorer of languages as text. A language that is not recognized is empty."""

    def scores(transcripts: Sequence[Transcript], shard: int) -> list[Score]:
        said = (beginning_of([message.content for message in one.messages]) for one in transcripts)
        return [Score(None, text=language_of(text) or "") for text in said]

    return Scorer(identity={"language": 1}, shard=scores)


def overlap_scorer(questions: Sequence[str]) -> Scorer:
    """Return a scorer that finds test questions in conversations. `questions` names JSONL files or shipped sets. The reason
    names the question."""
    from camel.evaluation.exam_questions import digest_of, read_questions
    from camel.evaluation.overlap import ExamQuestions

    index = ExamQuestions(one for name in questions for one in read_questions(name))

    def scores(transcripts: Sequence[Transcript], shard: int) -> list[Score]:
        found = index.found_in(to_table(transcripts))
        return [
            Score(1.0, index.names[found[row]]) if row in found else Score(0.0)
            for row in range(len(transcripts))
        ]

    return Scorer(identity={"questions": [digest_of(one) for one in questions]}, shard=scores)


def duplicate_scorer(near: float = 0.0) -> Scorer:
    """Return a scorer that finds copies, or conversations with at least the similarity `near`.

    Of equal conversations, the first one has no mark: the first in order among those that are scored together.
    """
    copies = _Copies(near)
    return Scorer(identity={"similarity": near or 1.0}, shard=copies.scores, prepare=copies.prepare)


def classifier_scorer(name: str, label: str = "") -> Scorer:
    """Return a scorer that runs a sequence classifier or reward model of Hugging Face here, on a GPU if there is one.

    The score is the probability of `label`. Default: the most likely label as text, with its probability.
    """
    return Scorer(identity={"classifier": name, "label": label}, shard=_Classifier(name, label).scores)


class _Copies:
    """Compares all conversations of a run, when the first shard is scored."""

    def __init__(self, near: float) -> None:
        self._near, self._lock = near, Lock()
        self._found: dict[int, Any] = {}

    def prepare(self, run: RunReader, scored: Collection[int]) -> None:
        # Conversations with scores come first in the order, because their scores do not change.
        self._run, self._scored = run, frozenset(scored)
        self._found = {}

    def scores(self, transcripts: Sequence[Transcript], shard: int) -> list[Score]:
        with self._lock:
            self._found = self._found or self._compare(self._run, self._scored)
        return [Score(float(copy)) for copy in self._found[shard]]

    def _compare(self, run: RunReader, scored: Collection[int]) -> dict[int, Any]:
        from camel.evaluation.overlap import BANDS, BINS, bands, digests, equal_rows, signatures, similarity

        np, pc = arrow("numpy"), arrow("pyarrow.compute")
        ends = np.cumsum([0, *(marker.rows for marker in run.markers)])
        count, at = int(ends[-1]), 0
        keys, usable = np.zeros(count, np.int64), np.zeros(count, bool)
        with tempfile.TemporaryFile(prefix="camel-") as scratch:
            signed = np.memmap(scratch, np.uint16, "w+", shape=(count, BINS)) if self._near else None
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
                    copies[others[similarity(rows, firsts, others) >= self._near]] = True
        found = np.zeros(count, bool)
        found[order] = copies
        return {
            marker.shard: found[start:end]
            for marker, start, end in zip(run.markers, ends[:-1], ends[1:], strict=True)
        }


class _Classifier:
    """A model of transformers, loaded when the first shard is scored."""

    def __init__(self, name: str, label: str) -> None:
        self._name, self._label, self._lock = name, label, Lock()

    @cached_property
    def _loaded(self) -> tuple[Any, Any, Any]:
        torch, transformers = need_module("torch", "train"), need_module("transformers", "train")
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(self._name)
            model = transformers.AutoModelForSequenceClassification.from_pretrained(self._name)
        except (OSError, ValueError) as error:
            raise InputError(f"cannot load the classifier {shown(self._name)}: {error}") from None
        labels = dict[str, int](model.config.label2id or {})
        if self._label and self._label not in labels:
            raise InputError(f"{self._name} has no label {self._label!r}. Use one of {', '.join(labels)}")
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
            for at in range(0, len(texts), BATCH):
                given = tokenizer(
                    texts[at : at + BATCH],
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
            return Score(float(logits[0]), by=self._name)
        shares = logits.softmax(0)
        if self._label:
            return Score(float(shares[config.label2id[self._label]]), by=self._name)
        best = int(shares.argmax())
        return Score(float(shares[best]), by=self._name, text=str(config.id2label[best]))


def _text_of(transcript: Transcript, tokenizer: Any) -> str:
    """Return a conversation as text: by the tokenizer's chat template if it has one."""
    names = [one.name for one in transcript.speakers] or [one.speaker for one in transcript.messages]
    if tokenizer.chat_template and names:
        seat = "assistant" if "assistant" in names else names[-1]
        return tokenizer.apply_chat_template(transcript.to_messages(seat), tokenize=False)
    return "\n\n".join(f"{one.role}: {one.content}" for one in transcript.messages)
