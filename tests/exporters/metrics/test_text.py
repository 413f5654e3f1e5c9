"""How values become text, and text becomes bytes."""

from __future__ import annotations

import gzip
import math
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from exporters.metrics.compression import Block, gzipped, plain
from exporters.metrics.metric import Metric
from exporters.metrics.text import escaped, header, line, metric_name, number

# Surrogates are no text.
texts = st.text(st.characters(exclude_categories=("Cs",)))
values = st.integers(-(2**53), 2**53) | st.floats()


@given(label=texts, value=values, text=texts)
def test_any_label_value_help_and_number_survive_a_strict_reader(label: str, value: float, text: str) -> None:
    metric = Metric(name="m", labels=("a", "b"), help=text, source="groups.members")
    exposition = header(metric) + line("m", metric.labels, (label, "x"), value)
    (family,) = text_string_to_metric_families(exposition)
    (sample,) = family.samples
    assert sample.labels == {"a": label, "b": "x"}
    assert sample.value == value or (math.isnan(sample.value) and math.isnan(value))
    assert family.type == "gauge"


@given(texts)
def test_an_escaped_value_holds_no_line_end_and_no_bare_quote(value: str) -> None:
    text = escaped(value)
    assert "\n" not in text
    assert '"' not in text.replace("\\\\", "").replace('\\"', "")


@pytest.mark.parametrize(
    ("value", "spelled"),
    [(3, "3"), (True, "1"), (0.5, "0.5"), (1e20, "1e+20"), (math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN")],
)
def test_numbers_are_spelled_as_prometheus_reads_them(value: float, spelled: str) -> None:
    assert number(value) == spelled


@pytest.mark.parametrize(
    ("name", "is_one"), [("a_1", True), ("", False), ("1a", False), ("a b", False), ("a:b", False), ("é", False)]
)
def test_a_metric_name_is_ascii_and_has_no_colon(name: str, is_one: bool) -> None:  # noqa: FBT001 - a table of cases
    assert metric_name(name) is is_one


def test_a_sample_without_labels_has_no_braces() -> None:
    assert line("kafka_brokers", (), (), 3) == "kafka_brokers 3\n"


LARGE = 1 << 15
"""Smaller blocks that are beside each other are compressed together."""
blocks = st.lists(st.lists(st.binary(max_size=200), max_size=4), max_size=8)


@given(blocks, st.lists(st.integers(0, 1), max_size=8))
def test_blocks_compressed_apart_are_one_gzip_member_of_the_plain_bytes(
    pieces: list[list[bytes]], large: list[int]
) -> None:
    # Large blocks are combined of what was computed before, small ones beside each other are compressed together.
    for each, is_large in zip(pieces, large, strict=False):
        each += [bytes([number % 251]) * 257 for number in range(is_large * 2 * LARGE // 257)]
    made = [Block(each, 0) for each in pieces]
    expected = b"".join(piece for each in pieces for piece in each)
    assert plain(made) == expected
    assert gzip.decompress(gzipped(made)) == expected
    assert gzip.decompress(gzipped([*made[:1], Block.of(made[1:])])) == expected
    reader = zlib.decompressobj(16 + zlib.MAX_WBITS)
    assert reader.decompress(gzipped(made)) == expected
    assert (reader.eof, reader.unused_data) == (True, b"")


def test_a_block_is_compressed_once() -> None:
    block = Block([b"a" * 1000], 1)
    assert block.deflated() is block.deflated()
    assert len(block.deflated()) < 100
