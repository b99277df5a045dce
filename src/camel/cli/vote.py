"""`camel vote`: people compare two solutions without knowing whose they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camel.cli.options import AllowHost, OpenBrowser, Port, argument, flag, option
from camel.core.errors import InputError, MissingExtra

if TYPE_CHECKING:
    from rich.console import Console

    from camel.evaluation.agreement import Kappa
    from camel.evaluation.vote_results import ComparedSystems, Results
    from camel.explorer.vote.serving import Links


def vote(
    pairs: Annotated[Path, argument("FOLDER", "An evaluation's folder, or a file of pairs (.jsonl).")],
    port: Port = 8091,
    host: Annotated[
        str, option("Address to listen on; on any but this machine's own people come by links.")
    ] = "127.0.0.1",
    url: Annotated[
        str, option("The address that voters open, where a proxy stands before this.", "URL")
    ] = "",
    allow_host: AllowHost = None,
    invite: Annotated[list[str] | None, option("Print a link for this voter; repeatable.", "NAME")] = None,
    open_browser: OpenBrowser = None,
    results: Annotated[bool, flag("--results", "Show what the votes come to so far, and end.")] = False,
    out: Annotated[
        list[Path] | None,
        option("With --results, write them here: .json figures, .csv votes; repeatable.", "FILE"),
    ] = None,
    as_json: Annotated[bool, flag("--json", "With --results, print the figures as JSON.")] = False,
) -> None:
    """Have people vote on pairs of solutions in the browser until Ctrl-C. Needs the extra `explore`."""
    from camel.storage import inside

    for run in (one for one in pairs.parents if (one / "run.json").is_file()):
        pairs = inside.path(run, str(pairs.relative_to(run)))  # no link in a run is followed
    if results:
        _results(pairs, out or [], as_json)
        return
    if out or as_json:
        raise InputError("--out and --json are for results: add --results")
    try:
        from camel.explorer.vote.serving import serve
    except ImportError as error:
        raise MissingExtra(f"Voting in the browser ({error.name})", "explore") from None

    def ready(links: Links) -> None:
        typer.echo(f"{links.pairs:,} {'pair' if links.pairs == 1 else 'pairs'} to vote on at {links.anybody}")
        for name, link in links.own.items():
            typer.echo(f"for {name}: {link}")
        typer.echo(f"Ctrl-C stops it, and the same command goes on. Results: camel vote {pairs} --results")

    serve(
        pairs,
        host=host,
        port=port,
        url=url,
        allow_hosts=allow_host or (),
        invite=invite or (),
        open_browser=open_browser,
        ready=ready,
    )


def _results(pairs: Path, out: list[Path], as_json: bool) -> None:
    from rich.console import Console

    from camel.evaluation.vote_results import read_results, votes_csv

    if wrong := next((path for path in out if path.suffix not in (".csv", ".json")), None):
        raise InputError(f"{wrong}: results are written as .json (figures) or .csv (votes)")
    made = read_results(pairs)
    for path in out:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".json":
            path.write_bytes(made.to_json())
        else:
            path.write_text(votes_csv(pairs), "utf-8")
    if as_json:
        typer.echo(made.to_json().decode())
        return
    _show(Console(highlight=False), made)


def _show(console: Console, made: Results) -> None:
    from camel.cli.panel import say, table
    from camel.reports.numbers import counted, interval, percent

    skipped = f", {made.skipped:,} skipped" if made.skipped else ""
    people = counted(len(made.voters), "voter")
    say(console, f"{counted(made.votes, 'vote')} by {people} on {counted(made.pairs, 'pair')}{skipped}")
    if made.elsewhere:
        say(console, f"{counted(made.elsewhere, 'vote')} on pairs that have other texts now count nowhere")
    if not made.votes:
        say(console, "there are no votes yet: camel vote without --results takes them")
        return
    several = len(made.compared) > 1
    for one in made.compared:
        where = f" ({one.group})" if several and one.group else ""
        say(console, f"\n{one.system_a} against {one.system_b}{where}")
        head = ("", "wins", "95%", "draws", "95%", "losses", "95%", "of")
        table(console, head, _rows(one), right={1, 3, 5, 7})
        if (longer := one.length.longer_wins).of:
            share = f"{percent(longer.rate)} ({interval(longer)})"
            say(console, f"the longer solution won {share} of {counted(longer.of, 'pair')} that are no draws")
    say(console, f"\nagreement of voters (Fleiss' kappa)  {_kappa(made.agreement)}")
    for judge in made.judges:
        say(console, f"most voters and {judge.one} (Cohen's kappa)  {_kappa(judge.kappa)}")
    for two in made.between[:20]:
        say(console, f"{two.one} and {two.other} (Cohen's kappa)  {_kappa(two.kappa)}")
    if made.first.of:
        share = f"{percent(made.first.rate)} ({interval(made.first)})"
        say(console, f"the solution shown first won {share} of {made.first.of:,} votes that are no draws")
    rows: list[tuple[str, ...]] = []
    for one in made.voters:
        agreed = percent(one.with_majority.rate) if one.with_majority.of else "–"
        rows.append((one.voter, f"{one.votes:,}", f"{one.skipped:,}", f"{one.draws:,}", agreed))
    say(console, "")
    table(console, ("voter", "votes", "skipped", "draws", "as most others"), rows, right={1, 2, 3, 4})


def _rows(one: ComparedSystems) -> list[tuple[str, ...]]:
    from camel.evaluation.results import PAPER
    from camel.reports.numbers import interval, percent

    rows: list[tuple[str, ...]] = []
    for name, counted in (("votes", one), ("pairs, by majority", one.majority)):
        rates = (counted.wins, counted.draws, counted.losses)
        cells = (cell for rate in rates for cell in (percent(rate.rate), interval(rate)))
        rows.append((name, *cells, f"{counted.wins.of:,}"))
    for paper in PAPER.get(one.group, ()):
        if paper.evaluation.startswith("Human"):
            cells = (
                cell for share in (paper.wins, paper.draws, paper.losses) for cell in (percent(share), "")
            )
            rows.append(("the paper's voters", *cells, f"{paper.of:,}"))
    return rows


def _kappa(kappa: Kappa) -> str:
    if kappa.kappa is None:
        return "none: too few votes on the same pairs, or all the same"
    width = "" if kappa.low is None else f" ({kappa.low:.2f} to {kappa.high:.2f})"
    return f"{kappa.kappa:.2f}{width}, {kappa.observed:.0%} agree, on {kappa.items:,} pairs"
