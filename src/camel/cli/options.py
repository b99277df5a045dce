"""Options that several commands share. Each is defined once, so that a name means the same everywhere.

A command sets only the default. help.toml describes defaults that a command computes, and options that need other words.

Shell completion of runs, scenarios, models and formats is here too. It runs on every press of Tab, so it must be fast. On any
error it offers nothing: a traceback in the middle of a command line would not help.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from camel.core.errors import InputError

MOST_OFFERED = 200
"""Maximum number of names to offer."""
RUN_FILE = "run.json"


def _completion(names: Callable[[str], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return a completion function that offers the names that begin with the typed text, and nothing after an error."""

    @wraps(names)
    def offer(incomplete: str) -> list[str]:
        try:
            found = sorted({name for name in names(incomplete) if name.startswith(incomplete)})
        except Exception:
            return []
        return found[:MOST_OFFERED]

    return offer


@_completion
def complete_runs(incomplete: str) -> Iterable[str]:
    """Yield run folders in the typed folder (by default `.` and `runs/`), and other folders, which can be completed further."""
    base = incomplete.rpartition("/")[0]
    places = [f"{base}/"] if base else ["", "runs/"]
    for place in places:
        for path in Path(place or ".").iterdir() if Path(place or ".").is_dir() else ():
            if path.is_dir() and not path.name.startswith("."):
                yield f"{place}{path.name}" if (path / RUN_FILE).exists() else f"{place}{path.name}/"


@_completion
def complete_scenarios(incomplete: str) -> Iterable[str]:
    """Return the names of all scenarios, those of plug-ins included, without reading a scenario's files."""
    from camel.core.plugins import offered

    folder = Path(__file__).parent.parent / "scenarios"
    return [*(path.parent.name for path in folder.glob("*/scenario.toml")), *offered("scenarios")]


@_completion
def complete_models(incomplete: str) -> Iterable[str]:
    """Return the names of models with a known price, without calling an endpoint."""
    from camel.models.prices import names

    return names()


@_completion
def complete_formats(incomplete: str) -> Iterable[str]:
    """Return the formats of `camel export`."""
    from camel.formats.exporters import FORMATS

    return [*FORMATS, "site"]


def option(help: str, metavar: str | None = None, *names: str, **more: Any) -> Any:
    """Return an option with its help and the placeholder of its value. The option is named after the parameter unless `names`
    are given."""
    return typer.Option(*names, metavar=metavar, help=help, **more)


def _choose_hosts(hosts: list[str] | None) -> list[str] | None:
    from camel.models.trust import choose_hosts

    choose_hosts(hosts)
    return hosts


def flag(name: str, help: str) -> Any:
    """Return an option without a value, off by default."""
    return typer.Option(name, help=help)


def argument(metavar: str, help: str, **more: Any) -> Any:
    """Return a positional argument."""
    return typer.Argument(metavar=metavar, help=help, **more)


# One line per option.
# fmt: off
RunPlace = Annotated[str, argument("RUN", "Folder of a run, or s3://bucket/prefix.", autocompletion=complete_runs)]
ConfigFile = Annotated[Path, argument("CONFIG.toml", "Configuration file; `camel init` writes one.")]
ScenarioPlace = Annotated[str, argument("NAME", "Name of an included scenario, or a folder.", autocompletion=complete_scenarios)]

# --- models ------------------------------------------------------------------------------------------------------

