"""The site of the documents: it builds strictly, every link leads somewhere, and no page fetches from another server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).parent.parent
TOOLS = str(ROOT / "tools" / "site")
needs_mkdocs = pytest.mark.skipif(
    find_spec("material") is None and not os.environ.get("CI"),
    reason="needs mkdocs-material: pip install '.[docs]'",
)


@pytest.fixture(scope="module")
def tools() -> Iterator[None]:
    sys.path.insert(0, TOOLS)
    yield
    sys.path.remove(TOOLS)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Page(HTMLParser):
    """What a page names: its anchors, where it links to, what a browser would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.fetched: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        elif tag == "link" and given.get("rel") != "canonical":
            self.fetched.add(given.get("href", ""))
        elif "src" in given or tag == "object":
            self.fetched.add(given.get("src") or given.get("data", ""))
        self.fetched |= set(re.findall(r"url\((https?:[^)]*)\)", given.get("style", "")))


@needs_mkdocs
@pytest.mark.slow
def test_the_site(site: Path):
    """One test, because two could build the site in two processes."""
    check_links(site)
    check_references(site)


def check_links(site: Path) -> None:
    """Every link leads somewhere, and nothing is fetched from another server."""
    pages = {path: Page(path.read_text()) for path in site.rglob("*.html")}
    assert len(pages) > 60
    broken, foreign = [], []
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        foreign += [(path.name, one) for one in page.fetched if urlsplit(one).netloc]
        for link in page.links | page.fetched:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or (
                parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors
            ):
                broken.append((path.name, link))
    assert not broken
    assert not foreign
    for path in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import\s*)[\"']?(?:https?:)?//", path.read_text()), path.name


def check_references(site: Path) -> None:
    """The references have every command and every public name."""
    import typer.main

    import camel
    from camel.cli import app

    commands = "".join(path.read_text() for path in (site / "reference" / "cli").glob("*.html"))
    for verb in typer.main.get_command(app).commands:
        assert f'id="camel-{verb}"' in commands, verb
    names = "".join(path.read_text() for path in (site / "reference" / "api").glob("*.html"))
    for name in set(camel.__all__) - {"__version__"}:
        assert re.search(rf'id="[\w.]+\.{name}"', names), name


def test_every_drawing_has_its_picture(tools: None):
    import drawings

    wanted = set(drawings.sources())
    assert {path.stem for path in drawings.FOLDER.glob("*.svg")} == wanted
    assert len(wanted) >= 5
    for path in drawings.FOLDER.glob("*.svg"):
        text = path.read_text()
        assert "<title" in text
        assert "<script" not in text
        assert "foreignObject" not in text


def test_messages_in_troubleshooting_are_those_of_the_code():
    sources = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    # Long messages are written as several strings, one below the other.
    everything = re.sub(r"[\"']\s*\n\s*f?[\"']", "", sources)
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    missing = []
    for row in re.findall(r"^\| (`[^|]*?) \|", page, re.MULTILINE):
        for message in re.findall(r"`([^`]+)`", row):
            pieces = [piece.strip(" /") for piece in message.split("…")]
            missing += [
                piece
                for piece in pieces
                if len(piece) > 8 and piece not in everything and not piece.startswith("camel ")
            ]
    assert not missing


@pytest.mark.slow
def test_signatures_and_texts_of_the_api_reference(tools: None):
    import api_reference

    pages = api_reference.pages()
    text = pages["conversations.md"]
    assert "`from camel import RolePlaying`" in text
    assert "| `content` | `str` |" in text
    assert "prefix cache" in text
    assert "&lt;CAMEL_TASK_DONE>" in "".join(pages.values()) or "<CAMEL_TASK_DONE>" in "".join(pages.values())
    assert api_reference.place("src/camel/core/errors.py") == "errors.md"
    assert api_reference.place("examples/critic/tree_search.py") == ""


@settings(deadline=None)
@given(st.text(alphabet=st.sampled_from("ab |*_<[]\\`\n"), max_size=40))
def test_help_texts_stay_in_their_cells(tools: None, help_text: str):
    import cli_reference

    cell = cli_reference._cell(help_text)
    assert "\n" not in cell
    assert not re.search(r"(?<!\\)(?:\\\\)*\|", re.sub(r"`[^`]*`", "", cell))


@needs_mkdocs
def test_links_out_of_the_documents_lead_to_pages_that_show_the_file(tools: None):
    import hooks

    text = "See [debate](../examples/societies/debate.toml), [errors](../src/camel/core/errors.py#x) and `](../x)`."
    mended = hooks.LINK.sub(lambda link: hooks._mended("societies.md", link), text)
    assert "(repository/examples/societies/debate.toml.md)" in mended
    assert "(reference/api/errors.md#x)" in mended
    assert hooks._mended("a/b.md", hooks.LINK.search("[x](../guide.md#y)")) == "[x](../guide.md#y)"
    assert (
        hooks._mended("a.md", hooks.LINK.search("[x](https://example.org/)")) == "[x](https://example.org/)"
    )
    shown = hooks._shown("societies.md", text)
    assert list(shown) == ["repository/examples/societies/debate.toml.md"]
