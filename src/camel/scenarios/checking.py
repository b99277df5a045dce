"""Checks a scenario before any call is paid, and renders sample prompts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple
from uuid import UUID

import msgspec

from camel.core.checks import shown, similar
from camel.core.dialogue import Dialogue, goal_question
from camel.core.errors import InputError
from camel.core.grammar import DONE_TOKEN
from camel.core.inception import Inception, fill
from camel.core.inception import placeholders as core_placeholders
from camel.core.role_playing import ASSISTANT, USER
from camel.core.society import PLACEHOLDERS
from camel.core.stops import STOP_RULES
from camel.core.task import MAX_ROLE_CHARS, MAX_TASK_CHARS
from camel.scenarios.lists import heading
from camel.scenarios.reading import FILE, ScenarioProblem, folder_of, read
from camel.scenarios.scenario import (
    Level,
    Meeting,
    Question,
    RolePlay,
    Scenario,
    Translate,
    is_count,
    placeholders,
    unknown_placeholder,
)
from camel.scenarios.societies import templates, unknown_placeholders
from camel.tools.settings import check_declared

_LEVEL_NAME = re.compile(r"[a-z][a-z_]*")
_PROMPT_CHARS = 20_000
_LITERAL = re.compile(r"YOUR_[A-Z_]+|CAMEL_TASK_DONE")
"""Placeholders of inception prompts that are not filled in."""


def load(name_or_path: str | Path, lists: Literal["shipped", "asked"] = "shipped") -> Scenario:
    """Load a shipped scenario by name, or your own by the path of its folder; raises an `InputError` if it has errors.

    A shipped name wins over a folder of the same name; write `./math` for the folder. With `lists="asked"` a model is
    asked for every list that has a prompt, even if the scenario includes the list.
    """
    folder = folder_of(name_or_path)
    scenario, problems = _examined(folder)
    errors = [problem for problem in problems if problem.severity == "error"]
    if scenario is None or errors:
        more = (
            f" ({len(errors) - 1} more, see `camel scenarios check {shlex.quote(str(folder))}`)"
            if len(errors) > 1
            else ""
        )
        raise InputError(f"the scenario '{folder}', {errors[0].where}: {errors[0].message}{more}")
    return scenario.asking() if lists == "asked" else scenario


def check(target: Scenario | str | Path) -> list[ScenarioProblem]:
    """Return all problems of a scenario or its folder, errors first; an empty list if there are none."""
    problems = _problems(target) if isinstance(target, Scenario) else _examined(folder_of(target))[1]
    return sorted(problems, key=lambda problem: problem.severity)


def _examined(folder: Path) -> tuple[Scenario | None, list[ScenarioProblem]]:
    scenario, problems = read(folder)
    if scenario is not None:
        # An unreadable text is empty here; it is already reported.
        problems += _problems(scenario)
    return scenario, problems


_Found = tuple[str, str] | tuple[str, str, Literal["warning"]]
"""The fields of a `ScenarioProblem`, as a tuple."""


def _problems(scenario: Scenario) -> list[ScenarioProblem]:
    found = _lint(scenario)
    return [ScenarioProblem(where, said, "warning" if warns else "error") for where, said, *warns in found]


def _lint(scenario: Scenario) -> Iterator[_Found]:
    yield from _whole(scenario)
    names = [level.name for level in scenario.levels]
    wrong = {name: "two levels have this name. Rename one of them" for name in names if names.count(name) > 1}
    for level in scenario.levels:
        if not _LEVEL_NAME.fullmatch(level.name) or is_count(level.placeholder):
            wrong[level.name] = (
                "this name is not allowed. Use only a-z and _. The name 'count' and names that start with 'num_' are reserved"
            )
    yield from ((f"level {name}", message) for name, message in wrong.items())
    if wrong:
        return  # its placeholder would be reported as a further mistake
    for place, level in enumerate(scenario.levels):
        yield from _level(level, [other.placeholder for other in scenario.levels], place)
    yield from _headings(scenario)
    yield from _tools(scenario)
    match scenario.end:
        case RolePlay() as play:
            yield from _role_play(play, scenario)
        case Meeting() as meeting:
            yield from _meeting(meeting, scenario)
        case Dialogue() as dialogue:
            yield from _dialogue(dialogue, scenario)
        case Question() as question:
            yield from _question(question, scenario)
        case Translate() as translate:
            yield from _translate(translate, scenario)
    if not isinstance(scenario.end, Translate):
        used = {name for text in _texts(scenario) for name in placeholders(text)}
        for level in scenario.levels:
            if level.placeholder not in used:
                yield (
                    f"level {level.name}",
                    f"no prompt mentions <{level.placeholder}>, so this level only makes copies: each conversation "
                    f"is made {level.count:,} times. Mention it in a prompt, or remove the level",
                    "warning",
                )


def _whole(scenario: Scenario) -> Iterator[_Found]:
    if not scenario.title.strip():
        yield FILE, "the title is empty. Describe the scenario in a few words"
    if not scenario.levels and not columns_of(scenario) and not isinstance(scenario.end, Translate):
        yield (
            FILE,
            "nothing varies. Add a [[levels]] table for what varies, such as the task, or a placeholder for a column of "
            "the table of inputs",
        )
    if scenario.gated and not scenario.requires_acknowledgement:
        yield FILE, "the label 'misalignment' needs an acknowledgment. Add requires_acknowledgement = true"
    if scenario.gated and not scenario.labels:
        yield FILE, 'requires_acknowledgement is set, but labels is empty. Add labels = ["misalignment"]'
    if scenario.gated or scenario.canary:
        try:
            UUID(scenario.canary)
        except ValueError:
            what = f"must be a GUID, not {shown(scenario.canary)}" if scenario.canary else "is missing"
            yield FILE, f'canary {what}. Create a GUID with python -c "import uuid; print(uuid.uuid4())"'


def _tools(scenario: Scenario) -> Iterator[_Found]:
    servers = scenario.tools.servers if scenario.tools else {}
    for seat, names in tools_of(scenario).items():
        for name in dict.fromkeys(names):
            try:
                check_declared(name, world_of(scenario), servers)
            except InputError as error:
                found = f"tools of the {seat}", str(error)
                # The user's configuration may declare a server.
                yield (*found, "warning") if name.startswith("mcp:") else found


def world_of(scenario: Scenario) -> str:
    """Return the name of a scenario's world. Empty if there is none."""
    end = scenario.end
    return str(getattr(end.society if isinstance(end, Meeting) else end, "world", None) or "")


