# pyright: reportUntypedBaseClass=false, reportUntypedFunctionDecorator=false
"""`environment`: a role play or a society as an environment of verifiers, in which the policy has a seat.

The one decision to know: the conversation runs in the process of verifiers, and the seat's model is a client of the endpoint
that verifiers opens for the policy. So verifiers records exactly what the policy read and wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from camel.core.checks import shown
from camel.core.errors import InputError, MissingExtra, ModelError
from camel.core.message import Usage
from camel.core.model import Model, Reply, Request, WrappedModel, checked_model
from camel.core.play import Declaration, Play
from camel.core.role_playing import ASSISTANT, USER, RolePlaying
from camel.core.transcript import Transcript
from camel.evaluation.cooperation.exercises import read_exercises
from camel.library.branches import Check
from camel.library.credit import find_check
from camel.models.chat import ChatModel
from camel.models.spec import ModelSpec, spec_of

RECORD = "conversation"
"""Where the info of a trace of verifiers has the whole conversation."""


def environment(
    declaration: Declaration,
    rows: Iterable[Mapping[str, Any]] | str,
    *,
    check: Check,
    seat: str = ASSISTANT,
    using: Model | ModelSpec | str | None = None,
) -> tuple[type[Any], type[Any], type[Any]]:
    """Return the taskset, the harness and the environment of verifiers in which a policy has a seat of a conversation.

        # debate.py, which `vf-eval debate -m POLICY` and prime-rl load
        play = camel.RolePlaying("<task>", assistant="Mathematician", user="Student", model="gpt-4.1-mini", specify=False)
        Tasks, Seat, Env = camel.environment(play, "gsm8k[:200]", check="answer")
        __all__ = ["Tasks", "Seat", "Env"]

    Each row fills the placeholders of the declaration and is one task. A text names problems as in `compare_methods`, with the
    columns `task` and `answer`. `check` is that of `credit`, and its value is the reward. `seat` is the policy's seat. All other
    calls, such as those of a task specifier, go to `using`, by default to the declared models.
    """
    try:
        import verifiers.v1 as vf  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise MissingExtra(f"An environment of verifiers ({error.name})", "verifiers") from None
    api: Any = vf
    passed = find_check(check)
    others = _others(declaration, seat, using)
    if isinstance(rows, str):
        rows = [{"task": one.question, "answer": one.answer} for one in read_exercises(rows)]
    tasks = [{name: str(value) for name, value in row.items()} for row in rows]

    def play(row: Mapping[str, str], models: Mapping[str, Model], id: str = "") -> Play:
        if missing := sorted(declaration.placeholders - {name.lower() for name in row}):
            raise InputError(f"the row {shown(dict(row))} has no value for <{missing[0]}>")
        made = declaration.fill(row).play(models, id=id)
        made.transcript.scenario, made.transcript.inputs = declaration.title, dict(row)
        return made

    class SeatTask(api.Task[api.WireTaskData]):
        """One conversation. Its reward is the value of the check."""

        @api.reward
        async def check(self, trace: Any) -> float:
            value = passed(_recorded(trace))
            if value is None:
                raise InputError(f"the check decides nothing about the task {shown(self.data.row)}")
            return float(value)

        @api.metric
        async def counts(self, trace: Any) -> dict[str, float]:
            return {"messages": len(_recorded(trace).messages), "other_calls": len(trace.extra_usage)}

    class SeatTasks(api.Taskset[SeatTask, api.TasksetConfig]):
        """The rows."""

        def load(self) -> Iterator[Any]:
            for row in tasks:
                prompt = play(row, {**others, seat: others[""]}).transcript.task.original
                yield SeatTask(api.WireTaskData(prompt=prompt, row=row), self.config.task)

    class SeatHarness(api.Harness[api.HarnessConfig]):
        """Plays the conversation. The policy's endpoint is called in the turns of its seat."""

        APPENDS_SYSTEM_PROMPT, EXECUTES_CODE, NEEDS_CONTAINER = True, False, False

        async def launch(
            self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: Any, data: Any
        ) -> Any:
            if data.system_prompt:
                raise InputError(
                    "the prompts are those of the declaration: remove the system prompt of the taskset"
                )
            used: list[Usage] = []
            counted: dict[str, Model] = {name: _Counted(model, used) for name, model in others.items()}
            # verifiers records one choice per call.
            client = ChatModel(ctx.model, base_url=endpoint, api_key=secret, max_choices=1)
            playing = play(data.row, {**counted, seat: _PolicyModel(client, counted[""], seat)}, trace.id)
            failure = ""
            try:
                made = await playing.finish()
                failure = made.stop.detail if made.excluded and made.stop else ""
            except ModelError as error:
                failure = str(error)
            finally:
                await client.aclose()
                trace.info[RECORD] = msgspec.to_builtins(playing.transcript)
                for one in used:
                    tokens = {"prompt_tokens": one.prompt - one.cached, "completion_tokens": one.completion}
                    trace.extra_usage.append(api.Usage(**tokens, cached_input_tokens=one.cached))
            return api.ProgramResult(int(bool(failure)), "", failure)

    class SeatConfig(api.EnvConfig):
        """The settings. The conversation needs no box, so it runs where verifiers runs."""

        agent: api.AgentConfig = api.AgentConfig(runtime=api.SubprocessConfig())  # pyright: ignore

    class SeatEnv(api.Env[SeatConfig]):
        """One conversation per task."""

        async def run(self, task: Any, agents: Any) -> None:
            await agents.agent.run(task)

        async def stop(self) -> None:
            for model in {*others.values()}:
                await model.aclose()

    return SeatTasks, SeatHarness, SeatEnv


def _recorded(trace: Any) -> Transcript:
    """Return the conversation of a trace of verifiers, with the token ids and log probabilities that endpoints reported."""
    return msgspec.convert(trace.info[RECORD], Transcript)


class _PolicyModel(WrappedModel):
    """The policy in its seat. Calls in other names, such as those of a task specifier, go to another model."""

    def __init__(self, policy: Model, other: Model, seat: str) -> None:
        super().__init__(policy)
        self._other, self._seat = other, seat

    async def reply(self, request: Request) -> Reply:
        return await (self.inner if request.speaker == self._seat else self._other).reply(request)


class _Counted(WrappedModel):
    """A model of which the usage of each call is noted."""

    def __init__(self, inner: Model, used: list[Usage]) -> None:
        super().__init__(inner)
        self._used = used

    async def reply(self, request: Request) -> Reply:
        reply = await self.inner.reply(request)
        self._used.append(reply.usage)
        return reply


def _others(declaration: Declaration, seat: str, using: Model | ModelSpec | str | None) -> dict[str, Model]:
    """Return the models of the other seats, with `""` for those that are not named."""
    if using is not None:
        found = spec_of(using)
        return {"": found.open() if isinstance(found, ModelSpec) else checked_model(found)}
    models = {"": declaration.own_model()}
    if isinstance(declaration, RolePlaying):
        assistant, user, *_ = declaration.asked()
        models |= {name: one for name, one in ((ASSISTANT, assistant), (USER, user)) if one and name != seat}
    return models
