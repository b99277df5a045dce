"""The same role plays through camel-ai's own RolePlaying, as its examples do it, in threads. Runs in an environment of its own.

python camel_ai_job.py URL CONVERSATIONS SLOTS WORKERS FOLDER
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from camel.societies import RolePlaying
from camel.types import ModelPlatformType
from camel.utils import BaseTokenCounter

from camel.models import ModelFactory  # camel-ai's camel, not ours

MESSAGES = 12
TASK = "Develop a trading bot for the stock market that reads the news, number {}"


class Counter(BaseTokenCounter):
    """Cheaper than its own, which wants to fetch tables from the internet."""

    def count_tokens_from_messages(self, messages):
        return sum(len(str(message.get("content", ""))) // 4 for message in messages)

    def encode(self, text):
        return list(text.encode())

    def decode(self, token_ids):
        return bytes(token_ids).decode()


def converse(url: str, number: int) -> int:
    model = ModelFactory.create(
        model_platform=ModelPlatformType.OPENAI_COMPATIBLE_MODEL,
        model_type="simulated",
        url=url,
        api_key="none",
        model_config_dict={"temperature": 0.2},
        token_counter=Counter(),
    )
    session = RolePlaying(
        assistant_role_name="Python Programmer",
        user_role_name="Stock Trader",
        task_prompt=TASK.format(number),
        with_task_specify=False,
        assistant_agent_kwargs={"model": model},
        user_agent_kwargs={"model": model},
    )
    said = session.init_chat()
    for _ in range(MESSAGES // 2):
        assistant, user = session.step(said)
        assert not assistant.terminated, assistant.info
        assert not user.terminated, user.info
        said = assistant.msg
    return number


def main() -> None:
    url, conversations, slots = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with ThreadPoolExecutor(slots) as pool:
        list(pool.map(lambda number: converse(url, number), range(conversations)))


if __name__ == "__main__":
    main()
