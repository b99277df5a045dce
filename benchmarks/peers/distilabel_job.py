"""The job with distilabel: python distilabel_job.py URL TABLE OUT."""

import csv
import json
import sys
from pathlib import Path

from distilabel.models import OpenAILLM
from distilabel.pipeline import Pipeline
from distilabel.steps import LoadDataFromDicts
from distilabel.steps.tasks import TextGeneration

BRIEF = "Write only your next message, in one to three sentences."
CUSTOMER = (
    "You are {{ name }}, a customer who bought {{ product }}. {{ persona }} Your problem: {{ issue }} "
    + BRIEF
)
AGENT = "You are a support agent who helps with {{ product }}. " + BRIEF
JUDGE = 'Rate how well the agent solves the customer\'s problem, from 1 to 5. Answer as JSON: {"reason": "...", "score": 3}'
COLUMNS = ["name", "persona", "issue", "product"]
TURNS = ["customer_1", "agent_1", "customer_2", "agent_2"]


def conversation(turns: list[str]) -> str:
    return "\n\nThe conversation so far:\n\n" + "\n\n".join(
        f"{turn.split('_')[0].title()}: {{{{ {turn} }}}}" for turn in turns
    )


def step(name: str, template: str, url: str) -> TextGeneration:
    columns = [column for column in COLUMNS + TURNS if f"{{{{ {column} }}}}" in template]
    llm = OpenAILLM(model="gpt-4o-mini", base_url=url, generation_kwargs={"max_new_tokens": 1024})
    return TextGeneration(
        name=name,
        llm=llm,
        template=template,
        columns=columns,
        input_batch_size=32,
        output_mappings={"generation": name},
    )


def main(url: str, table: str, out: str) -> None:
    with Path(table).open(newline="") as file:
        rows = list(csv.DictReader(file))
    with Pipeline(name="support") as pipeline:
        last = LoadDataFromDicts(name="customers", data=rows, batch_size=32)
        for number, turn in enumerate(TURNS):
            prompt = (AGENT if number % 2 else CUSTOMER) + (conversation(TURNS[:number]) if number else "")
            task = step(turn, prompt, url)
            last >> task
            last = task
        last >> step("judge", JUDGE + conversation(TURNS), url)
    result = pipeline.run()["default"]["train"]
    with Path(out).open("w") as file:
        for row in result:
            if json.loads(row["judge"])["score"] >= 3:
                roles = ("user", "assistant", "user", "assistant")
                messages = [
                    {"role": role, "content": row[turn]} for role, turn in zip(roles, TURNS, strict=True)
                ]
                file.write(json.dumps({"messages": messages}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
