"""The export for inspect_ai's viewer: a `.eval` log, which is a zip of JSON documents.

    header.json                  task, models, settings and results
    samples/<id>_epoch_1.json    one file per conversation
    summaries.json               one entry per conversation, for the list

The one decision to know: a sample is the assistant's chat, as the log format expects. Messages of all other seats are `user`
messages, with the speaker's name in front if there are more than two speakers. The stop reason is the score. inspect_ai
itself is not needed; tests read the files with it.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import uuid
import zipfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from camel._version import __version__
from camel.core.checks import shown
from camel.core.errors import InputError
from camel.core.message import Message, Usage
from camel.core.role_playing import ASSISTANT
from camel.core.transcript import Transcript
from camel.record.release import Exported, Release, marks
from camel.storage.files import file_name, replacing

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
    """Write a log for the viewer of inspect_ai: `inspect view --log-dir FOLDER`."""
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
