"""A Kubernetes of this machine, for the tests of this folder: started once, each test has a namespace of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.containers import Image, image
from tests.kubernetes.control_plane import Api, control_plane
from tests.kubernetes.kubelet import Kubelet


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Run an API server with its store and the controllers of workloads."""
    with control_plane(tmp_path_factory.mktemp("kubernetes")) as api:
        yield api


@pytest.fixture(scope="session")
def our_image(tmp_path_factory: pytest.TempPathFactory, package: Path) -> Image:
    """Make what the image has."""
    packages = next(path for path in map(Path, sys.path) if (path / "pyspark").is_dir())
    return image(tmp_path_factory.mktemp("image"), package, packages)


@pytest.fixture
def kubelet(kubernetes: Api, our_image: Image, tmp_path: Path) -> Iterator[Kubelet]:
    """Run pods for the length of a test; a failure of the stand-in is one of the test."""
    made = Kubelet(kubernetes, our_image, tmp_path / "pods")
    made.start()
    try:
        yield made
    finally:
        made.close()
    assert made.failures == []
