"""Plug-ins are found by their metadata, loaded when asked for, and name their package when they are broken."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from camel import ChatModel, InputError, Message, NextCall, Task, Transcript, connect
from camel.cli import main
from camel.core.plugins import PluginFailed, offered, taken
from camel.core.stops import STOP_RULES
from camel.detectors import DETECTORS, Finding, detect
from camel.formats.exporters import FORMATS
from camel.record.release import Release
from camel.scenarios import check, known, load
from camel.scenarios.critics import CriticSettings

Install = Callable[..., None]
TALK = Transcript("1", Task("t"), messages=[Message(0, "user", "Cook", "Hello there")])
CODE = """
from pathlib import Path
from camel.detectors import Detector, Hit
from camel.formats.exporters import Exporter
from camel.formats.json_rows import ROW_ENDINGS, write_rows

def everything(transcript):
    return [Hit(0, "it is there")]

def failing(transcript):
    raise ZeroDivisionError("rules fail too")

FOUND = Detector("found", 1, "Found", "Is it?", everything)
OTHER = Detector("another_name", 1, "Found", "Is it?", everything)
FAILING = Detector("failing", 1, "Failing", "Is it?", failing)

def write(transcripts, path, *, release=None):
    for transcript in transcripts:
        path.write_text(transcript.id)

ROWS = Exporter(write, "ids", ("",))
NOTHING = 3
PLACE = Path(__file__).parent / "place"

class Rule:
    def check(self, messages, call):
        raise ZeroDivisionError("asked")

def critic(model, sampling, **options):
    return object() if options else 1 / 0

