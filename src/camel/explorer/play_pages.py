"""The pages of the agents app: start a conversation, watch it, take part, stop it, save it.

The one decision to know: anyone with the address of a room can watch it, but only the browser that started it (known by a
signed cookie) can speak, stop or save. Every form carries the app's token.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from camel.core.critic import Case
from camel.core.errors import InputError
from camel.explorer.access import MAX_FORM as MAX_FIELDS
from camel.explorer.access import Keys, set_cookie
from camel.explorer.colors import ending
from camel.explorer.reading import ShownMessage, parts_of, score, shown_messages
from camel.explorer.rooms import MAX_ROLE, MAX_SAID, MAX_TASK, Agents, Full, Room, Wanted
from camel.explorer.routing import Refused, Site, event_stream
from camel.explorer.views import Role, roles, url
from camel.explorer.visitors import TooMany
from camel.models.person import HandOver, Ruling
from camel.reports.numbers import counted, money, short

MAX_FORM = 12 * MAX_SAID + MAX_FIELDS
"""Maximum size of a form, in bytes: a message in which every character is four escaped bytes, and the other fields."""


IDEAS = (
    Wanted("Python Programmer", "Stock Trader", "Develop a trading bot for the stock market"),
    Wanted("Chef", "Event Planner", "Design a vegetarian dinner for eight guests"),
    Wanted("Mathematics Tutor", "Student", "Understand why there are infinitely many primes"),
    Wanted("Travel Agent", "Retired Teacher", "Plan a calm week in Kyoto in November"),
    Wanted("Novelist", "Gardener", "Write a mystery that is solved by a plant"),
    Wanted("Physicist", "Journalist", "Explain black holes to children"),
)
"""Examples from which a person can start a conversation."""


class PlayPages:
    """The routes of the agents app, and the objects that they share."""

    def __init__(self, site: Site, agents: Agents, keys: Keys) -> None:
        self.site, self.agents, self.keys = site, agents, keys
        self._cookie = f"camel-seat-{keys.suffix}"

    # --- pages ---------------------------------------------------------------------------------------------------

    async def lobby(self, request: Request) -> Response:
        """Return the page with the form for a new conversation and the conversations that this browser started."""
        asked = request.query_params
        given = {name: asked.get(name, "")[:MAX_TASK] for name in ("assistant", "user", "task", "seat")}
        if not given["task"]:
            given = {**_fields(IDEAS[0]), "seat": given["seat"]}
        return self._lobby(request, given)

    def _lobby(self, request: Request, given: dict[str, str], error: str = "", status: int = 200) -> Response:
        agents = self.agents
        limits = [
            ("Messages", f"at most {agents.limits.messages}"),
            ("In progress", f"{agents.in_progress} of {agents.limits.at_once}"),
        ]
        budget = agents.meter.budget
        if budget.usd is not None:
            limits.append(("Budget", f"{money(agents.meter.money)} of {money(budget.usd)} used"))
        if budget.tokens is not None:
            limits.append(
                ("Budget", f"{short(agents.meter.usage.total)} of {short(budget.tokens)} tokens used")
            )
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
            ideas=[(idea, url("/play", _fields(idea).items())) for idea in IDEAS],
            idea_roles=[roles(idea.user, idea.assistant) for idea in IDEAS],
            rooms=[self._about(room) for room in agents.of(self._owner(request))],
            closed=agents.meter.over_budget(),
        )

    def _about(self, room: Room) -> dict[str, Any]:
        return {
            "link": f"/play/{room.id}",
            "roles": roles(room.wanted.user, room.wanted.assistant),
            "task": room.wanted.task,
            "state": "saved" if room.saved else "ended" if room.ended else "in progress",
            "count": counted(len(room.html), "message"),
        }

    async def begin(self, request: Request) -> Response:
        """Start the conversation that a form describes, and redirect to its room."""
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
            room = self.agents.begin(owner, wanted, request.scope.get("visitor"))
        except InputError as error:
            given = {name: value for name, value in form.items() if name != "token"}
            blank = {"assistant": "", "user": "", "task": "", "specify": ""}
            return self._lobby(
                request, blank | given, str(error), 429 if isinstance(error, Full | TooMany) else 400
            )
        response = RedirectResponse(f"/play/{room.id}", 303)
        set_cookie(response, self._cookie, f"{owner}.{self.keys.sign(f'seat:{owner}')}", self.keys.framed)
        return response

    def room(self, request: Request) -> Response:
        """Return the page of a conversation, which may be in progress or ended."""
        room = self._room(request)
        transcript = room.transcript
        mine = self._owner(request) == room.owner
        return self.site.page(
            "room.html",
            self.site.consent.given(request),
            here="play",
            room=room,
            now=room.state(),
            mine=mine,
            seat=room.wanted.seat,
            proposals=Markup(room.state()["proposals"]),  # noqa: S704 - our own template made it
            messages=[Markup(html) for html in room.html],  # noqa: S704 - our own template made it
            roles=[Role(room.roles[seat], room.mark(seat)) for seat in ("user", "assistant")],
            score=score(shown_messages(transcript)),
            ending=ending(transcript.stop.reason if transcript.stop else ""),
            task=transcript.task,
            stop=transcript.stop,
            model=self.agents.name,
            base=f"/play/{room.id}",
            again=url("/play", _fields(room.wanted).items()),
            saved=self._saved(room),
        )

    def _saved(self, room: Room) -> str:
        """Return the explorer's link to a saved conversation. Return an empty text if it is not saved."""
        if not room.saved:
            return ""
        address = self.agents.folder.address
        name = next((run.name for run in self.site.catalogue.runs if run.address == address), "")
        return url(f"/conversation/{quote(name, safe='')}", [("id", room.saved)]) if name else ""

    def events(self, request: Request) -> Response:
        """Return the server-sent events of a room."""
        room = self._room(request)
        known = request.headers.get("last-event-id", "") or request.query_params.get("seen", "")
        seen = int(known) if known.isdecimal() and len(known) < 9 else 0
        return event_stream(request, room.stream(seen))

    async def act(self, request: Request) -> Response:
        """Execute what the form asks for: send a message, let the model answer, stop or save the conversation."""
        room = self._room(request)
        form = await self._form(request)
        if self._owner(request) != room.owner:
            text = "Only the browser that started this conversation can do that. Start one of your own."
            raise Refused(403, "Not your conversation", text)
        try:
            match form.get("do", ""):
                case "say":
                    room.answer(form.get("text", "").replace("\r\n", "\n"))
                case "choose" | "change" as what:
                    if form.get("round") != str(room.round):
                        raise InputError("the proposals have changed: reload the page")
                    number = form.get("proposal", "")
                    words = form.get("text", "").strip() if what == "change" else ""
                    if not (number.isdecimal() and len(number) < 4) or (what == "change" and not words):
                        raise InputError("select a proposal, and to change it, write what to change")
                    room.answer(Ruling(int(number) - 1, words.replace("\r\n", "\n")))
                case "hand":
                    room.answer(HandOver(1))
                case "stop":
                    room.stop()
                case "save":
                    await self.agents.save(room)
                case _:
                    raise InputError("do must be say, choose, change, hand, stop or save")
        except InputError as error:
            raise Refused(409, "Not possible now", str(error)) from None
        return RedirectResponse(f"/play/{room.id}", 303)

    # --- the browser ---------------------------------------------------------------------------------------------------

    def _owner(self, request: Request) -> str:
        """Return the id of this browser. It is empty if the browser has not started a conversation."""
        owner, _, signature = request.cookies.get(self._cookie, "").partition(".")
        return owner if owner and self.keys.signed(f"seat:{owner}", signature) else ""

    def _room(self, request: Request) -> Room:
        room = self.agents.find(request.path_params["room"])
        # On a public server, visitors see only conversations of their own.
        if room is not None and (self.site.control or self._owner(request) == room.owner):
            return room
        text = "It ended some time ago and was not saved, or the server was restarted. Start another one."
        raise Refused(404, "Conversation not found", text)

    async def _form(self, request: Request) -> dict[str, str]:
        return await self.site.form(request, "Reload the page and send the form again.", MAX_FORM)


def _fields(wanted: Wanted) -> dict[str, str]:
    """Return the fields of the form that describe a conversation, without empty ones."""
    given = {name: getattr(wanted, name) for name in ("assistant", "user", "task", "seat")}
    return {name: value for name, value in given.items() if value}


def add_play(site: Site, agents: Agents, keys: Keys) -> None:
    """Add the routes of the agents app."""
    message, parts = site.pages.get_template("message.html"), site.pages.get_template("parts.html")

    def render(shown: Sequence[ShownMessage]) -> tuple[str, str]:
        return message.render(shown=shown[-1]), str(parts.module.score(score(shown)))  # type: ignore[attr-defined]

    def render_case(case: Case, number: int) -> str:
        options = [parts_of(option.content) for option in case.options]
        return str(parts.module.options(options, number, case.final))  # type: ignore[attr-defined]

    agents.render, agents.render_case = render, render_case
    play = PlayPages(site, agents, keys)
    site.add("GET /play", play.lobby)
    site.add("POST /play", play.begin)
    site.add("GET /play/{room}", play.room)
    site.add("GET /play/{room}/events", play.events)
    site.add("POST /play/{room}", play.act)
