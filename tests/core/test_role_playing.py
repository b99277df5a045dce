"""Role playing: the table is set as the paper says, and the conversation can be driven from anywhere."""

from __future__ import annotations

import asyncio
import json
import signal
import threading

import msgspec
import pytest

from camel.core import inception
from camel.core.errors import InputError, RateLimited, ServerFailed
from camel.core.inception import Inception, fill
from camel.core.message import Sampling, Usage
from camel.core.model import Choice, Event, Model, Reply, Request, Text
from camel.core.role_playing import RolePlaying
from camel.core.stops import DoneToken, MaxMessages, Stop, TokenLimit, paper_rules
from camel.core.task import Task, TaskSpecifier
from camel.core.transcript import Transcript
from camel.models.scripted import ScriptedModel

DONE = "<CAMEL_TASK_DONE>"
SCRIPT = [
    "Instruction: Write part one.\nInput: None",
    "Solution: Part one.\nNext request.",
    "Instruction: Write part two.\nInput: x",
    "Solution: Part two.\nNext request.",
    DONE,
]


def role_play(model: object, **settings: object) -> RolePlaying:
    defaults: dict[str, object] = {
        "assistant": "Python Programmer",
        "user": "Stock Trader",
        "task": "Develop a trading bot",
        "specifier": None,
    }
    return RolePlaying(model=model, **(defaults | settings))  # type: ignore[arg-type]


# --- the prompts -----------------------------------------------------------------------------------------------------

# The paper's Figure 2, word for word; only line breaks are ours.
PAPER = {
    "specifier": (
        "Here is a task that <ASSISTANT_ROLE> will help <USER_ROLE> to complete: <TASK>. Please make it more specific. "
        "Be creative and imaginative. Please reply with the specified task in <WORD_LIMIT> words or less. "
        "Do not add anything else."
    ),
    "assistant": (
        "Never forget you are a <ASSISTANT_ROLE> and I am a <USER_ROLE>. Never flip roles! Never instruct me! "
        "We share a common interest in collaborating to successfully complete a task. "
        "You must help me to complete the task. Here is the task: <TASK>. Never forget our task! "
        "I must instruct you based on your expertise and my needs to complete the task. "
        "I must give you one instruction at a time. "
        "You must write a specific solution that appropriately completes the requested instruction. "
        "You must decline my instruction honestly if you cannot perform the instruction due to physical, moral, "
        "legal reasons or your capability and explain the reasons. "
        "Unless I say the task is completed, you should always start with: Solution: <YOUR_SOLUTION> "
        "<YOUR_SOLUTION> should be specific, and provide preferable implementations and examples for task-solving. "
        "Always end <YOUR_SOLUTION> with: Next request."
    ),
    "user": (
        "Never forget you are a <USER_ROLE> and I am a <ASSISTANT_ROLE>. Never flip roles! You will always instruct me. "
        "We share a common interest in collaborating to successfully complete a task. "
        "I must help you to complete the task. Here is the task: <TASK>. Never forget our task! "
        "You must instruct me based on my expertise and your needs to complete the task ONLY in the following two ways: "
        "1. Instruct with a necessary input: Instruction: <YOUR_INSTRUCTION> Input: <YOUR_INPUT> "
        "2. Instruct without any input: Instruction: <YOUR_INSTRUCTION> Input: None "
        'The "Instruction" describes a task or question. '
        'The paired "Input" provides further context or information for the requested "Instruction". '
        "You must give me one instruction at a time. "
        "I must write a response that appropriately completes the requested instruction. "
        "I must decline your instruction honestly if I cannot perform the instruction due to physical, moral, "
        "legal reasons or my capability and explain the reasons. "
        "You should instruct me not ask me questions. "
        "Now you must start to instruct me using the two ways described above. "
        "Do not add anything else other than your instruction and the optional corresponding input! "
        "Keep giving me instructions and necessary inputs until you think the task is completed. "
        "When the task is completed, you must only reply with a single word <CAMEL_TASK_DONE>. "
        "Never say <CAMEL_TASK_DONE> unless my responses have solved your task."
    ),
}


@pytest.mark.parametrize("name", PAPER)
def test_the_prompts_are_the_papers(name: str):
    assert getattr(inception.paper(), name).split() == PAPER[name].split()


