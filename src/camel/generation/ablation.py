"""Ablation: the same scenario with one sentence of its inception prompts taken out at a time, to see what each prevents.

Each variant is an ordinary run in a folder of its own, from a scenario of its own: planned, journaled, resumed and read like
any other. The one decision to know: all variants talk about the same items. The run with the whole prompts asks for the
lists, the others copy them, and under a seed each item's calls have the same one, so that conversations are compared in pairs.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from camel.core.errors import InputError
from camel.scenarios import RolePlay, Scenario
from camel.scenarios.reading import FILE
from camel.storage.files import replacing

WHOLE = "whole"
"""The variant with nothing taken out."""
PROMPTS = ("user", "assistant")
CONVERSATIONS = 20
"""Of each variant, unless somebody says otherwise: enough to see what happens often, for what a look may cost."""
SEED = 1

# A full stop, and what may stand behind it, before a sentence that begins; not the one of "1." at the start of a line. Or the end of
# a line that has none, before one that begins with a capital or as an item of a list.
_END = re.compile(
    r"(?<=[.!?])[\"'”’)]*(?=\s+[^\sa-z])|\n\s*\n|\n(?=\d+\. )|(?P<line>(?<=[\w\"'”’)>])\n(?=[ \t]*(?:[-*•] |[A-Z])))"
)
_NUMBER = re.compile(r"(?:^|\n)\s*\d+\.$")


class Variant(NamedTuple):
    """A scenario with a sentence less."""

    name: str
    """`user-03`: the third sentence of the user's prompt."""
    prompt: str = ""
    sentence: str = ""


def sentences(text: str) -> list[tuple[int, int]]:
    """Where the sentences of a prompt begin and end. A line that ends with a colon goes with what it announces."""
    cuts = [0]
    for end in _END.finditer(text):
        before = text[cuts[-1] : end.end()].rstrip()
        if _NUMBER.search(before):
            continue
        # A blank line ends what stands before it, unless that announces what comes; a numbered one begins anew.
        if end[0].startswith("\n") and before.endswith(":") and not text[end.end() :].lstrip()[:1].isdigit():
            continue
        if end["line"] and ":" in before.rpartition("\n")[2]:  # "Instruction: …", then "Input: …": a form
            continue
        cuts.append(end.end())
    found: list[tuple[int, int]] = []
    for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True):
        if piece := text[start:end].strip():
            begin = text.index(piece, start)
            found.append((begin, begin + len(piece)))
    return found


def without(text: str, start: int, end: int) -> str:
    """A prompt less one sentence, with no hole where it stood."""
    left, right = text[:start], text[end:]
    joined = left.rstrip(" ") + right if right.startswith("\n") else left + right.lstrip(" ")
    return re.sub(r"\n{3,}", "\n\n", joined).strip()


def variants(scenario: Scenario) -> list[Variant]:
    """The scenario as it is, and once for each sentence that can be taken out."""
    if not isinstance(scenario.end, RolePlay):
        raise InputError(f"{scenario.name} has no inception prompts: only role plays can be ablated")
    made = [Variant(WHOLE)]
    for prompt in PROMPTS:
        text: str = getattr(scenario.end.inception, prompt)
        spans = sentences(text)
        if len(spans) > 1:
            made += [
                Variant(f"{prompt}-{number:02d}", prompt, text[start:end])
                for number, (start, end) in enumerate(spans, 1)
            ]
    return made


def chosen(known: Sequence[Variant], names: Sequence[str]) -> list[Variant]:
    """The variants of these names and the whole; all where none is named."""
    by_name = {variant.name: variant for variant in known}
    for name in names:
        if name not in by_name:
            raise InputError(
                f"there is no sentence {name!r}: --list shows them, from {known[1].name} to {known[-1].name}"
            )
    return [variant for variant in known if not names or variant.name in {*names, WHOLE}]


def smaller(scenario: Scenario, conversations: int) -> dict[str, int]:
    """Counts of the levels that make at most so many conversations, spread over all levels."""
    counts = {level.name: 1 for level in scenario.levels}
    grown = True
    while grown:
        grown = False
        for level in scenario.levels:
            total = scenario.resized(counts).count // counts[level.name] * (counts[level.name] + 1)
            if counts[level.name] < level.count and total <= conversations:
                counts[level.name] += 1
                grown = True
    return counts


def write_variant(source: Path, folder: Path, scenario: Scenario, variant: Variant) -> None:
    """Copy a scenario's folder, with a sentence less in one of its prompts; what is the same already stays as it is."""
    assert isinstance(scenario.end, RolePlay)
    folder.mkdir(parents=True, exist_ok=True)
    declaration = (source / FILE).read_text("utf-8-sig")
    for path in source.iterdir():
        if path.is_file() and path.name != FILE:
            _put(folder / path.name, path.read_bytes())
    if variant.prompt:
        text: str = getattr(scenario.end.inception, variant.prompt)
        start, end = sentences(text)[int(variant.name.rpartition("-")[2]) - 1]
        declaration, name = _naming(declaration, f"{variant.prompt}_prompt", f"{variant.prompt}-ablated.txt")
        _put(folder / name, f"{without(text, start, end)}\n".encode())
    _put(folder / FILE, declaration.encode())


def _put(path: Path, data: bytes) -> None:
    """Write a file where it is not the same already: others may be reading it."""
    if not path.is_file() or path.read_bytes() != data:
        with replacing(path) as file:
            file.write(data)


def _naming(declaration: str, key: str, file: str) -> tuple[str, str]:
    """A declaration that names a file for a prompt: the one it names already, or `file`."""
    play: dict[str, Any] = tomllib.loads(declaration).get("role_play", {})
    if named := play.get(key):
        return declaration, str(named)
    added = re.sub(
        r"^\[role_play\][^\n]*$",
        lambda found: f'{found[0]}\n{key} = "{file}"',
        declaration,
        count=1,
        flags=re.MULTILINE,
    )
    try:
        known = tomllib.loads(added)["role_play"].get(key)
    except (tomllib.TOMLDecodeError, KeyError):
        known = None
    if known != file:
        raise InputError(
            f"the scenario's [role_play] must be a table of its own, so that {key} can be added to it"
        )
    return added, file


def described(variants: Sequence[Variant]) -> Iterator[str]:
    """The sentences, a line each, to choose from."""
    for variant in variants[1:]:
        yield f"{variant.name}  {' '.join(variant.sentence.split())}"
