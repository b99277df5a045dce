"""The stages of a run that ask a model for lists, one per level of the scenario."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

from camel.core.errors import CamelError
from camel.core.memory import HistoryPolicy
from camel.core.message import Sampling, in_one_line
from camel.core.role_playing import AGENT_SAMPLING
from camel.core.task import SPECIFIER
from camel.engine.stage import Written, write_whole
from camel.generation.config import LISTS_PER_SHARD, GenerateConfig
from camel.generation.seats import key_of
from camel.jobs.item import Item, item_seed, with_seed
from camel.jobs.job import ItemFailed, Stage
from camel.runs.markers import Marker
from camel.runs.plan import RunPlan, planned_layouts, read_plan
from camel.runs.run import RunFolder
from camel.scenarios import NamedList, ask_list, read_lists, render_lists

FAILED = "(failed) "
"""Prefix of the items of a list that failed."""


class ListFailed(ItemFailed):
    """A list that an item depends on failed."""

    def __init__(self, cause: str) -> None:
        level, _, why = cause.removeprefix(FAILED).partition(": ")
        super().__init__(f"its {level} list failed: {why}")
        self.cause = cause


class Seated(NamedTuple):
    """The model of a seat: its key in the job's models, and the seat's own settings."""

    key: str = ""
    sampling: Sampling | None = None
    prompt: str = ""
    history: HistoryPolicy | None = None
    tools: tuple[str, ...] = ()


class ListMaker:
    """Makes the lists of a run."""

    def __init__(self, config: GenerateConfig, folder: RunFolder, plan: RunPlan | None = None) -> None:
        self.config, self.folder = config, folder
        self.scenario = config.loaded_scenario()
        self._settings = folder.settings()
        self._plan = plan or read_plan(folder)
        self._layouts = self._plan.layouts if self._plan else planned_layouts(folder, self._settings.planned)
        self._list_shard = lru_cache(maxsize=64)(self._read_list_shard)

    def list_stages(self) -> list[Stage]:
        """Return one stage per level whose lists a model writes."""
        return [
            Stage(
                name=level.name,
                count=self._layouts[level.name].count,
                work=partial(self._ask, level.name),
                write=_write_lists,
                failed=partial(self._failed_list, level.name),
                failure=_why_list_failed,
                id=lambda index, level=level.name: f"{level}-{index}",
                read=self._read_lists,
                fingerprint=self._settings.fingerprint,
                seat="lists",
                suffix=".txt",
                shard_size=LISTS_PER_SHARD,
                segments=self._layouts[level.name].segments,
            )
            for level in self.scenario.asked
        ]

    async def _ask(self, level: str, item: Item) -> NamedList:
        """Ask for one list of a level."""
        facts = item.draft = await self._read_facts(partial(self.scenario.list_facts, level, item.index))
        if failed := failed_list_in(facts):
            raise ListFailed(failed)
        declared, seat = self.scenario.level(level), self._seat(item, "lists")
        sampling = seat.sampling or declared.sampling or self.config.sampling or AGENT_SAMPLING
        items = await ask_list(
            item.model(seat.key),
            self.scenario.list_prompt(level, facts),
            declared.count,
            sampling=with_seed(sampling, item_seed(self.config.seed, item.index)),
            session=item.id,
            ask=declared.ask,
            names=self.scenario.is_name(level),
        )
        return NamedList(tuple(facts.values()), tuple(items))

    def _failed_list(self, level: str, item: Item, error: CamelError) -> NamedList:
        """Return the record of a failed list. Items that depend on it fail with the same error, unless a user edits its file."""
        if isinstance(error, ListFailed):
            why = error.cause
        else:
            why = in_one_line(f"{FAILED}{level}: {type(error).__name__}: {error}")[:300]
        return NamedList(tuple(item.draft.values()), (why,) * self.scenario.level(level).count)

    def lists(self, level: str, index: int) -> Sequence[str]:
        """Return the items of a committed list."""
        layout = self._layouts[level]
        shard = layout.shard_of(index)
        return self._list_shard(level, shard)[index - layout.numbers(shard).start].items

    def _read_list_shard(self, level: str, shard: int) -> list[NamedList]:
        return self._read_lists(self.folder.marker(level, shard))

    def _read_lists(self, marker: Marker) -> list[NamedList]:
        """Read lists that a user may have edited. Only the number of items must still match."""
        count, text = self.scenario.level(marker.stage).count, self.folder.read(marker.file).decode("utf-8")
        return read_lists(text, source=f"{self.folder.address}/{marker.file}", count=count)

    async def _read_facts(
        self, facts: Callable[[Callable[[str, int], Sequence[str]]], dict[str, str]]
    ) -> dict[str, str]:
        """Return facts that are read from lists. An object store is read on a thread, so that heartbeats continue."""
        return facts(self.lists) if self.folder.on_disk else await asyncio.to_thread(facts, self.lists)

    def _seat(self, item: Item, name: str) -> Seated:
        """Return the model of a seat in one conversation."""
        seat = self.config.models.get(name)
        if seat is None:
            return Seated(name if name in ("lists", SPECIFIER) else "")  # these may have other settings
        number = seat.drawn(name, item.id)
        one = seat.candidates[number]
        return Seated(key_of(name, number), one.sampling, one.prompt, one.history, one.tools)


def failed_list_in(facts: Mapping[str, str]) -> str:
    """Return the error of a failed list among these facts, or an empty string if none failed."""
    return next((fact for fact in facts.values() if fact.startswith(FAILED)), "")


def _why_list_failed(record: NamedList) -> str:
    cause = next((item for item in record.items if item.startswith(FAILED)), "")
    return cause.removeprefix(FAILED).partition(": ")[2]


def _write_lists(path: Path, records: Sequence[NamedList]) -> Written:
    return write_whole(path, render_lists(records).encode(), len(records))
