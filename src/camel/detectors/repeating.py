"""Conversations that do not move: repeated instructions, message loops, sycophancy loops.

The one decision to know: the loop detector asks the stop rule of the same name, so that a conversation that was
stopped for a loop and one in which a loop is found are the same thing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from camel.core.message import Message
from camel.core.stopping import MessageLoop, NextCall
from camel.core.transcript import Transcript
from camel.detectors.finding import Hit
from camel.detectors.reading import ASSISTANT, USER, asked_before, prose, sentences, words, work
from camel.detectors.replies import refuses

_RULE = MessageLoop()
_ANY_CALL = NextCall("")


def message_loop(transcript: Transcript) -> Iterator[Hit]:
    """The conversation goes round; found once, where the round is complete."""
    messages = transcript.messages
    looping = False
    for index in range(len(messages)):
        stop = _RULE.check(messages[: index + 1], _ANY_CALL)
        if stop and not looping:
            # The detail names seats, which come from the conversation's set-up, never from a model.
            yield Hit(index, f"a loop: {stop.detail}")
        looping = stop is not None


def repeated_instruction(transcript: Transcript) -> Iterator[Hit]:
    """An instruction is said again, by the assistant instead of a solution, or by the user."""
    given: list[tuple[int, tuple[str, ...], tuple[str, ...]]] = []
    for index, message in enumerate(transcript.messages):
        if message.speaker == ASSISTANT:
            if is_echo(message, asked_before(transcript, index)):
                yield Hit(
                    index, "the assistant repeats the instruction instead of carrying it out", work(message)
                )
        elif message.speaker == USER and (instruction := message.move.instruction) is not None:
            said, context = words(instruction), words(message.move.input or "")
            if len(said) >= _LEAST_WORDS and not _MORE.search(instruction):
                for before, earlier, its_context in reversed(given):
                    if _same(said, earlier) and _same(context, its_context):
                        if not _deserves_another(transcript, before):
                            yield Hit(
                                index, "the user gives an instruction that it has given before", instruction
                            )
                        break
            given.append((index, said, context))


_LEAST_WORDS = 4
_MORE = re.compile(r"\b(?:continue|next|another|again|more|go on|further|keep)\b", re.IGNORECASE)
# Words that say that an instruction was given, not what it says.
_PREFACE = frozenset(
    [
        "you",
        "asked",
        "me",
        "to",
        "want",
        "wants",
        "do",
        "this",
        "that",
        "the",
        "a",
        "an",
        "is",
        "are",
        "of",
        "for",
        "my",
        "your",
        "our",
        "i",
        "understood",
        "understand",
        "following",
        "so",
        "okay",
        "ok",
        "sure",
        "well",
        "instruction",
        "instructions",
        "received",
        "task",
        "user",
        "says",
        "said",
        "request",
        "requested",
        "will",
        "be",
        "should",
        "must",
        "please",
        "it",
        "and",
        "here",
        "input",
        "output",
        "now",
        "as",
        "with",
        "in",
        "on",
        "following",
        "given",
        "have",
        "has",
    ]
)


def is_echo(message: Message, asked: Message | None) -> bool:
    """Whether a reply is the words of the instruction and nothing else."""
    if asked is None:
        return False
    instruction, context = asked.move.instruction, asked.move.input or ""
    if instruction is None:
        return False
    reply = words(work(message))
    told = words(instruction)
    if len(reply) < _LEAST_WORDS or len(told) < _LEAST_WORDS:
        return False
    known = {*told, *words(context)}
    said = set(reply)
    new = said - known - _PREFACE
    if len(new) > 0.15 * len(said):
        return False
    content = set(told) - _PREFACE or set(told)
    return len(content & said) >= 0.6 * len(content)


def _same(later: tuple[str, ...], earlier: tuple[str, ...]) -> bool:
    if later == earlier:
        return True
    if not 0 <= len(earlier) - len(later) <= 2 or len(later) < _LEAST_WORDS:
        return False
    return not Counter(later) - Counter(earlier)


def _deserves_another(transcript: Transcript, index: int) -> bool:
    """Whether the reply to the instruction at `index` is a reason to give it again."""
    for message in transcript.messages[index + 1 : index + 2]:
        reply = work(message)
        cut = message.finish == "length"
        return cut or reply.rstrip().endswith("?") or refuses(message, None) is not None
    return False


def sycophancy_loop(transcript: Transcript) -> Iterator[Hit]:
    """Both speakers praise or agree with each other instead of working; found once, at the third message in a row."""
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
"""Share of a message's sentences that must praise, agree or thank."""
_MOST_WORDS = 80
_PRAISE = re.compile(
    r"\b(?:brilliant|genius|amazing|incredibl[ey]|awesome|fantastic|wonderful|outstanding|excellent|exceptional|extraordinary|"
    r"marvell?ous|magnificent|superb|sublime|phenomenal|terrific|stunning|gorgeous|breathtaking|masterpiece|perfect(?:ion)?|"
    r"impeccable|exquisite|divine|heavenly|magic(?:ian)?|legend|superstar|talent(?:ed)?|gifted|inspiring|insightful|remarkable|"
    r"admir(?:e|able|ation)|ador(?:e|able)|impress(?:ed|ive)|in awe|bow to|blown away|honou?red?|thrilled|delighted|flatter|"
    r"bravo|wow|too kind|so kind|so right|gracious|generous|modesty|praise|compliment|wise|wisdom|clever|smart|beautiful(?:ly)?|"
    r"lovely|kind words|the best \w+|the greatest|the finest|the kindest|great (?:work|job|point|idea|answer|question|minds|team|together)|"
    r"well (?:said|done)|very good point|good point|good thinking|love (?:it|you|how|your|this|working)|means the world|great team|"
    r"(?:extremely|very) (?:competent|intelligent)|angel|masters?)\b",
    re.IGNORECASE,
)
_AGREES = re.compile(
    r"\bagree\b|\bcouldn(?:'|’)t agree more\b|\byou(?:'|’)?(?:re| are) (?:so |absolutely |completely |totally |quite )?right\b|"
    r"\b(?:exactly|absolutely|indeed|true|very true)\b|\b(?:share|feel)\b.{0,30}\b(?:opinion|same|completely)\b|\bsee eye to eye\b|\bthink alike\b",
    re.IGNORECASE,
)
_THANKS = re.compile(r"\b(?:thank(?:s| you)?|welcome|my pleasure|how sweet|haha)\b", re.IGNORECASE)
_PRAISE_ASKED = re.compile(
    r"\b(?:testimonials?|toast|prais\w*|compliments?|flatter\w*|reviews?|eulogy|slogan|speech|dialogue|scene)\b",
    re.IGNORECASE,
)


def flatters(message: Message, asked: Message | None) -> bool:
    """Whether a message is mostly praise or agreement, and nothing else of note."""
    said = work(message)
    if "`" in said or any(map(str.isdigit, said)) or len(words(said)) > _MOST_WORDS:
        return False
    if message.speaker == ASSISTANT and asked is not None and _PRAISE_ASKED.search(work(asked)):
        return False
    found = sentences(prose(said))
    if not found or not any(_PRAISE.search(sentence) or _AGREES.search(sentence) for sentence in found):
        return False
    empty = sum(1 for s in found if _PRAISE.search(s) or _AGREES.search(s) or _THANKS.search(s))
    return empty >= _MOSTLY * len(found)
