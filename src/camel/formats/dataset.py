"""The dataset export: Parquet files and a card for `datasets.load_dataset(folder)` and the hub."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from camel._version import __version__
from camel.core.message import Usage
from camel.core.transcript import Speaker, Transcript
from camel.detectors.languages import beginning_of, language_of
from camel.formats.splits import check_name
from camel.record import arrow as table
from camel.record.release import RESTRICTED, WARNING, Exported, Release, published
from camel.reports.numbers import money
from camel.storage.files import new_folder


def dataset(
    transcripts: Iterable[Transcript] | Mapping[str, Iterable[Transcript]],
    path: Path,
    *,
    release: Release = Release(),  # noqa: B008 - frozen
    title: str = "",
    license: str = "",
    planned: int = 0,
    language: str = "",
    input_licenses: Sequence[str] = (),
    rows_per_file: int = 100_000,
) -> Exported:
    """Write a folder of Parquet files and a card, for `datasets.load_dataset` and the hub.

    `transcripts` may map the names of splits to their transcripts; otherwise all of them are `train`. The card states no
    license unless you pass one, such as `cc-by-4.0`: the data is yours, even if the scenario has another author. If fewer
    conversations exist than were `planned`, the card says so. `language` is the code of a translation's language, and
    `input_licenses` are those of the tables that the conversations were made from.
    """
    given = cast("Any", transcripts)
    splits = cast(
        "Mapping[str, Iterable[Transcript]]", given if isinstance(given, Mapping) else {"train": given}
    )
    figures = {split: _Figures() for split in splits}
    with new_folder(path) as folder:
        (folder / "data").mkdir()
        for split, rows in splits.items():
            check_name(split)
            counted = _counted(rows, figures[split], release)
            figures[split].bytes = _write_split(folder / "data", split, counted, release, rows_per_file)
        card = _card(title or path.name, license, figures, release, planned, language, input_licenses)
        with (folder / "README.md").open("wb") as file:
            file.write(card.encode())
            file.flush()
            os.fsync(file.fileno())
    count = sum(figure.conversations for figure in figures.values())
    return Exported(path, count, count)


def _counted(transcripts: Iterable[Transcript], figures: _Figures, release: Release) -> Iterator[Transcript]:
    for transcript in published(transcripts, release):
        figures.add(transcript)
        yield transcript


def _write_split(
    folder: Path, split: str, transcripts: Iterator[Transcript], release: Release, rows_per_file: int
) -> int:
    """Write the files of a split, and return their total size in bytes."""
    layout = dataset_schema(release)
    files: list[Path] = []
    first = next(transcripts, None)
    while first is not None or not files:
        rows = chain([first], islice(transcripts, rows_per_file - 1)) if first is not None else iter(())
        files.append(folder / f"{split}-{len(files):05d}")
        groups = (_as_dataset(batch, layout, release) for batch in table.batches(rows))
        table.write_batches(files[-1], groups, layout)
        first = next(transcripts, None)
    for number, file in enumerate(files):
        files[number] = file.rename(folder / f"{split}-{number:05d}-of-{len(files):05d}.parquet")
    return sum(file.stat().st_size for file in files)


def dataset_schema(release: Release = Release()) -> Any:  # noqa: B008 - frozen
    """Return the Arrow schema of a dataset. Maps become lists of pairs, because `datasets` has no maps."""
    pa = table.arrow()
    types = {one.name: one.type for one in table.schema()}
    for name, kind in types.items():
        if pa.types.is_map(kind):
            types[name] = pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
    said = [(table.IN_DATASETS.get(one.name, one.name), one.type) for one in types["messages"].value_type]
    types |= {"messages": pa.list_(pa.struct(said)), "run": pa.string()}
    return pa.schema(types | ({"canary": pa.string()} if release.canary else {}))


def _as_dataset(batch: Any, layout: Any, release: Release) -> Any:
    pa = table.arrow()
    columns = {name: batch.column(name) for name in batch.schema.names}
    for name, pairs in columns.items():
        if pa.types.is_map(pairs.type):
            pair = pa.StructArray.from_arrays(
                [pairs.keys, pairs.items], fields=list(layout.field(name).type.value_type)
            )
            columns[name] = pa.ListArray.from_arrays(pairs.offsets, pair)
    columns["messages"] = columns["messages"].view(layout.field("messages").type)
    for name in ("run", "canary"):
        columns[name] = pa.repeat(pa.scalar(getattr(release, name), pa.string()), batch.num_rows)
    return pa.RecordBatch.from_arrays([columns[name] for name in layout.names], schema=layout)


def dataset_rows(files: list[str], content: str, run: str = "") -> Iterator[dict[str, Any]]:
    """Yield the rows of committed shards in a dataset's layout, one row group at a time. `content` is a hash of the shards."""
    layout, release = dataset_schema(), Release(run=run)
    for file in files:
        for group in table.stream_groups(Path(file)):
            for batch in group.to_batches():
                yield from _as_dataset(batch, layout, release).to_pylist()


