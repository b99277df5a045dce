"""Runs inside the sandbox: executes code with variables that stay, and returns what it printed and its exception.

Its source is sent into the sandbox, so it imports only what an interpreter has already loaded, and nothing of CAMEL.
"""

# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportArgumentType=false

import _ast
import io
import sys

MOST = 200_000
_main = sys.modules["__main__"] = type(sys)("__main__")
_executed: list[str] = []


class CodeOutput(io.StringIO):
    """What code prints, cut off at a limit."""

    size = 0

    def write(self, text: str) -> int:
        """Keep the text, or the beginning of it."""
        super().write(text[: max(0, MOST - self.size)])
        self.size += len(text)
        return len(text)


def execute(code: str) -> tuple[str, str]:
    """Execute code. Return what it printed, with the value of its last expression, and the traceback of its exception."""
    if "random" in code and not any("random" in one for one in _executed):
        import random

        random.seed(code)  # so that executing the code again gives the same state
    _executed.append(code)
    name, error = f"<call {len(_executed)}>", ""
    sys.stdout = sys.stderr = printed = CodeOutput()
    try:
        tree = compile(code, name, "exec", 0x400, dont_inherit=True)  # to a tree
        last = [tree.body.pop()] if tree.body and isinstance(tree.body[-1], _ast.Expr) else []
        for part, mode in ((tree, "exec"), (_ast.Interactive(last), "single")):
            exec(compile(part, name, mode, dont_inherit=True), _main.__dict__)  # noqa: S102 - in the sandbox
    except BaseException as raised:
        import linecache
        import traceback

        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        trace = raised.__traceback__.tb_next if raised.__traceback__ else None
        error = "".join(traceback.format_exception(type(raised), raised, trace, chain=False)).rstrip()
    return printed.getvalue().rstrip("\n") + "\n(cut off)" * (printed.size > MOST), error[-4_000:]
