"""Authors write the simulated replies. An author is a function from the facts of a conversation to a text.

The one decision to know: sentences come from a fixed pool that is divided by turn, so no sentence repeats within 128 turns
of a conversation. Random sentences would repeat an instruction in 5 % of conversations, and the loop detectors would fire.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, reduce
from importlib import import_module
from operator import getitem
from typing import Any, NamedTuple

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
    """One message of a request; its content is decoded when an author reads it."""

    role: str
    content: msgspec.Raw = msgspec.Raw(b"null")
    tool_calls: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def acts(self) -> bool:
        """Whether the message calls tools, in either form."""
        native = bytes(self.tool_calls) != b"null"
        return self.role == "assistant" and (native or b"<tool_call>" in bytes(self.content))

    @property
    def text(self) -> str:
        """Return the content as text: a string, or the text parts of a list."""
        content = _decode_content(self.content)
        if isinstance(content, list):
            return "".join(part.text for part in content)
        return content or ""


class Facts(NamedTuple):
    """The only input of an author; a reply depends on nothing else."""

    system: str
    messages: list[ChatMessage]
    turns: int
    """Number of messages that this speaker has written."""
    conversation: int
    """64-bit hash of the system message and the server's seed: the same throughout a conversation."""
    draw: int
    """64-bit hash of all messages, both seeds and the choice's index: new for each reply."""
    words: float
    length: float
    """Number of messages in this conversation, the closing one included; infinite if it never closes."""
    model: str = ""
    """The requested model name, in case an author distinguishes models."""


Author = Callable[[Facts], str]


def society(facts: Facts) -> str:
    """Answer as the role in the system message: AI user, AI assistant, critic, judge or translator."""
    if "You will always instruct me" in facts.system:
        return _instruct(facts)
    block = facts.conversation + facts.turns
    if "Never instruct me" in facts.system:
        return f"Solution: {_paragraph(facts, block)}\n\nNext request."
    if facts.system.startswith("You are a critic."):
        return _judged(facts)
    if facts.system.startswith("You read a conversation and answer with one JSON"):
        schema = msgspec.json.decode(facts.messages[1].text.rpartition("\n")[2])
        return f"Here it is:\n```json\n{write_json(schema, facts)}\n```"
    asked = facts.messages[-1].text if facts.messages else ""
    if asked.startswith("You are an impartial judge."):
        return _compared(facts)
    if "Answer with YES or NO" in asked:  # whether the goal of a dialogue is reached
        return f"{'NO' if facts.draw % 6 else 'YES'}. {_sentences(facts.draw, facts.draw >> 7, 1)[0]}"
    if asked.startswith("You rate a conversation.") or asked.startswith("Please answer again."):
        return _rated(facts, asked)
    if found := _TRANSLATE.match(asked):
        return _translated(asked.partition("Message:\n")[2], found[1])
    if wanted := _LIST.search(asked):
        return "\n".join(f"{n + 1}. {_item(mix(facts.draw, n))}" for n in range(min(int(wanted[1]), 1000)))
    return _paragraph(facts, mix(facts.draw, 2))


def write_json(schema: Any, facts: Facts) -> str:
    """Return JSON that is valid under the schema."""
    return msgspec.json.encode(_example(schema, schema, facts.draw)).decode()


def _example(schema: dict[str, Any], root: dict[str, Any], draw: int) -> Any:
    def pick(options: list[Any]) -> Any:
        return options[draw % len(options)]

    if "$ref" in schema:
        return _example(reduce(getitem, schema["$ref"].split("/")[1:], root), root, draw)
    if "anyOf" in schema:
        return _example(pick(schema["anyOf"]), root, mix(draw))
    if "enum" in schema:
        return pick(schema["enum"])
    kind = schema.get("type", "string")
    match kind if isinstance(kind, str) else pick(kind):
        case "object":
            fields = schema.get("properties", {}).items()
            return {name: _example(its, root, mix(draw, n)) for n, (name, its) in enumerate(fields)}
        case "array":
            count = schema.get("minItems", draw % 3)
            return [_example(schema.get("items", {}), root, mix(draw, n)) for n in range(count)]
        case "integer" | "number":
            low = schema.get("minimum", 0)
            return low + draw % (schema.get("maximum", low + 9) - low + 1)
        case "boolean":
            return bool(draw >> 7 & 1)
        case "null":
            return None
        case _:
            return _item(draw)


_OPTION = re.compile(r"^Option \d+:$", re.MULTILINE)


def _judged(facts: Facts) -> str:
    """Return a critic's answer about its options, in the requested format."""
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
    """Return a judge's answer about two solutions: mostly the first, sometimes a draw."""
    one, two = mix(facts.draw, 1) % 8 + 2, mix(facts.draw, 2) % 8 + 1
    better = 0 if one == two else 1 if one > two else 2
    reason = _sentences(facts.draw, facts.draw >> 7, 1)[0]
    return f'{{"reason": "{reason}", "scores": [{one}, {two}], "better": {better}}}'


def _rated(facts: Facts, asked: str) -> str:
    """Return a judge's rating of a conversation on the requested scale."""
    reason = _sentences(facts.draw, facts.draw >> 7, 1)[0]
    if (scale := _SCALE.search(asked)) is None:
        return f"{'yes' if facts.draw & 1 else 'no'}. {reason}"
    low, high = map(float, scale.groups())
    return f"{low + facts.draw % max(1, int(high - low) + 1):g}. {reason}"


_SCALE = re.compile(r"a number from (\S+) \(worst\) to (\S+) \(best\)")
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
    """Return the text in other letters, with unchanged markers. A client's checks accept this as a translation."""
    first = _LETTERS.get(language)
    letters = {ord("a") + i: first + i if first else ord("a") + (i + 5) % 26 for i in range(26)}
    parts = _MARKERS.split(text)
    return "".join(part if place % 2 else part.lower().translate(letters) for place, part in enumerate(parts))


def _item(draw: int) -> str:
    """Return one list entry: short enough for a role, and different from the others."""
    nouns = f"{_NOUNS[(draw >> 8) % 66]} {_NOUNS[(draw >> 16) % 66]}"
    return f"{_ADJECTIVES[draw % 48]} {nouns} {_VERBS[(draw >> 24) % 48]}".capitalize()


AUTHORS: dict[str, Author] = {"society": society}
"""Authors by name."""


def find_author(name: str) -> Author:
    """Return the author called `name`, or the function at `package.module:function`."""
    if name in AUTHORS:
        return AUTHORS[name]
    module, _, function = name.partition(":")
    if not function:
        raise ValueError(f"no author {name!r}; known: {', '.join(AUTHORS)}, or package.module:function")
    return getattr(import_module(module), function)


def _instruct(facts: Facts) -> str:
    # The user speaks first and the two alternate, so its next message has this number in the transcript.
    if 2 * facts.turns + 1 >= facts.length:
        return TASK_DONE
    instruction, context = _sentences(facts.draw, facts.conversation + facts.turns, 2)
    return f"Instruction: {instruction}\nInput: {context if facts.draw >> 63 else 'None'}"


def _paragraph(facts: Facts, block: int) -> str:
    words = facts.words * (0.5 + fraction(mix(facts.draw, 1)))
    return " ".join(_sentences(facts.draw, block, max(1, round(words / _WORDS_PER_SENTENCE))))


def _sentences(draw: int, block: int, count: int) -> list[str]:
    # An odd stride visits all 64 sentences of a block before it repeats.
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
