"""The public API and its types, for type checkers, editors and readers. `__init__.py` imports these names at first use."""

from camel._version import __version__ as __version__
from camel.core.conversation import (
    Agent as Agent,
)
from camel.core.conversation import (
    Conversation as Conversation,
)
from camel.core.conversation import (
    Critic as Critic,
)
from camel.core.critic import (
    BestOf as BestOf,
)
from camel.core.critic import (
    Case as Case,
)
from camel.core.critic import (
    FunctionJudge as FunctionJudge,
)
from camel.core.critic import (
    Judge as Judge,
)
from camel.core.critic import (
    Verdict as Verdict,
)
from camel.core.dialogue import (
    Dialogue as Dialogue,
)
from camel.core.dialogue import (
    DialogueStops as DialogueStops,
)
from camel.core.dialogue import (
    Goal as Goal,
)
from camel.core.dialogue import (
    Participant as Participant,
)
from camel.core.errors import (
    CamelError as CamelError,
)
from camel.core.errors import (
    InputError as InputError,
)
from camel.core.errors import (
    MissingExtra as MissingExtra,
)
from camel.core.errors import (
    ModelError as ModelError,
)
from camel.core.grammar import (
    Move as Move,
)
from camel.core.grammar import (
    parse as parse,
)
from camel.core.graphs import (
    Edges as Edges,
)
from camel.core.graphs import (
    Groups as Groups,
)
from camel.core.graphs import (
    Ring as Ring,
)
from camel.core.graphs import (
    Star as Star,
)
from camel.core.history import History as History
from camel.core.inception import Inception as Inception
from camel.core.judge import ModelJudge as ModelJudge
from camel.core.member import Member as Member
from camel.core.message import (
    Action as Action,
)
from camel.core.message import (
    Deliberation as Deliberation,
)
from camel.core.message import (
    Message as Message,
)
from camel.core.message import (
    Proposal as Proposal,
)
from camel.core.message import (
    Sampling as Sampling,
)
from camel.core.message import (
    ToolCall as ToolCall,
)
from camel.core.message import (
    Usage as Usage,
)
from camel.core.model import (
    Choice as Choice,
)
from camel.core.model import (
    Event as Event,
)
from camel.core.model import (
    Model as Model,
)
from camel.core.model import (
    Reply as Reply,
)
from camel.core.model import (
    Request as Request,
)
from camel.core.model import (
    Retrying as Retrying,
)
from camel.core.model import (
    Text as Text,
)
from camel.core.planner import (
    Casting as Casting,
)
from camel.core.planner import (
    Planner as Planner,
)
from camel.core.planner import (
    assign_roles as assign_roles,
)
from camel.core.planner import (
    plan_task as plan_task,
)
from camel.core.role_playing import RolePlaying as RolePlaying
from camel.core.rubric import Rubric as Rubric
from camel.core.search import (
    Beam as Beam,
)
from camel.core.search import (
    BestFirst as BestFirst,
)
from camel.core.society import (
    Ending as Ending,
)
from camel.core.society import (
    Society as Society,
)
from camel.core.stops import (
    AssistantInstructs as AssistantInstructs,
)
from camel.core.stops import (
    DoneToken as DoneToken,
)
from camel.core.stops import (
    MaxMessages as MaxMessages,
)
from camel.core.stops import (
    MessageLoop as MessageLoop,
)
from camel.core.stops import (
    NextCall as NextCall,
)
from camel.core.stops import (
    NoInstruction as NoInstruction,
)
from camel.core.stops import (
    Stop as Stop,
)
from camel.core.stops import (
    StopRule as StopRule,
)
from camel.core.stops import (
    TokenLimit as TokenLimit,
)
from camel.core.stops import (
    Vote as Vote,
)
from camel.core.stops import (
    paper_rules as paper_rules,
)
from camel.core.task import (
    Task as Task,
)
from camel.core.task import (
    TaskSpecifier as TaskSpecifier,
)
from camel.core.tools import (
    Tool as Tool,
)
from camel.core.tools import (
    Toolbox as Toolbox,
)
from camel.core.tools import (
    ToolFailed as ToolFailed,
)
from camel.core.tools import (
    ToolLimits as ToolLimits,
)
from camel.core.tools import (
    Workplace as Workplace,
)
from camel.core.tools import (
    tool as tool,
)
from camel.core.transcript import (
    Speaker as Speaker,
)
from camel.core.transcript import (
    Transcript as Transcript,
)
from camel.core.turns import (
    Addressed as Addressed,
)
from camel.core.turns import (
    Moderated as Moderated,
)
from camel.core.turns import (
    RoundRobin as RoundRobin,
)
from camel.core.turns import (
    Rounds as Rounds,
)
from camel.core.world import (
    World as World,
)
from camel.engine.stage import (
    write_lines as write_lines,
)
from camel.evaluation.cooperation.report import CooperationFigures as CooperationFigures
from camel.evaluation.credit_report import CreditFigures as CreditFigures
from camel.evaluation.cross_play_report import CrossPlayFigures as CrossPlayFigures
from camel.formats.push import push_dataset as push_dataset
from camel.generation.capacity import plan_cluster as plan_cluster
from camel.generation.config import (
    GenerateConfig as GenerateConfig,
)
from camel.generation.config import (
    read_config as read_config,
)
from camel.generation.plan import make_plan as make_plan
from camel.inputs.settings import Inputs as Inputs
from camel.jobs.item import Item as Item
from camel.jobs.job import (
    ItemFailed as ItemFailed,
)
from camel.jobs.job import (
    Job as Job,
)
from camel.jobs.job import (
    Stage as Stage,
)
from camel.jobs.runner import Outcome as Outcome
from camel.library.branches import (
    Branches as Branches,
)
from camel.library.branches import (
    fork as fork,
)
from camel.library.cooperation import compare_methods as compare_methods
from camel.library.credit import credit as credit
from camel.library.cross_play import cross_play as cross_play
from camel.library.environment import environment as environment
from camel.library.execution import forecast as forecast
from camel.library.execution import on_cluster as on_cluster
from camel.library.execution import run_job as run_job
from camel.library.jobs import generate as generate
from camel.library.row_making import make_rows as make_rows
from camel.library.run import (
    Run as Run,
)
from camel.library.run import (
    StoredConversation as StoredConversation,
)
from camel.library.run import open_gallery as open_gallery
from camel.library.serving import serve as serve
from camel.library.serving import simulated_endpoint as simulated_endpoint
from camel.library.studies import (
    RunComparison as RunComparison,
)
from camel.library.studies import (
    compare as compare,
)
from camel.library.studies import (
    study as study,
)
from camel.models.chat import ChatModel as ChatModel
from camel.models.command import serve_seat as serve_seat
from camel.models.local import (
    LocalServer as LocalServer,
)
from camel.models.local import (
    local_model as local_model,
)
from camel.models.person import (
    HandOver as HandOver,
)
from camel.models.person import (
    Person as Person,
)
from camel.models.scripted import ScriptedModel as ScriptedModel
from camel.models.spec import (
    ModelSpec as ModelSpec,
)
from camel.models.spec import (
    connect as connect,
)
from camel.query.catalogue import Catalogue as Catalogue
from camel.query.where import Query as Query
from camel.record.parquet import (
    Written as Written,
)
from camel.sandbox.process import (
    ProgramFailed as ProgramFailed,
)
from camel.sandbox.process import (
    Sandbox as Sandbox,
)
from camel.scenarios.choosing import (
    role_play_of as role_play_of,
)
from camel.scenarios.societies import load_society as load_society
