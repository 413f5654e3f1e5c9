"""Archives of a JVM's classes in the cache: of each program the newest stay."""

from __future__ import annotations

import os
from pathlib import Path

from streaming.runtime.class_archive import KEPT, save, using


def test_the_newest_archives_of_a_program_stay_and_those_of_others_are_not_counted(tmp_path: Path) -> None:
    cache, drafts = tmp_path / "cache", tmp_path / "drafts"
    cache.mkdir()
    drafts.mkdir()
    others = cache / "kafka-classes-0.jsa"
    others.write_bytes(b"")
    os.utime(others, ns=(0, 0))
    for number in range(KEPT + 2):
        draft = drafts / "classes.jsa"
        draft.write_bytes(b"classes")
        os.utime(draft, ns=(number, number))
        save(draft, cache / f"spark-classes-{number}.jsa")
    spark = {f"spark-classes-{number}.jsa" for number in range(2, KEPT + 2)}
    assert {path.name for path in cache.iterdir()} == {others.name, *spark}
    assert using(cache / "spark-classes-0.jsa") == ()
