"""Reads a page as a browser would, and lists what it must not have."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_TAGS = """
html head meta title link script body a header div span nav form input kbd button main footer dialog h1 h2 h3
dl dt dd p b i section aside ul ol li details summary label select option noscript article progress code pre
mark table thead tbody tr th td br hr em strong s blockquote img svg rect text line math mrow mi mn mo ms
mtext mspace mfrac msqrt mroot mstyle merror mpadded mphantom menclose msub msup msubsup munder mover
figure figcaption h4 circle g path defs clippath munderover mmultiscripts mprescripts none mtable mtr mtd canvas polygon
"""
TAGS = set(_TAGS.split()) | {"textarea", "fieldset", "legend", "datalist"}
OURS = ("/static/",)
TABLE = re.compile(r"/play(?:/[\w-]+)?")
_CONTROL = re.compile(r"/watch/[\w%.-]+/control|/(?:annotate|fork)/[\w%.-]+(?:/start)?(?:\?[\w%.=&-]+)?")


class Page(HTMLParser):
    """A page's text, its links, and what is wrong with it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.links: list[str] = []
        self.said = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in TAGS:
            self.wrong.append(f"<{tag}>")
        for name, value in attrs:
            value = value or ""
            if name == "action" and TABLE.fullmatch(value):
                continue
            if name.startswith(("on", "hx-on", "data-hx")) or name in (
                "style",
                "srcdoc",
                "srcset",
                "formaction",
                "xlink:href",
            ):
                self.wrong.append(f"<{tag} {name}>")
            if name == "src" and not value.startswith(OURS):
                self.wrong.append(f"<{tag} src={value}>")
            if (
                name == "action"
                and value not in ("/list", "/consent", "/map")
                and not _CONTROL.fullmatch(value)
            ):
                self.wrong.append(f"<{tag} action={value}>")
            if name.startswith("hx-") and (name, value) != ("hx-boost", "true"):
                self.wrong.append(f"<{tag} {name}={value}>")
            if name == "href":
                self.links.append(value)
                outside = dict(attrs).get("rel") == "noopener noreferrer nofollow"
                own = value.startswith(("/", "#", "?")) and not value.startswith(("//", "/\\"))
                if not own and not (outside and value.startswith(("http://", "https://")) and tag == "a"):
                    self.wrong.append(f"<{tag} href={value}>")
            if tag == "meta" and name == "http-equiv":
                self.wrong.append("<meta http-equiv>")
        if tag == "script" and not dict(attrs).get("src"):
            self.wrong.append("<script> without a file")

    def handle_data(self, data: str) -> None:
        self.said += data
