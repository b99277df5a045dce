"""What mkdocs calls while it builds the site (mkdocs.yml): adds the pages that come from the code, and fixes links.

The one decision to know: docs/*.md are written to be read in the repository as well, so they link to files next to docs/ and
carry words for the tests behind their code fences. Here such links lead to a page that shows the file, and the words go.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import api_reference
import cli_reference
import drawings
import notebooks
import record_reference
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent.parent
LOOK = ROOT / "src" / "camel" / "reports" / "look"
HIDDEN = {"index.md": ["navigation"], "compare.md": ["navigation", "toc"]}
"""Pages that use the full width."""
FENCE = re.compile(r"(^(?P<mark>```+|~~~+)[^\n]*\n.*?^(?P=mark)[ ]*$)", re.MULTILINE | re.DOTALL)
INFO = re.compile(r"^(```+\w+)[^\n]*?( title=\"[^\"]*\")?[^\n\"]*$", re.MULTILINE)
LINK = re.compile(
    r"(?P<before>\[[^\]]*\]|\[!\[[^\]]*\]\([^)]*\)\])\((?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)"
)
COMMENT = re.compile(r"<!-- .*? -->", re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the generated pages into the navigation, where mkdocs.yml says so by a folder's name."""
    config.nav = _expanded(config.nav, _generated())
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are in no folder."""
    pages = _generated()
    for page in [file for file in files if file.is_documentation_page()]:
        pages |= _shown(page.src_uri, page.content_string)
    for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"):
        pages[f"repository/{name}"] = (ROOT / name).read_text()
    while waiting := {
        name: text
        for page, content in list(pages.items())
        if page.startswith("repository/")
        for name, text in _shown(page, content).items()
        if name not in pages
    }:
        pages |= waiting
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    # The variables and fonts of the visual system; its base rules are Material's task.
    tokens = (LOOK / "tokens.css").read_text().partition("/* Base */")[0]
    files.append(File.generated(config, "site/look/tokens.css", content=tokens))
    for font in (LOOK / "fonts").iterdir():
        files.append(File.generated(config, f"site/look/fonts/{font.name}", abs_src_path=str(font)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fix one page: links to files next to docs/, words for the tests, drawings."""
    where = page.file.src_uri
    page.meta["hide"] = HIDDEN.get(where, [])
    pieces = FENCE.split(markdown)
    # The pattern has two groups, so that every third piece is prose, and the one behind it a whole fence.
    for number in range(0, len(pieces), 3):
        pieces[number] = COMMENT.sub("", LINK.sub(lambda link: _mended(where, link), pieces[number]))
    fences = [drawings.placeholder(fence) or INFO.sub(r"\1\2", fence, count=1) for fence in pieces[1::3]]
    return "".join(part for pair in zip(pieces[0::3], [*fences, ""], strict=True) for part in pair)


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the drawings in: as part of the page, so that they take its colors."""
    return drawings.filled(html)


def _generated() -> dict[str, str]:
    """Every page that is made from the code, by its place on the site."""
    return {
        **{f"reference/cli/{name}": text for name, text in cli_reference.pages().items()},
        **{f"reference/api/{name}": text for name, text in api_reference.pages().items()},
        "reference/record.md": record_reference.page(),
        **{f"notebooks/{name}": text for name, text in notebooks.pages().items()},
    }


def _expanded(nav: Any, pages: dict[str, str]) -> Any:
    found: list[Any] = []
    for entry in nav:
        title, target = next(iter(entry.items())) if isinstance(entry, dict) else ("", entry)
        if isinstance(target, list):
            found.append({title: _expanded(target, pages)})
        elif target.endswith("/") and (ROOT / "docs" / target).is_dir():
            inside = sorted(
                (ROOT / "docs" / target).glob("*.md"), key=lambda path: (path.stem != "README", path)
            )
            found.append({title: [f"{target}{path.name}" for path in inside]})
        elif target.endswith("/"):
            inside = [name for name in pages if name.startswith(target)]
            found.append({title: inside} if title else inside)
        else:
            found.append(entry)
    return found


def _repository_path(page: str, target: str) -> str:
    """The place in the repository that a link on a page means."""
    at = page.removeprefix("repository/") if page.startswith("repository/") else f"docs/{page}"
    return posixpath.normpath(posixpath.join(posixpath.dirname(at), target))


def _site_path(path: str) -> str:
    """Where on the site a file of the repository is shown."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.endswith(".ipynb"):
        return f"notebooks/{Path(path).stem}.md"
    if reference := api_reference.place(path):
        return f"reference/api/{reference}"
    return f"repository/{path}" if path.endswith(".md") else f"repository/{path}.md"


def _links(page: str, text: str) -> set[str]:
    """Files of the repository that a page links to."""
    prose = "".join(FENCE.split(text)[0::3])
    return {
        _repository_path(page, link["target"])
        for link in LINK.finditer(prose)
        if "://" not in link["target"] and not link["target"].startswith("mailto:")
    }


def _shown(page: str, text: str) -> dict[str, str]:
    """Pages for the files next to docs/ that a page links to."""
    pages: dict[str, str] = {}
    for path in _links(page, text):
        name = _site_path(path)
        if path.startswith("docs/") or not name.startswith("repository/") or not (ROOT / path).is_file():
            continue
        content = (ROOT / path).read_text()
        pages[name] = content if path.endswith(".md") else _as_code(path, content)
    return pages


def _as_code(path: str, content: str) -> str:
    language = {"py": "python", "sh": "sh", "toml": "toml", "yaml": "yaml", "json": "json"}.get(
        path.rpartition(".")[2], "text"
    )
    if len(content) > 60_000:
        content = content[:60_000] + "\n…\n"
    return f"---\ntitle: {path}\n---\n\n# `{path}`\n\n````{language}\n{content.rstrip()}\n````\n"


def _mended(page: str, link: re.Match[str]) -> str:
    target, anchor = link["target"], link["anchor"] or ""
    if "://" in target or target.startswith("mailto:"):
        return link[0]
    path = _repository_path(page, target)
    if (ROOT / path).is_dir():
        return link["before"].strip("[]")
    there = posixpath.relpath(_site_path(path), posixpath.dirname(page) or ".")
    return f"{link['before']}({there}{anchor})"
