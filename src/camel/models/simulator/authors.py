"""Authors write the replies. An author is a plain function from the facts of a conversation to a text.

The one decision to know: sentences come from a fixed pool that is divided by turn, so no sentence returns
within 128 turns of a conversation. A society that talks at random would repeat an instruction in one
conversation out of twenty, and the loop detectors would be right to fire.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import NamedTuple

import msgspec

from camel.models.simulator.settings import fraction, mix

TASK_DONE = "<CAMEL_TASK_DONE>"

_TURNS = 128
_PER_TURN = 64
_WORDS_PER_SENTENCE = 14


def _split(text: str, separator: str = " ") -> list[str]:
    return text.replace("\n", "" if separator == "|" else " ").split(separator)


_VERBS = _split("""design compare measure rewrite sketch document simplify calibrate inspect combine schedule verify
translate summarise index filter reorder simulate estimate annotate trace validate balance outline compress
deploy audit migrate visualise partition tokenise benchmark refine classify assemble monitor archive reconcile
harden prototype extract normalise instrument interpolate rehearse negotiate cultivate decorate""")
_NOUNS = _split("""ledger parser orchard pipeline bridge census catalogue schedule forecast mosaic harvest archive turbine
dashboard recipe manuscript portfolio greenhouse choir workshop reservoir telescope invoice glossary corridor
kernel lantern survey inventory festival syllabus compass tariff gearbox workflow almanac atlas sensor vineyard
playlist treaty beacon canvas diagram engine furnace garden harbour journal kiosk library market network
observatory pavilion quarry railway studio tapestry union village warehouse zone queue buffer matrix""")
_ADJECTIVES = _split("""amber brittle compact dusty elastic faint gradual hollow idle jagged keen lively modest narrow
opaque patient quiet robust sparse tidal uneven vivid weekly young abstract bilingual coastal dense early
fragile granular humid inland joint kinetic linear mutual nested orderly porous quarterly rural seasonal
thermal urban vertical wooden yearly""")
_ENDS = _split(
    """before the auditors return|while demand stays low|without touching the older records|under a strict budget|
across both hemispheres|in plain language|with two independent checks|for readers who arrive late|at a tenth of the cost|
once the pressure settles|using only local materials|in under nine minutes|as the committee requested|
until every margin agrees|despite missing figures|in three reversible steps|so newcomers can follow|
after each night shift|wherever storage is scarce|beyond the pilot region""",
    "|",
)
_SHAPES = (
    "{verb} the {adjective} {noun} beside one {other} {second} {end}.",
    "{verb} how a {adjective} {noun} feeds our {second} and {third} {end}.",
    "{verb} every {noun} against that {other} {second}, then keep the {third} {end}.",
    "{verb} {adjective} samples from your {noun} into one {third} of {second} notes {end}.",
    "{verb} both the {other} {third} and its {noun}, favouring the {second} {end}.",
)


class _ContentPart(msgspec.Struct):
    text: str = ""


_decode_content: Callable[[msgspec.Raw], str | list[_ContentPart] | None] = msgspec.json.Decoder(
    str | list[_ContentPart] | None
).decode


class ChatMessage(msgspec.Struct, gc=False):
    """One message of a request, its content left undecoded until an author reads it."""

    role: str
    content: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def text(self) -> str:
        """The content as text: a string as it is, or the text parts of a list."""
        content = _decode_content(self.content)
        if isinstance(content, list):
            return "".join(part.text for part in content)
        return content or ""


class Facts(NamedTuple):
    """All that an author may look at; a reply is a function of nothing else."""

    system: str
    messages: list[ChatMessage]
    turns: int
    """How many messages this speaker has already written."""
    conversation: int
    """64-bit draw of the system message and the server's seed: the same throughout a conversation."""
    draw: int
    """64-bit draw of all messages, both seeds and the choice's index: new for each reply."""
    words: float
    length: float
    """Messages this conversation is to have, the closing one included; infinite when it never closes."""
    model: str = ""
    """The name that was asked for: an endpoint may serve several, and an author tell them apart."""


Author = Callable[[Facts], str]


def society(facts: Facts) -> str:
    """Play the seat that the system message describes: AI user, AI assistant, or a critic, a judge, a translator."""
    if "You will always instruct me" in facts.system:
        return _instruct(facts)
    block = facts.conversation + facts.turns
    if "Never instruct me" in facts.system:
        return f"Solution: {_paragraph(facts, block)}\n\nNext request."
    if facts.system.startswith("You are a critic."):
        return _judged(facts)
    asked = facts.messages[-1].text if facts.messages else ""
    if asked.startswith("You are an impartial judge."):
        return _compared(facts)
    if found := _TRANSLATE.match(asked):
        return _translated(asked.partition("Message:\n")[2], found[1])
    if wanted := _LIST.search(asked):
        return "\n".join(f"{n + 1}. {_item(mix(facts.draw, n))}" for n in range(min(int(wanted[1]), 1000)))
    return _paragraph(facts, mix(facts.draw, 2))


