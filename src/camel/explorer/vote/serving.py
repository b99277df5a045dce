"""Serves the voting app until Ctrl-C, and makes the links for voters.

The one decision to know: on a loopback address, voters are at this machine and may enter any name. If other machines can
connect (another address or another host name), voters need a link: a personal one, or one with which they choose a free name.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from camel.core.checks import shown
from camel.core.errors import InputError
from camel.evaluation.pairs import read_pairs
from camel.evaluation.votes import BallotBox, voter_name, votes_folder
from camel.explorer.access import Keys, is_loopback
from camel.explorer.serving import answer, is_any, link_to, listening, open_page
from camel.explorer.vote.app import Passes, create_app


class Links(NamedTuple):
    """The links for voters."""

    pairs: int
    anybody: str
    """The link for voters who enter a name themselves."""
    own: dict[str, str]
    """The personal link of each voter who was invited by name."""


def serve(
    pairs: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    allow_hosts: Sequence[str] = (),
    url: str = "",
    invite: Sequence[str] = (),
    open_browser: bool | None = False,
    ready: Callable[[Links], None] = lambda links: None,
) -> None:
    """Take votes until interrupted. Calls `ready` with the links once the port is open."""
    found, invited = read_pairs(pairs), [voter_name(name) for name in invite]
    if not found:
        raise InputError(f"'{pairs}' has no pairs to vote on")
    asked = urlsplit(url)
    if url and (asked.scheme not in ("http", "https") or not asked.hostname or asked.path.strip("/")):
        raise InputError(
            f"--url must be the address that voters open, such as https://vote.example.org, not {shown(url)}"
        )
    by_name = is_loopback(host) and not url and not allow_hosts
    with listening(host, port) as opened:
        invited = asyncio.run(keep_invited(votes_folder(pairs), invited))
        box = BallotBox(votes_folder(pairs))
        # If the server listens on all addresses, other machines can use this machine's name.
        base = url or link_to(socket.gethostname() if is_any(host) else host, opened.getsockname()[1], "")
        base = base.rstrip("/")
        known = {*allow_hosts, socket.gethostname(), host, asked.hostname or host}
        app = create_app(found, box, hosts=known, by_name=by_name, url=url)
        passes = Passes(Keys(box.secret))
        anybody = f"{base}/" if by_name else base + passes.link("")
        ready(Links(len(found), anybody, {name: base + passes.link(name) for name in invited}))
        open_page(anybody, open_browser)
        answer(app, opened)


async def keep_invited(folder: Path, names: Sequence[str]) -> list[str]:
    """Reserve the invited names, and return them as stored. Call it before their links are printed."""
    box = BallotBox(folder)
    try:
        return [await box.join(name) for name in names]
    finally:
        await box.close()
