"""Format violations and role flipping.

The one decision to know: both use the grammar's parser. Markers in use decide first; plain words count only in a message
without markers of its own seat.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from camel.core.message import Message
from camel.core.role_playing import ASSISTANT, USER
from camel.core.transcript import Transcript
from camel.detectors.finding import Hit
from camel.detectors.prose import asked_before, is_natural, prose, said_by, sentences
from camel.detectors.repeating import is_echo


def format_violation(transcript: Transcript) -> Iterator[Hit]:
    """Find messages that do not have the format of their seat."""
    if not _has_format(transcript):
        return
    done = False
    for index, message in enumerate(transcript.messages):
        move = message.move
        if message.speaker == USER:
            done = done or move.done
            if move.instruction is None and not move.done:
                yield Hit(index, "the user neither instructs nor declares the task done")
        elif message.speaker == ASSISTANT and not done:
            if move.solution is None:
                yield Hit(index, "the assistant gives no solution")
            elif not move.next_request:
                yield Hit(index, "the assistant does not end with the request for the next instruction")


def _has_format(transcript: Transcript) -> bool:
    """Return whether the prompts ask for the format. Imported conversations have no prompts, so their messages decide."""
    if any(speaker.system for speaker in transcript.speakers):
        return not is_natural(transcript)
    if not transcript.speakers:
        return True
    moves = (message.move for message in transcript.messages)
    return any(move.instruction or move.solution or move.next_request or move.done for move in moves)


def role_flipping(transcript: Transcript) -> Iterator[Hit]:
    """Find messages in which a speaker takes the role of the other one."""
    for index, message in enumerate([] if is_natural(transcript) else transcript.messages):
        flips = {USER: _user_flips, ASSISTANT: _assistant_flips}.get(message.speaker)
        if flips and (hit := flips(transcript, index, message)):
            yield hit


def _assistant_flips(transcript: Transcript, index: int, message: Message) -> Hit | None:
    move = message.move
    if move.instruction is not None:
        return Hit(index, "the assistant gives an instruction", move.instruction)
    if move.solution is not None:
        return None
    said = prose(message.content)
    if is_echo(message, asked_before(transcript, index)):
        return None
    if found := _claim(said, _role(transcript, USER), _role(transcript, ASSISTANT)):
        return Hit(index, "the assistant speaks as the user's role", found)
    for sentence in sentences(said):
        if _ORDER.match(sentence) and not _ASKS_FOR_ORDERS.search(sentence):
            return Hit(index, "the assistant orders the user to do the work", sentence)
    return None


def _user_flips(transcript: Transcript, index: int, message: Message) -> Hit | None:
    move = message.move
    if move.solution is not None:
        return Hit(index, "the user gives a solution", move.solution)
    if move.next_request:
        return Hit(index, "the user asks for the next request")
    if move.instruction is not None or move.done:
        return None
    said = prose(message.content)
    if found := _claim(said, _role(transcript, ASSISTANT), _role(transcript, USER)):
        return Hit(index, "the user speaks as the assistant's role", found)
    if found := _OFFER.search(said):
        return Hit(index, "the user offers its help or asks to be instructed", found[0])
    if found := _DOES.search(said):
        return Hit(index, "the user does the work itself", found[0])
    if "```" in message.content and prose(message.content) != message.content:
        return Hit(index, "the user writes the code itself")
    return None


def _role(transcript: Transcript, seat: str) -> str:
    for _, message in said_by(seat, transcript):
        return message.role
    return next((speaker.role for speaker in transcript.speakers if speaker.name == seat), "")


def _claim(said: str, other: str, own: str) -> str:
    """Return the words with which a speaker claims the other's role, or an empty string."""
    if len(other) < 3 or other.lower() in own.lower():
        return ""
    lowered = said.lower()
    at = lowered.find(other.lower())
    while at >= 0:
        lead = _SELF.search(lowered, max(0, at - 24), at)
        if lead:
            return said[lead.start() : at + len(other)]
        at = lowered.find(other.lower(), at + 1)
    return ""


_SELF = re.compile(r"(?:\bi'?m|\bi am|\bas) (?:an? |the |your )\Z")
_WORK = (
    r"(?:write|create|draw|make|design|build|develop|implement|compute|calculate|translate|draft|compose|collect|list|"
    r"prepare|run|test|record|read|plan|sort|generate|produce|come up with|solve|code|program|send|complete|perform|do|"
    r"paste|give me|show me|show it|find|add|choose|scale|put|explain)\b"
)
_ORDER = re.compile(
    rf"(?:(?:and |now,? |then,? |next,? |first,? |also,? |so,? |after that,? ){{0,2}}"
    rf"(?:please (?:now |first |also )?{_WORK}|"
    rf"i (?:want|need|would like|expect|am asking|order|command) you to (?!instruct|give me (?:an )?instruct|tell)|"
    rf"i'd like you to (?!instruct|tell)|"
    rf"your (?:next |first |new )?(?:task|job|assignment) (?:is|will be)(?: now)? to |here(?:'s| is) your (?:next |first |new )?task\b|"
    rf"you (?:should|must|need to|have to|will have to|are to) (?:now |first |next )?{_WORK}|"
    rf"{_WORK}[^?]*(?:and (?:show|send|give|report|tell) (?:it |them )?(?:to )?me\b)))",
    re.IGNORECASE,
)
_ASKS_FOR_ORDERS = re.compile(
    r"\b(?:instruct(?:ions?)?|details?|more information|which|what|how many|how much|whether)\b",
    re.IGNORECASE,
)
_HELP = r"(?:help|assist|support|serve|guide|answer|follow)\b"
_OFFER = re.compile(
    rf"\bhow (?:can|may|could) i (?:help|assist|be of)\b|\bwhat (?:can|may|should|could) i (?:do|help|assist|write|implement)\b|"
    rf"\bi(?:'m| am) (?:\w+ )?(?:here|ready|happy|glad|available|able|excited|going|eager) to {_HELP}|"
    rf"\bi (?:can|could|will|would be (?:happy|glad) to|'ll) (?:\w+ )?(?:help|assist) (?:you|with)\b|\bi'(?:ll|d be (?:happy|glad) to) (?:help|assist)\b|"
    rf"\bwhat (?:would you like|do you want|do you need) me to\b|\bwhat (?:task|do you need|would you like) (?:\w+ ){{0,3}}help with\b|"
    rf"\bplease (?:\w+ )?instruct me\b|\byou must (?:\w+ )?instruct me\b|\bneed you to instruct me\b|"
    rf"\btell me what you would like me to\b|\bas your assistant\b",
    re.IGNORECASE,
)
_DOES = re.compile(
    r"^(?:sure|certainly|of course|absolutely|understood)\b[^\n]{0,60}?(?:\bhere (?:is|are|'s)\b|\bi (?:have|will|would|can)\b|\bi'(?:ve|ll)\b)|"
    r"^here (?:is|are|'s) (?:the|a|an|my|your|some|what)\b|"
    r"\bi(?:'m| am) (?:here|ready|going) to (?:create|write|prepare|make|build|design|draft|compose|solve|implement)\b|\bi'll be creating\b|"
    r"\bi'd (?:be happy to (?:recommend|provide|offer|share|suggest)|like to (?:suggest|recommend|offer))\b|"
    r"\bi (?:will|'ll) now (?:write|prepare|create|define|compose|draft|implement|design|build|make|compute|solve)\b|"
    r"\bi have (?:written|prepared|created|implemented|sorted|drafted|composed|designed|translated|computed)\b",
    re.IGNORECASE,
)
