"""Turns conversations into training rows: a table of transcripts in, a table of rows out.

A row is a chat from the point of view of one seat. As in the paper, the format's markers and the message that ends the task
are removed, and conversations that are too long are split between turns.

The one decision to know: no message becomes a Python object. A row group is processed column by column, with arrays of
message indices, so that a million conversations take minutes.
"""

from __future__ import annotations

import re
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
"""Estimated number of tokens that a chat template adds to a message."""
_MARK = r"[\s*_#>]*"
_ASKS = rf"(?i)^{_MARK}instruction{_MARK}[:：]"
# One pattern per kind of message: its opening marker, an input of "none", its closing marker.
_ASKED = (
    rf"(?i)^{_MARK}instruction{_MARK}[:：]{_MARK}|\s*\n{_MARK}input{_MARK}[:：]{_MARK}(?:none|n/a)[\s.*_]*$"
)
_INPUT = rf"(?i)\s*\n{_MARK}input{_MARK}[:：]{_MARK}"
_SOLVED = rf"(?i)^{_MARK}solution{_MARK}[:：]{_MARK}|[\s*_]*next request[\s.!*_]*$"
_DONE = r"^[^\p{L}\p{N}]*CAMEL\\?_TASK\\?_DONE[^\p{L}\p{N}]*$"
_MOST_AROUND = 200
"""Maximum length in bytes of a message that contains only the done token."""
_TOKEN = "_TASK"  # noqa: S105 - the part of the done token that all its spellings share


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How conversations become rows."""

    seat: Seat = "assistant"
    """The seat to train. The messages of this seat get the role `assistant`, those of the other seat the role `user`."""
    markers: bool = False
    """Whether to keep the labels `Instruction:`, `Input:`, `Solution:` and `Next request.`, for a model that plays the role
    later."""
    system: bool = False
    """Whether a row begins with the seat's system prompt."""
    inception: bool = False
    """If `system` is true: whether to use the paper's prompts for conversations without prompts, such as imported ones."""
    length: int = 2048
    """Maximum number of tokens per row."""
    characters_per_token: float = 4.0
    """Assumed number of characters per token, for estimates."""

    def __post_init__(self) -> None:
        if self.length < 2 * AROUND:
            raise InputError(f"length must be at least {2 * AROUND} tokens, not {self.length}")
        if not self.characters_per_token > 0:
            raise InputError(f"characters_per_token must be above 0, not {self.characters_per_token:g}")
        if self.inception and not self.system:
            raise InputError("inception (--inception) works only with system (--system): add it")

    @property
    def seats(self) -> tuple[str, ...]:
        """The seats to make rows for."""
        return (ASSISTANT, USER) if self.seat == "both" else (self.seat,)


@cache
def layout() -> Any:
    """Return the Arrow schema of rows."""
    text = pa.string()
    message = pa.struct([("role", text), ("content", text)])
    lists = [("messages", pa.list_(message)), ("tokens", pa.int32()), ("labels", pa.list_(text))]
    return pa.schema([*((name, text) for name in ("id", "conversation", "scenario", "seat")), *lists])


class Shaped(NamedTuple):
    """Rows made from conversations, and the numbers of what was excluded."""

    rows: Table
    too_long: int
    """Number of turns that are longer than a row."""
    no_turns: int
    """Number of conversations in which the seat to train has no answer."""


def shape(table: Table, how: Shape) -> Shaped:
    """Make rows from transcripts with at most two speakers. The rows are in the order of the conversations."""
    parts = [_Seat(table, seat, how).rows() for seat in how.seats]
    return Shaped(
        pa.concat_tables([part.rows for part in parts]),
        sum(part.too_long for part in parts),
        sum(part.no_turns for part in parts),
    )


