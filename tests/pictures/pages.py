"""Draws the pages of the exporter in headless Chromium: in trouble, healthy, blind and of 100 clusters.

The scenario of the boards is played into real tables, and a real exporter serves them, by a clock that stands still.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

from exporters.answers import links
from exporters.read_model.incident_archive import IncidentArchive
from exporters.read_model.incident_ids import shown_id
from exporters.read_model.reader import TablesReader
from exporters.read_model.refresher import Refresher
from exporters.web.runbook_commands import Installations
from exporters.web.server import OPTION, Endpoints, application
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.runtime.listening import address_of, listen_all
from streaming.settings import ClusterSettings
from streaming.sources.simulated import SimulatedSource, load_scenario
from streaming.web.server import WebServer
from streaming.web.server import serving as serving_http
from tests.exporters.conftest import Rows, Tables
from tests.pictures.scene import CLUSTER, SECOND, STALE_SECONDS, Job
from tests.plugins.local_http import wait_until

SCENARIO: Final = Path(__file__).parent / "trouble.toml"
BEGIN: Final = 1_790_000_100 * SECOND
MODES: Final = {"light": "1", "dark": "0"}
SIZES: Final = {380: 1900, 1000: 1180, 1400: 1900}
"""Heights by width; docs/pictures has pictures of the width in the middle."""
_STEP: Final = 5


class PageScene(NamedTuple):
    """Tables and the moment at which they are shown, in seconds of the scenario."""

    tables: str
    shown_at: int


SCENES: Final = {
    "trouble": PageScene("lost", 860),
    "healthy": PageScene("begin", 75),
    "blind": PageScene("lost", 1460),
    "fleet": PageScene("fleet", 0),
}


@dataclass(frozen=True)
class PagePicture:
    """One page of a scene, at a width, light or dark."""

    scene: str
    page: str
    path: str
    width: int
    mode: str

    @property
    def name(self) -> str:
        """Of its file."""
        return f"page-{self.scene}-{self.page}-{self.width}-{self.mode}.png"


def play(tables: Path, seconds: int) -> None:
    """Play the scenario into tables."""
    source = SimulatedSource(
        load_scenario(SCENARIO), seed=1, cluster_id=ClusterId("id-of-prod"), cluster=CLUSTER,
        name="metadata_log:collector-1", epoch=Micros(BEGIN),
    )  # fmt: skip
    job = Job(tables)
    for second in range(0, seconds + 1, _STEP):
        job.apply(BEGIN + second * SECOND, source)
        job.derive(BEGIN + second * SECOND)


def write_fleet(tables: Path) -> None:
    """Write 100 clusters: most are well; some lack replicas, one refuses writes, two are not observed any more."""
    changes: list[dict[str, Any]] = []
    for number in range(100):
        kind = "poll" if number % 5 == 4 else "metadata_log"
        rows = Rows(cluster_id=f"id-{number}", cluster=f"shop-{number:02}", source_kind=kind)
        at = BEGIN - 900 * SECOND if number in {7, 58} else BEGIN
        isr = {12: [1], 77: [1, 4], 31: []}.get(number, [1, 4, 5])
        changes += [rows.cluster_row(at), *(rows.broker(each, at) for each in (1, 4, 5)), rows.source(at)]
        state = rows.state([1, 4, 5], isr, isr[0] if isr else -1)
        changes.append(rows.partition("orders", 0, state, at, left_isr=[], cause="fenced"))
    Tables(tables).commit(*changes)


def write_scenes(folder: Path) -> None:
    """Write the tables of all scenes, those that are there already left as they are."""
    writers = {"lost": partial(play, seconds=860), "begin": partial(play, seconds=75), "fleet": write_fleet}
    for name, write in writers.items():
        if not (folder / name).exists():
            write(folder / name)


@contextmanager
def served(tables: Path, now: int) -> Iterator[str]:
    """Serve tables at a moment that does not pass; give the address."""
    refresher = Refresher(TablesReader(tables), 60.0, "1.0")
    endpoints = Endpoints(refresher, STALE_SECONDS, clock=lambda: now)
    known = ClusterSettings(name=CLUSTER, platform="strimzi", bootstrap_servers="prod-kafka-bootstrap.kafka.svc:9092")
    endpoints.installations = Installations({CLUSTER: known}, alertmanager_url="http://alertmanager:9093")
    opened = listen_all("127.0.0.1:0", OPTION)
    refresher.start()
    try:
        with serving_http(WebServer(application(endpoints), opened)):
            wait_until(lambda: refresher.snapshot.clusters)
            yield address_of(opened[0])
    finally:
        refresher.stop()
        refresher.join()


def pages_of(scene: str, tables: Path) -> Mapping[str, str]:
    """Return the path of each page that is drawn of a scene."""
    if scene == "fleet":
        return {"fleet": links.fleet()}
    paths = {"fleet": links.fleet(), "cluster": links.cluster(CLUSTER), "incidents": links.incidents()}
    paths |= {
        "broker": links.broker(CLUSTER, 5),
        "topic": links.topic(CLUSTER, "orders"),
        "groups": links.groups(CLUSTER),
    }
    if scene == "trouble":
        paths["past"] = links.cluster(CLUSTER, BEGIN + 500 * SECOND)
    rows = IncidentArchive(tables).all()
    worst = max(rows, key=lambda row: (row["closed_at"] is None, row["evidence_events"] or 0), default=None)
    return paths | ({} if worst is None else {"incident": links.incident(shown_id(worst))})


def draw(address: str, picture: PagePicture, target: Path) -> None:
    """Write one picture."""
    with tempfile.TemporaryDirectory() as profile:
        command = [
            "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--hide-scrollbars", f"--user-data-dir={profile}", f"--window-size={picture.width},{SIZES[picture.width]}",
            f"--blink-settings=preferredColorScheme={MODES[picture.mode]}",
            f"--screenshot={target / picture.name}", f"http://{address}{picture.path}",
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=120)


def draw_pages(folder: Path, target: Path, chosen: str = "") -> None:
    """Draw every page of every scene whose name has a part."""
    write_scenes(folder)
    target.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        for scene, (tables, shown_at) in SCENES.items():
            address = stack.enter_context(served(folder / tables, BEGIN + shown_at * SECOND))
            for (page, path), width, mode in product(pages_of(scene, folder / tables).items(), SIZES, MODES):
                picture = PagePicture(scene, page, path, width, mode)
                if chosen in picture.name:
                    draw(address, picture, target)
                    print(target / picture.name, flush=True)


def main() -> None:
    """Draw all pages; the options are those of the pictures of boards."""
    parser = argparse.ArgumentParser(prog="python -m tests.pictures.pages", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("dist/pictures"), help="folder of the pictures")
    parser.add_argument("--board", default="", help="only pictures whose name has this part")
    parser.add_argument("--work", type=Path, help="folder for the tables, which stay")
    asked, _ = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        draw_pages(asked.work or Path(folder), asked.output, asked.board)


if __name__ == "__main__":
    main()
