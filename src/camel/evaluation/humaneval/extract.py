"""From what a chat model wrote to a program: fences, prose, only a body, a repeated head, an interactive session.

The one decision to know: a text is read in several ways, and the first that is Python and defines the function is taken; if
none does, the one that could be the function's body is put below its head. Nothing is ever run to find out, and what a model
meant is not guessed at beyond how it laid its code out.
"""

from __future__ import annotations

import ast
import re
import textwrap
import threading
import warnings
from collections.abc import Iterator

from camel.core.thought import separate
from camel.evaluation.humaneval.problems import Problem

MOST_CHARS = 60_000
"""Of an answer that are read; no function is longer."""
_FILTERS = threading.Lock()
_FENCE = re.compile(
    r"^[ \t>]*(?P<mark>`{3,}|~{3,})[ \t]*(?P<kind>[\w+#.-]*)[^\n]*\n(?P<body>.*?)(?:^[ \t>]*(?P=mark)[`~]*[ \t]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)
_PYTHON = {"", "py", "python", "python3", "py3", "ipython", "pycon", "python-repl", "code"}
_SESSION = re.compile(r"^[ \t]*(?:>>>|In \[\d+\]:) ?", re.MULTILINE)
_SESSION_LINE = re.compile(r"^[ \t]*(?:>>>|\.\.\.:|\.\.\.|In \[\d+\]:) ?(.*)$")
_STARTS = re.compile(
    r"^[ \t]*(?:from\s+\S+\s+import\b|import\s+\w|def\s+\w|async\s+def\s|class\s+\w|@\w)", re.MULTILINE
)
_TAGS = re.compile(r"\[/?(?:PYTHON|CODE)\]|</?(?:code|python)>", re.IGNORECASE)


def extract(problem: Problem, answer: str) -> str:
    """The program in an answer, whole and ready to be loaded; empty when there is none."""
    answer = answer[:MOST_CHARS].replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
    answer = _TAGS.sub("\n", separate(answer).speech)
    blocks = list(_blocks(answer))
    for text in _whole(answer, blocks):
        if program := _defining(problem, text, blocks):
            return program
    for text in [*blocks, answer]:
        if program := _from_body(problem, text):
            return program
    return ""


def _blocks(answer: str) -> Iterator[str]:
    """What stands between fences, those marked as Python first."""
    found = [(one["kind"].lower() in _PYTHON, one["body"]) for one in _FENCE.finditer(answer)]
    for is_python in (True, False):
        yield from (body for python, body in found if python is is_python)


def _whole(answer: str, blocks: list[str]) -> Iterator[str]:
    """Texts that may be a program, the likeliest first."""
    yield from blocks
    # Imports and helpers in one block, the function in the next.
    if len(blocks) > 1:
        yield "\n\n".join(blocks)
    yield answer


def _defining(problem: Problem, text: str, blocks: list[str]) -> str:
    """A program out of `text` that defines the function; empty when there is none."""
    for form in _forms(text):
        for at in _beginnings(form):
            program = _parsed_prefix(form[at:])
            if program and _defines(program, problem.entry):
                return _completed(problem, program, blocks)
    return ""


def _forms(text: str) -> Iterator[str]:
    """The text as it is, taken out of an interactive session, and out of an indented block."""
    if _SESSION.search(text) and (said := _session(text)):
        yield said
    yield text
    if (flat := textwrap.dedent(text)) != text:
        yield flat


def _session(text: str) -> str:
    """What was typed in an interactive session: every run of lines is one statement, what was answered is left out."""
    found = (_SESSION_LINE.match(line) for line in text.splitlines())
    return "\n".join(one[1] for one in found if one)


def _beginnings(text: str) -> Iterator[int]:
    """Where code may begin: at the start, or after prose at the first lines that look like it."""
    yield 0
    for count, found in enumerate(_STARTS.finditer(text)):
        if count >= 8:
            return
        if found.start():
            yield found.start()


def _parsed_prefix(text: str) -> str:
    """The longest beginning of `text`, by lines, that is Python; what follows a program is often prose."""
    text = textwrap.dedent(text).strip("\n")
    lines = text.split("\n")
    for _ in range(8):
        candidate = "\n".join(lines)
        line = _broken_at(candidate)
        if line is None:
            return candidate if candidate.strip() else ""
        # Where it breaks, and all that belongs to the same statement, is left out.
        cut = min(line - 1, len(lines) - 1)
        while cut > 0 and (not lines[cut].strip() or lines[cut][:1] in " \t)]}"):
            cut -= 1
        if cut <= 0:
            return ""
        lines = lines[:cut]
    return ""


def _broken_at(text: str) -> int | None:
    """The first line that is no Python; None where all is."""
    try:
        _tree(text)
    except SyntaxError as error:
        return max(1, error.lineno or 1)
    except (ValueError, RecursionError, MemoryError, OverflowError):
        return 1
    return None


def _tree(text: str) -> ast.Module:
    # Of invalid escapes in somebody else's strings; the filters are those of all threads.
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def _defines(program: str, name: str) -> bool:
    """Whether the function is there with something in it beyond its docstring, or is given by name; the last one counts."""
    found = False
    for node in _tree(program).body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name == name:
                found = not _only_documented(node)
            case ast.Assign() if any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
                found = True
            case _:
                pass
    return found


def _only_documented(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether there is nothing in a function but words, `pass` and dots: a stub, which a model repeats before it answers."""
    return all(
        isinstance(one, ast.Pass) or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
        for one in node.body
    )


def _completed(problem: Problem, program: str, blocks: list[str]) -> str:
    """A program with what the problem gives beforehand (its imports, and the helpers that it does not define itself), with
    what it needs of other blocks, and without what it tries out at the end."""
    own = _tree(program)
    names = _bound(own)
    before = [
        ast.unparse(node)
        for node in _tree(problem.prompt).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name not in names | {problem.entry})
    ]
    missing = {one.id for one in ast.walk(own) if isinstance(one, ast.Name)} - names - {problem.entry}
    for block in blocks:
        if _broken_at(block) is None:
            before += [
                ast.unparse(node)
                for node in _tree(block).body
                if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef)
                and _bound(ast.Module([node], [])) & missing
            ]
    # `from __future__` has to come first, and nowhere else.
    lead = [ast.unparse(node) for node in own.body if _is_future(node)]
    return "\n".join([*lead, *before, _without_trials(program, own, problem.entry), ""])


def _bound(tree: ast.Module) -> set[str]:
    """Names that a module's own statements give a meaning."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {one.asname or one.name.partition(".")[0] for one in node.names}
        elif isinstance(node, ast.Assign):
            names |= {
                one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name)
            }
    return names


def _without_trials(program: str, tree: ast.Module, entry: str) -> str:
    """The program without statements that print, ask or call the function: examples, which would be run as well. And
    without `from __future__`, which stands before it."""
    lines = program.split("\n")
    taken = [
        set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        for node in tree.body
        if not (_is_trial(node, entry) or _is_future(node))
    ]
    needed = set[int]().union(*taken)
    for node in tree.body:
        own = set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        if (_is_trial(node, entry) or _is_future(node)) and not own & needed:
            for line in own:
                lines[line - 1] = ""
    return "\n".join(lines).rstrip()


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _is_trial(node: ast.stmt, entry: str) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
        return False
    if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == entry for t in node.targets):
        return False  # the function itself, which may call itself
    called = {
        one.func.id for one in ast.walk(node) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)
    }
    return bool(called & {"print", "input", entry})


