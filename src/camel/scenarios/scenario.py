"""What a scenario is: a chain of levels, and what is done with each combination at its end.

A level is a list of things ("50 roles", "10 tasks for this pair of roles"), given or asked of a model; which earlier
levels a list depends on is read off the placeholders of its prompt. The one decision to know: everything is index
arithmetic. An item is a number below `count`, its path the digits of that number in the mixed radix of the levels'
counts, its lists a function of the path; so hundreds of millions of items are never listed anywhere.
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
from camel.core.errors import InputError
from camel.core.inception import Inception, fill
from camel.core.memory import HistoryPolicy
from camel.core.message import Sampling
from camel.core.society import PLACEHOLDERS, Society
from camel.core.stops import STOP_RULES, StopRule, paper_rules
from camel.core.task import TaskSpecifier
from camel.scenarios.critics import CriticSettings

DEFAULT_ASK = 50
"""Items asked for in one call. Models lose count, or heart, in longer lists."""
MISALIGNMENT = "misalignment"
"""The label that gates a scenario whatever else its declaration says: a copy under another name is gated too."""

_PLACEHOLDER = re.compile(r"<([A-Z][A-Z_]*)>")
_COUNT = re.compile(r"COUNT|NUM_[A-Z_]+")
# What a role play fills in itself, after the levels: the task is known only once it is specified.
_LATER = re.compile(r"<(ASSISTANT_ROLE|USER_ROLE|TASK|WORD_LIMIT)>")
_SOCIETYS = re.compile(rf"<({'|'.join(PLACEHOLDERS)})>")

Lists = Callable[[str, int], Sequence[str]]
"""Gives the items of a level's list: (level name, list index) -> items."""


def placeholders(text: str) -> list[str]:
    """The names of the `<PLACEHOLDERS>` in `text`, each once, in order."""
    return list(dict.fromkeys(_PLACEHOLDER.findall(text)))


def unknown_placeholder(name: str, known: Collection[str]) -> str:
    """The message for a placeholder that is not known."""
    listed = ", ".join(f"<{one}>" for one in known) or "none"
    return (
        f"<{name}> is not known here{similar(name, known)}; known: {listed}. "
        "If it is meant as it stands, write it in lower case"
    )


def is_count(placeholder: str) -> bool:
    """Whether a placeholder means how many items are asked for: `COUNT`, or the paper's `NUM_ROLES` and the like."""
    return _COUNT.fullmatch(placeholder) is not None


def fill_count(template: str, count: int, values: Mapping[str, str] | None = None) -> str:
    """Fill a list prompt: how many are wanted, and the `values` of its other placeholders."""
    counts = {name: str(count) for name in placeholders(template) if is_count(name)}
    return fill(template, {**(values or {}), **counts})


class NamedList(NamedTuple):
    """A list and the items of earlier levels that it belongs to."""

    parents: tuple[str, ...]
    items: tuple[str, ...]


