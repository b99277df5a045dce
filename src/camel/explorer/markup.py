"""Renders text of models as HTML: Markdown, highlighted code, math, and marks around searched words.

The one decision to know: no markup of a model reaches the page. Raw HTML in Markdown is disabled, and our own rules write the
HTML. Images and links to anything but the web become text, and math consists of allowed elements only. Text that is too long
or too deeply nested is shown as plain text. As a second defense, the page's Content-Security-Policy blocks foreign scripts,
styles and images.

Some texts take very long to render. Pages call `renderer.as_html`, which limits the time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from html import escape, unescape
from importlib import import_module
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

MAX_MARKDOWN = 40_000
"""Maximum length of rendered Markdown, in characters. Longer text is shown plain, because rendering can take quadratic time."""
MAX_NESTING = 20
MAX_CODE = 20_000
"""Maximum length of highlighted code, in characters."""
MAX_MATH = 1_000
"""Maximum length of a formula, in characters. Longer formulas are shown as text."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MATHML = _words(
    "math mrow mi mn mo ms mtext mspace mfrac msqrt mroot mstyle merror mpadded mphantom menclose msub msup msubsup "
    "munder mover munderover mmultiscripts mprescripts none mtable mtr mtd"
)
_MATHML_ATTRIBUTES = _words(
    "display displaystyle scriptlevel mathvariant stretchy fence separator form largeop movablelimits accent accentunder "
    "linethickness lspace rspace width height depth columnalign rowspacing columnspacing columnlines rowlines notation "
    "minsize maxsize symmetric"
)
_MATHML_VALUE = re.compile(r"[\w .%+-]{0,60}")
_MACROS = re.compile(r"\\(?:(?:re|provide)?newcommand|renewcommand|providecommand|def|let|newenvironment)\b")
HTML_TAG = re.compile(r"(<math\b.*?</math>|<[^>]*>)", re.DOTALL)
_LANGUAGE = re.compile(r"[\w+#.-]{1,30}")


def as_plain(text: str, terms: Sequence[str] = ()) -> Markup:
    """Return a text unformatted, with the searched words marked."""
    return marked(escape(text), terms)


def marked(html: str, terms: Sequence[str]) -> Markup:
    """Put `<mark>` around the terms in the text of safe HTML, but not in tags, entities and formulas."""
    pattern = _pattern(tuple(terms))
    if pattern is not None:
        parts = HTML_TAG.split(html)
        parts[::2] = [
            pattern.sub(lambda found: f"<mark>{found[1]}</mark>" if found[1] else found[0], part)
            if part
            else ""
            for part in parts[::2]
        ]
        html = "".join(parts)
    return Markup(html)  # noqa: S704 - everything above is escaped or written here


@lru_cache(maxsize=64)
def _pattern(terms: tuple[str, ...]) -> re.Pattern[str] | None:
    wanted = sorted({escape(term) for term in terms if term.strip()}, key=len, reverse=True)[:20]
    if not wanted:
        return None
    # An apostrophe is escaped in different ways by us and by older Pygments, and not at all by the Markdown parser.
    terms_in_html = "|".join(map(re.escape, wanted)).replace(re.escape(escape("'")), "(?:&#x27;|&#39;|')")
    # Skip complete entities, unless a term begins with one.
    return re.compile(f"({terms_in_html})|&#?\\w+;", re.IGNORECASE)


def render(text: str) -> str:
    """Render Markdown as HTML, without a time limit. Pages call `renderer.as_html`, which has one."""
    reader = _reader()
    try:
        tokens = reader.parse(text)
        # The parser drops deeper levels, and no text may be dropped.
        if all(token.level < MAX_NESTING - 1 for token in tokens):
            return str(reader.renderer.render(tokens, reader.options, {}))
    except RecursionError:
        pass
    return f'<div class="plain">{escape(text)}</div>'