class _Seat:
    """The conversations of a table from the point of view of one seat."""

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
        systems, openings = self._prompts()
        self._pool = pa.concat_arrays([texts, openings, systems])
        self._openings = len(texts)
        self._systems = self._openings + len(lists)
        # Prompts are long: count their tokens only if they are used.
        heads = self._tokens(systems) if how.system else np.zeros(len(lists), np.int64)
        heads = np.where(heads > AROUND, heads, 0)
        self._lengths = np.concatenate([self._tokens(texts), self._tokens(openings), heads])

    def _tokens(self, texts: Any) -> Any:
        """Estimate the number of tokens of each message."""
        characters = _numbers(pc.utf8_length(texts))
        return np.ceil(characters / self._how.characters_per_token).astype(np.int64) + AROUND

    def _done(self, texts: Any, speakers: Any) -> Any:
        """Return a mask of messages that contain only the done token, or that ended their task."""
        done = np.zeros(len(texts), bool)
        may = _numbers(pc.binary_length(texts)) < _MOST_AROUND
        may[self._ends[1:][np.diff(self._ends) > 0] - 1] = True
        places = np.flatnonzero(may)
        places = places[_booleans(pc.match_substring(texts.take(places), _TOKEN))]
        if not len(places):
            return done
        alone = _booleans(pc.match_substring_regex(texts.take(places), _DONE, ignore_case=True))
        stops = _column(self._table, "stop")
        over = _booleans(pc.fill_null(pc.equal(pc.struct_field(stops, "reason"), "done"), False))
        last = self._ends[1:][self._conversation[places]] - 1 == places
        done[places] = alone | (last & over[self._conversation[places]])
        return done

    def _prompts(self) -> tuple[Any, Any]:
        """Return the seat's system prompt and opening message in each conversation."""
        speakers, found = self._speakers(self._seat)
        if len(speakers):
            systems = pc.fill_null(speakers.field("system").take(found), "")
            openings = pc.fill_null(speakers.field("opening").take(found), "")
        else:
            systems = openings = pa.array([""] * self._table.num_rows, pa.string())
        tasks = _column(self._table, "task")
        specified, original = pc.struct_field(tasks, "specified"), pc.struct_field(tasks, "original")
        given = pc.equal(pc.fill_null(specified, ""), "")
        task = pc.fill_null(pc.if_else(given, original, specified), "")
        if self._how.inception and len(speakers):
            # As `Task.inserted`: exactly as given, or as specified without its final period.
            part = pc.replace_substring_regex(pc.utf8_trim_whitespace(task), r"([^.])\.$", r"\1")
            inserted = pc.if_else(given, task, part)
            systems, openings = self._add_paper_prompts(speakers, inserted, systems, openings)
        return systems, pc.if_else(pc.equal(openings, ""), task, openings)

    def _speakers(self, seat: str) -> tuple[Any, Any]:
        """Return the names of all speakers of the table, and for each conversation the index of the speaker in the seat."""
        lists = _column(self._table, "speakers")
        ends = _numbers(lists.offsets)
        speakers = lists.values.slice(int(ends[0]), int(ends[-1] - ends[0]))
        owner = np.repeat(np.arange(len(lists)), np.diff(ends))
        at = np.flatnonzero(_booleans(pc.equal(speakers.field("name"), seat)))
        place = np.full(len(lists), -1)
        place[owner[at]] = at
        return speakers, pa.array(np.where(place < 0, 0, place), mask=place < 0)

    def _add_paper_prompts(self, speakers: Any, task: Any, systems: Any, openings: Any) -> tuple[Any, Any]:
        """Fill in the paper's prompts for conversations that have both roles and no prompt."""
        roles = {seat: speakers.field("role").take(self._speakers(seat)[1]) for seat in (ASSISTANT, USER)}
        values = {"ASSISTANT_ROLE": roles[ASSISTANT], "USER_ROLE": roles[USER], "TASK": task}
        prompts = paper()
        template = prompts.user if self._seat == USER else prompts.assistant
        # Every second piece is the name of a placeholder.
        pieces = [values.get(piece, piece) for piece in re.split(rf"<({'|'.join(values)})>", template)]
        without = pc.and_(pc.equal(systems, ""), pc.and_(*map(pc.is_valid, roles.values())))
        if self._seat == USER:
            openings = pc.if_else(pc.and_(without, pc.equal(openings, "")), prompts.opening, openings)
        return pc.if_else(without, pc.binary_join_element_wise(*pieces, ""), systems), openings

    def rows(self) -> Shaped:
        heard, own = self._turns()
        sizes = self._lengths[heard] + self._lengths[own]
        conversation = self._conversation[own]
        # A row ends with its conversation, and where a turn was removed from the middle.
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
        return Shaped(self._assemble(messages, roles, offsets, of, total), too_long, none)

    def _turns(self) -> tuple[Any, Any]:
        """Return the indices of the messages to the seat, and of its answers. A first message answers the opening."""
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
        """Return the index of the first turn of each row, and that after its last. A row gets as many turns as fit."""
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
            at = np.where(some, stop, at + 1)  # skip a turn that is longer than a row
            more = at < end
            at, end = at[more], end[more]
        if not starts:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        first = np.concatenate(starts)
        order = np.argsort(first, kind="stable")
        return first[order], np.concatenate(stops)[order]

    def _assemble(self, messages: Any, roles: Any, offsets: Any, of: Any, total: Any) -> Table:
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
    """Remove the format's labels, such as `Solution:`, from messages, if they are where the prompts require them."""
    asks = pc.match_substring_regex(texts, _ASKS)
    # Each pattern reads every character, so apply it only to messages of its kind.
    asked = pc.replace_substring_regex(texts.filter(asks), _ASKED, "")
    asked = pc.replace_substring_regex(asked, _INPUT, "\n", max_replacements=1)
    solved = pc.replace_substring_regex(texts.filter(pc.invert(asks)), _SOLVED, "")
    texts = pc.replace_with_mask(pc.replace_with_mask(texts, asks, asked), pc.invert(asks), solved)
    return pc.utf8_trim_whitespace(texts)


def _column(table: Table, name: str) -> Any:
    """Return a column as one array."""
    chunks = table.column(name)
    return chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()


def _numbers(array: Any) -> Any:
    return array.to_numpy(zero_copy_only=False)


def _booleans(array: Any) -> Any:
    return array.to_numpy(zero_copy_only=False).astype(bool)
