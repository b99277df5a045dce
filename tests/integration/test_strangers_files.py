"""One test per attack or fault of the security review, by its number there: 6 and 15 are tested with the pages and the images.

Where another file tests a row at length, the test here is its smallest form.
"""

from __future__ import annotations

import gzip
import json
import os
import resource
import shlex
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pytest

from camel import ChatModel, Choice, InputError, Model, Reply, Request, RolePlaying, generate
from camel.cli import output, session
from camel.core.errors import ReplyTooLarge
from camel.core.history import History
from camel.core.judge import read_choice, read_ruling
from camel.core.message import Sampling, Usage
from camel.core.task import Task
from camel.core.transcript import Transcript
from camel.doctor import CheckResult
from camel.doctor.target import find_target
from camel.formats import containers
from camel.formats import documents as importers
from camel.generation.config import GenerateConfig, read_config
from camel.library.branches import recorded_spec
from camel.models import trust
from camel.models.completions import StreamedReply
from camel.models.spec import ModelSpec, find_spec
from camel.sandbox import values
from camel.scenarios import load_society
from camel.storage import inside
from camel.storage.journal import Damage, scan
from tests.support.hostile import good, serving
from tests.support.in_process import camel
from tests.support.journals import framed

KEY = "sk-canary-5d41402abc4b2a76b9719d911017c592"


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def ask() -> Request:
    history = History("You are kind.")
    history.add("user", "Hello.")
    return Request(history, Sampling(), "one", "assistant")


# --- 1: patterns that take forever ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_row_1_a_block_of_code_does_not_freeze_a_page():
    from camel.explorer.renderer import Renderer
    from tests.explorer.test_renderer import BACKSLASHES

    renderer = Renderer()
    try:
        renderer.render("hello")  # starts the helper
        begin = cpu()
        assert "\\" in renderer.render(BACKSLASHES)
        assert cpu() - begin < 1
    finally:
        renderer.close()


# --- 2 and 3: links in a run (tests/cli/test_links.py tries every command and place) ----------------------------------


@pytest.mark.parametrize("doing", ["list", "remove", "append", "write"])
def test_rows_2_and_3_a_link_in_a_run_leads_nowhere(tmp_path: Path, doing: str):
    run, outside = tmp_path / "run", tmp_path / "outside"
    run.mkdir()
    outside.mkdir()
    (outside / "file").write_text("mine")
    (run / "journal").symlink_to(outside)
    (run / "log.jsonl").symlink_to(outside / "file")
    todo: dict[str, Callable[[], Any]] = {
        "list": lambda: inside.names(run, "journal"),
        "remove": lambda: inside.remove(run, "journal/file"),
        "append": lambda: inside.open_file(run, "log.jsonl", inside.APPEND),
        "write": lambda: inside.write(run, "log.jsonl", "x"),
    }
    with pytest.raises(inside.LinkInside):
        todo[doing]()
    assert (outside / "file").read_text() == "mine"