async def test_the_prompts_are_filled_and_the_rest_stays():
    model = ScriptedModel([DONE])
    transcript = await role_play(model, task="Develop a trading bot.").finish()
    values = {
        "<ASSISTANT_ROLE>": "Python Programmer",
        "<USER_ROLE>": "Stock Trader",
        "<TASK>": "Develop a trading bot.",
    }
    for speaker in transcript.speakers:
        expected = PAPER[speaker.name]
        for placeholder, value in values.items():
            expected = expected.replace(placeholder, value)
        assert speaker.system.split() == expected.split()
    assert [entry.role for entry in model.requests[0].history.entries][:2] == ["system", "user"]
    assert "<CAMEL_TASK_DONE>" in transcript.speakers[0].system
    assert "<YOUR_SOLUTION>" in transcript.speakers[1].system


@pytest.mark.parametrize(
    ("role", "task"),
    [
        ("<TASK>", "Steal the <USER_ROLE>"),
        ("<USER_ROLE>", "<ASSISTANT_ROLE>"),
        ("{TASK} %s %(x)s $TASK", "Solve {x: {y}} for \\frac{a}{b} and \\1 \\g<0>"),
        ("A\\nB", "<CAMEL_TASK_DONE>"),
        ("<WORD_LIMIT>", "<TASK> <TASK>"),
    ],
)
async def test_what_is_put_in_is_not_expanded_again(role: str, task: str):
    script = ScriptedModel([f"{task}, {role}, in 50 words", DONE])
    transcript = await role_play(script, assistant=role, task=task, specifier=TaskSpecifier()).finish()
    asked = script.requests[0].history.entries[0].content
    assert asked.startswith(f"Here is a task that {role} will help Stock Trader to complete: {task}.")
    for speaker in transcript.speakers:
        assert f"Here is the task: {task}, {role}, in 50 words. Never forget" in speaker.system
    assert transcript.speakers[1].system.startswith(f"Never forget you are a {role} and I am a Stock Trader.")
    assert transcript.speakers[0].system.startswith(f"Never forget you are a Stock Trader and I am a {role}.")


def test_fill_is_one_pass():
    assert fill("<A> <B> <C>", {"A": "<B>", "B": "<A>"}) == "<B> <A> <C>"


def test_prompts_of_ones_own(tmp_path):
    for name in ("assistant", "user", "specifier", "opening"):
        (tmp_path / f"{name}.txt").write_text(f"  {name} of <ASSISTANT_ROLE> and <USER_ROLE>: <TASK>\n")
    own = inception.load(tmp_path)
    assert own.user == "user of <ASSISTANT_ROLE> and <USER_ROLE>: <TASK>"
    transcript = role_play(ScriptedModel([DONE]), inception=own, assistant="A", user="U", task="T").run()
    assert transcript.speakers[0].system == "user of A and U: T"
    assert transcript.speakers[0].opening == "opening of A and U: T"
    (tmp_path / "user.txt").unlink()
    assert inception.load(tmp_path) == msgspec.structs.replace(own, user=inception.paper().user)
    (tmp_path / "user.txt").write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"user\.txt"):
        inception.load(tmp_path)
    with pytest.raises(InputError, match=r"elsewhere.*opening\.txt"):
        inception.load(tmp_path / "elsewhere")


# --- driving it ------------------------------------------------------------------------------------------------------


async def test_one_message_at_a_time():
    play = role_play(ScriptedModel(SCRIPT))
    said = [(m.speaker, m.role, m.content) async for m in play]
    assert [content for _, _, content in said] == SCRIPT
    assert said[0][:2] == ("user", "Stock Trader")
    assert said[1][:2] == ("assistant", "Python Programmer")
    assert play.transcript.stop == Stop("done", "the user said that the task is done", "user")
    assert play.transcript.messages[-1].content == DONE


def test_from_plain_code():
    assert [m.content for m in role_play(ScriptedModel(SCRIPT)).run().messages] == SCRIPT


async def test_inside_a_running_loop():
    play = role_play(ScriptedModel(SCRIPT))
    assert [m.content for m in play.run().messages] == SCRIPT  # as a notebook's cell would
    failing = role_play(ScriptedModel([*SCRIPT[:2], ServerFailed("boom")]))
    with pytest.raises(ServerFailed, match="boom"):
        failing.run()
    assert len(failing.transcript.messages) == 2


