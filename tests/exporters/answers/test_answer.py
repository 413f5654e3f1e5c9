"""An answer is the same value after it was JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.answers.answer import Answer, AsOf, ClusterFreshness, Sentence, Tone

TEXT = st.text(max_size=12)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))
MOMENTS = st.integers(0, 2**53)
ANSWERS = st.builds(
    Answer,
    columns=st.lists(TEXT, max_size=4).map(tuple),
    rows=st.lists(st.dictionaries(TEXT, VALUES, max_size=4), max_size=3),
    sentences=st.lists(st.builds(Sentence, TEXT, st.sampled_from([tone.value for tone in Tone])), max_size=3),
    clusters=st.lists(st.builds(ClusterFreshness, TEXT, TEXT, st.none() | st.floats(0, 1e9), st.booleans())),
    now=MOMENTS,
    as_of=st.none() | st.builds(AsOf, MOMENTS, st.none() | MOMENTS),
    unreadable=st.dictionaries(TEXT, TEXT, max_size=2),
)


@given(ANSWERS)
def test_an_answer_is_the_same_after_it_was_json(answer: Answer) -> None:
    text = answer.to_json()
    assert text.isprintable()
    assert Answer.from_json(text) == answer
    assert Answer.from_json(text.encode()) == answer


@given(VALUES)
def test_what_is_no_answer_is_refused_as_a_value(value: object) -> None:
    with pytest.raises(ValueError, match="answer"):
        Answer.from_json(json.dumps(value))
