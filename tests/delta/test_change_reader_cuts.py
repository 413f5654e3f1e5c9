"""However the table is written, tidied up and polled: each row comes once and in order."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.log.definitions import APPEND_ONLY, STATISTICS_PROPERTY, create_or_upgrade
from streaming.delta.log.maintenance import Maintenance, RetentionPolicy
from streaming.delta.log.queries import select
from streaming.delta.log.writer import Writer
from tests.delta.written_changes import expire_log, rows
from tests.examples import examples

if TYPE_CHECKING:
    import pyarrow as pa

STEPS = st.one_of(
    st.tuples(st.just("commit"), st.lists(st.integers(-2, 2), min_size=0, max_size=4)),
    st.tuples(st.just("poll"), st.none() | st.integers(0, 12)),
    st.tuples(st.just("rewrite"), st.integers(0, 12)),
    st.tuples(st.sampled_from(["compact", "property", "expire", "restart", "statistics"]), st.none()),
)


class Followed:
    """A table that is written, tidied up and followed."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / PARTITION_CHANGES.name
        self.table = create_or_upgrade(directory, PARTITION_CHANGES)
        self.table.alter.set_table_properties({APPEND_ONLY: "false"})
        self.reader = ChangeReader(self.path)
        self.written: list[pa.Table] = []
        self.read: list[tuple[int, pa.Table]] = []

    def commit(self, days: list[int]) -> None:
        version = self.table.version() + 1
        fresh = rows(version, *((f"{version}-{number}", day) for number, day in enumerate(days)))
        write_deltalake(self.table, fresh, mode="append")
        self.written += [fresh] * bool(days)

    def poll(self, upto: int | None) -> None:
        self.read += self.reader.poll(upto)

    def compact(self, _: None) -> None:
        self.table.optimize.compact()

    def rewrite(self, upto: int) -> None:
        """Write the rows up to a version anew, as their expiry does; files may hold later ones, too."""
        where = f"version <= {upto}"
        kept = select(self.table, PARTITION_CHANGES, where)
        Writer(self.table).replace_where(kept, where, {})

    def property(self, _: None) -> None:
        self.table.alter.set_table_properties({"delta.checkpointInterval": "20"})

    def statistics(self, _: None) -> None:
        self.table.alter.set_table_properties({STATISTICS_PROPERTY: "cluster"})

    def expire(self, _: None) -> None:
        """Delete the log but for its newest entry, and the files that only what is gone has named."""
        expire_log(self.table, self.path, before=self.table.version())
        self.table = DeltaTable(str(self.path))
        keeper = Maintenance(self.table, self.path, RetentionPolicy(reader_minutes=0))
        keeper.sweep()
        keeper.sweep()

    def restart(self, _: None) -> None:
        self.reader = ChangeReader(self.path, self.reader.version)


@settings(max_examples=examples(20))
@given(st.lists(STEPS, max_size=12))
def test_however_polls_are_cut_each_row_comes_once_and_in_order(steps: list[tuple[str, Any]]) -> None:
    with TemporaryDirectory() as directory:
        followed = Followed(Path(directory))
        for name, argument in steps:
            getattr(followed, name)(argument)
        followed.poll(None)
        assert followed.reader.version == followed.table.version()
        assert [part for _, part in followed.read] == followed.written
        assert [version for version, _ in followed.read] == [part["version"][0].as_py() for part in followed.written]
