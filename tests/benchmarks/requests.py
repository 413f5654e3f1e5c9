"""Requests to an object store of a real job and exporter at rest, by the number of Kafka clusters.

    python -m tests.benchmarks.requests [--clusters 1 4] [--seconds 120] [--trigger 1]

Each cluster is simulated by a collector of its own, at rest, with its samples at their default intervals. The tables
lie behind a server of S3 (versitygw) and a proxy that counts. The job begins one batch in ``--trigger`` seconds, as
docs/object-stores.md advises. Counting begins some time after the first report of every cluster is in the tables.
``tests.benchmarks.sizes`` computes with these numbers.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streaming.delta.store.place import place_of
from tests.benchmarks._running import installation, options
from tests.stores.fault_proxy import fault_proxy
from tests.stores.s3 import versitygw

if TYPE_CHECKING:
    from tests.plugins.pipeline import Pipeline
    from tests.stores.fault_proxy import FaultProxy

SETTLING_SECONDS: Final = 45.0
WRITES: Final = frozenset({"PUT", "POST"})
DAY: Final = 86_400


def simulate(pipeline: Pipeline, clusters: int) -> None:
    """Start a collector of each cluster; their brokers lose nothing."""
    for number in range(clusters):
        config = pipeline.directory / f"site-{number}.toml"
        config.write_text(f'[cluster]\nname = "prod-{number}"\n[collect]\ncollector = "site-{number}"\n')
        pipeline.collect("--config", str(config), "--simulate", "steady", "--seed", str(number))


def measure(clusters: int, seconds: float, trigger: float) -> None:
    """Count, and print a line for writes and reads of the job, and of job and exporter."""
    with (
        tempfile.TemporaryDirectory() as folder,
        versitygw(Path(folder)) as store,
        fault_proxy(store) as proxy,
        installation() as pipeline,
    ):
        pipeline.tables = place_of(f"{proxy.store.url}/tables", proxy.store.options)  # type: ignore[assignment]  # only its commands use it
        storage = "".join(f'"{name}" = "{value}"\n' for name, value in proxy.store.options.items())
        config = pipeline.directory / "isrwatch.toml"
        config.write_text(f'[advanced]\ntrigger_interval = "{trigger}s"\n[tables.storage]\n{storage}')
        simulate(pipeline, clusters)
        job = pipeline.start("job", "job", "--config", str(config), *pipeline.job_arguments())
        pipeline.eventually(
            lambda: len({row["cluster"] for row in pipeline.rows("cluster_state")}) == clusters,
            "each cluster is in the tables",
            job,
            seconds=900.0,
        )
        time.sleep(SETTLING_SECONDS)
        alone = counted(proxy, seconds)
        print(f"{clusters} clusters, the job: {per_day(alone, seconds)}", flush=True)
        arguments = ["--tables", str(pipeline.tables), "--web.listen-address", f"127.0.0.1:{pipeline.port}"]
        export = pipeline.start("export", "export", "--config", str(config), *arguments)
        pipeline.eventually(lambda: pipeline.metrics() is not None, "the exporter is ready", export)
        time.sleep(SETTLING_SECONDS / 3)
        both = counted(proxy, seconds)
        print(f"{clusters} clusters, with an exporter: {per_day(both, seconds)}", flush=True)
        for (method, kind), count in sorted(both.items()):
            print(
                f"  {method} {kind}: {alone[method, kind] / seconds:.2f} -> {count / seconds:.2f} per second",
                flush=True,
            )


def counted(proxy: FaultProxy, seconds: float) -> Counter[tuple[str, str]]:
    before = proxy.counts.copy()
    time.sleep(seconds)
    return proxy.counts - before


def per_day(counts: Counter[tuple[str, str]], seconds: float) -> str:
    writes = sum(count for (method, kind), count in counts.items() if method in WRITES or kind == "list")
    deletes = sum(count for (method, _), count in counts.items() if method == "DELETE")
    reads = counts.total() - writes - deletes
    a_day = [f"{DAY / seconds * number:,.0f}" for number in (writes, reads)]
    return f"{a_day[0]} PUT and LIST, {a_day[1]} GET and HEAD per day"


def main() -> None:
    chosen = options(__doc__, clusters=[1, 4], seconds=120.0, trigger=1.0)
    for clusters in chosen.clusters:
        measure(clusters, chosen.seconds, chosen.trigger)


if __name__ == "__main__":
    main()
