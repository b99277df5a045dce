"""The pages of the agents app: set a table, watch, say something, stop, save.

The one decision to know: a table's address lets anybody watch who has it, and only the browser that set it (known by a
signed cookie) may speak, stop or save there. Every form carries the app's own token, as that of the consent does.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple
from urllib.parse import quote

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from camel.core.errors import InputError
from camel.explorer.access import MAX_FORM as MAX_FIELDS
from camel.explorer.access import Keys, set_cookie
from camel.explorer.reading import Bubble
from camel.explorer.rooms import MAX_ROLE, MAX_SAID, MAX_TASK, Agents, Full, Table, Wanted
from camel.explorer.routing import Refused, Site
from camel.explorer.views import url
from camel.models.person import HandOver
from camel.reports.numbers import counted, money, short

MAX_FORM = 12 * MAX_SAID + MAX_FIELDS
"""Bytes: what a person says, every character as four times three, and the rest of the form."""


class Idea(NamedTuple):
    """An example to begin with."""

    assistant: str
    user: str
    task: str


IDEAS = (
    Idea("Python Programmer", "Stock Trader", "Develop a trading bot for the stock market"),
    Idea("Chef", "Event Planner", "Design a vegetarian dinner for eight guests"),
    Idea("Mathematics Tutor", "Student", "Understand why there are infinitely many primes"),
    Idea("Travel Agent", "Retired Teacher", "Plan a calm week in Kyoto in November"),
    Idea("Novelist", "Gardener", "Write a mystery that is solved by a plant"),
    Idea("Physicist", "Journalist", "Explain black holes to children"),
)


class PlayPages:
    """The routes, with what they need of the app."""

    def __init__(self, site: Site, agents: Agents, keys: Keys) -> None:
        self.site, self.agents, self.keys = site, agents, keys
        self._cookie = f"camel-seat-{keys.suffix}"

    # --- pages ---------------------------------------------------------------------------------------------------

    async def lobby(self, request: Request) -> Response:
        """The form, and what this browser has begun."""
        asked = request.query_params
        given = {name: asked.get(name, "")[:MAX_TASK] for name in ("assistant", "user", "task", "seat")}
        if not given["task"]:
            given = {**IDEAS[0]._asdict(), "seat": given["seat"]}
        return self._lobby(request, given)

    def _lobby(self, request: Request, given: dict[str, str], error: str = "", status: int = 200) -> Response:
        agents = self.agents
        limits = [
            f"at most {agents.limits.messages} messages",
            f"{agents.going_on} of {agents.limits.at_once} tables taken",
        ]
        budget = agents.meter.budget
        if budget.usd is not None:
            limits.append(f"{money(agents.meter.money)} of {money(budget.usd)} used")
        if budget.tokens is not None:
            limits.append(f"{short(agents.meter.usage.total)} of {short(budget.tokens)} tokens used")
        return self.site.page(
            "play.html",
            self.site.consent.given(request),
            status,
            here="play",
            given={"seat": "", "specify": "on", "messages": str(min(20, agents.limits.messages))} | given,
            error=error,
            model=agents.name,
            limits=limits,
            most=agents.limits.messages,
            most_role=MAX_ROLE,
            most_task=MAX_TASK,
            ideas=[(idea, url("/play", idea._asdict().items())) for idea in IDEAS],
            tables=[self._about(table) for table in agents.of(self._owner(request))],
            closed=agents.used_up(),
        )

    def _about(self, table: Table) -> dict[str, str]:
        return {
            "link": f"/play/{table.id}",
            "roles": f"{table.wanted.user} and {table.wanted.assistant}",
            "task": table.wanted.task,
            "state": "saved" if table.saved else "ended" if table.ended else "live",
            "count": counted(len(table.html), "message"),
        }

    async def begin(self, request: Request) -> Response:
        """Set a table."""
        form = await self._form(request)
        owner = self._owner(request) or secrets.token_urlsafe(16)
        number = form.get("messages", "")
        try:
            wanted = Wanted(
                form.get("assistant", "").strip(),
                form.get("user", "").strip(),
                form.get("task", "").strip(),
                form.get("seat", ""),
                int(number) if number.isdecimal() and len(number) < 6 else self.agents.limits.messages,
                form.get("specify") == "on",
            )
            table = self.agents.begin(owner, wanted)
        except InputError as error:
            given = {name: value for name, value in form.items() if name != "token"}
            blank = {"assistant": "", "user": "", "task": "", "specify": ""}
            return self._lobby(request, blank | given, str(error), 429 if isinstance(error, Full) else 400)
        response = RedirectResponse(f"/play/{table.id}", 303)
        set_cookie(response, self._cookie, f"{owner}.{self.keys.sign(f'seat:{owner}')}", self.keys.framed)
        return response

    def table(self, request: Request) -> Response:
        """A conversation while it goes on, and after."""
        table = self._table(request)
        transcript = table.transcript
        mine = self._owner(request) == table.owner
        return self.site.page(
            "table.html",
            self.site.consent.given(request),
            here="play",
            table=table,
            now=table.state(),
            mine=mine,
            seat=table.wanted.seat,
            messages=[Markup(html) for html in table.html],  # noqa: S704 - our own template made it
            roles=[(table.look(seat)["role"], table.look(seat)["hue"]) for seat in ("user", "assistant")],
            task=transcript.task,
            stop=transcript.stop,
            model=self.agents.name,
            base=f"/play/{table.id}",
            again=url(
                "/play",
                [(name, getattr(table.wanted, name)) for name in ("assistant", "user", "task", "seat")],
            ),
            saved=self._saved(table),
        )

    def _saved(self, table: Table) -> str:
        """The link to a conversation in the explorer, once it is saved."""
        if not table.saved:
            return ""
        address = self.agents.folder.address
        name = next((run.name for run in self.site.catalogue.runs if run.address == address), "")
        return url(f"/conversation/{quote(name, safe='')}", [("id", table.saved)]) if name else ""

    def events(self, request: Request) -> Response:
        """What happens at a table, as it happens."""
        table = self._table(request)
        known = request.headers.get("last-event-id", "") or request.query_params.get("seen", "")
        seen = int(known) if known.isdecimal() and len(known) < 9 else 0
        return StreamingResponse(
            table.stream(seen), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
        )

    async def act(self, request: Request) -> Response:
        """Say something, let the model answer, stop, or save."""
        table = self._table(request)
        form = await self._form(request)
        if self._owner(request) != table.owner:
            text = "Only the browser that began this conversation can do that. Begin one of your own."
            raise Refused(403, "Not your table", text)
        try:
            match form.get("do", ""):
                case "say":
                    table.answer(form.get("text", "").replace("\r\n", "\n"))
                case "hand":
                    table.answer(HandOver(1))
                case "stop":
                    table.stop()
                case "save":
                    await self.agents.save(table)
                case _:
                    raise InputError("there is nothing like that to do here")
        except InputError as error:
            raise Refused(409, "Not now", str(error)) from None
        return RedirectResponse(f"/play/{table.id}", 303)

    # --- who ---------------------------------------------------------------------------------------------------

    def _owner(self, request: Request) -> str:
        """This browser, if it has begun something here."""
        owner, _, signature = request.cookies.get(self._cookie, "").partition(".")
        return owner if owner and self.keys.signed(f"seat:{owner}", signature) else ""

    def _table(self, request: Request) -> Table:
        if (table := self.agents.find(request.path_params["table"])) is not None:
            return table
        text = "It ended a while ago and was not saved, or the server was started again since. Begin another one."
        raise Refused(404, "This table is gone", text)

    async def _form(self, request: Request) -> dict[str, str]:
        return await self.site.form(request, "Open the page again and answer there.", MAX_FORM)


def add_play(site: Site, agents: Agents, keys: Keys) -> None:
    """Add the routes of the agents app."""
    message = site.pages.get_template("message.html")

    def render(bubble: Bubble) -> str:
        return message.render(bubble=bubble)

    agents.render = render
    play, app = PlayPages(site, agents, keys), site.app
    app.get("/play")(play.lobby)
    app.post("/play")(play.begin)
    app.get("/play/{table}")(play.table)
    app.get("/play/{table}/events")(play.events)
    app.post("/play/{table}")(play.act)
