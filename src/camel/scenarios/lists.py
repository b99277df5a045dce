"""Lists of roles, tasks and topics: requested from a model, and stored as text that users can edit.

The one decision to know: each request depends only on the replies so far (no clock, no randomness), so that a journaled
model repeats them after a crash and the list is the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from math import ceil

from camel.core.checks import shown
from camel.core.errors import InputError, ModelError
from camel.core.history import History
from camel.core.lists import parse_list
from camel.core.message import Sampling, in_one_line
from camel.core.model import THOUGHT_ONLY, Model, Request
from camel.scenarios.duplicates import Distinct
from camel.scenarios.scenario import DEFAULT_ASK, NamedList, fill_count

ROUNDS = 8
"""Maximum number of calls beyond the minimum for the count."""
LISTER = "lister"
"""The speaker name of list requests."""


class ListTooShort(ModelError):
    """The model did not return enough different items, retries included."""

    def __init__(self, items: Sequence[str], wanted: int, calls: int, hint: str = "") -> None:
        hint = hint or "lower the level's count, change its prompt, or complete the list yourself"
        super().__init__(f"{calls} calls returned only {len(items)} different items of {wanted}: {hint}")
        self.items = list(items)
        self.wanted = wanted
        self.calls = calls

    @property
    def got(self) -> int:
        """Number of items that the model returned."""
        return len(self.items)


async def ask_list(
    model: Model,
    prompt: str | Callable[[int], str],
    count: int,
    *,
    sampling: Sampling = Sampling(),  # noqa: B008 - frozen
    session: str = "",
    ask: int = DEFAULT_ASK,
    rounds: int = ROUNDS,
    names: bool = False,
) -> list[str]:
    """Ask for `count` different items and return exactly that many, or raise `ListTooShort`.

    `prompt` is a text with `<COUNT>`, or a function of the number of items. A call asks for at most `ask` items; later calls
    list the items so far. At most `rounds` additional calls are made for duplicates and bad replies.
    """
    if count < 1 or ask < 1 or rounds < 0:
        raise InputError(f"count and ask must be at least 1 and rounds 0, not {count}, {ask} and {rounds}")
    distinct, calls, is_new, hint = Distinct(), 0, True, ""
    while len(distinct) < count and calls < ceil(count / ask) + rounds:
        wanted = min(ask, count - len(distinct))
        text = fill_count(prompt, wanted) if isinstance(prompt, str) else prompt(wanted)
        history = History()
        history.add("user", f"{text}{_more(distinct.items, wanted)}{'' if is_new else _again(calls)}")
        reply = await model.reply(Request(history, sampling, session, LISTER, "list"))
        calls += 1
        hint = THOUGHT_ONLY if reply.choices[0].thought_only else ""
        items = parse_list(reply.content, names=names)
        if reply.choices[0].finish == "length":
            del items[-1:]  # probably cut off
        before = len(distinct)
        for item in items:
            distinct.add(item)
        is_new = len(distinct) > before
    if len(distinct) < count:
        raise ListTooShort(distinct.items, count, calls, hint)
    return distinct.items[:count]


def _more(items: Sequence[str], wanted: int) -> str:
    if not items:
        return ""
    return (
        f"\n\nThese are on the list already:\n{_numbered(items)}\n\n"
        f"List {wanted} more, different from all of these; do not repeat or rephrase them."
    )


def _again(calls: int) -> str:
    # A deterministic model would repeat its reply, so the wording changes.
    return (
        "\n\nWrite a numbered list with one item on each line and nothing else. "
        f"The answer before this one brought nothing new; this is attempt {calls + 1}."
    )


# --- as text -----------------------------------------------------------------------------------------------------


_LINE_NUMBER = re.compile(r"\d+[.)](?:\s+|\Z)")
_ESCAPED = re.compile(r"\\([\\|])")


def render_lists(lists: Iterable[tuple[Sequence[str], Sequence[str]]]) -> str:
    """Write lists as text: a heading with the items that the list depends on, if any, then numbered lines."""
    blocks = [
        (f"# {heading(parents)}\n" if parents else "") + f"{_numbered(items)}\n" for parents, items in lists
    ]
    return "\n".join(blocks)


def heading(parents: Sequence[str]) -> str:
    """Return the heading of a list on one line: `Accountant | Actor`."""
    return " | ".join(in_one_line(parent).replace("\\", "\\\\").replace("|", "\\|") for parent in parents)


def read_lists(
    text: str,
    *,
    source: str = "the list",
    count: int | None = None,
    parents: Iterable[Sequence[str]] | None = None,
) -> list[NamedList]:
    """Parse lists with any spacing and numbering.

    Each list must have `count` items, and the headings must be `parents`, in that order. Errors name `source` and the line.
    """
    found: list[tuple[int, tuple[str, ...], list[str]]] = []
    last = 0
    for number, raw in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        line = " ".join(raw.split())
        last = number if line else last
        if line == "#" or line.startswith("# "):
            found.append((number, _parents(line[1:].strip()), []))
        elif item := _LINE_NUMBER.sub("", line, count=1):
            if not found:
                found.append((number, (), []))
            found[-1][2].append(item)
    for at, names, items in found:
        if count is not None and len(items) != count:
            what = f"the list '# {heading(names)}'" if names else "the list"
            raise InputError(f"{source}:{at}: {what} must have {count} items, but it has {len(items)}")
    if parents is not None:
        _check_parents(found, [tuple(map(in_one_line, one)) for one in parents], source, last)
    return [NamedList(names, tuple(items)) for _, names, items in found]


def _check_parents(
    found: Sequence[tuple[int, tuple[str, ...], list[str]]],
    wanted: Sequence[tuple[str, ...]],
    source: str,
    last: int,
) -> None:
    for (at, names, _), expected in zip(found, wanted, strict=False):
        if names != expected:
            raise InputError(
                f"{source}:{at}: expected the list {shown(f'# {heading(expected)}')}, "
                f"not {shown(f'# {heading(names)}')}. Do not change the headings or their order"
            )
    if len(found) > len(wanted):
        raise InputError(
            f"{source}:{found[len(wanted)][0]}: remove this list, there must be only {len(wanted)}"
        )
    if len(found) < len(wanted):
        missing = shown(f"# {heading(wanted[len(found)])}")
        raise InputError(
            f"{source}:{last}: add the list {missing} after this line"
            if last
            else f"{source} is empty: add the heading {missing}, and the items of its list below it"
        )


def _parents(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    # A pipe in a name is written `\|`, so a plain one between spaces is a separator.
    return tuple(_ESCAPED.sub(r"\1", part) for part in text.split(" | "))


def _numbered(items: Sequence[str]) -> str:
    return "\n".join(f"{number}. {in_one_line(item)}" for number, item in enumerate(items, 1))
