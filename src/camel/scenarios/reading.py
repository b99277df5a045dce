"""Reads a scenario's folder: `scenario.toml` and the texts that it names.

The one decision to know: reading goes on after a mistake where it can, so that somebody who writes a scenario learns
of all mistakes at once. Files are read from the scenario's own folder only: a scenario may come from a stranger, and
what it names is sent to an endpoint.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import msgspec

from camel.core import inception as prompts
from camel.core.checks import shown, similar
from camel.core.errors import InputError
from camel.core.inception import Inception
from camel.core.message import Sampling
from camel.core.plugins import Plugin, Registry
from camel.scenarios.critics import CriticSettings
from camel.scenarios.lists import read_lists
from camel.scenarios.scenario import DEFAULT_ASK, Level, Meeting, Question, RolePlay, Scenario, Translate
from camel.scenarios.societies import SOCIETY_FILE, read_society

FILE = "scenario.toml"


class ScenarioProblem(NamedTuple):
    """Something about a scenario that is wrong, or that is seldom meant."""

    where: str
    """The file or the level."""
    message: str
    """One line that says what to do."""
    severity: Literal["error", "warning"] = "error"
    """An error keeps the scenario from being loaded."""

    def __str__(self) -> str:
        return f"{self.severity}: {self.where}: {self.message}"


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the declaration; in it, texts are still names of files."""


class LevelTable(_Table, frozen=True, kw_only=True):
    """`[[levels]]`."""

    name: str
    count: int | None = None
    prompt: str = ""
    items: tuple[str, ...] = ()
    file: str = ""
    ask: int = DEFAULT_ASK
    names: bool | None = None
    sampling: Sampling | None = None


class RolePlayTable(_Table, frozen=True, kw_only=True):
    """`[role_play]`."""

    assistant: str
    user: str
    task: str
    assistant_prompt: str = ""
    user_prompt: str = ""
    specifier: str = ""
    opening: str = ""
    sampling: Sampling | None = None
    specify: bool = True
    word_limit: int = 50
    specifier_sampling: Sampling | None = None
    max_messages: int = 40
    stop_rules: tuple[str, ...] = ()


class SocietyTable(_Table, frozen=True, kw_only=True):
    """`[society]`."""

    task: str = ""
    file: str = SOCIETY_FILE
    sampling: Sampling | None = None


class QuestionTable(_Table, frozen=True, kw_only=True):
    """`[question]`."""

    prompt: str
    problem: str = ""
    role: str = "Expert"
    sampling: Sampling | None = None


class TranslateTable(_Table, frozen=True, kw_only=True):
    """`[translate]`."""

    prompt: str
    languages: dict[str, str]
    keep: tuple[str, ...] = ()
    sampling: Sampling | None = None


class Declaration(_Table, frozen=True, kw_only=True):
    """The whole of `scenario.toml`."""

    title: str
    levels: tuple[LevelTable, ...] = ()
    role_play: RolePlayTable | None = None
    society: SocietyTable | None = None
    question: QuestionTable | None = None
    translate: TranslateTable | None = None
    critic: CriticSettings | None = None
    labels: tuple[str, ...] = ()
    requires_acknowledgement: bool = False
    canary: str = ""


def shipped() -> list[str]:
    """The names of the scenarios that come with CAMEL."""
    return sorted(path.parent.name for path in Path(__file__).parent.glob(f"*/{FILE}"))


def _plugged(plugin: Plugin, part: Any) -> Path:
    """The folder of a plug-in's scenario: that of a package, or a path."""
    places: list[Any] = list(getattr(part, "__path__", [])) or [part]
    try:
        folder = Path(places[0])
    except TypeError:
        raise plugin.failed("must name a package with a scenario in its folder, or be a path") from None
    if not (folder / FILE).is_file():
        raise plugin.failed(f"has no {FILE} in its folder")
    return folder


PLUGGED: Registry[Path] = Registry("scenarios", {}, _plugged, kind="scenario")
"""The folders of scenarios that installed packages bring, by name."""


