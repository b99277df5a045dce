"""Ablation: removes one sentence of a scenario's inception prompts at a time, to see what each sentence prevents.

Each variant is an ordinary run with its own folder and scenario. The one decision to know: all variants use the same items.
The run with the complete prompts asks for the lists, and the others copy them. With a seed, the calls of an item have the
same seed in all variants, so that conversations are compared in pairs.
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
"""The variant with the complete prompts."""
PROMPTS = ("user", "assistant")
CONVERSATIONS = 20
"""Default number of conversations per variant: enough to see frequent effects at a low cost."""
SEED = 1

# A period with closing quotes before the start of a sentence, but not that of "1." at the start of a line. Or the end of a
# line without a period, before a line that begins with a capital or as a list item.
_END = re.compile(
    r"(?<=[.!?])[\"'”’)]*(?=\s+[^\sa-z])|\n\s*\n|\n(?=\d+\. )|(?P<line>(?<=[\w\"'”’)>])\n(?=[ \t]*(?:[-*•] |[A-Z])))"
)
_NUMBER = re.compile(r"(?:^|\n)\s*\d+\.$")


class Variant(NamedTuple):
    """A scenario without one sentence."""

    name: str
    """The variant's name. `user-03` lacks the third sentence of the user's prompt."""
    prompt: str = ""
    sentence: str = ""


def sentences(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each sentence of a prompt. A line that ends with a colon belongs to the next text."""
    cuts = [0]
    for end in _END.finditer(text):
        before = text[cuts[-1] : end.end()].rstrip()
        if _NUMBER.search(before):
            continue
        # A blank line ends a sentence, unless it ends with a colon; a numbered line starts a new one.
        if end[0].startswith("\n") and before.endswith(":") and not text[end.end() :].lstrip()[:1].isdigit():
            continue
        if end["line"] and ":" in before.rpartition("\n")[2]:  # "Instruction: …", then "Input: …": a template
            continue
        cuts.append(end.end())
    found: list[tuple[int, int]] = []
    for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True):
        if piece := text[start:end].strip():
            begin = text.index(piece, start)
            found.append((begin, begin + len(piece)))
    return found


def without(text: str, start: int, end: int) -> str:
    """Return a prompt without the sentence from `start` to `end`, and without a gap in its place."""
    left, right = text[:start], text[end:]
    joined = left.rstrip(" ") + right if right.startswith("\n") else left + right.lstrip(" ")
    return re.sub(r"\n{3,}", "\n\n", joined).strip()


def variants(scenario: Scenario) -> list[Variant]:
    """Return the complete scenario, and one variant for each sentence that can be removed."""
    if not isinstance(scenario.end, RolePlay):
        raise InputError(f"'{scenario.name}' has no inception prompts: choose a scenario with a role play")
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
    """Return the complete scenario and the variants with these names. If no name is given, return all variants."""
    by_name = {variant.name: variant for variant in known}
    for name in names:
        if name not in by_name:
            raise InputError(
                f"there is no sentence {name!r}: `--list` shows the names, from {known[1].name} to {known[-1].name}"
            )
    return [variant for variant in known if not names or variant.name in {*names, WHOLE}]


def smaller(scenario: Scenario, conversations: int) -> dict[str, int]:
    """Reduce the sizes of the scenario's lists evenly, until they give at most `conversations` conversations. Return the sizes."""
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
    """Copy a scenario's folder without one sentence of its prompts. Files with the same content are not rewritten."""
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
    """Write a file unless it has the same content: other processes may be reading it."""
    if not path.is_file() or path.read_bytes() != data:
        with replacing(path) as file:
            file.write(data)


def _naming(declaration: str, key: str, file: str) -> tuple[str, str]:
    """Return the declaration with a file for the prompt `key`, and the name of that file. An existing file name is kept."""
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
        raise InputError(f"[role_play] must be a table of its own, so that {key} can be added to it")
    return added, file


def described(variants: Sequence[Variant]) -> Iterator[str]:
    """Yield one line for each variant, with its name and the removed sentence."""
    for variant in variants[1:]:
        yield f"{variant.name}  {' '.join(variant.sentence.split())}"