def tools_of(scenario: Scenario) -> dict[str, Sequence[str]]:
    """Return the names of a scenario's tools, by seat."""
    end = scenario.end
    if isinstance(end, RolePlay):
        return {ASSISTANT: end.assistant_tools or (), USER: end.user_tools or ()}
    seats = (
        end.seats if isinstance(end, Dialogue) else end.society.members if isinstance(end, Meeting) else ()
    )
    return {seat.name: tuple(map(str, seat.tools)) for seat in seats}


def _level(level: Level, known: list[str], place: int) -> Iterator[_Found]:
    where = f"level {level.name}"
    if level.count < 1:
        yield where, f"count must be at least 1, not {level.count}"
    if level.ask < 1:
        yield where, f"ask must be at least 1, not {level.ask}"
    for one in level.given:
        yield from _items(f"{where} {heading(one.parents)}".rstrip(), level.count, one.items)
    if level.prompt:
        yield from _list_prompt(level, where, known, place)


def _items(where: str, count: int, items: tuple[str, ...]) -> Iterator[_Found]:
    if count > len(items):
        yield where, f"it has {len(items)} items, but count = {count}. Lower count, or add items"
    seen: set[str] = set()
    for item in items:
        short = item if len(item) <= 40 else f"{item[:37]}..."
        if not item.strip():
            yield where, "an item is empty. Fill it in, or remove it"
        elif item.casefold() in seen:
            yield where, f"the item {short!r} occurs twice. Remove one"
        if len(item) > MAX_TASK_CHARS:
            limit = f"but the limit is {MAX_TASK_CHARS:,}. Shorten it"
            yield where, f"the item {short!r} has {len(item):,} characters, {limit}"
        seen.add(item.casefold())


