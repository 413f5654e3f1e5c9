"""``python -m tests.pages.night FOLDER``: do the pages of any moment show what Kafka's own log had then?

FOLDER        runs that ``python -m tests.chaos_kafka --keep FOLDER`` has kept
--moments N   so many random moments of all runs together (50)
--play N      play a run of so many faults of a small cluster first, and keep it there
--seed S      draws the same moments and faults (it is printed)

At each moment the page of all clusters, that of the cluster, those of its topics and brokers, and those of its newest
incidents are read over HTTP with ``?at=``. Then "previous change" is followed from the end to the beginning, and "next
change" back: each change of the log is met once.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

from exporters.answers import links
from exporters.read_model.times import read_moment
from exporters.web.server import serving
from streaming.settings import ExportSettings
from tests.chaos_kafka.compare import Facts
from tests.chaos_kafka.harms import HARMS
from tests.chaos_kafka.kept import TABLES, kept_folders, records_kept
from tests.chaos_kafka.run import Verdict, played
from tests.chaos_kafka.schedule import SMALL
from tests.chaos_kafka.schedule import drawn as drawn_faults
from tests.pages.kafkas_log import NO_LEADER, Counts, KafkasLog, Moment
from tests.pages.reading import Read, get_page

CLUSTER: Final = "chaos"
_SHOWN: Final = 5
_INCIDENTS: Final = 3
_OK: Final = 200
_COUNTS: Final = ("offline", "under min ISR", "at min ISR", "fenced brokers")


class Walk(NamedTuple):
    """The moments to which "previous" led from the end, newest first, and those to which "next" led back."""

    back: list[int]
    forth: list[int]


class Pages:
    """The pages of an exporter over HTTP, with the seconds that each request took."""

    def __init__(self, address: str, get: Callable[[str], Read] = get_page) -> None:
        self._address, self._get = address, get
        self.seconds: list[float] = []

    def read(self, path: str) -> Read:
        """Ask for a path, or a whole URL."""
        began = time.perf_counter()
        read = self._get(path if "://" in path else f"http://{self._address}{path}")
        self.seconds.append(time.perf_counter() - began)
        return read

    def walk(self, path: Callable[[int], str], end: int) -> Walk:
        """Follow the links to the previous change, and from the oldest one those to the next."""
        back = [*self._followed(path(end), "prev")]
        forth = [*self._followed(path(back[-1]), "next")] if back else []
        return Walk(back, forth)

    def _followed(self, path: str, rel: str) -> Iterator[int]:
        page = self.read(path)
        while rel in page.links:
            url = page.links[rel]
            yield moment_of(url)
            page = self.read(url)


def moment_of(url: str) -> int:
    """Return the moment that a link leads to."""
    moment = read_moment(parse_qs(urlsplit(url).query)["at"][0], 0)
    assert isinstance(moment, int), url
    return moment


# Differences of one moment. Each is a sentence.


def differences(pages: Pages, log: KafkasLog, moment: int) -> Iterator[str]:
    """Yield what the pages of a moment show otherwise than the log."""
    expected, when = log.at(moment), f"at {links.moment_text(moment)} "
    fleet = pages.read(links.fleet(moment))
    for row in fleet.table("cluster", *_COUNTS):
        shown = Counts(*(number_in(row[name]) for name in _COUNTS))
        if shown != expected.counts():
            yield f"{when}the page of all clusters has {shown}, the log {expected.counts()}"
    if len(fleet.table("cluster", *_COUNTS)) != 1:
        yield f"{when}the page of all clusters ({fleet.status}) does not have the cluster alone"
    cluster = pages.read(links.cluster(CLUSTER, moment))
    yield from (when + each for each in of_cluster(cluster, expected))
    for topic in sorted(expected.topics()):
        page = pages.read(links.topic(CLUSTER, topic, moment))
        yield from (when + each for each in of_topic(page, topic, expected.of_topic(topic)))
    for broker in sorted(expected.brokers):
        page = pages.read(links.broker(CLUSTER, broker, moment))
        yield from (when + each for each in of_broker(page, broker, expected))
    for row in cluster.table("incident", "what happened", "lasted")[:_INCIDENTS]:
        page = pages.read(links.incident(row["incident"], moment))
        yield from (when + each for each in of_incident(page, row["incident"], expected))


def of_broker(page: Read, broker: int, expected: Moment) -> Iterator[str]:
    """Yield what the page of a broker has otherwise of what it leads and holds, and of its partitions at risk."""
    held = {place: facts for place, facts in expected.partitions.items() if broker in facts.replicas}
    led = sum(facts.leader == broker for facts in held.values())
    in_sync = sum(broker in facts.isr for facts in held.values())
    found = re.search(r"leads\s*([\d,]+) partitions\s*in sync\s*([\d,]+) of ([\d,]+) replicas", page.text)
    shown = found and tuple(map(number_in, found.groups()))
    if shown != (led, in_sync, len(held)):
        yield f"the page of broker {broker} ({page.status}) has {shown}, the log {(led, in_sync, len(held))}"
    by_name = {f"{topic}-{number}": facts for (topic, number), facts in held.items()}
    for row in page.table("partition", "leader", "ISR", "not in sync"):
        facts = by_name.get(row["partition"])
        if facts is None or numbers_in(row["ISR"]) != frozenset(facts.isr):
            yield f"the page of broker {broker} has {row}, the log {facts}"


def of_incident(page: Read, incident: str, expected: Moment) -> Iterator[str]:
    """Yield what the page of an incident has otherwise of the state of its suspects."""
    if page.status != _OK:
        yield f"the page of {incident} is answered with {page.status}"
    for row in page.table("broker", "state then", "explains"):
        broker = number_in(row["broker"].removeprefix("broker "))
        if broker in expected.brokers and ("fenced" in row["state then"]) != expected.brokers[broker]:
            yield f"the page of {incident} has broker {broker} {row['state then']}, fenced: {expected.brokers[broker]}"


def of_cluster(page: Read, expected: Moment) -> Iterator[str]:
    """Yield what the page of a cluster has otherwise of its brokers."""
    shown = {row["broker"].removeprefix("broker "): row for row in page.table("broker", "state", "leads", "in sync")}
    partitions = expected.partitions.values()
    hosting = {replica for facts in partitions for replica in facts.replicas}
    every = sorted(hosting | expected.brokers.keys())
    if {*shown} != {*map(str, every)}:
        yield f"the cluster ({page.status}) has brokers {sorted(shown)}, the log {every}"
    for broker in sorted(expected.brokers):
        row = shown.get(str(broker), {})
        led = sum(facts.leader == broker for facts in partitions)
        in_sync = sum(broker in facts.isr for facts in partitions)
        hosted = sum(broker in facts.replicas for facts in partitions)
        wanted = (str(led), f"{in_sync} of {hosted}", expected.brokers[broker])
        if row and (row["leads"], row["in sync"], "fenced" in row["state"]) != wanted:
            yield f"broker {broker} is {row}, and in the log it leads, has in sync, is fenced: {wanted}"


def of_topic(page: Read, topic: str, expected: dict[int, Facts]) -> Iterator[str]:
    """Yield what the page of a topic has otherwise of its partitions."""
    shown = {row["partition"]: (row["leader"], numbers_in(row["ISR"]), numbers_in(row["not in sync"]))
             for row in page.table("partition", "leader", "ISR", "not in sync")}  # fmt: skip
    wanted = {
        f"{topic}-{number}": (
            "none" if facts.leader == NO_LEADER else str(facts.leader),
            frozenset(facts.isr),
            frozenset(facts.replicas) - frozenset(facts.isr),
        )
        for number, facts in expected.items()
    }
    if shown.keys() != wanted.keys():
        yield f"topic {topic} ({page.status}) has partitions {sorted(shown)}, the log {sorted(wanted)}"
    for name in sorted(shown.keys() & wanted.keys()):
        if shown[name] != wanted[name]:
            yield f"{name} is shown with leader, ISR, missing {shown[name]}, and has in the log {wanted[name]}"


def number_in(cell: str) -> int:
    """Return a number of a table; what is old stands in parentheses, and -1 is one that is unknown."""
    text = cell.strip("()").replace(",", "")
    return int(text) if text.isdecimal() else -1


def numbers_in(cell: str) -> frozenset[int]:
    return frozenset(int(each) for each in cell.replace(",", " ").split() if each.isdecimal())


# Walks.


def wrong_walk(name: str, walk: Walk, changes: list[int], end: int) -> Iterator[str]:
    """Yield what is wrong with a walk from the end: each change of the log is met once, and back the same way."""
    if not walk.back:
        yield f"{name}: no change before the end"
        return
    if any(later <= earlier for later, earlier in pairwise([end + 1, *walk.back])):
        yield f"{name}: previous does not lead back in time at each step"
    if walk.forth[: len(walk.back) - 1] != walk.back[-2::-1]:
        yield f"{name}: next does not lead back over the changes that previous led to"
    met = {*walk.back, *walk.forth}
    missed = [moment for moment in changes if walk.back[-1] <= moment <= end and moment not in met]
    if missed:
        shown = ", ".join(links.moment_text(moment) for moment in missed[:_SHOWN])
        yield f"{name}: {len(missed)} changes of the log are never met: {shown}"


class Result(NamedTuple):
    """Sentences about what is wrong, and what was looked at."""

    wrong: list[str]
    moments: int
    changes: int
    seconds: list[float]


def night(folder: Path, count: int, draw: random.Random) -> Result:
    """Compare random moments of a run that was kept, and walk over all of it."""
    log = KafkasLog(records_kept(folder))
    settings = ExportSettings(listen="127.0.0.1:0")
    with serving(folder / TABLES, settings) as address:
        pages = Pages(address)
        _wait_until_read(pages)
        walk = pages.walk(links.fleet, log.end)
        wrong = [*wrong_walk("all clusters", walk, log.changes(), log.end)]
        oldest = walk.back[-1] if walk.back else log.end
        for topic in sorted(log.at(log.end).topics()):
            of = pages.walk(lambda at, topic=topic: links.topic(CLUSTER, topic, at), log.end)  # type: ignore[misc]
            if changes := [moment for moment in log.changes(topic) if oldest <= moment]:
                wrong += wrong_walk(f"topic {topic}", of, changes, log.end)
        for _ in range(count):
            moment = drawn(draw, [each for each in log.changes() if each >= oldest] or [log.end], oldest, log.end)
            wrong += differences(pages, log, moment)
        return Result(wrong, count, len(walk.back), pages.seconds)


def drawn(draw: random.Random, changes: list[int], oldest: int, newest: int) -> int:
    """Draw a moment: at a change, just before one, or anywhere."""
    change = draw.choice(changes)
    return max(oldest, draw.choice([change, change - 1, draw.randint(oldest, newest)]))


def _wait_until_read(pages: Pages) -> None:
    deadline = time.monotonic() + 60
    while pages.read("/-/ready").status != _OK:
        if time.monotonic() > deadline:
            raise TimeoutError("the exporter has not read the tables within a minute")
        time.sleep(0.1)
    pages.seconds.clear()


def _played(keep: Path, faults: int, seed: int) -> bool:
    """Play a run, and return whether its tables have what Kafka's log has; if not, everything of it stays."""
    directory = Path(tempfile.mkdtemp(prefix=f"night-{seed}-"))
    verdict, text = played(drawn_faults(seed, faults, tuple(HARMS), SMALL), directory, keep=keep)
    print(f"{verdict} seed {seed}, {faults} faults: {text}", flush=True)
    if verdict is Verdict.EQUAL:
        shutil.rmtree(directory)
    else:
        print(f"everything is kept in {directory}", flush=True)
    return verdict is Verdict.EQUAL


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    options.add_argument("--moments", type=int, default=50)
    options.add_argument("--play", type=int, default=0)
    options.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    given = options.parse_args()
    if given.play and not _played(given.folder / f"seed-{given.seed}", given.play, given.seed):
        return 1
    folders = kept_folders(given.folder)
    if not folders:
        options.error(f"{given.folder} has no run: python -m tests.chaos_kafka --keep {given.folder}")
    draw, results = random.Random(given.seed), []
    for number, folder in enumerate(folders):
        count = given.moments * (number + 1) // len(folders) - given.moments * number // len(folders)
        results.append(night(folder, count, draw))
        print(f"{folder}: {len(results[-1].wrong)} wrong", *results[-1].wrong[:_SHOWN], sep="\n  ", flush=True)
    seconds = sorted(each for result in results for each in result.seconds)
    wrong = sum(len(result.wrong) for result in results)
    moments, changes = (sum(getattr(each, name) for each in results) for name in ("moments", "changes"))
    p99 = 1000 * seconds[int(0.99 * (len(seconds) - 1))]
    print(
        f"seed {given.seed}: {moments} moments and {changes} changes of {len(results)} runs, {wrong} wrong; "
        f"{len(seconds)} pages, p99 {p99:.0f} ms"
    )
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
