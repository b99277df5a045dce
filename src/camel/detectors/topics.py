"""Questions of the assistant, deviation from the task, and tasks that are too long.

The one decision to know: both rules need no model, so deviation is a matter of words. Single messages about a task often share
no word with it, so two rounds together are compared with everything before. A conversation may go anywhere step by step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from camel.core.role_playing import ASSISTANT, USER
from camel.core.transcript import Transcript
from camel.detectors.finding import WHOLE, Hit
from camel.detectors.prose import asked_before, is_natural, is_shown, prose, said_by, sentences, words, work

# ---- questions


def assistant_question(transcript: Transcript) -> Iterator[Hit]:
    """Find replies in which the assistant asks the user something."""
    for index, message in said_by(ASSISTANT, transcript) if not is_natural(transcript) else ():
        asked = asked_before(transcript, index)
        wanted = is_shown(asked) or (asked is not None and _WANTED.search(work(asked)))
        lines = [line for line in prose(work(message)).splitlines() if line.strip()]
        # In a text that the user asked for, only the assistant's own last words are a question to the user.
        said = [
            one
            for line in (lines[-1:] if wanted else lines)
            if not _VOICE.match(line)
            for one in sentences(line)
        ]
        for place, sentence in enumerate(said[-1:] if wanted else said):
            if not sentence.rstrip(" *_)").endswith(("?", "？")):
                if _REQUEST.search(sentence):
                    yield Hit(index, "the assistant asks the user for information", sentence)
                    break
                continue
            # A question that the assistant then answers is a way of explaining.
            rest = [] if wanted else said[place + 1 :]
            answered = sum(len(words(one)) for one in rest) > _ANSWER and not _TO_USER.search(sentence)
            if not (answered or _RHETORICAL.match(sentence) or (rest and _YES_OR_NO.match(rest[0]))):
                yield Hit(index, "the assistant asks the user a question", sentence)
                break


_ANSWER = 8
"""Maximum number of words after a question that are no answer to it."""
_WANTED = re.compile(
    r"\b(?:questions?|quiz(?:zes)?|survey|questionnaire|interviews?|faqs?|ask|riddles?|poll|checklist|examples? of|prompts?)\b",
    re.IGNORECASE,
)
_RHETORICAL = re.compile(
    r"[-*•\d.)(\s]*(?:why not|who knows|what if|how about that|right|isn't it)\b", re.IGNORECASE
)
_VOICE = re.compile(r"\s*(?:[-–—*•]|\(?\d+[.):]|[A-Z][\w.]*(?: [A-Z][\w.]*)?:|\||>)")
"""Beginning of a line that is an item of a list, or said by a speaker of a dialog."""
_YES_OR_NO = re.compile(r"(?:yes|no|not?\b|because|since|by)\b", re.IGNORECASE)
_REQUEST = re.compile(
    r"\b(?:tell me (?:whether|if|how|which|what|who|when|where|your|about)\b(?! you need| you have any)|let me know (?:whether|how|which|what|who|when|where|your)\b|"
    r"i(?:['’]d| would)?(?: still| also| first| only)* (?:need|like|love|have) to (?:know|hear|ask)\b|"
    r"(?:is|remains)(?: still)? (?:unclear|not (?:yet )?clear|open) (?:to|for) me|tell me,)",
    re.IGNORECASE,
)
_TO_USER = re.compile(
    r"\b(?:(?:do|did|are|were|have|would|will|could|can|should) you|(?:would|shall|should|may|can|could) i\b|shall we|"
    r"(?:what|which|where|when|how(?: many| much| often| long)?)(?: \w+){0,3} (?:do|did|are|would|will|should|have) you|"
    r"(?:what|which|how)(?: \w+){0,2} (?:is|are) your|let me know|is (?:that|this|it) (?:ok(?:ay)?|fine|correct|right|what you))\b",
    re.IGNORECASE,
)

# ---- deviation


def topic_deviation(transcript: Transcript) -> Iterator[Hit]:
    """Find instructions with which two rounds about something else than the task and the rounds before begin."""
    task, messages = transcript.task, transcript.messages
    topic = set(_stems([task.original, task.specified, *transcript.inputs.values()]))
    said = [set(_stems([work(one), one.move.input or ""])) for one in messages]
    left = False
    for index, message in enumerate(messages):
        block = set[str]().union(*said[index : index + _BLOCK])
        whole = message.speaker == USER and len(messages) >= index + _BLOCK and not message.move.done
        if whole and len(topic) >= _LEAST and len(block) >= _LEAST:
            away = len(block & topic) <= _SHARED * min(len(block), len(topic) / 2)
            if away and not left:
                yield Hit(
                    index,
                    "this message and the three after it share few words with the task and what came before",
                    work(message),
                )
            left = away
        if not left:
            topic |= said[index]


_BLOCK = 4
"""Number of messages that are compared with the task and the messages before."""
_LEAST = 25
"""Minimum number of words with a meaning on each side of a comparison."""
_SHARED = 0.15
"""Share of the block's words, and of half of the words before, that texts about different things have in common."""
# ---- length of the task


def long_task(transcript: Transcript) -> Iterator[Hit]:
    """Find specified tasks with more words than the specifier was asked for."""
    task = transcript.task
    count = len(task.specified.split())
    if task.word_limit and count > task.word_limit:
        yield Hit(WHOLE, f"the specified task has {count:,} words, and the limit is {task.word_limit:,}")


_COMMON = frozenset(
    words(
        """a about above across after again all also although always am among an and another any anyone anything are around as ask
    at away back based be became because become been before being below best better between both but by call came can cannot
    case change come complete consider contain could create day days describe design detail detailed details develop did
    different do does doing done down due during each easy effective either else end ensure enough especially etc even every
    everyone everything example examples explain far few final finally find first five follow following for four from full
    further general get give given go goes going good great had has have having he help helpful her here him his how however i
    idea ideas identify if implement important in include includes including information input instruct instruction into is it
    its itself just keep key kind know large last later least less let like likely line list little long look made main make
    makes making many may maybe me mean might mine more most much must my name need needed needs never new next no none nor
    not nothing now number of off offer often ok okay on once one only or order other others our out over overall own part
    parts people perform person please point points possible prepare provide provided provides put quite rather ready really
    regular related request require required result results right said same say second see seem set several shall she should
    show simple since small so solution some someone something specific start state step steps still such suggest sure take
    task tell ten than thank thanks that the their them then there these they thing things think third this those three
    through thus time times to today together too top toward try two type types under until up upon us use used useful user
    using various very via want was way ways we week well were what when where whether which while who whole whom whose why
    will with within without word words work would write year years yes yet you your"""
    )
)


def _stems(texts: Iterable[str]) -> Iterator[str]:
    """Yield the words with a meaning in texts, without their endings."""
    for text in texts:
        for word in words(text[:20_000]):
            if len(word) > 2 and word not in _COMMON and not word.isdecimal():
                yield _stem(word)


_ENDINGS = re.findall(r"\S+", "'s ations ation ingly ings ing ments ment ers er ies ied ed es ly s y e")


@lru_cache(maxsize=50_000)
def _stem(word: str) -> str:
    """Remove common endings. Different words may have the same stem, which only makes the rule more careful."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)[:8]
    return word[:8]
