"""States are columns, and rows are states again: whatever a state says survives the way there and back."""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.contracts import state as contract
from streaming.contracts.observations import DISKLESS, MIN_ISR, ConfigOrigin, SourceKind
from streaming.contracts.state import (
    BrokerState,
    ClusterState,
    ConfigKey,
    ConfigValue,
    ObservedTime,
    PartitionState,
    SourceLag,
    SourceState,
    state_columns,
)
from streaming.contracts.tables import CLUSTER_STATE_TABLE, PARTITION_CHANGES
from streaming.delta.log.arrow_types import arrow_type
from streaming.delta.log.definitions import arrow_schema, rows_to_arrow
from streaming.delta.state import CONFIG_COLUMNS, config_columns, configs_of, states_of, states_to_arrow, structs_of
from tests.examples import examples

STATES: tuple[Any, ...] = (PartitionState, BrokerState, ClusterState, SourceState, SourceLag)
# The struct of partition_changes that holds a state, and how many fields of it stand beside the struct.
STRUCTS: dict[str, tuple[Any, int]] = {
    "before": (PartitionState, 5), "after": (PartitionState, 5), "broker_after": (BrokerState, 3),
    "cluster_after": (ClusterState, 2), "source_after": (SourceState, 4),
}  # fmt: skip
END_OF_TIME = 253_402_300_799_999_999
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "boolean": st.booleans(),
    "timestamp": st.integers(0, END_OF_TIME),
}


def by_name(kind: Any) -> str:
    return str(kind.__name__)


def may_be_none(hint: Any) -> bool:
    described = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return get_origin(described) is UnionType and NoneType in get_args(described)


@st.composite
def states_of_class(draw: st.DrawFn, kind: Any, **fixed: Any) -> Any:
    """Any state of a class: each field with any value of its column, or none where its type allows that."""
    hints = get_type_hints(kind, include_extras=True)
    values = {}
    for column in state_columns(kind):
        is_kind = column.name in {"source_kind", "primary_source"}
        strategy = st.sampled_from(SourceKind) if is_kind else scalars(str(column.type))
        values[column.name] = draw(st.none() | strategy if may_be_none(hints[column.name]) else strategy)
    return kind(**{**values, **fixed})


def scalars(plain: str) -> st.SearchStrategy[Any]:
    return st.lists(SCALARS[plain[:-2]], max_size=4).map(tuple) if plain.endswith("[]") else SCALARS[plain]


def rows_of(states: list[Any], kind: Any) -> pa.Table:
    """Write states as rows of a table whose columns are the fields of their class."""
    columns = state_columns(kind)
    schema = pa.schema([(column.name, arrow_type(column.type)) for column in columns])
    return rows_to_arrow([state._asdict() for state in states], schema)


@pytest.mark.parametrize("kind", STATES, ids=by_name)
def test_names_types_and_comments_of_columns_are_those_of_the_fields(
    kind: Any, golden: Callable[[str, str], None]
) -> None:
    columns = state_columns(kind)
    assert tuple(column.name for column in columns) == kind._fields
    assert all(column.comment and column.nullable for column in columns)
    golden(f"states/{kind.__name__}.txt", "".join(f"{each.name} {each.type}: {each.comment}\n" for each in columns))


@pytest.mark.parametrize("kind", STATES, ids=by_name)
def test_the_identity_of_a_state_is_left_out_where_the_row_has_it(kind: Any) -> None:
    for identity in range(len(kind._fields)):
        assert state_columns(kind, identity) == state_columns(kind)[identity:]


def test_every_class_of_states_is_tested_here() -> None:
    classes = {each for each in vars(contract).values() if isinstance(each, type) and hasattr(each, "_fields")}
    assert classes == {*STATES, ConfigKey, ConfigValue, ObservedTime}


@pytest.mark.parametrize("kind", STATES, ids=by_name)
@settings(max_examples=examples(20))
@given(data=st.data())
def test_every_field_of_every_state_survives_the_way_to_a_row_and_back(kind: Any, data: st.DataObject) -> None:
    states = data.draw(st.lists(states_of_class(kind), max_size=5))
    assert list(states_of(kind, rows_of(states, kind))) == states


