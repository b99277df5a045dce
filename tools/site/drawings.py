"""Drawings: Mermaid in the documents, SVG on the site.

The one decision to know: a drawing is rendered once, by `python tools/site/drawings.py MERMAID.js` on the machine of the author,
and kept as docs/site/drawings/<hash of its text>.svg. So readers run no script for it and fetch nothing, the site needs no browser to
be built, and a drawing whose text has changed has no picture, which fails the build.
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

DOCS = Path(__file__).parent.parent.parent / "docs"
FOLDER = DOCS / "site" / "drawings"
FENCE = re.compile(r"^```mermaid[ ]*\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
PLACE = re.compile(r'<div data-drawing="([0-9a-f]+)"></div>')
SETTINGS = {
    "startOnLoad": False,
    "theme": "base",
    "fontFamily": "inherit",
    "htmlLabels": False,
    "flowchart": {"htmlLabels": False, "curve": "basis", "useMaxWidth": True},
    "themeVariables": {"fontSize": "15px"},
    # The colors of the page, whichever they are: light, dark, or what a reader has chosen.
    "themeCSS": """
      .node rect, .node circle, .node polygon, .node path, .actor, .note, rect.actor { fill: var(--drawing-fill) !important; stroke: var(--drawing-line) !important; }
      .cluster rect { fill: var(--drawing-group) !important; stroke: var(--drawing-line) !important; }
      text, tspan, .label text, .nodeLabel, .edgeLabel, .messageText, .noteText, .loopText, .labelText { fill: var(--md-default-fg-color) !important; stroke: none !important; color: var(--md-default-fg-color) !important; }
      .edgeLabel rect, .labelBkg, .edgeLabel .background, rect.background { fill: var(--md-default-bg-color) !important; opacity: 0.9; }
      .edgePath path, path.flowchart-link, .messageLine0, .messageLine1, .transition, .actor-line, .loopLine { stroke: var(--drawing-line) !important; }
      .arrowheadPath, marker path, marker circle { fill: var(--drawing-line) !important; stroke: var(--drawing-line) !important; }
      .labelBox { fill: var(--drawing-group) !important; stroke: var(--drawing-line) !important; }
    """,
}


def name(source: str) -> str:
    """What the picture of a drawing is called."""
    return hashlib.sha256(source.strip().encode()).hexdigest()[:12]


def placeholder(fence: str) -> str:
    """What stands for a drawing in the page's text; nothing for any other fence."""
    found = FENCE.match(fence)
    return f'<div data-drawing="{name(found[1])}"></div>' if found else ""


def filled(html: str) -> str:
    """The page with its pictures."""
    return PLACE.sub(lambda place: f'<figure class="drawing">{_picture(place[1])}</figure>', html)


def sources() -> dict[str, str]:
    """Every drawing of the documents, by the name of its picture."""
    return {
        name(source): source
        for page in sorted(DOCS.rglob("*.md"))
        for source in FENCE.findall(page.read_text())
    }


def _picture(wanted: str) -> str:
    path = FOLDER / f"{wanted}.svg"
    if not path.exists():
        raise FileNotFoundError(
            f"{path.name}: a drawing was changed; run tools/site/drawings.py (it says how)"
        )
    return path.read_text()


def render(script: Path) -> None:
    """Make the pictures that are missing, and remove those that nobody shows."""
    from playwright.sync_api import sync_playwright

    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted = sources()
    for old in FOLDER.glob("*.svg"):
        if old.stem not in wanted:
            old.unlink()
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page()
        page.set_content("<body style='font-family: system-ui, sans-serif'></body>")
        page.add_script_tag(path=str(script))
        page.evaluate("settings => mermaid.initialize(settings)", SETTINGS)
        for label, source in wanted.items():
            path = FOLDER / f"{label}.svg"
            if path.exists():
                continue
            svg = page.evaluate(
                "async ([id, text]) => (await mermaid.render(id, text)).svg", [f"d{label}", source]
            )
            path.write_text(re.sub(r"\n\s*", " ", svg) + "\n")
            print(path.name)  # noqa: T201 - a tool
        browser.close()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Usage: drawings.py PATH/TO/mermaid.min.js (npm install mermaid brings it; made with 11.17)")
    render(Path(sys.argv[1]))
