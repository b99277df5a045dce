"""A chain of fine-tunes with the real small model, and how often each keeps the grammar when nothing holds it to it.

    python -m benchmarks.chain                  # about 25 minutes of CPU; needs 3 GB of disk
    python -m benchmarks.chain --out FOLDER     # keeps what it makes; the same command resumes where it stopped

Section 5.2 of the paper in small, by the commands a user would give: AI Society, + Code, + Math, each starting from the model before. Data:
conversations that the small model itself generates, held to the grammar (two of the sets), and those of examples/training. Then the base
model and each of the chain are served without guidance and play both roles of conversations whose roles and tasks none has seen. A message keeps the
grammar if the parser reads it as what its seat may say: an instruction with its input, or the done token; a solution that ends with the next request.
Rates are with 95% intervals that count conversations, not messages.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

import camel
import camel.scenarios
from camel import LocalServer, MaxMessages, RolePlaying, Sampling, Transcript, local_model, parse
from camel.core.role_playing import ASSISTANT, USER
from camel.reports.intervals import Clusters, Rate
from camel.training.data import IGNORED, chat_tokens
from camel.training.stored_rows import Rows
from camel.training.weights import need, opened

WRITTEN = Path(__file__).parent.parent / "examples" / "training"
CHAIN = ("society", "code", "math")
GENERATED = {"society": "ai_society", "code": "code"}
"""Of the sets, those the small model adds to, and by which scenario; its mathematics are single questions, which have no grammar."""
COUNTS = {
    "society": "assistant_role = 3\nuser_role = 2\ntask = 1",
    "code": "language = 3\ndomain = 2\ntask = 1",
}
STEPS = 24
BATCH, LENGTH, RATE = 1, 512, 1e-3
KEPT_BACK = 2
"""Conversations of each set that none learns from."""
MESSAGES, TOKENS = 2, 128
HELD_OUT = (
    ("Plumber", "Hotel Manager", "Find out why the third floor has no hot water"),
    ("Beekeeper", "Chemist", "Set up two hives on a flat roof"),
    ("Tailor", "Actor", "Make a coat for a play about sailors"),
    ("Economist", "Mayor", "Decide whether the town should buy buses"),
    ("Firefighter", "School Director", "Write a plan for a fire drill"),
    ("Pilot", "Novelist", "Describe a landing in fog so that it is believable"),
    ("Dentist", "Nursery Teacher", "Teach small children to brush their teeth"),
    ("Sculptor", "Banker", "Choose a statue for the hall of a bank"),
    ("Geologist", "Hiker", "Read the rocks along a mountain path"),
    ("Diplomat", "Film Director", "Prepare a scene about peace negotiations"),
    ("Ruby Programmer", "Vet", "Keep a list of vaccinations"),
    ("TypeScript Programmer", "Tour Operator", "Show free seats on a page"),
    ("Kotlin Programmer", "Runner", "Record the laps of a race"),
    ("Haskell Programmer", "Linguist", "Count the syllables of words"),
    ("PHP Programmer", "Choir Leader", "Make a form to join a choir"),
    ("Swift Programmer", "Cyclist", "Show the distance of a ride"),
    ("Perl Programmer", "Archivist", "Find dates in old letters"),
    ("Scala Programmer", "Fisher", "Add up the catch of a week"),
    ("R Programmer", "Nutritionist", "Plot the calories of ten meals"),
    ("Lua Programmer", "Puppeteer", "Move a figure along a line"),
    ("Number Theorist", "Locksmith", "Count the codes of a lock with four digits"),
    ("Topologist", "Knitter", "Explain why a scarf can have one side"),
    ("Actuary", "Sailor", "Estimate the chance of a storm on a trip"),
    ("Algebraist", "Grocer", "Find two prices from two bills"),
    ("Trigonometry Tutor", "Roofer", "Find the slope of a roof"),
    ("Combinatorics Lecturer", "Host", "Count the ways to seat six guests"),
    ("Calculus Tutor", "Diver", "Find how fast a tank empties"),
    ("Probability Lecturer", "Fortune Teller", "Compute the odds of three sixes"),
    ("Arithmetic Tutor", "Butcher", "Convert pounds to kilograms"),
    ("Geometry Tutor", "Tiler", "Count the tiles of a round table"),
)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plays", type=int, default=len(HELD_OUT))
    given = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with tempfile.TemporaryDirectory() as scratch:
        root = (given.out or Path(scratch)).resolve()
        root.mkdir(parents=True, exist_ok=True)
        return chain(root, given.plays)


def chain(root: Path, plays: int) -> int:
    for name in CHAIN:
        data(root, name)
    print("| fine-tune | from | rows | steps | loss, first and last third of the steps | CPU, s |")
    print("|---|---|---|---|---|---|")
    models: dict[str, str] = {"base": "local"}
    before, shown = "local", ""
    for name in CHAIN:
        began = _cpu()
        camel_command(
            root,
            *f"train rows/{name} --recipe cpu --base-model {before} --out models/{name} --steps {STEPS}".split(),
            *f"--batch-size {BATCH} --length {LENGTH} --learning-rate {RATE}".split(),
        )
        result = json.loads((root / "models" / name / "result.json").read_bytes())
        first, last = thirds(root / "models" / name / "progress.jsonl")
        print(
            f"| {name} | {before} | {result['rows']} | {result['steps']} | {first:.2f}, {last:.2f} | {_cpu() - began:,.0f} |",
            flush=True,
        )
        before = models[f"+ {name}"] = f"models/{name}"
    print(
        f"\n{plays} conversations of {MESSAGES} messages, unseen roles and tasks, no guidance, temperature 0.7\n"
    )
    print("| model | user | assistant | both | CPU, s |\n|---|---|---|---|---|")
    last = f"+ {CHAIN[-1]}"
    rates: dict[str, Rate] = {}
    # The first and the last before those between: they are what is asked.
    for name in ("base", last, *(one for one in models if one not in ("base", last))):
        began = _cpu()
        path = None if name == "base" else root / models[name] / "model.gguf"
        talks = asyncio.run(played(path, plays))
        by_seat = {seat: kept(talks, seats) for seat, seats in SEATS.items()}
        rates[name] = by_seat["both"]
        cells = " | ".join(map(_cell, by_seat.values()))
        print(f"| {name} | {cells} | {_cpu() - began:,.0f} |", flush=True)
        (root / f"{models[name].rpartition('/')[2]}.json").write_bytes(msgspec.json.encode(talks))
        if name == last:
            shown = as_text(talks[0])
    wrong = falling(root, models)
    if not rates[last].low > rates["base"].high:
        wrong.append("the last model does not keep the grammar more often than the base model")
    print(f"\nA conversation that the last model plays alone:\n\n{shown}")
    print(f"\n{'as it should be' if not wrong else 'WRONG: ' + ', '.join(wrong)}")
    return 1 if wrong else 0


def falling(root: Path, models: dict[str, str]) -> list[str]:
    """The loss of each model on what was kept back; in each fine-tune that of its own set must fall."""
    print(f"\nloss on what was kept back\n\n| model | {' | '.join(CHAIN)} |\n|---|{'---|' * len(CHAIN)}")
    before: dict[str, float] = {}
    wrong: list[str] = []
    for model, path in models.items():
        found = unseen(root, path)
        print(f"| {model} | {' | '.join(f'{found[name]:.3f}' for name in CHAIN)} |", flush=True)
        own = model.removeprefix("+ ")
        if before and not found[own] < before[own]:
            wrong.append(f"the loss of {own} did not fall")
        before = found
    return wrong


def thirds(progress: Path) -> tuple[float, float]:
    """The mean loss of the first and of the last third of the steps."""
    losses = {one["step"]: one["loss"] for one in map(json.loads, progress.read_text().splitlines())}
    said = [losses[step] for step in sorted(losses)]
    third = max(1, len(said) // 3)
    return sum(said[:third]) / third, sum(said[-third:]) / third


def unseen(root: Path, model: str) -> dict[str, float]:
    """The mean loss of a model on what was written of each set and kept back: the same words for every model."""
    need("transformers").utils.logging.disable_progress_bar()
    torch, (network, tokenizer) = need("torch"), opened(model if model == "local" else str(root / model))
    found: dict[str, float] = {}
    for name in CHAIN:
        total = count = 0.0
        for row in Rows(root / "rows" / f"{name}-back"):
            ids, labels = chat_tokens(tokenizer, row["messages"], LENGTH)
            learnt = sum(label != IGNORED for label in labels)
            with torch.inference_mode():
                loss = network(input_ids=torch.tensor([ids]), labels=torch.tensor([labels])).loss
            total, count = total + float(loss) * learnt, count + learnt
        found[name] = total / count
    return found


def data(root: Path, name: str) -> None:
    """The rows of a set: what the small model says in it, and what was written."""
    runs = [f"runs/{name}"]
    lines = (WRITTEN / f"{name}.jsonl").read_text().splitlines()
    for run, part in ((name, lines[:-KEPT_BACK]), (f"{name}-back", lines[-KEPT_BACK:])):
        if not (root / "runs" / run).exists():
            (root / f"{run}.jsonl").write_text("\n".join(part))
            camel_command(root, "import", f"{run}.jsonl", f"runs/{run}", "--scenario", name)
    if name in GENERATED:
        scenario = root / "scenarios" / name
        if not scenario.exists():
            shutil.copytree(Path(camel.scenarios.__file__).parent / GENERATED[name], scenario)
            told = scenario / "scenario.toml"
            told.write_text(told.read_text().replace("[role_play]", "[role_play]\nmax_messages = 6"))
        config = root / f"{name}.toml"
        config.write_text(
            f'scenario = "{scenario}"\nseed = 7\n[counts]\n{COUNTS[name]}\n'
            '[model]\nname = "smollm2-135m"\n[run]\nconcurrency = 4\n'
        )
        camel_command(root, "generate", config.name, "--local", "--out", f"runs/{name}-generated")
        runs.append(f"runs/{name}-generated")
    for out, sources in ((name, runs), (f"{name}-back", [f"runs/{name}-back"])):
        shape = f"--markers --system --inception --seat both --length {LENGTH} --out rows/{out}"
        camel_command(root, "rows", *sources, *shape.split())


def as_text(talk: Transcript) -> str:
    said = [f"{message.role}: {message.content}" for message in talk.messages]
    return "\n".join(f"    {line}" for line in "\n".join([f"Task: {talk.task.text}", *said]).splitlines())


SEATS = {"user": (USER,), "assistant": (ASSISTANT,), "both": (USER, ASSISTANT)}


async def played(path: Path | None, plays: int) -> list[Transcript]:
    server = LocalServer(model_path=path, parallel=4, context_tokens=2048)
    at_once = asyncio.Semaphore(4)
    with local_model(server, guided=None) as model:
        async with model:

            async def one(number: int) -> Transcript:
                # Of the three sets in turn, so that fewer plays have as much of each.
                assistant, user, task = HELD_OUT[number % 3 * 10 + number // 3 % 10]
                play = RolePlaying(
                    assistant=assistant,
                    user=user,
                    task=task,
                    model=model,
                    sampling=Sampling(temperature=0.7, max_tokens=TOKENS, seed=number),
                    specifier=None,
                    rules=[MaxMessages(MESSAGES)],
                )
                async with at_once:
                    async for _ in play:
                        pass
                return play.transcript

            return list(await asyncio.gather(*map(one, range(plays))))


def kept(talks: list[Transcript], seats: tuple[str, ...]) -> Rate:
    import numpy as np

    counts: list[tuple[int, int]] = []
    for talk in talks:
        mine = [
            keeps(message.speaker, message.content) for message in talk.messages if message.speaker in seats
        ]
        counts.append((sum(mine), len(mine)))
    sums = Clusters()
    sums.add(*np.array(counts).reshape(-1, 2).T)
    return sums.rate()


def keeps(seat: str, text: str) -> bool:
    """Whether a message is what its seat may say, all of it and nothing of the other's."""
    move = parse(text)
    if seat == ASSISTANT:
        return move.solution is not None and move.next_request and move.instruction is None
    return move.done or (move.instruction is not None and "Input:" in text and move.solution is None)


def _cell(rate: Rate) -> str:
    return f"{rate.count}/{rate.of} = {rate.rate:.1%} ({rate.low:.1%} to {rate.high:.1%})"


def camel_command(root: Path, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "camel", *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(Path(camel.__file__).parent.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"camel {' '.join(arguments)}\n{done.stdout}")


def _cpu() -> float:
    """Seconds of CPU of this process and of all it started that have ended."""
    return sum(
        one.ru_utime + one.ru_stime
        for one in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


if __name__ == "__main__":
    sys.exit(main())
