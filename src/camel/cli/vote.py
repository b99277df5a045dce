"""`camel vote`: let people compare two solutions without knowing who wrote them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camel.cli import options as shared
from camel.cli.options import argument, flag, option
from camel.cli.output import echo, escaped, table
from camel.core.errors import InputError, MissingExtra

if TYPE_CHECKING:
    from camel.evaluation.agreement import Kappa
    from camel.evaluation.vote_results import ComparedSystems, Results
    from camel.explorer.vote.app import Links


PairsArgument = Annotated[Path, argument("FOLDER", "Folder that `camel evaluate agents` wrote, or a .jsonl file with pairs of solutions.")]  # fmt: skip
UrlOption = Annotated[str, option("URL that voters open, if they reach this server through a proxy.", "URL")]  # fmt: skip
InviteOption = Annotated[list[str] | None, option("Print a personal link for the voter with this name.", "NAME")]  # fmt: skip


def vote(
    pairs: PairsArgument,
    port: shared.Port = 8092,
    host: shared.Host = "127.0.0.1",
    url: UrlOption = "",
    allow_host: shared.AllowHost = None,
    invite: InviteOption = None,
    no_token: shared.NoToken = False,
    open_browser: shared.OpenBrowser = None,
    results: Annotated[bool, flag("--results", "Show the results so far and exit.")] = False,
    out: shared.Out = "",
    as_json: shared.AsJson = False,
) -> None:
    """Let people vote on pairs of solutions in the browser."""
    from camel.storage import inside

    for run in (one for one in pairs.parents if (one / "run.json").is_file()):
        pairs = inside.path(run, str(pairs.relative_to(run)))  # links inside a run are not followed
    if results:
        _print_results(pairs, Path(out) if out else None, as_json)
        return
    if out or as_json:
        raise InputError("--out and --json work only with --results: add it")
    try:
        from camel.explorer.vote.app import serve
    except ImportError as error:
        raise MissingExtra(f"Voting in the browser ({error.name})", "explore") from None

    def ready(links: Links) -> None:
        typer.echo(f"{links.pairs:,} {'pair' if links.pairs == 1 else 'pairs'} to vote on at {links.anybody}")
        for name, link in links.own.items():
            typer.echo(f"for {name}: {link}")
        typer.echo(
            f"Press Ctrl-C to stop; the same command continues. Results: camel vote {shlex.quote(str(pairs))} --results"
        )

    serve(
        pairs,
        host=host,
        port=port,
        url=url,
        allow_hosts=allow_host or (),
        invite=invite or (),
        needs_token=not no_token,
        open_browser=open_browser,
        ready=ready,
    )


def _print_results(pairs: Path, out: Path | None, as_json: bool) -> None:
    from camel.evaluation.vote_results import read_results, votes_csv

    if out and out.suffix not in (".csv", ".json"):
        raise InputError(f"--out must end in .json for the results or .csv for the votes, not {out.name!r}")
    made = read_results(pairs)
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(made.to_json() if out.suffix == ".json" else votes_csv(pairs).encode())
    if as_json:
        typer.echo(escaped(made.to_json()))
        return
    _show(made)


def _show(made: Results) -> None:
    from camel.reports.numbers import counted, interval, percent

    skipped = f", {made.skipped:,} skipped" if made.skipped else ""
    people = counted(len(made.voters), "voter")
    echo(f"{counted(made.votes, 'vote')} by {people} on {counted(made.pairs, 'pair')}{skipped}")
    if made.elsewhere:
        echo(f"{counted(made.elsewhere, 'vote')} are ignored: the texts of their pairs have changed")
    if not made.votes:
        echo("no votes yet: run camel vote without --results to collect them")
        return
    several = len(made.compared) > 1
    for one in made.compared:
        where = f" ({one.group})" if several and one.group else ""
        echo(f"\n{one.system_a} against {one.system_b}{where}")
        head = ("", "wins", "95%", "draws", "95%", "losses", "95%", "of")
        table(head, _rows(one), right={1, 3, 5, 7})
        if (longer := one.length.longer_wins).of:
            share = f"{percent(longer.rate)} ({interval(longer)})"
            echo(f"the longer solution won {share} of {counted(longer.of, 'pair')} without a draw")
    echo(f"\nagreement of voters (Fleiss' kappa)  {_kappa(made.agreement)}")
    for judge in made.judges:
        echo(f"most voters and {judge.one} (Cohen's kappa)  {_kappa(judge.kappa)}")
    for two in made.between[:20]:
        echo(f"{two.one} and {two.other} (Cohen's kappa)  {_kappa(two.kappa)}")
    if made.first.of:
        share = f"{percent(made.first.rate)} ({interval(made.first)})"
        echo(f"the solution shown first won {share} of {made.first.of:,} votes without a draw")
    rows: list[tuple[str, ...]] = []
    for one in made.voters:
        agreed = percent(one.with_majority.rate) if one.with_majority.of else "–"
        rows.append((one.voter, f"{one.votes:,}", f"{one.skipped:,}", f"{one.draws:,}", agreed))
    echo("")
    table(("voter", "votes", "skipped", "draws", "as most others"), rows, right={1, 2, 3, 4})


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
        return "unknown: too few votes on the same pairs, or all equal"
    width = "" if kappa.low is None else f" ({kappa.low:.2f} to {kappa.high:.2f})"
    return f"{kappa.kappa:.2f}{width}, {kappa.observed:.0%} agree, on {kappa.items:,} pairs"
