"""Scenarios: folders of prompts and a declaration from which datasets are made.

from camel.scenarios import load

scenario = load("ai_society")          # or the path of a folder of your own
scenario.count, scenario.id(0)         # 25000, "001_001_001"
"""

from camel.core.lists import parse_list
from camel.scenarios.checking import Rendered, check, load, sample
from camel.scenarios.lists import ListTooShort, NamedList, ask_list, heading, read_lists, render_lists
from camel.scenarios.reading import ScenarioProblem, known, scaffold, shipped
from camel.scenarios.scenario import (
    Cast,
    FilledQuestion,
    Level,
    Lists,
    Meeting,
    Question,
    RolePlay,
    Scenario,
    Translate,
)
from camel.scenarios.societies import load_society

__all__ = [
    "Cast",
    "FilledQuestion",
    "Level",
    "ListTooShort",
    "Lists",
    "Meeting",
    "NamedList",
    "Question",
    "Rendered",
    "RolePlay",
    "Scenario",
    "ScenarioProblem",
    "Translate",
    "ask_list",
    "check",
    "heading",
    "known",
    "load",
    "load_society",
    "parse_list",
    "read_lists",
    "render_lists",
    "sample",
    "scaffold",
    "shipped",
]