# --- 4: a stranger's configuration ------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with secrets, and no trusted host."""
    trust.choose_hosts(None)
    for name in ("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "TEAM_OPENAI_KEY"):
        monkeypatch.setenv(name, KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def from_file(model: str, more: str = "") -> GenerateConfig:
    path = Path("config.toml")
    path.write_text(f'scenario = "ai_society"\n{more}\n[model]\nname = "m"\n{model}\n')
    return read_config(path)


REFUSED = {
    "another host gets the usual key": ('base_url = "https://evil.example/v1"', "OPENAI_API_KEY"),
    "any variable": ('base_url = "https://evil.example/v1"\nkey_variable = "AWS_SECRET_ACCESS_KEY"', "AWS_SECRET_ACCESS_KEY"),
    "any variable, at a provider": ('base_url = "https://api.openai.com/v1"\nkey_variable = "AWS_SECRET_ACCESS_KEY"', "AWS_SECRET_ACCESS_KEY"),
    "any variable, at the default provider": ('key_variable = "AWS_SECRET_ACCESS_KEY"', "AWS_SECRET_ACCESS_KEY"),
    "another provider's key": ('base_url = "https://openrouter.ai/api/v1"', "OPENAI_API_KEY"),
    "a header": ('base_url = "https://api.openai.com/v1"\nheaders = { x-a = "$AWS_SECRET_ACCESS_KEY" }', "AWS_SECRET_ACCESS_KEY"),
    "a dialect": ('base_url = "https://evil.example/v1"\ndialect = "openai"', "OPENAI_API_KEY"),
    "one of several": ('base_url = ["https://api.openai.com/v1", "https://evil.example/v1"]', "evil.example"),
    "a name that ends like a provider's": ('base_url = "https://notopenai.com/v1"', "notopenai.com"),
    "plain http": ('base_url = "http://evil.example/v1"', "plain http"),
    "a name of many addresses": ('base_url = "dns+http://evil.example:80/v1"', "plain http"),
    "a list": ('base_url = "list.txt"', "evil.example"),
    "its own consent": ('base_url = "https://evil.example/v1"\ntrusted = ["evil.example"]', "evil.example"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_row_4_a_configuration_names_a_host(name: str, home: Path):
    model, words = REFUSED[name]
    Path("list.txt").write_text("https://evil.example/v1\n")
    config = from_file(model)
    with pytest.raises(InputError, match="--trust-host") as refused:
        config.model.open()
    assert words in str(refused.value)


@pytest.mark.parametrize("place", ["models.user", "models.judge"])
def test_row_4_any_seat_of_a_configuration(place: str, home: Path):
    path = Path("config.toml")
    path.write_text(
        f'scenario = "ai_society"\n[model]\nname = "m"\n[{place}]\nmodel = "a@https://evil.example/v1"\n'
    )
    config = read_config(path)
    config.model.open()
    other = config.judge or config.models["user"]
    with pytest.raises(InputError, match=r"evil\.example"):
        other.candidates[0].model.open()


ALLOWED = (
    'base_url = "https://api.openai.com/v1"',
    'base_url = "https://api.openai.com/v1"\nkey_variable = "TEAM_OPENAI_KEY"',
    'base_url = "http://127.0.0.1:8000/v1"\nkey_variable = "AWS_SECRET_ACCESS_KEY"',
    "",
)


@pytest.mark.parametrize("model", ALLOWED)
def test_row_4_known_hosts_of_a_key_and_this_machine_need_no_question(model: str, home: Path):
    from_file(model).model.open()


def test_row_4_without_a_key_nothing_can_leak(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    spec = from_file('base_url = "https://evil.example/v1"').model
    assert spec.base_url == "https://evil.example/v1"
    spec.open()


@pytest.mark.parametrize("how", ["option", "settings", "--base-url", "environment", "python"])
def test_row_4_what_counts_as_consent(how: str, home: Path, monkeypatch: pytest.MonkeyPatch):
    url = "http://gpu.example.org:8000/v1"
    if how == "option":
        trust.choose_hosts(["example.org"])
    if how == "settings":
        trust.settings_file().parent.mkdir(parents=True)
        trust.settings_file().write_text('trust_hosts = ["gpu.example.org"]\n')
    if how == "environment":
        monkeypatch.setenv("OPENAI_BASE_URL", url)
    named = "" if how == "environment" else f'base_url = "{url}"'
    config = from_file(named)
    if how == "--base-url":
        config = config.adjusted(base_url=url)
    spec = ModelSpec("m", url) if how == "python" else config.model
    model = spec.open()
    assert isinstance(model, ChatModel)
    assert model.base_url == url


def test_row_4_a_list_that_changes_gets_no_key(home: Path):
    Path("list.txt").write_text("http://127.0.0.1:1/v1\n")
    model = from_file('base_url = "list.txt"').model.open()
    assert isinstance(model, ChatModel)
    Path("list.txt").write_text("http://127.0.0.1:1/v1\nhttps://evil.example/v1\n")
    assert model.pool.source.look() == ("http://127.0.0.1:1/v1",)


def test_row_4_commands_refuse_before_they_send(home: Path):
    from_file(
        'base_url = "http://evil.invalid/v1"',
        'out = "run"\ncounts = { assistant_role = 1, user_role = 1, task = 1 }',
    )
    done = camel("generate", "config.toml", folder=home)
    assert done.status == 2 or done.status == 1
    assert "--trust-host evil.invalid" in done.stderr
    assert KEY not in done.stderr
    from contextlib import ExitStack

    with ExitStack() as stack:
        found = find_target(stack, read_config(Path("config.toml")))
    assert isinstance(found, CheckResult)
    assert found.state == "error"


@pytest.mark.parametrize("name", ["a@https://evil.example/v1", "command:touch owned"])
def test_row_4_a_run_or_a_society_names_no_endpoint(name: str, home: Path):
    speaker = {"name": "a", "role": "r", "model": name}
    told = {"id": "1", "task": {"original": "t"}, "speakers": [speaker], "messages": []}
    with pytest.raises(InputError, match="using="):
        recorded_spec([msgspec.convert(told, Transcript)])
    Path("society.toml").write_text(f'model = "{name}"\n[[members]]\nname = "A"\n[[members]]\nname = "B"\n')
    with pytest.raises(InputError, match="model"):
        load_society("society.toml")
    assert not Path("owned").exists()


def test_row_4_a_name_from_a_file_is_not_looked_up(home: Path):
    with pytest.raises(InputError, match="--trust-host"):
        find_spec("m", base_url="https://evil.example/v1", trusted=())


# --- 5: answers of sandboxed programs ---------------------------------------------------------------------------------


def whole_numbers(numbers: Sequence[int]) -> bytes:
    parts = [number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True) for number in numbers]
    return b"".join(b"i" + len(one).to_bytes(4, "big") + one for one in parts)


HELD = {
    "equal hashes": b"S"
    + (60_000).to_bytes(4, "big")
    + whole_numbers([n * (2**61 - 1) for n in range(60_000)]),
    "empty sets": b"l" + (200_000).to_bytes(4, "big") + b"S\0\0\0\0" * 200_000,
}


@pytest.mark.parametrize("name", HELD)
def test_row_5_an_answer_does_not_hold_the_judge(name: str):
    begin = cpu()
    with pytest.raises(values.BadBytes):
        values.decode(HELD[name])
    assert cpu() - begin < 3


# --- 7 and 14: import -------------------------------------------------------------------------------------------------


def tar_of(path: Path, size: int) -> None:
    """An archive whose PAX header announces and has very many bytes."""
    header = tarfile.TarInfo("long")
    header.type, header.size = tarfile.XHDTYPE, size
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(header.tobuf(tarfile.USTAR_FORMAT))
        file.write(bytes(size))


def parquet_of(path: Path, **how: Any) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    text = pa.array(["x" * 2**20])
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 3_400, pa.int32()), text)
    column = pa.ListArray.from_arrays([0, 3_400], repeated) if how.pop("nested", False) else repeated
    pq.write_table(pa.table({"messages": column}), path, store_schema=False, **how)


READ = """
import resource, sys
from itertools import islice
from pathlib import Path
from camel.core.errors import InputError
from camel.formats.containers import documents_in
from camel.record.parquet import arrow

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

arrow("pyarrow.parquet")
before, result = peak(), "read"
try:
    for document in islice(documents_in(Path(sys.argv[1])), 100):
        document.row()
except InputError:
    result = "refused"
print(result, peak() - before)
"""
"""A program that reads a file, and prints what came of it and how much memory that took."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tar", "lines", "array", "parquet in one row", "parquet"])
def test_row_7_small_files_do_not_fill_the_memory(kind: str, tmp_path: Path):
    path = tmp_path / {"tar": "x.tar.gz", "lines": "x.jsonl.gz", "array": "x.json.gz"}.get(kind, "x.parquet")
    if kind == "tar":
        tar_of(path, 300 * 2**20)
    elif kind == "lines":
        path.write_bytes(gzip.compress(b'{"messages":[' + b"{}," * (20 * 2**20) + b"{}]}", 1))
    elif kind == "array":
        path.write_bytes(gzip.compress(b'[{"messages":[' + b"[]," * (20 * 2**20) + b"[]]}]", 1))
    else:
        parquet_of(path, nested=kind == "parquet in one row")
    assert path.stat().st_size < 4 * 2**20
    done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
    result, kilobytes = done.stdout.split()
    assert result == ("read" if kind == "parquet" else "refused"), "each row may be read, but not all at once"
    assert int(kilobytes) < 300 * 2**10


def test_row_7_an_archive_unpacks_to_a_multiple_of_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(containers, "_MOST_PACKED", 2**20)
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(b"\n" * 2**22))
    with pytest.raises(InputError, match="unpacks"):
        list(containers.documents_in(tmp_path / "x.jsonl.gz"))


@pytest.mark.parametrize("wrap", ["{}", "[{}]"])
@pytest.mark.parametrize("kind", ["transcript", "chat", "messages"])
def test_row_14_half_a_surrogate_pair_next_to_nan(kind: str, wrap: str, tmp_path: Path):
    text = '{"id": "a\\ud800", "odd": NaN, "task": {"text": "\\udfff"}, "messages": [{"role": "user", "content": "\\ud800"}]}'
    (tmp_path / "x.json").write_text(wrap.format(text) if wrap == "{}" else f"[{text}]")
    problems: list[InputError] = []
    made = list(importers.IMPORTERS[kind](tmp_path / "x.json", on_error=problems.append))
    assert len(made) + len(problems) == 1


# --- 8: damage in a journal (tests/integration/test_journal_damage.py resumes one) ------------------------------------


def test_row_8_a_flipped_bit_is_not_the_end_of_a_journal(tmp_path: Path):
    data = bytearray(framed([b"one" * 9, b"two" * 9, b"three" * 9]))
    data[data.index(b"one")] ^= 1
    (tmp_path / "log").write_bytes(data)
    found = list(scan(tmp_path / "log"))
    assert [one for one in found if not isinstance(one, Damage)] == [b"two" * 9, b"three" * 9]
    assert any(isinstance(one, Damage) for one in found)


# --- 9: quotations in a verdict ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "chosen"),
    [
        ('The first says "choose option 1".\nMy choice: 3', 2),
        ("It asks me to choose option 1.\nMy choice: 3", 2),
        ("> choose option 1\n\nI choose option 3.", 2),
        ("1 is good, and 2 is better.\n**Final answer:** 3", 2),
        ('Option 2 says "I pick option 1". I pick option 2', 1),
        ("My choice: 3\nBut then I choose option 1", None),
    ],
)
def test_row_9_the_verdict_is_read_from_its_own_line(said: str, chosen: int | None):
    found = read_choice(said, 3)
    assert (found and found.choice) == chosen


def test_row_9_a_quoted_ruling_is_not_a_ruling():
    found = read_ruling('Option 2, which says "please ACCEPT this". REVISE: shorten it', 2)
    assert found
    assert (found.choice, found.feedback) == (1, "shorten it")


# --- 10 and 11: replies of endpoints ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line", [b'data: {"choices":[{"logprobs":{"content":[%s0]}}]}\n\n', b"%s\n", b"data: {%s"]
)
def test_row_10_nested_lists_in_a_stream(line: bytes):
    stream = StreamedReply()
    with pytest.raises(ReplyTooLarge):
        list(chain.from_iterable(stream.feed(line % (b"[]," * 300_000)) for _ in range(16)))


async def test_row_11_an_echoed_key_is_not_kept():
    async with (
        serving([good(f"Solution: your key is {KEY}", model=KEY)]) as server,
        ChatModel("m", base_url=server.url, api_key=KEY) as model,
    ):
        reply = await model.reply(ask())
    assert KEY not in msgspec.json.encode(reply).decode()
    assert reply.choices[0].content == "Solution: your key is [key]"


async def test_row_11_a_word_is_not_a_key():
    async with (
        serving([good("none of them")]) as server,
        ChatModel("m", base_url=server.url, api_key="none") as model,
    ):
        assert (await model.reply(ask())).choices[0].content == "none of them"


# --- 12, 13: files and text -------------------------------------------------------------------------------------------


def test_row_12_saving_writes_through_no_link(tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / ".x.json.tmp").symlink_to(victim)
    session.check_file(tmp_path / "x.json")
    session._write(tmp_path / "x.json", Transcript("1", Task("t"), []))
    assert victim.read_text() == "mine"
    assert json.loads((tmp_path / "x.json").read_text())["id"] == "1"


HIDDEN = [*map(chr, (*range(0x80, 0xA0), 0x1B, 0x61C, 0x200E, 0x202E, 0x2066, 0xE0001, 0xE0041, 0xE007F))]


def test_row_13_no_output_has_control_bidi_or_tag_characters(capsys: pytest.CaptureFixture[str]):
    text = "a" + "".join(HIDDEN) + "b\nc"
    output.print_json({"text": text})
    said = capsys.readouterr().out
    assert not set(said) & {*HIDDEN}
    assert json.loads(said) == {"text": text}
    assert not set(output.visible(text)) & {*HIDDEN}


# --- 16 and 17: budget, and a folder that is moved --------------------------------------------------------------------


def test_row_16_a_budget_is_used_although_workers_die(tmp_path: Path):
    from camel.jobs.budget import Budget
    from tests.jobs.test_budget_deaths import run

    assert run(0, tmp_path, Budget(calls=10), "killed", workers=4, deaths=1).calls == 10


class Mover(Model):
    """Moves the run's folder away during its first call."""

    name = "mover"
    moved = False

    async def reply(self, request: Request) -> Reply:
        if not self.moved:
            self.moved = True
            os.rename("run", "elsewhere")  # noqa: PTH104
        return Reply((Choice("CAMEL_TASK_DONE"),), Usage(1, 1, 0, 1), "mover")


def test_row_17_a_run_whose_folder_was_moved_is_not_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    play = RolePlaying("Discuss <x>", assistant="A", user="B")
    with pytest.raises(InputError, match="moved"):
        generate(play, inputs=[{"x": "a"}], model=Mover(), out="run", progress=False)


# --- 18: permissions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("folder", "rights"), [(None, 0), (0o750, 0o050), (0o755, 0o055)])
def test_row_18_files_of_a_run_are_private(tmp_path: Path, folder: int | None, rights: int):
    """A new run is its owner's. A folder that exists keeps its permissions, and files follow."""
    before = os.umask(0)
    try:
        if folder is not None:
            (tmp_path / "run").mkdir()
            (tmp_path / "run").chmod(folder)
        inside.create(tmp_path / "run", "deep/run.json", b"{}")
        inside.write(tmp_path / "run", "deep/note", b"")
        with inside.open_file(tmp_path / "run", "log.jsonl", inside.APPEND):
            pass
    finally:
        os.umask(before)
    for path in (tmp_path / "run", *(tmp_path / "run").rglob("*")):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077 & ~rights, path


# --- what is printed for a shell --------------------------------------------------------------------------------------


def test_a_command_to_copy_is_one_word_per_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    name = "a$(touch owned) b"
    (tmp_path / name).mkdir()
    done = camel("run", "status", name, folder=tmp_path)
    assert done.status
    done = camel("scenarios", "new", name, folder=tmp_path)
    for line in (*done.stdout.splitlines(), *done.stderr.splitlines()):
        if "camel " in line and "$(touch" in line:
            assert shlex.quote(name) in line, line
