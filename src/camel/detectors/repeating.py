"""Conversations without progress: repeated instructions, message loops, sycophancy loops.

The one decision to know: the loop detector uses the stop rule of the same name, so that the same conversations are stopped
for a loop and reported as loops.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from camel.core.message import Message
from camel.core.role_playing import ASSISTANT, USER
from camel.core.stops import MessageLoop, NextCall
from camel.core.transcript import Transcript
from camel.detectors.finding import Hit
from camel.detectors.prose import asked_before, has_any, is_natural, pieces, prose, sentences, words, work
from camel.detectors.replies import only_announces, refuses

_RULE, _NATURAL_RULE = MessageLoop(), MessageLoop(pleasantries=6, pleasant_chars=60)
_ANY_CALL = NextCall("")


def message_loop(transcript: Transcript) -> Iterator[Hit]:
    """Find loops of repeated messages. Each loop is reported once, at the message that completes it."""
    messages = transcript.messages
    looping = False
    rule = _NATURAL_RULE if len(transcript.speakers) == 2 and is_natural(transcript) else _RULE
    for index in range(len(messages)):
        stop = rule.check(messages[: index + 1], _ANY_CALL)
        if stop and not looping:
            # The detail contains names of seats, which never come from a model.
            yield Hit(index, f"a loop: {stop.detail}")
        looping = stop is not None


def repeated_instruction(transcript: Transcript) -> Iterator[Hit]:
    """Find instructions that are repeated: by the assistant instead of a solution, or by the user."""
    given: list[tuple[int, tuple[str, ...], tuple[str, ...]]] = []
    for index, message in enumerate(transcript.messages):
        if message.speaker == ASSISTANT:
            if is_echo(message, asked_before(transcript, index)):
                yield Hit(
                    index, "the assistant repeats the instruction instead of carrying it out", work(message)
                )
        elif message.speaker == USER and (instruction := message.move.instruction) is not None:
            said, context = words(instruction), words(message.move.input or "")
            if len(said) >= _LEAST_WORDS:
                for before, earlier, its_context in reversed(given):
                    if _same(said, earlier) and _same(context, its_context):
                        if not _MORE.search(instruction) and not _deserves_another(transcript, before):
                            yield Hit(
                                index, "the user gives an instruction that it has given before", instruction
                            )
                        break
            given.append((index, said, context))


_LEAST_WORDS = 4
_MORE = re.compile(
    r"^\W*(?:please )?(?:continue|go on|keep|proceed)\b|\bnext\b|\b(?:once more|one more|again)\b|"
    r"\b(?:write|give|make|add|name|list|suggest|tell|show|find|invent|create)\b(?: me)?(?: \w+)? (?:another|more|further)\b",
    re.IGNORECASE,
)
# Words about an instruction rather than its content.
_PREFACE = frozenset(
    words(
        "you asked me to want wants do this that the a an is are of for my your our i understood understand following so okay ok sure well "
        "instruction instructions received task user says said request requested will be should must please it and here input output now "
        "as with in on given have has"
    )
)


def is_echo(message: Message, asked: Message | None) -> bool:
    """Return whether a reply only repeats the instruction."""
    if asked is None:
        return False
    instruction, context = asked.move.instruction, asked.move.input or ""
    if instruction is None:
        return False
    carried_out = work(message)
    reply, told = words(carried_out), words(instruction)
    if len(reply) < _LEAST_WORDS or len(told) < _LEAST_WORDS:
        return False
    said = set(reply)
    if len(said.difference(told, words(context), _PREFACE)) > 0.15 * len(said):
        return False
    content = set(told) - _PREFACE or set(told)
    if len(content & said) < 0.6 * len(content):
        return False
    # An announcement ("I will list …") is a flake reply, "Here is the list:" is an empty promise.
    return not carried_out.endswith(":") and not (only_announces(carried_out) and reply[:2] != told[:2])


def _same(later: tuple[str, ...], earlier: tuple[str, ...]) -> bool:
    if later == earlier:
        return True
    if not 0 < len(earlier) - len(later) <= 2 or len(later) < _LEAST_WORDS:
        return False
    return set(later) <= set(earlier) and not Counter(later) - Counter(earlier)


def _deserves_another(transcript: Transcript, index: int) -> bool:
    """Return whether the reply to the instruction at `index` justifies repeating it: it is cut off, a question or a refusal."""
    for message in transcript.messages[index + 1 : index + 2]:
        reply = work(message)
        cut = message.finish == "length"
        return cut or reply.rstrip().endswith("?") or refuses(message, None) is not None
    return False


def sycophancy_loop(transcript: Transcript) -> Iterator[Hit]:
    """Find loops of praise or agreement instead of work. Each is reported once, usually at the third message in a row."""
    run: list[str] = []
    for index, message in enumerate(transcript.messages):
        if not flatters(message, asked_before(transcript, index)):
            run = []
            continue
        run.append(message.speaker)
        if (
            len(run) >= _FLATTERING
            and len(set(run)) > 1
            and (len(run) == _FLATTERING or len(set(run[:-1])) == 1)
        ):
            yield Hit(index, f"{len(run)} messages in a row that praise or agree instead of working")


_FLATTERING = 3
_MOSTLY = 0.6
"""Minimum share of a message's sentences that must praise, agree or thank."""
_MOST_WORDS = 80
_PRAISE = frozenset(
    words(
        "brilliant brilliance genius amazing amazed incredible incredibly awesome fantastic wonderful outstanding excellent exceptional "
        "extraordinary marvellous marvelous magnificent superb sublime phenomenal terrific stunning gorgeous breathtaking masterpiece "
        "perfect perfection impeccable exquisite divine heavenly magic magician legend superstar talent talented gifted inspiring "
        "insightful remarkable admire admirable admiration adore adorable impressed impressive awe honoured honored honour thrilled "
        "delighted flatter bravo wow gracious generous modesty praise compliment wise wisdom clever smart beautiful beautifully lovely "
        "charming angel master spectacular splendid fabulous glorious visionary kindness humble agree exactly absolutely indeed true"
    )
)
"""Words of praise and of agreement."""
_CHEER = re.compile(
    r"\b(?:(?:too|so|very|most) (?:kind|right|good|competent|intelligent)|kind words|bow to|blown away|the (?:best|greatest|finest|kindest)|"
    r"great (?:work|job|point|idea|answer|question|minds|team|together)|well (?:said|done|put)|good (?:point|thinking|job|work)|"
    r"love (?:it|you|how|your|this|that|working)|means the world|no(?: ?one|body) \w+ (?:as|like)|"
    r"you(?:'re| are) (?:(?:absolutely|completely|totally|quite|so) )?(?:right|so|such|truly|simply|too|the most|the \w+ one|an?)\b|"
    r"(?:share|feel)\b.{0,30}\b(?:opinion|same|completely)|see eye to eye|think alike)\b",
    re.IGNORECASE,
)
_MAY_CHEER = frozenset(
    words(
        "kind right good great well love bow blown the you're you share feel eye alike no nobody means competent"
    )
)
_IN_CHEERS = pieces(
    "kind|right|good|competent|intelligent|bow to|blown away|best|greatest|finest|great|well |love |means the|one |nobody|"
    "you're|you are|share|feel|eye to|alike"
)
"""Every match of `_CHEER` has one of these."""
_THANKS = frozenset(words("thank thanks welcome pleasure sweet haha"))
_PRAISE_ASKED = re.compile(
    r"\b(?:testimonials?|toast|eulogy|reviews?|speech|dialogue|scene|(?:write|give|pay|make)\b[^.]{0,40}\b(?:praise|compliments?)|prais(?:e|es) (?:the|her|him|them|my))\b",
    re.IGNORECASE,
)
_DIGIT = re.compile(r"\d")


def flatters(message: Message, asked: Message | None) -> bool:
    """Return whether a message is mostly praise or agreement, without other content."""
    said = work(message)
    if len(words(said)) > _MOST_WORDS or "`" in said or not _cheers(prose(said)) or _DIGIT.search(said):
        return False
    if message.speaker == ASSISTANT and asked is not None and _PRAISE_ASKED.search(work(asked)):
        return False
    found = sentences(prose(said))
    return sum(_cheers(s) or not _THANKS.isdisjoint(words(s)) for s in found) >= _MOSTLY * len(found)


def _cheers(text: str) -> bool:
    said = words(text)
    return not _PRAISE.isdisjoint(said) or (
        not _MAY_CHEER.isdisjoint(said) and has_any(text, _IN_CHEERS) and _CHEER.search(text) is not None
    )
