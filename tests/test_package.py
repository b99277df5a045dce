"""What a release contains, what it needs, and which licenses are allowed."""

from __future__ import annotations

import hashlib
import re
import runpy
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
TOOL = runpy.run_path(str(ROOT / "tools" / "package"))
BUNDLE = runpy.run_path(str(ROOT / "tools" / "bundle.py"))


@pytest.mark.parametrize(
    "license",
    [
        "MIT",
        "3-Clause BSD License",
        "Apache 2.0 License",
        "BSD License; Apache Software License",
        "BSD-2-Clause AND Apache-2.0 WITH LLVM-exception",
        "BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0",
        "GPL-2.0-only OR MIT",
        "Historical Permission Notice and Disclaimer (HPND)",
        "ISC License (ISCL)",
        "MPL-2.0 AND (Apache-2.0 OR MIT)",
        "Mozilla Public License 2.0 (MPL 2.0)",
        "The Unlicense (Unlicense)",
    ],
)
def test_licenses_that_are_allowed(license: str):
    assert refused(license) == []


@pytest.mark.parametrize(
    "license",
    [
        "",
        "BSD License; GNU General Public License v3 (GPLv3)",
        "GNU Lesser General Public License v3 (LGPLv3)",
        "GPL-3.0-only AND MIT",
        "MIT and GPL",
        "MIT OR (BSD-3-Clause AND LGPL-3.0-only)",
        "The Limited Company License",
        "Unlicensed",
    ],
)
def test_licenses_that_are_refused(license: str):
    assert refused(license) == [f"thing 1: {license or 'no license named'}"]


def test_what_we_ask_for_is_allowed():
    """Of what is installed here: who develops has every extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [lines for name, lines in project["optional-dependencies"].items() if not name.startswith("dev")]
    names = {
        canonicalize_name(Requirement(line).name)
        for lines in (project["dependencies"], *extras)
        for line in lines
    }
    there: list[dict[str, str]] = TOOL["bill"](Path(sys.executable))
    assert TOOL["refused"]([one for one in there if canonicalize_name(one["name"]) in names]) == []


def refused(license: str) -> list[str]:
    return TOOL["refused"]([{"name": "thing", "version": "1", "license": license}])


NAMES = [
    "camel/__init__.py", "camel/__init__.pyi", "camel/py.typed", "camel/scenarios/ai_society/scenario.toml",
    "camel/explorer/templates/conversation.html", "camel_society-0.1.0.dist-info/licenses/LICENSE",
    "camel_society-0.1.0.dist-info/METADATA",
]  # fmt: skip


def test_a_wheel_has_only_files_that_are_listed():
    assert BUNDLE["wrong_contents"]("wheel", NAMES) == []
    for extra in (
        "camel/.env",
        "camel/core/x.pyc",
        "secrets.txt",
        "runs/trial/run.json",
        "camel/explorer/key.pem",
    ):
        assert len(BUNDLE["wrong_contents"]("wheel", [*NAMES, extra])) == 1, extra
    assert len(BUNDLE["wrong_contents"]("wheel", NAMES[1:])) == 1


def test_requirements_name_the_wheel_and_all_that_it_needs_by_hash(tmp_path: Path):
    wheel = tmp_path / "camel_society-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    lines = BUNDLE["requirements"](("data",), wheel).splitlines()
    named = {line.partition("==")[0] for line in lines if "==" in line}
    assert {"aiohttp", "msgspec", "pyarrow", "duckdb"} <= named
    assert not {"torch", "ray", "pytest"} & named
    assert f"    --hash=sha256:{hashlib.sha256(b'wheel').hexdigest()}" in lines
    # Each requirement has a hash: the line after it continues it.
    starts = [place for place, line in enumerate(lines) if "==" in line or line.startswith("./")]
    assert all(lines[place + 1].startswith("    --hash=sha256:") for place in starts)
    assert "--no-deps" in BUNDLE["requirements"](("train",), wheel).splitlines()[0]


def test_the_workflow_of_a_release_is_pinned_and_has_few_rights():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    assert workflow["permissions"] == {}
    jobs = workflow["jobs"]
    for job in jobs.values():
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"]), step["uses"]
    # Only the job that waits for a maintainer's approval publishes.
    publishing = [name for name, job in jobs.items() if any("pypi-publish" in step.get("uses", "") for step in job["steps"])]  # fmt: skip
    assert publishing == ["publish"]
    assert jobs["publish"]["environment"] == "release"
    assert jobs["images"]["needs"] == "publish"


@pytest.mark.parametrize("path", ["deploy/Dockerfile", "deploy/space/Dockerfile"])
def test_images_do_not_run_as_root_and_install_by_hash(path: str):
    lines = (ROOT / path).read_text().splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users
    assert users[-1] not in ("root", "0")
    assert "FROM ${BASE}" in lines  # so that a digest can be passed
    assert all("--require-hashes" in line for line in lines if "pip install" in line)
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]]
    assert "." not in copied or (ROOT / path).with_name(".dockerignore").exists()
