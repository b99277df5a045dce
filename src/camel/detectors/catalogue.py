"""The detectors by name. The one decision to know: a rule that may find something else than before gets a new version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from camel.core.checks import shown
from camel.core.errors import CamelError
from camel.core.plugins import Plugin, Registry
from camel.core.transcript import Transcript
from camel.detectors.acting import claimed_action, ignored_error, repeated_call
from camel.detectors.code import unfinished_code
from camel.detectors.finding import Detector, Hit
from camel.detectors.languages import language_drift
from camel.detectors.repeating import message_loop, repeated_instruction, sycophancy_loop
from camel.detectors.replies import empty_promise, flake_reply, refusal
from camel.detectors.seats import format_violation, role_flipping
from camel.detectors.topics import assistant_question, long_task, topic_deviation

_QUESTIONS = {
    role_flipping: "Does the speaker of that message take the other's seat: an assistant who instructs, or a user who solves or offers help?",
    repeated_instruction: "Does that message only say an earlier instruction again?",
    flake_reply: "Does that message add nothing to the task beyond announcing or acknowledging what was asked for?",
    message_loop: "Do the messages up to that one go round in circles without progress?",
    empty_promise: "Does that message put off what was asked for, or claim to have delivered something that is not in it?",
    unfinished_code: "Is the code in that message cut off, or is an essential part of it left out?",
    refusal: "Does the speaker of that message decline to do what was asked?",
    language_drift: "Is that message in another language than the rest, without having been asked for?",
    format_violation: "Does that message lack its seat's format (a user's `Instruction:`, an assistant's `Solution:` and `Next request.`)?",
    sycophancy_loop: "Do the messages up to that one praise or agree with each other instead of working on the task?",
    assistant_question: "Does the assistant ask the user a question in that message, instead of solving what was asked?",
    topic_deviation: "Is that message about something else than the task?",
    long_task: "Does the specified task have more words than the specifier was asked for?",
    repeated_call: "Does the speaker call a tool again with the same arguments for that message, although nothing can have changed?",
    ignored_error: "Did the tool calls for that message fail, while the message reports a success or a result?",
    claimed_action: "Does that message claim an action, such as running code or sending an e-mail, that the speaker did not execute?",
}
"""The rules, each with the question to a judge about its findings. A rule's function has the name of its detector."""
_VERSIONS = {
    unfinished_code: 2,  # version 1 took a body with code between two comments, or with a brace in a comment, for empty
    language_drift: 2,  # version 1 took the language of a conversation with a short task from the first long message of any speaker
}
"""Versions of rules that have changed; the others have version 1."""


def _shipped() -> Iterator[Detector]:
    for rule, question in _QUESTIONS.items():
        name = rule.__name__
        yield Detector(name, _VERSIONS.get(rule, 1), name.replace("_", " ").capitalize(), question, rule)


def _plugged(plugin: Plugin, part: Any) -> Detector:
    """Wrap a plug-in's detector, so that its errors name the plug-in."""
    if not isinstance(part, Detector):
        raise plugin.failed(f"must be a Detector of camel.detectors, not {shown(part)}")
    if part.name != plugin.name:
        raise plugin.failed(f"has a detector named {shown(part.name)}, but both names must be the same")

    def rule(transcript: Transcript) -> Iterable[Hit]:
        with plugin.guard(f"failed on conversation {shown(transcript.id)}", CamelError):
            return list(part.rule(transcript))

    return replace(part, rule=rule)


DETECTORS: Registry[Detector] = Registry(
    "detectors", {detector.name: detector for detector in _shipped()}, _plugged, kind="detector"
)
"""Every detector by its name; the first four are the paper's challenges (section 4.1)."""
