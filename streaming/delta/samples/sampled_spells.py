"""The rows of ``sampled_conditions`` in memory: what batches of samples begin and end, round by round.

Only the kinds of samples that conditions follow from are cut into rounds, and only if a batch has more than one. A rule
sees the few rows that may show trouble, and those about spells that last; to find them costs a mask over the columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streaming.changes.conditions.samples import Answers, SampledFold
from streaming.contracts import sampled_conditions as rules
from streaming.contracts.conditions import Condition
from streaming.contracts.group_positions import MOVING, RESTARTING, STABLE
from streaming.contracts.group_readers import COMMITTING, LOSING, STANDING, GroupOffsetsRow
from streaming.contracts.identifiers import SECOND
from streaming.contracts.sample_tables import GROUP_OFFSETS, LOG_DIRECTORIES, QUORUM_MEMBERS, TRANSACTIONS
from streaming.contracts.sampled_conditions import GIVEN_UP, OF_GROUPS, Key, SampledFinding, SampledSpell
from streaming.contracts.tables import SAMPLED_CONDITIONS
from streaming.delta.incidents.closed import within_history
from streaming.delta.log.cluster_files import of_clusters
from streaming.delta.log.definitions import arrow_schema, rows_to_arrow
from streaming.delta.log.queries import columns_of, rows_as
from streaming.delta.samples.newest import ended, key_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from streaming.contracts.columns import Table
    from streaming.contracts.identifiers import ClusterId
    from streaming.contracts.sampled_conditions import Row
    from streaming.delta.samples.newest import Newest

_SCHEMA: Final = arrow_schema(SAMPLED_CONDITIONS)


class SampledKind(NamedTuple):
    """A kind of samples that conditions follow from.

    Attributes:
        conditions: that follow from it, and from no other kind.
        judged: what its rows show; of spells that last also that they are over.
        counts: which rows may show trouble, or be about one of the keys; all that are not left out.
        moving: so long, microseconds, a thing may be in no answer while it moves.
        columns: of its rows, which it is judged by; empty: all.
    """

    conditions: frozenset[Condition]
    judged: Callable[[Sequence[Row], Collection[Key]], Iterator[SampledFinding]]
    counts: Callable[[pa.Table, Collection[Key]], pa.ChunkedArray] | None = None
    moving: int = 0
    columns: Sequence[str] = ()


def _may_hang(rows: pa.Table, lasting: Collection[Key]) -> pa.ChunkedArray:
    producers = pa.array(sorted({int(key.part.partition("/")[0]) for key in lasting}), pa.int64())
    return pc.or_(rows["is_hanging"], pc.is_in(rows["producer_id"], value_set=producers))


def _may_be_in_trouble(rows: pa.Table, lasting: Collection[Key]) -> pa.ChunkedArray:
    """Return which rows may show a group in trouble; most that were left count for none.

    A row may also be about a key if each of its names is that of one.
    """
    now = rows["collected_at"]

    def within(name: str, micros: int) -> pa.ChunkedArray:
        return pc.less_equal(pc.subtract(now, rows[name]), micros).fill_null(False)

    rebalances = pc.and_(pc.greater(rows["members"], 0), pc.invert(_is_name(rows["group_state"], {STABLE})))
    was_owned = pc.or_(within("owned_at", RESTARTING), pc.and_(rebalances, rows["owned_at"].is_valid()))
    is_read = pc.or_(rows["member"].is_valid(), pc.or_(was_owned.fill_null(False), within("committed_at", COMMITTING)))
    stands = pc.greater_equal(pc.subtract(now, rows["standing_since"]), STANDING).fill_null(False)
    is_wrong = pc.and_(is_read, pc.or_(stands, within("lost_at", LOSING)))
    counts = pc.or_(is_wrong, pc.greater(rows["beyond"], 0).fill_null(False))
    if not lasting:
        return counts
    places = {(key.cluster_id, key.subject, *key.part.rpartition("-")[::2]) for key in lasting}
    columns = zip(("cluster_id", "group", "topic"), zip(*places, strict=True), strict=False)
    is_lasting = pc.is_in(rows["partition"], pa.array({int(place[-1]) for place in places}, rows["partition"].type))
    for name, values in columns:
        is_lasting = pc.and_(is_lasting, _is_name(rows[name], set(values)))
    return pc.or_(counts, is_lasting)


def _is_name(column: pa.ChunkedArray, names: Collection[str]) -> pa.Array:
    """Return where a numbered column has one of some names."""
    numbered = column.combine_chunks()
    return pc.is_in(numbered.dictionary, pa.array(names, numbered.dictionary.type)).take(numbered.indices)


SAMPLED_KINDS: Final = {
    LOG_DIRECTORIES.name: SampledKind(
        frozenset({Condition.LOG_DIRECTORY_OFFLINE, *rules.DISK_LIMITS}), rules.of_directories
    ),
    QUORUM_MEMBERS.name: SampledKind(frozenset({Condition.QUORUM_VOTER_BEHIND}), rules.of_quorum),
    TRANSACTIONS.name: SampledKind(frozenset({Condition.HANGING_TRANSACTION}), rules.of_transactions, _may_hang),
    GROUP_OFFSETS.name: SampledKind(
        frozenset(OF_GROUPS),
        rules.of_group_offsets,
        _may_be_in_trouble,
        MOVING,
        ("cluster_id", "cluster", "coordinator", *GroupOffsetsRow._fields),
    ),
}
"""By table. Their tables are never committed before the spells that follow from them."""


class SampledSpells:
    """All spells of some clusters: those that count for a fold, and the older ones as Arrow."""

    def __init__(self, rows: pa.Table | None = None, days: int = 0) -> None:
        """Begin with the rows of the table, if there are any; ``days`` of history are retained."""
        self._days = days
        rows = _SCHEMA.empty_table() if rows is None else rows
        is_live = _is_live(rows)
        self._older = rows.filter(pc.invert(is_live))
        spells = spells_in(rows.filter(is_live))
        self._spells = {spell.spell_id: spell for spell in spells}
        self._fold, self._recalled = SampledFold(spells), set[str]()

    def take(self, table: Newest, news: pa.Table) -> None:
        """Let a table take samples, and follow what its rows show after each round of them."""
        kind = SAMPLED_KINDS.get(table.definition.name)
        if kind is not None and table.definition.name not in self._recalled:
            self._recalled.add(table.definition.name)
            self._fold.recall(_judged(kind, table.numbered, self._fold.lasting(kind.conditions)))
        for of_round in (news,) if kind is None else rounds(news, table.definition):
            table.take(of_round)
            if kind is not None:
                self._follow(kind, table, of_round)

    def _follow(self, kind: SampledKind, table: Newest, of_round: pa.Table) -> None:
        lasting = self._fold.lasting(kind.conditions)
        findings, said = _judged(kind, table.numbered, lasting), list[SampledFinding]()
        if missing := lasting.keys() - {finding.key for finding in findings}:
            samples = table.reported(of_round.filter(of_round[table.definition.sampled_by].is_valid()))
            said = _judged(kind, samples, missing)
        answers = Answers(
            findings=findings,
            mentioned={finding.key: finding for finding in said},
            answered=dict(_answered(of_round, table.definition)),
            forgotten_after=table.definition.forgotten_after * SECOND,
            moving=kind.moving,
            ended=_ended(of_round, table.definition) if table.definition.name == GROUP_OFFSETS.name else {},
        )
        self._fold.follow(kind.conditions, answers)

    def changed(self) -> dict[ClusterId, pa.Table]:
        """Return all rows of the clusters of which some have changed since the last time."""
        changed = self._fold.take_changed()
        if not changed:
            return {}
        self._spells |= changed
        self._set_aside()
        live = rows_to_arrow([spell._asdict() for spell in self._spells.values()], _SCHEMA)
        rows = pa.concat_tables([self._older, live])
        return {each: of_clusters(rows, {each}) for each in sorted({spell.cluster_id for spell in changed.values()})}

    def _set_aside(self) -> None:
        """Set aside what ended long before the newest spell of its cluster, and drop what its history no longer has."""
        newest: dict[str, int] = {}
        for spell in self._spells.values():
            newest[spell.cluster_id] = max(newest.get(spell.cluster_id, 0), spell.began_at, spell.ended_at or 0)
        counts = self._fold.spells
        old = [
            each
            for each in self._spells.values()
            if each.ended_at is not None and each.ended_at < newest[each.cluster_id] - GIVEN_UP
        ]
        if old:
            for each in old:
                del self._spells[each.spell_id]
                if counts.get(each.key) == each:
                    del counts[each.key]
            rows = pa.concat_tables([self._older, rows_to_arrow([each._asdict() for each in old], _SCHEMA)])
            self._older = pa.concat_tables(
                of_one if each not in newest else within_history(of_one, "spell_id", self._days, newest[each])
                for each in pc.unique(rows["cluster_id"]).to_pylist()
                for of_one in [of_clusters(rows, {each})]
            )


def _is_live(rows: pa.Table) -> pa.ChunkedArray:
    """Return which rows last, or ended shortly before the newest of their cluster; none of a newer job's conditions."""
    ended = rows["ended_at"].cast(pa.int64())
    moments = rows.select(["cluster_id"]).append_column("at", pc.coalesce(ended, rows["began_at"].cast(pa.int64())))
    newest = moments.group_by("cluster_id").aggregate([("at", "max")])
    place = pc.index_in(rows["cluster_id"], value_set=newest["cluster_id"].combine_chunks())
    oldest = pc.subtract(newest["at_max"].combine_chunks().take(place.combine_chunks()), GIVEN_UP)
    is_late = pc.or_(pc.is_null(ended), pc.greater_equal(ended, oldest).fill_null(True))
    return pc.and_(is_late, pc.is_in(rows["condition"], value_set=_ALL))


