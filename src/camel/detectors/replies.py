"""Replies that are no answer: flake replies, empty promises, refusals.

The one decision to know: a rule fires on what the whole reply amounts to, not on a phrase in it. "I will" before a
solution, "I can't" before a way round it and "tomorrow" in a letter that was asked for are ordinary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from camel.core.message import Message
from camel.core.transcript import Transcript
from camel.detectors.finding import Hit
from camel.detectors.reading import ASSISTANT, asked_before, is_shown, prose, said_by, sentences, words, work

# ---- flake replies


def flake_reply(transcript: Transcript) -> Iterator[Hit]:
    """The assistant announces or acknowledges, and adds nothing."""
    for index, message in said_by(ASSISTANT, transcript):
        asked = asked_before(transcript, index)
        if asked is None or not _asks(asked) or message.finish in _WITHHELD:
            continue
        said = work(message)
        if not words(said):
            yield Hit(index, "the reply is empty")
        elif _only_announces(said) and not _PLAN.search(work(asked)) and refuses(message, asked) is None:
            yield Hit(index, "the reply only announces or acknowledges what was asked for", said)


_MOST_WORDS = 60
"""A longer plan says how, which is something."""
_OPENER = (
    r"(?:(?:sure(?: thing)?|ok(?:ay)?|of course|certainly|absolutely|definitely|alright|all right|yes|great|perfect|thanks?|thank you|understood|"
    r"got it|noted|no problem|with pleasure|right|well|so|and|then|now|first(?:ly)?|second(?:ly)?|third(?:ly)?|next|finally|after that|afterwards|"
    r"in addition|also)\b[\s,!.:;–-]*){0,3}"
)
_FUTURE = (
    r"(?:i|we)(?:'|’)?(?:ll| will| shall| am going to|'m going to|’m going to| are going to| plan to| intend to| can| could| would (?:love|be (?:glad|happy|delighted)) to"
    r"|'d (?:love|be (?:glad|happy|delighted)) to|’d (?:love|be (?:glad|happy|delighted)) to)\b"
)
_ANNOUNCES = re.compile(
    rf"{_OPENER}(?:(?:to|for|in|by|before|once|as)\b[^,]{{0,60}}, )?(?:{_FUTURE}|let me\b|let(?:'|’)s\b|let us\b|"
    rf"i(?:'|’)?(?:m| am) (?:\w+ )?(?:ready|happy|glad|excited|pleased|delighted|eager|here|on it|working|looking forward|about to|starting)\b|"
    rf"(?:it|this|they) (?:will|is going to|'ll)\b|please (?:let me know|wait|hold|give me|bear|stand)|feel free\b|one moment\b|give me\b|don(?:'|’)t hesitate\b)",
    re.IGNORECASE,
)
_ACKNOWLEDGES = re.compile(
    rf"{_OPENER}(?:i (?:fully |completely )?(?:understand|agree|see)\b|sounds (?:good|great)\b|your instructions? (?:is|are|has|have)\b|"
    rf"(?:that(?:'|’)?s| that is|that is|what) (?:a|an|the) (?:\w+ ){{0,2}}(?:idea|question|step|plan|point|task|\w+)(?: for \w+)?\W*$|"
    rf"(?:great|good|excellent|nice) (?:idea|question|point|choice)\b|thank(?:s| you)\b|my pleasure\b|it will be my pleasure\b|consider it done\b|will do\b)?\W*",
    re.IGNORECASE,
)
_DELIVERS = re.compile(r"[:：]\s*\S|\n\s*(?:[-*•]|\d+[.)])\s|```|\|", re.DOTALL)
_PLAN = re.compile(
    r"\b(?:plan(?! (?:a|an|the)\b)|agree|steps?|approach|strategy|intend|how (?:you|would|will|do you)|what you (?:would|will)|your (?:first|next)|"
    r"vows?|speech|lines?|scenes?|says?|dialogue|letters?|e-?mails?|poem|story|messages?|promises?|toast|songs?|lecture|schedule|agenda|act as|introduce)\b",
    re.IGNORECASE,
)


def _only_announces(said: str) -> bool:
    if len(words(said)) > _MOST_WORDS or "?" in said or _DELIVERS.search(said):
        return False
    announced = 0
    found = sentences(prose(said))
    for sentence in found:
        if _ANNOUNCES.match(sentence):
            announced += 1
        elif not _ACKNOWLEDGES.fullmatch(sentence) and not _THANKING.match(sentence):
            return False
    return bool(found)


_THANKING = re.compile(r"(?:thanks?|thank you)\b[^.]{0,60}\W*$", re.IGNORECASE)
_NOTHING_ASKED = re.compile(
    r"(?:[\W_]*(?:thank(?:s| you)?|great|perfect|wonderful|goodbye|bye|ok(?:ay)?|i (?:fully |completely |totally )?agree|you(?:'|’)?(?:re| are)|wow|yes|"
    r"exactly|i apologi[sz]e|i(?:'|’)?m sorry)\b[^.!?]*[.!?]*)+",
    re.IGNORECASE,
)


def _asks(asked: Message) -> bool:
    """Whether the user's message asks for anything."""
    if asked.move.done:
        return False
    said = work(asked)
    return bool(words(said)) and not _NOTHING_ASKED.fullmatch(said.strip())