def known() -> list[str]:
    """The names of the scenarios that can be had by name: those that come with CAMEL, then those of plug-ins."""
    own = shipped()
    return own + [name for name in PLUGGED if name not in own]


def folder_of(name_or_path: str | Path) -> Path:
    """The folder of a scenario: a shipped one's by its name, a user's own by its path, a plug-in's by its name."""
    text = str(name_or_path)
    if isinstance(name_or_path, str) and text in shipped():
        return Path(__file__).parent / text
    path = Path(text).expanduser()
    if path.name == FILE and path.is_file():
        return path.parent
    if path.is_dir():
        return path
    if isinstance(name_or_path, Path) or "/" in text or "\\" in text:
        raise InputError(f"there is no folder {text}: make one with camel scenarios new {text}")
    if text in PLUGGED:
        return PLUGGED[text]
    raise InputError(f"there is no scenario {text!r}{similar(text, known())}; known: {', '.join(known())}")


def read(folder: Path) -> tuple[Scenario | None, list[ScenarioProblem]]:
    """Read a folder as far as possible; the scenario is None where there is not enough for one."""
    problems: list[ScenarioProblem] = []
    declaration = _declaration(folder, problems)
    if declaration is None:
        return None, problems
    texts = _Texts(folder, problems)
    levels = tuple(_level(table, texts) for table in declaration.levels)
    end = _end(declaration, texts)
    if end is None:
        return None, problems
    scenario = Scenario(
        name=folder.resolve().name,
        title=declaration.title,
        levels=levels,
        end=end,
        labels=declaration.labels,
        requires_acknowledgement=declaration.requires_acknowledgement,
        canary=declaration.canary,
    )
    return scenario, problems


class _Texts:
    """The text files of a folder, and what is wrong with them."""

    def __init__(self, folder: Path, problems: list[ScenarioProblem]) -> None:
        self._folder = folder
        self.problems = problems

    def read(self, name: str) -> str:
        path = self._folder / name
        try:
            if not path.resolve().is_relative_to(self._folder.resolve()):
                self.problems.append(
                    ScenarioProblem(FILE, f"{name} is outside the scenario's folder: copy it into the folder")
                )
                return ""
            text = path.read_text("utf-8-sig").strip()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            said = f"cannot read {name}: {reason}; write the file or correct its name"
            if isinstance(error, OSError) and len(name.split()) > 2:
                said = (
                    f"{shown(name)} stands where a file is named, and looks like the text itself: put the text into a file "
                    "beside this one, such as prompt.txt, and name that"
                )
            self.problems.append(ScenarioProblem(FILE, said))
            return ""
        if not text:
            self.problems.append(ScenarioProblem(name, "the file is empty: write the text"))
        return text


def _declaration(folder: Path, problems: list[ScenarioProblem]) -> Declaration | None:
    try:
        text = (folder / FILE).read_text("utf-8-sig")
        table = tomllib.loads(text)
    except FileNotFoundError:
        problems.append(
            ScenarioProblem(FILE, f"{folder} has no {FILE}: make a folder with camel scenarios new NAME")
        )
        return None
    except OSError as error:
        problems.append(ScenarioProblem(FILE, f"cannot be read: {error.strerror}"))
        return None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        problems.append(ScenarioProblem(FILE, f"is not valid TOML: {' '.join(str(error).split())}"))
        return None
    _drop_unknown(table, Declaration, "", problems)
    tables: list[tuple[str, Any, type[msgspec.Struct]]] = [
        ("role_play", table.get("role_play"), RolePlayTable),
        ("society", table.get("society"), SocietyTable),
        ("question", table.get("question"), QuestionTable),
        ("translate", table.get("translate"), TranslateTable),
        ("critic", table.get("critic"), CriticSettings),
    ]
    levels: Any = table.get("levels")
    if isinstance(levels, list):
        numbered = enumerate(cast("list[Any]", levels))
        tables += [(f"levels[{number}]", level, LevelTable) for number, level in numbered]
    for name, inner, kind in tables:
        if isinstance(inner, dict):
            _drop_unknown(cast("dict[str, Any]", inner), kind, f" in {name}", problems)
    try:
        return msgspec.convert(table, Declaration)
    except msgspec.ValidationError as error:
        problems.append(ScenarioProblem(FILE, str(error).replace("`", "").replace("$.", "")))
        return None


