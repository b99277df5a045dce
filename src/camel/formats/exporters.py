"""Exporters: write transcripts in formats of other tools.

    chat          the paper's conversations: an archive or a folder of JSON files, or lines
    instruction   the paper's instruction and solution pairs
    problems      the paper's Math and Science rows: a problem and its solution
    messages, sharegpt, alpaca    rows for training
    preferences   chosen and rejected answers, by a critic or by scores, for preference training
    dataset       Parquet files and a card for `datasets.load_dataset(folder)`

Each takes any iterable, keeps one transcript (`dataset`: one row group) in memory, and writes atomically with a rename. The
same transcripts in the same order give the same bytes.

The one decision to know: in every format, a row of a labeled transcript has an additional last key `labels`; rows without
labels have exactly the format's own keys and, except in the paper's formats, `metadata`. Data labeled `misalignment` raises an error unless the release acknowledges it
and has a canary, which every such row then has under `canary`.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import uuid
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from camel._version import __version__
from camel.core.checks import shown
from camel.core.errors import InputError
from camel.core.message import Message, Usage
from camel.core.plugins import Plugin, Registry
from camel.core.role_playing import ASSISTANT
from camel.core.transcript import Transcript
from camel.formats.conversation import alpaca, messages, sharegpt
from camel.formats.dataset import dataset
from camel.formats.json_rows import DOCUMENT_ENDINGS, ROW_ENDINGS, NothingFits
from camel.formats.original import chat, instruction, problems
from camel.formats.preferences import preferences
from camel.formats.splits import check_shares, in_split
from camel.record.release import Exported, Release, marks, published
from camel.storage.files import file_name, new_folder, replacing

VERSION = 2
"""Version of the log's schema, as of inspect_ai 0.3."""
ENDINGS = (".eval",)
_SCORE = "ended"
_LIMITS = {"max_messages": "message", "token_limit": "token"}
_FINISH = {
    "stop": "stop",
    "length": "max_tokens",
    "content_filter": "content_filter",
    "refusal": "content_filter",
}
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,150}")
_EARLIEST = (1980, 1, 1, 0, 0, 0)
_NO_TIME = "1970-01-01T00:00:00+00:00"
"""A fixed time for the log, because records have no times and exports must be reproducible."""
_SUMMARY_CHARS = 1_000
_NAMES_SPACE = uuid.UUID("8d3b4f6e-2c1a-5b7d-9e0f-6a5c4d3b2a10")
"""UUID namespace of the ids in a log, so that they are the same in every export."""


def inspect_log(transcripts: Iterable[Transcript], path: Path, *, release: Release = Release()) -> Exported:  # noqa: B008 - frozen
    """Write a log for the viewer of inspect_ai: `inspect view --log-dir FOLDER`.

    It is a zip of JSON documents. A sample is the assistant's chat: messages of all other seats are `user` messages, with the
    speaker's name in front if there are more than two speakers. The stop reason is the score.
    """
    if path.suffix not in ENDINGS:
        raise InputError(f"'{path.name}' has the wrong ending: for this format, use {', '.join(ENDINGS)}")
    total = _Totals()
    with (
        tempfile.TemporaryFile() as summaries,
        replacing(path) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as log,
    ):
        for transcript in transcripts:
            sample = _sample(transcript, marks(transcript, release))
            if sample["id"] in total.ids:
                raise InputError(f"two conversations have the id {shown(transcript.id)}")
            _put(log, f"samples/{sample['id']}_epoch_1.json", sample)
            summaries.write((b",\n" if total.ids else b"[") + msgspec.json.encode(_summary(sample)))
            total.add(transcript, sample)
        if not total.ids:
            raise InputError("there are no conversations to export")
        header = total.header(release)
        _put(log, "_journal/start.json", {name: header[name] for name in ("version", "eval", "plan")})
        summaries.write(b"]")
        summaries.seek(0)
        with log.open(_entry("summaries.json"), "w") as entry:
            shutil.copyfileobj(summaries, entry)
        _put(log, "header.json", header)
    return Exported(path, len(total.ids), len(total.ids))


