"""Reads a scenario's folder, `scenario.toml` and the texts that it names, and writes the folder of a new scenario.

The one decision to know: reading continues after a mistake if possible, so that all mistakes are reported at once. Files are
read only from the scenario's own folder, because an untrusted scenario could otherwise send any file to an endpoint.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from camel.core import inception as prompts
from camel.core.checks import shown, similar
from camel.core.dialogue import Dialogue
from camel.core.errors import InputError
from camel.core.memory import HistoryPolicy
from camel.core.message import Sampling
from camel.core.plugins import Plugin, Registry
from camel.core.results import ResultSettings
from camel.scenarios.critics import CriticSettings
from camel.scenarios.lists import NamedList, read_lists
from camel.scenarios.scenario import DEFAULT_ASK, Level, Meeting, Question, RolePlay, Scenario, Translate
from camel.scenarios.societies import SOCIETY_FILE, parse_declaration, read_society
from camel.tools.settings import ToolSettings

FILE = "scenario.toml"
QUESTIONS = Path(__file__).parent / "table2"
"""The fixed questions for the paper's Table 2, one file per domain."""


class ScenarioProblem(NamedTuple):
    """An error in a scenario, or something that is rarely intended."""

    where: str
    """The file or the level."""
    message: str
    """One line with the problem and what to do."""
    severity: Literal["error", "warning"] = "error"
    """`error` prevents the scenario from being loaded."""

    def __str__(self) -> str:
        return f"{self.severity}: {self.where}: {self.message}"


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the declaration. Texts are given as names of files."""


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
    history: HistoryPolicy | None = None
    assistant_tools: tuple[str, ...] = ()
    user_tools: tuple[str, ...] = ()
    hear_actions: bool = False
    world: str = ""


_UNSET = ("stop_rules", "history", "assistant_tools", "user_tools", "hear_actions", "world")
"""Fields that are unset if they are empty, so that older fingerprints stay the same."""


class SocietyTable(_Table, frozen=True, kw_only=True):
    """`[society]`."""

    task: str = ""
    file: str = SOCIETY_FILE
    sampling: Sampling | None = None
    history: HistoryPolicy | None = None


class Declaration(_Table, frozen=True, kw_only=True):
    """The contents of `scenario.toml`."""

    title: str
    levels: tuple[LevelTable, ...] = ()
    role_play: RolePlayTable | None = None
    society: SocietyTable | None = None
    dialogue: Dialogue | None = None
    question: Question | None = None
    translate: Translate | None = None
    critic: CriticSettings | None = None
    result: ResultSettings | None = None
    tools: ToolSettings | None = None
    labels: tuple[str, ...] = ()
    requires_acknowledgement: bool = False
    canary: str = ""


def shipped() -> list[str]:
    """Return the names of the scenarios that come with CAMEL."""
    return sorted(path.parent.name for path in Path(__file__).parent.glob(f"*/{FILE}"))


def _plugged(plugin: Plugin, part: Any) -> Path:
    """Return the folder of a plug-in's scenario: that of a package, or a path."""
    places: list[Any] = list(getattr(part, "__path__", [])) or [part]
    try:
        folder = Path(places[0])
    except TypeError:
        raise plugin.failed("must be a package or path that contains a scenario") from None
    if not (folder / FILE).is_file():
        raise plugin.failed(f"has no {FILE} in its folder")
    return folder


PLUGGED: Registry[Path] = Registry("scenarios", {}, _plugged, kind="scenario")
"""Folders of scenarios in installed packages, by name."""


def known() -> list[str]:
    """Return the names of all scenarios: those that come with CAMEL, then those of plug-ins."""
    own = shipped()
    return own + [name for name in PLUGGED if name not in own]


