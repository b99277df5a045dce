#!/usr/bin/env python3
# ruff: noqa: D103, S603, S607, T201 - for developers, and run by hand
"""Rebuild the drawing library of the explorer's map: `python tools/vendor_map.py`. Needs npm, chromium and playwright.

regl, on which regl-scatterplot draws, writes JavaScript at run time and has it compiled, which the explorer's policy forbids.
So it is bundled twice: once to see, in a browser, which functions it writes for what the map does, and then with those
functions in the bundle, found again by a hash of their source. The bundle is what pages load; nothing is fetched when the
explorer is installed or run.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PINNED = {"regl-scatterplot": "1.16.0", "esbuild": "0.28.2"}
STATIC = Path(__file__).parent.parent / "src/camel/explorer/static"
NAME = f"regl-scatterplot-{PINNED['regl-scatterplot']}"
BUNDLED = (
    "regl-scatterplot",
    "regl",
    "regl-line",
    "dom-2d-camera",
    "camera-2d-simple",
    "pub-sub-es",
    "earcut",
    "gl-matrix",
    "@flekschas/utils",
)

PATCHES = {
    # Functions from the table instead of from text.
    "regl/dist/regl.unchecked.js": [
        (
            "var proc = Function.apply(null, linkedNames.concat(src))",
            "var proc = globalThis.camelCompiled(linkedNames, src)",
        ),
        # What it writes must not depend on the graphics card; every one has 8 attributes, and the library uses fewer.
        (
            "maxAttributes: gl.getParameter(GL_MAX_VERTEX_ATTRIBS)",
            "maxAttributes: Math.min(8, gl.getParameter(GL_MAX_VERTEX_ATTRIBS))",
        ),
    ],
    # A style element is forbidden as well; a sheet made by a script is not.
    "regl-scatterplot/dist/regl-scatterplot.esm.js": [
        (
            "const lassoStyleEl = document.createElement('style');\n    document.head.appendChild(lassoStyleEl);\n"
            "    cachedLassoStylesheets = lassoStyleEl.sheet;",
            "cachedLassoStylesheets = new CSSStyleSheet();\n"
            "    document.adoptedStyleSheets = [...document.adoptedStyleSheets, cachedLassoStylesheets];",
        )
    ],
}
HASH = """
const key = (names, source) => {
  let a = 0xdeadbeef, b = 0x41c6ce57;
  for (const char of `${names}|${source}`) {
    const code = char.charCodeAt(0);
    a = Math.imul(a ^ code, 2654435761);
    b = Math.imul(b ^ code, 1597334677);
  }
  return (4294967296 * (2097151 & b) + (a >>> 0)).toString(36);
};
"""
RECORDING = (
    HASH
    + """
globalThis.camelSeen = {};
globalThis.camelCompiled = (names, source) => {
  globalThis.camelSeen[key(names, source)] = [names, source];
  return Function(...names, source);
};
"""
)
READING = (
    HASH
    + """
