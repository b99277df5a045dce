"""The files of a report: the page, the same as Markdown, its figures as JSON, and the plots."""

from __future__ import annotations

from pathlib import Path

from camel.reports.blocks import Report
from camel.reports.html import render_html
from camel.reports.markdown import render_markdown
from camel.reports.plots import svg, write_plots
from camel.storage import inside


def write_report(folder: Path, name: str, report: Report, figures: bytes) -> None:
    """Write `<name>.html`, `<name>.md`, `<name>.json` and the folder `plots`."""
    pictures = {plot.name: svg(plot) for plot in report.plots}
    write_plots(folder, [(plot, pictures[plot.name]) for plot in report.plots])
    inside.write(folder, f"{name}.md", render_markdown(report))
    inside.write(folder, f"{name}.html", render_html(report, pictures))
    inside.write(folder, f"{name}.json", figures)
