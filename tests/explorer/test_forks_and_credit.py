"""Forks, branches and credit on the page of a conversation, with data that nobody can trust."""

from __future__ import annotations

import math
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from starlette.testclient import TestClient

import camel
from camel.core.errors import InputError
from camel.core.stops import DoneToken, MaxMessages
from camel.core.transcript import Transcript
from camel.evaluation.credit_report import ConversationCredit, CreditFigures, MessageCredit, Usage
from camel.explorer import credit_curve
from camel.explorer.forks import Fork, typed
from camel.explorer.rooms import Agents
from camel.library.branches import recorded_spec
from camel.models.scripted import ScriptedModel
from camel.models.simulator import SimulatorSettings, spawn
from camel.query.catalogue import Catalogue
from camel.runs.run import open_folder
from camel.runs.settings import Settings
from tests.library.test_forks import World, record
from tests.support.browser import Reader
from tests.support.explorer_client import client, form_token
from tests.support.payloads import PAYLOADS
from tests.support.societies import commit, society
from tests.support.thread_server import ThreadServer
from tests.support.waiting import wait_for
from tests.support.web_page import Page

HOSTILE = f"Solution: {' '.join(PAYLOADS[:40])} \x1b[201~\x03'; touch pwned; '"
ID = "--help"
"""The id of a conversation of a stranger's run."""


def made_run(root: Path, model: str = "") -> Transcript:
    """A run with one conversation of four messages."""
    one = record()
    one.id = ID
    one.messages[1] = replace(one.messages[1], content=HOSTILE)
    one.speakers = [replace(speaker, model=model) for speaker in one.speakers]
    folder = open_folder(root / "trial")
    folder.create(Settings("f", {"scenario": "x"}, "0"))
    commit(folder, 0, [one])
    return one


def credit(root: Path, one: Transcript, **changed: Any) -> CreditFigures:
    """What `camel credit` stores, with the third message as the decisive one."""
    values = [0.2, 0.2, 0.2, 0.8, 1.0]
    messages = [
        MessageCredit(
            n + 1, said.speaker, said.content, values[n + 1], (0.1, 0.9) if n < 3 else None,
            values[n + 1] - values[n], (0.25, 0.75) if n == 2 else (-0.1, 0.1), n > 0, [(HOSTILE, True)],
        )
        for n, said in enumerate(one.messages)
    ]  # fmt: skip
    its = msgspec.structs.replace(ConversationCredit(one.id, HOSTILE, True, 0.2, 3, messages), **changed)
    figures = CreditFigures([its], HOSTILE, 8, 0, Usage())
    (root / "trial/credit").mkdir(exist_ok=True)
    (root / "trial/credit/credit.json").write_bytes(msgspec.json.encode(figures))
    return figures


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setattr("camel.query.database.FRESH", -math.inf)
    made_run(tmp_path)
    with Catalogue([tmp_path / "trial"]) as catalogue:
        yield client(catalogue)


def send(app: TestClient, at: int = 2, start: bool = False, **form: Any) -> Any:
    asked = f"?id={ID}&at={at}"
    token = form_token(app.get(f"/fork/trial{asked}").text)
    return app.post(f"/fork/trial{'/start' if start else ''}{asked}", data={"token": token, "n": "3", **form})


def test_each_message_leads_to_the_form_of_a_fork(app: TestClient):
    page = Page(app.get(f"/conversation/trial?id={ID}").text)
    assert page.wrong == []
    links = [link for link in page.links if link.startswith("/fork/")]
    assert [link.rpartition("=")[2] for link in links] == ["1", "2", "3", "4"]
    form = Page(app.get(links[1]).text)
    assert form.wrong == []
    assert "20 branches, 10 with the change and 10 without it: about 40 calls" in form.said