import { compiled } from "./compiled.js";
globalThis.camelCompiled = (names, source) => {
  const found = compiled[key(names, source)];
  if (!found) throw new Error("a function of regl is missing from the bundle: tools/vendor_map.py makes it");
  return found;
};
"""
)
# Everything that static/map.js does with the library.
EXERCISE = """async () => {
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  for (const performanceMode of [false, true]) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 400;
  canvas.style.width = canvas.style.height = "400px";
  document.body.append(canvas);
  const plot = globalThis.camelScatterplot({
    canvas, width: 400, height: 400, pointSize: 3, opacity: 0.8, spatialIndexUseWorker: false,
    pointColor: ["#0072b2", "#d55e00"], colorBy: "valueA", lassoOnLongPress: true, actionKeyMap: { lasso: "shift" },
    showReticle: false, backgroundColor: "#ffffff", opacityInactiveMax: 1, performanceMode,
  });
  const n = 500, x = new Float32Array(n), y = new Float32Array(n), z = new Float32Array(n), w = new Float32Array(n);
  for (let i = 0; i < n; i++) { x[i] = Math.sin(i * 7); y[i] = Math.cos(i * 3); z[i] = i % 2; }
  await plot.draw({ x, y, z, w }, { zDataType: "categorical" });
  plot.hover(3); await wait(100);
  plot.select([1, 2, 3]); await wait(100);
  plot.lassoSelect([[-0.5, -0.5], [0.5, -0.5], [0, 0.5]], { isGl: true }); await wait(100);
  plot.deselect();
  await plot.filter([1, 2, 3, 4]); await plot.unfilter();
  await plot.zoomToLocation([0.2, 0.1], 0.5, { transition: true, transitionDuration: 100 });
  await plot.set({ pointColor: ["#000000", "#ff0000"], backgroundColor: "#111111", width: 300, height: 300 });
  await plot.set({ opacityBy: "density" });
  await plot.zoomToOrigin();
  await plot.draw({ x, y, z, w }, { zDataType: "categorical", transition: true, transitionDuration: 100 });
  const at = (kind, clientX, clientY, more = {}) => canvas.dispatchEvent(new MouseEvent(kind, { clientX, clientY, bubbles: true, ...more }));
  at("mouseenter", 100, 100); at("mousemove", 100, 100);
  at("mousedown", 100, 100, { shiftKey: true, buttons: 1 });
  for (let i = 0; i < 20; i++) { window.dispatchEvent(new MouseEvent("mousemove", { clientX: 100 + 8 * i, clientY: 100 + (i % 5) * 20, shiftKey: true, buttons: 1, bubbles: true })); await wait(20); }
  window.dispatchEvent(new MouseEvent("mouseup", { clientX: 200, clientY: 150, bubbles: true }));
  await wait(300);
  plot.refresh(); plot.redraw(); await wait(100);
  plot.destroy();
  }
  return globalThis.camelSeen;
}"""


def bundled(folder: Path, head: str, out: str, *, minify: bool) -> Path:
    (folder / "head.js").write_text(head)
    (folder / "entry.js").write_text(
        'import "./head.js";\nimport createScatterplot from "regl-scatterplot";\n'
        'export default createScatterplot;\nexport { createSpatialIndex } from "regl-scatterplot";\n'
    )
    command = [
        str(folder / "node_modules/.bin/esbuild"),
        "entry.js",
        "--bundle",
        "--format=esm",
        f"--outfile={out}",
    ]
    command += ["--alias:regl=./node_modules/regl/dist/regl.unchecked.js", "--log-level=warning"]
    command += ["--minify", "--legal-comments=none"] if minify else []
    subprocess.run(command, cwd=folder, check=True)
    return folder / out


def recorded(bundle: Path) -> dict[str, tuple[list[str], str]]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--enable-unsafe-swiftshader"]
        )
        page = browser.new_page()
        page.on("pageerror", lambda error: sys.exit(f"the library failed: {error}"))
        page.goto("about:blank")
        source = bundle.read_text()
        page.add_script_tag(content=source + "\nglobalThis.camelScatterplot = entry_default;", type="module")
        page.wait_for_function("() => globalThis.camelScatterplot !== undefined")
        found = page.evaluate(EXERCISE)
        browser.close()
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": PINNED}))
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent"], cwd=folder, check=True)
        for file, changes in PATCHES.items():
            path = folder / "node_modules" / file
            text = path.read_text()
            for old, new in changes:
                assert text.count(old) == 1, f"{file} has changed: adapt the patch"
                text = text.replace(old, new)
            path.write_text(text)
        seen = recorded(bundled(folder, RECORDING, "recording.js", minify=False))
        functions = [
            f"{json.dumps(key)}: function({','.join(names)}) {{{source}}}"
            for key, (names, source) in sorted(seen.items())
        ]
        (folder / "compiled.js").write_text("export const compiled = {\n" + ",\n".join(functions) + "\n};\n")
        made = bundled(folder, READING, "bundle.js", minify=True)
        shutil.copy(made, STATIC / f"{NAME}.min.js")
        licenses: list[str] = []
        for package in BUNDLED:
            about = json.loads((folder / "node_modules" / package / "package.json").read_text())
            text = next((folder / "node_modules" / package).glob("LICENSE*")).read_text().strip()
            licenses.append(f"{package} {about['version']}\n\n{text}\n")
        (STATIC / f"{NAME}.LICENSE").write_text(("\n" + "-" * 80 + "\n\n").join(licenses))
        print(f"{NAME}.min.js: {made.stat().st_size:,} bytes, {len(seen)} functions of regl")


if __name__ == "__main__":
    main()
