"""The job with DataDesigner: python data_designer_job.py URL TABLE OUT."""

import json
import sys
from pathlib import Path

import data_designer.config as dd
from data_designer.interface import DataDesigner

url, table, out = sys.argv[1:]
BRIEF = "Write only your next message, in one to three sentences."
CUSTOMER = (
    "You are {{ name }}, a customer who bought {{ product }}. {{ persona }} Your problem: {{ issue }} "
    + BRIEF
)
AGENT = "You are a support agent who helps with {{ product }}. " + BRIEF
TURNS = ["customer_1", "agent_1", "customer_2", "agent_2"]
SCALE = {1: "useless", 2: "poor", 3: "acceptable", 4: "good", 5: "solved"}


def conversation(turns: list[str]) -> str:
    return "\n\n".join(f"{turn.split('_')[0].title()}: {{{{ {turn} }}}}" for turn in turns)


provider = dd.ModelProvider(name="local", endpoint=url, provider_type="openai", api_key="OPENAI_API_KEY")
parameters = dd.ChatCompletionInferenceParams(max_parallel_requests=32)
model = dd.ModelConfig(alias="model", model="gpt-4o-mini", provider="local", inference_parameters=parameters)
builder = dd.DataDesignerConfigBuilder(model_configs=[model])
builder.with_seed_dataset(dd.LocalFileSeedSource(path=table), sampling_strategy=dd.SamplingStrategy.ORDERED)
for number, turn in enumerate(TURNS):
    prompt = (
        "The conversation so far:\n\n" + conversation(TURNS[:number]) if number else "Begin the conversation."
    )
    system = AGENT if number % 2 else CUSTOMER
    builder.add_column(
        dd.LLMTextColumnConfig(name=turn, model_alias="model", system_prompt=system, prompt=prompt)
    )
builder.add_column(
    dd.LLMJudgeColumnConfig(
        name="judge",
        model_alias="model",
        prompt="Rate how well the agent solves the customer's problem.\n\n" + conversation(TURNS),
        scores=[dd.Score(name="helpful", description="How well the problem is solved", options=SCALE)],
    )
)
designer = DataDesigner(artifact_path="artifacts", model_providers=[provider])
designer.set_run_config(dd.RunConfig(buffer_size=50, display_tui=False))
result = designer.create(builder, num_records=500, dataset_name="support", resume=dd.ResumeMode.IF_POSSIBLE)
with Path(out).open("w") as file:
    for row in result.load_dataset().to_dict("records"):
        if int(row["judge"]["helpful"]["score"]) >= 3:
            roles = ("user", "assistant", "user", "assistant")
            messages = [{"role": role, "content": row[turn]} for role, turn in zip(roles, TURNS, strict=True)]
            file.write(json.dumps({"messages": messages}) + "\n")
