"""``spark-submit --master k8s://`` as the page has it: in client mode and in cluster mode, to equal tables.

The environment of ``make env`` is that of the tests, with the code of this checkout.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.sandbox import Sandbox
from tests.kubernetes.control_plane import Api
from tests.kubernetes.installation import ON_SPARK, Installation, commands
from tests.kubernetes.kubelet import Kubelet
from tests.plugins.kafka_bus import bus_settings
from tests.plugins.sandbox import MakeSandbox
from tests.stores.s3 import versitygw
from tests.stores.store import Store

pytest_plugins = ("tests.plugins.package",)
pytestmark = [pytest.mark.kubernetes, pytest.mark.kafka, pytest.mark.spark, pytest.mark.store, pytest.mark.long]


CLONE, ACTIVATE, CLIENT, CLUSTER = commands("Submit from a machine")
# The stand-in has no addresses of services, and so no kubernetes.default.svc, by which such a driver finds the server;
# and on a busy machine a connection may take longer than Spark's ten seconds.
HERE = {
    "spark.kubernetes.driver.master": "API",
    "spark.kubernetes.submission.connectionTimeout": "60000",
    "spark.kubernetes.submission.requestTimeout": "60000",
    "spark.kubernetes.driver.connectionTimeout": "60000",
    "spark.kubernetes.driver.requestTimeout": "60000",
}
CLUSTER = CLUSTER.replace(
    "--deploy-mode cluster", " ".join(["--deploy-mode cluster", *(f"--conf {key}={to}" for key, to in HERE.items())])
)


@pytest.fixture(scope="module")
def outside(
    kafka_module_cluster: MakeSandbox, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Sandbox, Store]]:
    """Run what is not in Kubernetes: a bus and a store."""
    with versitygw(tmp_path_factory.mktemp("store")) as store:
        yield kafka_module_cluster(brokers=1), store


@pytest.fixture
def installation(
    request: pytest.FixtureRequest, tmp_path: Path, kubernetes: Api, kubelet: Kubelet, outside: tuple[Sandbox, Store]
) -> Iterator[Installation]:
    """Give a namespace with what the page makes before a job is submitted; the checkout is this one, not a clone."""
    sandbox, store = outside
    made = Installation(
        tmp_path / request.node.originalname[:24], kubernetes, kubelet, bus_settings(sandbox.bootstrap_servers), store
    )
    try:
        made.prepare("job.enabled=false", "collect.enabled=false", "export.enabled=false")
        yield made
    finally:
        made.close()


def deleted(installation: Installation, name: str) -> None:
    """Delete a pod, and wait until the changes go on."""
    installation.run(f"kubectl delete pod {name} --grace-period 1")
    installation.continues(f"{name} was deleted")


@pytest.mark.timeout(1800)
def test_in_client_mode_executors_are_pods_and_one_that_is_deleted_changes_no_table(installation: Installation) -> None:
    assert CLONE.endswith("(cd isrwatch && make env)")
    assert ACTIVATE.startswith(". isrwatch/.venv/bin/activate")
    installation.simulate(0)
    job = installation.start(CLIENT)
    try:
        installation.eventually(lambda: installation.count() > 100, "the executors fold", job)
        assert len(installation.executors()) == 2
        deleted(installation, installation.executors()[0].name)
        installation.eventually(lambda: len(installation.executors()) == 2, "Spark makes another one", job)
        installation.becomes_equal()
        job.stop_group()  # as a closed terminal does
        # Java passes on what the driver prints, and may end first.
        assert "stopping: each query ends its batch first" in job.text(), job.text()[-3000:]
        installation.eventually(lambda: not installation.executors(), "no executor is left")
    finally:
        job.kill()


@pytest.mark.timeout(1800)
def test_in_cluster_mode_the_driver_is_a_pod_that_ends_as_it_is_told(installation: Installation) -> None:
    installation.simulate(0)
    installation.run(CLUSTER)
    installation.eventually(lambda: installation.count() > 100, "the driver in its pod, and its executors, fold")
    (driver,) = installation.pods(**{"spark-role": "driver"})
    assert len(installation.executors()) == 2
    deleted(installation, installation.executors()[0].name)
    installation.becomes_equal()
    assert driver.container is not None
    driver.container.signal(signal.SIGTERM)
    installation.eventually(lambda: phase(installation, driver.name) == "Succeeded", "it ends cleanly")


@pytest.mark.timeout(900)
def test_a_wrong_configuration_fails_the_pod_of_the_driver_with_exit_code_2(installation: Installation) -> None:
    before = installation.configuration.read_text()
    installation.configuration.write_text(before.replace("[job]\n", "[job]\nno_such_key = 1\n"))
    (upgrade,) = [each for each in commands(ON_SPARK) if each.startswith("helm install")]
    installation.run(upgrade.replace("helm install", "helm upgrade --reuse-values"))
    installation.run(CLUSTER)
    installation.eventually(lambda: installation.pods(**{"spark-role": "driver"}), "the pod of the driver is there")
    (driver,) = installation.pods(**{"spark-role": "driver"})
    installation.eventually(lambda: phase(installation, driver.name) == "Failed", "it has failed")
    assert driver.container is not None
    assert driver.container.ended == 2
    assert "no_such_key" in installation.kubelet.log(driver.name)


def phase(installation: Installation, name: str) -> str:
    path = f"/api/v1/namespaces/isrwatch/pods/{name}"
    return str(installation.api.call("GET", path)["status"]["phase"])
