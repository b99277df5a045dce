"""A scenario: a chain of levels, and what is done with each combination of their items.

A level is a list of things ("50 roles", "10 tasks for this pair of roles"), given or requested from a model. The
placeholders of its prompt decide on which earlier levels a list depends. The one decision to know: everything is index
arithmetic. An item is a number below `count`, its path is that number in the mixed radix of the levels' counts, and its
lists follow from the path. So hundreds of millions of items are never listed anywhere.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any, NamedTuple, cast

import msgspec

from camel.core import inception as prompts
from camel.core.checks import shown, similar
from camel.core.dialogue import Dialogue
from camel.core.errors import InputError
from camel.core.inception import Inception, fill
from camel.core.memory import HistoryPolicy
from camel.core.message import Sampling
from camel.core.results import ResultSettings
from camel.core.society import Society
from camel.core.stops import StopRule, play_rules
from camel.core.task import TaskSpecifier
from camel.scenarios.critics import CriticSettings
from camel.tools.settings import ToolSettings

DEFAULT_ASK = 50
"""Maximum number of items per call. Models lose count in longer lists."""
MISALIGNMENT = "misalignment"
"""The label that always gates a scenario, so that a copy under another name is also gated."""

_PLACEHOLDER = re.compile(r"<([A-Z][A-Z0-9_]*)>")
_COUNT = re.compile(r"COUNT|NUM_[A-Z_]+")

Lists = Callable[[str, int], Sequence[str]]
"""Returns the items of a level's list: (level name, list index) -> items."""


def placeholders(text: str) -> list[str]:
    """Return the names of the `<PLACEHOLDERS>` in `text`, each once, in order."""
    return list(dict.fromkeys(_PLACEHOLDER.findall(text)))


def unknown_placeholder(name: str, known: Collection[str]) -> str:
    """Return the message about an unknown placeholder."""
    names = [f"<{one}>" for one in dict.fromkeys(known)]
    usable = f"Use one of {', '.join(names)}" if names else "No placeholder can be used here"
    return (
        f"unknown placeholder <{name}>{similar(f'<{name}>', names)}. {usable}. "
        f"If <{name}> is meant as plain text, write <{name.lower()}>"
    )


def is_count(placeholder: str) -> bool:
    """Return whether a placeholder means the number of items: `COUNT`, or the paper's `NUM_ROLES` and similar."""
    return _COUNT.fullmatch(placeholder) is not None


def fill_count(template: str, count: int, values: Mapping[str, str] | None = None) -> str:
    """Fill a list prompt with the number of items and the `values` of its other placeholders."""
    counts = {name: str(count) for name in placeholders(template) if is_count(name)}
    return fill(template, {**(values or {}), **counts})


class NamedList(NamedTuple):
    """A list and the items of earlier levels that it belongs to."""

    parents: tuple[str, ...]
    items: tuple[str, ...]