def test_ctrl_c_in_a_notebook_stops_the_calls():
    calls: list[int] = []

    class Interrupted(Model):
        async def reply(self, request: Request) -> Reply:
            calls.append(1)
            if len(calls) == 3:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                await asyncio.sleep(20)
            return Reply((Choice(f"Instruction: Part {len(calls)}" if len(calls) % 2 else "Solution: done"),))

    async def cell() -> None:
        role_play(Interrupted(), rules=[MaxMessages(1000)]).run()

    loop = asyncio.new_event_loop()
    # A shell that starts the tests in the background makes them ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(cell())
        assert len(calls) == 3
    finally:
        signal.signal(signal.SIGINT, before)
        loop.close()


async def test_a_loop_that_was_left_can_be_resumed():
    model = ScriptedModel(["A specific task", *SCRIPT])
    play = role_play(model, specifier=TaskSpecifier())
    async for message in play:
        if message.index == 1:
            break
    assert [m.content async for m in play] == SCRIPT[2:]
    assert len(model.requests) == 6, "the task was specified once"


async def test_each_side_sees_the_others_words():
    user, assistant = ScriptedModel([SCRIPT[0], SCRIPT[2], DONE]), ScriptedModel([SCRIPT[1], SCRIPT[3]])
    await role_play(assistant, user_model=user).finish()
    last = user.requests[-1].history.entries  # a history only grows, so the last one shows all
    assert [(e.role, e.content) for e in last[2:]] == list(
        zip(["assistant", "user", "assistant", "user", "assistant"], SCRIPT, strict=True)
    )
    assert (last[0].role, last[1].role, last[1].content) == ("system", "user", "Now start to instruct me.")
    heard = assistant.requests[-1].history.entries
    assert heard[0].content.startswith("Never forget you are a Python Programmer")
    assert [(e.role, e.content) for e in heard[1:]] == list(
        zip(["user", "assistant", "user", "assistant", "user"], SCRIPT, strict=True)
    )


async def test_each_side_has_its_own_sampling():
    user, assistant = ScriptedModel(SCRIPT[::2]), ScriptedModel(SCRIPT[1::2])
    await role_play(
        assistant, user_model=user, sampling=Sampling(temperature=0.1), user_sampling=Sampling(top_p=0.5)
    ).finish()
    assert user.requests[0].sampling == Sampling(top_p=0.5)
    assert assistant.requests[0].sampling == Sampling(temperature=0.1)
    default = ScriptedModel(SCRIPT)
    await role_play(default).finish()
    assert {request.sampling.temperature for request in default.requests} == {0.2}


async def test_a_falsy_user_model_is_still_the_users_model():
    class Empty(ScriptedModel):
        def __len__(self) -> int:
            return 0

    user = Empty([DONE])
    assistant = ScriptedModel(["never"])
    await role_play(assistant, user_model=user).finish()
    assert (len(user.requests), len(assistant.requests)) == (1, 0)


async def test_it_is_watched_from_the_specifier_on():
    events: list[Event] = []
    model = ScriptedModel(["A specific task", *SCRIPT])
    await role_play(model, specifier=TaskSpecifier(), watch=events.append).finish()
    assert events[0] == Text("specifier", "A specific task")
    assert [event.speaker for event in events[1:]] == ["user", "assistant", "user", "assistant", "user"]


async def test_ending_it_from_outside():
    play = role_play(ScriptedModel(SCRIPT))
    async for _ in play:
        play.end("the reader had enough")
    assert len(play.transcript.messages) == 1
    assert play.transcript.stop == Stop("stopped", "the reader had enough")
    play.end("too late", "error")
    assert play.transcript.stop.reason == "stopped"


async def test_ended_before_it_began_nothing_is_paid():
    model = ScriptedModel(["never"])
    play = role_play(model, specifier=TaskSpecifier())
    play.end("not today")
    assert [m async for m in play] == []
    assert model.requests == []


