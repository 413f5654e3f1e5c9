"""The recorded seconds of the test files: how they are taken over, and what follows from them."""

from __future__ import annotations

import tomllib
from collections import defaultdict

from tests import times
from tests.plugins.times import told
from tests.times import (
    CAPS,
    LONG_FILES,
    LONG_SECONDS,
    MOST_SECONDS,
    every_file,
    functions_in,
    quick_files,
    recorded,
    rendered,
    room_of,
    starts,
    taken_over,
    waits,
)

HEAD = {"commit": "0123456789ab", "date": "2026-11-01", "cores": 2, "python": "3.11.7"}


def test_the_page_is_as_it_is_written() -> None:
    text = times.PAGE.read_text()
    page = tomllib.loads(text)
    assert set(page["recorded"]) == set(HEAD)
    assert text == rendered(page["recorded"], page["seconds"])


def test_a_run_of_all_replaces_what_is_recorded_and_one_of_a_file_only_its_entry() -> None:
    old, measured = {"a": 1.0, "b": 2.0, "gone": 3.0}, {"a": 4.0, "b": 5.0}
    assert taken_over(old, measured, ["a", "b"], []) == {"a": 4.0, "b": 5.0}
    assert taken_over(old, measured, ["a", "b"], ["b"]) == {"a": 1.0, "b": 5.0}


def test_a_file_that_takes_much_longer_than_recorded_is_named_and_one_of_seconds_is_not() -> None:
    seconds = {**{f"slow {number}": 100.0 for number in range(10)}, "longer": 16.0, "little": 2.0}
    assert told(seconds, {"longer": 10.0, "little": 0.5})[11:] == ["16.0 s longer, 10.0 s are recorded"]


def test_quick_files_start_no_service_and_wait_for_nothing() -> None:
    texts = {name: path.read_text() for name, path in every_file().items()}
    quick = quick_files()
    assert [name for name in quick if times.SERVICES.search(texts[name]) or waits(texts[name])] == []


def test_what_starts_a_program_is_found() -> None:
    assert starts("import subprocess\n")
    assert starts("@pytest.mark.kafka\n")
    assert not starts("def test_a(): assert 'process'\n")
    assert waits("    time.sleep(1)\n")
    assert functions_in("def test_a(): ...\n\n    async def test_b(): ...\ndef tested(): ...\n") == 2


def test_each_file_has_an_entry_and_each_entry_a_file() -> None:
    names, entries = set(every_file()), set(recorded())
    assert (names - entries, entries - names) == (set(), set()), "make times ARGS=FILE writes the entry of a file"


def test_all_tests_and_those_of_each_room_take_no_longer_than_they_may() -> None:
    seconds = recorded()
    rooms: defaultdict[str, float] = defaultdict(float)
    for name, entry in seconds.items():
        rooms[room_of(name)] += entry
    taken = {group: sum(rooms[room] for room in group) for group in CAPS}
    assert {group: sum_ for group, sum_ in taken.items() if sum_ > CAPS[group]} == {}
    assert set(rooms) - {room for group in CAPS for room in group} == set()
    assert sum(seconds.values()) <= MOST_SECONDS
    assert sum(CAPS.values()) <= MOST_SECONDS


def test_a_file_that_takes_longer_than_a_minute_stands_in_a_short_list_with_its_reason() -> None:
    longest = {name: entry for name, entry in recorded().items() if entry > LONG_SECONDS / 2}
    assert {name for name, entry in longest.items() if entry > LONG_SECONDS} <= set(LONG_FILES) <= set(longest)
    assert len(LONG_FILES) <= 12
    assert all(LONG_FILES.values())


def test_most_test_functions_are_in_quick_files() -> None:
    counts = {name: functions_in(path.read_text()) for name, path in every_file().items()}
    assert sum(counts[name] for name in quick_files()) / sum(counts.values()) >= 0.59
