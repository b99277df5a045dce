"""What a release consists of next to its sdist and wheel, the same bytes for the same commit.

requirements-NAME.txt   what the wheel needs, with versions and hashes of the pins in .ci/
sbom.json               the same as a CycloneDX document, with licenses
provenance.json         an in-toto statement: which commit and which tools made the files. The release workflow signs it
SHA256SUMS              the hashes of all files
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable, Sequence
from importlib.metadata import distribution, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LISTED = tomllib.loads((Path(__file__).parent / "contents.toml").read_text())
"""The files that a release may and must contain."""
SETS = {
    "core": (),
    "quick-start": ("local", "data", "explore"),
    "cluster": ("cluster", "data"),
    "all": ("all",),
}
"""The requirement files of a release, each with its extras."""
OWN_BUILD = ("torch", "triton", "nvidia-", "cuda-")
"""Distributions whose build depends on the machine. A file without them is installed with `--no-deps`, after torch."""
OWN = "camel-society"
REPOSITORY = (
    "/".join(os.environ.get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "REPOSITORY")).strip("/")
    or f"urn:{OWN}"
)
"""Where the source is: known in the release workflow."""


def sha256(path: Path) -> str:
    """The hash of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def members(path: Path) -> list[str]:
    """The names of the files in a wheel or an sdist, without the sdist's first folder."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            return [one for one in archive.namelist() if not one.endswith("/")]
    with tarfile.open(path) as archive:
        return [one.name.partition("/")[2] for one in archive if not one.isdir()]


def wrong_contents(kind: str, names: Iterable[str]) -> list[str]:
    """What a wheel or an sdist has and must not have, or lacks: a line each."""
    names, rules = list(names), LISTED[kind]
    found = [
        f"not in tools/contents.toml: {name}"
        for name in names
        if not any(_matches(name, pattern) for pattern in rules["allowed"])
        or any(_matches(name, pattern) for pattern in LISTED["never"])
    ]
    return found + [
        f"missing: {pattern}"
        for pattern in rules["required"]
        if not any(_matches(name, pattern) for name in names)
    ]


def _matches(name: str, pattern: str) -> bool:
    """Whether a path matches a pattern. `**/` stands for any number of folders."""
    parts = re.split(r"(\*\*/|\*)", pattern)
    kinds = {"**/": "(?:.*/)?", "*": "[^/]*"}
    return re.fullmatch("".join(kinds.get(part) or re.escape(part) for part in parts), name) is not None


def closure(extras: Sequence[str]) -> set[str]:
    """The distributions that the package needs with some extras, as declared by what is installed here."""
    found: dict[str, set[str]] = {}
    waiting = [Requirement(f"{OWN}[{','.join(extras)}]")]
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        new = {"", *one.extras} - found.setdefault(name, set())
        found[name] |= new
        waiting += [
            needed
            for needed in map(Requirement, distribution(name).requires or [])
            if any(needed.marker is None or needed.marker.evaluate({"extra": extra}) for extra in new)
        ]
    return found.keys() - {OWN}


def pins() -> dict[str, str]:
    """The pinned versions with their hashes, as lines of a requirements file, by name."""
    blocks = re.split(r"\n(?=\S)", (ROOT / ".ci" / "requirements.txt").read_text().strip())
    return {canonicalize_name(block.partition("==")[0]): block for block in blocks}


def requirements(extras: Sequence[str], wheel: Path) -> str:
    """A requirements file for `pip install --require-hashes` in the folder of the wheel."""
    names, pinned = closure(extras), pins()
    left_out = sorted(name for name in names if name.startswith(OWN_BUILD))
    if missing := sorted(names - pinned.keys() - {*left_out}):
        raise SystemExit(f".ci/requirements.txt lacks {', '.join(missing)}: run make pin")
    how = "pip install --require-hashes -r"
    if left_out:
        how = "pip install torch, for your device, and then pip install --no-deps --require-hashes -r"
    own = f"./{wheel.name} \\\n    --hash=sha256:{sha256(wheel)}"
    return (
        "\n".join([f"# {how} THIS_FILE", own, *(pinned[name] for name in sorted(names - {*left_out}))]) + "\n"
    )


def cyclonedx(parts: Sequence[dict[str, str]]) -> str:
    """What a wheel needs, with versions and licenses, as a CycloneDX document."""
    return (
        json.dumps(
            {
                "bomFormat": "CycloneDX",
                "specVersion": "1.6",
                "version": 1,
                "components": [
                    {
                        "type": "library",
                        "name": one["name"],
                        "version": one["version"],
                        "purl": f"pkg:pypi/{one['name'].lower().replace('_', '-')}@{one['version']}",
                        "licenses": [{"license": {"name": one["license"] or "unknown"}}],
                    }
                    for one in parts
                ],
            },
            indent=1,
        )
        + "\n"
    )


def provenance(files: Sequence[Path]) -> str:
    """An in-toto statement about files: the commit and the tools that made them."""
    command = ["git", "rev-parse", "HEAD"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603
    source = {"uri": f"git+{REPOSITORY}", "digest": {"gitCommit": commit.stdout.strip()}}
    tools = [{"uri": f"pkg:pypi/{name}@{version(name)}"} for name in ("hatchling", "packaging")]
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": path.name, "digest": {"sha256": sha256(path)}} for path in files],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{REPOSITORY}/blob/main/tools/package",
                "externalParameters": {"source": source["uri"]},
                "resolvedDependencies": [source, *tools],
            },
            "runDetails": {"builder": {"id": f"{REPOSITORY}/blob/main/Makefile"}},
        },
    }
    return json.dumps(statement, indent=1) + "\n"


def write_release(out: Path, built: Sequence[Path], parts: Sequence[dict[str, str]]) -> list[Path]:
    """Write all files of a release into a folder: those built, and the ones about them. `parts` is what is installed here."""
    out.mkdir(exist_ok=True)
    texts = {f"requirements-{name}.txt": requirements(extras, built[-1]) for name, extras in SETS.items()}
    needed = closure(SETS["all"])
    texts["sbom.json"] = cyclonedx([one for one in parts if canonicalize_name(one["name"]) in needed])
    for path in built:
        (out / path.name).write_bytes(path.read_bytes())
    for name, text in texts.items():
        (out / name).write_text(text)
    files = [out / name for name in (*(path.name for path in built), *texts)]
    (out / "provenance.json").write_text(provenance(files))
    files.append(out / "provenance.json")
    # As `sha256sum --check` reads them.
    (out / "SHA256SUMS").write_text("".join(f"{sha256(path)}  {path.name}\n" for path in files))
    return files