class Level(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One link of the chain: `count` things in each of its lists."""

    name: str
    """In lower case; its placeholder is the same in capitals: `assistant_role`, `<ASSISTANT_ROLE>`."""
    count: int
    prompt: str = ""
    """Asks for a list. Not sent while the items are given; may be empty then."""
    items: tuple[str, ...] = ()
    """The items themselves, in which case no model is asked; the first `count` are used."""
    nested: tuple[NamedList, ...] | msgspec.UnsetType = msgspec.UNSET
    """The same where the items depend on those of the levels before. Unset: levels without keep their fingerprints."""
    ask: int = DEFAULT_ASK
    """How many to ask for in one call."""
    names: bool | None = None
    """Whether items are names, which lose explanations behind a dash or a colon, or sentences, which may hold both.
    Left out: sentences where the role play's task or the question's problem is made of them, else names."""
    sampling: Sampling | None = None
    """How the model is asked; left out, as the run says."""

    @property
    def placeholder(self) -> str:
        """Its name as prompts mention it, without the brackets."""
        return self.name.upper()

    @property
    def given(self) -> tuple[NamedList, ...]:
        """The lists that come with the scenario; none if a model is asked."""
        return self.nested or ((NamedList((), self.items),) if self.items else ())

    @property
    def most(self) -> int:
        """How many items each given list has at least."""
        return min((len(one.items) for one in self.given), default=0)


class Cast(NamedTuple):
    """A role play with its levels filled in: what `RolePlaying` is given."""

    assistant: str
    user: str
    task: str
    inception: Inception


class RolePlay(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="role_play"):
    """The chain ends in a conversation between an assistant and a user."""

    assistant: str
    user: str
    task: str
    inception: Inception = msgspec.field(default_factory=prompts.paper)
    """The prompts; the paper's unless the scenario brings its own. They may mention any level."""
    sampling: Sampling | None = None
    specify: bool = True
    """Whether the task is made more specific first."""
    word_limit: int = 50
    specifier_sampling: Sampling | None = None
    max_messages: int = 40
    critic: CriticSettings | msgspec.UnsetType = msgspec.UNSET
    """The critic. Unset rather than None, so that scenarios without one keep their fingerprints."""
    stop_rules: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """Further rules by name, asked after the paper's."""
    history: HistoryPolicy | msgspec.UnsetType = msgspec.UNSET
    """What becomes of both agents' older turns where a prompt no longer fits; unset: `full`, as in the paper."""

    def cast(self, facts: Mapping[str, str]) -> Cast:
        """Fill in an item's facts; the roles and the task stay open in the prompts, for the role play to fill."""
        values = as_values(facts)
        # A second pass follows, and text that was put in must not be searched for placeholders by it.
        inert = {
            name: _LATER.sub(r"\1", value) for name, value in values.items() if not _LATER.match(f"<{name}>")
        }
        inception = msgspec.structs.asdict(self.inception)
        return Cast(
            fill(self.assistant, values),
            fill(self.user, values),
            fill(self.task, values),
            Inception(**{name: fill(text, inert) for name, text in inception.items()}),
        )

    def specifier(self) -> TaskSpecifier | None:
        """The task specifier as declared, or None where the task stays as it is."""
        if not self.specify:
            return None
        if self.specifier_sampling is None:
            return TaskSpecifier(self.word_limit)
        return TaskSpecifier(self.word_limit, self.specifier_sampling)

    def rules(self) -> tuple[StopRule, ...]:
        """The paper's stop rules with the declared limit, and those that the scenario names."""
        named = () if self.stop_rules is msgspec.UNSET else self.stop_rules
        return (*paper_rules(max_messages=self.max_messages), *(STOP_RULES.find(name)() for name in named))


class Meeting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="society"):
    """The chain ends in a society that works on a task."""

    society: Society
    """Its members' roles, briefs and prompts may mention any level."""
    task: str
    sampling: Sampling | None = None

    def filled(self, facts: Mapping[str, str]) -> tuple[Society, str]:
        """Fill in an item's facts: the society and its task."""
        values = as_values(facts)
        # The society fills its prompts a second time, and text that was put in must not be searched by it.
        inert = {
            name: _SOCIETYS.sub(r"\1", value) for name, value in values.items() if name not in PLACEHOLDERS
        }
        members = (
            msgspec.structs.replace(
                member,
                role=fill(member.role, values),
                brief=fill(member.brief, values),
                prompt=fill(member.prompt, inert),
            )
            for member in self.society.members
        )
        society = msgspec.structs.replace(
            self.society,
            members=tuple(members),
            prompt=fill(self.society.prompt, inert),
            opening=fill(self.society.opening, inert),
        )
        return society, fill(self.task, values)


class FilledQuestion(NamedTuple):
    """A question with its levels filled in."""

    role: str
    """The role of the model that answers."""
    problem: str
    """What is recorded as the question."""
    prompt: str
    """What the model is sent."""


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="question"):
    """The chain ends in one question and its answer."""

    prompt: str
    """Asks it; may mention any level, and `<ROLE>`."""
    problem: str = ""
    role: str = "Expert"
    sampling: Sampling | None = None

    def asked(self, facts: Mapping[str, str]) -> FilledQuestion:
        """Fill in an item's facts."""
        values = as_values(facts)
        role = fill(self.role, values)
        return FilledQuestion(role, fill(self.problem, values), fill(self.prompt, {**values, "ROLE": role}))