class Level(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One level of a scenario's chain of lists, with `count` items in each list."""

    name: str
    """Name in lower case; its placeholder is the same in capitals: `assistant_role`, `<ASSISTANT_ROLE>`."""
    count: int
    prompt: str = ""
    """The prompt that asks for a list. Not used if the items are given; may be empty then."""
    items: tuple[str, ...] = ()
    """The items, if no model is asked; the first `count` are used."""
    nested: tuple[NamedList, ...] | msgspec.UnsetType = msgspec.UNSET
    """Lists that depend on items of earlier levels. Unset rather than empty, so that older fingerprints stay the same."""
    ask: int = DEFAULT_ASK
    """Maximum number of items to ask for in one call."""
    names: bool | None = None
    """Whether items are names (explanations after a dash or a colon are removed) or sentences. Default: sentences for a role
    play's task or a question's problem, otherwise names."""
    sampling: Sampling | None = None
    """Sampling of list requests. Default: the run's."""

    @property
    def placeholder(self) -> str:
        """The level's placeholder, without the angle brackets."""
        return self.name.upper()

    @property
    def given(self) -> tuple[NamedList, ...]:
        """The lists that come with the scenario. Empty if a model is asked."""
        return self.nested or ((NamedList((), self.items),) if self.items else ())

    @property
    def most(self) -> int:
        """Number of items in the shortest list that comes with the scenario."""
        return min((len(one.items) for one in self.given), default=0)


class Cast(NamedTuple):
    """A role play with its levels filled in, for `RolePlaying`."""

    assistant: str
    user: str
    task: str
    inception: Inception
    values: dict[str, str]
    """The values of the prompts' other placeholders."""


class RolePlay(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="role_play"):
    """The chain ends in a conversation between an assistant and a user."""

    assistant: str
    user: str
    task: str
    inception: Inception = msgspec.field(default_factory=prompts.paper)
    """The prompts; by default the paper's. They may mention any level."""
    sampling: Sampling | None = None
    specify: bool = True
    """Whether the task is made more specific first."""
    word_limit: int = 50
    specifier_sampling: Sampling | None = None
    max_messages: int = 40
    critic: CriticSettings | msgspec.UnsetType = msgspec.UNSET
    """The critic. Unset rather than None, so that older fingerprints stay the same."""
    stop_rules: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """Names of further rules, checked after the paper's and before the limits."""
    history: HistoryPolicy | msgspec.UnsetType = msgspec.UNSET
    """What happens to both agents' older turns when a prompt no longer fits. Default: `full`, as in the paper."""
    assistant_tools: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    user_tools: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    hear_actions: bool | msgspec.UnsetType = msgspec.UNSET
    world: str | msgspec.UnsetType = msgspec.UNSET
    """The state that tools share, as `module:Class`."""

    def cast(self, facts: Mapping[str, str]) -> Cast:
        """Return the role play with an item's facts filled in. Roles and task are filled into the prompts later."""
        values = as_values(facts)
        return Cast(
            fill(self.assistant, values),
            fill(self.user, values),
            fill(self.task, values),
            self.inception,
            values,
        )

    def specifier(self) -> TaskSpecifier | None:
        """Return the declared task specifier, or None if the task is not specified."""
        if not self.specify:
            return None
        if self.specifier_sampling is None:
            return TaskSpecifier(self.word_limit)
        return TaskSpecifier(self.word_limit, self.specifier_sampling)

    def rules(self) -> tuple[StopRule, ...]:
        """Return the paper's stop rules with the declared limit, and the scenario's own rules."""
        return play_rules(self.stop_rules or (), max_messages=self.max_messages)


class Meeting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="society"):
    """The chain ends in a society that works on a task."""

    society: Society
    """Its members' roles, briefs and prompts may mention any level."""
    task: str
    sampling: Sampling | None = None

    def filled(self, facts: Mapping[str, str]) -> tuple[Society, str]:
        """Return the society and its task, with an item's facts filled in."""
        values = as_values(facts)
        members = (
            msgspec.structs.replace(
                member,
                role=fill(member.role, values),
                brief=fill(member.brief, values),
            )
            for member in self.society.members
        )
        society = msgspec.structs.replace(self.society, members=tuple(members), values=values)
        return society, fill(self.task, values)


class FilledQuestion(NamedTuple):
    """A question with its levels filled in."""

    role: str
    """The role of the model that answers."""
    problem: str
    """The question in the record."""
    prompt: str
    """The prompt for the model."""


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="question"):
    """The chain ends in one question and its answer."""

    prompt: str
    """The prompt; may mention any level, and `<ROLE>`."""
    problem: str = ""
    role: str = "Expert"
    sampling: Sampling | None = None

    def asked(self, facts: Mapping[str, str]) -> FilledQuestion:
        """Return the question with an item's facts filled in."""
        values = as_values(facts)
        role = fill(self.role, values)
        return FilledQuestion(role, fill(self.problem, values), fill(self.prompt, {**values, "ROLE": role}))


class Translate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="translate"):
    """A scenario without levels, which translates each message of another run."""

    prompt: str
    """The prompt, with `<LANGUAGE>`, `<TEXT>` (last, because it is untrusted) and optionally `<KEEP>`."""
    languages: dict[str, str]
    """Language names by code; other languages can be given by name."""
    keep: tuple[str, ...] = ()
    """Markers that a translation must keep."""
    sampling: Sampling | None = None

    def asked(self, text: str, language: str) -> str:
        """Return the prompt for translating `text` into `language`, a code or a name."""
        values = {
            "LANGUAGE": self.languages.get(language, language),
            "KEEP": ", ".join(self.keep),
            "TEXT": text,
        }
        return fill(self.prompt, values)

    def kept(self, text: str) -> list[str]:
        """Return the markers of `keep` that occur in `text`, in order. A valid translation has the same ones."""
        found = [(at.start(), mark) for mark in self.keep for at in re.finditer(re.escape(mark), text)]
        return [mark for _, mark in sorted(found)]


