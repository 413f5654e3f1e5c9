"""The seconds of each test file, as recorded: ``tests/times.toml``, written by ``make times``.

``python -m tests.times [FILE ...]`` takes over what the last run measured: of all files, or of these only.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "tests" / "times.toml"
MEASURED: Final = ROOT / "build" / "times.json"
"""What the last run measured, whatever it ran."""
SERVICES: Final = re.compile(r"\bmark\.(?:spark|kafka|prometheus|store)\b")
STARTS: Final = re.compile(
    r"\bsubprocess\b|\bPopen\b|\bmultiprocessing\b|\bfake_kafka\b|\bserving_exposition\b|\buvicorn\b"
    r"|\bhttp\.server\b|\bsocketserver\b|\bsocket\.(?:socket|create_server)\b"
)
"""How a file says that it starts a program or a server: what is in it has the marker ``process``."""
WAITS: Final = re.compile(r"\bsleep\(|\bwait_until\(|\beventually\(|\bdef (?:until|wait_for)\(")
QUICK_SECONDS: Final = 171.0
"""So many recorded worker-seconds `make quick` runs, in two processes and with fewer examples."""
CAPS: Final = {
    ("sources", "swarm"): 220,
    ("exporters",): 300,
    ("end_to_end",): 165,
    ("delta",): 180,
    ("jobs",): 155,
    ("dashboards",): 110,
    ("commands",): 65,
    ("changes",): 55,
    ("web", "runtime", "bus"): 50,
    ("model", "conformance", "listeners"): 35,
    ("contracts", "deploy", "docs", "drill", "mutants", "plugins", "long", "house"): 60,
    ("sandbox",): 22,
    ("judge", "fuzz"): 45,
    ("pages",): 10,
    ("chaos", "chaos_kafka"): 10,
    ("stores", "kubernetes", "yarn", "systemd", "packages", "images"): 12,
}
"""Worker-seconds that folders of tests may take on two quiet cores; "house" are the files in none. Who adds time to one
takes it away there, or elsewhere together with its cap."""
MOST_SECONDS: Final = 1500
LONG_SECONDS: Final = 60.0
LONG_FILES: Final = {
    "tests/end_to_end/test_real_cluster.py": "a cluster, the collector and the job live through every fault of Kafka",
    "tests/end_to_end/test_one_job.py": "every scenario: submitted, killed, finished without its checkpoint",
}
"""Files that take longer than that, each with the reason; twelve at most."""


def recorded() -> dict[str, float]:
    """Return the recorded seconds of each test file."""
    return dict(tomllib.loads(PAGE.read_text(encoding="utf-8"))["seconds"]) if PAGE.exists() else {}


def every_file() -> dict[str, Path]:
    """Return every test file, by its path below the checkout."""
    return {str(path.relative_to(ROOT)): path for path in sorted((ROOT / "tests").rglob("test_*.py"))}


def starts(text: str) -> bool:
    """Return whether a test file starts a program or a server."""
    return bool(SERVICES.search(text) or STARTS.search(text))


def waits(text: str) -> bool:
    """Return whether a test file waits for time to pass."""
    return bool(WAITS.search(text))


def room_of(name: str) -> str:
    """Return the folder of a test file; "house" for a file in none."""
    folders = Path(name).parts[1:-1]
    return folders[0] if folders else "house"


def functions_in(text: str) -> int:
    """Count the test functions of a file."""
    return len(re.findall(r"^ *(?:async )?def test_", text, re.MULTILINE))


def quick_files() -> list[str]:
    """Name the test files that start no service and do not wait: as many functions as fit into the time."""
    seconds = recorded()
    texts = {name: path.read_text(encoding="utf-8") for name, path in every_file().items()}
    costs = {
        name: seconds.get(name, 0.0) / max(1, functions_in(text))
        for name, text in texts.items()
        if not SERVICES.search(text) and not waits(text)
    }
    chosen, left = [], QUICK_SECONDS
    for name in sorted(costs, key=lambda name: costs[name]):
        left -= seconds.get(name, 0.0)
        if left < 0:
            break
        chosen.append(name)
    return chosen


def long_files() -> list[str]:
    """Name the test files with tests marked long: one that has no others takes no time in ``make test``."""
    return [name for name, path in every_file().items() if "pytest.mark.long" in path.read_text(encoding="utf-8")]


def head() -> dict[str, Any]:
    """Say what is measured, and where."""
    git = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    date = subprocess.run(["date", "-u", "+%Y-%m-%d"], capture_output=True, text=True, check=True).stdout.strip()
    return {"commit": commit, "date": date, "cores": os.cpu_count() or 1, "python": platform.python_version()}


def rendered(recorded_at: Mapping[str, Any], seconds: Mapping[str, float]) -> str:
    """Render the page."""
    lines = ["# Seconds of each test file: set-up, call and tear-down of all its tests. Written by make times.", ""]
    lines += ["[recorded]", *(f"{name} = {json.dumps(value)}" for name, value in recorded_at.items()), "", "[seconds]"]
    return "\n".join([*lines, *(f'"{name}" = {seconds[name]:.1f}' for name in sorted(seconds))]) + "\n"


def taken_over(
    old: Mapping[str, float], measured: Mapping[str, float], files: Iterable[str], chosen: Iterable[str]
) -> dict[str, float]:
    """Return the new entries: of all files or of the chosen ones, and none of a file that is gone."""
    wanted = set(chosen)
    new = {name: value for name, value in measured.items() if not wanted or name in wanted}
    there = set(files)
    return {name: value for name, value in {**old, **new}.items() if name in there}


def main() -> int:
    chosen = [str(Path(name).resolve().relative_to(ROOT)) for name in sys.argv[1:]]
    run = json.loads(MEASURED.read_text(encoding="utf-8"))
    if run["failed"]:
        sys.exit(f"{run['failed']} tests of the last run failed: its seconds say nothing")
    measured = {**dict.fromkeys(long_files(), 0.0), **run["seconds"]}
    missing = set(chosen or every_file()) - set(measured)
    if missing:
        sys.exit(f"the last run has no seconds of {', '.join(sorted(missing)[:5])}")
    before = tomllib.loads(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {"recorded": {}, "seconds": {}}
    seconds = taken_over(before["seconds"], measured, every_file(), chosen)
    PAGE.write_text(rendered(before["recorded"] if chosen else run["recorded"], seconds), encoding="utf-8")
    print(f"{sum(before['seconds'].values()):.0f} s before, {sum(seconds.values()):.0f} s now")
    return 0


if __name__ == "__main__":
    sys.exit(main())
