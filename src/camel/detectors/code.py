"""Unfinished code: it is cut off, or its essential part is missing.

The one decision to know: nothing is parsed or run. The code may be in any language and is often a fragment on purpose, so
only signs that no complete fragment has are used: an open bracket or string at the end, an incomplete last line, a function
without a body, a comment instead of code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from camel.core.message import Message
from camel.core.role_playing import ASSISTANT
from camel.core.transcript import Transcript
from camel.detectors.finding import Hit
from camel.detectors.prose import asked_before, said_by, without_closing, words, work


class _Block(NamedTuple):
    language: str
    code: str
    closed: bool


def unfinished_code(transcript: Transcript) -> Iterator[Hit]:
    """Find code of the assistant that is incomplete."""
    for index, message in said_by(ASSISTANT, transcript):
        blocks = list(_blocks(message))
        if not blocks:
            continue
        asked = asked_before(transcript, index)
        wants_holes = asked is not None and _SKELETON.search(work(asked)) is not None
        hits = (_judged(index, block, message, wants_holes) for block in blocks)
        if hit := next(filter(None, hits), None):
            yield hit


_SKELETON = re.compile(
    r"\b(?:skeletons?|stubs?|templates?|boilerplate|scaffold\w*|placeholders?|outline|pseudo-?code|abstract|interface|empty (?:functions?|methods?|class))\b",
    re.IGNORECASE,
)


def _judged(index: int, block: _Block, message: Message, wants_holes: bool) -> Hit | None:
    if not block.code.strip():
        return None
    last = block.code.rstrip().rsplit("\n", 1)[-1]
    if not block.closed and message.finish == "length":
        return Hit(index, "the reply was cut off inside code", last)
    if block.language in _NOT_CODE or (not block.language and not _LOOKS_LIKE_CODE.search(block.code)):
        return None
    if not wants_holes and (found := _hole(block)):
        return Hit(index, "there is a placeholder instead of code", found)
    if reason := _breaks_off(block):
        return Hit(index, reason, last)
    return None


_NOT_CODE = frozenset(words("text txt console output plaintext markdown md csv log diff"))
_LOOKS_LIKE_CODE = re.compile(
    r"^[^\S\n]*(?:import \w|from \w+ import|def \w+\(|class \w+|#include|function \w+\(|public |private |const \w|let \w|var \w|fn \w|func \w|SELECT\b|return\b|print\()"
    r"|[;{]\s*$",
    re.MULTILINE,
)
_FENCE = re.compile(r"^[ \t]*(?:[^\n`]*[:：][ \t]*)?(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^\n]*$", re.MULTILINE)
_STRONG = re.compile(
    r"^(?:import \w[\w., ]*$|from [\w.]+ import |(?:async )?def \w+\(.*|class \w+.*:$|#include\s*[<\"]|function \w+\(|const \w+ = |public (?:static |class ))",
    re.MULTILINE,
)


def _blocks(message: Message) -> Iterator[_Block]:
    """Yield the fenced code blocks of a message. Without fences, yield the text from the first line that looks like code."""
    text = without_closing(message.content)
    if "```" not in text and "~~~" not in text:
        bare = work(message)
        strong = list(_STRONG.finditer(bare)) if "\n" in bare else []
        if len(strong) >= 2:
            yield _Block("", bare[strong[0].start() :], False)
        return
    at = 0
    while opening := _FENCE.search(text, at):
        fence = opening[1]
        start = opening.end() + 1
        closing = re.compile(rf"^[ \t]*{re.escape(fence[0])}{{{len(fence)},}}[ \t]*$", re.MULTILINE).search(
            text, start
        )
        end = closing.start() if closing else len(text)
        yield _Block(opening[2].lower(), text[start:end], closing is not None)
        if not closing:
            return
        at = closing.end()


# ---- holes

_LONGEST = 20_000
"""Maximum number of characters of a code block that are searched for placeholders."""

_COMMENT_HOLE = re.compile(
    r"(?:#|//|/\*|--|<!--|%)[ \t]*+(?:\.{3}|…)?[ \t(]*+(?:"
    r"(?:todo|fixme)\W+(?:implement|write|add|fill|complete|your)\b|(?:your|the) (?:code|logic|implementation)(?: goes)? here|"
    r"(?:implement|add|insert|put|place|write|fill in|handle|include|do) [^\n]{0,60}\b(?:here|similarly|below)\b|"
    r"(?:rest|remainder|remaining)\b[^\n]{0,60}|[^\n]{0,40}\b(?:implementation|logic|code|body) (?:goes )?here\b|[^\n]{0,40}\bgoes here\b|"
    r"[^\n]{0,60}\b(?:omitted|left as an exercise|left out|for brevity|to be implemented|not implemented)\b|same as (?:before|above)\b|"
    r"(?:existing|previous|other) (?:code|methods|functions|cases)\b[^\n]{0,30}|your [^\n]{0,30} here\b|\.\.\.[ \t]*$|…[ \t]*$|\.\.\. )",
    re.IGNORECASE | re.MULTILINE,
)
_MACRO_HOLE = re.compile(
    r"\b(?:todo|unimplemented)!\(|\braise NotImplementedError\b|\bthrow new (?:NotImplemented|UnsupportedOperation)\w*\(",
    re.IGNORECASE,
)
# A function with only comments and a no-op in its body.
_EMPTY_DEF = re.compile(
    r"^(?P<indent>[ \t]*)(?:async )?def \w+\([^\n]*:[ \t]{0,99}(?:\n(?P=indent)[ \t]+(?:#[^\n]*|\"\"\"[^\"\n]*\"\"\"))*+"
    r"\n?(?P=indent)?[ \t]+(?:pass|\.\.\.)[ \t]*(?:#[^\n]*)?$(?!\n(?P=indent)[ \t]+\S)",
    re.MULTILINE,
)
_ELLIPSIS_LINE = re.compile(r"^[ \t]*(?:\.\.\.|…)[ \t]*(?:#[^\n]*)?$", re.MULTILINE)
# Without backtracking in comments, so that long rulers are fast and code between two comments is not skipped.
_EMPTY_BODY = re.compile(r"\)[^;{}()\n]*\{\s*(?:(?://[^\n]*+|(?>/\*.{0,2000}?\*/))\s*)+\}", re.DOTALL)
_MEANT = re.compile(r"@(?:abc\.)?abstractmethod|\bProtocol\b|@overload|\bABC\b|\.pyi\b")


def _hole(block: _Block) -> str | None:
    code = block.code[:_LONGEST]
    if _MEANT.search(code):
        return None
    for pattern in (_COMMENT_HOLE, _MACRO_HOLE, _EMPTY_DEF, _EMPTY_BODY):
        if found := pattern.search(code):
            return found[0].strip()
    if block.language in ("python", "py") and (found := _ELLIPSIS_LINE.search(code)):
        return found[0].strip()
    return None


# ---- breaking off

_HASH = (*words("python py bash sh shell zsh ruby rb r perl yaml yml toml dockerfile make elixir"), "")
"""Languages in which `#` begins a comment. The empty name stands for code without a language."""
_STRINGS = re.compile(
    r"\"\"\".*?\"\"\"|'''.*?'''|`(?:\\.|[^`\\])*`|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n]){0,200}?'",
    re.DOTALL,
)
_LINE_COMMENT = {
    True: re.compile(r"(?:^|(?<=\s))#[^\n]*"),
    False: re.compile(r"//[^\n]*|/\*.{0,4000}?\*/", re.DOTALL),
}
_SQL_COMMENT = re.compile(r"--[^\n]*")
_WAITS = re.compile(
    r"(?:[-+*/%=,(\[{&|<]|=>|->|\b(?:and|or|not|in|is|return|import|from|if|elif|while|for|else if|new|await|const|let|var|def|class|func|fn))\s*$"
)
_SQL_WAITS = re.compile(
    r"\b(?:select|from|where|and|or|on|join|group by|order by|by|group|order|set|values|having|as|in|insert into|left|inner|limit)\s*$",
    re.IGNORECASE,
)
_OPENS_BLOCK = re.compile(
    r"^\s*(?:(?:async )?def|class|if|elif|else|for|while|try|except|finally|with|match|case)\b.*:\s*$"
)
_OPEN_TAG = re.compile(r"<[A-Za-z/!][^<>]*\Z")


def _breaks_off(block: _Block) -> str | None:
    language = block.language
    hashed = language in _HASH
    code = _STRINGS.sub('""', block.code)
    code = _LINE_COMMENT[hashed].sub("", code) if language != "sql" else _SQL_COMMENT.sub("", code)
    code = code.rstrip()
    if not code:
        return None
    last = code.rsplit("\n", 1)[-1]
    if language in ("html", "xml", "svg", "vue"):
        return "the markup breaks off inside a tag" if _OPEN_TAG.search(code) else None
    if last.count('"') % 2 or (last.count("'") % 2 and hashed and not re.search(r"\w'\w", last)):
        return "the code breaks off inside a string"
    if _unclosed(code):
        return "the code ends with an open bracket"
    if language == "sql" and _SQL_WAITS.search(last):
        return "the query breaks off"
    if (
        language not in ("", "css", "sql", "html", "dockerfile")
        and _WAITS.search(last)
        and not last.rstrip().endswith(("++", "--", "*/", "*"))
    ):
        return "the code breaks off within a statement"
    if _OPENS_BLOCK.match(last) and language in ("python", "py", ""):
        return "the code ends with a block that has no body"
    if language in ("bash", "sh", "shell", "zsh") and _shell_open(code):
        return "the script ends inside a block"
    return None


def _unclosed(code: str) -> bool:
    """Return whether more brackets are opened than closed. Code that closes more than it opens is a fragment and is allowed."""
    depth = {"(": 0, "[": 0, "{": 0}
    for char in code:
        if char in "([{":
            depth[char] += 1
        elif char in ")]}":
            opening = "([{"[")]}".index(char)]
            depth[opening] = max(0, depth[opening] - 1)
    return any(depth.values())


def _shell_open(code: str) -> bool:
    count = {
        word: len(re.findall(rf"(?:^|[;\s]){word}(?=[\s;]|$)", code)) for word in ("if", "fi", "do", "done")
    }
    return count["if"] > count["fi"] or count["do"] > count["done"]
