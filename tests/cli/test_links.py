"""A stranger's run with symbolic links: no command reads, writes or removes anything outside of it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from camel.core.errors import CamelError
from camel.core.message import Usage
from camel.core.model import Choice, Reply
from camel.engine.stage import JournaledStep, write_step
from camel.explorer.maps import map_of, maps_in
from camel.library.run import Run
from camel.models.simulator import Constant, SimulatorProcess, SimulatorSettings
from camel.query.catalogue import Catalogue
from camel.query.where import Query
from camel.runs.run import DRIVER, RunFolder
from tests.support import command
from tests.support.endpoints import serve
from tests.support.mapped import mapped
from tests.support.untouched import Witness

STAGE = "conversations"
CONFIG = """
scenario = "ai_society"
out = "run"
shard_size = 2
counts = {{ assistant_role = 2, user_role = 2, task = 1 }}
[model]
name = "simulated"
base_url = "{url}"
"""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[SimulatorProcess]:
    with serve(SimulatorSettings(length=Constant(3))) as process:
        yield process


def camel(*args: str, cwd: Path, url: str) -> Any:
    return command.camel(*args, cwd=cwd, OPENAI_API_KEY="none", OPENAI_BASE_URL=url)


@pytest.fixture(scope="module")
def made(endpoint: SimulatorProcess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that has everything a run can have."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "config.toml").write_text(CONFIG.format(url=endpoint.base_url))
    for args in (
        ("generate", "config.toml"),
        ("translate", "run", "--to", "de", "--model", "simulated"),
        ("run", "compact", "run"),
        ("run", "index", "run", "--text", "--findings"),
        ("study", "run"),
        ("evaluate", "agents", "run", "--model", "simulated", "--judge", "simulated", "--sample", "1"),
        ("run", "pause", "run"),
    ):
        done = camel(*args, cwd=folder, url=endpoint.base_url)
        assert done.status == 0, (args, done.stderr)
    mapped(folder / "run")
    # Journals of a shard that is committed, and of one that is not.
    run = RunFolder(folder / "run")

    async def journal(shard: int) -> None:
        log = run.open_journal(STAGE, shard, "earlier")
        reply = write_step(Reply((Choice("said"),), Usage(1, 1, 0, 1)))
        await log.append(write_step(JournaledStep(shard, 0, b"check", reply)))
        await log.close()

    asyncio.run(journal(0))
    asyncio.run(journal(9))
    (run.root / DRIVER).write_text("0.0")
    (run.root / "now.json").write_text("{}")
    return folder


FEW = ("committed", "journal", "stages")
CORE = (*FEW, "data", "compacted")
PARTS = {
    **dict.fromkeys(("status", "list", "pause", "stop", "resume", "plan"), FEW),
    "index": (*CORE, "index", "text", "study"),
    "study": ("committed", "data", "study"),
    "evaluate": ("committed", "data", "evaluation"),
    "vote": ("evaluation",),
    "map": ("committed", "data", "map"),
    "explore": (*CORE, "index", "text", "map"),
    "site": ("committed", "data", "index"),
}
"""Parts of a run that a command uses; `CORE` unless given."""
ALIKE = re.compile(
    r"/(assistant_role|user_role|task|translated-de|answer-\w+|repeat-\w+|summary-\w+)|\.(idx|pos|term|store|fieldnorm|png|svg)$"
)
"""Places like others in the same folder."""


def places(run: Path) -> list[str]:
    """Every folder of a run and one file of each kind in it, and names that a start makes and that are not there."""
    found: dict[tuple[str, str], str] = {}
    for path in sorted(run.rglob("*")):
        name = path.relative_to(run)
        last = str(name) if path.is_dir() or not name.parts[1:] else path.suffix
        found.setdefault((str(name.parent), last), str(name))
    missing = [
        f"{DRIVER}.new",
        f"{DRIVER}.now",
        ".now.json",
        "claim.json",
        "holders",
        "scratch",
        "holder.json",
    ]
    return sorted({*found.values(), *missing})


def chosen(command: str, run: Path) -> list[str]:
    """Places below the parts that a command uses; right in the run, where all commands look for links, of one command."""
    parts = PARTS.get(command, CORE)
    return [
        place
        for place in places(run)
        if (not ALIKE.search(place) and "/" in place and place.partition("/")[0] in parts)
        or (command == "translate" and "translated-de" in place)
        or (command == "generate" and "/" not in place)
        or (command == "vote" and place == "evaluation")
    ]


def explore(run: Path) -> None:
    with Catalogue([run]) as catalogue:
        query = Query(text="the")
        for row in catalogue.page(limit=50).rows:
            catalogue.conversation(row.run, row.id)
            catalogue.check(row.run, row.id)
        catalogue.facets()
        catalogue.search(query)
        for name, kinds in maps_in(catalogue).items():
            for kind in kinds:
                map_of(catalogue, name, kind)


def read(run: Path) -> None:
    for stage in ("", "translated-de"):
        opened = Run(run, stage)
        list(opened)
        opened.to_arrow()
        opened.sql("select count(*) from run").fetchall()


COMMANDS: dict[str, tuple[str, ...] | Callable[[Path], object]] = {
    "status": ("run", "status", "run"),
    "list": ("run", "list", "run"),
    "show": ("show", "run"),
    "pause": ("run", "pause", "run"),
    "stop": ("run", "stop", "run"),
    "resume": ("run", "resume", "run"),
    "plan": ("plan", "config.toml"),
    "generate": ("generate", "config.toml"),
    "translate": ("translate", "run", "--to", "de", "--model", "simulated"),
    "verify": ("run", "verify", "run"),
    "compact": ("run", "compact", "run", "--file-size", "1"),
    "gc": ("run", "gc", "run", "--compacted", "--yes"),
    "index": ("run", "index", "run", "--text", "--findings"),
    "study": ("study", "run"),
    "evaluate": (
        "evaluate",
        "agents",
        "run",
        "--model",
        "simulated",
        "--judge",
        "simulated",
        "--sample",
        "2",
    ),
    "vote": ("vote", "run/evaluation", "--results"),
    "export": ("export", "run", "chat", "out.jsonl", "--force"),
    "rows": ("rows", "run", "--markers", "--out", "rows", "--force"),
    "site": ("export", "run", "site", "site", "--force"),
    "map": mapped,
    "explore": explore,
    "read": read,
}


def plant(folder: Path, made: Path, place: str) -> None:
    """A copy of the run in which one place is a link to the same thing outside, which is as good as the run's own."""
    shutil.copytree(made, folder)
    outside = folder / "outside" / "target"
    outside.parent.mkdir()
    link = folder / "run" / place
    if link.exists():
        shutil.move(link, outside)
    else:
        outside.write_text("0.0")
    link.symlink_to(outside)


