"""Each lack of a machine is found, and each finding says how to fix it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from camel.core.errors import InputError
from camel.core.plugins import offered
from camel.detectors import DETECTORS
from camel.doctor import CheckResult, examine_machine, machine, worst
from camel.engine.ray.connect import look_at
from camel.sandbox import process
from tests.support import in_process
from tests.support.clinic import Ailments, endpoint

Break = Callable[[pytest.MonkeyPatch], None]


class Disk(NamedTuple):
    free: int


class Seen(NamedTuple):
    nodes: int = 1
    cpus: float = 0.0


def found(check: str, where: str, address: str = "") -> list[CheckResult]:
    return [finding for finding in examine_machine(where, address=address) if finding.check == check]


def fails(error: Exception) -> Callable[..., Any]:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise error

    return fail


def test_a_sound_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process.Sandbox, "check", lambda self: None)
    monkeypatch.setattr(machine, "SLOW", 3600.0)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Disk(2**40))
    told: list[CheckResult] = []
    findings = examine_machine(str(tmp_path / "runs/not/there/yet"), tell=told.append)
    assert told == findings
    assert worst(finding for finding in findings if finding.check in ("Python", "disk")) == "ok"
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"


@pytest.mark.parametrize(
    ("check", "state", "says", "fix", "broken", "address"),
    [
        ("disk", "error", "Read-only file system", "--out",
         lambda m: m.setattr(os, "fsync", fails(OSError(errno.EROFS, "Read-only file system"))), ""),
        ("disk", "error", "No locks", "--out",
         lambda m: m.setattr(machine.fcntl, "flock", fails(OSError(errno.ENOLCK, "No locks available"))), ""),
        ("disk", "error", "0.0 GiB free", "--out",
         lambda m: m.setattr(shutil, "disk_usage", lambda path: Disk(10**6)), ""),
        ("disk", "warning", "0.5 GiB free", "--out",
         lambda m: m.setattr(shutil, "disk_usage", lambda path: Disk(2**29)), ""),
        ("disk", "warning", "synced in", "local disk", lambda m: m.setattr(machine, "SLOW", 0.0), ""),
        ("Ray", "skipped", "not installed", "[cluster]",
         lambda m: m.setattr(machine, "find_spec", lambda name: None), ""),
        ("Ray", "error", "not installed", "[cluster]",
         lambda m: m.setattr(machine, "find_spec", lambda name: None), "auto"),
        ("Ray", "error", "auto", "ray start --head",
         lambda m: m.setattr("camel.engine.ray.connect.look_at", fails(InputError("no Ray cluster at auto: x; start one (ray start --head)"))), "auto"),
        ("Ray", "error", "1 node, 0 CPUs", "add nodes",
         lambda m: m.setattr("camel.engine.ray.connect.look_at", lambda address: Seen()), "auto"),
        ("sandbox", "warning", "bubblewrap", "apt install bubblewrap",
         lambda m: m.setattr(process.shutil, "which", lambda name: None), ""),
        ("sandbox", "warning", "does not hold", "namespaces",
         lambda m: m.setattr(process.Sandbox, "check", fails(process.SandboxFailed("it does not hold"))), ""),
        ("sandbox", "skipped", "Linux only", "", lambda m: m.setattr(sys, "platform", "darwin"), ""),
        ("extras", "note", "", "pip install",
         lambda m: m.setattr(machine.metadata, "requires", fails(metadata.PackageNotFoundError())), ""),
        ("extras", "skipped", "cluster", "[NAME]",
         lambda m: m.setattr(machine.metadata, "requires", lambda name: ['no-such-package; extra == "cluster"']), ""),
        ("extras", "skipped", "no-such-package", "[NAME]",
         lambda m: m.setattr(machine.metadata, "requires", lambda name: [
             'msgspec; extra == "data"', 'no-such-package; extra == "data"']), ""),
        ("extras", "warning", "msgspec>=900", "[data]",
         lambda m: m.setattr(machine.metadata, "requires", lambda name: ['msgspec>=900 ; extra == "data"']), ""),
    ],
)  # fmt: skip
def test_each_lack_is_found(
    check: str,
    state: str,
    says: str,
    fix: str,
    broken: Break,
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    pytest.importorskip("ray")
    process._bubblewrap.cache_clear()  # pyright: ignore[reportPrivateUsage]
    if check != "sandbox":
        monkeypatch.setattr(process.Sandbox, "check", lambda self: None)
    broken(monkeypatch)
    findings = found(check, str(tmp_path), address)
    process._bubblewrap.cache_clear()  # pyright: ignore[reportPrivateUsage]
    fitting = [one for one in findings if one.state == state and says in one.says]
    assert fitting, findings
    assert fix in fitting[0].fix


def test_what_generating_needs_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process.Sandbox, "check", lambda self: None)
    monkeypatch.setattr(machine, "find_spec", lambda name: None)
    (needed,) = [one for one in examine_machine(str(tmp_path), generating=True) if one.state == "error"]
    assert "[data]" in needed.fix
    assert worst(examine_machine(str(tmp_path))) != "error"


@pytest.mark.parametrize("address", ["127.0.0.1:9", "nobody.invalid:6379", "127.0.0.1", ":6379", "h:0"])
def test_an_address_without_a_cluster_is_reported_at_once(address: str, tmp_path: Path):
    with pytest.raises(InputError, match=r"6379"):
        look_at(address)


def test_a_bucket_that_does_not_answer(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("obstore")
    for name, value in {
        "ENDPOINT_URL": "http://127.0.0.1:9",
        "ACCESS_KEY_ID": "x",
        "SECRET_ACCESS_KEY": "x",
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setattr(machine, "PATIENCE", 0.2)
    (finding,) = found("disk", "s3://nobody/here")
    assert (finding.state, "AWS_" in finding.fix) == ("error", True)


@pytest.mark.parametrize(
    ("mode", "written", "raised", "says"),
    [
        (
            "",
            b"Unauthenticated: RPC error: InvalidAuthToken\n" * 20,
            ConnectionError("no"),
            "token",
        ),
        ("token", b"Unauthenticated: RPC error\n", ConnectionError("no"), "export"),
        ("", b"TimedOut\n", ConnectionError("no\nmore"), "ConnectionError: no;"),
    ],
)
def test_what_ray_writes_past_python_becomes_one_line(
    mode: str,
    written: bytes,
    raised: Exception,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
):
    ray = pytest.importorskip("ray")

    def init(**settings: object) -> None:
        os.write(2, written)
        raise raised

    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(InputError, match="auto") as refused:
        look_at("auto")
    assert says in str(refused.value)
    assert capfd.readouterr().err == ""


def test_broken_plugins_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process.Sandbox, "check", lambda self: None)
    folder = tmp_path / "some_package-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: some-package\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(
        "[camel.detectors]\nbroken = no_such_module:X\nrefusal = no_such_module:X\n"
        "[camel.stop_rules]\nloop = camel.core.stops:MessageLoop\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    offered.cache_clear()
    try:
        findings = {finding.state: finding for finding in found("plug-ins", str(tmp_path))}
        assert "some-package 1.0" in findings["error"].says
        assert "pip uninstall some-package" in findings["error"].fix
        assert "refusal" in findings["warning"].says
        assert findings["ok"].says == "loop (stop rule)"
        assert "broken" in DETECTORS
    finally:
        monkeypatch.undo()
        offered.cache_clear()


def doctored(*words: object) -> Any:
    return in_process.invoke(["doctor", *map(str, words)])


def test_the_command_says_what_it_spends_and_ends_with_a_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process.Sandbox, "check", lambda self: None)
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "conversations.toml"
    config.write_text('scenario = "ai_society"\nout = "here"\n[model]\nname = "patient"\nguided = "vllm"\n')
    ailments = Ailments()
    with endpoint(ailments) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        done = doctored(config, "--json")
        report = json.loads(done.stdout)
        # The configuration counts on a grammar to which the endpoint does not keep: a run would be spoiled.
        assert (done.exit_code, report["state"]) == (1, "error")
        assert [one["check"] for one in report["findings"] if one["state"] == "error"] == ["grammar"]
        assert report["calls"] == len(ailments.asked) == 7
        assert report["money"] is None
        shown = doctored("--model", "patient")
    assert shown.exit_code == 0, shown.output
    assert "8 calls" in shown.stdout
    assert "0 errors" in shown.stdout
    monkeypatch.delenv("OPENAI_BASE_URL")
    bare = doctored()
    assert bare.exit_code == 0
    assert "--local" in bare.stdout
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    assert "--no-calls" in doctored("--model", "x", "--no-calls").stdout


def test_a_configuration_is_asked_about_as_its_run_will_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process.Sandbox, "check", lambda self: None)
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "conversations.toml"
    ailments = Ailments(grammar="structured_outputs")
    with endpoint(ailments) as url:
        config.write_text(f'scenario = "ai_society"\n[model]\nname = "patient"\nbase_url = "{url}"\n')
        monkeypatch.setenv("CAMEL_MODEL", "other")
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
        assert doctored(config, "--json").exit_code == 0
        assert {one["model"] for one in ailments.asked} == {"patient"}
        ailments.asked.clear()
        for option, value in (("--model", "patient"), ("--base-url", url)):
            done = doctored(config, option, value)
            assert isinstance(done.exception, InputError)
            assert f"remove {option}" in str(done.exception)
        assert not ailments.asked


@pytest.mark.parametrize("more", [[], ["--no-calls"]])
def test_the_key_that_a_configuration_names_and_nobody_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str]
):
    monkeypatch.setattr(process.Sandbox, "check", lambda self: None)
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "conversations.toml"
    config.write_text('scenario = "ai_society"\n[model]\nname = "patient"\nkey_variable = "NOT_SET"\n')
    done = doctored(config, "--json", *more)
    assert done.exit_code == 1, done.exception
    (key,) = [one for one in json.loads(done.stdout)["findings"] if one["check"] == "key"]
    assert (key["state"], "export NOT_SET=" in key["fix"]) == ("error", True)


def test_a_package_with_the_same_import_name_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    other = tmp_path / "camel_ai-0.2.90.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: camel-ai\nVersion: 0.2.90\n")
    found = [one for one in examine_machine(str(tmp_path)) if one.check == "packages"]
    assert not found
    monkeypatch.syspath_prepend(tmp_path)
    (found,) = [one for one in examine_machine(str(tmp_path)) if one.check == "packages"]
    assert found.state == "error"
    assert "camel-ai 0.2.90" in found.says
    assert "pip uninstall camel-ai" in found.fix
