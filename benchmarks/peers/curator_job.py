"""The job with curator: python curator_job.py URL TABLE OUT."""

import csv
import json
import sys
from pathlib import Path

from bespokelabs import curator
from datasets import Dataset
from pydantic import BaseModel

url, table, out = sys.argv[1:]
BRIEF = "Write only your next message, in one to three sentences."
CUSTOMER = "You are {name}, a customer who bought {product}. {persona} Your problem: {issue} " + BRIEF
AGENT = "You are a support agent who helps with {product}. " + BRIEF
JUDGE = "Rate how well the agent solves the customer's problem, from 1 to 5.\n\n"


class Rating(BaseModel):
    reason: str
    score: int


class Turn(curator.LLM):
    def prompt(self, row):
        customer = len(row["messages"]) % 2 == 0
        own = "user" if customer else "assistant"
        heard = [
            {"role": "assistant" if message["role"] == own else "user", "content": message["content"]}
            for message in row["messages"]
        ]
        system = (CUSTOMER if customer else AGENT).format(**row)
        opening = [{"role": "user", "content": "Begin the conversation."}] if customer else []
        return [{"role": "system", "content": system}, *opening, *heard]

    def parse(self, row, response):
        role = "assistant" if len(row["messages"]) % 2 else "user"
        return {**row, "messages": [*row["messages"], {"role": role, "content": response}]}


class Judge(curator.LLM):
    response_format = Rating

    def prompt(self, row):
        names = {"user": "Customer", "assistant": "Agent"}
        return JUDGE + "\n\n".join(
            f"{names[message['role']]}: {message['content']}" for message in row["messages"]
        )

    def parse(self, row, response):
        return {**row, "score": response.score, "reason": response.reason}


limits = {
    "max_concurrent_requests": 32,
    "max_requests_per_minute": 1_000_000,
    "max_tokens_per_minute": 1_000_000_000,
}
settings = {"model_name": "gpt-4o-mini", "backend": "openai", "backend_params": {"base_url": url, **limits}}
with Path(table).open(newline="") as file:
    rows = Dataset.from_list([{**row, "messages": []} for row in csv.DictReader(file)])
for _ in range(4):
    rows = Turn(**settings)(rows).dataset
with Path(out).open("w") as file:
    for row in Judge(**settings)(rows).dataset:
        if row["score"] >= 3:
            file.write(json.dumps({"messages": row["messages"]}) + "\n")
