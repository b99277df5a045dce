"""The rules of all plots: colors by meaning, whole ticks for counts, drawings for two widths, data as CSV."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest

from camel.reports.blocks import Grid, Note, Picture, Report
from camel.reports.html import write_report
from camel.reports.intervals import ReportFigures
from camel.reports.plots import (
    GRAY,
    NARROW,
    PALETTE,
    WIDE,
    Plot,
    as_csv,
    bars,
    count_axis,
    dots,
    drawn,
    heat,
    outcomes,
    panels,
    plot,
    seat_colors,
    svg,
)

DOT = {"name": "Refusal", "value": 0.5, "low": 0.2, "high": 0.8, "says": "50%", "span": "20 to 80%"}
VERDICTS = {
    "won": 0.5,
    "drawn": 0.25,
    "lost": 0.25,
    "won_words": "A won 2",
    "drawn_words": "drawn 1",
    "lost_words": "A lost 1",
}


def texts(picture: str) -> list[str]:
    return re.findall(r">([^<>]+)</text>", picture)


def size(picture: str) -> int:
    found = re.search(r'<svg[^>]* width="(\d+)', picture)
    assert found
    return int(found[1])


@pytest.mark.parametrize("most", [1, 2, 3, 5, 7, 40])
def test_counts_have_whole_ticks(most: int):
    y = {"field": "n", "type": "quantitative", "axis": count_axis(most)}
    spec = {"data": {"values": [{"n": most}]}, "height": 150, "mark": "bar", "encoding": {"y": y}}
    ticks = [text for text in texts(svg(Plot("counts", "", "", spec))) if text.isdigit()]
    assert len(ticks) > 1
    assert len(ticks) == len(set(ticks))


@pytest.mark.parametrize("draw", ["dots", "outcomes", "bars"])
def test_a_plot_is_drawn_for_both_widths_and_as_wide_as_said(draw: str):
    rows = {
        "dots": [DOT],
        "outcomes": [VERDICTS | {"name": "All"}],
        "bars": [{"name": "passed", "count": 3}],
    }[draw]
    function = {"dots": dots, "outcomes": outcomes, "bars": bars}[draw]
    wide, narrow = drawn(plot("x", "", "", lambda width: function(rows, width)))
    assert abs(size(wide) - WIDE) <= 4
    assert abs(size(narrow) - NARROW) <= 4
    assert texts(wide)
    assert 'id="x-narrow-' in narrow or "id=" not in narrow


def test_won_drawn_and_lost_are_in_this_order_and_named():
    picture = svg(Plot("x", "", "", outcomes([VERDICTS | {"name": "Code"}], WIDE)))
    assert [fill for fill in re.findall(r'fill="(#\w+)"', picture) if fill in (GRAY, *PALETTE[6:])][:3] == [
        PALETTE[6],
        GRAY,
        PALETTE[7],
    ]
    assert texts(picture)[-3:] == ["A won 2", "drawn 1", "A lost 1"]


def test_a_row_without_a_figure_is_a_title():
    picture = svg(Plot("x", "", "", dots([{"name": "One judge"}, DOT], WIDE)))
    assert {"One judge", "Refusal", "50%", "20 to 80%"} <= set(texts(picture))


def test_colors_belong_to_seats_and_never_repeat():
    assert seat_colors(["user", "assistant", "critic"]) == PALETTE[:3]
    assert seat_colors(["assistant"]) == PALETTE[1:2]
    members = seat_colors(["user", *(f"member {n}" for n in range(9))])
    assert members[:8] == PALETTE
    assert members[8:] == [GRAY, GRAY]


def test_labels_of_a_heat_map_are_broken_not_rotated():
    cell = {"row": "+ Code", "column": "AI Society", "size": 0.4, "color": PALETTE[0], "words": "+40"}
    picture = svg(Plot("x", "", "", heat([cell, cell | {"column": "Math", "span": "+10 to +70"}], (130, 54))))
    assert "rotate" not in picture
    assert {"AI", "Society", "+40", "+10 to +70"} <= set(re.findall(r">([^<>]+)</t", picture))


def test_a_single_panel_has_no_title():
    rows = [{"of": "a", "n": 1}]
    unit = {"mark": "bar", "encoding": {}}
    assert "facet" not in panels(rows, "of", unit, WIDE)
    several = panels([*rows, {"of": "b", "n": 2}], "of", unit, NARROW)
    assert several["columns"] == 1


def test_data_cannot_become_a_formula():
    read = list(csv.DictReader(io.StringIO(as_csv([{"name": "=1+1", "n": -2}, {"name": "a", "more": "x"}]))))
    assert read == [{"name": "'=1+1", "n": "-2", "more": ""}, {"name": "a", "n": "", "more": "x"}]


def test_a_report_links_to_its_run_its_files_and_its_sisters(tmp_path: Path):
    blocks = [Picture("stops"), Note("a caveat"), Grid(("x",), [("1",)], title="A table"), Picture("none")]
    one = plot("stops", "Endings", "Of 20.", lambda width: dots([DOT], width))
    made = Report(
        "Study",
        "It works",
        "We looked.",
        {"Run": "caravan"},
        {"Endings": blocks},
        [one],
        "caravan",
    )

    def figures(name: str) -> ReportFigures:
        return type("Figures", (ReportFigures,), {"file": name}, frozen=True)()

    write_report(tmp_path / "caravan" / "study", made, figures("study"))
    page = (tmp_path / "caravan" / "study" / "study.html").read_text()
    assert '<a data-run href="../">caravan</a>' in page
    assert "evaluation.html" not in page
    for kind in ("svg", "png", "csv"):
        assert f'href="plots/stops.{kind}"' in page
        assert (tmp_path / "caravan" / "study" / "plots" / f"stops.{kind}").is_file()
    assert re.findall(r'<h2 class="fig-title">([^<]+)', page) == ["Endings", "A table"]
    write_report(tmp_path / "caravan" / "evaluation", made, figures("evaluation"))
    assert (
        '<a class="btn" href="../study/study.html">'
        in (tmp_path / "caravan/evaluation/evaluation.html").read_text()
    )
    write_report(tmp_path / "elsewhere", made, figures("study"))
    assert 'href="../' not in (tmp_path / "elsewhere" / "study.html").read_text()
