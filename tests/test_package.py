"""What `tools/package` allows among our dependencies."""

from __future__ import annotations

import runpy
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
TOOL = runpy.run_path(str(ROOT / "tools" / "package"))


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