def _from_body(problem: Problem, text: str) -> str:
    """The function with `text` as its body; empty when that is no Python, or nothing but words."""
    head = problem.prompt.rstrip() + "\n"
    bodies = [
        body.rstrip().lstrip("\n").split("\n")
        for form in _forms(text)
        for body in (form, _first_line_short(form), textwrap.indent(textwrap.dedent(form), "    "))
        if body.strip()
    ]
    # As they are first; then without what follows the last line that is Python.
    for cuts in (0, 8):
        for lines in bodies:
            program = _with_body(problem, head, lines, cuts)
            if program:
                return program
    return ""


def _with_body(problem: Problem, head: str, lines: list[str], cuts: int) -> str:
    for _ in range(cuts + 1):
        program = head + "\n".join(lines) + "\n"
        line = _broken_at(program)
        if line is None:
            fine = _defines(program, problem.entry) and _does_something(program, problem.entry)
            return program if fine else ""
        cut = min(len(lines) - 1, line - head.count("\n") - 1)
        if cut <= 0:
            return ""
        lines = lines[:cut]
    return ""


def _first_line_short(text: str) -> str:
    """A body whose first line lost its indentation, as when a chat's text was trimmed."""
    lines = text.strip("\n").split("\n")
    if len(lines) > 1 and lines[0][:1].strip() and any(line[:4] == "    " for line in lines[1:]):
        return "\n".join(["    " + lines[0], *lines[1:]])
    return ""


def _does_something(program: str, name: str) -> bool:
    """Whether the function itself returns, raises, yields, changes something or goes on: one word of prose is Python too."""
    todo: list[ast.AST] = [
        n for n in _tree(program).body if isinstance(n, ast.FunctionDef) and n.name == name
    ]
    while todo:
        for one in ast.iter_child_nodes(todo.pop()):
            if isinstance(one, _DEEDS):
                return True
            if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
                todo.append(one)
    return False


_DEEDS = (
    ast.Return,
    ast.Raise,
    ast.Yield,
    ast.YieldFrom,
    ast.Assign,
    ast.AugAssign,
    ast.For,
    ast.While,
)