_ALL: Final = pa.array(list(Condition), pa.string())


def spells_in(rows: pa.Table) -> list[SampledSpell]:
    """Read rows of the table."""
    read = rows_as(SampledSpell, columns_of(rows, SampledSpell._fields), rows.num_rows)
    return [each._replace(condition=Condition(each.condition)) for each in read]


def _judged(kind: SampledKind, rows: pa.Table, lasting: Collection[Key]) -> list[SampledFinding]:
    counting = rows if kind.counts is None else rows.filter(kind.counts(rows, lasting))
    judged = counting.select(kind.columns) if kind.columns else counting
    return list(kind.judged(judged.to_pylist(), lasting))


def _answered(rows: pa.Table, definition: Table) -> Iterator[tuple[tuple[str, str], Any]]:
    """Yield when reporters, and anyone of a cluster, answered in a round."""
    of_reporters = ["cluster_id"] if definition.reporter == "source" else ["cluster_id", definition.reporter]
    for by in (of_reporters, ["cluster_id"]):
        newest = rows.select([*by, "collected_at"]).group_by(by).aggregate([("collected_at", "max")])
        for row in newest.to_pylist():
            reporter = row[by[-1]] if len(by) > 1 else ""
            if reporter is not None:
                yield (row["cluster_id"], str(reporter)), row["collected_at_max"]