# ---- empty promises


def empty_promise(transcript: Transcript) -> Iterator[Hit]:
    """The assistant puts off what was asked, or claims to have delivered what is not there."""
    for index, message in said_by(ASSISTANT, transcript):
        said = work(message)
        if not said:
            continue
        asked = asked_before(transcript, index)
        spoken = prose(said)
        if not is_shown(asked):
            for pattern, reason in _PROMISES:
                if found := pattern.search(spoken):
                    yield Hit(index, reason, found[0].strip())
                    break
            else:
                if not _TEMPLATE.search(work(asked) if asked else "") and (found := _HOLE.search(spoken)):
                    yield Hit(index, "a placeholder stands where the thing should be", found[0])
                elif found := _NOTHING_FOLLOWS.search(said):
                    yield Hit(
                        index, "something is announced as following, and nothing follows", found[0].strip()
                    )


_WHEN = (
    r"(?:tomorrow|tonight|later|soon|shortly|overnight|by (?:the end|next|noon|\w+day)|within (?:the next|\w+ (?:hours?|days?|minutes?))|next week|"
    r"in (?:an?|the|a few|\w+) (?:hours?|minutes?|days?|weeks?|moments?)|this (?:afternoon|evening|week)|over the (?:weekend|next)|first thing|"
    r"as soon as|when (?:it|they) (?:is|are)|once (?:it|they|i)|(?:at|until) the end of)"
)
_I_WILL = r"\b(?:i|we)(?:'ll|’ll| will| shall|'m going to|’m going to| am going to| are going to)\b"
_HANDS_OVER = r"(?:send|e-?mail|mail|share|deliver|upload|forward|report|hand|submit|post|present|finish|complete|prepare|have|add|code|write|do|check|test|mix|run|provide|show|return|be back)"
_PROMISES = (
    (
        re.compile(
            rf"{_I_WILL}[^.!?\n]{{0,160}}\b(?:(?:get|come|be|report) back\b|let you know (?:as soon|when|once|how)|keep you (?:posted|updated|informed)|(?:notify|inform|update|contact) you\b)",
            re.IGNORECASE,
        ),
        "what was asked is put off to a later message",
    ),
    (
        re.compile(rf"{_I_WILL}[^.!?\n]{{0,60}}\b{_HANDS_OVER}\b[^.!?\n]{{0,120}}\b{_WHEN}\b", re.IGNORECASE),
        "what was asked is put off to a later time",
    ),
    (
        re.compile(
            r"\b(?:give|allow) me (?:a |some |until |an? |\w+ )?(?:few |couple of |little )?(?:moments?|minutes?|seconds?|hours?|time|days?)\b|"
            r"\b(?:one|just a) (?:moment|minute|second),? please\b|\bone moment\b|\bplease (?:wait|hold on|stand by|bear with me)\b|\bhold on while\b|"
            r"\bi(?:'|’)?(?:m| am) (?:still |currently |now |already )?working on (?:it|this|that|the)\b|\bi need (?:until|some time|more time)\b|"
            r"\b(?:come|get) back to you\b|\bwill take (?:me )?(?:a while|some time|a few|about)\b|\bkeep you posted\b",
            re.IGNORECASE,
        ),
        "the user is asked to wait for work that happens nowhere",
    ),
    (
        re.compile(
            r"\b(?:find|see|found)\b[^.!?\n]{0,60}\b(?:attached|attachment|enclosed)\b|\b(?:is|are|and|have|it|in the|an?) attached\b(?! to (?:the|a|your))|"
            r"\battached (?:it|the|my|a)\b|\bsee the attachment\b|"
            r"\bi(?:(?:'|’)ve| have) (?:just |already )?(?:\w+ (?:and|it and) )?(?:uploaded|sent|e-?mailed|mailed|forwarded|posted|put|placed|saved|committed|shared)\b[^.!?\n]{0,80}\b(?:you|your|folder|repository|drive|inbox|there|server|it|under)\b|"
            r"\bi have [^.!?\n]{0,60} and (?:sent|uploaded|attached|e-?mailed) it\b",
            re.IGNORECASE,
        ),
        "a delivery is claimed that is not in the message",
    ),
)
_HOLE = re.compile(
    r"\[(?:insert|add|your|put|place|paste|link|attach|to be|tbd|table|image|file|code)\b[^\]\n]{0,80}\](?!\()|\[[^\]\n]{0,60}\b(?:here|to be (?:added|inserted|done)|goes here|tbd)\](?!\()",
    re.IGNORECASE,
)
_TEMPLATE = re.compile(r"\b(?:template|placeholders?|form|boilerplate|skeleton|prompt)\b", re.IGNORECASE)
_NOTHING_FOLLOWS = re.compile(
    r"(?:^|(?<=[.!?\n])|(?<=[.!?] ))\s*(?:(?:sure|certainly|of course|okay)[,!.]? )?(?:here(?:'|’)?s?\b|below\b|the following\b)[^.!?\n]{0,120}[:：]\s*\Z",
    re.IGNORECASE,
)