@lru_cache(maxsize=1)
def _reader() -> MarkdownIt:
    from markdown_it import MarkdownIt

    reader = MarkdownIt("commonmark", {"html": False, "maxNesting": MAX_NESTING, "breaks": True})
    reader.enable(["table", "strikethrough"])
    # Without link definitions, which would not be shown.
    reader.disable(["html_block", "html_inline", "reference"])
    reader.validateLink = lambda url: url.lower().startswith(("http://", "https://"))  # type: ignore[method-assign]
    reader.inline.ruler.before("escape", "math", _inline_math)
    reader.block.ruler.before("fence", "math", _block_math, {"alt": ["paragraph"]})
    for rule, write in (
        ("fence", _write_code),
        ("code_block", _write_code),
        ("image", _write_image),
        ("link_open", _write_link),
        ("math", _write_math),
        ("heading_open", _write_heading),
        ("heading_close", _write_heading),
        ("ordered_list_open", _write_list),
        ("th_open", _write_cell),
        ("td_open", _write_cell),
    ):
        reader.add_render_rule(rule, write)
    return reader


# --- rules of our own: each gets (renderer, tokens, index, options, environment) ---------------------------------


def _write_code(_: Any, tokens: Sequence[Token], index: int, *__: Any) -> str:
    token = tokens[index]
    language = token.info.split()[0] if token.info.split() else ""
    language = language if _LANGUAGE.fullmatch(language) else ""
    copy = '<button type="button" class="link only-js" data-copy-code>Copy</button>'
    code = f'<pre tabindex="0"><code>{highlight(token.content, language)}</code></pre>'
    return f'<div class="code"><header><span>{escape(language)}</span>{copy}</header>{code}</div>\n'


def _write_image(_: Any, tokens: Sequence[Token], index: int, *__: Any) -> str:
    source = str(tokens[index].attrs.get("src", ""))
    return f'<span class="picture">image: {escape(tokens[index].content)} ({escape(source)})</span>'


def _write_link(_: Any, tokens: Sequence[Token], index: int, *__: Any) -> str:
    target = escape(str(tokens[index].attrs.get("href", "")))
    return f'<a href="{target}" rel="noopener noreferrer nofollow" target="_blank" class="outside" title="{target}">'


def _write_math(_: Any, tokens: Sequence[Token], index: int, *__: Any) -> str:
    return as_math(tokens[index].content, block=tokens[index].block)


def _write_heading(_: Any, tokens: Sequence[Token], index: int, *__: Any) -> str:
    """Write a heading as a styled paragraph, so that headings of messages are not part of the page's outline."""
    token = tokens[index]
    return "</p>\n" if token.nesting < 0 else f'<p class="heading {token.tag}">'


def _write_list(_: Any, tokens: Sequence[Token], index: int, *__: Any) -> str:
    start = tokens[index].attrs.get("start", 1)
    return f'<ol start="{start}">\n' if isinstance(start, int) and start != 1 else "<ol>\n"


def _write_cell(_: Any, tokens: Sequence[Token], index: int, *__: Any) -> str:
    """Write a table cell with its alignment as a class, because the page's policy forbids inline styles."""
    side = re.search(r"left|right|center", str(tokens[index].attrs.get("style", "")))
    return f'<{tokens[index].tag} class="{side[0]}">' if side else f"<{tokens[index].tag}>"


# --- code --------------------------------------------------------------------------------------------------------


LANGUAGES = _words(
    "asm bash c c# c++ clojure cmake console cpp cs csharp css dart diff docker dockerfile elixir erlang fortran go golang "
    "haskell hs html ini java javascript jl js json jsx julia kotlin latex lua make makefile markdown matlab md nasm "
    "objective-c octave perl php postgresql powershell ps1 py py3 pycon python python3 r rb rs ruby rust scala scss "
    "sh shell sql swift tex toml ts tsx typescript verilog vhdl xml yaml yml zsh"
)
"""Languages that are highlighted. The list is short, so that preparing for a text with all of them does not take long."""
_FENCE = re.compile(r"[`~]{3}[ \t]{0,9}([\w+#.-]{1,30})")
_SAMPLE = "<script>x = 1</script><style>a { b: c }</style>"
"""A text that makes the HTML lexer load the lexers of scripts and styles."""


def prepare(text: str) -> None:
    """Load the packages and lexers that rendering a text needs. Call it before the CPU time is limited."""
    _reader()
    import_module("latex2mathml.converter")
    for language in {found.lower() for found in _FENCE.findall(text)} & LANGUAGES:
        _lexer(language)


