"""A LangGraph agent (`pip install langgraph langchain-openai`) in a seat of a role play:

    camel play --model "command:python examples/agents/langgraph_seat.py"

The agent calls the endpoint at OPENAI_BASE_URL, by default OpenAI. Give it your own nodes and tools.
"""

from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph

from camel import serve_seat

model = ChatOpenAI(model="gpt-4.1-mini")
graph = StateGraph(MessagesState)
graph.add_node("answer", lambda state: {"messages": model.invoke(state["messages"])})
graph.add_edge(START, "answer")
agent = graph.compile()


async def reply(messages, **request):
    """Let the agent answer what it has heard."""
    last = (await agent.ainvoke({"messages": messages}))["messages"][-1]
    used = last.usage_metadata
    usage = {"prompt_tokens": used["input_tokens"], "completion_tokens": used["output_tokens"]}
    return {"content": last.content, "usage": usage}


serve_seat(reply)
