"""Language drift: a message in another language than the conversation.

The one decision to know: no model and no table of n-grams. A script is recognized by its characters, and a language in Latin
letters by its most common words. That is enough for a few sentences; shorter texts are ignored.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import itemgetter

from camel.core.role_playing import USER
from camel.core.transcript import Transcript
from camel.detectors.finding import Hit
from camel.detectors.prose import prose, words, work

_COMMON = {
    "English": "write explain describe give list make tell name show suggest create plan design teach a i no the of and to in is that for it with as was on are be this by you not or have from at an your will can which their if has but they we all when what there one its were each how do into than so because who more then our about would these must should his her she he had been out up them some",
    "Spanish": "el la los las de que y en un una por con para es se del al lo como más pero sus le ya o este sí porque esta entre cuando muy sin sobre también me hasta hay donde quien desde todo nos durante todos uno les ni contra otros ese eso ante ellos e esto mí antes algunos qué unos yo otro otras otra él tanto esa estos mucho su no son está fue ser tiene puede",
    "French": "le la les de des et en un une du que qui dans pour pas sur au avec ce il est plus par ne se sont elle nous vous mais ou où on comme cette ces aux sa son ses leur leurs être avoir fait tout bien aussi très sans peut même après avant il y puis ensuite moi toi je tu quand alors rien faut cela",
    "German": "der die das und ist nicht ein eine einen einem einer zu den dem des mit sich auf für im von als auch es an werden aus er hat dass sie nach wird bei noch wie über so zum zur haben nur oder aber vor bis mehr durch man dann soll sind war wenn wir ihr ihre kann muss wo ohne unter am bitte dir euch was schon diese dieser",
    "Italian": "il lo la i gli le di che e è un una in per con non si del della dei delle al alla da sono come più ma anche se nel nella questo questa quando chi dove perché ha hanno essere fare molto ogni tra dopo prima può cui loro suo sua su dal dall l'unica dell",
    "Portuguese": "o a os as de que e em um uma para com não por mais se do da dos das no na nos nas ao à como mas foi ele ela você eles são está seu sua ou quando muito já também só pelo pela até isso entre era depois sem mesmo aos seus quem esse essa isto lhe quer tem ter possa possam podem ser fazer",
    "Dutch": "de het een en van is dat in te op voor met zijn niet aan er om ook als maar dan bij nog uit door over ze hij je kunt naar heeft worden wordt deze die dit geen of wel want mijn zo meer zou hebben moet kan veel wat onder tegen iemand als onze al waar gaan geef",
}
_LANGUAGES_OF: dict[str, list[str]] = {}
for _language, _words in _COMMON.items():
    for _word in set(_words.split()):
        _LANGUAGES_OF.setdefault(_word, []).append(_language)
_NATIVE = {
    "English": r"english|englisch\w*|inglés|inglese|anglais\w*|inglês|engels\w*",
    "Spanish": r"spanish|español\w*|castellano|spanisch\w*|espagnol\w*|mexic\w*",
    "French": r"french|français\w*|francés|französisch\w*|francese",
    "German": r"german|deutsch\w*|alemán|allemand\w*|tedesco",
    "Italian": r"italian\w*|italienisch\w*",
    "Portuguese": r"portugu\w+|brazil\w*",
    "Dutch": r"dutch|nederlands\w*|flemish|niederländisch\w*",
    "Russian": r"russian|ukrainian|bulgarian|serbian|cyrillic|русск\w*",
    "Greek": r"greek",
    "Hebrew": r"hebrew",
    "Arabic": r"arabic|persian|farsi|urdu",
    "Hindi": r"hindi|marathi|sanskrit|devanagari|nepali",
    "Thai": r"thai",
    "Korean": r"korean|hangul",
    "Japanese": r"japanese|kanji|hiragana|katakana|haiku in",
    "Chinese": r"chinese|mandarin|cantonese|kanji",
}
_NAMED = {language: re.compile(rf"\b(?:{names})\b", re.IGNORECASE) for language, names in _NATIVE.items()}
_ANY_LANGUAGE = re.compile(
    r"\b(?:translat\w+|bilingual|multilingual|languages?|traduc\w+|übersetz\w*|traduire|tradu[iz]\w*)\b",
    re.IGNORECASE,
)
_SCRIPTS = (
    ("Russian", re.compile(r"[\u0400-\u04ff]")),
    ("Greek", re.compile(r"[\u0370-\u03ff]")),
    ("Hebrew", re.compile(r"[\u0590-\u05ff]")),
    ("Arabic", re.compile(r"[\u0600-\u06ff]")),
    ("Hindi", re.compile(r"[\u0900-\u097f]")),
    ("Thai", re.compile(r"[\u0e00-\u0e7f]")),
    ("Korean", re.compile(r"[\uac00-\ud7af]")),
    ("Japanese", re.compile(r"[\u3040-\u30ff]")),
    ("Chinese", re.compile(r"[\u4e00-\u9fff]")),
)
_ROMANCE = ("Spanish", "Portuguese", "Italian")
_RELATIVES: dict[str, tuple[str, ...]] = dict.fromkeys(_ROMANCE, _ROMANCE)
_LEAST_LETTERS = 8
_LEAST_WORDS = 7
_FEW_WORDS = 4
_MOST_WORDS = 150
_LEAST_COMMON = 0.2
"""Minimum share of common words. Below it, the language of a text is unknown."""


def language_drift(transcript: Transcript) -> Iterator[Hit]:
    """Find messages that are mostly in another language than the conversation."""
    messages = transcript.messages
    asked = f"{transcript.task.original} {transcript.task.specified}"
    expected = _expected(transcript, asked)
    for index, message in enumerate(messages):
        spoken = language_of(work(message))
        if message.speaker == USER and spoken in (expected, None):
            asked = f"{asked} {message.content}"
        if spoken is None or expected is None or spoken == expected or _ANY_LANGUAGE.search(asked):
            continue
        # Similar languages are easily confused in a short text.
        if not any(_NAMED[language].search(asked) for language in _RELATIVES.get(spoken, (spoken,))):
            yield Hit(index, f"the message is in {spoken}, the conversation in {expected}", work(message))


def _expected(transcript: Transcript, task: str) -> str | None:
    """Return the language of the task. If the task is short, the user's messages are used too.

    Assistant messages are not used, because they would be compared with themselves. A few words are enough, because only
    a longer text that is clearly in another language is reported.
    """
    if known := language_of(task, _FEW_WORDS):
        return known
    for message in transcript.messages:
        if message.speaker == USER:
            task = f"{task} {work(message)}"
            if known := language_of(task, _FEW_WORDS):
                return known
    return None


_SAMPLE = 600
"""Number of characters of a message from which the language of a conversation is detected."""


def beginning_of(said: Sequence[str]) -> str:
    """Return the text in which a conversation's language is detected, from its first two messages."""
    return " ".join(text[:_SAMPLE] for text in said[:2])


@lru_cache(maxsize=256)
def language_of(text: str, least_words: int = _LEAST_WORDS) -> str | None:
    """Return the language of a text, or None if it is too short or in an unknown language."""
    said = prose(text)
    if not said.isascii() and (script := _script(said)):
        return script
    found = words(said)[:_MOST_WORDS]
    if len(found) < least_words:
        return None
    counts = dict.fromkeys(_COMMON, 0)
    for word, times in Counter(found).items():
        if word in _LANGUAGES_OF:
            for language in _LANGUAGES_OF[word]:
                counts[language] += times
    (language, best), (_, second) = sorted(counts.items(), key=itemgetter(1), reverse=True)[:2]
    if best < max(least_words // 2, _LEAST_COMMON * len(found)) or best < 1.3 * second:
        return None
    return language


def _script(said: str) -> str | None:
    letters = sum(map(str.isalpha, said))
    for language, pattern in _SCRIPTS:
        count = len(pattern.findall(said))
        if language == "Japanese" and count:
            count += len(_SCRIPTS[-1][1].findall(said))
        if count >= _LEAST_LETTERS and 2 * count > letters:
            return language
    return None
