"""`camel doctor`: is everything there that a run will need, and how is the rest fixed?"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camel.cli.options import (
    AsJson,
    BaseUrl,
    Context,
    Local,
    ModelName,
    argument,
    leave_to,
    option,
    print_json,
    typed,
)  # fmt: skip

if TYPE_CHECKING:
    from camel.doctor import CheckResult, Target

STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "red", "skipped": "dim"}


def doctor(
    command: typer.Context,
    config: Annotated[
        Path | None,
        argument("[CONFIG.toml]", "Look at what this configuration needs; camel.toml if it is there."),
    ] = None,
    model: ModelName = "",
    base_url: BaseUrl = "",
    local: Local = False,
    context: Context = None,
    address: Annotated[str, option("Look at a Ray cluster too: local, auto or host:port.", "ADDRESS")] = "",
    calls: Annotated[bool, option("Ask the endpoint; --no-calls sends nothing to it.")] = True,
    as_json: AsJson = False,
) -> None:
    """Check the endpoint, the key, the model, this machine, and say how to mend each. Exits with 1 when something is broken.

    The endpoint is asked at most 8 small questions, which cost less than a cent with most models; it says so before.
    """
    from rich.console import Console

    from camel.cli.panel import say
    from camel.doctor import CheckResult, examine_machine, find_target, find_targets, worst
    from camel.generation.config import read_config

    console = Console(highlight=False)
    findings: list[CheckResult] = []

    def note(text: str, style: str = "") -> None:
        if not as_json:
            say(console, text, style)

    def tell(finding: CheckResult) -> None:
        findings.append(finding)
        note(f"{finding.state:8} {finding.check:16} {finding.says}", STYLES[finding.state])
        if finding.fix:
            note(f"{'':8} {'':16} → {finding.fix}")

    named = [one for one in typed(command) if one in ("--model", "--base-url")]
    if config is None and not (named or local) and Path("camel.toml").is_file():
        config = Path("camel.toml")
    if config and not local:
        leave_to(config, named)
    settings = read_config(config, local=local) if config else None
    place = settings.where if settings else "runs"
    spent = 0.0
    with ExitStack() as stack:
        examine_machine(place, address=address, generating=bool(config), tell=tell)
        if settings and not local and context is None:
            targets = list(find_targets(stack, settings, say=note))
        else:
            targets = [find_target(stack, settings, model, base_url, context, local=local, say=note)]
        for target in targets:
            if isinstance(target, CheckResult):
                tell(target)
            elif not calls:
                tell(CheckResult("endpoint", "skipped", "not looked at: --no-calls", of=target.place))
            else:
                spent = _added(spent, _examined(target, note, tell, several=len(targets) > 1))
    _end(note, findings, spent, as_json)
    if worst(findings) == "error":
        raise typer.Exit(1)


def _examined(
    target: Target, note: Callable[..., None], tell: Callable[[CheckResult], None], *, several: bool
) -> float | None:
    """Ask one model; what that cost, where it is known."""
    import asyncio

    from camel.core.message import Usage
    from camel.doctor import calls_of, examine, price_of
    from camel.reports.numbers import money

    most = calls_of(target)
    price = price_of(target, most)
    cost = "at a price that is not known" if price is None else f"at most {money(price)}"
    what = f"{target.place}, {target.name}" if several else "the endpoint"
    note(f"asking {what}: at most {most.calls} calls, {most.total:,} tokens, {cost}")
    found = asyncio.run(examine(target, tell))
    return price_of(target, sum((one.usage for one in found), Usage()))


def _added(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _end(
    note: Callable[[str, str], None], findings: list[CheckResult], spent: float | None, as_json: bool
) -> None:
    from camel.core.message import Usage
    from camel.doctor import worst
    from camel.reports.numbers import counted, money

    usage = sum((finding.usage for finding in findings), Usage())
    if as_json:
        figures = {"calls": usage.calls, "tokens": usage.total, "money": spent}
        print_json({"state": worst(findings), "findings": findings, **figures})
        return
    errors, warnings = (sum(one.state == state for one in findings) for state in ("error", "warning"))
    cost = f"; {counted(usage.calls, 'call')}, {usage.total:,} tokens" if usage.calls else ""
    cost += f", {money(spent)}" if spent else ""
    note(f"{counted(errors, 'error')}, {counted(warnings, 'warning')}{cost}", "bold")
