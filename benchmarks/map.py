"""How quickly the explorer draws a map of a million points, under software WebGL.

    python -m benchmarks.map [--part draw|make] [--points N] [--short] [--folder DIR]

The map is written directly, in the layout that `camel map` leaves behind: points in clouds, texts of ordinary length, narrow
vectors. What is timed is what a reader waits for: from opening the page in chromium until every point is on the canvas. The
time of the server alone (points, a text, the list of a line around a third of the map) is measured as well. Exits with 1
where a limit is passed; with --short there are a tenth of the points and the limits are wider.

`--part make` says what making a map costs besides embedding, in CPU seconds: near-duplicates (planted ones must all be found),
figures, groups and layout of 50,000 vectors of 384 dimensions whose spectrum falls like that of sentences.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from camel.core.task import Task
from camel.core.transcript import Speaker, Transcript
from camel.explorer.maps import map_of
from camel.index.build import no_cost, write_indexed
from camel.maps.diversity import Diversity, diversity, duplicates
from camel.maps.mapping import cluster_vectors, place, scaled
from camel.maps.table import MapGroup, MapHeader, path_of, schema, write
from camel.query.catalogue import Catalogue
from camel.query.where import Query
from camel.runs.markers import Marker, new_attempt
from camel.runs.run import RunFolder, open_folder
from camel.runs.settings import Settings

T = TypeVar("T")
STAGE = "conversations"
GROUPS = 40
WIDTH = 8
LIMITS = {"drawn": 6.0, "points": 1.0, "text": 0.3, "rows": 1.0}
STOPS = ["done", "max_messages", "user_no_instruction", "error"]
SLACK = float(os.environ.get("CAMEL_BENCH_SLACK", "1"))


def make(folder: RunFolder, n: int) -> None:
    """A run of one conversation, and a map of it with many points."""
    folder.create(Settings("f", {"scenario": "ai_society"}, "0"))
    path = folder.data_path(STAGE, 0, new_attempt(), ".parquet")
    one = Transcript(
        "000_000_000", Task("a task"), [Speaker("user", "Trader"), Speaker("assistant", "Guide")]
    )
    written = write_indexed(folder, STAGE, path, [one], "f", no_cost)
    file, size = folder.persist(path)
    folder.commit(Marker(STAGE, 0, file, written.rows, written.sha256, "f", {}, size))
    chance = np.random.default_rng(0)
    centers = chance.normal(0, 1, (GROUPS, 2))
    group = np.sort(chance.integers(0, GROUPS, n)).astype(np.int32)
    points = scaled((centers[group] + chance.normal(0, 0.12, (n, 2))).astype(np.float32))
    labels = [f"caravan {k}, market, well" for k in range(GROUPS)]
    same = {
        "scenario": "ai_society",
        "assistant": "Guide",
        "user": "Trader",
        "others": "",
        "model": "m",
        "labels": "",
        "findings": "",
        "copy_of": "",
    }
    numbers = {"completion": 200, "calls": 20, "shard": 0, "row": 0, "message": -1}
    made = {
        "id": pa.array([f"{k // 10_000:03d}_{k // 100 % 100:03d}_{k % 100:03d}" for k in range(n)]),
        "text": pa.array(
            [f"Plan the {k}th journey of the caravan to the market by the old well" for k in range(n)]
        ),
        "x": pa.array(points[:, 0]),
        "y": pa.array(points[:, 1]),
        "cluster": pa.array(group),
        "label": pa.array([labels[k] for k in group.tolist()]),
        "stop": pa.array([STOPS[k] for k in chance.integers(0, len(STOPS), n).tolist()]),
        "messages": pa.array(chance.integers(2, 41, n).astype(np.int32)),
        "tokens": pa.array(chance.integers(100, 200_000, n)),
        "cost": pa.array(chance.random(n)),
        "vector": pa.FixedSizeListArray.from_arrays(
            pa.array(chance.normal(0, 1, n * WIDTH).astype(np.float32)), WIDTH
        ),
        **{name: pa.array([value] * n) for name, value in same.items()},
        **{name: pa.array(np.full(n, value)) for name, value in numbers.items()},
    }
    layout = schema(WIDTH)
    table = pa.table([made[name].cast(layout.field(name).type) for name in layout.names], schema=layout)
    middle = [np.median(points[group == k], axis=0).tolist() for k in range(GROUPS)]
    counts = np.bincount(group, minlength=GROUPS).tolist()
    header = MapHeader(
        "tasks",
        "made up",
        STAGE,
        "f",
        1,
        n,
        "made up",
        0,
        [MapGroup(labels[k], *middle[k], counts[k], counts[k]) for k in range(GROUPS)],
        (figures := Diversity(n, 0.95, 0, 0, 0.3, 5_000, 7.0)),
        figures,
    )
    write(path_of(folder, "tasks"), table, header)


def serving(where: Path) -> dict[str, float]:
    """Seconds of the server alone, the first time each is asked."""
    area = [(-0.6, -0.6), (0.6, -0.6), (0.6, 0.6), (-0.6, 0.6)]
    took: dict[str, float] = {}
    with Catalogue([where]) as catalogue:
        started = time.perf_counter()
        view = map_of(catalogue, catalogue.runs[0].name, "tasks", Query())
        view.points("stop")
        took["points"] = time.perf_counter() - started
        started = time.perf_counter()
        view.at(len(view.visible) // 2)
        took["text"] = time.perf_counter() - started
        started = time.perf_counter()
        view.read(view.inside(area)[:40])
        took["rows"] = time.perf_counter() - started
    return took


def drawn(where: Path, times: int) -> float:
    """Seconds until the page has drawn every point; the best of some, for others use the machine too."""
    from playwright.sync_api import sync_playwright

    from tests.support.browser import ARGUMENTS, Server

    server = Server(where)
    found: list[float] = []
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"),
                args=[one for one in ARGUMENTS if one != "--disable-gpu"] + ["--enable-unsafe-swiftshader"],
            )
            for _ in range(times):
                page = browser.new_page(viewport={"width": 1280, "height": 900})
                started = time.perf_counter()
                page.goto(f"{server.url}/map?color=stop", wait_until="load")
                page.wait_for_selector("#map[data-drawn], #map[data-failed]", timeout=120_000)
                # A frame after the last command: until then it may still be in a queue.
                page.evaluate(
                    "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
                )
                found.append(time.perf_counter() - started)
                assert page.evaluate("document.querySelector('#map').dataset.drawn"), page.inner_text(
                    "#map-state"
                )
                page.close()
            browser.close()
    finally:
        server.stop()
    return min(found)


def making(n: int) -> int:
    """What making a map of so many vectors costs."""
    from tests.support.mapped import unit

    chance = np.random.default_rng(0)
    spectrum = np.arange(1, 385) ** -0.6
    vectors = unit(chance.normal(size=(n, 384)) * spectrum)
    copies = np.arange(1, n, 1_000)
    vectors[copies] = unit(vectors[copies - 1] + chance.normal(size=(len(copies), 384)) * 0.003)
    print(f"{n:,} vectors")

    def timed(name: str, work: Callable[[], T]) -> T:
        started = time.process_time()
        made = work()
        print(f"{name:16} {time.process_time() - started:7.1f} s of CPU", flush=True)
        return made

    found = timed("near-duplicates", lambda: duplicates(vectors))
    timed("figures", lambda: diversity(vectors, found, 0.95))
    timed("groups", lambda: cluster_vectors(vectors))
    timed("layout", lambda: place(vectors))
    planted = {(int(at) - 1, int(at)) for at in copies}
    missed = planted - {(one.one, one.other) for one in found.pairs}
    print(f"{len(planted):,} planted near-duplicates, {len(missed):,} missed")
    return int(bool(missed))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=("draw", "make"), default="draw")
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    if given.part == "make":
        return making(5_000 if given.short else 50_000)
    n = given.points // 10 if given.short else given.points
    scratch = given.folder or Path(tempfile.mkdtemp(prefix="camel-map-"))
    try:
        where = scratch / f"map-{n}"
        if not where.exists():
            make(open_folder(where), n)
        took = serving(where)
        took["drawn"] = drawn(where, 1 if given.short else 3)
    finally:
        if given.folder is None:
            shutil.rmtree(scratch, ignore_errors=True)
    slack = SLACK * (4 if given.short else 1)
    print(f"{n:,} points")
    for name, seconds in took.items():
        print(f"{name:8} {seconds:7.2f} s of {LIMITS[name] * slack:.1f}")
    return int(any(seconds > LIMITS[name] * slack for name, seconds in took.items()))


if __name__ == "__main__":
    sys.exit(main())
