"""Which requests each route accepts: one table for the explorer, the agents app and votes.

The one decision to know: a route that is not in the table cannot be added, so nobody can forget to decide. What a kind means is
enforced in one place each: the host name, the token and the rate by `access.Door`, consent by `routing.PageRequest`, forms by
`access.Consent.check_form`, and the rest by `routing.Site.add`.
"""

from __future__ import annotations

from typing import Literal

Kind = Literal["read", "form", "operate"]
"""`read`: shows what the reader has consented to, and changes nothing.

`form`: changes only what belongs to the reader, such as a consent, a vote or a conversation of theirs. It needs the token of a
form that this server showed to this reader.

`operate`: changes runs or their annotations. It needs such a token, and a public server refuses it.
"""

EXPLORER: dict[str, Kind] = {
    "GET /": "read",
    "GET /run/{run}": "read",
    "GET /run/{run}/configuration": "read",
    "GET /reports": "read",
    "GET /reports/{run}/{folder}/{file}": "read",
    "GET /list": "read",
    "GET /pulses": "read",
    "GET /random": "read",
    "GET /conversation/{run}": "read",
    "GET /conversation/{run}/json": "read",
    "GET /conversation/{run}/markdown": "read",
    "GET /compare": "read",
    "GET /download/{file}": "read",
    "GET /statistics": "read",
    "GET /statistics/{file}": "read",
    "GET /contrast": "read",
    "GET /contrast/groups.csv": "read",
    "GET /map": "read",
    "GET /map/points": "read",
    "GET /map/text": "read",
    "GET /map/rows": "read",
    "GET /watch/{run}": "read",
    "GET /watch/{run}/events": "read",
    "POST /watch/{run}/control": "operate",
    "POST /annotate/{run}": "operate",
    "GET /fork/{run}": "read",
    "POST /fork/{run}": "form",
    "POST /fork/{run}/start": "operate",
    "GET /consent": "read",
    "POST /consent": "form",
}
AGENTS: dict[str, Kind] = {
    "GET /play": "read",
    "POST /play": "form",
    "GET /play/{room}": "read",
    "GET /play/{room}/events": "read",
    "POST /play/{room}": "form",
}
VOTES: dict[str, Kind] = {
    "GET /": "read",
    "GET /join": "read",
    "POST /join": "form",
    "POST /leave": "form",
    "GET /pair/{handle}": "read",
    "POST /pair/{handle}": "form",
    "GET /consent": "read",
    "POST /consent": "form",
}
