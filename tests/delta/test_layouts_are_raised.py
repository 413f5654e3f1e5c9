"""A table of the version before is upgraded only if its definition says so: other columns need a higher layout.

The columns of each layout are golden, with the number. They are not written anew for the same number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streaming.contracts.tables import TABLES
from tests.plugins.golden import GOLDEN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.contracts.columns import Column, Table


def paths(columns: tuple[Column, ...], above: str = "") -> Iterator[str]:
    """Yield the columns, and below each the fields of its struct, with their types."""
    for column in columns:
        is_list = isinstance(column.type, list)
        inner = column.type[0] if isinstance(column.type, list) else column.type
        kind = inner if isinstance(inner, str) else "struct"
        yield f"{above}{column.name} {kind}{'[]' * is_list}{'' if column.nullable else ' required'}"
        if not isinstance(inner, str):
            yield from paths(inner, f"{above}{column.name}.")


def fields_of_structs(lines: list[str]) -> dict[str, list[str]]:
    """Group the fields by the struct that they are of, in their order; columns of the table may stand anywhere."""
    found: dict[str, list[str]] = {}
    for line in lines:
        owner, dot, _ = line.rpartition(".")
        if dot:
            found.setdefault(owner, []).append(line)
    return found


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_other_columns_have_a_higher_layout_and_new_fields_of_structs_are_the_last(
    table: Table, request: pytest.FixtureRequest
) -> None:
    golden = GOLDEN / "layouts" / f"{table.name}.txt"
    now = list(paths(table.columns))
    number, *before = golden.read_text(encoding="utf-8").splitlines() if golden.exists() else [str(table.layout), *now]
    if int(number) == table.layout:
        assert before == now, f"the columns of {table.name} have changed: raise its layout, then --rewrite-golden"
    else:
        assert int(number) < table.layout
        after = fields_of_structs(now)
        for struct, names in fields_of_structs(before).items():
            assert after[struct][: len(names)] == names, f"Delta adds a new field of {struct} behind all others"
    if request.config.getoption("--rewrite-golden"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text("\n".join([str(table.layout), *now]) + "\n", encoding="utf-8")
    written = golden.read_text(encoding="utf-8").splitlines()
    assert written == [str(table.layout), *now], f"after a look at the difference: pytest --rewrite-golden {__file__}"