@lru_cache(maxsize=len(LANGUAGES))
def _lexer(language: str) -> Any:
    """Return the lexer of a language, fully loaded."""
    lexer: Any = import_module("pygments.lexers").get_lexer_by_name(language, stripnl=False)
    list(lexer.get_tokens(_SAMPLE))
    return lexer


def highlight(code: str, language: str) -> str:
    """Return code as HTML, highlighted if its language is in `LANGUAGES`."""
    if language.lower() not in LANGUAGES or len(code) > MAX_CODE:
        return escape(code)
    formatter = import_module("pygments.formatters").HtmlFormatter(nowrap=True)
    return str(import_module("pygments").highlight(code, _lexer(language.lower()), formatter))


# --- math --------------------------------------------------------------------------------------------------------


def as_math(formula: str, *, block: bool = False) -> str:
    """Return a LaTeX formula as MathML, which browsers can draw. Return it as text if it cannot be parsed."""
    shown = f'<code class="formula">{escape(formula)}</code>'
    # Macros could expand to anything, so formulas that define macros are shown as text.
    if len(formula) > MAX_MATH or _MACROS.search(formula):
        return shown
    from latex2mathml.converter import Converter

    try:
        tree = Converter(display="block" if block else "inline").convert_to_element(formula)
        return "".join(_mathml(tree))
    except Exception:  # the package raises exceptions of many classes
        return shown


def _mathml(element: Element) -> Iterable[str]:
    """Write only allowed MathML elements, and escape all text. The math package would write `\text{<script>}` as a script."""
    known = element.tag in _MATHML
    if known:
        attributes = "".join(
            f' {name}="{escape(value)}"'
            for name, value in element.attrib.items()
            if name in _MATHML_ATTRIBUTES and _MATHML_VALUE.fullmatch(value)
        )
        yield f"<{element.tag}{attributes}>"
    yield escape(unescape(element.text or ""))
    for child in element:
        yield from _mathml(child)
        yield escape(unescape(child.tail or ""))
    if known:
        yield f"</{element.tag}>"


_OPEN = {"\\(": "\\)", "\\[": "\\]", "$$": "$$", "$": "$"}


def _inline_math(state: StateInline, silent: bool) -> bool:
    """Parse `$…$`, `$$…$$`, `\\(…\\)` and `\\[…\\]` within a paragraph."""
    text, start = state.src, state.pos
    if text[start] not in "$\\":
        return False
    opening = text[start : start + 2] if text[start : start + 2] in _OPEN else text[start]
    if opening not in _OPEN:
        return False
    begin = start + len(opening)
    end = text.find(_OPEN[opening], begin, begin + MAX_MATH)
    if end < 0 or end > state.posMax or not (formula := text[begin:end].strip()):
        return False
    after = end + len(_OPEN[opening])
    # Prices are not formulas: there is no space inside the dollar signs and no digit after them.
    if opening == "$" and (
        text[begin].isspace()
        or text[end - 1].isspace()
        or text[after : after + 1].isdigit()
        or "\n" in formula
    ):
        return False
    if not silent:
        token = state.push("math", "math", 0)
        token.content, token.block = formula, opening in ("$$", "\\[")
    state.pos = after
    return True


def _block_math(state: StateBlock, start: int, last: int, silent: bool) -> bool:
    """Parse a formula on its own lines, before Markdown interprets its characters as lists and headings."""
    first = state.src[state.bMarks[start] + state.tShift[start] : state.eMarks[start]].strip()
    opening = first[:2]
    if opening not in ("$$", "\\["):
        return False
    closing = _OPEN[opening]
    lines = [first[2:]]
    line = start
    while closing not in lines[-1]:
        line += 1
        if line >= last or line - start > 60 or state.isEmpty(line):
            return False
        lines.append(state.src[state.bMarks[line] : state.eMarks[line]])
    formula, _, rest = "\n".join(lines).partition(closing)
    if rest.strip(" .,;") or not formula.strip():
        return False
    if silent:
        return True
    token = state.push("math", "math", 0)
    token.content, token.block, token.map = formula.strip(), True, [start, line + 1]
    state.line = line + 1
    return True
