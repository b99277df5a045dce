"""Conversations as rows for training: a table of transcripts in, a table of rows out.

A row is a chat as the model in one seat took part in it. The paper's preprocessing: the grammar's markers go, the message
that says that the task is done goes, and what is longer than a model can read is split, between turns.

The one decision to know: no message becomes a Python object. A row group is shaped column by column, by numbers that say
which messages follow which, so that a million conversations take minutes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any, Literal, NamedTuple

import msgspec

from camel.core.errors import InputError
from camel.core.inception import paper
from camel.core.role_playing import ASSISTANT, USER
from camel.record.parquet import Table, arrow

np, pa, pc = arrow("numpy"), arrow(), arrow("pyarrow.compute")

Seat = Literal["assistant", "user", "both"]

AROUND = 4
"""Tokens that a chat template puts around a message."""
_MARK = r"[\s*_#>]*"
_ASKS = rf"(?i)^{_MARK}instruction{_MARK}[:：]"
# In one pass each: what opens the message, the input that says there is none, what ends it.
_ASKED = (
    rf"(?i)^{_MARK}instruction{_MARK}[:：]{_MARK}|\s*\n{_MARK}input{_MARK}[:：]{_MARK}(?:none|n/a)[\s.*_]*$"
)
_INPUT = rf"(?i)\s*\n{_MARK}input{_MARK}[:：]{_MARK}"
_SOLVED = rf"(?i)^{_MARK}solution{_MARK}[:：]{_MARK}|[\s*_]*next request[\s.!*_]*$"
_DONE = r"^[^\p{L}\p{N}]*CAMEL\\?_TASK\\?_DONE[^\p{L}\p{N}]*$"
_MOST_AROUND = 200
"""Bytes of a message that holds nothing but the token."""
_TOKEN = "_TASK"  # noqa: S105 - a word of the grammar, in every way of writing it


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What becomes of a conversation."""

    seat: Seat = "assistant"
    """Whose words are learnt: what this seat said is the assistant's, what it heard the user's."""
    markers: bool = False
    """Whether `Instruction:`, `Input:`, `Solution:` and `Next request.` stay; for a model that is to play the role."""
    system: bool = False
    """Whether a row begins with the seat's system prompt."""
    inception: bool = False
    """With `system`: whether conversations that came without prompts, as imported ones do, are given the paper's."""
    length: int = 2048
    """Tokens of a row at most."""
    characters_per_token: float = 4.0
    """By which lengths are estimated."""

    def __post_init__(self) -> None:
        if self.length < 2 * AROUND or not self.characters_per_token > 0:
            raise InputError("a row has a length of some tokens, and a token some characters")
        if self.inception and not self.system:
            raise InputError("the paper's prompts are system prompts: inception goes with system")

    @property
    def seats(self) -> tuple[str, ...]:
        """The seats that rows are made for."""
        return (ASSISTANT, USER) if self.seat == "both" else (self.seat,)


@cache
def layout() -> Any:
    """The Arrow schema of rows."""
    text = pa.string()
    message = pa.struct([("role", text), ("content", text)])
    return pa.schema(
        [
            ("id", text),
            ("conversation", text),
            ("scenario", text),
            ("seat", text),
            ("messages", pa.list_(message)),
            ("tokens", pa.int32()),
            ("labels", pa.list_(text)),
        ]
    )


class Shaped(NamedTuple):
    """The rows, and what was left out."""

    rows: Table
    too_long: int
    """Turns that alone are longer than a row."""
    no_turns: int
    """Conversations in which the seat answered nothing."""


def shape(table: Table, how: Shape) -> Shaped:
    """The rows of a table of transcripts with at most two speakers each, in the order of their conversations."""
    parts = [_Seat(table, seat, how).rows() for seat in how.seats]
    return Shaped(
        pa.concat_tables([part.rows for part in parts]),
        sum(part.too_long for part in parts),
        sum(part.no_turns for part in parts),
    )


