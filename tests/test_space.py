"""The recipe of a Hugging Face Space: its files agree, and what it starts answers behind a proxy as it should."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from camel.core.message import Message
from camel.core.task import Task
from camel.core.transcript import Transcript
from camel.index.build import write_indexed
from camel.runs.markers import Marker, new_attempt
from camel.runs.run import open_folder
from camel.runs.settings import Settings

ROOT = Path(__file__).parent.parent
SPACE = ROOT / "deploy" / "space"
HOST = "example-society.hf.space"
TOKEN = "a-token-of-one-s-own-choice"


def test_the_files_agree():
    yaml = pytest.importorskip("yaml")
    text = (SPACE / "README.md").read_text()
    front = yaml.safe_load(text[4:].partition("\n---\n")[0])
    assert front["sdk"] == "docker"
    dockerfile = (SPACE / "Dockerfile").read_text()
    assert f"EXPOSE {front['app_port']}" in dockerfile
    assert f"PORT:-{front['app_port']}" in (SPACE / "start").read_text()
    assert "--uid 1000" in dockerfile, "Spaces run containers as this user"
    assert len(front["short_description"]) <= 60
    assert os.access(SPACE / "start", os.X_OK)
    subprocess.run(["sh", "-n", str(SPACE / "start")], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", str(SPACE / "start")], check=True)


def script(tmp_path: Path, **variables: str) -> list[str]:
    """The command that the script comes to."""
    stub = tmp_path / "bin" / "camel"
    stub.parent.mkdir(exist_ok=True)
    stub.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    stub.chmod(0o755)
    environment = {"PATH": f"{stub.parent}:{os.environ['PATH']}", **variables}
    done = subprocess.run(
        ["sh", str(SPACE / "start")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def started(tmp_path: Path, **variables: str) -> list[str]:
    """The same, where there are two runs."""
    for name in ("one", "two"):
        (tmp_path / "runs" / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "runs" / name / "run.json").touch()
    return script(tmp_path, **variables)


def test_what_it_starts(tmp_path: Path):
    plain = started(tmp_path)
    assert plain[:2] == ["explore", "runs"]
    assert "--public" not in plain, "visitors need a token unless CAMEL_PUBLIC is set"
    assert "--allow-host" not in plain
    public = started(tmp_path, CAMEL_PUBLIC="1", SPACE_HOST=HOST)
    assert "--public" in public
    assert public[public.index("--allow-host") + 1] == HOST
    agents = started(tmp_path, OPENAI_API_KEY="sk-secret", CAMEL_BUDGET="500")
    assert agents[:3] == ["agents", "runs/one", "runs/two"]
    assert agents[agents.index("--budget-tokens") + 1] == "500"
    assert "sk-secret" not in agents


@contextmanager
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **variables: str) -> Iterator[int]:
    """The command that the recipe's script comes to, served by a thread."""
    from tests.support.thread_server import ThreadServer

    folder = open_folder(tmp_path / "runs" / "one")
    folder.create(Settings("f", {"scenario": "x"}, "0"))
    data = folder.data_path("conversations", 0, new_attempt(), ".parquet")
    row = Transcript("1", Task("find a well"), messages=[Message(0, "user", "Nomad", "Hello")])
    written = write_indexed(folder, "conversations", data, [row], "f")
    file, size = folder.persist(data)
    folder.commit(Marker("conversations", 0, file, written.rows, written.sha256, "f", {}, size))
    command, *arguments = script(tmp_path, SPACE_HOST=HOST, **variables)
    monkeypatch.chdir(tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    server = ThreadServer(command, *arguments)
    try:
        assert TOKEN not in "".join(server.printed), "a secret is not for the log"
        yield int(server.url.rpartition(":")[2])
    finally:
        server.stop()


class Asker:
    """What comes through the proxy: the name of the Space as the host, and a browser's cookies."""

    def __init__(self, port: int, host: str = HOST) -> None:
        self.port, self.host, self.cookie = port, host, ""

    def get(self, path: str) -> tuple[int, str, dict[str, str]]:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers={"Host": self.host})
        if self.cookie:
            request.add_header("Cookie", self.cookie)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                status, text, headers = answer.status, answer.read().decode(), dict(answer.headers)
        except urllib.error.HTTPError as error:
            with error:
                status, text, headers = error.code, error.read().decode(), dict(error.headers)
        if "set-cookie" in headers:
            self.cookie = headers["set-cookie"].partition(";")[0]
        return status, text, headers


@pytest.mark.slow  # the first to import the explorer
def test_behind_the_proxy_with_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with space(tmp_path, monkeypatch, CAMEL_TOKEN=TOKEN) as port:
        reader = Asker(port)
        assert reader.get("/list")[0] == 401
        assert Asker(port, "evil.invalid").get(f"/list?token={TOKEN}")[0] == 421
        status, text, headers = reader.get(f"/list?token={TOKEN}")
        assert status == 200
        assert TOKEN not in text
        cookie = headers["set-cookie"]
        assert all(rule in cookie for rule in ("HttpOnly", "Secure", "SameSite=None", "Partitioned"))
        status, text, headers = reader.get("/list")
        assert (status, "find a well" in text) == (200, True)
        assert "frame-ancestors https://huggingface.co" in headers["content-security-policy"]
        assert "x-frame-options" not in headers
        assert reader.get("/consent")[0] == 200


@pytest.mark.slow
def test_for_everybody_with_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # No server listens at the endpoint: the form is there, and nothing is sent before a visitor starts.
    with space(
        tmp_path,
        monkeypatch,
        CAMEL_PUBLIC="1",
        CAMEL_BUDGET="500",
        OPENAI_API_KEY="sk-very-secret",
        OPENAI_BASE_URL="http://127.0.0.1:9/v1",
        CAMEL_MODEL="small",
    ) as port:
        status, text, _ = Asker(port).get("/play")
        assert status == 200
        assert re.search(r"\b0 of 500\b", text)
        assert "sk-very-secret" not in text
        assert "find a well" in Asker(port).get("/list")[1]
    assert (tmp_path / "runs" / "agents" / "run.json").exists() or os.access("/data", os.W_OK)


def test_a_token_that_is_too_short_is_refused():
    from camel.core.errors import InputError
    from camel.explorer.app import checked_token

    assert checked_token("") == ""
    assert checked_token(TOKEN) == TOKEN
    for wrong in ("short", "x" * 15, "x" * 300, "with a space in it so", "semi;colon-semi;colon", "ü" * 20):
        with pytest.raises(InputError, match="CAMEL_TOKEN"):
            checked_token(wrong)
