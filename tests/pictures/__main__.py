"""Draws every board in headless Chromium, healthy, in trouble and blind, light and dark: ``make pictures``.

Needs Prometheus, Chromium, and the npm packages of ``dashboards/pictures``. It fails if a picture has a problem: a
variable that is not resolved, a query that fails or warns, a panel that is empty or crashed, a column that is clipped.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from itertools import product, starmap
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dashboards.boards import all_boards
from tests.pictures.scene import Scene, write_blocks
from tests.pictures.site import BOARDS, serving
from tests.plugins.local_http import free_port
from tests.plugins.prometheus import running_server

if TYPE_CHECKING:
    import queue
    from collections.abc import Iterator

WIDTH: Final = 1600
ROW: Final = 38
HEADING: Final = 52
BEGIN: Final = 1_790_000_100
# Seconds of the scene: before its first fault, in the restart, with a failed disk, with lost brokers, and blind.
_HEALTHY, _RESTART, _DISK, _LOST, _BLIND = 75, 95, 500, 860, 1000
_STATES: Final = (*[_HEALTHY] * 12, _RESTART, *[_HEALTHY] * 9, _DISK, *[_HEALTHY] * 11, _LOST, *[_HEALTHY] * 8, _BLIND)
OTHERS: Final = {f"shop-{number:02}": _STATES[number % len(_STATES)] for number in range(1, 100)}
SCENE: Final = Scene(Path(__file__).parent / "trouble.toml", BEGIN, seconds=1020, blind_seconds=120, others=OTHERS)
ENDS: Final = {
    "trouble": SCENE.end - SCENE.blind_seconds - 15,  # the last scrape with fresh data
    "healthy": BEGIN + _HEALTHY,
    "blind": SCENE.end - 15,
}
"""When each kind of picture is taken."""
# Longer than between two scrapes, so that what an exporter exposes no more is gone, as after a real scrape.
LOOKBACK: Final = "20s"
MODES: Final = ("dark", "light")
NOT_IN_THE_MODEL: Final = (
    "Brokers of an older version", "Upgrade not finished", "Feature levels",
    *(f"{each} by broker" for each in ("Bytes in", "Bytes out", "Request handlers idle", "Network threads idle")),
    *(f"{each} p99 by broker" for each in ("Produce", "Fetch")),
)  # fmt: skip
"""Panels without data in a simulated cluster: the model has neither versions of brokers nor agents."""
NOTHING_HAPPENED: Final = ("ISR removals by cause", "ISR shrinks by topic", "When each incident was open")
"""Panels without data in a healthy cluster."""


@dataclass(frozen=True)
class Picture:
    """One board at one moment."""

    board: str
    mode: str
    moment: str

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.board}-{self.moment}-{self.mode}.png"


def pictures(chosen: str) -> Iterator[Picture]:
    """Yield every picture: all boards healthy, in trouble and blind, each light and dark."""
    for board in all_boards():
        yield from (each for each in starmap(Picture, product([board], MODES, ENDS)) if chosen in each.name)


def draw(picture: Picture, site: str, problems: queue.Queue[list[str]], target: Path) -> list[str]:
    """Write one picture, and return its problems; of a blind one an empty panel is none."""
    board = json.loads((BOARDS / f"{picture.board}.json").read_text())
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
    address = f"{site}/index.html?board={picture.board}&mode={picture.mode}&from={BEGIN}&to={ENDS[picture.moment]}"
    with tempfile.TemporaryDirectory() as profile:
        command = [
            "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--hide-scrollbars", f"--user-data-dir={profile}", f"--window-size={WIDTH},{rows * ROW + HEADING}",
            "--virtual-time-budget=20000", "--run-all-compositor-stages-before-draw",
            f"--screenshot={target / picture.name}", address,
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=240)
    found = problems.get(timeout=10)
    empty = {each for each in found if each.endswith((": is empty", ": has no values"))}
    nothing = (*NOT_IN_THE_MODEL, *(NOTHING_HAPPENED if picture.moment == "healthy" else ()))
    expected = empty if picture.moment == "blind" else {f"{title}: is empty" for title in nothing}
    return [each for each in found if each not in expected]


def run(storage: Path, target: Path, chosen: str) -> int:
    """Draw all pictures over the storage of a Prometheus; return the number of problems."""
    port, count = free_port(), 0
    command = ["prometheus", "--config.file=prometheus.yml", f"--storage.tsdb.path={storage.resolve()}"]
    command += [f"--web.listen-address=127.0.0.1:{port}", f"--query.lookback-delta={LOOKBACK}"]
    command += ["--storage.tsdb.retention.time=100y"]
    (storage.parent / "prometheus.yml").write_text("{}\n")
    target.mkdir(parents=True, exist_ok=True)
    url = f"http://127.0.0.1:{port}"
    with running_server(command, url, storage.parent), serving(url) as (site, problems):
        for picture in pictures(chosen):
            found = draw(picture, site, problems, target)
            print(f"{target / picture.name}: {'; '.join(found) or 'fine'}", flush=True)
            count += len(found)
    return count


def main() -> None:
    """Draw, and exit with 1 if a picture has a problem."""
    parser = argparse.ArgumentParser(prog="python -m tests.pictures", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("dist/pictures"), help="folder of the pictures")
    parser.add_argument("--board", default="", help="only pictures whose name has this part")
    parser.add_argument("--storage", type=Path, help="storage of an earlier run (--work), instead of playing the scene")
    parser.add_argument("--work", type=Path, help="folder for the tables and the storage, which stays")
    asked = parser.parse_args()
    missing = [each for each in ("chromium", "prometheus", "promtool") if shutil.which(each) is None]
    if missing:
        sys.exit(f"pictures need {', '.join(missing)}: install the Debian packages chromium and prometheus")
    folder = asked.work or Path(tempfile.mkdtemp()) / "scene"
    try:
        storage = asked.storage or write_blocks(SCENE, folder)
        sys.exit(1 if run(storage, asked.output, asked.board) else 0)
    finally:
        if asked.work is None:
            shutil.rmtree(folder.parent, ignore_errors=True)


if __name__ == "__main__":
    main()
