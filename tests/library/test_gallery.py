"""The gallery is intact and small, and the loop still makes the prompts that its writers answered."""

from __future__ import annotations

import json
import lzma
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import camel
from camel.core.transcript import Transcript
from camel.library.run import open_gallery
from camel.runs.verify import verify

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "src" / "camel" / "gallery"
REQUESTS = ROOT / "tests" / "fixtures" / "gallery" / "requests.jsonl.xz"
REPLAYED = ("acting", "critic", "code_limit", "society", "science")
"""Ten conversations: role plays with tools, with and without a critic, a society, and problems. `thorough` replays all."""


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> dict[str, camel.Run]:
    return open_gallery(tmp_path_factory.mktemp("gallery"))


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    """`tools/gallery/run`, which is a script."""
    loader = SourceFileLoader("gallery_run", str(ROOT / "tools" / "gallery" / "run"))
    spec = spec_from_loader(loader.name, loader)
    assert spec
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_every_run_is_intact(gallery: dict[str, camel.Run]):
    assert sum(map(len, gallery.values())) >= 30
    for run in gallery.values():
        assert verify(run.folder).problems == []


def test_it_is_small_and_names_no_folder_of_its_making(gallery: dict[str, camel.Run]):
    files = [path for path in GALLERY.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 2_000_000
    for path in files:
        if path.suffix in (".json", ".jsonl", ".md"):
            assert not any(f'"/{root}/' in path.read_text() for root in ("tmp", "home", "root", "work")), path


def test_the_copy_keeps_what_a_reader_changed(tmp_path: Path):
    open_gallery(tmp_path)
    (tmp_path / "math" / "annotations.jsonl").write_text("mine\n")
    runs = open_gallery(tmp_path)
    assert (tmp_path / "math" / "annotations.jsonl").read_text() == "mine\n"
    assert runs["math"][0].transcript.messages


def test_failures_are_in_it(gallery: dict[str, camel.Run]):
    """It has conversations that end well, each of the paper's failures, and one that reaches a limit of tokens."""
    every = [one for run in gallery.values() for one in run]
    found = {finding.detector for one in every for finding in one.findings()}
    assert {"role_flipping", "flake_reply"} <= found
    reasons = [one.stop.reason for one in every if one.stop]
    assert {"done", "assistant_instructs", "user_no_instruction", "max_messages", "token_limit"} <= set(
        reasons
    )
    assert reasons.count("done") >= 12


class Replay:
    """An endpoint that answers the stored requests, and counts those that were never asked of the writers."""

    def __init__(self) -> None:
        lines = [json.loads(line) for line in lzma.decompress(REQUESTS.read_bytes()).splitlines()]
        self.replies = {self.key(line["seat"], line["body"]): line["replies"] for line in lines}
        self.asked: set[str] = set()
        self.unknown: list[dict[str, Any]] = []
        replay = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                key = replay.key(self.path.split("/")[1], body)
                replay.asked.add(key)
                if key not in replay.replies:
                    replay.unknown.append(body)
                texts = replay.replies.get(key, ["?"] * (body.get("n") or 1))
                choices = [
                    {"index": n, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
                    for n, text in enumerate(texts)
                ]
                # As `tools/gallery/seat` counts them: one conversation ends at a token limit.
                lengths = len(" ".join(one["content"] for one in body["messages"])), *map(len, texts)
                prompt, *written = (-(-length // 4) for length in lengths)
                usage = {"prompt_tokens": prompt, "completion_tokens": sum(written)}
                data = json.dumps({"id": "x", "model": "language-model", "choices": choices, "usage": usage})
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data.encode())))
                self.end_headers()
                self.wfile.write(data.encode())

            def do_GET(self) -> None:
                self.send_error(404)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @staticmethod
    def key(seat: str, body: dict[str, Any]) -> str:
        """A request byte for byte: who is asked, every message, and how many replies."""
        return json.dumps([seat, body["messages"], body.get("n") or 1])


@pytest.fixture
def replay() -> Iterator[Replay]:
    one = Replay()
    yield one
    one.server.shutdown()
    one.server.server_close()


def spoken(transcript: Transcript) -> tuple[Any, ...]:
    said = [
        (one.speaker, one.content, [proposal.content for proposal in one.deliberation.proposals])
        if one.deliberation
        else (one.speaker, one.content)
        for one in transcript.messages
    ]
    return transcript.id, transcript.task.text, said, transcript.stop


def check(
    names: tuple[str, ...], replay: Replay, gallery: dict[str, camel.Run], tool: ModuleType, work: Path
) -> None:
    for name in names:
        path = tool.write(work, name, replay.server.server_port)
        run = camel.generate(path, out=work / "again" / name, progress=False)
        shipped = gallery[name.replace("_", "-")]
        assert [spoken(one) for one in run] == [spoken(one) for one in shipped], name
    assert replay.unknown == []


def test_the_loop_makes_the_same_prompts(
    replay: Replay, gallery: dict[str, camel.Run], tool: ModuleType, tmp_path: Path
):
    check(REPLAYED, replay, gallery, tool, tmp_path)
    assert len(replay.asked) > 40


@pytest.mark.thorough
def test_the_loop_makes_the_same_prompts_in_all_runs(
    replay: Replay, gallery: dict[str, camel.Run], tool: ModuleType, tmp_path: Path
):
    check(tuple(tool.RUNS), replay, gallery, tool, tmp_path)
    made = {key for key in replay.replies if not key.startswith('["translator"')}
    assert replay.asked == made