@pytest.mark.parametrize("column", STRUCTS)
@settings(max_examples=examples(20))
@given(data=st.data())
def test_every_field_survives_within_a_struct_beside_its_identity(column: str, data: st.DataObject) -> None:
    kind, beside = STRUCTS[column]
    states = data.draw(st.lists(st.none() | states_of_class(kind), max_size=5))
    struct = arrow_schema(PARTITION_CHANGES).field(column).type
    no_configs: list[list[Any]] = [[] for state in states if state is not None]
    others = dict.fromkeys(CONFIG_COLUMNS, no_configs) if kind is ClusterState else {}
    identity = state_columns(kind)[:beside]
    empty: dict[str, Any] = {"string": SourceKind.NONE, "int": 0}  # a row of another subject has a source, too
    structs = states_to_arrow(states, struct, **others)
    rows = pa.table({column: structs} | {
        each.name: pa.array(
            [empty[str(each.type)] if state is None else getattr(state, each.name) for state in states],
            arrow_type(each.type),
        )
        for each in identity
    })  # fmt: skip
    assert structs.type == struct
    assert list(structs_of(kind, rows, column)) == states


@pytest.mark.parametrize("kind", STATES, ids=by_name)
@settings(max_examples=examples(20))
@given(data=st.data())
def test_a_null_reads_as_the_default_of_its_field(kind: Any, data: st.DataObject) -> None:
    """Columns that were added since are null in rows from before."""
    state = data.draw(states_of_class(kind))
    absent = data.draw(st.sets(st.sampled_from(sorted(kind._field_defaults)), min_size=1))
    rows = rows_of([state, state], kind)
    for name in absent:
        place = rows.schema.get_field_index(name)
        nothing = pa.array([None, rows[name][1].as_py()], rows.schema.field(name).type)
        rows = rows.set_column(place, rows.schema.field(name), nothing)
    first, second = states_of(kind, rows)
    assert first == state._replace(**{name: kind._field_defaults[name] for name in absent})
    assert second == state


@pytest.mark.parametrize("kind", STATES, ids=by_name)
def test_a_column_that_rows_lack_is_an_error_and_no_silent_null(kind: Any) -> None:
    rows = rows_of([], kind)
    for name in kind._fields:
        with pytest.raises(KeyError, match=name):
            list(states_of(kind, rows.drop_columns([name])))


@pytest.mark.parametrize("column", STRUCTS)
def test_a_field_that_neither_struct_nor_row_has_is_an_error(column: str) -> None:
    kind, beside = STRUCTS[column]
    rows = arrow_schema(PARTITION_CHANGES).empty_table().select([column])
    with pytest.raises(KeyError, match=kind._fields[0]):
        list(structs_of(kind, rows, column))
    assert beside == sum(name not in {field.name for field in rows.schema.field(column).type} for name in kind._fields)


@given(states_of_class(BrokerState))
def test_a_forgotten_or_unknown_column_is_not_written(state: BrokerState) -> None:
    schema = rows_of([], BrokerState).schema
    with pytest.raises(AssertionError, match=r"columns \['rack'\] are forgotten or unknown"):
        rows_to_arrow([{name: value for name, value in state._asdict().items() if name != "rack"}], schema)
    with pytest.raises(AssertionError, match=r"columns \['colour'\] are forgotten or unknown"):
        rows_to_arrow([{**state._asdict(), "colour": "red"}], schema)


def test_a_struct_with_a_field_that_no_state_has_is_not_written() -> None:
    cluster = ClusterState("c", "main")  # type: ignore[arg-type]  # any text is an id here
    struct = arrow_schema(PARTITION_CHANGES).field("cluster_after").type
    with pytest.raises(KeyError, match="topic_min_isr"):
        states_to_arrow([cluster], struct)
    with pytest.raises(KeyError, match="colour"):
        states_to_arrow([cluster], pa.struct([("colour", pa.string())]))


def configs(key: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[ConfigKey, ConfigValue]]:
    keys = st.builds(ConfigKey, st.just("c"), SCALARS["string"], st.sampled_from(ConfigOrigin), st.just(key))
    return st.tuples(keys, st.builds(ConfigValue, st.none() | values, st.none() | SCALARS["long"]))


@given(st.lists(configs(MIN_ISR, SCALARS["int"]) | configs(DISKLESS, st.booleans()), max_size=6))
def test_configured_values_survive_the_way_to_a_row_and_back(values: list[tuple[ConfigKey, ConfigValue]]) -> None:
    schema = arrow_schema(CLUSTER_STATE_TABLE)
    columns = {
        name: pa.array([structs], schema.field(name).type)[0].as_py()
        for name, structs in config_columns(values).items()
    }
    assert sorted(configs_of("c", columns), key=repr) == sorted(values, key=repr)  # type: ignore[arg-type]  # any text is an id
    assert list(configs_of("c", dict.fromkeys(CONFIG_COLUMNS))) == []  # type: ignore[arg-type]  # the same
