"""A short run of ``make fuzz``, with another seed each time."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from tests.examples import examples
from tests.fuzz.__main__ import INSIDE, TARGETS, failure_of, tried
from tests.fuzz.targets import QUARANTINED, REFUSED, Frames, Target
from tests.fuzz.targets_of_kafka import Records, Responses

CASES = examples(200)


@pytest.mark.parametrize("kind", TARGETS, ids=lambda kind: kind.name)
def test_damaged_input_is_refused_in_quarantine_or_a_value_of_which_everything_holds(kind: type[Target]) -> None:
    seed = time.time_ns() % 1_000_000
    print(f"seed {seed}")
    counts, failure = tried(kind(), seed, range(CASES))
    assert not failure
    assert INSIDE - 0.2 < counts["inside"] / CASES < INSIDE + 0.2


@pytest.mark.parametrize(
    ("kind", "seed", "number"),
    [(Frames, 9381, 107_419), (Records, 9381, 45_270), (Records, 524_858, 18), (Responses, 598_132, 248_399)],
    ids=[
        "a length beyond the next frame",
        "replicas that name a broker twice",
        "the time of a damaged batch",
        "a partition with the largest number",
    ],
)
def test_what_was_believed_once_is_refused_since(kind: type[Target], seed: int, number: int) -> None:
    counts: Counter[str] = Counter()
    assert not failure_of(kind(), seed, number, counts)
    assert counts[REFUSED] + counts[QUARANTINED] == 1


class Trusting:
    name, weight = "trusting", 1

    def mutated(self, dice: object, *, inside: bool) -> bytes:  # noqa: ARG002 - as every target
        return b"x" if inside else b""

    def outcome(self, data: bytes) -> str:
        return f"begins with {data[0]}"


def test_a_reader_that_believes_everything_fails_with_the_command_that_repeats_it() -> None:
    _, failure = tried(Trusting(), 7, range(100))
    number = failure.rpartition(" ")[2].strip()
    assert "IndexError" in failure
    assert f"python -m tests.fuzz --target 'trusting' --seed 7 --only {number}" in failure
    assert failure_of(Trusting(), 7, int(number), Counter())
