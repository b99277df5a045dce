"""The job with CAMEL: python camel_job.py URL TABLE OUT."""

import sys

from camel import ChatModel, Dialogue, Participant, Rubric, generate

url, table, out = sys.argv[1:]
BRIEF = "Write only your next message, in one to three sentences."
CUSTOMER = "You are <name>, a customer who bought <product>. <persona> Your problem: <issue> " + BRIEF
AGENT = "You are a support agent who helps with <product>. " + BRIEF
model = ChatModel("gpt-4o-mini", base_url=url)
dialogue = Dialogue(
    "A customer asks for help with <product>",
    seats=[Participant("customer", prompt=CUSTOMER), Participant("agent", prompt=AGENT)],
    max_messages=4,
)
run = generate(dialogue, inputs=table, model=model, out="runs/support", concurrency=32)
rubric = Rubric("Rate how well the agent solves the customer's problem.", scale=(1, 5))
run = run.score(helpful=rubric, model=model, limits={"concurrency": 32})
run.where("score.helpful >= 3").export("messages", out)