def _drop_unknown(
    table: dict[str, Any], kind: type[msgspec.Struct], where: str, problems: list[ScenarioProblem]
) -> None:
    known = kind.__struct_fields__
    for key in sorted(table.keys() - set(known)):
        del table[key]
        problems.append(
            ScenarioProblem(
                FILE, f"unknown key {key!r}{where}{similar(key, known)}; known: {', '.join(known)}"
            )
        )


def _level(table: LevelTable, texts: _Texts) -> Level:
    where = f"level {table.name}"
    given = [name for name in ("prompt", "items", "file") if getattr(table, name)]
    if len(given) != 1:
        texts.problems.append(
            ScenarioProblem(where, f"give one of prompt, items and file, not {' and '.join(given) or 'none'}")
        )
    items = table.items
    if table.file and (text := texts.read(table.file)):
        items = _items(text, table.file, texts)
    count = table.count
    if count is None:
        count = len(items) or 1
        if table.prompt:
            texts.problems.append(
                ScenarioProblem(where, "count is missing: say how many to ask for, e.g. count = 10")
            )
    return Level(
        name=table.name,
        count=count,
        prompt=texts.read(table.prompt) if table.prompt else "",
        items=items,
        ask=table.ask,
        names=table.names,
        sampling=table.sampling,
    )


def _items(text: str, name: str, texts: _Texts) -> tuple[str, ...]:
    found = read_lists(text, source=name)
    if len(found) != 1 or found[0].parents:
        texts.problems.append(
            ScenarioProblem(name, "must hold one list without headings: one item on each line")
        )
        return ()
    return found[0].items


def _end(declaration: Declaration, texts: _Texts) -> RolePlay | Meeting | Question | Translate | None:
    ends = [declaration.role_play, declaration.society, declaration.question, declaration.translate]
    last = f"<{declaration.levels[-1].name.upper()}>" if declaration.levels else ""
    if declaration.critic and not declaration.role_play:
        texts.problems.append(
            ScenarioProblem(FILE, "a [critic] needs a [role_play] to listen to: take it out")
        )
    match [end for end in ends if end is not None]:
        case [RolePlayTable() as play]:
            paper = prompts.paper()
            return RolePlay(
                assistant=play.assistant,
                user=play.user,
                task=play.task,
                inception=Inception(
                    assistant=texts.read(play.assistant_prompt) if play.assistant_prompt else paper.assistant,
                    user=texts.read(play.user_prompt) if play.user_prompt else paper.user,
                    specifier=texts.read(play.specifier) if play.specifier else paper.specifier,
                    opening=texts.read(play.opening) if play.opening else paper.opening,
                ),
                sampling=play.sampling,
                specify=play.specify,
                word_limit=play.word_limit,
                specifier_sampling=play.specifier_sampling,
                max_messages=play.max_messages,
                stop_rules=play.stop_rules or msgspec.UNSET,
                critic=declaration.critic or msgspec.UNSET,
            )
        case [SocietyTable() as meeting]:
            society, problems = read_society(texts.read(meeting.file))
            texts.problems += [ScenarioProblem(meeting.file, message) for message in problems]
            task = meeting.task or (society.task if society else "") or last
            return society and Meeting(society=society, task=task, sampling=meeting.sampling)
        case [QuestionTable() as question]:
            return Question(
                prompt=texts.read(question.prompt),
                problem=question.problem or last,
                role=question.role,
                sampling=question.sampling,
            )
        case [TranslateTable() as translate]:
            return Translate(
                prompt=texts.read(translate.prompt),
                languages=translate.languages,
                keep=translate.keep,
                sampling=translate.sampling,
            )
        case several:
            texts.problems.append(
                ScenarioProblem(
                    FILE,
                    f"has {len(several)} of [role_play], [society], [question] and [translate]: say with exactly one "
                    "how the scenario ends",
                )
            )
            return None