def use(name: str, folder: Path, url: str) -> str:
    """Run a command, and return what it printed."""
    doing = COMMANDS[name]
    if isinstance(doing, tuple):
        done = camel(*doing, cwd=folder, url=url)
        return done.stdout + done.stderr
    try:
        doing(folder / "run")
    except (CamelError, OSError) as error:
        return str(error)
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_outside_is_touched(name: str, made: Path, endpoint: SimulatorProcess, tmp_path: Path):
    check_places(name, chosen(name, made / "run"), made, endpoint, tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_outside_is_touched_wherever_the_link_is(
    name: str, made: Path, endpoint: SimulatorProcess, tmp_path: Path
):
    check_places(name, places(made / "run"), made, endpoint, tmp_path)


def check_places(name: str, some: list[str], made: Path, endpoint: SimulatorProcess, tmp_path: Path) -> None:
    refused = 0
    for number, place in enumerate(some):
        folder = tmp_path / str(number)
        plant(folder, made, place)
        target = folder / "outside" / "target"
        files = [one for one in (target, *target.rglob("*")) if one.is_file()]
        before = {path: path.read_bytes() for path in files}
        with Witness(folder / "outside") as witness:
            said = use(name, folder, endpoint.base_url)
            assert witness.events() == [], (place, said)
        assert {path: path.read_bytes() for path in files} == before, place
        refused += "is a symbolic link" in said and Path(place).name in said
        shutil.rmtree(folder)
    assert refused


def test_gc_does_not_remove_a_folder_elsewhere(tmp_path: Path):
    """A link at `journal/<stage>` to a folder whose files look like journals of a committed shard."""
    folder = RunFolder(tmp_path / "run")
    _a_committed_run(folder)
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "deep").mkdir(parents=True)
    for name in ("000000-taxes", "deep/000000-photos"):
        (elsewhere / name).write_text("mine")
    (folder.root / "journal").mkdir(exist_ok=True)
    (folder.root / "journal" / "stage").symlink_to(elsewhere)
    done = camel("run", "gc", "run", "--yes", cwd=tmp_path, url="")
    assert done.status == 1
    assert "run/journal/stage" in done.stderr
    assert sorted(path.name for path in elsewhere.rglob("*")) == ["000000-photos", "000000-taxes", "deep"]


def test_a_log_that_is_a_link_is_not_written_to(endpoint: SimulatorProcess, tmp_path: Path):
    """A start-up file of a shell, to which a model's name with a command in it would be appended."""
    text = CONFIG.format(url=endpoint.base_url)
    (tmp_path / "config.toml").write_text(text.replace('"simulated"', '"$(touch owned)"'))
    assert camel("generate", "config.toml", cwd=tmp_path, url="").status == 0
    startup, log = tmp_path / "bashrc", tmp_path / "run" / "log.jsonl"
    startup.write_text("alias ll='ls -l'\n")
    log.unlink()
    log.symlink_to(os.path.relpath(startup, log.parent))
    done = camel("generate", "config.toml", cwd=tmp_path, url="")
    assert done.status == 1
    assert "run/log.jsonl" in done.stderr
    assert startup.read_text() == "alias ll='ls -l'\n"


def _a_committed_run(folder: RunFolder) -> None:
    from camel.runs.markers import Marker
    from camel.runs.settings import Settings

    folder.create(Settings("f", {}, "0"))
    (folder.root / "data" / "stage").mkdir(parents=True)
    (folder.root / "data" / "stage" / "000000-x.jsonl").write_text("{}\n")
    folder.commit(Marker("stage", 0, "data/stage/000000-x.jsonl", 1, "0" * 64, "f"))