class _Totals:
    """Totals for the log's header. Their size is constant for any number of conversations."""

    def __init__(self) -> None:
        # A dict keeps their order.
        self.ids: dict[str, None] = {}
        self.ends: Counter[str] = Counter()
        self.scenarios: Counter[str] = Counter()
        self.labels: Counter[str] = Counter()
        self.fingerprints: Counter[str] = Counter()
        self.models: dict[str, Usage] = {}
        self.seats: dict[str, Usage] = {}

    def add(self, transcript: Transcript, sample: dict[str, Any]) -> None:
        self.ids[sample["id"]] = None
        self.ends[transcript.stop.reason if transcript.stop else "open"] += 1
        self.scenarios[transcript.scenario or "role_playing"] += 1
        self.labels.update(transcript.labels)
        self.fingerprints[transcript.fingerprint] += 1
        for of, sums in ((_by_model(transcript), self.models), (_by_seat(transcript), self.seats)):
            for name, usage in of.items():
                sums[name] = sums.get(name, Usage()) + usage

    def header(self, release: Release) -> dict[str, Any]:
        count = len(self.ids)
        scenario = self.scenarios.most_common(1)[0][0]
        identity = _identity(scenario, *self.fingerprints, *self.ids)
        model = max(self.models, key=lambda name: self.models[name].total, default="none")
        metadata: dict[str, Any] = {
            "scenarios": dict(self.scenarios),
            "fingerprints": sorted(self.fingerprints),
            "ended": dict(self.ends),
        }
        if self.labels:
            metadata["labels"] = dict(self.labels)
        if release.canary:
            metadata["canary"] = release.canary
        return {
            "version": VERSION,
            "status": "success",
            "eval": {
                "eval_id": _identity("eval", identity),
                "run_id": _identity("run", identity),
                "created": _NO_TIME,
                "task": scenario,
                "task_id": _identity("task", identity),
                "task_version": 0,
                "task_display_name": scenario.replace("_", " "),
                "tags": sorted({"camel", *self.labels}),
                "dataset": {
                    "name": scenario,
                    "samples": count,
                    "sample_ids": list(self.ids),
                    "shuffled": False,
                },
                "model": model,
                "config": {"epochs": 1},
                "packages": {"camel-society": __version__},
                "metadata": metadata,
                "scorers": [{"name": _SCORE, "options": {}, "metrics": [], "metadata": {}}],
            },
            "plan": {
                "name": "role playing",
                "steps": [{"solver": "role_playing", "params": {}}],
                "config": {},
            },
            "results": {
                "total_samples": count,
                "completed_samples": count - self.ends["error"],
                "scores": [
                    {
                        "name": _SCORE,
                        "scorer": _SCORE,
                        "scored_samples": count,
                        "unscored_samples": 0,
                        "params": {},
                        "metrics": {
                            reason: {"name": reason, "value": round(number / count, 4), "params": {}}
                            for reason, number in self.ends.most_common()
                        },
                    }
                ],
            },
            "stats": {
                "started_at": "",
                "completed_at": "",
                "model_usage": {name: _usage(usage) for name, usage in self.models.items()},
                "role_usage": {name: _usage(usage) for name, usage in self.seats.items()},
            },
        }


def _sample(transcript: Transcript, marked: dict[str, Any]) -> dict[str, Any]:
    """Return a conversation as a sample of the log."""
    stop = transcript.stop
    reason = stop.reason if stop else "open"
    assistant = _assistant_of(transcript)
    named = len(transcript.speakers) > 2
    said: list[dict[str, Any]] = [
        {"id": _identity(transcript.id, "system"), "role": "system", "content": speaker.system}
        for speaker in transcript.speakers
        if speaker.name == assistant and speaker.system
    ]
    said += [_message(transcript, one, one.speaker == assistant, named) for one in transcript.messages]
    last = next((m for m in reversed(transcript.messages) if m.speaker == assistant), None)
    sample: dict[str, Any] = {
        "id": transcript.id if _PLAIN.fullmatch(transcript.id) else file_name(transcript.id)[: -len(".json")],
        "epoch": 1,
        "input": transcript.task.text,
        "target": "",
        "messages": said,
        "output": _output(transcript, last),
        "scores": {
            _SCORE: {
                "value": reason,
                "answer": last.content if last else "",
                "explanation": stop.detail if stop else "",
            }
        },
        "metadata": {
            "id": transcript.id,
            "scenario": transcript.scenario,
            "roles": {speaker.name: speaker.role for speaker in transcript.speakers},
            "original_task": transcript.task.original,
            "prompts": {s.name: s.system for s in transcript.speakers if s.system and s.name != assistant},
            "inputs": transcript.inputs,
            "fingerprint": transcript.fingerprint,
            **marked,
        },
        "store": {},
        "events": [],
        "model_usage": {name: _usage(usage) for name, usage in _by_model(transcript).items()},
        "role_usage": {name: _usage(usage) for name, usage in _by_seat(transcript).items()},
        "total_time": round(sum(message.latency for message in transcript.messages), 3),
        "uuid": _identity(transcript.fingerprint, transcript.id),
        "attachments": {},
        "turn_count": sum(message.speaker == assistant for message in transcript.messages),
    }
    if stop and reason == "error":
        sample["error"] = {"message": stop.detail, "traceback": stop.detail, "traceback_ansi": stop.detail}
    elif stop and reason in _LIMITS:
        limit = float(len(transcript.messages) if reason == "max_messages" else transcript.usage.total)
        sample["limit"] = {"type": _LIMITS[reason], "limit": limit, "reason": stop.detail}
    return sample


