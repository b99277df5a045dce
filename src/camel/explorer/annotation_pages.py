"""Stars, tags and notes: the form that changes them (`annotations.html` shows them).

The one decision to know: a change is a posted form with the token of all forms, followed by a redirect to the page. The
script only avoids the reload.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from camel.explorer.access import MAX_FORM, local
from camel.explorer.routing import PageRequest, Refused, Site
from camel.query.answers import NeedsConsent
from camel.runs.annotations import MOST_TAGS, NOTE_CHARS, TAG_CHARS

MAX_ANNOTATION = 12 * (NOTE_CHARS + MOST_TAGS * TAG_CHARS) + MAX_FORM
"""Maximum size of the form in bytes: a character can take four bytes, each escaped as three."""


def add_annotations(site: Site, control: bool) -> None:
    """Add the route that changes annotations. If `control` is false, as in a public explorer, nothing can be changed."""
    site.pages.globals.update(annotates=control)  # pyright: ignore[reportCallIssue, reportArgumentType]

    @site.app.post("/annotate/{run}")
    async def annotate(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        if not control:
            raise Refused(403, "Not accepted", "This explorer is public, and stores no annotations.")
        form = await site.form(request, "Open the conversation and use the form on its page.", MAX_ANNOTATION)
        changes: dict[str, Any] = {}
        if "star" in form:
            changes["star"] = form["star"] == "yes"
        if form.get("what") == "text":  # a field that was emptied is not in the form
            changes["tags"] = form.get("tags", "").split(",")
            changes["note"] = form.get("note", "").replace("\r\n", "\n").strip()
        run, id = request.path_params["run"], form.get("id", "")
        catalogue = PageRequest(site, request).catalogue
        try:
            await asyncio.to_thread(catalogue.annotate, run, id, **changes)
        except NeedsConsent:
            text = "Open the conversation and give consent first."
            raise Refused(403, "Not accepted", text) from None
        return RedirectResponse(local(form.get("next", "/list")), 303)