def _headings(scenario: Scenario) -> Iterator[_Found]:
    """Yield problems of lists under headings. Each combination of the items that they depend on needs one list."""
    for level in scenario.levels:
        if not level.nested:
            continue
        where, found = f"level {level.name}", {one.parents for one in level.nested}
        above = [scenario.level(name) for name in scenario.needs(level.name)]
        if len(found) < len(level.nested):
            yield where, "two of its lists have the same heading. Rename or remove one"
        if any(not one.given or (one.prompt and not level.prompt) for one in above):
            yield (
                where,
                f"its lists depend on the items of level '{above[0].name}', which a model may write. Add a prompt to this level, too",
            )
        elif all(one.count <= one.most for one in above):
            for number in range(scenario.lists(level.name)):
                facts = scenario.list_facts(level.name, number, lambda _name, _number: ())
                if (parents := tuple(facts.values())) not in found:
                    advice = "Add a heading and a list for every combination of earlier items"
                    yield where, f"the list {shown(f'# {heading(parents)}')} is missing. {advice}"
                    return


def _list_prompt(level: Level, where: str, known: list[str], place: int) -> Iterator[_Found]:
    used = placeholders(level.prompt)
    if not any(map(is_count, used)):
        yield where, "its prompt does not contain <COUNT>. Add it where the number of items belongs"
    for name in used:
        if name in known[:place] or is_count(name):
            continue
        if name == level.placeholder:
            yield where, f"its prompt contains the level's own placeholder, <{name}>. Remove it"
        elif name in known:
            yield where, f"its prompt contains <{name}>, but that level comes later. Move it before this one"
        else:
            yield where, unknown_placeholder(name, [*known[:place], "COUNT"])
    yield from _length(where, level.prompt)


def _role_play(play: RolePlay, scenario: Scenario) -> Iterator[_Found]:
    where = "role_play"
    try:
        if play.max_messages >= 1:  # otherwise reported below
            play.rules()
    except InputError as error:
        yield f"{where}.stop_rules", str(error)
    known = _known(scenario)
    longest = {
        level.name.upper(): max((item for one in level.given for item in one.items), key=len)
        for level in scenario.levels
        if level.given
    }
    for name, template, limit in (
        ("assistant", play.assistant, MAX_ROLE_CHARS),
        ("user", play.user, MAX_ROLE_CHARS),
        ("task", play.task, MAX_TASK_CHARS),
    ):
        yield from _template(f"{where}.{name}", template, known)
        filled = len(fill(template, longest))
        if filled > limit:
            what = f"with the longest items it has {filled:,} characters, but the limit is {limit:,}"
            yield f"{where}.{name}", f"{what}. Shorten it"
    for name, value in (("word_limit", play.word_limit), ("max_messages", play.max_messages)):
        if value < 1:
            yield where, f"{name} must be at least 1, not {value}"
    for name, problem in unknown_in_prompts(play.inception, known):
        yield f"{where}, the {name} prompt", problem
    for name, text in msgspec.structs.asdict(play.inception).items():
        yield from _length(f"{where}, the {name} prompt", text)
    # The words that the stop rules and the grammar need.
    for name, text, words in (
        ("assistant", play.inception.assistant, ("Solution:", "Next request.", "<TASK>")),
        ("user", play.inception.user, ("Instruction:", "Input:", DONE_TOKEN, "<TASK>")),
        ("specifier", play.inception.specifier, ("<TASK>",)),
    ):
        for word in (word for word in words if text and word not in text):
            said = f"it does not contain {word!r}, which conversations need. Add it"
            yield f"{where}, the {name} prompt", said, "warning"


