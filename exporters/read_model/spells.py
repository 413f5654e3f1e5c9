"""Rows of the tables of conditions: read, and kept as of then while they cannot be read. Theory: ``conditions``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.contracts.conditions import RECENT, Condition, Spell
from streaming.contracts.identifiers import SECOND
from streaming.contracts.sampled_conditions import SampledSpell
from streaming.delta.log.queries import columns_of, rows_as

if TYPE_CHECKING:
    from exporters.read_model.draft import SnapshotDraft

_ALL: Final = frozenset(Condition)
"""A newer job may write others."""
_ALL_NAMES: Final = pa.array(list(Condition), pa.string())
_LONG: Final = 600 * SECOND
"""Shorter spells are raised by what follows them, or not at all."""


def read_conditions(rows: pa.Table) -> dict[str, tuple[Spell, ...]]:
    """Return of each cluster the spells that last, and those that ended ``RECENT`` before the newest of its rows.

    Also the long ones of their chains: it may have been one of these alone that lasted long enough.
    """
    if not {*Spell._fields} <= {*rows.column_names}:
        return {}
    ended, since = rows["ended_at"], rows["since"]
    moments = pc.coalesce(ended, rows["began_at"]).cast(pa.int64())
    lasted_long = pc.greater_equal(pc.subtract(moments, rows["began_at"].cast(pa.int64())), _LONG)
    of_cluster = {
        cluster_id: pc.equal(rows["cluster_id"], cluster_id) for cluster_id in pc.unique(rows["cluster_id"]).to_pylist()
    }
    spells: dict[str, tuple[Spell, ...]] = {}
    for cluster_id, is_its in of_cluster.items():
        oldest = pc.max(moments.filter(is_its)).as_py() - RECENT
        is_late = pc.and_(is_its, pc.or_(pc.is_null(ended), pc.greater(moments, oldest)))
        is_chained = pc.and_(lasted_long, pc.is_in(since, value_set=since.filter(is_late)))
        counts = rows.filter(pc.and_(is_its, pc.or_(is_late, is_chained)))
        read = rows_as(Spell, columns_of(counts, Spell._fields), counts.num_rows)
        spells[cluster_id] = tuple(each._replace(topics=each.topics or ()) for each in read if each.condition in _ALL)
    return spells


def put_conditions(draft: SnapshotDraft, rows: pa.Table) -> None:
    """Take over the rows of every cluster; those that did not change stay the same objects."""
    draft.put_conditions(read_conditions(rows))


def keep_conditions(draft: SnapshotDraft) -> None:
    """Keep the rows that were read last, as of then: see the theory above."""
    draft.stop_conditions()


def put_sampled_conditions(draft: SnapshotDraft, rows: pa.Table) -> None:
    """Take over which spells last of what samples show, of every cluster."""
    spells: dict[str, tuple[SampledSpell, ...]] = {}
    if {*SampledSpell._fields} <= {*rows.column_names}:
        lasting = rows.filter(pc.and_(pc.is_null(rows["ended_at"]), pc.is_in(rows["condition"], _ALL_NAMES)))
        for each in rows_as(SampledSpell, columns_of(lasting, SampledSpell._fields), lasting.num_rows):
            spell = each._replace(condition=Condition(each.condition))
            spells[spell.cluster_id] = (*spells.get(spell.cluster_id, ()), spell)
    draft.put_sampled_conditions({cluster_id: tuple(sorted(some)) for cluster_id, some in spells.items()})


def keep_sampled_conditions(_draft: SnapshotDraft) -> None:
    """Keep what lasted when the rows were read last."""