async def test_connections_are_closed_after_a_run():
    class Closing(ScriptedModel):
        closed = 0

        async def aclose(self) -> None:
            self.closed += 1

    assistant, user, specifier = Closing(SCRIPT[1::2]), Closing(SCRIPT[::2]), Closing(["specific"])
    role_play(assistant, user_model=user, specifier=TaskSpecifier(model=specifier)).run()
    assert (assistant.closed, user.closed, specifier.closed) == (1, 1, 1)
    both = Closing(SCRIPT)
    role_play(both).run()
    assert both.closed == 1
    failing = Closing([RateLimited("slow down")])
    with pytest.raises(RateLimited):
        role_play(failing).run()
    assert failing.closed == 1


async def test_an_error_keeps_what_was_said():
    play = role_play(ScriptedModel([*SCRIPT[:3], ServerFailed("boom")]))
    said: list[str] = []

    async def follow() -> None:
        async for message in play:
            said.append(message.content)  # noqa: PERF401 - what came before the error is the point

    with pytest.raises(ServerFailed):
        await follow()
    assert said == SCRIPT[:3] == [m.content for m in play.transcript.messages]
    assert play.transcript.stop == Stop("error", "ServerFailed: boom", "assistant", "ServerFailed")


# --- the task specifier ----------------------------------------------------------------------------------------------


async def test_the_task_is_specified():
    model = ScriptedModel(["  Develop a bot that trades ten shares.\n", DONE])
    play = role_play(model, specifier=TaskSpecifier(word_limit=20))
    transcript = await play.finish()
    request = model.requests[0]
    assert request.speaker == "specifier"
    assert request.sampling.temperature == 1.0
    assert [e.role for e in request.history.entries] == ["user"]
    assert "in 20 words or less" in request.history.entries[0].content
    assert transcript.task.original == "Develop a trading bot"
    assert transcript.task.text == transcript.task.specified == "Develop a bot that trades ten shares."
    assert transcript.task.model == "scripted"
    assert "Here is the task: Develop a bot that trades ten shares. Never" in transcript.speakers[0].system
    assert transcript.usage.calls == 2, "what specifying cost is in the sum"


async def test_without_a_specifier():
    model = ScriptedModel([DONE])
    transcript = await role_play(model).finish()
    assert len(model.requests) == 1
    assert transcript.task == Task("Develop a trading bot")
    assert transcript.task.text == "Develop a trading bot"


@pytest.mark.parametrize("answer", ["", " \n\t "])
async def test_an_empty_answer_leaves_the_task_as_it_was(answer: str):
    transcript = await role_play(ScriptedModel([answer, DONE]), specifier=TaskSpecifier()).finish()
    assert transcript.task.specified == ""
    assert transcript.task.usage.calls == 1
    assert "Here is the task: Develop a trading bot. Never" in transcript.speakers[1].system


async def test_a_specifier_of_its_own():
    own, model = ScriptedModel(["A specific task"], name="own"), ScriptedModel([DONE])
    transcript = await role_play(model, specifier=TaskSpecifier(model=own)).finish()
    assert (len(own.requests), len(model.requests)) == (1, 1)
    assert transcript.task.model == "own"


async def test_the_assistants_model_specifies_by_default():
    assistant, user = ScriptedModel(["A specific task"]), ScriptedModel([DONE])
    await role_play(assistant, user_model=user, specifier=TaskSpecifier()).finish()
    assert (len(assistant.requests), len(user.requests)) == (1, 1)


async def test_a_specifier_that_fails_is_recorded():
    model = ScriptedModel([ServerFailed("boom"), "never"])
    play = role_play(model, specifier=TaskSpecifier())
    with pytest.raises(ServerFailed):
        await play.finish()
    assert play.transcript.stop == Stop("error", "ServerFailed: boom", "specifier", "ServerFailed")
    assert [m async for m in play] == []
    assert len(model.requests) == 1


# --- tokens ----------------------------------------------------------------------------------------------------------


