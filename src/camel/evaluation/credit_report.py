"""The figures, the report and the exports of the value of messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args

import msgspec

from camel.core.message import Usage, in_one_line
from camel.reports import blocks as kinds
from camel.reports.intervals import ReportFigures
from camel.reports.numbers import counted, percent, points
from camel.reports.plots import Plot, lines
from camel.reports.plots import plot as plot_of

SHOWN = 12
"""Number of conversations in the report: those with the largest advantages."""
Rows = Literal["process_reward", "step_preferences", "advantages"]
FORMATS: tuple[str, ...] = get_args(Rows)


class MessageCredit(msgspec.Struct, frozen=True):
    """The value of one message."""

    number: int
    speaker: str
    text: str
    value: float
    """Chance of success after the message."""
    interval: tuple[float, float] | None
    """95% interval of the value. None if the value is interpolated or is the recorded result."""
    advantage: float
    """Value after the message minus the value before it."""
    advantage_interval: tuple[float, float]
    measured: bool
    """Whether the values before and after the message are measured."""
    alternatives: list[tuple[str, bool]]
    """Other messages that were sampled in its place, and whether the conversation then succeeded."""


class ConversationCredit(msgspec.Struct, frozen=True):
    """The values of the messages of one conversation."""

    id: str
    task: str
    success: bool
    start: float
    """Chance of success before the first message."""
    decisive: int | None
    """Number of the message with the largest change of the value. None if the value hardly changes."""
    messages: list[MessageCredit]


class CreditFigures(ReportFigures, frozen=True):
    """The values of all messages, as stored in `credit.json`."""

    file = "credit"
    conversations: list[ConversationCredit]
    model: str
    samples: int
    failed: int
    usage: Usage
    schema: int = 1

    def __getitem__(self, id: str) -> ConversationCredit:
        """Return the values of a conversation."""
        return next(one for one in self.conversations if one.id == id)

    def by_seat(self) -> dict[str, float]:
        """Return the mean advantage of the messages of each seat."""
        found: dict[str, list[float]] = {}
        for one in self.conversations:
            for message in one.messages:
                found.setdefault(message.speaker, []).append(message.advantage)
        return {seat: sum(values) / len(values) for seat, values in found.items()}

    def rows(self, format: Rows) -> Iterator[dict[str, Any]]:
        """Yield training rows.

        `process_reward` has prompt, completions and labels, as `PRMTrainer` of trl up to 1.13 reads them. `step_preferences` has prompt,
        chosen and rejected: a message and an alternative in its place that led to the other result. `advantages` has a row
        per message.
        """
        for one in self.conversations:
            if format == "process_reward":
                texts, labels = (
                    [message.text for message in one.messages],
                    [message.value >= 0.5 for message in one.messages],
                )
                yield {"prompt": one.task, "completions": texts, "labels": labels}
            for place, message in enumerate(one.messages):
                if format == "advantages":
                    yield {
                        "id": one.id,
                        "message": message.number,
                        "speaker": message.speaker,
                        "value": message.value,
                        "advantage": message.advantage,
                    }
                if format == "step_preferences":
                    said = [one.task, *(before.text for before in one.messages[:place])]
                    good = [text for text, success in message.alternatives if success]
                    bad = [text for text, success in message.alternatives if not success]
                    (good if message.value >= 0.5 else bad).insert(0, message.text)
                    if good and bad and good[0] != bad[0] and abs(message.advantage) >= 0.25:
                        yield {"prompt": "\n\n".join(said), "chosen": good[0], "rejected": bad[0]}

    def plot(self) -> Plot:
        """Return the plot of the values over the messages of the first conversations."""
        rows = [
            {"name": one.id, "x": number, "y": value}
            for one in self._ranked()[:5]
            for number, value in enumerate([one.start, *(message.value for message in one.messages)])
        ]
        caption = kinds.TEXTS["credit"]["plot"]
        return plot_of(
            "credit",
            "Chance of success",
            caption,
            lambda width: lines(rows, width - 50, "message"),
        )

    def _ranked(self) -> list[ConversationCredit]:
        return sorted(
            self.conversations, key=lambda one: -max((abs(m.advantage) for m in one.messages), default=0.0)
        )

    def __str__(self) -> str:
        return "\n".join(summary(self))


def summary(made: CreditFigures) -> list[str]:
    """Return the decisive messages as text, one line per conversation."""
    return [f"{one.id}  {_decisive(one)}" for one in made.conversations]


def _decisive(one: ConversationCredit) -> str:
    if one.decisive is None:
        return f"no decisive message; chance of success {percent(one.start)} at the start"
    message = one.messages[one.decisive - 1]
    return f"message {message.number} ({message.speaker}): {points(message.advantage)} points {_interval(message)}"


def _interval(message: MessageCredit) -> str:
    low, high = message.advantage_interval
    return f"({points(low)} to {points(high)})"


def report(made: CreditFigures) -> kinds.Report:
    """Return the values as a report."""
    texts = kinds.TEXTS["credit"]
    decided = [one for one in made.conversations if one.decisive is not None]
    facts: kinds.Facts = {
        "Model": made.model,
        "Conversations": f"{len(made.conversations):,}",
        "Continuations": f"{made.samples:,}" + (f", {made.failed:,} of them failed" if made.failed else ""),
        "Calls": f"{made.usage.calls:,}, {made.usage.total:,} tokens",
        **{f"Mean advantage of {seat}": points(value) for seat, value in made.by_seat().items()},
    }
    folds = [
        kinds.Details(f"{one.id}: {_decisive(one)}", [_table(one)], open=not place)
        for place, one in enumerate(made._ranked()[:SHOWN])  # pyright: ignore[reportPrivateUsage] - of this module
    ]
    return kinds.Report(
        "Credit",
        f"{len(decided):,} of {counted(len(made.conversations), 'conversation')} have a decisive message",
        texts["lede"],
        facts,
        {
            "Values": [kinds.Picture("credit"), *folds] if folds else [kinds.Note(texts["none"])],
            "Method": [
                kinds.Heading("Method"),
                kinds.Paragraph(texts["method"]),
                kinds.Note(texts["limits"]),
            ],
        },
        [made.plot()] if folds else [],
    )


def _table(one: ConversationCredit) -> kinds.Grid:
    rows: list[Any] = [
        (
            f"{message.number}" + (" ●" if message.number == one.decisive else ""),
            message.speaker,
            in_one_line(message.text)[:160],
            percent(message.value),
            f"{points(message.advantage)} {_interval(message) if message.measured else ''}".strip(),
        )
        for message in one.messages
    ]
    return kinds.Grid(("Message", "Speaker", "Text", "Value", "Advantage, 95% interval"), rows, 3, wide=True)
