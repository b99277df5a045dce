"""Preparation of a society: a model proposes its roles and plans its task.

Both ask for a list and parse it leniently. If the reply cannot be parsed, they ask again with another wording, without
the failed reply. Each request depends only on the replies so far, so a journaled model repeats them after a crash and
the members are the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from camel.core.checks import whole
from camel.core.errors import NotUnderstood
from camel.core.history import History
from camel.core.inception import fill, texts
from camel.core.member import MAX_NAME_CHARS, Member, as_key
from camel.core.message import Sampling, Usage, well_formed
from camel.core.model import Model, Reply, Request, Watch
from camel.core.task import MAX_TASK_CHARS, checked_text

ATTEMPTS = 3
"""Maximum number of calls for one list."""
MAX_STEP_CHARS = 600
CASTING, PLANNER = "casting", "planner"
"""The speaker names in requests for roles and for a plan."""
FIRST_SAMPLING = Sampling(temperature=0.7)

T = TypeVar("T")


class Casting(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Asks a model for the roles that a task needs, in addition to the declared members."""

    count: int
    """Number of roles to propose."""
    prompt: str = ""
    """The prompt, with `<COUNT>` and `<TASK>`. Default: one that comes with CAMEL."""
    sampling: Sampling = FIRST_SAMPLING

    def __post_init__(self) -> None:
        whole("count", self.count, 1, 100)

    def asked(self, task: str) -> str:
        """Return the prompt with its placeholders filled."""
        return fill(self.prompt or texts("society")["roles"], {"COUNT": str(self.count), "TASK": task})