def _assistant_of(transcript: Transcript) -> str:
    """Return the seat whose chat is written: the assistant, or the last speaker of a society."""
    names = [speaker.name for speaker in transcript.speakers]
    if ASSISTANT in names or not transcript.messages:
        return ASSISTANT
    return transcript.messages[-1].speaker


def _message(transcript: Transcript, message: Message, own: bool, named: bool) -> dict[str, Any]:
    about: dict[str, Any] = {"speaker": f"{message.role} ({message.speaker})"}
    if message.usage.calls:
        about["call"] = {
            "model": message.model,
            "prompt_tokens": message.usage.prompt,
            "cached_tokens": message.usage.cached,
            "completion_tokens": message.usage.completion,
            "seconds": round(message.latency, 3),
        }
    if found := message.deliberation:
        about["deliberation"] = {
            "critic": found.critic,
            "choice": found.choice,
            "reason": found.reason,
            "proposals": [proposal.content for proposal in found.proposals],
        }
    if message.actions:
        about["actions"] = message.actions
    content = f"{message.role}: {message.content}" if named and not own else message.content
    shown: dict[str, Any] = {
        "id": _identity(transcript.id, str(message.index)),
        "role": "assistant" if own else "user",
        "content": content,
        "source": "generate",
        "metadata": about,
    }
    return shown | ({"model": message.model} if own and message.model else {})


def _output(transcript: Transcript, last: Message | None) -> dict[str, Any]:
    """Return the assistant's last message as the output of a sample."""
    if last is None:
        return {"model": "none", "choices": [], "completion": ""}
    message = _message(transcript, last, own=True, named=False)
    return {
        "model": last.model or "none",
        "choices": [{"message": message, "stop_reason": _FINISH.get(last.finish, "unknown")}],
        "completion": last.content,
        "usage": _usage(last.usage),
        "time": round(last.latency, 3),
    }


def _summary(sample: dict[str, Any]) -> dict[str, Any]:
    """Return the summary of a sample for the viewer's list, with shortened texts."""
    kept = ("id", "epoch", "target", "model_usage", "role_usage", "total_time", "uuid", "turn_count")
    score = sample["scores"][_SCORE]
    metadata = sample["metadata"]
    summary: dict[str, Any] = {
        **{name: sample[name] for name in kept},
        "input": sample["input"][:_SUMMARY_CHARS],
        "metadata": {name: metadata[name] for name in ("scenario", "labels") if name in metadata}
        | {f"{seat}_role": role for seat, role in list(metadata["roles"].items())[:8]},
        "scores": {_SCORE: {"value": score["value"], "explanation": score["explanation"][:_SUMMARY_CHARS]}},
        "completed": True,
        "message_count": len(sample["messages"]),
    }
    if "error" in sample:
        summary["error"] = sample["error"]["message"][:_SUMMARY_CHARS]
    if "limit" in sample:
        summary |= {"limit": sample["limit"]["type"], "limit_reason": sample["limit"]["reason"]}
    return summary


def _by_model(transcript: Transcript) -> dict[str, Usage]:
    return _sums(
        (one.model, one.usage) for one in (transcript.task, *transcript.messages, transcript.result_call)
    )


def _by_seat(transcript: Transcript) -> dict[str, Usage]:
    return _sums((message.speaker, message.usage) for message in transcript.messages)


def _sums(pairs: Iterable[tuple[str, Usage]]) -> dict[str, Usage]:
    sums: dict[str, Usage] = {}
    for name, usage in pairs:
        if name and usage.calls:
            sums[name] = sums.get(name, Usage()) + usage
    return sums


def _usage(usage: Usage) -> dict[str, int]:
    """Return the token counts as the log defines them: cached tokens are not part of the input."""
    return {
        "input_tokens": max(0, usage.prompt - usage.cached),
        "output_tokens": usage.completion,
        "total_tokens": usage.total,
        "input_tokens_cache_read": usage.cached,
    }