ModelName = Annotated[str, option("Model: NAME[@URL], FILE.gguf, hf:OWNER/REPO[:QUANT], ollama:NAME, command:PROGRAM, or local (same as --local).", "MODEL", envvar="CAMEL_MODEL", autocompletion=complete_models)]
BaseUrl = Annotated[str, option("Base URL of the endpoint. The API key is read from OPENAI_API_KEY.", "URL", envvar="OPENAI_BASE_URL")]
TrustHost = Annotated[list[str] | None, option("Trust this host, which a file names, with the API key.", "HOST", callback=_choose_hosts)]
Dialect = Annotated[str, option("API format of the endpoint, such as openai or anthropic.", "NAME")]
Local = Annotated[bool, flag("--local", "Use SmolLM2-135M on this machine; needs no API key.")]
Batch = Annotated[bool, flag("--batch", "Use the provider's batch API: about half the price, replies within 24 hours.")]
BaseModel = Annotated[str, option("Model to train: a folder, a name on the Hugging Face Hub, a GGUF file, or local (SmolLM2-135M).", "MODEL")]
Judge = Annotated[list[str] | None, option("Model that judges, or a CONFIG.toml with [models.judge].", "MODEL", autocompletion=complete_models)]
Temperature = Annotated[str | None, option("Sampling temperature, or 'default' to use the endpoint's default.", "NUMBER")]
MaxTokens = Annotated[int | None, option("Maximum length of a reply, in tokens.", "TOKENS", min=1)]
Guided = Annotated[str, option("Let the server force replies into the right format. Kind of server: llama.cpp, vllm or openai; 'off' turns this off.", "SERVER")]
Context = Annotated[int | None, option("Context window of the model, in tokens.", "TOKENS")]
Seed = Annotated[int | None, option("Random seed.", "N", min=0, max=2**31 - 1)]
AcceptChange = Annotated[list[str] | None, option("Continue the run even though this setting has changed, such as model.name.", "SETTING")]

# --- conversations -----------------------------------------------------------------------------------------------

TaskText = Annotated[str, option("Task that the agents work on.", "TEXT")]
MaxMessages = Annotated[int | None, option("End a conversation after this many messages.", "N", min=1)]
ScenarioName = Annotated[str, option("Scenario: a name that `camel scenarios` lists, or a folder.", "NAME", autocompletion=complete_scenarios)]
ShowPrompts = Annotated[bool, flag("--show-prompts", "Also print the system prompts.")]
ShowReasoning = Annotated[bool, flag("--show-reasoning", "Also print the model's reasoning, below the message that it led to.")]
SeatName = Annotated[str, option("Whose messages to use: assistant, user or both.", "SEAT")]
Save = Annotated[list[Path] | None, option("Write the transcript to a .json or .md file.", "FILE")]
Allow = Annotated[list[str] | None, option("Allow a tool or world that the file names, such as python, module:function or mcp:SERVER.", "NAME")]
Acknowledge = Annotated[list[str] | None, option("Include harmful conversations with this label, such as misalignment.", "LABEL")]
Sample = Annotated[int, option("Number of conversations to draw at random from each run.", "N", min=1, max=100_000)]
Stage = Annotated[str, option("Records to process: conversations, answers (single replies to questions), or a translation such as translated-de.", "NAME")]
Where = Annotated[str, option("Use only conversations that match this filter, such as 'score.helpful >= 4 and stop = \"done\"'. docs/formats.md lists the columns.", "FILTER")]
Questions = Annotated[list[str] | None, option("Find these test questions: a JSONL file, humaneval, humaneval+, or the Table 2 questions of the CAMEL paper (table2_society, table2_code, table2_math, table2_science).", "FILE")]
RowLength = Annotated[int | None, option("Maximum length of a row, in tokens.", "TOKENS", min=1)]

# --- how a command runs ------------------------------------------------------------------------------------------

Number = Annotated[int, option("Number of conversations.", "N", "-n", min=1, max=10_000)]
Concurrency = Annotated[int | None, option("Number of conversations or other items to process in parallel.", "N", min=1)]
Processes = Annotated[int | None, option("Number of processes on this machine.", "N", min=1)]
BudgetUsd = Annotated[float | None, option("Stop when this cost is reached, in US dollars.", "USD")]
BudgetTokens = Annotated[int | None, option("Stop after this many tokens.", "TOKENS")]
BudgetCalls = Annotated[int | None, option("Stop after this many calls.", "CALLS")]
BudgetToolCalls = Annotated[int | None, option("Stop after this many tool calls.", "CALLS")]
BudgetHours = Annotated[float | None, option("Stop this command after this many hours.", "HOURS")]
Address = Annotated[str, option("Use a Ray cluster: local (start one here), auto (find a running one), or HOST:PORT of its head node.", "ADDRESS")]
Workers = Annotated[int | None, option("Number of worker processes on the cluster; needs --address.", "N")]
RetryFailed = Annotated[bool, flag("--retry-failed", "Also retry items that failed before.")]
DryRun = Annotated[bool, flag("--dry-run", "Show what would be done and what it would cost, then exit.")]

