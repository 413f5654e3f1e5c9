"""What the page of Kubernetes leads to: its commands, one after the other, with the API server and the stand-in.

Kafka and the store are processes outside of the cluster. Collectors of simulated clusters ship to the same bus, so that
there are changes to compare.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streaming.delta.store.place import tables_place
from streaming.settings import load
from tests.chaos.comparison import all_differences, undisturbed
from tests.end_to_end.test_kafka_bus import KafkaPipeline
from tests.end_to_end.test_large_form import blocks_of, commands_in, replaced, section
from tests.kubernetes.chart import packaged
from tests.kubernetes.programs import helm, program
from tests.plugins.pipeline import Program, rows_of
from tests.stores.s3 import ACCESS_KEY, SECRET_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.settings import KafkaBusSettings
    from tests.kubernetes.control_plane import Api
    from tests.kubernetes.kubelet import Kubelet, Pod
    from tests.stores.store import Store

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "kubernetes.md"
IMAGE: Final = "registry.example.com/isrwatch"
ON_SPARK: Final = "On Spark"
PATIENCE_SECONDS: Final = 600.0


def commands(title: str) -> list[str]:
    """Return the commands of a section of the page."""
    blocks = blocks_of(section(PAGE.read_text(), title))
    return [each for language, block in blocks if not language for each in commands_in(block)]


def environment(folder: Path) -> dict[str, str]:
    """Return the variables of a shell in a folder: kubectl, helm, the API server, and the code of this checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "ISRWATCH"))}
    scratch = {"TMPDIR": str(folder), "SPARK_LOCAL_DIRS": str(folder), "SPARK_LOCAL_IP": "127.0.0.1"}
    folders = [program("kubectl").parent, helm().parent, Path(sys.executable).parent, os.environ["PATH"]]
    path = os.pathsep.join(map(str, folders))  # as an activated .venv
    ours = {"KUBECONFIG": str(folder / "kubeconfig"), "PATH": path, "PYTHONPATH": str(ROOT)}
    ours |= {f"HELM_{name}_HOME": str(folder / "helm" / name) for name in ("CACHE", "CONFIG", "DATA")}
    return kept | scratch | ours


