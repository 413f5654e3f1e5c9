"""``python -m tests.conformance LOG...``: could the model's controller have written this metadata log?

LOG                        a __cluster_metadata-0 directory of a controller, or its files in any order
--min-insync-replicas N    static min.insync.replicas of the controllers; any, if it is not given
--unclean-leader-election  the same of unclean elections, as is --no-unclean-leader-election

Trace validation as TLA+ knows it: every step of a real trace must be a step of the specification. The specification
is ``streaming.model.controller``; the trace is the log of a real cluster, of the model itself, or of a recording.
The check is pure, records in, actions out: ``checker`` is its interface, ``steps`` the table of actions that may change
a partition, ``changes`` and ``records`` explain the records by them, ``replay`` keeps the controller's state, and
``quirks`` says what Kafka does and the model does not. ``logs`` reads the files of a controller.

Each deviation is printed with what every action would have written instead; the check then goes on from what the log
says. Exit code: 0 the log conforms, 1 it deviates, 2 it could not be read.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.checker import Checker
from tests.conformance.logs import LogFiles, NotReadable
from tests.conformance.quirks import Quirk
from tests.conformance.replay import Refused


def main(arguments: Sequence[str]) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("log", nargs="+", type=Path)
    options.add_argument("--min-insync-replicas", type=int)
    options.add_argument("--unclean-leader-election", action=argparse.BooleanOptionalAction)
    given = options.parse_args(arguments)
    checker = Checker(
        min_insync_replicas=given.min_insync_replicas, unclean_leader_election=given.unclean_leader_election
    )
    try:
        log = LogFiles(given.log)
        checker.restore(log.snapshot)
    except (NotReadable, Refused) as why:
        sys.stderr.write(f"{why}\n")
        return 2
    return _check(log, checker)


def _check(log: LogFiles, checker: Checker) -> int:
    """Print every deviation, what was let pass, and how it came out."""
    quirks, deviating, records, end = Counter[Quirk](), list[int](), 0, log.begin
    if log.snapshot:
        # It does not say which directories had failed; an election may deviate for that alone.
        print(f"the state before offset {log.begin} comes from a snapshot: its steps are not checked")
    for batch in log:
        explanation = checker.explain(batch)
        records, end = records + len(batch.records), batch.base_offset + len(batch.records)
        quirks.update(action.quirk for action in explanation.actions if action.quirk is not None)
        deviating += [deviation.offset for deviation in explanation.deviations]
        for deviation in explanation.deviations:
            print(deviation)
    for quirk, count in quirks.items():
        print(f"{count} x {quirk}: a harmless difference between Kafka and the model, let pass")
    verdict = f"deviates {len(deviating)} times, first at offset {min(deviating)}" if deviating else "conforms"
    print(f"{verdict}: {records} records, offsets {log.begin} to {end - 1}")
    return int(bool(deviating))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