class Planner(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Asks a model for the steps of a task. The steps are appended to the task."""

    steps: int = 6
    """Maximum number of steps."""
    prompt: str = ""
    """The prompt, with `<COUNT>` and `<TASK>`. Default: one that comes with CAMEL."""
    sampling: Sampling = FIRST_SAMPLING

    def __post_init__(self) -> None:
        whole("steps", self.steps, 1, 50)

    def asked(self, task: str) -> str:
        """Return the prompt with its placeholders filled."""
        return fill(self.prompt or texts("society")["plan"], {"COUNT": str(self.steps), "TASK": task})


class ProposedMembers(NamedTuple):
    """Members that a model proposed, and the usage."""

    members: tuple[Member, ...]
    usage: Usage
    model: str


class TaskPlan(NamedTuple):
    """Steps that a model proposed, and the usage."""

    steps: tuple[str, ...]
    usage: Usage
    model: str

    def text(self, task: str) -> str:
        """Return the task followed by its plan."""
        numbered = "\n".join(f"{number}. {step}" for number, step in enumerate(self.steps, 1))
        return f"{task}\n\nThe plan:\n{numbered}" if self.steps else task


async def assign_roles(
    model: Model,
    task: str,
    count: int | Casting,
    *,
    taken: Collection[str] = (),
    session: str = "",
    watch: Watch | None = None,
) -> ProposedMembers:
    """Ask a model to propose `count` members for a task, none with a name in `taken`. Raises `NotUnderstood` if no reply has
    enough members."""
    casting = count if isinstance(count, Casting) else Casting(count)
    wanted = casting.count

    def read(text: str) -> list[Member] | None:
        members = read_roles(text, taken)
        return members[:wanted] if len(members) >= wanted else None

    asked = casting.asked(checked_text("the task", task, MAX_TASK_CHARS))
    request = Request(History(), casting.sampling, session, CASTING, "list", watch)
    members, usage, name = await _ask(model, asked, read, request)
    if members is None:
        raise NotUnderstood(
            f"the model returned no list of {wanted} roles in {usage.calls} attempts: lower roles.count, or list the "
            "members yourself"
        )
    return ProposedMembers(tuple(members), usage, name)


async def plan_task(
    model: Model, task: str, steps: int | Planner = 6, *, session: str = "", watch: Watch | None = None
) -> TaskPlan:
    """Ask a model to plan a task in at most `steps` steps. If no reply has a usable plan, the result has no steps."""
    planner = steps if isinstance(steps, Planner) else Planner(steps)
    asked = planner.asked(checked_text("the task", task, MAX_TASK_CHARS))
    request = Request(History(), planner.sampling, session, PLANNER, "list", watch)
    found, usage, name = await _ask(model, asked, lambda text: _lines(text)[: planner.steps] or None, request)
    return TaskPlan(tuple(found or ()), usage, name)


def read_roles(text: str, taken: Collection[str] = ()) -> list[Member]:
    """Return the members in a list: name before the colon, brief after it. Skip lines that describe no member."""
    members: list[Member] = []
    seen = {as_key(name) for name in taken}
    for line in _lines(text):
        bold = _BOLD.match(line)
        name, brief = bold.groups() if bold else [*_EXPLAINED.split(line, maxsplit=1), ""][:2]
        name = " ".join(_UNNAMEABLE.sub(" ", name).split()).strip(" .'’-_")[:MAX_NAME_CHARS].rstrip(" .'’-_")
        key = as_key(name)
        if not name[:1].isalnum() or key in seen:
            continue
        seen.add(key)
        brief = brief.strip(" :-–—*")
        # "Neighbor (lives there)": the name was cut off at the opening parenthesis.
        brief = brief.removesuffix(")") if brief.count(")") > brief.count("(") else brief
        members.append(Member(name, name, brief.rstrip()))
    return members


async def _ask(
    model: Model, prompt: str, read: Callable[[str], Sequence[T] | None], request: Request
) -> tuple[Sequence[T] | None, Usage, str]:
    """Ask until `read` can parse the reply, at most `ATTEMPTS` times. Return the result, the usage of all calls, and the model."""
    usage, reply = Usage(), None
    for attempt in range(ATTEMPTS):
        history = History()
        # A deterministic model would repeat its reply, so the wording changes.
        again = f"\n\nOnly the numbered list, one item on each line. This is attempt {attempt + 1}."
        history.add("user", f"{prompt}{again if attempt else ''}")
        reply = await model.reply(msgspec.structs.replace(request, history=history))
        usage += reply.usage
        if (found := read(_text(reply))) is not None:
            return found, usage, reply.model
    return None, usage, reply.model if reply else ""


def _text(reply: Reply) -> str:
    choice = reply.choices[0]
    if choice.finish in ("refusal", "content_filter"):
        return ""
    text = well_formed(choice.content)
    # The last line is probably cut off.
    return text.rpartition("\n")[0] if choice.finish == "length" else text


_MARK = re.compile(r"[ \t]*(?:\(?\d{1,3}[.):]|[-*•+])[ \t]+(?=\S)")
_BOLD = re.compile(r"\*\*([^*\n]{1,80})\*\*[ \t]*[:(–—-]?(.*)")
_EXPLAINED = re.compile(r"[:：(]|[ \t][–—-][ \t]")
_UNNAMEABLE = re.compile(r"[^\w .'’-]")


def _lines(text: str) -> list[str]:
    """Return the items of a list: its outermost marked lines, or all lines if none is marked."""
    lines = [line for line in text.expandtabs(4).splitlines() if line.strip()]
    marked = [(line, found) for line in lines if (found := _MARK.match(line))]
    if marked:
        outer = min(len(line) - len(line.lstrip()) for line, _ in marked)
        lines = [line[found.end() :] for line, found in marked if len(line) - len(line.lstrip()) < outer + 2]
    else:
        lines = [line for line in lines if not line.rstrip().endswith((":", "："))]  # announces the list
    # Names and prompts must not contain control characters.
    printable = ("".join(char if char.isprintable() else " " for char in line) for line in lines)
    items = (" ".join(line.split()) for line in printable)
    return [item for item in items if any(map(str.isalnum, item)) and len(item) <= MAX_STEP_CHARS]
