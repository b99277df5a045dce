"""Replies that are no answer: flake replies, empty promises, refusals.

The one decision to know: a rule judges the whole reply, not a phrase in it. "I will" before a solution, "I can't" before a
workaround and "tomorrow" in a requested letter are fine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from camel.core.message import Message
from camel.core.role_playing import ASSISTANT
from camel.core.transcript import Transcript
from camel.detectors.finding import Hit
from camel.detectors.prose import (
    asked_before,
    has_any,
    is_shown,
    pieces,
    prose,
    said_by,
    sentences,
    words,
    work,
)

# ---- flake replies


def flake_reply(transcript: Transcript) -> Iterator[Hit]:
    """Find replies that only announce or acknowledge something."""
    for index, message in said_by(ASSISTANT, transcript):
        asked = asked_before(transcript, index)
        if asked is None or message.finish in _WITHHELD or not _asks(asked):
            continue
        said = work(message)
        if not words(said):
            yield Hit(index, "the reply is empty")
        elif only_announces(said) and not _is_what_was_asked(said, asked) and refuses(message, asked) is None:
            yield Hit(index, "the reply only announces or acknowledges what was asked for", said)


_MOST_WORDS = 60
"""Maximum number of words of an announcement. A longer plan has content."""
_OPENER = (
    r"(?:(?:sure(?: thing)?|ok(?:ay)?|of course|certainly|absolutely|definitely|alright|all right|yes|great|perfect|"
    r"thanks|thank you|understood|got it|noted|no problem|with pleasure|right|well|so|and|then|now|first(?:ly)?|"
    r"second(?:ly)?|third(?:ly)?|next|finally|after that|afterwards|also)\b[\s,!.:;–-]*){0,3}"
)
_ANNOUNCES = re.compile(
    _OPENER + r"(?:(?:to|for|in|by|before|once|as)\b[^,]{0,60}, )?(?:"
    r"(?:i|we)(?:'ll| will| shall|'m going to| am going to|'re going to| are going to| plan to| intend to| can(?!'t)| could(?!n't)|"
    r"(?: would|'d) (?:love|be (?:glad|happy|delighted)) to)\b|"
    r"i(?:'m| am) (?:\w+ )?(?:ready|happy|glad|excited|pleased|delighted|eager|here|on it|working|looking forward|about to|starting)\b|"
    r"let me\b|let's\b|let us\b|(?:it|this|they)(?: will| is going to|'ll)\b|i need (?:until|some|more)\b|i look forward\b|happy to\b|"
    r"please (?:let me know|wait|hold|give me|bear|stand)|feel free\b|one moment\b|give me\b|don't hesitate\b)",
    re.IGNORECASE,
)
_ACKNOWLEDGES = re.compile(
    _OPENER + r"(?:i (?:fully |completely )?(?:understand|agree|see)\b[^.!?]{0,40}|sounds (?:good|great)|"
    r"your (?:instructions?|request) (?:is|are|has|have)\b[^.!?]{0,40}|(?:that's|that is|what) (?:a|an|the) (?:\w+ ){0,3}\w+|"
    r"(?:great|good|excellent|nice) (?:idea|question|point|choice)|thank(?:s| you)\b[^.!?]{0,60}|my pleasure|consider it done|will do)?\W*",
    re.IGNORECASE,
)
# A colon followed by text, a list, a table, code: more than an announcement.
_DELIVERS = re.compile(r"[:：]\s*\S|\n[^\S\n]*(?:[-*•]|\d+[.)])\s|```|\|")
# Requests whose answer may be a plan, or text in the voice of others.
_INTENTION = re.compile(
    r"\b(?:agree|how (?:you|would|will|do you)|what you (?:would|will)|your (?:first|next|plan|approach)|steps|promises?|"
    r"lines?|lecture|introduce|say)\b",
    re.IGNORECASE,
)
# Without backtracking ("thank" also matches "thank you"), so that a long text is fast.
_NOTHING_ASKED = re.compile(
    r"(?:[\W_]*+(?:thanks?|great|perfect|wonderful|goodbye|bye|ok(?:ay)?|i (?:fully |completely |totally )?agree|you(?:'re| are)|"
    r"wow|yes|exactly|i apologi[sz]e|i(?:'m| am) (?:sorry|glad|sure|ready))\b[^.!?]*+[.!?]*+)+",
    re.IGNORECASE,
)


_REQUEST = re.compile(
    r"\?|\b(?:please|need|want|would like|could you|can you|should|must|write|give|tell|make|show|explain|describe|list|create|design|"
    r"find|add|compute|calculate|draft|plan|propose|suggest|translate|instruction)\b",
    re.IGNORECASE,
)


def _asks(asked: Message) -> bool:
    """Return whether the user's message asks for anything."""
    said = work(asked)
    if asked.move.done or not words(said) or _NOTHING_ASKED.fullmatch(prose(said)):
        return False
    return asked.move.instruction is not None or _REQUEST.search(said) is not None


