"""What it costs to ship each round in a transaction, beside the idempotent producer.

    python -m tests.benchmarks.bus_fencing

Three brokers of the sandbox, a topic with three replicas and two in-sync ones. In turn, round for round: one record and
twenty of 500 bytes, sent and acknowledged. Then the CPU seconds of an idle producer of each kind, a minute long.

Options: ``--bootstrap HOST:PORT`` for brokers that run already, ``--rounds N``, ``--idle SECONDS``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from contextlib import ExitStack

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.sandbox import Sandbox, plan_cluster

WARM_UP = 20


def producer(bootstrap: str, name: str | None = None) -> Producer:
    """Make an idempotent producer, with transactions if it has a name."""
    fenced = {} if name is None else {"transactional.id": name}
    made = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, **fenced})
    if name is not None:
        made.init_transactions()
    return made


def seconds_of_round(sender: Producer, topic: str, records: int, *, in_transaction: bool) -> float:
    """Send records, and wait until they are acknowledged, and their transaction is committed."""
    failures: list[object] = []
    began = time.perf_counter()
    if in_transaction:
        sender.begin_transaction()
    for _ in range(records):
        sender.produce(topic, b"x" * 500, key=b"k", on_delivery=lambda error, _: error and failures.append(error))
    if in_transaction:
        sender.commit_transaction()
    else:
        sender.flush()
    assert not failures, failures
    return time.perf_counter() - began


def compare(bootstrap: str, rounds: int, idle: float) -> None:
    """Print the figures."""
    topic = f"fencing-{os.getpid()}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, 1, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([new])[topic].result()
    senders = {"idempotent": producer(bootstrap), "transaction": producer(bootstrap, topic)}
    for records in (1, 20):
        taken: dict[str, list[float]] = {kind: [] for kind in senders}
        for _ in range(rounds + WARM_UP):
            for kind, sender in senders.items():
                is_fenced = kind == "transaction"
                taken[kind].append(seconds_of_round(sender, topic, records, in_transaction=is_fenced))
                time.sleep(0.01)
        for kind, seconds in taken.items():
            cuts = statistics.quantiles(seconds[WARM_UP:], n=20)
            print(f"{records:3} records, {kind:12} p50 {cuts[9] * 1000:6.1f} ms  p95 {cuts[18] * 1000:6.1f} ms")
    for kind in [*senders]:
        alone = producer(bootstrap, None if kind == "idempotent" else f"{topic}-idle")
        time.sleep(1)
        before, began = time.process_time(), time.monotonic()
        while time.monotonic() - began < idle:
            alone.poll(0.5)
        print(f"idle, {kind:12} {(time.process_time() - before) / (time.monotonic() - began):.4f} cores")
        del alone


def main() -> None:
    """Read the options, and start brokers unless some are named."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--bootstrap")
    options.add_argument("--rounds", type=int, default=300)
    options.add_argument("--idle", type=float, default=30.0)
    given = options.parse_args()
    with ExitStack() as stack:
        bootstrap = given.bootstrap
        if bootstrap is None:
            sandbox = stack.enter_context(Sandbox(plan_cluster(brokers=3, controllers=1)))
            bootstrap = sandbox.bootstrap_servers
        compare(bootstrap, given.rounds, given.idle)


if __name__ == "__main__":
    main()