def _identity(*parts: str) -> str:
    """Return an id that is the same in every export."""
    text = "\x1f".join(parts).encode("utf-8", "replace").decode()
    return uuid.uuid5(_NAMES_SPACE, text).hex[:22]


def _put(log: zipfile.ZipFile, name: str, data: object) -> None:
    log.writestr(_entry(name), msgspec.json.encode(data))


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _EARLIEST)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


class Write(Protocol):
    """Writes transcripts to a path in one format."""

    def __call__(self, transcripts: Iterable[Transcript], path: Path, *, release: Release = ...) -> Exported:
        """Write all of `transcripts` atomically."""
        ...


@dataclass(frozen=True, slots=True)
class Exporter:
    """An export format with its description."""

    write: Write
    summary: str
    endings: tuple[str, ...]
    """Valid endings of the path. The empty ending stands for a folder."""


_OWN = {
    "chat": Exporter(chat, "the paper's conversations, one JSON object each", DOCUMENT_ENDINGS),
    "instruction": Exporter(instruction, "the paper's instruction and solution pairs", ROW_ENDINGS),
    "problems": Exporter(problems, "the paper's Math and Science problems and solutions", DOCUMENT_ENDINGS),
    "messages": Exporter(messages, "chat messages and tool calls for OpenAI and TRL", ROW_ENDINGS),
    "sharegpt": Exporter(sharegpt, "conversations of human and gpt", ROW_ENDINGS),
    "alpaca": Exporter(alpaca, "instruction, input, output", ROW_ENDINGS),
    "preferences": Exporter(
        preferences, "chosen and rejected answers, by a critic or by scores", ROW_ENDINGS
    ),
    "inspect": Exporter(inspect_log, "a log for the viewer of inspect_ai", ENDINGS),
    "dataset": Exporter(dataset, "Parquet files and a card for datasets.load_dataset and the hub", ("",)),
}


def _plugged(plugin: Plugin, part: Any) -> Exporter:
    """Wrap a plug-in's exporter, so that it only gets transcripts that the release allows."""
    if not isinstance(part, Exporter):
        raise plugin.failed(f"must be an Exporter of camel.formats.exporters, not {shown(part)}")

    def write(transcripts: Iterable[Transcript], path: Path, *, release: Release = Release()) -> Exported:  # noqa: B008 - frozen
        return part.write(published(transcripts, release), path, release=release)

    return Exporter(write, part.summary, part.endings)


FORMATS: Registry[Exporter] = Registry("exporters", _OWN, _plugged, kind="format")
"""All export formats by name."""
_OPTIONS = {
    "dataset": {"title", "license", "planned", "language", "input_licenses"},
    "messages": {"seat"},
    "sharegpt": {"seat"},
    "preferences": {"by", "margin", "seat"},
}


def write_format(
    format: str,
    read: Callable[[], Iterable[Transcript]],
    path: Path,
    release: Release,
    split: Mapping[str, float],
    split_by: str = "",
    **options: Any,
) -> Exported:
    """Write the transcripts that `read` returns in a format, with its own `options`.

    With a `split`, `path` becomes a folder with a file per split. The transcripts of a split are those for which a hash of the column `split_by` is in its range. The default is the id, or
    the task for preferences, whose pairs come from conversations of one task. `read` is called once per split.
    """
    exporter = FORMATS.find(format)
    if others := sorted({*options} - _OPTIONS.get(format, set[str]())):
        raise InputError(f"the format '{format}' has no option '{others[0]}'. Remove the option")
    write: Any = partial(exporter.write, release=release, **options)
    if not split:
        return write(read(), path)
    check_shares(split)
    column = split_by or ("task" if format == "preferences" else "id")
    parts = {name: in_split(published(read(), release), name, split, column) for name in split}
    if format == "dataset":
        return write(parts, path)
    ending = ".jsonl" if ".jsonl" in exporter.endings else exporter.endings[0]
    conversations = rows = 0
    with new_folder(path) as folder:
        for name, part in parts.items():
            try:
                written = write(part, folder / f"{name}{ending}")
            except NothingFits:  # a small split may have no row
                written = write([], folder / f"{name}{ending}")
            conversations, rows = conversations + written.conversations, rows + written.rows
        if not rows:
            raise NothingFits(f"no conversation has a row in the format {format}: choose another format")
    return Exported(path, conversations, rows)
