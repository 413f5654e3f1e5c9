"""``python -m tests.drill``: ten faults of a real Kafka cluster, and whether each is reported as what it was.

--faults A,B  only these, in this order
--version V   of Kafka: 4.4 or 4.3 (4.3)
--polled      by polling alone, as where nobody may read the metadata log; with the times
--keep DIR    the folder to work in; it stays (without it: a temporary one)

Prints one line per fault. The exit code is 1 if one was reported as something else. About twenty minutes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from itertools import groupby
from pathlib import Path

from deploy.sandbox.plan import DEFAULT, SINCE_4
from tests.drill.faults import FAULTS, suspects
from tests.drill.stage import DrillStage
from tests.drill.timing import Timing


def micros() -> int:
    return time.time_ns() // 1000


def drilled(name: str, stage: DrillStage, *, timed: bool) -> str:
    """Play one fault and print what was reported of it; return what is wrong with that."""
    fault, began = FAULTS[name], micros()
    stage.wait_full()
    with Timing(stage.sandbox, lambda: stage.pipeline.rows("incidents")) if timed else nullcontext() as timing:
        chosen = fault.act(stage)
        stage.wait_quiet()
    times = [timing.reported(each) for each in fault.meant(chosen)] if timing else []
    rows = stage.incidents(began, micros())
    wrong = fault.wrong(rows, chosen) or next((f"late: {each}" for each in times if each.is_late), "")
    told = "; ".join(f"{row['incident_class']} {sorted(suspects(row))}" for row in rows) or "nothing"
    print(f"{'WRONG' if wrong else 'right'}  {name}: {told}{f' ({wrong})' if wrong else ''}", flush=True)
    for line in (*(row["summary"] for row in rows), *times):
        print(f"       {line}", flush=True)
    return wrong


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--faults", default=",".join(FAULTS))
    options.add_argument("--version", choices=sorted(SINCE_4), default=DEFAULT)
    options.add_argument("--polled", action="store_true")
    options.add_argument("--keep", type=Path)
    given = options.parse_args()
    if os.geteuid():  # a disk of its own needs a mount: be root in a name space of our own
        again = ["unshare", "--map-root-user", "--mount", sys.executable, "-m", "tests.drill", *sys.argv[1:]]
        return subprocess.run(again, check=False).returncode
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # through every finally: nothing stays behind
    directory = given.keep or Path(tempfile.mkdtemp(prefix="drill-"))
    wrong = []
    turns = groupby(given.faults.split(","), key=lambda name: FAULTS[name].cluster)
    for number, (cluster, names) in enumerate(turns):
        folder = directory / str(number)
        folder.mkdir(parents=True)
        with DrillStage(folder, cluster, given.version, polled=given.polled) as stage:
            wrong += [name for name in names if drilled(name, stage, timed=given.polled)]
    if not given.keep:
        shutil.rmtree(directory, ignore_errors=True)
    wrongly = f", reported as something else: {', '.join(wrong)}" if wrong else ", each reported as what it was"
    polled = ", by polling alone" if given.polled else ""
    print(f"{len(given.faults.split(','))} faults of Kafka {given.version}{polled}{wrongly}")
    return bool(wrong)


sys.exit(main())