class Translate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="translate"):
    """No chain of its own: each message of another run is put into other languages."""

    prompt: str
    """Mentions `<LANGUAGE>`, `<TEXT>` (last, as it is not ours) and, if it likes, `<KEEP>`."""
    languages: dict[str, str]
    """Language names by code; other languages can be asked for by name."""
    keep: tuple[str, ...] = ()
    """What a translation must keep as it is in the text."""
    sampling: Sampling | None = None

    def asked(self, text: str, language: str) -> str:
        """The prompt for putting `text` into `language`, a code or a name."""
        values = {
            "LANGUAGE": self.languages.get(language, language),
            "KEEP": ", ".join(self.keep),
            "TEXT": text,
        }
        return fill(self.prompt, values)

    def kept(self, text: str) -> list[str]:
        """The marks of `keep` in `text`, in order: a sound translation has the same."""
        found = [(at.start(), mark) for mark in self.keep for at in re.finditer(re.escape(mark), text)]
        return [mark for _, mark in sorted(found)]


class Scenario(msgspec.Struct, frozen=True, kw_only=True, dict=True, forbid_unknown_fields=True):
    """A declaration with all its texts: complete in itself, so that it can be saved with a run.

    A plain value that may be wrong; `check` says how, and `load` refuses what it calls an error.
    """

    name: str
    title: str
    levels: tuple[Level, ...] = ()
    end: RolePlay | Meeting | Question | Translate
    labels: tuple[str, ...] = ()
    """Marks that travel with every record and every copy of it."""
    requires_acknowledgement: bool = False
    canary: str = ""
    """A GUID that every release of its data carries, so that a training set which swallowed it can be found out."""

    # --- items ---------------------------------------------------------------------------------------------------

    @cached_property
    def count(self) -> int:
        """How many items there are: the product of the levels' counts."""
        return prod(level.count for level in self.levels)

    def path(self, index: int) -> tuple[int, ...]:
        """The place of an item along the levels, 0-based; the last level varies fastest."""
        _below("the item", index, self.count)
        return _digits(index, [level.count for level in self.levels])

    def id(self, index: int) -> str:
        """The item's name in files and records, 1-based: `001_001_001`, as the original numbered them."""
        return "_".join(f"{place + 1:03d}" for place in self.path(index))

    # --- lists ---------------------------------------------------------------------------------------------------

    def level(self, name: str) -> Level:
        """The level called `name`."""
        return self.levels[self._place(name)]

    @property
    def asked(self) -> tuple[Level, ...]:
        """The levels whose lists a model must be asked for, in order."""
        return tuple(level for level in self.levels if not level.given)

    def needs(self, level: str) -> tuple[str, ...]:
        """The earlier levels that a level's lists depend on, through others too: a subtopic means nothing without its topic."""
        return tuple(self.levels[place].name for place in self._needs[self._place(level)])

    def lists(self, level: str) -> int:
        """How many lists a level has: one for each combination of what it needs."""
        return prod(self._radix(self._place(level)))

    def list_index(self, level: str, path: Sequence[int]) -> int:
        """Which of its level's lists the item at `path` is drawn from."""
        place = self._place(level)
        return _number([path[needed] for needed in self._needs[place]], self._radix(place))

    def list_path(self, level: str, list_index: int) -> dict[str, int]:
        """The places of a list's parents, by level: the inverse of `list_index`."""
        place = self._place(level)
        _below(f"the list of {level}", list_index, self.lists(level))
        return dict(zip(self.needs(level), _digits(list_index, self._radix(place)), strict=True))

    def list_facts(self, level: str, list_index: int, lists: Lists) -> dict[str, str]:
        """The parents of a list in words, by level: what its prompt and its heading name."""
        return self._facts(self.list_path(level, list_index), lists)

    def list_prompt(self, level: str, facts: Mapping[str, str]) -> Callable[[int], str]:
        """The prompt for a list, given its parents, as a function of how many items are wanted."""
        template, values = self.level(level).prompt, as_values(facts)
        return lambda count: fill_count(template, count, values)

    def is_name(self, level: str) -> bool:
        """Whether a level's items are names rather than sentences."""
        found = self.level(level)
        if found.names is not None:
            return found.names
        match self.end:
            case RolePlay(task=text) | Meeting(task=text) | Question(problem=text):
                return found.placeholder not in placeholders(text)
            case Translate():
                return True

    def facts(self, index: int, lists: Lists) -> dict[str, str]:
        """What an item is made of, by level, in words."""
        names = (level.name for level in self.levels)
        return self._facts(dict(zip(names, self.path(index), strict=True)), lists)

    def _facts(self, places: Mapping[str, int], lists: Lists) -> dict[str, str]:
        """The words at some places, which include those of everything they need."""
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
                    f"list {number + 1} of {level.name} has {len(items)} items, not {level.count}"
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
            if level.given:  # its headings name the items of the levels just before it
                direct = list(range(max(0, at - len(level.given[0].parents)), at))
            needs.append(tuple(sorted({*direct, *(far for near in direct for far in needs[near])})))
        return tuple(needs)

    def _radix(self, place: int) -> list[int]:
        return [self.levels[needed].count for needed in self._needs[place]]

    def _place(self, name: str) -> int:
        for place, level in enumerate(self.levels):
            if level.name == name:
                return place
        raise InputError(f"{self.name} has no level {shown(name)}; it has {_listed(self.levels)}")

    # --- as a whole ----------------------------------------------------------------------------------------------

    @property
    def talks(self) -> bool:
        """Whether its items are conversations."""
        return isinstance(self.end, RolePlay | Meeting)

    @property
    def shape(self) -> str:
        """Its size in words: `50 × 50 × 10 = 25,000 conversations`."""
        match self.end:
            case RolePlay() | Meeting():
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
        """A copy that asks a model for the lists of these levels, all with a prompt if None, and of those that depend on them."""
        asked = {level.name for level in self.levels if level.prompt} if names is None else set(names)
        levels: list[Level] = []
        for level in self.levels:
            if level.nested and not asked.isdisjoint(self.needs(level.name)):
                asked.add(level.name)
            given = level.name not in asked
            levels.append(level if given else msgspec.structs.replace(level, items=(), nested=msgspec.UNSET))
        return msgspec.structs.replace(self, levels=tuple(levels))

    def resized(self, counts: Mapping[str, int]) -> Scenario:
        """A copy with other counts for the levels named. A model is asked for lists that are shorter than that."""
        short: list[str] = []
        for name, value in counts.items():
            level, wanted = self.level(name), cast("Any", value)
            if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < 1:
                raise InputError(
                    f"the count of {name} must be a whole number of at least 1, not {shown(wanted)}"
                )
            if level.given and wanted > level.most:
                if not level.prompt:
                    raise InputError(f"{name} can have at most {level.most} items: that many are given")
                short.append(name)
        levels = (
            msgspec.structs.replace(level, count=counts.get(level.name, level.count))
            for level in self.asking(short).levels
        )
        return msgspec.structs.replace(self, levels=tuple(levels))

    def fingerprint(self) -> str:
        """A hash of everything that affects what is generated, prompt texts included; the title does not."""
        content = msgspec.json.encode(msgspec.structs.replace(self, title=""), order="deterministic")
        return hashlib.sha256(content).hexdigest()

    def list_fingerprints(self) -> dict[str, str]:
        """A hash for each level that a model is asked for, of everything in the scenario that its lists are made from."""
        found: dict[str, str] = {}
        for level in self.asked:
            made_from = [self.level(name) for name in (*self.needs(level.name), level.name)]
            content = msgspec.json.encode((made_from, self.is_name(level.name)), order="deterministic")
            found[level.name] = hashlib.sha256(content).hexdigest()[:16]
        return found

    @property
    def gated(self) -> bool:
        """Whether it runs only with an acknowledgement."""
        return self.requires_acknowledgement or MISALIGNMENT in self.labels

    def gate(self, acknowledged: Collection[str]) -> None:
        """Raise unless the scenario is harmless or one of the names or labels in `acknowledged` is its own."""
        names = self.labels or (self.name,)
        if self.gated and not {*names, self.name} & set(acknowledged):
            raise InputError(
                f"{self.name} simulates misuse, for research on detecting it: to run it, say so with "
                f'acknowledge = ["{names[0]}"], and keep what it writes out of training data'
            )


def as_values(facts: Mapping[str, str]) -> dict[str, str]:
    """Facts by level as values by placeholder."""
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


def _listed(levels: Iterable[Level]) -> str:
    return ", ".join(level.name for level in levels) or "none"
