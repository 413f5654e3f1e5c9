"""The chart as helm renders it: what its objects mean to isrwatch, to Prometheus and to each other, with no server."""

from __future__ import annotations

import json
import re
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.render import rendered as generated
from deploy.images.plan import images as plan
from streaming.cluster_settings import each_cluster
from streaming.commands import COMMANDS, load
from streaming.settings import load as load_settings
from streaming.settings import settings_of
from tests.end_to_end.test_large_form import blocks_of
from tests.kubernetes.chart import CHART, forms, packaged, rendered, run_helm

pytestmark = [pytest.mark.kubernetes, pytest.mark.chart, pytest.mark.long]
ROOT = Path(__file__).parents[2]
FORMS = ("bare", "msk", "strimzi", "spark")
COMMANDS_OF = {"collector": "collect", "job": "job", "exporter": "export"}
ROUTES = {"collect": "streaming/web/status.py", "job": "streaming/web/status.py", "export": "exporters/web/server.py"}
HANGS = {"collector": "/-/alive", "job": "/-/alive", "exporter": "/-/healthy"}
"""What is 503 only while a program hangs: a probe that restarts it for anything else makes an outage longer."""


@cache
def objects_of(form: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        return rendered("--values", forms(Path(folder))[form])


@pytest.fixture(params=FORMS)
def objects(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return objects_of(request.param)


def named(objects: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


def workloads(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in objects if "template" in each.get("spec", {})]


def containers(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for pod in workloads(objects) for each in pod["spec"]["template"]["spec"]["containers"]}


def configuration(objects: list[dict[str, Any]], folder: Path) -> Path:
    file = folder / "isrwatch.toml"
    file.write_text(named(objects, "ConfigMap")["isrwatch"]["data"]["isrwatch.toml"])
    return file


def test_there_is_a_container_for_each_program_with_its_image(objects: list[dict[str, Any]]) -> None:
    registry = "registry.example.com/"  # of the examples, to be replaced
    images = {name: each["image"].removeprefix(registry) for name, each in containers(objects).items()}
    assert images == {"collector": plan().tag("slim"), "job": plan().tag("full"), "exporter": plan().tag("slim")}


def test_commands_and_options_exist(objects: list[dict[str, Any]]) -> None:
    for name, container in containers(objects).items():
        words, command = container["args"], COMMANDS_OF[name]
        if words[0] == "spark-submit":
            begin = words.index(f"{plan().home}/deploy/spark/main.py")
            words = [command, *words[begin + 1 :]]
        words = [part for word in words for part in word.split("=", 1)]
        assert (words[0], words[0] in COMMANDS) == (command, True)
        known = {option for parameter in load(command).params for option in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= known


def test_the_configuration_is_read_and_variables_are_keys_of_it(
    objects: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = configuration(objects, tmp_path)
    assert [each.cluster.name for each in each_cluster(file)]
    for name, container in containers(objects).items():
        with monkeypatch.context() as patched:
            for each in container["env"]:
                if each["name"].startswith("ISRWATCH_"):
                    patched.setenv(each["name"], each.get("value", "isrwatch-0").replace("$(POD_IP)", "10.1.2.3"))
            settings = load_settings(file)
        sections = {"collector": settings.collect, "job": settings.job, "exporter": settings.export}
        assert sections[name].listen == f"10.1.2.3:{container['ports'][0]['containerPort']}"
        written = [settings.bus.directory] if name == "collector" else []
        written += [settings.job.checkpoint] if name == "job" else []
        mounted = {each["mountPath"] for each in container["volumeMounts"] if not each.get("readOnly")}
        assert all(any(Path(place).is_relative_to(mount) for mount in mounted) for place in written)
        tables = settings.tables.directory
        assert tables.startswith("s3://") or any(mount["mountPath"] == "/data" for mount in container["volumeMounts"])


def test_probes_ask_what_they_mean(objects: list[dict[str, Any]]) -> None:
    for name, container in containers(objects).items():
        probes = [container[kind]["httpGet"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")]
        served = re.findall(r'Route\("(/-/\w+)"', (ROOT / ROUTES[COMMANDS_OF[name]]).read_text())
        assert [probe["path"] for probe in probes] == [HANGS[name], HANGS[name], "/-/ready"]
        assert {probe["path"] for probe in probes} <= set(served)
        assert {probe["port"] for probe in probes} == {name}


def test_no_container_may_gain_privileges_or_write_its_root_and_only_the_driver_has_a_token(
    objects: list[dict[str, Any]],
) -> None:
    for workload in workloads(objects):
        spec = workload["spec"]["template"]["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert "runAsUser" not in spec["securityContext"]
        assert spec["automountServiceAccountToken"] is workload["metadata"]["name"].endswith("-job")
        assert spec["enableServiceLinks"] is False
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
            }  # fmt: skip
            assert "/tmp" in {each["mountPath"] for each in container["volumeMounts"]}  # noqa: S108 - of the pod


def test_labels_ports_and_volumes_fit_together(objects: list[dict[str, Any]]) -> None:
    (exporter,) = [each for each in workloads(objects) if "exporter" in containers([each])]
    labels = exporter["spec"]["template"]["metadata"]["labels"]
    service = named(objects, "Service")["isrwatch"]["spec"]
    assert service["selector"].items() <= labels.items()
    assert service["ports"][0]["targetPort"] == "exporter"
    for workload in workloads(objects):
        spec = workload["spec"]["template"]["spec"]
        selector = workload["spec"]["selector"]["matchLabels"]
        assert selector.items() <= workload["spec"]["template"]["metadata"]["labels"].items()
        assert not any("version" in key or "chart" in key for key in selector)
        volumes = {each["name"] for each in spec["volumes"]}
        volumes |= {each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", [])}
        mounted = {each["name"] for container in spec["containers"] for each in container["volumeMounts"]}
        assert mounted == volumes
        policy = named(objects, "NetworkPolicy")["isrwatch"]["spec"]
        assert policy["podSelector"]["matchLabels"].items() <= selector.items()
        opened = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
        listening = {each["containerPort"] for container in spec["containers"] for each in container["ports"]}
        assert listening <= opened


def test_jobs_of_prometheus_have_the_names_that_the_alerts_select(objects: list[dict[str, Any]]) -> None:
    rules = generated(settings_of({}))["prometheus-rule.yaml"]
    (selected,) = set(re.findall(r'\bup\{job=~"([^"]+)"\}', rules))
    for monitor in named(objects, "PodMonitor").values():
        names = {each["port"]: each["relabelings"][0]["replacement"] for each in monitor["spec"]["podMetricsEndpoints"]}
        assert {port for port, name in names.items() if re.fullmatch(selected, name)} == {"collector", "job"}
        assert names["exporter"] == "isrwatch"


def test_rules_and_boards_have_links_to_the_address_of_the_exporter() -> None:
    url = "https://isrwatch.corp"
    objects = rendered("--values", CHART / "values-bare.yaml", "--set", f"settings.export.url={url}/")
    expected = generated(settings_of({"export": {"url": url}}))
    assert (
        named(objects, "PrometheusRule")["isrwatch"]["spec"] == yaml.safe_load(expected["prometheus-rule.yaml"])["spec"]
    )
    boards = [each["data"] for name, each in named(objects, "ConfigMap").items() if "-board-" in name]
    assert len(boards) == sum(name.endswith(".json") for name in expected)
    for data in boards:
        ((name, text),) = data.items()
        assert json.loads(text) == json.loads(expected[name])


def test_changed_alerts_ask_for_their_own_rules(tmp_path: Path) -> None:
    arguments = (
        "template",
        "x",
        packaged(),
        "--values",
        CHART / "values-bare.yaml",
        "--set",
        "settings.alerts.packs={slo}",
    )
    assert "isrwatch dashboards render" in run_helm(*arguments).stderr
    rules = tmp_path / "prometheus-rule.yaml"
    rules.write_text(generated(settings_of({"alerts": {"packs": ["slo"]}}))["prometheus-rule.yaml"])
    ran = run_helm(*arguments, "--set-file", f"prometheusRule.rendered={rules}")
    assert ran.returncode == 0, ran.stderr
    assert "IsrwatchAvailability" in ran.stdout
    whole = tmp_path / "isrwatch.toml"
    whole.write_text('[cluster]\nbootstrap_servers = "b:1"\n[alerts]\npacks = ["slo"]\n')
    ran = run_helm(
        "template", "x", packaged(), "--set", "prometheusRule.enabled=true", "--set-file", f"configuration={whole}"
    )
    assert "isrwatch dashboards render" in ran.stderr


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("colect.extraArgs={}", "additional properties 'colect' not allowed"),
        ("settings.collect.pol_interval=3s", "additional properties 'pol_interval' not allowed"),
        ("settings.collect.poll_interval=3", "at '/settings/collect/poll_interval': got number, want string"),
        ("persistence.size=20GB", "at '/persistence/size'"),
        ("clusters[0].bootstrap_server=b:1", "additional properties 'bootstrap_server' not allowed"),
    ],
)
def test_a_wrong_value_is_refused_with_a_sentence_that_names_it(wrong: str, sentence: str) -> None:
    ran = run_helm("template", "x", packaged(), "--values", CHART / "values-bare.yaml", "--set", wrong)
    assert ran.returncode != 0
    assert sentence in ran.stderr


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ((), "no Kafka cluster is named: set clusters, strimzi.clusters, or configuration"),
        (
            ("--values", f"{CHART}/values-bare.yaml", "--set", "settings.job.web_config_file=a"),
            "job.probe.scheme to HTTPS",
        ),
        (("--set", "strimzi.clusters[0].name=a,strimzi.clusters[0].namespace=kafka"), "cannot mount secrets of"),
        (("--values", f"{CHART}/values-bare.yaml", "--set", "mode=spark"), "set settings.bus.kafka.bootstrap_servers"),
    ],
)
def test_what_cannot_work_is_refused_with_the_fix(values: tuple[str, ...], sentence: str) -> None:
    ran = run_helm("template", "x", packaged(), *values)
    assert ran.returncode != 0
    assert sentence in ran.stderr


def test_the_page_of_strimzi_and_its_file_of_values_make_the_same_user_and_configuration(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    page = (ROOT / "docs" / "strimzi.md").read_text()
    file.write_text(next(block for language, block in blocks_of(page) if language == "yaml"))
    made = [rendered("--values", each) for each in (file, CHART / "values-strimzi.yaml")]
    for kind in ("KafkaUser", "ConfigMap"):
        first, second = (named(objects, kind) for objects in made)
        assert first.items() <= second.items()
    assert set(named(made[0], "KafkaUser")) == {"isrwatch-my-cluster"}


def test_the_login_of_a_user_that_was_made_elsewhere_is_in_the_secret_of_its_name(tmp_path: Path) -> None:
    objects = rendered(
        "--values",
        CHART / "values-strimzi.yaml",
        "--set",
        "strimzi.clusters[0].userName=bob,strimzi.clusters[0].name=a",
    )
    assert named(objects, "KafkaUser") == {}
    (settings,) = each_cluster(configuration(objects, tmp_path))
    assert settings.cluster.client["sasl.username"] == "bob"
    (workload,) = workloads(objects)
    secrets = {
        each["secret"]["secretName"] for each in workload["spec"]["template"]["spec"]["volumes"] if "secret" in each
    }
    assert secrets == {"bob", "a-cluster-ca-cert"}


def test_probes_and_prometheus_ask_as_the_program_is_served() -> None:
    secured = (
        "settings.export.telemetry_path=/prom",
        "settings.job.web_config_file=/etc/isrwatch-secrets/a.b/web.yml",
        "job.probe.scheme=HTTPS",
    )
    header = "job.probe.headers[0].name=Authorization,job.probe.headers[0].value=Basic eA=="
    sets = [part for each in (*secured, header, "secretFiles={a.b,kafka-login}") for part in ("--set", each)]
    objects = rendered("--values", CHART / "values-bare.yaml", *sets)
    for name, container in containers(objects).items():
        request = container["livenessProbe"]["httpGet"]
        assert request.get("scheme", "HTTP") == ("HTTPS" if name == "job" else "HTTP")
        assert request.get("httpHeaders", []) == (
            [{"name": "Authorization", "value": "Basic eA=="}] if name == "job" else []
        )
    endpoints = named(objects, "PodMonitor")["isrwatch"]["spec"]["podMetricsEndpoints"]
    assert {each["port"] for each in endpoints if each.get("scheme") == "https"} == {"job"}
    assert {each["port"]: each["path"] for each in endpoints if "path" in each} == {"exporter": "/prom"}
    (workload,) = workloads(objects)
    assert not any("." in each["name"] for each in workload["spec"]["template"]["spec"]["volumes"])


def test_on_openshift_no_group_is_named() -> None:
    openshift = ("--api-versions", "security.openshift.io/v1")
    for arguments, group in (((), 10001), (openshift, None), (("--set", "openshift=true"), None)):
        (workload,) = workloads(rendered("--values", CHART / "values-bare.yaml", *arguments))
        assert workload["spec"]["template"]["spec"]["securityContext"].get("fsGroup") == group


def test_a_release_whose_name_is_a_number_and_names_on_openshift_are_reached() -> None:
    egress = ("--set", "networkPolicy.egress.enabled=true", "--set", "openshift=true")
    ran = run_helm("template", "2026", packaged(), "--values", CHART / "values-bare.yaml", *egress)
    objects = [each for each in yaml.safe_load_all(ran.stdout) if each]
    assert {each["metadata"]["labels"]["app.kubernetes.io/instance"] for each in objects} == {"2026"}
    names = named(objects, "NetworkPolicy")["2026-isrwatch"]["spec"]["egress"][0]["ports"]
    assert {(each["port"], each["protocol"]) for each in names} == {
        (port, protocol) for port in (53, 5353) for protocol in ("TCP", "UDP")
    }  # the pods of OpenShift's DNS listen at 5353


def test_executors_are_as_the_bus_and_their_rights_ask(tmp_path: Path) -> None:
    objects = rendered("--values", forms(tmp_path)["spark"])
    words = containers(objects)["job"]["args"]
    given = dict(word.removeprefix("--conf=").split("=", 1) for word in words if word.startswith("--conf="))
    assert given["spark.executor.cores"] == "1"
    assert given["spark.kubernetes.authenticate.executor.serviceAccountName"] == "isrwatch"
    template = Path(given["spark.kubernetes.executor.podTemplateFile"])
    assert str(template.parent) in {each["mountPath"] for each in containers(objects)["job"]["volumeMounts"]}
    assert template.name in named(objects, "ConfigMap")["isrwatch-executor"]["data"]
    assert plan().variants["full"].files.count("deploy/spark/main.py") == 1


@pytest.mark.parametrize("form", FORMS)
def test_helm_3_makes_the_same_objects(form: str, tmp_path: Path) -> None:
    def key(each: dict[str, Any]) -> tuple[str, str]:
        return each["kind"], each["metadata"]["name"]

    older = rendered("--values", forms(tmp_path)[form], version=3)
    assert sorted(older, key=key) == sorted(objects_of(form), key=key)


def test_helm_finds_nothing_to_object(tmp_path: Path) -> None:
    for file in forms(tmp_path).values():
        ran = run_helm("lint", packaged(), "--strict", "--values", file)
        assert ran.returncode == 0, ran.stdout + ran.stderr
