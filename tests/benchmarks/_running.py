"""What the benchmarks share: their options, an installation that goes with them, child processes, percentiles."""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.plugins.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection as Pipe

    from deploy.sandbox.cluster import Sandbox
    from tests.plugins.pipeline import Program


def options(usage: str | None, **defaults: Any) -> argparse.Namespace:
    """Read options that are named and typed by their defaults: of a list several values, of False a flag."""
    parser = argparse.ArgumentParser(description=usage, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        if default is False:
            parser.add_argument(f"--{name}", action="store_true")
        elif isinstance(default, list):
            parser.add_argument(f"--{name}", type=type(default[0]), nargs="+", default=default)
        else:
            parser.add_argument(f"--{name}", type=type(default), default=default)
    return parser.parse_args()


@contextmanager
def installation() -> Iterator[Pipeline]:
    """Give folders of an installation; they go, and its programs end, with the measurement."""
    with tempfile.TemporaryDirectory() as directory:
        pipeline = Pipeline(Path(directory))
        try:
            yield pipeline
        finally:
            pipeline.close()


def collect_from(sandbox: Sandbox, pipeline: Pipeline) -> Program:
    """Start a collector on a real cluster."""
    config = pipeline.directory / "isrwatch.toml"
    config.write_text(f'[cluster]\nname = "bench"\nbootstrap_servers = "{sandbox.bootstrap_servers}"\n')
    return pipeline.collect("--config", str(config))


@contextmanager
def child(target: Callable[..., None], *arguments: Any) -> Iterator[tuple[Pipe, int]]:
    """Run a function in a fresh process, with a pipe that ends with the measurement; give our end of it, and its id."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *arguments))
    process.start()
    theirs.close()
    try:
        yield ours, process.pid or 0
    finally:
        ours.close()
        process.join(30)
        process.kill()


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def spread(seconds: Sequence[float]) -> str:
    """Say three percentiles in milliseconds."""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return "   ".join(f"p{number} {1000 * cuts[number - 1]:6.0f} ms" for number in (50, 95, 99))
