"""Patterns of names: one choice, whoever makes it: Python, the SQL of Delta, or a matcher of Prometheus."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.errors import ConfigurationError
from streaming.name_patterns import NamePatterns, check_patterns

NAMES = ("payments", "payments-1", "orders", "orders.eu", "ordersXeu", "console-consumer-5")


@pytest.mark.parametrize(
    ("patterns", "chosen"),
    [
        ((), NAMES),
        (("payments-*", "orders"), ("payments-1", "orders")),
        (("orders.*",), ("orders.eu",)),
        (("orders?eu",), ("orders.eu", "ordersXeu")),
        (("!console-*", "!orders"), ("payments", "payments-1", "orders.eu", "ordersXeu")),
        (("!pay*", "*s"), ("orders",)),
        (("*", "!*"), ()),
    ],
)
def test_patterns_choose_whole_names(patterns: tuple[str, ...], chosen: tuple[str, ...]) -> None:
    assert tuple(filter(NamePatterns(patterns), NAMES)) == chosen


def test_what_has_two_names_is_chosen_by_either_and_left_out_by_either() -> None:
    assert NamePatterns(("prod",))("prod", "id-1")
    assert NamePatterns(("id-*",))("prod", "id-1")
    assert not NamePatterns(("!prod",))("prod", "id-1")
    assert not NamePatterns(("prod", "!id-1"))("prod", "id-1")


_LETTERS = st.text("ab.-*?!", min_size=1, max_size=5).filter(lambda text: text != "!")


@given(st.lists(_LETTERS, max_size=3), st.lists(st.text("ab.-", min_size=1, max_size=5), min_size=1, max_size=8))
def test_the_expressions_for_prometheus_choose_the_same(patterns: list[str], names: list[str]) -> None:
    chosen = NamePatterns(patterns)
    as_matchers = [
        name
        for name in names
        if (not chosen.included or re.fullmatch(chosen.included, name))
        and not (chosen.excluded and re.fullmatch(chosen.excluded, name))
    ]
    assert [*filter(chosen, names)] == as_matchers


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        *(
            ("^orders", "orders*"),
            ("^orders$", "orders"),
            ("orders$", "*orders"),
            (".*-tmp", "*-tmp*"),
            ("a.+b", "*a*b*"),
        ),
        *((r"tmp\.x", "*tmp?x*"), ("a|b", "*a*"), ("^(orders|payments)-[0-9]+$", "orders"), ("v[12]", "*v?*")),
    ],
)
def test_a_regular_expression_is_refused_with_a_pattern(pattern: str, meant: str) -> None:
    with pytest.raises(
        ConfigurationError, match=re.escape(f"export.topics has {pattern!r}, which looks like")
    ) as refused:
        check_patterns("export.topics", ["orders", pattern])
    assert str(refused.value).endswith(f"for example {meant!r}")


@pytest.mark.parametrize("pattern", ["", "!"])
def test_a_pattern_without_a_name_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^--topic has {pattern!r}; write a name, such as 'orders-"):
        check_patterns("--topic", [pattern])


@pytest.mark.parametrize(
    "pattern", ["orders", "orders.*", "*.internal", "__consumer_offsets", "!tmp-?", "a+b", "!*", "prod (id-1)"]
)
def test_a_pattern_is_no_regular_expression(pattern: str) -> None:
    check_patterns("--topic", [pattern])
