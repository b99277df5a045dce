"""How often the detectors are right: precision and recall on the labeled corpus, by detector and by split.

    python -m benchmarks.detectors                 both parts, as Markdown
    python -m benchmarks.detectors --split tune --confusions

A message is right when the detector's indices and the labels agree on it. Messages that a person could not decide are
left out of both. The held-out part is for the end: rules are made while looking at the other one.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from camel.core import inception
from camel.core.inception import fill
from camel.core.message import FinishReason, Message
from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.detectors import DETECTORS, detect
from camel.reports.intervals import wilson

CORPUS = Path(__file__).parent.parent / "tests" / "fixtures" / "behavior" / "corpus.jsonl"
_ELSEWHERE = [
    "repeated_call",
    "ignored_error",
    "claimed_action",
    "assistant_question",
    "topic_deviation",
    "long_task",
]
NAMES = [name for name in DETECTORS if name not in _ELSEWHERE]
"""The detectors with labels in this corpus. The others are measured by tests/detectors."""
GOAL_PRECISION, GOAL_RECALL = 0.95, 0.85


class Said(msgspec.Struct):
    speaker: str
    content: str
    finish: FinishReason = "stop"


class Example(msgspec.Struct, forbid_unknown_fields=True):
    """A transcript or an excerpt, read by a person."""

    id: str
    family: str
    """What it comes from; all of a family are on one side of the split."""
    source: Literal["real", "written", "mutation"]
    split: Literal["tune", "held-out"]
    task: str
    messages: list[Said]
    labels: dict[str, list[int]]
    """For each detector the messages in which the behavior is; empty means that a person looked and it is not there."""
    unclear: dict[str, list[int]] = {}
    """Messages of which the definition does not decide."""
    assistant: str = "Assistant"
    user: str = "User"
    mutation: str = ""

    def transcript(self) -> Transcript:
        """As the conversation would have been recorded."""
        roles = {"assistant": self.assistant, "user": self.user}
        prompts = inception.paper()
        values = {"ASSISTANT_ROLE": self.assistant, "USER_ROLE": self.user, "TASK": self.task}
        return Transcript(
            self.id,
            Task(self.task),
            [
                Speaker("user", self.user, fill(prompts.user, values)),
                Speaker("assistant", self.assistant, fill(prompts.assistant, values)),
            ],
            [
                Message(index, said.speaker, roles[said.speaker], said.content, finish=said.finish)
                for index, said in enumerate(self.messages)
            ],
        )


class Score(msgspec.Struct):
    """The count of messages that were found and should be, were found and should not, and were missed."""

    right: int = 0
    wrong: int = 0
    missed: int = 0
    unclear: int = 0
    examples: int = 0
    """With the behavior in them."""
    false: list[str] = []
    lost: list[str] = []

    @property
    def precision(self) -> float:
        return self.right / (self.right + self.wrong) if self.right + self.wrong else math.nan

    @property
    def recall(self) -> float:
        return self.right / (self.right + self.missed) if self.right + self.missed else math.nan


def corpus(split: str | None = None) -> list[Example]:
    lines = CORPUS.read_bytes().splitlines()
    examples = [msgspec.json.decode(line, type=Example) for line in lines]
    return [example for example in examples if split in (None, example.split)]


def scores(examples: Sequence[Example]) -> dict[str, Score]:
    table = {name: Score() for name in NAMES}
    for example in examples:
        found: dict[str, set[int]] = {name: set() for name in NAMES}
        for finding in detect(example.transcript(), NAMES):
            found[finding.detector].add(finding.index)
        for name, score in table.items():
            unclear = set(example.unclear.get(name, ()))
            labeled, said = set(example.labels[name]) - unclear, found[name] - unclear
            score.right += len(labeled & said)
            score.wrong += len(said - labeled)
            score.missed += len(labeled - said)
            score.unclear += len(unclear)
            score.examples += bool(labeled)
            score.false += [f"{example.id}[{index}]" for index in sorted(said - labeled)]
            score.lost += [f"{example.id}[{index}]" for index in sorted(labeled - said)]
    return table


def rows(table: dict[str, Score]) -> Iterator[str]:
    yield "| detector | version | examples | messages | found | precision (95%) | recall (95%) | undecided |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, score in table.items():
        positives, found = score.right + score.missed, score.right + score.wrong
        cells = [name, DETECTORS[name].version, score.examples, positives, found]
        for value, total in ((score.precision, found), (score.recall, positives)):
            interval = wilson(score.right, total)
            low, high = interval.low, interval.high
            cells.append(f"{value:.3f} ({low:.2f}–{high:.2f})" if total else "–")
        yield "| " + " | ".join(map(str, [*cells, score.unclear])) + " |"


def milliseconds(examples: Sequence[Example], messages: int = 40) -> float:
    """CPU of one `detect` over a conversation of so many messages, made of the corpus' own."""
    said = [message for example in examples for message in example.transcript().messages]
    many: list[Transcript] = []
    for start in range(0, len(said) - messages, messages):
        part = [
            Message(i, "user" if i % 2 == 0 else "assistant", m.role, m.content)
            for i, m in enumerate(said[start : start + messages])
        ]
        many.append(Transcript(str(start), Task("Develop a trading bot"), messages=part))
    begin = time.process_time()
    for transcript in many:
        detect(transcript)
    return (time.process_time() - begin) * 1000 / len(many)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--split", choices=["tune", "held-out"])
    parser.add_argument(
        "--confusions", action="store_true", help="name the messages that were wrong or missed"
    )
    asked = parser.parse_args()
    for split in [asked.split] if asked.split else ["tune", "held-out"]:
        examples = corpus(split)
        table = scores(examples)
        kinds = {kind: sum(e.source == kind for e in examples) for kind in ("real", "written", "mutation")}
        said = sum(len(example.messages) for example in examples)
        print(
            f"\n{split}: {len(examples)} examples ({', '.join(f'{n} {k}' for k, n in kinds.items())}), {said} messages\n"
        )
        print("\n".join(rows(table)))
        if asked.confusions or not asked.split:
            print()
            for name, score in table.items():
                if score.false or score.lost:
                    print(
                        f"- {name}: wrong {', '.join(score.false) or 'none'}; missed {', '.join(score.lost) or 'none'}"
                    )
    print(f"\ndetect() over 40 messages: {milliseconds(corpus('tune')):.2f} ms of CPU")


if __name__ == "__main__":
    main()