@lru_cache(maxsize=256)
def only_announces(said: str) -> bool:
    """Return whether every sentence is an announcement or an acknowledgment."""
    if len(words(said)) > _MOST_WORDS or "?" in said or _DELIVERS.search(said):
        return False
    found = sentences(prose(said))
    return bool(found) and all(_ANNOUNCES.match(s) or _ACKNOWLEDGES.fullmatch(s) for s in found)


def _is_what_was_asked(said: str, asked: Message) -> bool:
    """Return whether an announcement may itself be the answer. It is not if it only repeats the request: "I will write the
    speech"."""
    if not _INTENTION.search(work(asked)) and not is_shown(asked):
        return False
    content = set(words(said)) - _EMPTY_WORDS
    return len(content & set(words(work(asked)))) < 0.4 * len(content)


_EMPTY_WORDS = frozenset(
    words(
        "i we you the a an to will i'll for of and it me let that this do be your my can sure okay in on am i'm going with is shall please"
    )
)

# ---- empty promises


def empty_promise(transcript: Transcript) -> Iterator[Hit]:
    """Find replies that postpone what was requested, or claim a delivery that is not in the message."""
    for index, message in said_by(ASSISTANT, transcript):
        said = work(message)
        if said and (hit := _promise(index, said, asked_before(transcript, index))):
            yield hit


_CLAIM_WORDS = 25
"""If the user asked for a text such as a letter, only replies of at most this many words are checked."""


def _promise(index: int, said: str, asked: Message | None) -> Hit | None:
    spoken = prose(said)
    if has_any(spoken, _MAY_PROMISE) and not is_shown(asked):
        for pattern, reason in _PROMISES:
            if found := pattern.search(spoken):
                return Hit(index, reason, found[0].strip())
    found = _CLAIMS.search(spoken) if has_any(spoken, _MAY_CLAIM) else None
    if found and (len(words(spoken)) <= _CLAIM_WORDS or not is_shown(asked)):
        return Hit(index, "a delivery is claimed that is not in the message", found[0].strip())
    if said.endswith((":", "：")) and (found := _NOTHING_FOLLOWS.search(said)):
        return Hit(index, "something is announced as following, and nothing follows", found[0].strip())
    if "[" in spoken and (found := _HOLE.search(spoken)) and not (asked and _TEMPLATE.search(asked.content)):
        return Hit(index, "there is a placeholder instead of content", found[0])
    return None


