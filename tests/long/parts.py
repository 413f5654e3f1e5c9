"""The parts of ``make test-long``: what takes too long for ``make test``, each at most an hour."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass
from typing import Final

PYTEST: Final = "pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0"
JUDGE: Final = "tests.judge --workers 2"
OF_THEIR_OWN: Final = "store or kubernetes or chart or yarn or packages or images or systemd"
SERVICES: Final = f"spark or kafka or prometheus or {OF_THEIR_OWN}"
RUNS: Final = r"\d+ runs, \d+ failed"
DAYS: Final = r"\d+ days, \d+ with an error"
MOMENTS: Final = r"\d+ moments and \d+ changes of \d+ runs, \d+ wrong"
PLAYS: Final = r"\d+ played, \d+ with an error"


@dataclass(frozen=True)
class Part:
    """One part.

    Attributes:
        shows: what is known after it.
        command: what runs, after ``python -m``; ``{seed}`` is drawn, and stays when the part is resumed.
        says: the line of its output that is its result.
        examples: how many examples Hypothesis draws (``tests/examples.py``).
        resumes: the command itself goes on where it was stopped, with ``--resume``.
        in_all: it belongs to ``make test-long``; others may take longer than an hour.
    """

    shows: str
    command: str
    says: str = r"\d+ passed, \d+ failed"
    examples: str = "test"
    resumes: bool = False
    in_all: bool = True

    def arguments(self, seed: int, *, resume: bool) -> list[str]:
        """Return the command to start."""
        again = ["--resume"] if resume and self.resumes else []
        return [sys.executable, "-m", *shlex.split(self.command.format(seed=seed)), *again]

    def result(self, output: str) -> str:
        """Return the last line of the output that says how it ended; empty if none does."""
        found = re.findall(self.says, output)
        return " ".join(found[-1].split()) if found else ""


PARTS: Final = {
    "chaos-1": Part(
        "the real job under random harm: each table is what the model did",
        "tests.chaos --runs 25 --seed {seed}",
        says=RUNS,
        resumes=True,
    ),
    "chaos-2": Part("the same, 25 runs more", "tests.chaos --runs 25 --seed {seed}", says=RUNS, resumes=True),
    **{
        f"chaos-standalone-{number}": Part(
            "executors, workers and drivers of a Spark cluster killed at random, standbys that take over: each table "
            f"is what the model did, 8 runs, part {number} of 7",
            "tests.chaos --standalone --runs 8 --seed {seed}",
            says=RUNS,
            resumes=True,
        )
        for number in range(1, 8)
    },
    "chaos-kafka": Part(
        "random faults of a real Kafka: the tables have what its log has",
        "tests.chaos_kafka --faults 30 --seed {seed}",
        says=RUNS,
        resumes=True,
    ),
    "pages-of-a-night": Part(
        "20 faults of a real Kafka: 50 moments on the pages are those of its log, and each change is met once",
        "tests.pages.night build/night-short --play 20 --seed {seed}",
        says=MOMENTS,
    ),
    **{
        f"night-{number}": Part(
            f"a night of random faults in pieces that are kept, piece {number} of 4",
            "tests.chaos_kafka --faults 30 --runs 9 --minutes 45 --keep build/night --seed {seed}",
            says=RUNS,
            resumes=True,
            in_all=False,
        )
        for number in (1, 2, 3, 4)
    },
    "night-pages": Part(
        "50 moments of that night on the pages are those of Kafka's log, and each change is met once",
        "tests.pages.night build/night --seed {seed}",
        says=MOMENTS,
        in_all=False,
    ),
    "drill": Part("ten faults of a real Kafka: each is reported as what it was", "tests.drill", says=r"\d+ faults.*"),
    "drill-polled": Part(
        "the same faults by polling alone: each is reported as what it was, and how soon",
        "tests.drill --polled --version 4.4",
        says=r"\d+ faults.*",
    ),
    "judge": Part("2,000 random faults: what is reported of them against the model", JUDGE, says=PLAYS, resumes=True),
    "judge-alerts": Part(
        "500 random faults, and what woke operators for nothing: who is woken, by Prometheus and by vmalert",
        f"{JUDGE} --alerts --vmalert --plays 500",
        says=PLAYS,
        resumes=True,
    ),
    "judge-polled": Part(
        "660 random faults of polled clusters: what is reported of them against the model",
        f"{JUDGE} --polled",
        says=PLAYS,
        resumes=True,
    ),
    "judge-quiet": Part(
        "30 days of a healthy cluster: every alert that fires was planted, and none is critical",
        "tests.judge --quiet --seed {seed}",
        says=DAYS,
        resumes=True,
    ),
    "judge-slow": Part("2,000 slow brokers, and what only looks like one", f"{JUDGE} --slow", says=PLAYS, resumes=True),
    "fuzz": Part(
        "a million pieces of damaged input: each is refused, or means something",
        "tests.fuzz --cases 1000000 --seed {seed}",
        says=r"FAILS: .*",
    ),
    "mutants": Part(
        "300 small faults put into the rules: at least 85 % are seen by a test",
        "tests.mutants --sample 300 --workers 2 --seed {seed}",
        says=r"\d+ of \d+ seen \(\d+%\)",
    ),
    "coverage": Part(
        "at least 90 % of the lines and branches of rules, tables and exporters are run by tests",
        f"{PYTEST} -p tests.plugins.tracing --traced",
        says=r"TOTAL.*",
    ),
    "examples": Part(
        "the tests by Hypothesis, twenty times as many examples each", f"{PYTEST} -m hypothesis", examples="long"
    ),
    "services": Part(
        "the tests marked long that start Spark, Kafka or Prometheus",
        f'{PYTEST} --long -m "(spark or kafka or prometheus) and not ({OF_THEIR_OWN})"',
        examples="long",
    ),
    "stores": Part(
        "the tests marked long that start a store: versitygw, Azurite, HDFS, and s3proxy, which is not exclusive",
        f'{PYTEST} --long -m "store and not (kubernetes or yarn)"',
        examples="long",
    ),
    "kubernetes": Part(
        "the chart's form on Spark, pods as processes: the job to its end, pods killed, equal tables",
        'pytest --long -m "kubernetes and not chart"',
    ),
    "chart": Part(
        "helm and a real API server take the chart; on 100,000 partitions an upgrade starts each container once",
        "pytest --long -m chart",
    ),
    "yarn": Part(
        "the job submitted to YARN as its page says, in both modes; executor, machines, driver and NameNode lost",
        f"{PYTEST} --long -m yarn",
    ),
    "systemd": Part(
        "a real systemd runs the services: killed, backed up while they write, restored, removed as their page says",
        "pytest --long -m systemd",
    ),
    "packages": Part(
        "wheels build alike twice; each extra in its role; Python 3.11 to 3.14, pipx, uv; empty machine to incident",
        "pytest --long -m packages",
    ),
    "images": Part(
        "both images built from Debian packages and started by crun, read-only, as an unknown user: a killed broker is "
        "an incident on their page",
        "pytest --long -m images",
    ),
    "others": Part("the other tests marked long", f'{PYTEST} --long -m "not ({SERVICES})"', examples="long"),
    "flaky": Part(
        "what starts a program or waits for time passes ten times next to two busy processes",
        "tests.long.flaky",
        says=r"\d+ rounds, .*",
        resumes=True,
        in_all=False,
    ),
}
