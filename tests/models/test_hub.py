"""GGUF files of the hub, from a stand-in on loopback: which one is chosen, what is downloaded, and what is said without it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from camel.core.errors import InputError
from camel.models import hub as hub_module
from camel.models.hub import choose, fetch
from camel.models.spec import ModelSpec
from tests.support.hub import Hub, serve_hub

constants: Any = pytest.importorskip("huggingface_hub.constants")

TINY = b"GGUF tiny"
FILES = {
    "README.md": b"# Tiny",
    "tiny-Q8_0.gguf": TINY + b" 8",
    "tiny-q4_k_m.gguf": TINY,
    "tiny-F16.gguf": TINY * 3,
}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serve_hub({"some/tiny-GGUF": FILES, "some/words": {"README.md": b"# Words"}}) as served:
        monkeypatch.setattr(constants, "ENDPOINT", served.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", served.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
        yield served


@pytest.mark.parametrize(
    ("files", "quant", "chosen"),
    [
        ({"a-Q8_0.gguf": 9, "a-Q4_K_M.gguf": 5, "a-Q2_K.gguf": 2}, "", ("Q4_K_M", ["a-Q4_K_M.gguf"])),
        ({"a-Q8_0.gguf": 9, "a-Q2_K.gguf": 2}, "", ("Q8_0", ["a-Q8_0.gguf"])),
        ({"a-Q6_K.gguf": 9, "a-Q2_K.gguf": 2}, "", ("Q2_K", ["a-Q2_K.gguf"])),
        ({"only.gguf": 9, "config.json": 1}, "", ("ONLY", ["only.gguf"])),
        ({"a.q8_0.gguf": 9, "a.iq2_xs.gguf": 5}, "IQ2_XS", ("IQ2_XS", ["a.iq2_xs.gguf"])),
        ({"Qwen3-0.6B-BF16.gguf": 9, "Qwen3-0.6B-Q8_0.gguf": 5}, "BF16", ("BF16", ["Qwen3-0.6B-BF16.gguf"])),
        ({"a-UD-Q4_K_XL.gguf": 9}, "UD-Q4_K_XL", ("UD-Q4_K_XL", ["a-UD-Q4_K_XL.gguf"])),
        ({"mmproj-a-Q8_0.gguf": 1, "a-Q8_0.gguf": 9}, "Q8_0", ("Q8_0", ["a-Q8_0.gguf"])),
        (
            {"Q8_0/a-00002-of-00002.gguf": 4, "Q8_0/a-00001-of-00002.gguf": 4, "Q2_K/a.gguf": 2},
            "Q8_0",
            ("Q8_0", ["Q8_0/a-00001-of-00002.gguf", "Q8_0/a-00002-of-00002.gguf"]),
        ),
        ({"a-Q8_0.gguf": 9, "b-Q8_0.gguf": 9}, "B-Q8_0", ("B-Q8_0", ["b-Q8_0.gguf"])),
        ({"../../a-Q8_0.gguf": 1, "/etc/a-Q8_0.gguf": 1, ".b/a-Q8_0.gguf": 1, "a-Q2_K.gguf": 9}, "", ("Q2_K", ["a-Q2_K.gguf"])),
    ],
)  # fmt: skip
def test_the_file_is_chosen_by_its_quantization(
    files: dict[str, int], quant: str, chosen: tuple[str, list[str]]
):
    assert choose("o/r", files, quant) == chosen


@pytest.mark.parametrize(
    ("files", "quant", "told"),
    [
        ({"a-Q8_0.gguf": 9, "a-Q2_K.gguf": 2}, "Q5_K_M", ["Q5_K_M", "Q2_K, Q8_0"]),
        ({"a-Q8_0.gguf": 9, "b-Q8_0.gguf": 9}, "Q8_0", ["A-Q8_0, B-Q8_0"]),
        ({"a-Q8_0.gguf": 9, "b-Q8_0.gguf": 9}, "", ["A-Q8_0, B-Q8_0"]),
        ({"model.safetensors": 9}, "", ["o/r", "GGUF"]),
        ({"a\x1b[31m-Q8_0.gguf": 9}, "", ["o/r", "GGUF"]),
    ],
)
def test_what_there_is_is_listed(files: dict[str, int], quant: str, told: list[str]):
    with pytest.raises(InputError) as raised:
        choose("o/r", files, quant)
    assert all(part in str(raised.value) for part in told), raised.value
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    "name",
    ["hf:", "hf:x", "hf:x/", "hf:../x", "hf:x/..", "hf:x/y/z", "hf:x/y:", "hf:x/y:../z", "hf:x/y:a/b", "hf:-x/y",
     "hf:x/y..z", "hf: x/y", "hf:x/y\n", "hf:http://h/x"],
)  # fmt: skip
def test_no_other_name_reaches_the_hub(name: str):
    with pytest.raises(InputError, match="hf:OWNER/REPO"):
        ModelSpec(name)


def test_a_file_is_downloaded_once(hub: Hub, tmp_path: Path):
    said: list[str] = []
    name, path = fetch("hf:some/tiny-GGUF", said.append)
    assert (name, path.read_bytes(), path.name) == ("hf:some/tiny-GGUF:Q4_K_M", TINY, "tiny-q4_k_m.gguf")
    assert path.is_relative_to(tmp_path / "cache")
    assert fetch("hf:some/tiny-GGUF", said.append)[1] == path
    assert hub.downloads == ["tiny-q4_k_m.gguf"]
    assert ["some/tiny-GGUF Q4_K_M" in line for line in said] == [True]
    # One that is named is not even asked about.
    hub.asked.clear()
    assert fetch("hf:some/tiny-GGUF:q4_k_m") == (name, path)
    assert hub.asked == []
    assert fetch("hf:some/tiny-GGUF:f16")[1].read_bytes() == TINY * 3
    assert hub.downloads == ["tiny-F16.gguf"]


def test_a_cached_file_is_used_without_the_hub(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    path = fetch("hf:some/tiny-GGUF")[1]
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert fetch("hf:some/tiny-GGUF") == ("hf:some/tiny-GGUF:Q4_K_M", path)
    with pytest.raises(InputError, match=r"some/tiny-GGUF.*path"):
        fetch("hf:some/tiny-GGUF:Q8_0")


@pytest.mark.parametrize("name", ["hf:some/other-GGUF", "hf:some/words", "hf:some/tiny-GGUF:Q5_0"])
def test_what_the_hub_does_not_have(hub: Hub, name: str):
    with pytest.raises(InputError, match=name.removeprefix("hf:").partition(":")[0]):
        fetch(name)
    assert hub.downloads == []


def test_a_file_that_is_none_is_refused_before_the_first_call(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("xllamacpp")
    monkeypatch.setitem(FILES, "tiny-q4_k_m.gguf", b"<html>")
    with pytest.raises(InputError, match="not a GGUF"):
        ModelSpec("hf:some/tiny-GGUF").prepare()


def test_nothing_is_downloaded_where_it_could_not_be_served(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match="local"):
        ModelSpec("hf:some/tiny-GGUF").prepare()
    assert hub.asked == []


def test_without_the_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r"camel-society\[local\]"):
        hub_module.fetch("hf:some/tiny-GGUF")


@pytest.mark.slow
def test_the_variables_of_the_client_and_its_progress_bar(tmp_path: Path):
    code = "import sys\nfrom camel.models.hub import fetch\nprint(fetch(sys.argv[1])[1].read_bytes())"

    def run(name: str, **more: str) -> subprocess.CompletedProcess[str]:
        given = {**os.environ, "HF_HUB_CACHE": str(tmp_path), "HF_HUB_DISABLE_TELEMETRY": "1", **more}
        given.pop("HF_HUB_DISABLE_PROGRESS_BARS", None)  # maps set it for their process
        return subprocess.run([sys.executable, "-c", code, name], env=given, capture_output=True, text=True)

    with serve_hub({"some/tiny-GGUF": FILES}) as hub:
        offline = run("hf:some/tiny-GGUF", HF_ENDPOINT=hub.url, HF_HUB_OFFLINE="1")
        assert offline.returncode
        assert hub.asked == []
        last = offline.stderr.splitlines()[-1]
        assert "some/tiny-GGUF" in last
        assert "path" in last
        done = run("hf:some/tiny-GGUF", HF_ENDPOINT=hub.url, TQDM_POSITION="-1")  # as on a terminal
    assert (done.stdout.strip(), done.returncode) == (str(TINY), 0), done.stderr
    assert "tiny-q4_k_m.gguf: 100%" in done.stderr
    assert run("hf:some/tiny-GGUF", HF_HUB_OFFLINE="1").stdout == done.stdout