class Installation:
    """A namespace, and the folder from which it is filled."""

    def __init__(self, folder: Path, api: Api, kubelet: Kubelet, bus: KafkaBusSettings, store: Store) -> None:
        self.folder, self.api, self.kubelet, self.store = folder, api, kubelet, store
        self.words = {"REPOSITORY": str(ROOT), "IMAGE": IMAGE, "SECRET": SECRET_KEY, "API": api.url}
        self.words["ADDRESS"] = "127.0.0.1"
        self._bus = bus
        folder.mkdir(parents=True)
        api.kubeconfig(folder / "kubeconfig")
        self.configuration = folder / "isrwatch.toml"
        self.configuration.write_text(self._toml())
        shutil.copy(packaged(), folder)
        (folder / "isrwatch").symlink_to(ROOT)
        os.environ["STORE_KEY"] = SECRET_KEY
        self.tables = tables_place(load(self.configuration))
        self.sites: list[KafkaPipeline] = []

    def _toml(self) -> str:
        """Return the configuration of the page of the large form, with the topics of this test."""
        ((_, text),) = [
            block for block in blocks_of((ROOT / "docs" / "large-form.md").read_text()) if block[0] == "toml"
        ]
        words = {
            "WATCHED": self._bus.bootstrap_servers,
            "BUS": self._bus.bootstrap_servers,
            "7070": str(self.store.port),
        }
        topics = (
            f'replication_topic = "{self._bus.replication_topic}"\nsamples_topic = "{self._bus.samples_topic}"\n'
            f"replication_partitions = {self._bus.replication_partitions}\n"
            f"samples_partitions = {self._bus.samples_partitions}\nreplication_factor = 1\nmin_insync_replicas = 1\n"
        )
        text = replaced(text, words).replace('key_id" = "isrwatch"', f'key_id" = "{ACCESS_KEY}"')
        return text.replace("\n[tables]\n", f"{topics}\n[tables]\n").replace(
            'directory = "s3://isrwatch/tables"',
            f'directory = "{self.store.url}/{self.folder.name}"\nhistory = "forever"',  # simulated ones are of any year
        )

    def environment(self) -> dict[str, str]:
        """Return the variables of its shell."""
        return environment(self.folder)

    def prepare(self, *values: str) -> None:
        """Install as the page does, with more values, and wait for nothing."""
        for command in commands(ON_SPARK):
            if not command.startswith("kubectl rollout"):
                self.run(command + "".join(f" --set {each}" for each in values if command.startswith("helm")))

    def run(self, command: str) -> str:
        """Run a command to its end, and return what it printed."""
        ended = subprocess.run(
            ["bash", "-c", replaced(command, self.words)], cwd=self.folder, env=self.environment(), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=900,
        )  # fmt: skip
        assert ended.returncode == 0, f"{command}\n{ended.stdout[-3000:]}\n{self.logs()}"
        return ended.stdout

    def start(self, command: str) -> Program:
        """Start a command that does not end by itself."""
        words = ["bash", "-c", f"exec {replaced(command, self.words)}"]
        return Program("submitted", words, self.folder / "submitted.log", self.environment(), self.folder)

    def logs(self) -> str:
        """Return the ends of what the pods have printed."""
        return "\n".join(f"--- {name}\n{self.kubelet.log(name)[-2500:]}" for name in self.kubelet.names())

    def simulate(self, number: int) -> KafkaPipeline:
        """Start a collector of a simulated cluster outside of Kubernetes."""
        place = self.folder / f"site-{number}"
        place.mkdir()
        made = KafkaPipeline(place, self._bus)
        text = made.config.read_text().replace('collector = "collector-1"', f'collector = "site-{number}"')
        made.config.write_text(f'{text}[cluster]\nname = "simulated-{number}"\n')
        made.simulate("--speed", "10", "--seed", str(number))
        self.sites.append(made)
        return made

    def count(self) -> int:
        """Return how many changes the tables have."""
        return len(rows_of(self.tables, "partition_changes"))

    def eventually(self, condition: Callable[[], Any], what: str, program: Program | None = None) -> float:
        """Wait until something is so, and return the seconds that it took; fail with the logs of the pods."""
        began = time.monotonic()
        while not condition():
            assert self.kubelet.failures == []
            assert program is None or program.process.poll() is None, f"{what}\n{program.text()[-3000:]}"
            if time.monotonic() - began > PATIENCE_SECONDS:
                raise AssertionError(f"not in {PATIENCE_SECONDS:.0f} s: {what}\n{self.logs()}")
            time.sleep(0.5)
        return time.monotonic() - began

    def continues(self, what: str) -> float:
        """Wait until there are more changes, and return the seconds."""
        before = self.count()
        seconds = self.eventually(lambda: self.count() > before, what)
        print(f"{what}: {seconds:.1f} s")
        return seconds

    def pods(self, **labels: str) -> list[Pod]:
        """Return the running pods with labels."""
        found = self.kubelet.pods.values()
        return [pod for pod in list(found) if labels.items() <= pod.manifest["metadata"]["labels"].items()]

    def executors(self) -> list[Pod]:
        """Return the executors that run."""
        return [pod for pod in self.pods(**{"spark-role": "executor"}) if pod.runs]

    def claim(self, name: str) -> Path:
        """Return the folder that stands in for a volume."""
        return self.kubelet.folder / "claims" / name

    def becomes_equal(self, *more: Path) -> None:
        """Stop the collectors, and wait until each table is what one process makes of all that they have published.

        Args:
            more: other folders with logs that were shipped.
        """
        for site in self.sites:
            assert site.programs[-1].stop() == 0, site.programs[-1].text()
        kept = self.folder / "kept"
        for bus in (*(site.bus for site in self.sites), *more):
            shutil.copytree(bus, kept, dirs_exist_ok=True)
        (self.folder / "expected").mkdir()
        whole = KafkaPipeline(self.folder / "expected", self._bus)
        whole.bus, whole.tables = kept, self.tables
        self.eventually(whole.is_applied, "everything is applied")
        undisturbed(kept, self.folder / "undisturbed")
        found: list[str] = []

        def is_equal() -> bool:  # what is derived of the last changes is written a moment later
            found[:] = all_differences(self.tables, self.folder / "undisturbed")
            return not found

        try:
            self.eventually(is_equal, "each table is equal")
        finally:
            print("\n".join(found))

    def close(self) -> None:
        """End the collectors outside of the cluster, and delete the namespace."""
        for site in self.sites:
            site.close()
        self.api.kubectl("delete", "namespace", "isrwatch", "--ignore-not-found", "--wait")