@dataclass(slots=True)
class _Figures:
    """Figures of a split for the dataset card. Their size is constant for any number of transcripts."""

    conversations: int = 0
    usage: Usage = field(default_factory=Usage)
    characters: int = 0
    bytes: int = 0
    """Total size of the split's files in bytes."""
    lengths: Counter[int] = field(default_factory=Counter[int])
    stops: Counter[str] = field(default_factory=Counter[str])
    finishes: Counter[str] = field(default_factory=Counter[str])
    empty: int = 0
    models: Counter[str] = field(default_factory=Counter[str])
    scenarios: Counter[str] = field(default_factory=Counter[str])
    fingerprints: Counter[str] = field(default_factory=Counter[str])
    labels: Counter[str] = field(default_factory=Counter[str])
    samplings: Counter[str] = field(default_factory=Counter[str])
    languages: Counter[str] = field(default_factory=Counter[str])
    tools: Counter[str] = field(default_factory=Counter[str])
    speakers: Sequence[Speaker] = ()
    """The speakers of the first conversation."""

    def add(self, transcript: Transcript) -> None:
        self.speakers = self.speakers or transcript.speakers
        for speaker in transcript.speakers:
            # A seed may be different in each conversation.
            self.samplings[msgspec.json.encode(replace(speaker.sampling, seed=None)).decode()] += 1
        self.languages[language_of(beginning_of([one.content for one in transcript.messages[:2]])) or ""] += 1
        self.conversations += 1
        self.usage += transcript.usage
        self.lengths[len(transcript.messages)] += 1
        self.stops[transcript.stop.reason if transcript.stop else "unfinished"] += 1
        self.scenarios[transcript.scenario] += 1
        self.fingerprints[transcript.fingerprint] += 1
        self.labels.update(transcript.labels)
        for message in transcript.messages:
            self.characters += len(message.content)
            self.finishes[message.finish] += 1
            self.empty += not message.content.strip()
            self.models[message.model] += 1
            self.tools.update(one.tool for one in message.actions)

    def update(self, other: _Figures) -> None:
        for name in (one.name for one in fields(self) if one.name != "speakers"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.speakers = self.speakers or other.speakers

    @property
    def messages(self) -> int:
        return sum(length * count for length, count in self.lengths.items())

    def length_at(self, share: float) -> int:
        """Return the quantile of the number of messages at `share`."""
        seen = 0
        for length, count in sorted(self.lengths.items()):
            seen += count
            if seen >= share * self.conversations:
                return length
        return 0


_PROMPT = 4_000
"""Maximum number of characters of a system prompt in a card."""
_CODES = {
    **{"English": "en", "Spanish": "es", "French": "fr", "German": "de", "Italian": "it", "Portuguese": "pt"},
    **{"Dutch": "nl", "Russian": "ru", "Greek": "el", "Hebrew": "he", "Arabic": "ar", "Hindi": "hi"},
    **{"Thai": "th", "Korean": "ko", "Japanese": "ja", "Chinese": "zh"},
}
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
_FAILURES = {
    "error": "ended by an error of the model or its endpoint",
    "assistant_instructs": "the assistant gave an instruction (role flipping)",
    "user_no_instruction": "the user stopped giving instructions",
    "message_loop": "the speakers repeated themselves",
    "token_limit": "cut off at the context window",
    "unfinished": "without an end",
}


def _card(
    title: str,
    license: str,
    figures: Mapping[str, _Figures],
    release: Release,
    planned: int,
    language: str,
    input_licenses: Sequence[str],
) -> str:
    """Return the dataset's README: YAML metadata, then text."""
    total = _Figures()
    for figure in figures.values():
        total.update(figure)
    restricted = bool(RESTRICTED.intersection(total.labels))
    splits = {
        split: Split(f"data/{split}-*.parquet", figure.conversations, figure.bytes)
        for split, figure in figures.items()
    }
    parts = [
        [
            f"{total.conversations:,} conversations between language-model agents, {total.messages:,} messages, "
            "generated with CAMEL. Text written by models: it contains errors and inventions.",
        ],
        [
            f"**Unfinished**: {total.conversations:,} of {planned:,} planned conversations; their run "
            "had not finished."
        ]
        if total.conversations < planned
        else [],
        ["## Provenance", "", *_provenance(total, license, input_licenses)],
        # A card is public even if the data is gated.
        [] if restricted else ["## Prompts", "", *_prompts(total.speakers)],
        ["## Statistics", "", *_statistics(figures, total)],
        ["## Known failure rates", "", *_failure_rates(total)],
        ["## Columns", "", *_COLUMNS],
    ]
    often = {name for name, count in total.languages.items() if count >= 0.01 * total.conversations}
    tags = [language] if language else [code for name, code in _CODES.items() if name in often]
    return card_of(
        title, license, splits, parts, restricted=restricted, canary=release.canary, languages=tags
    )


class Split(NamedTuple):
    """Metadata of a split."""

    path: str
    """Glob pattern of the split's files."""
    rows: int
    bytes: int


def card_of(
    title: str,
    license: str,
    splits: Mapping[str, Split],
    parts: Iterable[Sequence[str]],
    *,
    restricted: bool,
    canary: str,
    languages: Sequence[str] = (),
) -> str:
    """Return a dataset card for the hub: YAML metadata, the title, warnings, and then `parts`, each a list of lines."""
    rows = sum(split.rows for split in splits.values())
    front = [
        "---",
        f"pretty_name: {_quoted(title)}",
        f"license: {_quoted(license or 'unknown')}",
        *(["language:", *(f"- {_quoted(code)}" for code in languages)] if languages else []),
        "task_categories:",
        "- text-generation",
        "tags:",
        "- synthetic",
        "- role-playing",
        "- camel",
        *(["- red-teaming", "- not-for-all-audiences"] if restricted else []),
        "size_categories:",
        f"- {next((name for limit, name in _SIZES if rows < limit), 'n>1M')}",
        *(_gate() if restricted else []),
        *_sizes(splits),
        "configs:",
        "- config_name: default",
        "  data_files:",
        *(
            line
            for name, split in splits.items()
            for line in (f"  - split: {name}", f"    path: {split.path}")
        ),
        "---",
    ]
    warned = " Data with this GUID must not be in a training corpus." if restricted else ""
    first = [
        [f"# {plain(title)}"],
        [f"> **Warning.** {WARNING}"] if restricted else [],
        [f"Canary: `{plain(canary)}`.{warned}"] if canary else [],
    ]
    said = "\n\n".join("\n".join(part) for part in [*first, *parts] if part)
    return "\n".join(front) + "\n\n" + said + "\n"


def _sizes(splits: Mapping[str, Split]) -> list[str]:
    """Return the sizes of splits. `datasets` caches under a hash of the card: without these figures it would show the old
    rows of a dataset that was exported again, or of another one in a folder of the same name."""
    each = (
        (f"  - name: {name}", f"    num_bytes: {split.bytes}", f"    num_examples: {split.rows}")
        for name, split in splits.items()
    )
    total = sum(split.bytes for split in splits.values())
    return [
        "dataset_info:",
        "  config_name: default",
        "  splits:",
        *chain.from_iterable(each),
        f"  download_size: {total}",
        f"  dataset_size: {total}",
    ]


def _gate() -> list[str]:
    agreement = "I will use this data for safety research only, and not to train a deployed model"
    return [
        f"extra_gated_prompt: {_quoted(WARNING)}",
        "extra_gated_fields:",
        "  Name: text",
        "  Affiliation: text",
        "  Purpose: text",
        f"  {_quoted(agreement)}: checkbox",
    ]


def _provenance(total: _Figures, license: str, input_licenses: Sequence[str]) -> list[str]:
    cost = f"{money(total.usage.usd)} at the configured prices" if total.usage.usd else "not recorded"
    return [
        f"- Scenario: {_listed(total.scenarios)}",
        f"- Models, by messages: {_listed(total.models)}",
        f"- Sampling, by speakers; `{{}}` means the endpoint's defaults: {_listed(total.samplings)}",
        f"- Cost: {cost}",
        f"- Languages, as detected: {_listed(total.languages)}",
        f"- Configuration fingerprint: {_listed(total.fingerprints)}",
        *([f"- Labels: {_listed(total.labels)}"] if total.labels else []),
        *([f"- Tools, by calls: {_listed(total.tools)}"] if total.tools else []),
        f"- Written by camel-society {__version__}",
        *(f"- License of the inputs: {plain(one)}" for one in input_licenses),
        f"- License: {plain(license) or 'none stated'}; text written by a model is also subject to the terms of that model.",
    ]


def _prompts(speakers: Iterable[Speaker]) -> Iterator[str]:
    """Yield the system prompts, indented: text in them cannot pose as markup of the card."""
    yield "The system prompts of the first conversation:"
    for one in speakers:
        yield from ("", f"- `{plain(one.role or one.name)}`", "")
        yield from (f"      {line}" for line in (one.system[:_PROMPT] or "none").splitlines())


def _statistics(figures: Mapping[str, _Figures], total: _Figures) -> list[str]:
    columns = {**figures, **({"all": total} if len(figures) > 1 else {})}
    rows: list[tuple[str, Callable[[_Figures], str]]] = [
        ("conversations", lambda f: f"{f.conversations:,}"),
        ("messages", lambda f: f"{f.messages:,}"),
        (
            "messages per conversation, median (5% – 95%)",
            lambda f: f"{f.length_at(0.5)} ({f.length_at(0.05)} – {f.length_at(0.95)})",
        ),
        ("characters per message, mean", lambda f: f"{f.characters / max(1, f.messages):,.0f}"),
        ("calls", lambda f: f"{f.usage.calls:,}"),
        ("prompt tokens", lambda f: f"{f.usage.prompt:,}"),
        ("of these cached", lambda f: f"{f.usage.cached:,}"),
        ("completion tokens", lambda f: f"{f.usage.completion:,}"),
        ("calls without a token count", lambda f: f"{f.usage.unknown:,}"),
    ]
    return [
        f"| | {' | '.join(columns)} |",
        f"|---|{'---:|' * len(columns)}",
        *(f"| {name} | {' | '.join(map(show, columns.values()))} |" for name, show in rows),
        *(
            f"| ended: {reason} | {' | '.join(_share(f.stops[reason], f.conversations) for f in columns.values())} |"
            for reason, _ in _ranked(total.stops)
        ),
    ]


def _failure_rates(total: _Figures) -> list[str]:
    found = [
        f"| {words} | {_share(total.stops[reason], total.conversations)} |"
        for reason, words in _FAILURES.items()
    ]
    of_messages = {
        "messages cut off at their length limit": total.finishes["length"],
        "messages that are refusals or were filtered": total.finishes["refusal"]
        + total.finishes["content_filter"],
        "messages without text": total.empty,
    }
    found += [f"| {words} | {_share(count, total.messages)} |" for words, count in of_messages.items()]
    return ["| | |", "|---|---:|", *found, "", "The content has not been checked for truth."]


_COLUMNS = [
    "One row per conversation: `id`, `scenario`, `task` (original, specified), `speakers` (with their system prompts and, as JSON,",
    "their sampling), `messages` (speaker, name of its role, content, model, finish reason, token usage, latency), `stop` (why it",
    "ended), `inputs` (the values it was made from), `scores`, `labels`, `run`, `fingerprint`, `schema`, and totals.",
]


def _share(count: int, total: int) -> str:
    return f"{count:,} ({count / total:.1%})" if total else "0"


def _ranked(counts: Counter[str]) -> list[tuple[str, int]]:
    """Return names with their counts, sorted by frequency and then by name, so that exports are reproducible."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _listed(counts: Counter[str], most: int = 8) -> str:
    """Return the most frequent names as inline code, because they come from endpoints and configurations."""
    named = [(name, count) for name, count in _ranked(counts) if name]
    shown_names = [f"`{plain(name)}` ({count:,})" for name, count in named[:most]]
    if len(named) > most:
        shown_names.append(f"and {len(named) - most:,} more")
    return ", ".join(shown_names) or "not recorded"


def plain(text: str) -> str:
    """Return text on one line, without Markdown or table markup."""
    return " ".join(re.sub(r"[`|<>\[\]*\\]", " ", text).split())[:200]


def _quoted(text: str) -> str:
    """Return a YAML string on one line."""
    return msgspec.json.encode("".join(char for char in text if char.isprintable())).decode()
