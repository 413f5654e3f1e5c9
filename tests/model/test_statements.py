"""Every statement has its rule in the code and its test."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from streaming.model.cluster.statements import STATEMENTS, Statement

TESTS = Path(__file__).parents[1]


@cache
def tested() -> frozenset[int]:
    texts = (path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py"))
    return frozenset(
        int(number) for text in texts for number in re.findall(r"def test_\w*statement_(\d\d)(?!\d)", text)
    )


def test_there_are_39_statements_in_order() -> None:
    assert list(STATEMENTS) == list(range(1, 40))


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=map(str, STATEMENTS))
def test_the_rule_of_a_statement_exists(statement: Statement) -> None:
    module, name = statement.rule.split(":")
    assert getattr(import_module(module), name)


@pytest.mark.parametrize("number", STATEMENTS)
def test_a_statement_has_a_test_of_its_own(number: int) -> None:
    assert number in tested(), f"no test has statement_{number:02} in its name: {STATEMENTS[number].claim}"