def unknown_in_prompts(inception: Inception, levels: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield unknown placeholders in a role play's prompts: the prompt's name, and what to do. `levels` are always known."""
    for name, text in msgspec.structs.asdict(inception).items():
        own = ["ASSISTANT_ROLE", "USER_ROLE", "TASK", *(["WORD_LIMIT"] if name == "specifier" else [])]
        known = [*levels, *own]
        for used in placeholders(text):
            if used not in known and not _LITERAL.fullmatch(used):
                yield name, unknown_placeholder(used, known)


def _meeting(meeting: Meeting, scenario: Scenario) -> Iterator[_Found]:
    known = _known(scenario)
    yield from _template("society.task", meeting.task, known)
    for where, message in unknown_placeholders(meeting.society, known):
        yield f"society, {where}", message
    for where, text, _ in templates(meeting.society):
        yield from _length(f"society, {where}", text)


def _dialogue(dialogue: Dialogue, scenario: Scenario) -> Iterator[_Found]:
    """Yield problems of a dialogue. Its placeholders are levels, or columns of the table in `[inputs]`."""
    known = {level.name for level in scenario.levels}
    for where, text in dialogue.texts.items():
        for name in sorted(core_placeholders(text) - known) if known else ():
            advice = f"there is no level '{name}'{similar(name, known)}. Otherwise a table in [inputs] must have a column '{name}'"
            yield f"dialogue.{where}", advice, "warning"
        yield from _length(f"dialogue.{where}", text)
    for name in dialogue.stops.rules:
        try:
            STOP_RULES.find(name)
        except InputError as error:
            yield "dialogue.stops.rules", str(error)


def _question(question: Question, scenario: Scenario) -> Iterator[_Found]:
    known = _known(scenario)
    yield from _template("question.role", question.role, known)
    yield from _template("question.problem", question.problem, known)
    used = placeholders(question.prompt)
    for name in used:
        if name not in known and name != "ROLE":
            yield "question, the prompt", unknown_placeholder(name, [*known, "ROLE"])
    missing = [name for name in placeholders(question.problem) if name not in used]
    if question.prompt and missing:
        yield "question, the prompt", f"it does not contain the problem. Add <{missing[0]}>, best at its end"
    yield from _length("question, the prompt", question.prompt)


def _translate(translate: Translate, scenario: Scenario) -> Iterator[_Found]:
    where = "translate, the prompt"
    if scenario.levels:
        yield FILE, "a translation must not have levels. Remove them"
    if not translate.languages:
        yield "translate", 'there are no languages. Add some, such as languages = { de = "German" }'
    used = placeholders(translate.prompt)
    kept = {name for mark in translate.keep for name in placeholders(mark)}
    for name in ("LANGUAGE", "TEXT"):
        if translate.prompt and name not in used:
            yield where, f"it does not contain <{name}>. Add it"
    for name in used:
        if name not in {"LANGUAGE", "TEXT", "KEEP", *kept}:
            yield where, unknown_placeholder(name, ["LANGUAGE", "TEXT", "KEEP"])
    yield from _length(where, translate.prompt)


def _template(where: str, template: str, known: Collection[str]) -> Iterator[_Found]:
    if not template.strip():
        yield where, "the text is empty. Write it, or refer to a level with a placeholder such as <TASK>"
    for name in placeholders(template):
        if name not in known:
            yield where, unknown_placeholder(name, known)


def _length(where: str, text: str) -> Iterator[_Found]:
    if len(text) > _PROMPT_CHARS:
        yield where, f"the prompt has {len(text):,} characters. Shorten it", "warning"


def columns_of(scenario: Scenario) -> list[str]:
    """Return the columns that a scenario without levels takes from a table: its placeholders, in lower case, sorted."""
    if scenario.levels or isinstance(scenario.end, Translate):
        return []
    used = sorted({name for text in _texts(scenario) for name in placeholders(text)})
    own = ("ROLE",) if isinstance(scenario.end, Question) else ("WORD_LIMIT",)
    return [name.lower() for name in used if name not in own and not _LITERAL.fullmatch(name)]


def _known(scenario: Scenario) -> list[str]:
    """Return the placeholders that a scenario's texts may have: its levels, or the columns of a table."""
    return [level.placeholder for level in scenario.levels] or [name.upper() for name in columns_of(scenario)]


def _texts(scenario: Scenario) -> Iterator[str]:
    for level in scenario.levels:
        yield level.prompt
    match scenario.end:
        case RolePlay() as play:
            # In the inception prompts, <TASK> and the roles are filled by the role play, even if a level has that name.
            yield from (play.assistant, play.user, play.task)
            own = {"ASSISTANT_ROLE": "", "USER_ROLE": "", "TASK": ""}
            yield from (fill(text, own) for text in msgspec.structs.asdict(play.inception).values())
        case Meeting() as meeting:
            yield meeting.task
            own = dict.fromkeys(PLACEHOLDERS, "")
            for _, text, is_prompt in templates(meeting.society):
                yield fill(text, own) if is_prompt else text
        case Dialogue() as dialogue:
            # Names of levels are lower case, and these placeholders may be written in any case.
            yield " ".join(f"<{name.upper()}>" for name in core_placeholders(*dialogue.texts.values()))
        case Question() as question:
            yield from (question.role, question.problem, question.prompt)
        case Translate() as translate:
            yield translate.prompt


# --- samples -----------------------------------------------------------------------------------------------------


class Rendered(NamedTuple):
    """A prompt as it will be sent."""

    title: str
    text: str


def sample_facts(scenario: Scenario) -> dict[str, str]:
    """Return values for sample prompts: the first item of a given list, or the level's name in brackets."""
    columns = {name: f"[{name.replace('_', ' ')}]" for name in columns_of(scenario)}
    return columns | scenario.facts(0, lambda level, _: (f"[{level.replace('_', ' ')}]",))


def sample(scenario: Scenario, facts: Mapping[str, str] | None = None) -> list[Rendered]:
    """Return one prompt of each kind that the scenario sends, filled with `facts` or with sample values."""
    facts = {**sample_facts(scenario), **(facts or {})}
    rendered: list[Rendered] = []
    for level in scenario.asked:
        prompt = scenario.list_prompt(level.name, facts)
        lists = scenario.lists(level.name)
        often = "once" if lists == 1 else f"{lists:,} times"
        title = f"list of {level.count:,} × {level.name}, asked {often}"
        rendered.append(Rendered(title, prompt(min(level.count, level.ask))))
    match scenario.end:
        case RolePlay() as play:
            roles = play.cast(facts)
            values = {
                **roles.values,
                "ASSISTANT_ROLE": roles.assistant,
                "USER_ROLE": roles.user,
                "TASK": roles.task,
                "WORD_LIMIT": str(play.word_limit),
            }
            parts = [
                ("task specifier", roles.inception.specifier),
                (f"system prompt of the assistant, {roles.assistant}", roles.inception.assistant),
                (f"system prompt of the user, {roles.user}", roles.inception.user),
                ("opening line to the user", roles.inception.opening),
            ]
            sent = parts if play.specify else parts[1:]
            rendered += [Rendered(title, fill(text, values)) for title, text in sent]
        case Meeting() as meeting:
            society, task = meeting.filled(facts)
            if society.planner:
                rendered.append(Rendered("task planner", society.planner.asked(task)))
            if society.roles:
                rendered.append(Rendered("role assignment", society.roles.asked(task)))
            for member, system, _ in society.prompts(task):
                rendered.append(Rendered(f"system prompt of {member.name}, {member.title}", system))
        case Dialogue() as dialogue:
            filled = msgspec.structs.replace(dialogue, world=None).fill(facts)  # without importing the world
            rendered += [
                Rendered(f"system prompt of the {seat.name}, {seat.title}", text)
                for seat, text in filled.prompts()
            ]
            if filled.stops.goal:
                rendered.append(Rendered("goal", goal_question(filled.stops.goal.text, ())))
        case Question() as question:
            asked = question.asked(facts)
            rendered.append(Rendered(f"question to the {asked.role}", asked.prompt))
        case Translate() as translate:
            code = next(iter(translate.languages), "English")
            text = translate.asked("Solution: Hello!\n\nNext request.", code)
            rendered.append(Rendered("translation of a message", text))
    return rendered