# ---- refusals

_WITHHELD = ("refusal", "content_filter")


def refusal(transcript: Transcript) -> Iterator[Hit]:
    """A speaker declines to go on."""
    for index, message in enumerate(transcript.messages):
        if message.finish in _WITHHELD:
            yield Hit(index, "the endpoint refused or withheld the reply")
        elif (
            found := refuses(
                message, asked_before(transcript, index) if message.speaker == ASSISTANT else None
            )
        ) is not None:
            yield Hit(index, "the speaker declines", found)


_LOOKED_AT = 4
"""Sentences from the start of a message: a refusal comes first."""
_REASONS = 45
"""Words after a refusal that may be reasons and offers; with more the message went on to do the work."""
_CANNOT = (
    r"(?:can(?:'|’)?t|cannot|can not|won(?:'|’)t(?: be able to)?|will not(?: be able to)?|am unable to|(?:'|’)m unable to|am not able to|(?:'|’)m not able to|"
    r"could not|couldn(?:'|’)t|am not allowed to|(?:'|’)m not allowed to|refuse to|decline to|must (?:refuse|decline) to)"
)
_ACTS = (
    r"(?:help|assist|do (?:that|this|so|it)|fulfil+|comply|provide|write|create|make|give|share|support|continue|engage|participate|generate|produce|carry out|"
    r"perform|answer|complete|buy|sell|view|see|open|access|come|paint|register|solve|run|send|tell|show|design|build|offer|discuss|recommend|prescribe|play|accept|follow|plan|draft)\b"
)
_REFUSES = re.compile(
    rf"\bi(?: |(?='|’)){_CANNOT} (?:\w+ly )?{_ACTS}(?![^.!?]*\benough\b)|"
    r"\bi (?:must |have to |need to |will have to |do |therefore |would |will )?(?:therefore |respectfully )?(?:decline|refuse)\b|\bi must therefore decline\b|"
    r"\bnot (?:feel )?comfortable (?:with )?\w+ing\b|\bnot something (?:that )?i(?:'|’)?(?:m| am| can)\b|\bi(?:'|’)?d rather not\b|\bi would rather not\b|"
    r"\bagainst (?:my|the) (?:guidelines|rules|polic\w+|principles|programming)\b|\bnot (?:be )?appropriate for me\b|"
    r"\bas an ai\b[^.!?]*\b(?:not|cannot|can(?:'|’)?t|unable|don(?:'|’)t)\b|\bi (?:do not|don(?:'|’)t) have (?:access|the ability)\b[^.!?]*\b(?:unable|cannot|can(?:'|’)?t)\b|"
    r"\bi(?:'|’)?(?:m| am) (?:sorry|afraid)\b[^.!?]{0,30}\bi can(?:not|(?:'|’)?t)\b",
    re.IGNORECASE,
)
_FIRM = re.compile(
    r"\bas an ai\b|\b(?:decline|refuse)\b|\bassist\b|\b(?:this|that|your|the) request\b|\bhelp with\b|\bwrite\b|\bcomfortable\b|\bapolog",
    re.IGNORECASE,
)
_GOES_ON = re.compile(
    r"\b(?:but|however)\b(?! (?:i|we)(?:'d| would| can| could|(?:'|’)m) ?(?:be )?(?:happy|glad|offer|gladly|help))[^.!?]*[:：]|;\s*\w|\bbut (?:here|these|this|in general|i would say)\b",
    re.IGNORECASE,
)
_MISSING = re.compile(
    r"\b(?:without (?:the|your|more|knowing|a|any|these|further)|until you|unless you|before you)\b",
    re.IGNORECASE,
)


def refuses(message: Message, asked: Message | None) -> str | None:
    """The sentence with which a message declines, if it does."""
    said = prose(work(message))
    found = sentences(said)
    for place, sentence in enumerate(found[:_LOOKED_AT]):
        if not _REFUSES.search(sentence):
            continue
        if _GOES_ON.search(sentence) or (_MISSING.search(sentence) and "?" in said):
            return None
        if len(words(" ".join(found[place + 1 :]))) > _REASONS or "```" in message.content:
            return None
        if is_shown(asked) and not _FIRM.search(sentence):
            return None
        return sentence
    return None
