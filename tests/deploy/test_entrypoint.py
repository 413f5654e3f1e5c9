"""The entry point of the image: what Spark on Kubernetes starts, and everything else is ``isrwatch``."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from streaming.errors import MissingTool

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "docker" / "entrypoint.py"
HOME = Path("/opt/spark")
OF_EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://driver", "SPARK_EXECUTOR_ID": "1", "SPARK_EXECUTOR_CORES": "1",
    "SPARK_APPLICATION_ID": "spark-1", "SPARK_EXECUTOR_POD_IP": "10.1.2.3", "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "exec-1", "SPARK_EXECUTOR_MEMORY": "1024m",
}  # fmt: skip


@pytest.fixture(scope="module")
def entrypoint() -> ModuleType:
    spec = importlib.util.spec_from_file_location("entrypoint", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def no_jars(entrypoint: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrypoint, "jar_paths", lambda _: [Path("/jars/a.jar"), Path("/jars/b.jar")])


def test_an_executor_gets_its_java_options_in_their_order_and_what_spark_has_set(entrypoint: ModuleType) -> None:
    numbered = {f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in range(11)}
    command = [str(word) for word in entrypoint.command_of(["executor"], OF_EXECUTOR | numbered, HOME)]
    assert command[1:14] == [*(f"-Dn={number}" for number in range(11)), "-Xms1024m", "-Xmx1024m"]
    assert command[14:17] == ["-cp", "/opt/spark/conf:/opt/spark/jars/*", entrypoint.EXECUTOR]
    options = dict(zip(command[17::2], command[18::2], strict=True))
    assert options == {
        "--driver-url": "spark://driver", "--executor-id": "1", "--cores": "1", "--app-id": "spark-1",
        "--hostname": "10.1.2.3", "--resourceProfileId": "0", "--podName": "exec-1",
    }  # fmt: skip


def test_an_executor_that_spark_has_not_started_is_refused(entrypoint: ModuleType) -> None:
    with pytest.raises(MissingTool, match="started by Spark, which sets SPARK_APPLICATION_ID, SPARK_DRIVER_URL"):
        entrypoint.command_of(["executor"], {"SPARK_EXECUTOR_ID": "1"} | dict(list(OF_EXECUTOR.items())[4:]), HOME)


def test_a_driver_is_submitted_in_client_mode_at_the_address_of_its_pod(entrypoint: ModuleType) -> None:
    command = entrypoint.command_of(["driver", "main.py"], {"SPARK_DRIVER_BIND_ADDRESS": "10.1.2.3"}, HOME)
    assert command == [
        HOME / "bin" / "spark-submit", "--jars", "/jars/a.jar,/jars/b.jar",
        "--conf", "spark.driver.bindAddress=10.1.2.3", "--deploy-mode", "client", "main.py",
    ]  # fmt: skip


def test_a_pod_may_submit_its_own_job(entrypoint: ModuleType) -> None:
    command = entrypoint.command_of(["spark-submit", "--name", "x"], {}, HOME)
    assert command == [HOME / "bin" / "spark-submit", "--jars", "/jars/a.jar,/jars/b.jar", "--name", "x"]


def test_executors_that_a_driver_left_behind_are_deleted_and_no_others(entrypoint: ModuleType) -> None:
    owned = {"a-exec-1": [{"name": "isrwatch-job-0"}], "b-exec-1": [{"name": "other-job-0"}], "c-exec-1": []}
    asked = []

    def api(method: str, path: str) -> dict[str, Any]:
        asked.append((method, path))
        return {"items": [{"metadata": {"name": name, "ownerReferences": of}} for name, of in owned.items()]}

    assert entrypoint.delete_left("isrwatch-job-0", api) == ["a-exec-1"]
    assert asked == [("GET", "?labelSelector=spark-role%3Dexecutor"), ("DELETE", "/a-exec-1")]


DRIVER = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
print("the driver runs", flush=True)
time.sleep(60)
"""


def test_a_signal_is_for_the_driver_whose_exit_code_is_that_of_the_container(tmp_path: Path) -> None:
    launcher = tmp_path / "deploy/spark/main.py"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(DRIVER)
    submit = f"{sys.executable} {launcher}; exit $?"  # Java in place of the shell, which waits for its Python, too
    program = f"import runpy, sys; sys.exit(runpy.run_path({str(FILE)!r})['supervised'](['sh', '-c', {submit!r}]))"
    container = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert container.stdout is not None
    assert container.stdout.readline() == "the driver runs\n"
    container.terminate()
    assert container.wait(30) == 3


def test_everything_else_is_a_command_of_isrwatch() -> None:
    ran = subprocess.run(
        [sys.executable, FILE, "export", "--quux"], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (2, "No such option: --quux (see isrwatch export --help)\n")