_I_WILL = r"\b(?:i|we)(?:'ll| will| shall|'m going to| am going to| are going to)\b"
_HAND_OVER = (
    r"\b(?:send|e-?mail|mail|share|deliver|upload|forward|report|hand|submit|post|present|finish|complete|prepare|have|"
    r"add|code|write|do|check|test|mix|run|provide|show|return)\b"
)
_WHEN = (
    r"\b(?:tomorrow|tonight|later|soon|shortly|overnight|by (?:the end|next|noon|\w+day)|within (?:the next|\w+ (?:hours?|days?|minutes?))|"
    r"next week|in (?:an?|the|a few|\w+) (?:hours?|minutes?|days?|weeks?|moments?)|this (?:afternoon|evening|week)|"
    r"over the (?:weekend|next)|first thing|as soon as|when (?:it|they) (?:is|are)|once (?:it|they|i)|the end of the (?:day|week|month))\b"
)
# Most replies have none of these.
_MAY_PROMISE = pieces(
    "'ll| will| shall|going to|moment|minute|second|hold on|please wait|please stand|please bear|"
    "working on|i need|back to you|posted| me "
)
_PROMISES = (
    (
        re.compile(
            _I_WILL
            + r"[^.!?\n]{0,160}\b(?:(?:get|come|be|report) back\b|let you know (?:as soon|when|once|how)|"
            r"keep you (?:posted|updated|informed)|(?:notify|inform|update|contact) you\b)",
            re.IGNORECASE,
        ),
        "what was asked is put off to a later message",
    ),
    (
        re.compile(_I_WILL + r"[^.!?\n]{0,60}" + _HAND_OVER + r"[^.!?\n]{0,120}" + _WHEN, re.IGNORECASE),
        "what was asked is put off to a later time",
    ),
    (
        re.compile(
            r"\b(?:give|allow) me (?:a |some |until |an )?(?:few |couple of |little )?(?:moments?|minutes?|seconds?|hours?|time|days?)\b|"
            r"\b(?:one|just a) (?:moment|minute|second),? please\b|\bone moment(?= while|, i\b|[.!])|\bplease (?:wait|hold on|stand by|bear with me)\b|"
            r"\bhold on while\b|\bi(?:'m| am) (?:still |currently |now |already )?working on (?:it|this|that|the)\b|"
            r"\bi need (?:until|some time|more time)\b|\b(?:come|get) back to you\b|\bkeep you posted\b|"
            r"\b(?:this|it) will take (?:me )?(?:a while|some time)\b|\band will (?:notify you|let you know|upload|send you)\b",
            re.IGNORECASE,
        ),
        "the user is asked to wait for work that happens nowhere",
    ),
)
_MAY_CLAIM = pieces("attach|enclosed|i have|i've")
_CLAIMS = re.compile(
    r"\b(?:find|see|found)\b[^.!?\n]{0,60}\b(?:attached|attachment|enclosed)\b|"
    r"\b(?:(?:is|are|have|it) attached|attached (?:it|the|my|file))\b(?! to (?:the|a|your)\b)|\bin the attached\b|"
    r"\bi(?:'ve| have) (?:just |already )?(?:[^.!?\n]{0,60} and )?(?:uploaded|sent|e-?mailed|mailed|forwarded|posted|put|placed|saved|committed|shared)\b"
    r"[^.!?\n]{0,80}\b(?:you|your|folder|repository|drive|inbox|there|server|it|under)\b",
    re.IGNORECASE,
)
_HOLE = re.compile(
    r"\[(?:insert|add|your|put|place|paste|link|attach|to be|tbd|table|image|file|code)\b[^\]\n]{0,80}\](?!\()|"
    r"\[[^\]\n]{0,60}\b(?:here|to be (?:added|inserted|done)|tbd)\](?!\()",
    re.IGNORECASE,
)
_TEMPLATE = re.compile(r"\b(?:templates?|placeholders?|form|boilerplate|skeleton|prompt)\b", re.IGNORECASE)
_NOTHING_FOLLOWS = re.compile(
    r"(?:^|(?<=[.!?\n])|(?<=[.!?] ))[ \t]*(?:(?:sure|certainly|of course|okay)[,!.]? )?(?:here(?:'s|’s)?|below|the following)\b"
    r"[^.!?\n]{0,120}[:：]\s*\Z",
    re.IGNORECASE,
)

# ---- refusals

_WITHHELD = ("refusal", "content_filter")


def refusal(transcript: Transcript) -> Iterator[Hit]:
    """Find replies that refuse the request."""
    for index, message in enumerate(transcript.messages):
        if message.finish in _WITHHELD:
            yield Hit(index, "the endpoint refused or withheld the reply")
            continue
        asked = asked_before(transcript, index) if message.speaker == ASSISTANT else None
        if (found := refuses(message, asked)) is not None:
            yield Hit(index, "the speaker declines", found)


