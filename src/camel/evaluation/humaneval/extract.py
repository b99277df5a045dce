"""Extracts a program from a chat model's answer, which may contain fences, prose, only a body, or an interactive session.

The one decision to know: the text is parsed in several ways, and the first result that is valid Python and defines the
function is used. If there is none, a text that could be the function's body is placed below its head. Nothing is executed
here, and only the layout is corrected, never the code.
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
"""Maximum characters of an answer that are read; no function is longer."""
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
    """Return the complete program in an answer, or an empty string if there is none."""
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
    """Yield the texts between fences, those marked as Python first."""
    found = [(one["kind"].lower() in _PYTHON, one["body"]) for one in _FENCE.finditer(answer)]
    for is_python in (True, False):
        yield from (body for python, body in found if python is is_python)


def _whole(answer: str, blocks: list[str]) -> Iterator[str]:
    """Yield texts that may be a program, the most likely first."""
    yield from blocks
    # Imports and helpers may be in another block than the function.
    if len(blocks) > 1:
        yield "\n\n".join(blocks)
    yield answer


def _defining(problem: Problem, text: str, blocks: list[str]) -> str:
    """Return a program from `text` that defines the problem's function, or an empty string if there is none."""
    for form in _forms(text):
        for at in _beginnings(form):
            program = _parsed_prefix(form[at:])
            if program and _defines(program, problem.entry):
                return _completed(problem, program, blocks)
    return ""


def _forms(text: str) -> Iterator[str]:
    """Yield variants of a text: the input lines if it is an interactive session, the text itself, and the text dedented."""
    if _SESSION.search(text) and (said := _session(text)):
        yield said
    yield text
    if (flat := textwrap.dedent(text)) != text:
        yield flat


def _session(text: str) -> str:
    """Return the lines that were typed in an interactive session, without its output."""
    found = (_SESSION_LINE.match(line) for line in text.splitlines())
    return "\n".join(one[1] for one in found if one)


def _beginnings(text: str) -> Iterator[int]:
    """Yield the positions where code may begin: the start, and the first lines that look like code."""
    yield 0
    for count, found in enumerate(_STARTS.finditer(text)):
        if count >= 8:
            return
        if found.start():
            yield found.start()


def _parsed_prefix(text: str) -> str:
    """Return the longest prefix of lines that is valid Python, because prose often follows a program."""
    text = textwrap.dedent(text).strip("\n")
    lines = text.split("\n")
    for _ in range(8):
        candidate = "\n".join(lines)
        line = _first_bad_line(candidate)
        if line is None:
            return candidate if candidate.strip() else ""
        # Remove the statement that contains the invalid line, and everything after it.
        cut = min(line - 1, len(lines) - 1)
        while cut > 0 and (not lines[cut].strip() or lines[cut][:1] in " \t)]}"):
            cut -= 1
        if cut <= 0:
            return ""
        lines = lines[:cut]
    return ""


def _first_bad_line(text: str) -> int | None:
    """Return the number of the first line that is not valid Python, or None if all lines are valid."""
    try:
        _tree(text)
    except SyntaxError as error:
        return max(1, error.lineno or 1)
    except (ValueError, RecursionError, MemoryError, OverflowError):
        return 1
    return None


def _tree(text: str) -> ast.Module:
    # Ignore warnings about invalid escapes. A lock, because all threads share the warning filters.
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def _defines(program: str, name: str) -> bool:
    """Return whether the last definition of a name in a program is a function with a real body or an assignment."""
    found = False
    for node in _tree(program).body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name == name:
                found = not _is_stub(node)
            case ast.Assign() if any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
                found = True
            case _:
                pass
    return found


def _is_stub(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function is a stub (only strings, `pass` or dots). Models often repeat the stub before their answer."""
    return all(
        isinstance(one, ast.Pass) or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
        for one in node.body
    )


def _completed(problem: Problem, program: str, blocks: list[str]) -> str:
    """Return a complete program: add imports and helpers of the problem and missing definitions from other blocks, and remove
    examples of use."""
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
        if _first_bad_line(block) is None:
            before += [
                ast.unparse(node)
                for node in _tree(block).body
                if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef)
                and _bound(ast.Module([node], [])) & missing
            ]
    # `from __future__` must come first.
    lead = [ast.unparse(node) for node in own.body if _is_future(node)]
    return "\n".join([*lead, *before, _without_examples(program, own, problem.entry), ""])


def _bound(tree: ast.Module) -> set[str]:
    """Return the names that a module's top-level statements define."""
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


def _without_examples(program: str, tree: ast.Module, entry: str) -> str:
    """Return the program without top-level statements that print, read input or call the function, and without
    `from __future__`, which `_completed` adds at the top."""
    lines = program.split("\n")
    taken = [
        set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        for node in tree.body
        if not (_is_example(node, entry) or _is_future(node))
    ]
    needed = set[int]().union(*taken)
    for node in tree.body:
        own = set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        if (_is_example(node, entry) or _is_future(node)) and not own & needed:
            for line in own:
                lines[line - 1] = ""
    return "\n".join(lines).rstrip()


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _is_example(node: ast.stmt, entry: str) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
        return False
    if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == entry for t in node.targets):
        return False  # it defines the function, which may call itself
    called = {
        one.func.id for one in ast.walk(node) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)
    }
    return bool(called & {"print", "input", entry})


def _from_body(problem: Problem, text: str) -> str:
    """Return the function with `text` as its body. Return an empty string if that is not valid Python, or only prose."""
    head = problem.prompt.rstrip() + "\n"
    bodies = [
        body.rstrip().lstrip("\n").split("\n")
        for form in _forms(text)
        for body in (form, _indent_first_line(form), textwrap.indent(textwrap.dedent(form), "    "))
        if body.strip()
    ]
    # First unchanged, then without the lines after the last valid one.
    for cuts in (0, 8):
        for lines in bodies:
            program = _with_body(problem, head, lines, cuts)
            if program:
                return program
    return ""


def _with_body(problem: Problem, head: str, lines: list[str], cuts: int) -> str:
    for _ in range(cuts + 1):
        program = head + "\n".join(lines) + "\n"
        line = _first_bad_line(program)
        if line is None:
            works = _defines(program, problem.entry) and _does_something(program, problem.entry)
            return program if works else ""
        cut = min(len(lines) - 1, line - head.count("\n") - 1)
        if cut <= 0:
            return ""
        lines = lines[:cut]
    return ""


def _indent_first_line(text: str) -> str:
    """Restore the indentation of the first line of a body, which is missing if the text was trimmed."""
    lines = text.strip("\n").split("\n")
    if len(lines) > 1 and lines[0][:1].strip() and any(line[:4] == "    " for line in lines[1:]):
        return "\n".join(["    " + lines[0], *lines[1:]])
    return ""


def _does_something(program: str, name: str) -> bool:
    """Return whether the function returns, raises, yields, assigns or loops. A word of prose is valid Python but does not."""
    todo: list[ast.AST] = [
        n for n in _tree(program).body if isinstance(n, ast.FunctionDef) and n.name == name
    ]
    while todo:
        for one in ast.iter_child_nodes(todo.pop()):
            if isinstance(one, _EFFECTS):
                return True
            if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
                todo.append(one)
    return False


_EFFECTS = (ast.Return, ast.Raise, ast.Yield, ast.YieldFrom, ast.Assign, ast.AugAssign, ast.For, ast.While)