def folder_of(name_or_path: str | Path) -> Path:
    """Return the folder of a scenario: by name for a shipped one or a plug-in's, by path for your own."""
    text = str(name_or_path)
    if isinstance(name_or_path, str) and text in shipped():
        return Path(__file__).parent / text
    path = Path(text).expanduser()
    if path.name == FILE and path.is_file():
        return path.parent
    if path.is_dir():
        return path
    if isinstance(name_or_path, Path) or "/" in text or "\\" in text:
        raise InputError(
            f"there is no folder '{text}': create one with `camel scenarios new {shlex.quote(text)}`"
        )
    if text in PLUGGED:
        return PLUGGED[text]
    raise InputError(
        f"there is no scenario {text!r}{similar(text, known())}. Use one of {', '.join(known())}"
    )


def read(path: Path) -> tuple[Scenario | None, list[ScenarioProblem]]:
    """Read a scenario's folder as far as possible, with its problems. The scenario is None if it is incomplete."""
    folder = _Folder(path)
    declaration = folder.declaration()
    if declaration is None:
        return None, folder.problems
    levels = tuple(_level(table, folder) for table in declaration.levels)
    end = _end(declaration, folder)
    if declaration.tools and declaration.tools.allow:
        folder.report(FILE, "only the user can allow tools: move allow to [tools] of the configuration")
    if end is None:
        return None, folder.problems
    scenario = Scenario(
        name=path.resolve().name,
        title=declaration.title,
        levels=levels,
        end=end,
        labels=declaration.labels,
        requires_acknowledgement=declaration.requires_acknowledgement,
        canary=declaration.canary,
        result=_result(declaration.result, folder),
        tools=declaration.tools or msgspec.UNSET,
    )
    return scenario, folder.problems


