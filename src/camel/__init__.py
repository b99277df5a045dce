"""CAMEL: societies of language-model agents.

    from camel import ChatModel, RolePlaying

    model = ChatModel("gpt-4.1-mini")
    transcript = RolePlaying(
        assistant="Python Programmer", user="Stock Trader", task="Develop a trading bot", model=model
    ).run()

The names below are the public API; each is imported when it is first used, so that `import camel` stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from camel._version import __version__
from camel.core.resolve import resolvers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from camel.core.model import Model
    from camel.core.tools import Tool
    from camel.core.transcript import Transcript
    from camel.detectors.finding import Finding

# `__init__.pyi` says the same to type checkers; a test compares the two.
_HOME = {
    "core.conversation": "Agent Conversation Critic",
    "core.critic": "BestOf Case FunctionJudge Judge Verdict",
    "core.dialogue": "Dialogue DialogueStops Goal Participant",
    "core.errors": "CamelError InputError MissingExtra ModelError",
    "core.grammar": "Move parse",
    "core.graphs": "Edges Groups Ring Star",
    "core.history": "History",
    "core.inception": "Inception",
    "core.judge": "ModelJudge",
    "core.member": "Member",
    "core.message": "Action Deliberation Message Proposal Sampling ToolCall Usage",
    "core.model": "Choice Event Model Reply Request Retrying Text",
    "core.planner": "Casting Planner assign_roles plan_task",
    "core.role_playing": "RolePlaying",
    "core.rubric": "Rubric",
    "core.search": "Beam BestFirst",
    "core.society": "Ending Society",
    "core.stops": "AssistantInstructs DoneToken MaxMessages MessageLoop NextCall NoInstruction Stop StopRule TokenLimit Vote paper_rules",
    "core.task": "Task TaskSpecifier",
    "core.tools": "Tool ToolFailed Toolbox ToolLimits Workplace tool",
    "core.transcript": "Speaker Transcript",
    "core.turns": "Addressed Moderated RoundRobin Rounds",
    "core.world": "World",
    "engine.stage": "write_lines",
    "formats.push": "push_dataset",
    "generation.capacity": "plan_cluster",
    "generation.config": "GenerateConfig read_config",
    "generation.plan": "make_plan",
    "inputs.settings": "Inputs",
    "jobs.item": "Item",
    "jobs.job": "ItemFailed Job Stage",
    "jobs.runner": "Outcome",
    "evaluation.credit_report": "CreditFigures",
    "library.branches": "Branches fork",
    "evaluation.cross_play_report": "CrossPlayFigures",
    "library.credit": "credit",
    "library.environment": "environment",
    "library.cross_play": "cross_play",
    "library.execution": "forecast on_cluster run_job",
    "library.jobs": "generate",
    "library.row_making": "make_rows",
    "library.run": "Run StoredConversation open_gallery",
    "library.serving": "serve simulated_endpoint",
    "library.cooperation": "compare_methods",
    "evaluation.cooperation.report": "CooperationFigures",
    "library.studies": "RunComparison compare study",
    "models.chat": "ChatModel",
    "models.command": "serve_seat",
    "models.local": "LocalServer local_model",
    "models.person": "HandOver Person",
    "models.scripted": "ScriptedModel",
    "models.spec": "ModelSpec connect",
    "query.catalogue": "Catalogue",
    "query.where": "Query",
    "record.parquet": "Written",
    "sandbox.process": "ProgramFailed Sandbox",
    "scenarios.choosing": "role_play_of",
    "scenarios.societies": "load_society",
}
_MODULE_OF = {name: f"camel.{module}" for module, names in _HOME.items() for name in names.split()}
__all__ = ["__version__", *_MODULE_OF]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    try:
        module = _MODULE_OF[name]
    except KeyError:
        raise AttributeError(f"module 'camel' has no attribute {name!r}") from None
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def _model(name: str) -> Model:
    from camel.models.spec import connect

    return connect(name)


def _tools(name: str) -> Sequence[Tool]:
    from camel.tools.find import resolve

    return resolve(name)


def _findings(transcript: Transcript) -> Sequence[Finding]:
    from camel.detectors import detect

    return detect(transcript)


def _html(transcript: Transcript) -> str:
    from camel.reports.notebook import transcript_html

    return transcript_html(transcript)


resolvers.model, resolvers.tools, resolvers.findings, resolvers.html = _model, _tools, _findings, _html