def model(name):
    return None
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package with one entry point, as an installer leaves it on the path."""
    (tmp_path / "plugged_code.py").write_text(CODE)
    (tmp_path / "place").mkdir()
    monkeypatch.syspath_prepend(tmp_path)

    def install(group: str, name: str, where: str, package: str = "some-package") -> None:
        folder = tmp_path / f"{package.replace('-', '_')}-1.5.dist-info"
        folder.mkdir(exist_ok=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.5\n")
        with (folder / "entry_points.txt").open("a") as file:
            file.write(f"[camel.{group}]\n{name} = {where}\n")
        offered.cache_clear()

    yield install
    for registry in (DETECTORS, FORMATS, STOP_RULES):
        registry._loaded.clear()  # pyright: ignore[reportPrivateUsage]
    sys.modules.pop("plugged_code", None)
    offered.cache_clear()


def test_a_detector_joins_the_others(install: Install):
    before = list(DETECTORS)
    install("detectors", "found", "plugged_code:FOUND")
    assert list(DETECTORS) == [*before, "found"]
    assert len(DETECTORS) == len(before) + 1
    assert detect(TALK, ["found"]) == [Finding("found", 1, 0, "Hello there", "it is there")]
    assert "found" in {finding.detector for finding in detect(TALK)}


def test_names_are_known_without_loading_anything(install: Install):
    install("detectors", "broken", "no_such_module:PART")
    assert "broken" in DETECTORS
    assert "no_such_module" not in sys.modules
    with pytest.raises(PluginFailed, match=r"'broken'.*some-package 1\.5.*ModuleNotFoundError"):
        DETECTORS["broken"]


@pytest.mark.parametrize(
    ("group", "name", "where", "use", "says"),
    [
        ("detectors", "a", "plugged_code:NOTHING", lambda: DETECTORS["a"], "Detector"),
        ("detectors", "a", "plugged_code:OTHER", lambda: DETECTORS["a"], "another_name"),
        (
            "detectors",
            "failing",
            "plugged_code:FAILING",
            lambda: detect(TALK),
            "ZeroDivisionError",
        ),
        ("exporters", "a", "plugged_code:NOTHING", lambda: FORMATS["a"], "Exporter"),
        ("stop_rules", "a", "plugged_code:NOTHING", lambda: STOP_RULES["a"], "stop rule"),
        ("stop_rules", "a", "plugged_code:Rule", lambda: _asked("a"), "ZeroDivisionError"),
        ("critics", "a", "plugged_code:critic", lambda: CriticSettings(use="a"), "critic"),
        (
            "critics",
            "a",
            "plugged_code:critic",
            lambda: CriticSettings(use="a", options={"x": 1}),
            "async reply",
        ),
        ("scenarios", "a", "plugged_code:PLACE", lambda: load("a"), "scenario.toml"),
        ("scenarios", "a", "plugged_code:NOTHING", lambda: load("a"), "package"),
        ("models", "a", "plugged_code:NOTHING", lambda: connect("a:b"), "model"),
    ],
)
def test_what_is_no_such_part_is_refused_by_name(
    install: Install,
    group: str,
    name: str,
    where: str,
    use: Callable[[], object],
    says: str,
    snapshot: Callable[..., None],
):
    install(group, name, where)
    with pytest.raises(PluginFailed, match=says) as failed:
        use()
    assert "some-package 1.5" in str(failed.value)
    assert "pip uninstall some-package" in str(failed.value)
    assert "\n" not in str(failed.value)
    snapshot("errors", failed.value)


def _asked(name: str) -> object:
    return STOP_RULES[name]().check([], NextCall("user"))


def test_a_model_must_be_one(install: Install):
    install("models", "mine", "plugged_code:model")
    with pytest.raises(InputError, match="async method reply"):
        connect("mine:x")
    # With a URL the name is the endpoint's affair.
    assert type(connect("mine:x", base_url="http://127.0.0.1:1/v1", context_tokens=10)) is ChatModel


def test_our_own_parts_cannot_be_replaced(install: Install):
    own = DETECTORS["refusal"]
    install("detectors", "refusal", "plugged_code:FOUND")
    assert DETECTORS["refusal"] is own
    assert list(DETECTORS).count("refusal") == 1
    assert [plugin.package for plugin in taken("detectors", {"refusal"})] == ["some-package 1.5"]
    install("scenarios", "math", "plugged_code:PLACE")
    assert known().count("math") == 1
    assert load("math").title


def test_two_packages_under_one_name_are_both_named(install: Install):
    install("detectors", "found", "plugged_code:FOUND")
    install("detectors", "found", "plugged_code:OTHER", package="some-other")
    with pytest.raises(PluginFailed, match=r"some-.* 1\.5 and some-.* 1\.5 .*'found'"):
        DETECTORS["found"]


def test_a_plugged_exporter_cannot_leak_what_is_restricted(install: Install, tmp_path: Path):
    install("exporters", "ids", "plugged_code:ROWS")
    labeled = Transcript("secret", Task("t"), labels=["misalignment"])
    with pytest.raises(InputError, match="acknowledge"):
        FORMATS["ids"].write([labeled], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    FORMATS["ids"].write([labeled], tmp_path / "out", release=Release(True, "guid"))
    assert (tmp_path / "out").read_text() == "secret"


def test_unknown_stop_rules_and_critics_say_what_there_is(tmp_path: Path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "scenario.toml").write_text(
        'title = "T"\n[[levels]]\nname = "task"\nitems = ["a"]\n'
        '[role_play]\nassistant = "A"\nuser = "B"\ntask = "<TASK>"\nstop_rules = ["nobodys"]\n'
    )
    problems = check(folder)
    assert [problem.where for problem in problems] == ["role_play.stop_rules"]
    assert "nobodys" in problems[0].message
    with pytest.raises(InputError, match="nobodys"):
        CriticSettings(use="nobodys")
    with pytest.raises(InputError, match="use"):
        CriticSettings(options={"a": 1})


def test_help_survives_a_broken_plugin(
    install: Install, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for group in ("scenarios", "detectors", "stop_rules", "critics", "exporters", "models"):
        install(group, "broken", "no_such_module:PART")
    for words, code, says in (
        (["--help"], 0, "generate"),
        (["scenarios"], 0, "some-package"),
        (["scenarios", "show", "broken"], 2, "some-package"),
    ):
        monkeypatch.setattr(sys, "argv", ["camel", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert (ended.value.code or 0) == code
        shown = capsys.readouterr()
        assert says in shown.out + shown.err
        assert "Traceback" not in shown.err