_LOOKED_AT = 4
"""Number of sentences to check from the start of a message."""
_REASONS = 45
"""Maximum number of words after a refusal, for reasons and offers. With more, the message did the work."""
_BEGINNING = 1_200
_MAY_REFUSE = pieces(
    "can't|cannot|can not|won't|will not|unable|not able|not allowed|could|declin|refus|comfortable|"
    "rather not|against|appropriate|as an ai|language model|not something|access"
)
# Every match of `_REFUSES` has one of these.
_IN_REFUSALS = pieces(
    "can't|cannot|can not|won't|will not|unable|not able|not allowed|could not|couldn't|declin|refus|comfortable|"
    "rather not|against my|against the|appropriate|as an ai|as a ai|language model|not something|access|the ability"
)
_CANNOT = (
    r"(?: can't| cannot| can not| won't(?: be able to)?| will not(?: be able to)?|(?: am|'m) (?:unable|not able|not allowed) to|"
    r" could not| couldn't| refuse to| decline to)"
)
_ACTS = (
    r"(?:help|assist|do (?:that|this|so|it)|fulfil+|comply|provide|write|create|make|give|share|support|continue|engage|participate|"
    r"generate|produce|carry out|perform|answer|complete|buy|sell|view|see|open|access|come|paint|register|solve|run|send|tell|show|"
    r"design|build|offer|discuss|recommend|prescribe|play|accept|follow|plan|draft)\b"
)
_REFUSES = re.compile(
    r"\bi" + _CANNOT + r" (?:\w+ly )?" + _ACTS + r"(?![^.!?]*\benough\b)|"
    r"\bi (?:must |have to |need to |will have to |would |will )?(?:therefore |respectfully )?(?:decline|refuse)\b|"
    r"(?:\bnot|n't) (?:feel )?comfortable (?:with )?\w+ing\b|\bnot something (?:that )?i(?:'m| am| can)\b|\bi(?:'d| would) rather not\b|"
    r"\bagainst (?:my|the) (?:guidelines|rules|polic\w+|principles|programming)\b|\bnot (?:be )?appropriate for me\b|"
    r"\bas an? (?:ai|(?:large )?language model)\b[^.!?]*\b(?:not|cannot|can't|unable|don't)\b|"
    r"\bi (?:do not|don't) have (?:access|the ability)\b[^.!?]*\b(?:unable|cannot|can't)\b|"
    r"\bi(?:'m| am) (?:sorry|afraid)\b[^.!?]{0,30}\bi can(?:not|'t)\b",
    re.IGNORECASE,
)
# A character in a scene may say "I cannot", but not this.
_FIRM = re.compile(
    r"\bas an? (?:ai|language model)\b|\b(?:decline|refuse|assist|comfortable|write)\b|\b(?:this|that|your|the) request\b|\bhelp with\b|\bapolog",
    re.IGNORECASE,
)
_GOES_ON = re.compile(
    r"\b(?:but|however)\b[^.!?]*[:：]|\bbut (?:here|these|this|in general|i would say)\b", re.IGNORECASE
)
_MISSING = re.compile(
    r"\b(?:without (?:the|your|more|knowing|a|any|these|further)|until you|unless you|before you)\b",
    re.IGNORECASE,
)


def refuses(message: Message, asked: Message | None) -> str | None:
    """Return the sentence with which a message declines, or None."""
    said = prose(work(message))
    if not has_any(said[:_BEGINNING], _MAY_REFUSE):
        return None
    found = sentences(said)
    for place, sentence in enumerate(found[:_LOOKED_AT]):
        beginning = sentence[:_BEGINNING]
        if not (has_any(beginning, _IN_REFUSALS) and _REFUSES.search(beginning)):
            continue
        goes_on = _GOES_ON.search(sentence) or "```" in message.content
        asks_back = "?" in said and _MISSING.search(sentence)
        spoken_by_another = is_shown(asked) and not _FIRM.search(sentence)
        did_it = len(words(" ".join(found[place + 1 :]))) > _REASONS
        return None if goes_on or asks_back or spoken_by_another or did_it else sentence
    return None
