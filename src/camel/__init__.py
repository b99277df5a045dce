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

    from camel.core.conversation import Agent, Conversation, Critic
    from camel.core.critic import BestOf, Case, FunctionJudge, Judge, Verdict
    from camel.core.errors import CamelError, InputError, MissingExtra, ModelError
    from camel.core.grammar import Move, parse
    from camel.core.graphs import Edges, Groups, Ring, Star
    from camel.core.history import History
    from camel.core.inception import Inception
    from camel.core.judge import ModelJudge
    from camel.core.member import Member
    from camel.core.message import Deliberation, Message, Proposal, Sampling, Usage
    from camel.core.model import Choice, Event, Model, Reply, Request, Retrying, Text
    from camel.core.planner import Casting, Planner, assign_roles, plan_task
    from camel.core.role_playing import RolePlaying
    from camel.core.search import Beam, BestFirst
    from camel.core.society import Ending, Society
    from camel.core.stops import (
        AssistantInstructs,
        DoneToken,
        MaxMessages,
        MessageLoop,
        NextCall,
        NoInstruction,
        Stop,
        StopRule,
        TokenLimit,
        Vote,
        paper_rules,
    )
    from camel.core.task import Task, TaskSpecifier
    from camel.core.transcript import Speaker, Transcript
    from camel.core.turns import Addressed, Moderated, RoundRobin, Rounds
    from camel.detectors.finding import Finding
    from camel.engine.stage import Written, write_lines
    from camel.formats.push import push_dataset
    from camel.generation.config import GenerateConfig, read_config
    from camel.generation.plan import make_plan
    from camel.jobs.item import Item
    from camel.jobs.job import ItemFailed, Job, Stage
    from camel.jobs.runner import Outcome
    from camel.library.jobs import generate, run_job
    from camel.library.row_making import make_rows
    from camel.library.run import Run, StoredConversation
    from camel.library.simulated import simulated_endpoint
    from camel.library.studies import RunComparison, compare, study
    from camel.models.chat import ChatModel
    from camel.models.local import LocalServer, local_model
    from camel.models.person import HandOver, Person
    from camel.models.scripted import ScriptedModel
    from camel.models.spec import ModelSpec, connect
    from camel.query.catalogue import Catalogue
    from camel.query.where import Query
    from camel.sandbox.process import ProgramFailed, Sandbox
    from camel.scenarios.societies import load_society

_HOME = {
    "camel.core.conversation": ["Agent", "Conversation", "Critic"],
    "camel.core.critic": ["BestOf", "Case", "FunctionJudge", "Judge", "Verdict"],
    "camel.core.errors": ["CamelError", "InputError", "MissingExtra", "ModelError"],
    "camel.core.grammar": ["Move", "parse"],
    "camel.core.graphs": ["Edges", "Groups", "Ring", "Star"],
    "camel.core.history": ["History"],
    "camel.core.inception": ["Inception"],
    "camel.core.judge": ["ModelJudge"],
    "camel.core.member": ["Member"],
    "camel.core.message": ["Deliberation", "Message", "Proposal", "Sampling", "Usage"],
    "camel.core.model": ["Choice", "Event", "Model", "Reply", "Request", "Retrying", "Text"],
    "camel.core.planner": ["Casting", "Planner", "assign_roles", "plan_task"],
    "camel.core.role_playing": ["RolePlaying"],
    "camel.core.search": ["Beam", "BestFirst"],
    "camel.core.society": ["Ending", "Society"],
    "camel.core.stops": [
        "AssistantInstructs",
        "DoneToken",
        "MaxMessages",
        "MessageLoop",
        "NextCall",
        "NoInstruction",
        "Stop",
        "StopRule",
        "TokenLimit",
        "Vote",
        "paper_rules",
    ],
    "camel.core.task": ["Task", "TaskSpecifier"],
    "camel.core.transcript": ["Speaker", "Transcript"],
    "camel.core.turns": ["Addressed", "Moderated", "RoundRobin", "Rounds"],
    "camel.engine.stage": ["Written", "write_lines"],
    "camel.formats.push": ["push_dataset"],
    "camel.generation.config": ["GenerateConfig", "read_config"],
    "camel.generation.plan": ["make_plan"],
    "camel.jobs.item": ["Item"],
    "camel.jobs.job": ["ItemFailed", "Job", "Stage"],
    "camel.jobs.runner": ["Outcome"],
    "camel.library.jobs": ["generate", "run_job"],
    "camel.library.row_making": ["make_rows"],
    "camel.library.run": ["Run", "StoredConversation"],
    "camel.library.simulated": ["simulated_endpoint"],
    "camel.library.studies": ["RunComparison", "compare", "study"],
    "camel.models.chat": ["ChatModel"],
    "camel.models.local": ["LocalServer", "local_model"],
    "camel.models.person": ["HandOver", "Person"],
    "camel.models.scripted": ["ScriptedModel"],
    "camel.models.spec": ["ModelSpec", "connect"],
    "camel.query.catalogue": ["Catalogue"],
    "camel.query.where": ["Query"],
    "camel.sandbox.process": ["ProgramFailed", "Sandbox"],
    "camel.scenarios.societies": ["load_society"],
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "Addressed",
    "Agent",
    "AssistantInstructs",
    "Beam",
    "BestFirst",
    "BestOf",
    "CamelError",
    "Case",
    "Casting",
    "Catalogue",
    "ChatModel",
    "Choice",
    "Conversation",
    "Critic",
    "Deliberation",
    "DoneToken",
    "Edges",
    "Ending",
    "Event",
    "FunctionJudge",
    "GenerateConfig",
    "Groups",
    "HandOver",
    "History",
    "Inception",
    "InputError",
    "Item",
    "ItemFailed",
    "Job",
    "Judge",
    "LocalServer",
    "MaxMessages",
    "Member",
    "Message",
    "MessageLoop",
    "MissingExtra",
    "Model",
    "ModelError",
    "ModelJudge",
    "ModelSpec",
    "Moderated",
    "Move",
    "NextCall",
    "NoInstruction",
    "Outcome",
    "Person",
    "Planner",
    "ProgramFailed",
    "Proposal",
    "Query",
    "Reply",
    "Request",
    "Retrying",
    "Ring",
    "RolePlaying",
    "RoundRobin",
    "Rounds",
    "Run",
    "RunComparison",
    "Sampling",
    "Sandbox",
    "ScriptedModel",
    "Society",
    "Speaker",
    "Stage",
    "Star",
    "Stop",
    "StopRule",
    "StoredConversation",
    "Task",
    "TaskSpecifier",
    "Text",
    "TokenLimit",
    "Transcript",
    "Usage",
    "Verdict",
    "Vote",
    "Written",
    "__version__",
    "assign_roles",
    "compare",
    "connect",
    "generate",
    "load_society",
    "local_model",
    "make_plan",
    "make_rows",
    "paper_rules",
    "parse",
    "plan_task",
    "push_dataset",
    "read_config",
    "run_job",
    "simulated_endpoint",
    "study",
    "write_lines",
]


def __getattr__(name: str) -> Any:
    try:
        module = _MODULE_OF[name]
    except KeyError:
        raise AttributeError(f"module 'camel' has no attribute {name!r}") from None
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


def _model(name: str) -> Model:
    from camel.models.spec import connect

    return connect(name)


def _findings(transcript: Transcript) -> Sequence[Finding]:
    from camel.detectors import detect

    return detect(transcript)


def _html(transcript: Transcript) -> str:
    from camel.reports.notebook import transcript_html

    return transcript_html(transcript)


resolvers.model, resolvers.findings, resolvers.html = _model, _findings, _html
