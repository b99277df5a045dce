"""Preferences: chosen and rejected proposals of a critic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from camel.core.transcript import Transcript
from camel.formats.conversation import turns_of
from camel.formats.json_rows import ROW_ENDINGS, write_rows
from camel.record.release import Exported, Release


def preferences(transcripts: Iterable[Transcript], path: Path, *, release: Release = Release()) -> Exported:  # noqa: B008 - frozen
    """Write `{"prompt", "chosen", "rejected"}` for TRL's preference trainers: a critic's choice against each alternative.

    An alternative is another first proposal, or the version that a revision replaced, unless it has the same text or the
    same score. Skips messages that a fallback chose.
    """
    return write_rows(transcripts, path, release, _preference_rows, ROW_ENDINGS)


def _preference_rows(transcript: Transcript) -> Iterator[dict[str, Any]]:
    for place, message in enumerate(transcript.messages):
        found = message.deliberation
        if found is None or found.fallback:
            continue
        heard = msgspec.structs.replace(transcript, messages=transcript.messages[: place + 1])
        prompt = turns_of(heard, message.speaker, system=True)[:-1]
        chosen = found.proposals[found.choice]
        seen = {chosen.content}
        for one in found.proposals:
            same = one.score is not None and one.score == chosen.score
            if one.speaker or (one.parent >= 0 and not one.revises) or one.content in seen or same:
                continue
            seen.add(one.content)
            row = {"prompt": [{"role": role, "content": content} for role, content in prompt]}
            for name, proposal in (("chosen", chosen), ("rejected", one)):
                row[name] = [{"role": "assistant", "content": proposal.content}]
            yield row