# --- output ------------------------------------------------------------------------------------------------------

Out = Annotated[str, option("Folder to write to.", "PATH")]
Force = Annotated[bool, flag("--force", "Overwrite existing output.")]
Title = Annotated[str, option("Title.", "TEXT")]
AsJson = Annotated[bool, flag("--json", "Print JSON instead of text.")]
Yes = Annotated[bool, flag("--yes", "Do not ask for confirmation.")]

# --- servers -----------------------------------------------------------------------------------------------------

Port = Annotated[int, option("Port to listen on; 0 picks a free one.", "PORT", min=0, max=65535)]
Host = Annotated[str, option("Address to listen on. Unless it is a loopback address, visitors need the printed link, which contains a token.", "ADDRESS")]
AllowHost = Annotated[list[str] | None, option("Also accept requests for this host name, such as that of a proxy.", "NAME")]
FrameIn = Annotated[list[str] | None, option("Origin, such as https://huggingface.co, whose web pages may embed the app.", "ORIGIN")]
Public = Annotated[bool, flag("--public", "Require no token, and limit what each visitor uses. Everyone who can reach the address has access.")]
NoToken = Annotated[bool, flag("--no-token", "Require no token from users of this machine.")]
OpenBrowser = Annotated[bool | None, option("Open the page in a browser; --no-open only prints its link.", None, "--open/--no-open")]
# fmt: on


def typed_parameters(command: typer.Context) -> Iterator[Any]:
    """Yield the parameters that were typed on the command line, without those set by the environment."""
    for parameter in command.command.params:
        source = command.get_parameter_source(parameter.name or "")
        # Its class has moved between typer's releases, its name has not.
        if source is not None and source.name == "COMMANDLINE":
            yield parameter


def typed(command: typer.Context) -> list[str]:
    """Return the long names of the options that were typed on the command line."""
    return [one.opts[0] for one in typed_parameters(command) if one.opts[0].startswith("--")]


def typed_model(command: typer.Context, model: str, base_url: str) -> tuple[str, str]:
    """Return `--model` and `--base-url` from the command line only, so that the environment does not override a file."""
    given = typed(command)
    return (model if "--model" in given else "", base_url if "--base-url" in given else "")


def leave_to(file: object, options: Collection[str]) -> None:
    """Raise an `InputError` if `options` is not empty: these options would have no effect, because `file` sets them."""
    if options:
        raise InputError(f"remove {', '.join(options)} from the command, and set it in '{file}' instead")


@contextmanager
def started(processes: int | None, address: str) -> Generator[int]:
    """Yield the number of processes for bulk work: those of `--processes`, of this machine's cores, or of a cluster."""
    from camel.library.execution import on_cluster
    from camel.storage.processes import cores

    if not address:
        yield processes or cores()
        return
    if processes:
        raise InputError("--processes is for this machine and --address for a cluster: remove one of them")
    with on_cluster(address) as count:
        yield count


def acknowledged(labels: Collection[str] | None) -> tuple[str, ...]:
    """Return the labels given with `--acknowledge`, or raise an error if one is unknown."""
    from camel.record.release import RESTRICTED

    if unknown := sorted(set(labels or ()) - RESTRICTED):
        raise InputError(
            f"--acknowledge: unknown label {unknown[0]!r}. Write --acknowledge {', '.join(sorted(RESTRICTED))}"
        )
    return tuple(labels or ())
