"""Patterns of file names where a regular expression is needed are refused, and no regular expression is."""

from __future__ import annotations

import re

import pytest

from streaming.errors import ConfigurationError
from streaming.settings import check_pattern


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [("tmp-*", "tmp-.*"), ("*", ".*"), ("*-internal", ".*-internal"), ("a*|b_*", "a.*|b_.*"), ("^tmp*$", "^tmp.*$")],
)
def test_a_pattern_of_file_names_is_refused_with_what_is_meant(pattern: str, meant: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(f"--x is {pattern!r}, but")) as refused:
        check_pattern("--x", pattern)
    assert f"write {meant!r}, or" in str(refused.value)
    assert "\n" not in str(refused.value)
    check_pattern("--x", meant)


@pytest.mark.parametrize(
    "pattern", ["", ".*", "^$", "orders.*", r"\w*", "(ab)*", "[-]*", "tmp-.*|junk", "a+", "x{2}", r"_\d*$"]
)
def test_a_regular_expression_is_none_of_these(pattern: str) -> None:
    check_pattern("--x", pattern)


def test_what_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"^--x '\[a' is no regular expression: unterminated"):
        check_pattern("--x", "[a")
