"""An agent of the OpenAI Agents SDK (`pip install openai-agents`) in a seat of a role play:

    camel play --model "command:python examples/agents/openai_agents_seat.py"

The agent calls the endpoint at OPENAI_BASE_URL, by default OpenAI. Give it your own tools and handoffs.
"""

from agents import Agent, Runner, set_default_openai_api, set_tracing_disabled

from camel import serve_seat

set_default_openai_api("chat_completions")
set_tracing_disabled(True)
agent = Agent(name="Guest", model="gpt-4.1-mini")


async def reply(messages, **request):
    """Let the agent answer what it has heard."""
    result = await Runner.run(agent, messages)
    used = result.context_wrapper.usage
    usage = {"prompt_tokens": used.input_tokens, "completion_tokens": used.output_tokens}
    return {"content": result.final_output, "usage": usage}


serve_seat(reply)