def test_the_command_survives_a_shell(app: TestClient, tmp_path: Path):
    """The text of a stranger is one argument, and no part of it reaches the terminal as a key."""
    page = send(app, change="message", message=HOSTILE)
    assert Page(page.text).wrong == []
    words = [
        "camel",
        *Fork(str(tmp_path / "trial"), ID, 2, "message", HOSTILE, n=3).words("out $(touch pwned)"),
    ]
    line = typed(words)
    assert all(one.isprintable() or one == "\n" for one in line)
    shown = subprocess.run(
        ["bash", "-c", f'camel() {{ printf "%s\\0" "$@"; }}; {line}'],
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    assert shown.stdout.decode().split("\0")[:-1] == words[1:]
    assert not (tmp_path / "pwned").exists()
    assert words[-3:] == ["--", str(tmp_path / "trial"), ID]


def test_the_command_is_that_of_camel_fork(app: TestClient, tmp_path: Path):
    said = Page(send(app, at=3, change="role", role="Chef", **{"seat-role": "assistant"}).text).said
    line = said[said.index("camel fork --at") :].splitlines()[0]
    out = f"{tmp_path}/trial-branches---help-3"
    assert shlex.split(line) == [
        "camel", "fork", "--at=3", "-n", "3", "--role=Chef", "--seat=assistant", f"--out={out}", "--",
        f"{tmp_path}/trial", ID,
    ]  # fmt: skip
    assert "6 branches" in said
    assert "about 12 calls if each has 2 new messages" in said
    assert "The 2 messages before come from the record and are not paid for" in said


@pytest.mark.parametrize(
    "form",
    [
        {"change": "message", "message": "  "},
        {"change": "role", "role": "Chef"},
        {"change": "temperature", "temperature": "nan"},
        {"change": "exec", "exec": "x"},
        {"change": "without", "without": "x", "seat-without": "judge"},
        {"change": "", "n": "0"},
        {"change": "message", "message": "a\0b"},
    ],
)
def test_a_fork_that_cannot_be_made_is_explained(app: TestClient, form: dict[str, Any]):
    said = send(app, **form).text
    assert 'role="alert"' in said
    assert "camel fork" not in said


def test_only_the_agents_app_starts_a_fork(app: TestClient, tmp_path: Path):
    where = f"/fork/trial?id={ID}&at=2"
    assert 'id="start"' not in send(app, change="").text
    assert send(app, start=True, change="").status_code == 403
    for target in (where, where.replace("?", "/start?")):
        assert app.post(target, data={"change": ""}).status_code == 403, "without its token"
    with Catalogue([tmp_path / "trial"], annotations=False) as catalogue:
        agents = Agents(ScriptedModel(["x"]), tmp_path / "agents")
        public = client(catalogue, public=True, agents=agents)
        answer = send(public, change="")
        assert send(public, start=True, change="").status_code == 403
        assert "camel fork" in answer.text
        assert str(tmp_path) not in answer.text, "no path of the server"
        own = client(catalogue, agents=agents)
        assert 'id="start"' in send(own, change="").text
        refused = send(own, start=True, change="model", model="command:touch pwned")
        assert "copy the command" in Page(refused.text).said
    society(tmp_path / "caravan", rows=1, restricted=[0])
    with Catalogue([tmp_path / "caravan"]) as catalogue:
        assert client(catalogue).get("/fork/caravan?id=000_000&at=1").status_code == 403


def test_a_record_starts_no_program(tmp_path: Path):
    for name in ("command:touch pwned", "gpt-4o@http://evil.invalid/v1"):
        with pytest.raises(InputError):
            recorded_spec([made_run(tmp_path / name[:3], name)])


def test_branches_are_shown_next_to_each_other(tmp_path: Path):
    one = made_run(tmp_path)
    place = tmp_path / "branches"
    camel.fork(
        camel.Run(str(tmp_path / "trial")), 3, n=2, message="Instruction: <b>Please</b>.\nInput: None",
        using=World(1), rules=(DoneToken(), MaxMessages(4)), out=place, progress=False,
    )  # fmt: skip
    with Catalogue([tmp_path / "trial", place]) as catalogue:
        app = client(catalogue)
        original = Page(app.get(f"/conversation/trial?id={one.id}").text)
        branch = Page(app.get(f"/conversation/branches?id={ID}-3-changed-002").text)
        for page in (original, branch):
            assert page.wrong == []
            assert "Branches at message 3" in page.said
            assert sum(f"-3-{kind}-00{n}" in link and "#m3" in link for link in page.links
                       for kind in ("unchanged", "changed") for n in (1, 2)) == 4  # fmt: skip
        assert f"/conversation/trial?id={ID}#m3" in branch.links
        compare = next(link for link in branch.links if link.startswith("/compare?") and "from=3" in link)
        compared = Page(app.get(compare).text)
        assert "<b>Please</b>." in compared.said
        assert "Show the 2 messages before" in compared.said
        assert "touch pwned" not in compared.said, "message 2 is before the fork"
        assert app.get(compare.replace("from=3", "from=99")).status_code == 400
    # A conversation with the same id in another run is not the one that was continued.
    other = made_run(tmp_path / "other")
    other.messages[0] = replace(other.messages[0], content="Another beginning")
    folder = open_folder(tmp_path / "third")
    folder.create(Settings("f", {"scenario": "x"}, "0"))
    commit(folder, 0, [other])
    with Catalogue([tmp_path / "third", place]) as catalogue:
        assert "Branches at message" not in client(catalogue).get(f"/conversation/third?id={ID}").text


def test_credit_is_a_curve_with_the_decisive_message_marked(app: TestClient, tmp_path: Path):
    asked = f"/conversation/trial?id={ID}"
    assert "credit-curve" not in app.get(asked).text
    credit(tmp_path, made_run(tmp_path / "copy"))
    text = app.get(asked).text
    page = Page(text)
    assert page.wrong == []
    assert text.count("credit-curve") == 1
    assert "20% at the start, 100% at the end. Message 3 is decisive: +60 points (+25 to +75)." in page.said
    assert page.said.count("Decisive message") == 1
    assert "Value 20%, not measured" in page.said
    assert "Value 100% · +20 points (−10 to +10)" in page.said


def test_files_of_credit_that_are_wrong_are_ignored_with_a_note(
    app: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    one, asked = made_run(tmp_path / "copy"), f"/conversation/trial?id={ID}"
    good = msgspec.json.encode(credit(tmp_path, one))
    file = tmp_path / "trial/credit/credit.json"
    wrong: list[bytes] = [
        b"", b"{}", b"\xff", good[:-9], good.replace(b'"value":0.8', b'"value":"<script>"'), b"[" * 100_000,
        b'{"x":' * 100_000, good.replace(b'"value":0.8', b'"value":8e99'), good.replace(b'"value":0.8', b'"value":NaN'),
    ]  # fmt: skip
    impossible: list[dict[str, Any]] = [{"decisive": 9}, {"start": -0.5}, {"messages": []}]
    wrong += [msgspec.json.encode(credit(tmp_path, one, **changed)) for changed in impossible]
    for data in wrong:
        file.write_bytes(data)
        credit_curve.decoded.cache_clear()
        answer = app.get(asked)
        assert answer.status_code == 200, data[:40]
        page = Page(answer.text)
        assert page.wrong == []
        assert "credit/credit.json is not shown" in page.said, data[:40]
        assert "credit-curve" not in answer.text
    file.write_bytes(good)
    monkeypatch.setattr(credit_curve, "MOST", len(good) - 1)
    credit_curve.decoded.cache_clear()
    assert "is larger than" in app.get(asked).text
    file.unlink()
    file.symlink_to("/etc/passwd")
    assert "symbolic link" in app.get(asked).text


@pytest.mark.slow
def test_a_fork_is_started_in_the_browser_and_paid_from_the_budget(
    chromium: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """From the button to the branches: hostile text changes nothing, and only new messages are paid for."""
    one = made_run(tmp_path)
    credit(tmp_path, one)
    monkeypatch.chdir(tmp_path)
    with spawn(SimulatorSettings()) as endpoint:
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        server = ThreadServer(
            "agents",
            tmp_path / "trial",
            "--out",
            tmp_path / "agents",
            "--base-url",
            endpoint.base_url,
        )
        reader = Reader(chromium, server)
        page = reader.page
        try:
            reader.go(f"/conversation/trial?id={ID}")
            assert page.locator(".credit-curve path.line").count() == 1
            page.hover("#m2")
            page.click("#m2 .fork-here a")
            page.fill("[name=n]", "1")
            page.fill("[name=message]", "Solution: Bread. <script>window.pwned=1</script>\nNext request.")
            page.click("text=Show plan and command")
            page.click("#start")
            page.wait_for_url("**/watch/trial-branches---help-2", timeout=120_000)
            wait_for(lambda: (tmp_path / "trial-branches---help-2/branches.json").exists(), 120)
            reader.go(f"/conversation/trial?id={ID}")
            page.click("text=Branches at message 2")
            page.click("text=Compare both, side by side")
            assert "<script>window.pwned=1</script>" in page.inner_text(".turn-row .half.d-b >> nth=0")
            assert page.evaluate("window.pwned") is None
            made = list(camel.Run(str(tmp_path / "trial-branches---help-2")))
            assert len(made) == 2
            assert sum(branch.usage.calls for branch in made) == endpoint.ledger().billed
        finally:
            reader.close()
            server.stop()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agents", "trial", "trial-branches---help-2"]
