from __future__ import annotations

from pathlib import Path

import pytest

from streaming.errors import ConfigurationError
from streaming.runtime.folders import cache_folder, exclusive, write_atomically

REFUSAL = r"cannot write /proc/x/\w+: No such file or directory; set ISRWATCH_CACHE to a writable folder"


@pytest.fixture(autouse=True)
def cache_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISRWATCH_CACHE", "/proc/x")


def test_a_folder_of_the_cache_that_cannot_be_made_names_the_variable() -> None:
    with pytest.raises(ConfigurationError, match=REFUSAL), exclusive(cache_folder() / "jars"):
        pytest.fail("it was made")


def test_a_file_of_the_cache_that_cannot_be_written_names_the_variable() -> None:
    with pytest.raises(ConfigurationError, match=REFUSAL):
        write_atomically(cache_folder() / "store", b"")


def test_what_fails_while_a_folder_is_locked_is_not_blamed_on_the_cache(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), exclusive(tmp_path):
        raise PermissionError
