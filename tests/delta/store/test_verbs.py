"""The six verbs say and do the same wherever the tables lie."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from streaming.delta.store.exclusive import prove_exclusive
from streaming.delta.store.objects import create, delete, get, head, names_below, put
from streaming.delta.store.place import Place

pytestmark = pytest.mark.process


def test_what_is_created_is_there_whole_and_is_created_once(place: Place) -> None:
    name = place / "_delta_log" / "00000000000000000000.json"
    assert head(name) is None
    with pytest.raises(FileNotFoundError):
        get(name)
    assert create(name, b"first")
    assert not create(name, b"second")
    assert get(name) == b"first"
    status = head(name)
    assert status is not None
    assert status.size == len(b"first")


def test_what_is_put_replaces_what_was_there_and_is_another_object(place: Place) -> None:
    name, content = place / "hint", b"x" * 300_000
    put(name, b"old")
    before = head(name)
    put(name, content)
    after = head(name)
    assert get(name) == content
    assert before is not None
    assert after is not None
    assert before.identity != after.identity
    assert abs(after.modified_at - before.modified_at) < 60


def test_names_come_in_order_from_every_folder_and_from_behind_a_name(place: Place) -> None:
    assert names_below(place) == []
    for name in ("b", "a", "date=2026-11-28/part-1.parquet", "a-b/c"):
        put(place / name, b"")
    put(place.parent / f"{place.name}-another" / "x", b"")
    assert names_below(place) == ["a", "a-b/c", "b", "date=2026-11-28/part-1.parquet"]
    assert names_below(place, after="a-b/c") == ["b", "date=2026-11-28/part-1.parquet"]
    assert names_below(place / "date=2026-11-28") == ["part-1.parquet"]


def test_what_is_deleted_is_gone_and_may_be_deleted_and_created_again(place: Place) -> None:
    name = place / "a"
    delete(name)
    put(name, b"1")
    delete(name)
    assert head(name) is None
    assert create(name, b"2")


def test_of_many_writers_of_a_name_one_wins_and_no_reader_sees_a_part(place: Place) -> None:
    writers, rounds = 4, 10
    together, contents = Barrier(writers + 1), {bytes([number]) * 50_000 for number in range(writers)}

    def write(number: int, turn: int) -> bool:
        together.wait(30)
        return create(place / str(turn), bytes([number]) * 50_000)

    def read(turn: int) -> bytes | None:
        together.wait(30)
        for _ in range(200):
            try:
                return get(place / str(turn))
            except FileNotFoundError:
                continue
        return None

    won: Counter[int] = Counter()
    with ThreadPoolExecutor(writers + 1) as threads:
        for turn in range(rounds):
            outcomes = [threads.submit(write, number, turn) for number in range(writers)]
            seen = threads.submit(read, turn)
            won[turn] = sum(outcome.result() for outcome in outcomes)
            assert seen.result() in {None, *contents}
    assert won == Counter(dict.fromkeys(range(rounds), 1))


def test_a_store_proves_itself_and_leaves_nothing_behind(place: Place) -> None:
    prove_exclusive(place)
    assert names_below(place) == []