class Scenario(msgspec.Struct, frozen=True, kw_only=True, dict=True, forbid_unknown_fields=True):
    """A declaration with all its texts, so that it can be saved with a run.

    A plain value that may have errors; `check` returns them, and `load` raises an `InputError`.
    """

    name: str
    title: str
    levels: tuple[Level, ...] = ()
    end: RolePlay | Meeting | Dialogue | Question | Translate
    labels: tuple[str, ...] = ()
    """Labels of every record and every copy of it."""
    requires_acknowledgement: bool = False
    canary: str = ""
    """A GUID in every release of its data, so that training sets that contain the data can be detected."""
    result: ResultSettings | msgspec.UnsetType = msgspec.UNSET
    tools: ToolSettings | msgspec.UnsetType = msgspec.UNSET
    """Servers, form and limits of tools. Not in the fingerprint: a run identifies the tools that it found."""

    # --- items ---------------------------------------------------------------------------------------------------

    @cached_property
    def count(self) -> int:
        """Number of items: the product of the levels' counts."""
        return prod(level.count for level in self.levels)

    def path(self, index: int) -> tuple[int, ...]:
        """Return the item's index in the list of each level, from 0. The last level varies fastest."""
        _below("the item", index, self.count)
        return _digits(index, [level.count for level in self.levels])

    def id(self, index: int) -> str:
        """Return the item's id in files and records, 1-based like the paper's: `001_001_001`."""
        return "_".join(f"{place + 1:03d}" for place in self.path(index) or (index,))

    # --- lists ---------------------------------------------------------------------------------------------------

    def level(self, name: str) -> Level:
        """Return the level called `name`."""
        return self.levels[self._place(name)]

    @property
    def asked(self) -> tuple[Level, ...]:
        """Return the levels whose lists come from a model, in order."""
        return tuple(level for level in self.levels if not level.given)

    def needs(self, level: str) -> tuple[str, ...]:
        """Return the earlier levels that a level's lists depend on, also indirectly, as a subtopic depends on its topic."""
        return tuple(self.levels[place].name for place in self._needs[self._place(level)])

    def lists(self, level: str) -> int:
        """Return the number of lists of a level: one per combination of the earlier items that it depends on."""
        return prod(self._radix(self._place(level)))

    def list_index(self, level: str, path: Sequence[int]) -> int:
        """Return the index of the level's list for the item at `path`."""
        place = self._place(level)
        return _number([path[needed] for needed in self._needs[place]], self._radix(place))

    def list_path(self, level: str, list_index: int) -> dict[str, int]:
        """Return the indexes of the items that a list depends on, by level. This is the inverse of `list_index`."""
        place = self._place(level)
        _below(f"the list of {level}", list_index, self.lists(level))
        return dict(zip(self.needs(level), _digits(list_index, self._radix(place)), strict=True))

    def list_facts(self, level: str, list_index: int, lists: Lists) -> dict[str, str]:
        """Return the items that a list depends on, by level, for its prompt and its heading."""
        return self._facts(self.list_path(level, list_index), lists)

    def list_prompt(self, level: str, facts: Mapping[str, str]) -> Callable[[int], str]:
        """Return the prompt for a list, as a function of the number of items."""
        template, values = self.level(level).prompt, as_values(facts)
        return lambda count: fill_count(template, count, values)

    def is_name(self, level: str) -> bool:
        """Return whether a level's items are names rather than sentences."""
        found = self.level(level)
        if found.names is not None:
            return found.names
        match self.end:
            case RolePlay(task=text) | Meeting(task=text) | Question(problem=text):
                return found.placeholder not in placeholders(text)
            case Dialogue() | Translate() as end:
                return isinstance(end, Translate)

    def facts(self, index: int, lists: Lists) -> dict[str, str]:
        """Return the texts of an item, by level."""
        names = (level.name for level in self.levels)
        return self._facts(dict(zip(names, self.path(index), strict=True)), lists)

    def _facts(self, places: Mapping[str, int], lists: Lists) -> dict[str, str]:
        """Return the texts at the indexes `places`, by level. `places` must include all levels that these depend on."""
        facts: dict[str, str] = {}
        for at, level in enumerate(self.levels):
            if level.name not in places:
                continue
            place = places[level.name]
            if level.given:
                parents = tuple(facts[self.levels[other].name] for other in self._needs[at])
                facts[level.name] = self._given[level.name][parents][place]
                continue
            needed = [places[self.levels[other].name] for other in self._needs[at]]
            number = _number(needed, self._radix(at))
            items = lists(level.name, number)
            if place >= len(items):
                raise InputError(
                    f"list {number + 1} of '{level.name}' has {len(items)} items, not {level.count}"
                )
            facts[level.name] = items[place]
        return facts

    @cached_property
    def _given(self) -> dict[str, dict[tuple[str, ...], tuple[str, ...]]]:
        return {level.name: dict(level.given) for level in self.levels}

    @cached_property
    def _needs(self) -> tuple[tuple[int, ...], ...]:
        places = {level.placeholder: place for place, level in enumerate(self.levels)}
        needs: list[tuple[int, ...]] = []
        for at, level in enumerate(self.levels):
            mentioned = (places[name] for name in placeholders(level.prompt) if name in places)
            direct = [place for place in mentioned if place < at]
            if level.given:  # its headings name the items of the levels directly before it
                direct = list(range(max(0, at - len(level.given[0].parents)), at))
            needs.append(tuple(sorted({*direct, *(far for near in direct for far in needs[near])})))
        return tuple(needs)

    def _radix(self, place: int) -> list[int]:
        return [self.levels[needed].count for needed in self._needs[place]]

    def _place(self, name: str) -> int:
        for place, level in enumerate(self.levels):
            if level.name == name:
                return place
        levels = ", ".join(level.name for level in self.levels) or "none"
        raise InputError(f"'{self.name}' has no level {shown(name)}. Its levels are {levels}")

    # --- as a whole ----------------------------------------------------------------------------------------------

    @property
    def has_conversations(self) -> bool:
        """Whether its items are conversations."""
        return isinstance(self.end, RolePlay | Meeting | Dialogue)

    @property
    def shape(self) -> str:
        """The scenario's size as text, such as `50 × 50 × 10 = 25,000 conversations`."""
        match self.end:
            case RolePlay() | Meeting() | Dialogue():
                kind = "conversation"
            case Question():
                kind = "problem"
            case Translate(languages=languages):
                return f"any run into {len(languages)} languages"
        total = f"{self.count:,} {kind}{'' if self.count == 1 else 's'}"
        if len(self.levels) < 2:
            return total
        return f"{' × '.join(f'{level.count:,}' for level in self.levels)} = {total}"

    def asking(self, names: Collection[str] | None = None) -> Scenario:
        """Return a copy that asks a model for these levels' lists and those that depend on them. None: all levels with a prompt."""
        asked = {level.name for level in self.levels if level.prompt} if names is None else set(names)
        levels: list[Level] = []
        for level in self.levels:
            if level.nested and not asked.isdisjoint(self.needs(level.name)):
                asked.add(level.name)
            given = level.name not in asked
            levels.append(level if given else msgspec.structs.replace(level, items=(), nested=msgspec.UNSET))
        return msgspec.structs.replace(self, levels=tuple(levels))

    def resized(self, counts: Mapping[str, int]) -> Scenario:
        """Return a copy with other counts. A model is asked for lists that come with fewer items than the new count."""
        short: list[str] = []
        for name, value in counts.items():
            level, wanted = self.level(name), cast("Any", value)
            if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < 1:
                raise InputError(f"counts.{name} must be a whole number of at least 1, not {shown(wanted)}")
            if level.given and wanted > level.most:
                if not level.prompt:
                    raise InputError(f"level '{name}' has only {level.most} items. Lower counts.{name}")
                short.append(name)
        levels = (
            msgspec.structs.replace(level, count=counts.get(level.name, level.count))
            for level in self.asking(short).levels
        )
        return msgspec.structs.replace(self, levels=tuple(levels))

    def fingerprint(self) -> str:
        """Return a hash of everything that affects the results, including prompts but not the title."""
        plain = msgspec.structs.replace(self, title="", tools=msgspec.UNSET)
        content = msgspec.json.encode(plain, order="deterministic")
        return hashlib.sha256(content).hexdigest()

    def list_fingerprints(self) -> dict[str, str]:
        """Return a hash of everything that determines the lists of each level, for levels whose lists a model writes."""
        found: dict[str, str] = {}
        for level in self.asked:
            made_from = [self.level(name) for name in (*self.needs(level.name), level.name)]
            content = msgspec.json.encode((made_from, self.is_name(level.name)), order="deterministic")
            found[level.name] = hashlib.sha256(content).hexdigest()[:16]
        return found

    @property
    def gated(self) -> bool:
        """Whether the user must acknowledge the scenario before it runs."""
        return self.requires_acknowledgement or MISALIGNMENT in self.labels

    def gate(self, acknowledged: Collection[str]) -> None:
        """Raise an `InputError` for a gated scenario unless `acknowledged` contains its name or one of its labels."""
        names = self.labels or (self.name,)
        if self.gated and not {*names, self.name} & set(acknowledged):
            raise InputError(
                f"'{self.name}' simulates misuse, for research on detecting it: to run it, set "
                f'acknowledge = ["{names[0]}"], and keep its data out of training data'
            )


def as_values(facts: Mapping[str, str]) -> dict[str, str]:
    """Convert facts by level to values by placeholder."""
    return {name.upper(): value for name, value in facts.items()}


def _digits(number: int, radix: Sequence[int]) -> tuple[int, ...]:
    digits: list[int] = []
    for base in reversed(radix):
        number, digit = divmod(number, base)
        digits.append(digit)
    return tuple(reversed(digits))


def _number(digits: Iterable[int], radix: Iterable[int]) -> int:
    number = 0
    for digit, base in zip(digits, radix, strict=True):
        number = number * base + digit
    return number


def _below(what: str, value: int, limit: int) -> None:
    if not 0 <= value < limit:
        raise InputError(f"{what} must be from 0 to {limit - 1:,}, not {shown(value)}")