class _Seat:
    """One table, as one seat took part in its conversations."""

    def __init__(self, table: Table, seat: str, how: Shape) -> None:
        self._table, self._seat, self._how = table.combine_chunks(), seat, how
        lists = _column(self._table, "messages")
        ends = _numbers(lists.offsets)
        self._ends = ends - ends[0]
        said = lists.values.slice(int(ends[0]), int(self._ends[-1]))
        self._conversation = np.repeat(np.arange(len(lists)), np.diff(self._ends))
        self._own = _booleans(pc.equal(said.field("speaker"), seat))
        texts = said.field("content")
        self._kept = ~self._done(texts, said.field("speaker"))
        if not how.markers:
            texts = stripped(texts)
        self._kept &= _booleans(pc.match_substring_regex(texts, r"\S"))
        systems, openings = self._of_the_seat()
        self._pool = pa.concat_arrays([texts, openings, systems])
        self._openings = len(texts)
        self._systems = self._openings + len(lists)
        # What is not used need not be counted: prompts are long, and the same.
        heads = self._tokens(systems) if how.system else np.zeros(len(lists), np.int64)
        heads = np.where(heads > AROUND, heads, 0)
        self._lengths = np.concatenate([self._tokens(texts), self._tokens(openings), heads])

    def _tokens(self, texts: Any) -> Any:
        """How many tokens each of some messages has, about."""
        characters = _numbers(pc.utf8_length(texts))
        return np.ceil(characters / self._how.characters_per_token).astype(np.int64) + AROUND

    def _done(self, texts: Any, speakers: Any) -> Any:
        """Messages that only say that the task is done, or with which it was."""
        done = np.zeros(len(texts), bool)
        may = _numbers(pc.binary_length(texts)) < _MOST_AROUND
        may[self._ends[1:][np.diff(self._ends) > 0] - 1] = True
        told = np.flatnonzero(may)
        told = told[_booleans(pc.match_substring(texts.take(told), _TOKEN))]
        if not len(told):
            return done
        alone = _booleans(pc.match_substring_regex(texts.take(told), _DONE, ignore_case=True))
        stops = _column(self._table, "stop")
        over = _booleans(pc.fill_null(pc.equal(pc.struct_field(stops, "reason"), "done"), False))
        last = self._ends[1:][self._conversation[told]] - 1 == told
        done[told] = alone | (last & over[self._conversation[told]])
        return done

    def _of_the_seat(self) -> tuple[Any, Any]:
        """The system prompt of each conversation's seat, and what it heard before anything was said."""
        speakers, found = self._speakers(self._seat)
        if len(speakers):
            systems = pc.fill_null(speakers.field("system").take(found), "")
            openings = pc.fill_null(speakers.field("opening").take(found), "")
        else:
            systems = openings = pa.array([""] * self._table.num_rows, pa.string())
        tasks = _column(self._table, "task")
        specified, original = pc.struct_field(tasks, "specified"), pc.struct_field(tasks, "original")
        task = pc.fill_null(pc.if_else(pc.equal(pc.fill_null(specified, ""), ""), original, specified), "")
        if self._how.inception and len(speakers):
            systems, openings = self._given(speakers, task, systems, openings)
        return systems, pc.if_else(pc.equal(openings, ""), task, openings)

    def _speakers(self, seat: str) -> tuple[Any, Any]:
        """All speakers of the table, and the place among them of each conversation's in a seat."""
        lists = _column(self._table, "speakers")
        ends = _numbers(lists.offsets)
        speakers = lists.values.slice(int(ends[0]), int(ends[-1] - ends[0]))
        owner = np.repeat(np.arange(len(lists)), np.diff(ends))
        at = np.flatnonzero(_booleans(pc.equal(speakers.field("name"), seat)))
        place = np.full(len(lists), -1)
        place[owner[at]] = at
        return speakers, pa.array(np.where(place < 0, 0, place), mask=place < 0)

    def _given(self, speakers: Any, task: Any, systems: Any, openings: Any) -> tuple[Any, Any]:
        """The paper's prompts where there are none; a conversation without both roles stays as it is."""
        roles = {seat: speakers.field("role").take(self._speakers(seat)[1]) for seat in (ASSISTANT, USER)}
        # As `as_sentence_part` has it, which takes one text at a time.
        part = pc.replace_substring_regex(pc.utf8_trim_whitespace(task), r"([^.])\.$", r"\1")
        values = {"ASSISTANT_ROLE": roles[ASSISTANT], "USER_ROLE": roles[USER], "TASK": part}
        prompts = paper()
        template = prompts.user if self._seat == USER else prompts.assistant
        pieces = [values.get(piece, piece) for piece in _pieces(template, values)]
        without = pc.and_(pc.equal(systems, ""), pc.and_(*map(pc.is_valid, roles.values())))
        if self._seat == USER:
            openings = pc.if_else(pc.and_(without, pc.equal(openings, "")), prompts.opening, openings)
        return pc.if_else(without, pc.binary_join_element_wise(*pieces, ""), systems), openings

    def rows(self) -> Shaped:
        heard, own = self._turns()
        sizes = self._lengths[heard] + self._lengths[own]
        conversation = self._conversation[own]
        # A row ends where its conversation does, and where a turn is missing in the middle of one.
        follows = np.zeros(len(own), bool)
        follows[1:] = (conversation[1:] == conversation[:-1]) & (own[1:] == own[:-1] + 2)
        starts, stops = self._split(sizes, self._lengths[self._systems + conversation], follows)
        emitted = np.repeat(np.arange(len(starts)), stops - starts)
        turns = np.arange(len(emitted)) - np.repeat(
            np.cumsum(stops - starts) - (stops - starts), stops - starts
        )
        turns += starts[emitted]
        messages = np.empty(2 * len(turns), np.int64)
        messages[0::2], messages[1::2] = heard[turns], own[turns]
        offsets = np.concatenate([[0], np.cumsum(2 * (stops - starts))])
        of = conversation[starts] if len(starts) else np.zeros(0, np.int64)
        has_system = self._lengths[self._systems + of] > 0
        total = np.add.reduceat(sizes[turns], offsets[:-1] // 2) if len(starts) else np.zeros(0, np.int64)
        total = total + np.where(has_system, self._lengths[self._systems + of], 0)
        roles = np.tile(np.array([0, 1]), len(turns))
        if self._how.system:
            before = offsets[:-1][has_system]
            messages = np.insert(messages, before, (self._systems + of)[has_system])
            roles = np.insert(roles, before, 2)
            offsets = offsets + np.concatenate([[0], np.cumsum(has_system)])
        too_long = len(own) - len(turns)
        none = self._table.num_rows - len(np.unique(conversation))
        return Shaped(self._assembled(messages, roles, offsets, of, total), too_long, none)

    def _turns(self) -> tuple[Any, Any]:
        """What was heard and what was said to it, as places in the pool; what begins a conversation answers its opening."""
        count = len(self._own)
        first = np.zeros(count, bool)
        first[self._ends[:-1][np.diff(self._ends) > 0]] = True
        said = np.flatnonzero(self._own & self._kept)
        before = said - 1
        answers = ~first[said] & ~self._own[before] & self._kept[before]
        opens = first[said] & (self._lengths[self._openings + self._conversation[said]] > AROUND)
        turns = said[answers | opens]
        heard = np.where(first[turns], self._openings + self._conversation[turns], turns - 1)
        return heard, turns

    def _split(self, sizes: Any, heads: Any, follows: Any) -> tuple[Any, Any]:
        """Where rows begin and end among the turns: as many turns as fit, then the next row."""
        count = len(sizes)
        whole = np.concatenate([[0], np.cumsum(sizes)])
        begins = np.flatnonzero(~follows)
        end_of_part = np.append(begins[1:], count)
        starts: list[Any] = []
        stops: list[Any] = []
        at, end = begins, end_of_part
        while len(at):
            room = self._how.length - heads[at]
            fits = np.searchsorted(whole, whole[at] + room, side="right") - 1
            stop = np.minimum(np.maximum(fits, at), end)
            some = stop > at
            starts.append(at[some])
            stops.append(stop[some])
            at = np.where(some, stop, at + 1)  # a turn that is longer than a row alone is left out
            more = at < end
            at, end = at[more], end[more]
        if not starts:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        first = np.concatenate(starts)
        order = np.argsort(first, kind="stable")
        return first[order], np.concatenate(stops)[order]

    def _assembled(self, messages: Any, roles: Any, offsets: Any, of: Any, total: Any) -> Table:
        fields = layout()
        names = pa.DictionaryArray.from_arrays(
            pa.array(roles.astype(np.int8)), pa.array(["user", "assistant", "system"])
        ).cast(pa.string())
        contents = self._pool.take(pa.array(messages))
        said = pa.StructArray.from_arrays(
            [names, contents], fields=list(fields.field("messages").type.value_type)
        )
        conversations = _column(self._table, "id").take(pa.array(of))
        fresh = np.ones(len(of), bool)
        fresh[1:] = of[1:] != of[:-1]
        since = np.arange(len(of))
        part = since - np.maximum.accumulate(np.where(fresh, since, 0)) if len(of) else since
        mark = pa.array([self._seat[0]] * len(of), pa.string())
        ids = pc.binary_join_element_wise(conversations, mark, pa.array(part).cast(pa.string()), "-")
        return pa.Table.from_arrays(
            [
                ids,
                conversations,
                _column(self._table, "scenario").take(pa.array(of)),
                pa.array([self._seat] * len(of), pa.string()),
                pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), said),
                pa.array(total.astype(np.int32)),
                _column(self._table, "labels").take(pa.array(of)),
            ],
            schema=fields,
        )


def stripped(texts: Any) -> Any:
    """A column of messages without the grammar's markers, where they stand as the prompts ask for them."""
    asks = pc.match_substring_regex(texts, _ASKS)
    # Each pattern where it can be: they have to look at every character.
    asked = pc.replace_substring_regex(texts.filter(asks), _ASKED, "")
    asked = pc.replace_substring_regex(asked, _INPUT, "\n", max_replacements=1)
    solved = pc.replace_substring_regex(texts.filter(pc.invert(asks)), _SOLVED, "")
    texts = pc.replace_with_mask(pc.replace_with_mask(texts, asks, asked), pc.invert(asks), solved)
    return pc.utf8_trim_whitespace(texts)


def _pieces(template: str, values: Iterable[str]) -> list[str]:
    """A template cut at its placeholders, which stand there as their names."""
    return re.split(rf"<({'|'.join(values)})>", template)


def _column(table: Table, name: str) -> Any:
    """A column as one array."""
    chunks = table.column(name)
    return chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()


def _numbers(array: Any) -> Any:
    return array.to_numpy(zero_copy_only=False)


def _booleans(array: Any) -> Any:
    return array.to_numpy(zero_copy_only=False).astype(bool)