_OPTION = re.compile(r"^Option \d+:$", re.MULTILINE)


def _judged(facts: Facts) -> str:
    """A critic's answer about the options it is shown, in the form it is asked for."""
    count = len(_OPTION.findall(facts.messages[1].text))
    asked = facts.messages[-1].text
    reasons = _sentences(facts.draw, facts.draw >> 7, count)
    if "a score from 0" in asked:
        return "\n".join(f"{n + 1}: {mix(facts.draw, n) % 11}. {reasons[n]}" for n in range(count))
    number = facts.draw % count + 1
    if "REVISE" in asked:
        return f"{number}. {'ACCEPT' if facts.draw >> 62 & 1 else 'REVISE'}: {reasons[0]}"
    return f"{number}. {reasons[0]}"


def _compared(facts: Facts) -> str:
    """A judge's answer about two solutions: mostly the first, now and then neither."""
    one, two = mix(facts.draw, 1) % 8 + 2, mix(facts.draw, 2) % 8 + 1
    better = 0 if one == two else 1 if one > two else 2
    reason = _sentences(facts.draw, facts.draw >> 7, 1)[0]
    return f'{{"reason": "{reason}", "scores": [{one}, {two}], "better": {better}}}'


_LIST = re.compile(r"\blist (\d{1,4})\b", re.IGNORECASE)
_TRANSLATE = re.compile(r"Translate the message at the end into (\w+)\.")
_MARKERS = re.compile(r"(Instruction:|Input:|Solution:|Next request\.|<CAMEL_TASK_DONE>|None)")
_LETTERS = {
    "Arabic": 0x628,
    "Chinese": 0x4E00,
    "Korean": 0xAC00,
    "Japanese": 0x3042,
    "Hindi": 0x905,
    "Russian": 0x430,
}


def _translated(text: str, language: str) -> str:
    """The words in other letters, the markers as they were: as much of a translation as a client can check."""
    first = _LETTERS.get(language)
    letters = {ord("a") + i: first + i if first else ord("a") + (i + 5) % 26 for i in range(26)}
    parts = _MARKERS.split(text)
    return "".join(part if place % 2 else part.lower().translate(letters) for place, part in enumerate(parts))


def _item(draw: int) -> str:
    """One entry of a list, short enough for a role and odd enough to be unlike the next."""
    nouns = f"{_NOUNS[(draw >> 8) % 66]} {_NOUNS[(draw >> 16) % 66]}"
    return f"{_ADJECTIVES[draw % 48]} {nouns} {_VERBS[(draw >> 24) % 48]}".capitalize()


AUTHORS: dict[str, Author] = {"society": society}
"""Authors by name; later scenarios add theirs (lists, judges)."""


def find_author(name: str) -> Author:
    """The author called `name`, or the function at `package.module:function`."""
    if name in AUTHORS:
        return AUTHORS[name]
    module, _, function = name.partition(":")
    if not function:
        raise ValueError(f"no author {name!r}; known: {', '.join(AUTHORS)}, or package.module:function")
    return getattr(import_module(module), function)


def _instruct(facts: Facts) -> str:
    # The two seats alternate and the user opens, so its next message has this number in the transcript.
    if 2 * facts.turns + 1 >= facts.length:
        return TASK_DONE
    instruction, context = _sentences(facts.draw, facts.conversation + facts.turns, 2)
    return f"Instruction: {instruction}\nInput: {context if facts.draw >> 63 else 'None'}"


def _paragraph(facts: Facts, block: int) -> str:
    words = facts.words * (0.5 + fraction(mix(facts.draw, 1)))
    return " ".join(_sentences(facts.draw, block, max(1, round(words / _WORDS_PER_SENTENCE))))


def _sentences(draw: int, block: int, count: int) -> list[str]:
    # An odd stride visits all of a block of 64 before it repeats.
    sentences = _block(block % _TURNS)
    start, stride = draw & 63, draw >> 5 & 62 | 1
    return [sentences[(start + stride * step) % _PER_TURN] for step in range(count)]


@cache
def _block(number: int) -> tuple[str, ...]:
    return tuple(_sentence(number * _PER_TURN + place) for place in range(_PER_TURN))


def _sentence(number: int) -> str:
    draw = mix(number)

    def pick(words: Sequence[str]) -> str:
        nonlocal draw
        draw, place = divmod(draw, len(words))
        return words[place]

    return pick(_SHAPES).format(
        verb=pick(_VERBS).capitalize(),
        adjective=pick(_ADJECTIVES),
        noun=pick(_NOUNS),
        other=pick(_ADJECTIVES),
        second=pick(_NOUNS),
        third=pick(_NOUNS),
        end=pick(_ENDS),
    )
