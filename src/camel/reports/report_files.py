"""Writes the files of a report: the page, the same as Markdown, the figures as JSON, and the plots."""

from __future__ import annotations

from pathlib import Path

from camel.reports.blocks import Report
from camel.reports.html import render_html
from camel.reports.markdown import render_markdown
from camel.reports.plots import drawn, write_plots
from camel.storage import inside

REPORTS = {"study": "Study", "evaluation": "Evaluation"}
"""Reports that are in a run's folder by default, each in a folder with its name."""


def write_report(folder: Path, name: str, report: Report, figures: bytes) -> None:
    """Write `<name>.html`, `<name>.md`, `<name>.json` and the folder `plots`.

    If the folder is in that of its run, the page links to the run's folder and to its other reports. In the explorer, the link
    opens the page of the run.
    """
    pictures = {plot.name: drawn(plot) for plot in report.plots}
    write_plots(folder, report.plots, pictures)
    at_home = bool(report.run) and folder.absolute().parent.name == report.run
    others = [
        (title, f"../{other}/{other}.html")
        for other, title in REPORTS.items()
        if at_home and other != name and (folder.parent / other / f"{other}.html").is_file()
    ]
    page = render_html(report, pictures, name=name, run_link="../" if at_home else "", others=others)
    inside.write(folder, f"{name}.md", render_markdown(report))
    inside.write(folder, f"{name}.html", page)
    inside.write(folder, f"{name}.json", figures)
