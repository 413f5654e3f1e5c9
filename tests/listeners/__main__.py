"""``python -m tests.listeners``: what the listeners of a real cluster do while something happens to it.

--version V    of Kafka: 4.4, 4.3 or 3.9 (4.4)
--faults A,B   only these, in this order
--show FAULT   print a recorded play instead
--table        print the figures of README.md instead

Each play replaces the one of its name in tests/fixtures/listeners.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from tests.listeners.faults import FAULTS, KEEPS_LEADERS
from tests.listeners.figures import table
from tests.listeners.network import Network, enter
from tests.listeners.recordings import keep, plays
from tests.listeners.stage import ListenerStage, nodes_of

ATTEMPTS: Final = 2
LONGEST_STALL_MILLIS: Final = 300


def show(version: str, fault: str) -> None:
    """Print a play line by line, in the order of time."""
    play = plays(version)[fault].data
    rows = [(at, f"STEP {text}") for at, text in play["steps"]]
    rows += [(at, f"LOG  {offset} {row}") for at, offset, row in play["log"]]
    rows += [
        (at, f"     {node} {probe}: {how} {' '.join(map(str, what))}") for at, node, probe, how, *what in play["met"]
    ]
    for at, text in sorted(rows, key=lambda row: row[0]):
        print(f"{at:>7} {text}")


def record(stage: ListenerStage, name: str, version: str) -> None:
    """Record a play, and once more if this machine was too busy for it; keep the better one."""
    recorded: list[dict[str, Any]] = []
    while not recorded or (len(recorded) < ATTEMPTS and recorded[-1]["longest_stall_ms"] > LONGEST_STALL_MILLIS):
        stage.wait_full()
        if name not in KEEPS_LEADERS:
            stage.prefer_leaders()
        recorded.append(FAULTS[name].record(stage))
    best = min(recorded, key=lambda play: int(play["longest_stall_ms"]))
    keep(version, {name: best})
    print(f"recorded {name} of Kafka {version}, longest stall {best['longest_stall_ms']} ms", flush=True)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--version", choices=("4.4", "4.3", "3.9"), default="4.4")
    options.add_argument("--faults", default=",".join(FAULTS))
    options.add_argument("--show")
    options.add_argument("--table", action="store_true")
    given = options.parse_args()
    if given.table:
        sys.stdout.write(table())
        return 0
    if given.show:
        show(given.version, given.show)
        return 0
    if (ended := enter("tests.listeners", sys.argv[1:])) is not None:
        return ended
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    directory = Path(tempfile.mkdtemp(prefix="listeners-"))
    names = given.faults.split(",")
    print(f"in {directory}", flush=True)
    network = Network(sorted({node for name in names for node in nodes_of(FAULTS[name].cluster)}))
    for number, (cluster, group) in enumerate(groupby(names, key=lambda name: FAULTS[name].cluster)):
        with ListenerStage(directory / str(number), network, cluster, given.version) as stage:
            for name in group:
                record(stage, name, given.version)
    shutil.rmtree(directory, ignore_errors=True)
    return 0


sys.exit(main())
