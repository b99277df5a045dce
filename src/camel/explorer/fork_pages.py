"""The page of a fork: its form, its plan, its command line and, in the agents app, its start."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from camel.core.errors import CamelError, InputError
from camel.explorer.forks import OPTIONS, Fork, ForkRunner, can_fork, free_place, typed
from camel.explorer.home import source_of
from camel.explorer.play_pages import MAX_FORM
from camel.explorer.reading import shown_messages
from camel.explorer.routing import PageRequest, Refused, Site
from camel.explorer.views import run_url, url

_SENTENCE = re.compile(r"[^.!?\n]{8,200}[.!?]")


def add_fork_pages(site: Site, runner: ForkRunner | None) -> None:
    """Add the routes of forks. Only a `runner` starts them. A public server shows no path of its machine."""

    def page(asked: PageRequest, form: dict[str, str], error: str = "") -> tuple[Response, list[str], str]:
        """Return the page, the command that its form describes, and the folder that the command writes to."""
        run, id = asked.request.path_params["run"], asked.last.get("id", "")
        source, record = source_of(asked.catalogue, run), asked.catalogue.conversation(run, id)
        at = asked.whole("at", 1, max(1, len(record.messages))) or 1
        if not record.messages or not can_fork(source, record):
            raise InputError(
                "this conversation cannot be continued: it is empty, imported, restricted or has tools"
            )
        message = record.messages[at - 1]
        number = form.get("n", "10")
        change = form.get("change", "") if form else "message"
        fork = Fork(
            source.address if site.control else run,
            id,
            at,
            change,
            form.get(change, "").replace("\r\n", "\n") if form else message.content,
            form.get(f"seat-{change}", ""),
            int(number) if number.isdecimal() and len(number) < 5 else 0,
        )
        words, place = list[str](), ""
        if form and not error:
            try:
                fork.check(record)
                place = free_place(source.address, id, at)
                words = fork.words(place if site.control else f"{run}-branches")
            except InputError as problem:
                error = str(problem)
        answer = asked.page(
            "fork.html",
            here="list",
            crumbs=[
                (run, run_url(run)),
                (id, url(f"/conversation/{quote(run, safe='')}", [("id", id)]) + f"#m{at}"),
            ],
            shown=shown_messages(record, {})[at - 1],
            seats=[one.name for one in record.speakers],
            sentences=list(
                dict.fromkeys(_SENTENCE.findall("\n".join(one.system for one in record.speakers)))
            )[:60],
            fork=fork,
            plan=fork.plan(record) if fork.n else None,
            options=OPTIONS,
            command=typed(["camel", *words]) if words else "",
            error=error,
            starts=runner is not None,
            action=f"/fork/{quote(run, safe='')}",
            asked=url("", [("id", id), ("at", str(at))]),
        )
        return answer, words, place

    async def sent(request: Request) -> tuple[PageRequest, dict[str, str], tuple[Response, list[str], str]]:
        form = await site.form(request, "Open the conversation and select the message again.", MAX_FORM)
        asked = PageRequest(site, request)
        return asked, form, await asyncio.to_thread(page, asked, form)

    async def show(request: Request) -> Response:
        return (await sent(request))[2][0]

    async def start(request: Request) -> Response:
        asked, form, (answer, words, place) = await sent(request)
        if runner is None:
            text = "This explorer has no model and no budget. Copy the command, or open the run with camel agents."
            raise Refused(403, "Not accepted", text)
        if not words:
            return answer
        try:
            if form.get("change") == "model":
                raise InputError("another model is named in a terminal only: copy the command")
            await runner.start(words, place)
            name = await asyncio.to_thread(site.catalogue.add, place)
        except CamelError as problem:
            return (await asyncio.to_thread(page, asked, form, str(problem)))[0]
        return RedirectResponse(f"/watch/{quote(name, safe='')}", 303)

    site.get("/fork/{run}")(lambda asked: page(asked, {})[0])
    site.add("POST /fork/{run}", show)
    site.add("POST /fork/{run}/start", start)
