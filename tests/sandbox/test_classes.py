from __future__ import annotations

from pathlib import Path

import pytest

from deploy.sandbox import Sandbox, plan_cluster
from streaming.runtime.jars import SANDBOX, jar_paths, jars_folder


@pytest.mark.kafka
def test_the_first_sandbox_leaves_its_classes_to_the_next(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jar_paths(SANDBOX)
    (tmp_path / "jars").symlink_to(jars_folder())
    monkeypatch.setenv("ISRWATCH_CACHE", str(tmp_path))
    with Sandbox(plan_cluster(brokers=1)):
        assert list(tmp_path.glob("*.jsa")) == []
    (archive,) = tmp_path.glob("*.jsa")
    with Sandbox(plan_cluster(brokers=1)) as second:
        for node in (101, 1):
            assert str(archive) in Path(f"/proc/{second.pid(node)}/maps").read_text()