class _Folder:
    """The files of a scenario, and their problems."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.problems: list[ScenarioProblem] = []

    def report(self, where: str, message: str) -> None:
        self.problems.append(ScenarioProblem(where, message))

    def text(self, name: str) -> str:
        """Return the text of a file, or an empty string if it cannot be read."""
        path = self._path / name
        try:
            if not path.resolve().is_relative_to(self._path.resolve()):
                self.report(FILE, f"'{name}' is outside the scenario's folder. Copy the file into the folder")
                return ""
            text = path.read_text("utf-8-sig").strip()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            said = f"cannot read '{name}' ({reason}). Create the file, or correct its name"
            if isinstance(error, OSError) and len(name.split()) > 2:
                said = (
                    f"{shown(name)} should be a file name, but looks like the text itself. Put the text into a file in this "
                    "folder, such as prompt.txt, and write that name"
                )
            self.report(FILE, said)
            return ""
        if not text:
            self.report(name, "the file is empty. Write the text")
        return text

    def declaration(self) -> Declaration | None:
        try:
            text = (self._path / FILE).read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            said = (
                f"cannot be read: {error.strerror}"
                if isinstance(error, OSError)
                else f"is not UTF-8 text: {error}"
            )
            if isinstance(error, FileNotFoundError):
                said = f"{self._path} has no {FILE}: create a scenario with `camel scenarios new NAME`"
            self.report(FILE, said)
            return None
        declaration, problems = parse_declaration(text, Declaration)
        for message in problems:
            self.report(FILE, message)
        return declaration


def _level(table: LevelTable, folder: _Folder) -> Level:
    where = f"level {table.name}"
    if table.items and table.file:
        folder.report(where, "both items and file are set. Remove one of them")
    if not (table.prompt or table.items or table.file):
        folder.report(
            where,
            "the level has no list. Add the key 'items' or 'file' (the list itself), or 'prompt' (a model writes it)",
        )
    items, nested = table.items, ()
    if table.file and (text := folder.text(table.file)):
        items, nested = _items(text, table.file, folder)
    count = table.count
    if count is None:
        count = len(items or (nested and nested[0].items)) or 1
        if table.prompt:
            folder.report(where, "count is missing. Set the number of items to ask for, such as count = 10")
    return Level(
        name=table.name,
        count=count,
        prompt=folder.text(table.prompt) if table.prompt else "",
        items=items,
        nested=nested or msgspec.UNSET,
        ask=table.ask,
        names=table.names,
        sampling=table.sampling,
    )


def _result(table: ResultSettings | None, folder: _Folder) -> ResultSettings | msgspec.UnsetType:
    try:
        return table.load(folder.text) if table else msgspec.UNSET
    except InputError as error:
        folder.report(FILE, str(error))
        return msgspec.UNSET


def _items(text: str, name: str, folder: _Folder) -> tuple[tuple[str, ...], tuple[NamedList, ...]]:
    """Return the items of a list without headings, and the lists under headings. One of the two is empty."""
    found = read_lists(text, source=name)
    if [one.parents for one in found] == [()]:
        return found[0].items, ()
    if len({len(one.parents) for one in found}) > 1 or not all(one.parents for one in found):
        folder.report(
            name,
            "the headings of its lists must all have the same number of parts, or there must be one list without headings",
        )
        return (), ()
    return (), tuple(found)


def _end(
    declaration: Declaration, folder: _Folder
) -> RolePlay | Meeting | Dialogue | Question | Translate | None:
    ends = [declaration.role_play, declaration.society, declaration.dialogue]
    ends += [declaration.question, declaration.translate]
    last = f"<{declaration.levels[-1].name.upper()}>" if declaration.levels else ""
    if declaration.critic and not declaration.role_play:
        folder.report(FILE, "a [critic] needs a [role_play]: remove [critic]")
    match [end for end in ends if end is not None]:
        case [RolePlayTable() as play]:
            files = {
                "assistant": play.assistant_prompt,
                "user": play.user_prompt,
                "specifier": play.specifier,
                "opening": play.opening,
            }
            own = {name: folder.text(file) for name, file in files.items() if file}
            given = {name: getattr(play, name) for name in RolePlay.__struct_fields__ if hasattr(play, name)}
            given |= {name: given[name] or msgspec.UNSET for name in _UNSET}
            inception = replace(prompts.paper(), **own)
            return RolePlay(inception=inception, critic=declaration.critic or msgspec.UNSET, **given)
        case [SocietyTable() as meeting]:
            society, problems = read_society(folder.text(meeting.file))
            for message in problems:
                folder.report(meeting.file, message)
            society = society and replace(society, history=meeting.history or society.history)
            task = meeting.task or (society.task if society else "") or last
            return society and Meeting(society=society, task=task, sampling=meeting.sampling)
        case [Dialogue() as dialogue]:
            if dialogue.model is not None:
                folder.report(FILE, "[dialogue] must not have a model: set it in the configuration")
            files = {seat.name: folder.text(seat.prompt) for seat in dialogue.seats if seat.prompt}
            seats = (replace(seat, prompt=files.get(seat.name, "")) for seat in dialogue.seats)
            return replace(dialogue, seats=tuple(seats))
        case [Question() as question]:
            return replace(question, prompt=folder.text(question.prompt), problem=question.problem or last)
        case [Translate() as translate]:
            return replace(translate, prompt=folder.text(translate.prompt))
        case several:
            folder.report(
                FILE,
                f"it has {len(several)} of [role_play], [society], [dialogue], [question] and [translate]. "
                "Keep exactly one of them",
            )
            return None


_NEW = Path(__file__).parent / "new"


def scaffold(path: str | Path, title: str = "") -> Path:
    """Write a new scenario's folder and return it. Never overwrites anything."""
    folder = Path(path)
    if str(path) in known():
        raise InputError(f"'{path}' is the name of a shipped scenario: choose another name")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"'{folder}' already exists: choose another name, or remove the folder")
    title = " ".join(title.split()) or folder.resolve().name.replace("_", " ").replace("-", " ").title()
    if not title.isprintable():
        raise InputError("the title contains characters that cannot be printed")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A JSON string of printable characters is also a TOML string.
        quoted = json.dumps(title, ensure_ascii=False)
        for source, name in (("declaration.txt", FILE), ("experts.txt",) * 2, ("tasks.txt",) * 2):
            text = (_NEW / source).read_text("utf-8").replace("{title}", quoted)
            (folder / name).write_text(text, "utf-8")
    except OSError as error:
        raise InputError(f"cannot write '{folder}': {error.strerror}") from None
    return folder