def _ended(rows: pa.Table, definition: Table) -> dict[tuple[str, str], int]:
    """Return which groups have ended in a round, in whole or in part, and when."""
    marks = ended(rows, definition).select(["cluster_id", "group", "collected_at"]).to_pylist()
    return {(mark["cluster_id"], mark["group"]): mark["collected_at"] for mark in marks}


# Samples cut into rounds: pieces of the log in each of which no reporter answers twice.


def rounds(samples: pa.Table, definition: Table) -> Iterator[pa.Table]:
    """Cut samples, in the order of their log, so that each piece follows from the answers as if they came singly.

    A piece has one answer of each reporter and one row of each key, and of no cluster more time than half of that after
    which rows are forgotten, or one that goes back.
    """
    answer = key_numbers(samples, ["cluster_id", "source", definition.reporter])
    moments, runs = samples["collected_at"].combine_chunks(), _begins_of_runs(samples, answer)
    clusters = samples["cluster_id"].take(pa.array(runs, pa.int64())).to_pylist()
    ends = [*runs[1:], samples.num_rows]
    begin, seen, times = 0, dict[int, int](), dict[str, tuple[int, int]]()
    for number, (at, cluster_id) in enumerate(zip(runs, clusters, strict=True)):
        who, moment = answer[at].as_py(), moments[at].as_py()
        first, last = times.get(cluster_id, (moment, moment))
        is_other = moment < last or (moment - first) * 2 > definition.forgotten_after * SECOND
        if is_other or seen.setdefault(who, moment) != moment:
            yield from _once(samples, definition, runs, ends, (begin, number))
            begin, seen, times, first = number, {who: moment}, {}, moment
        times[cluster_id] = (first, moment)
    yield from _once(samples, definition, runs, ends, (begin, len(runs)))


def _once(
    samples: pa.Table, definition: Table, begins: Sequence[int], ends: Sequence[int], runs: tuple[int, int]
) -> Iterator[pa.Table]:
    """Yield some runs together if they have each key once, else one by one: a thing has moved to another reporter."""
    first, last = runs
    if first == last:
        return
    piece = samples.slice(begins[first], ends[last - 1] - begins[first])
    keys = key_numbers(piece.filter(piece[definition.sampled_by].is_valid()), definition.key)
    if pc.count_distinct(keys).as_py() == len(keys):
        yield piece
    else:
        yield from (samples.slice(begins[at], ends[at] - begins[at]) for at in range(first, last))


def _begins_of_runs(samples: pa.Table, answer: pa.Array) -> list[int]:
    """Return where each run of samples of one answer begins."""
    if not samples.num_rows:
        return []
    moments = samples["collected_at"].combine_chunks()
    differs = pc.or_(
        pc.not_equal(answer.slice(1), answer.slice(0, len(answer) - 1)),
        pc.not_equal(moments.slice(1), moments.slice(0, len(moments) - 1)),
    )
    return [0, *(at + 1 for at in pc.indices_nonzero(differs).to_pylist())]
