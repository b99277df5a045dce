"""`camel doctor`: check everything that a run needs, and show how to fix problems."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camel.cli import options as shared
from camel.cli.options import argument, leave_to, option, typed
from camel.cli.output import echo, print_json

if TYPE_CHECKING:
    from camel.doctor import CheckResult, Target

STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "red", "skipped": "dim"}


def doctor(
    command: typer.Context,
    config: Annotated[Path | None, argument("CONFIG.toml", "Configuration file to check.")] = None,
    model: shared.ModelName = "",
    base_url: shared.BaseUrl = "",
    trust_host: shared.TrustHost = None,
    local: shared.Local = False,
    context: shared.Context = None,
    address: shared.Address = "",
    calls: Annotated[bool, option("Send requests to the endpoint.")] = True,
    as_json: shared.AsJson = False,
) -> None:
    """Check the machine, the endpoint, the key and the model."""
    from camel.core.message import Usage
    from camel.doctor import CheckResult, examine_machine, find_target, find_targets, worst
    from camel.generation.config import read_config
    from camel.reports.numbers import counted, money

    findings: list[CheckResult] = []

    def note(text: str, style: str = "") -> None:
        if not as_json:
            echo(text, style)

    def report(finding: CheckResult) -> None:
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
    spent: float | None = 0.0
    with ExitStack() as stack:
        examine_machine(place, address=address, generating=bool(config), tell=report)
        if settings and not local and context is None:
            targets = list(find_targets(stack, settings, say=note))
        else:
            targets = [find_target(stack, settings, model, base_url, context, local=local, say=note)]
        for target in targets:
            if isinstance(target, CheckResult):
                report(target)
            elif not calls:
                report(CheckResult("endpoint", "skipped", "not checked: --no-calls", of=target.place))
            else:
                paid = _examine(target, note, report, several=len(targets) > 1)
                spent = None if spent is None or paid is None else spent + paid
    usage = sum((finding.usage for finding in findings), Usage())
    if as_json:
        figures = {"calls": usage.calls, "tokens": usage.total, "money": spent}
        print_json({"state": worst(findings), "findings": findings, **figures})
    else:
        errors, warnings = (sum(one.state == state for one in findings) for state in ("error", "warning"))
        cost = f"; {counted(usage.calls, 'call')}, {usage.total:,} tokens" if usage.calls else ""
        cost += f", {money(spent)}" if spent else ""
        note(f"{counted(errors, 'error')}, {counted(warnings, 'warning')}{cost}", "bold")
    if worst(findings) == "error":
        raise typer.Exit(1)


def _examine(
    target: Target, note: Callable[..., None], report: Callable[[CheckResult], None], *, several: bool
) -> float | None:
    """Check one model and return the cost of the check in dollars, or None if the price is unknown."""
    import asyncio

    from camel.core.message import Usage
    from camel.doctor import calls_of, examine, price_of
    from camel.reports.numbers import money

    most = calls_of(target)
    price = price_of(target, most)
    cost = "price unknown" if price is None else f"at most {money(price)}"
    what = f"{target.place}, {target.name}" if several else "the endpoint"
    note(f"checking {what}: at most {most.calls} calls, {most.total:,} tokens, {cost}")
    found = asyncio.run(examine(target, report))
    return price_of(target, sum((one.usage for one in found), Usage()))