class Windowed(ScriptedModel):
    def __init__(self, window: int, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.context_tokens = window


def _endless(request: Request) -> str:
    n = len(request.history.entries)
    return (
        f"Instruction: Part {n}\nInput: None"
        if request.expects == "instruction"
        else f"Solution: {'w ' * 90}{n}"
    )


@pytest.mark.parametrize("max_tokens", [None, 64, 300])
async def test_the_conversation_ends_before_the_window_does(max_tokens: int | None):
    model = Windowed(1600, _endless)
    play = role_play(model, sampling=Sampling(max_tokens=max_tokens), rules=[TokenLimit(), MaxMessages(500)])
    transcript = await play.finish()
    assert transcript.stop is not None
    assert transcript.stop.reason == "token_limit"
    assert len(transcript.messages) > 2
    assert max(m.usage.prompt for m in transcript.messages) + (max_tokens or 512) <= 1600


def test_a_task_that_cannot_fit_is_refused_before_the_specifier_is_paid():
    model = Windowed(1000, ["never"])
    with pytest.raises(InputError, match="1,000"):
        role_play(model, specifier=TaskSpecifier())  # the prompt fits, the 512 tokens kept for a reply do not
    assert model.requests == []
    role_play(Windowed(1300, [DONE])).run()


def test_the_room_is_checked_without_a_rule_for_it_too():
    with pytest.raises(InputError, match="shorten"):
        role_play(Windowed(300, ["never"]), rules=[MaxMessages(4)])


# --- the record ------------------------------------------------------------------------------------------------------


async def test_the_whole_record_survives_a_round_trip():
    model = ScriptedModel(["A specific task", *SCRIPT])
    transcript = await role_play(model, specifier=TaskSpecifier(), id="my-id").finish()
    raw = json.loads(transcript.to_json())
    assert (raw["id"], raw["schema"]) == ("my-id", 2)
    assert Transcript.from_json(transcript.to_json()) == transcript
    assert transcript.usage == sum((m.usage for m in transcript.messages), transcript.task.usage)
    markdown = transcript.to_markdown()
    assert markdown.startswith("# Stock Trader and Python Programmer\n")
    assert "### 5. Stock Trader (user)\n\n> <CAMEL_TASK_DONE>\n" in markdown
    assert "Ended because" in markdown


def test_ids_are_given_and_differ():
    ids = {role_play(ScriptedModel([])).transcript.id for _ in range(20)}
    assert len(ids) == 20


def test_rules_can_be_replaced_one_by_one():
    rules = [MaxMessages(2) if isinstance(rule, MaxMessages) else rule for rule in paper_rules()]
    transcript = role_play(ScriptedModel(SCRIPT), rules=rules).run()
    assert transcript.stop is not None
    assert (transcript.stop.reason, len(transcript.messages)) == ("max_messages", 2)


def test_the_paper_prompts_are_read_once():
    assert inception.paper() is inception.paper()
    assert isinstance(inception.paper(), Inception)


def test_usage_adds_up():
    assert Usage(1, 2, 3, 4, 5) + Usage(10, 20, 30, 40, 50) == Usage(11, 22, 33, 44, 55)
    assert Usage(1, 2).total == 3


async def test_a_refused_specification_leaves_the_task_as_it_was():
    refusal = Reply((Choice("I'm sorry, I can't help with that.", "refusal"),), Usage(5, 5, 0, 1))
    transcript = await role_play(
        ScriptedModel([refusal, DONE]), task="Plan", specifier=TaskSpecifier()
    ).finish()
    assert transcript.task.specified == ""
    assert transcript.task.finish == "refusal"
    assert "Here is the task: Plan." in transcript.speakers[0].system
    assert transcript.usage.calls == 2, "it was paid all the same"


async def test_rules_end_every_conversation():
    def go_on(request: Request) -> str:
        return (
            "Instruction: Go.\nInput: None" if request.speaker == "user" else "Solution: Done. Next request."
        )

    transcript = await role_play(ScriptedModel(go_on), rules=[DoneToken()]).finish()
    assert transcript.stop is not None
    assert (transcript.stop.reason, len(transcript.messages)) == ("max_messages", 40)


async def test_a_rule_may_give_a_reason_of_its_own():
    class Enough:
        def check(self, messages, call):
            return Stop("enough", "it is enough") if messages else None

    model = ScriptedModel(["Instruction: Go.\nInput: None"])
    transcript = await role_play(model, rules=[Enough(), *paper_rules()]).finish()
    assert transcript.stop == Stop("enough", "it is enough")
    assert Transcript.from_json(transcript.to_json()) == transcript


def test_a_record_of_a_newer_schema_is_refused():
    record = Transcript("x", Task("t"))
    record.schema = 99
    with pytest.raises(InputError, match="upgrade"):
        Transcript.from_json(record.to_json())
