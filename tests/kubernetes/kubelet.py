"""The stand-in for the kubelet: runs the pods of the API server as processes of this machine, and reports on them.

It does what a kubelet does with the pods that isrwatch and Spark make: volumes, variables, probes, restarts, the grace
period of a deletion. A pod that asks for something else fails the test. There is one node, and each pod gets an address
of its own in 127.0.0.0/8. There are no network policies, limits, users, images to pull, or addresses of services: pods
find each other by their own addresses, and by the names of headless services, which are written to ``/etc/hosts``.
"""

from __future__ import annotations

import base64
import re
import signal
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.kubernetes.containers import Container
from tests.kubernetes.control_plane import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.kubernetes.containers import Image
    from tests.kubernetes.control_plane import Api

NODE: Final = "stand-in"
LOOK_SECONDS: Final = 0.5
PAUSE_SECONDS: Final = 2.0
"""Before a container is started again: a kubelet begins with 10 seconds, and doubles that."""
STRATEGIC: Final = "application/strategic-merge-patch+json"
UNKNOWN: Final = frozenset({"initContainers", "hostNetwork", "hostPID", "ephemeralContainers"})


class Kubelet:
    """Runs every pod until it is closed.

    Attributes:
        pods: those that are there, by name.
    """

    def __init__(self, api: Api, of: Image, folder: Path) -> None:
        self.api, self.image, self.folder = api, of, folder
        self.pods: dict[str, Pod] = {}
        self.failures: list[str] = []
        self._addresses = 1
        self._services: list[dict[str, Any]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)

    def start(self) -> None:
        """Start it."""
        self._thread.start()

    def close(self) -> None:
        """End every pod, and itself."""
        self._ended.set()
        self._thread.join()
        for pod in list(self.pods.values()):
            pod.close()

    def next_address(self) -> str:
        """Return an address that no pod has had."""
        self._addresses += 1
        return f"127.0.{1 + self._addresses // 250}.{1 + self._addresses % 250}"

    def names(self) -> list[str]:
        """Name the pods that there are, or were."""
        return sorted({file.parent.name for file in self.folder.glob("*/*/*/log")})

    def log(self, name: str) -> str:
        """Return what the containers of a pod have printed, also of one that is gone."""
        files = sorted(self.folder.glob(f"{name}/*/{name}/log"))
        return "\n".join(file.read_text(errors="replace") for file in files)

    def hosts(self, namespace: str) -> str:
        """Return the names of the headless services of a namespace, as ``/etc/hosts`` has them."""
        lines = []
        for service in self._services:
            if service["metadata"]["namespace"] != namespace:
                continue
            chosen = (service["spec"].get("selector") or {}).items()
            name = service["metadata"]["name"]
            lines += [
                f"{pod.address} {name}.{namespace}.svc {name}.{namespace} {name}"
                for pod in list(self.pods.values())
                if chosen and chosen <= pod.manifest["metadata"].get("labels", {}).items()
            ]
        return "".join(f"{line}\n" for line in lines)

    def _run(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            try:
                found = {each["metadata"]["uid"]: each for each in self.api.objects("/api/v1/pods")}
                self._services = self.api.objects("/api/v1/services")
            except OSError:
                continue
            known = {pod.uid for pod in self.pods.values()}
            for pod in list(self.pods.values()):
                pod.seen(found.get(pod.uid))
            for name in [name for name, pod in self.pods.items() if pod.is_over]:
                del self.pods[name]
            for uid, manifest in found.items():
                name = manifest["metadata"]["name"]
                if uid not in known and name not in self.pods and "deletionTimestamp" not in manifest["metadata"]:
                    self.pods[name] = Pod(self, manifest)


class Pod:
    """A pod, which a thread of its own binds, looks after and deletes; each of its containers has a thread, too.

    Attributes:
        members: its containers, by name; empty until it is bound.
    """

    def __init__(self, kubelet: Kubelet, manifest: dict[str, Any]) -> None:
        metadata = manifest["metadata"]
        self.manifest, self.uid = manifest, metadata["uid"]
        self.name, self.namespace = metadata["name"], metadata["namespace"]
        self.address = kubelet.next_address()
        self.members: dict[str, Member] = {}
        self.is_over = False
        self.kubelet = kubelet
        self._api = kubelet.api
        self._path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
        self.folder = kubelet.folder / self.name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.deleted: float | None = None  # the seconds of its grace
        self._closing = threading.Event()
        self._status = threading.Lock()
        self._thread = threading.Thread(target=self._supervised, name=self.name, daemon=True)
        self._thread.start()

    def seen(self, manifest: dict[str, Any] | None) -> None:
        """Take note of what the API server has of it: None once it is gone."""
        if manifest is None:
            self.deleted = 0.0
        elif "deletionTimestamp" in manifest["metadata"]:
            self.deleted = float(manifest["metadata"].get("deletionGracePeriodSeconds", 30))
        else:
            self.manifest = manifest

    @property
    def container(self) -> Container | None:
        """The container of a pod that has one."""
        (member,) = self.members.values() or (None,)
        return member.container if member else None

    @property
    def restarts(self) -> int:
        """How often its containers were started again."""
        return sum(member.restarts for member in self.members.values())

    @property
    def is_ready(self) -> bool:
        """True while each of its containers is ready."""
        return bool(self.members) and all(member.is_ready for member in self.members.values())

    @property
    def runs(self) -> bool:
        """True while its containers run, and are to."""
        return bool(self.members) and self.deleted is None and all(each.runs for each in self.members.values())

    def kill(self) -> None:
        """Kill the first process of its container, as a lack of memory does."""
        assert self.container is not None
        self.container.signal(signal.SIGKILL)

    def close(self) -> None:
        """End its containers."""
        self._closing.set()
        for member in self.members.values():
            if member.container is not None:
                member.container.signal(signal.SIGKILL)
        self._thread.join(30)

    def is_ending(self) -> bool:
        """Return whether its containers are to end."""
        return self.deleted is not None or self._closing.is_set()

    def wait(self, seconds: float) -> None:
        """Wait, unless it is closed."""
        self._closing.wait(seconds)

    def _supervised(self) -> None:
        try:
            self._run()
        except Exception as failure:  # noqa: BLE001 - of a thread, which the test looks at
            self.kubelet.failures.append(f"{self.name}: {failure!r}")
        self.is_over = True

    def _run(self) -> None:
        spec = self.manifest["spec"]
        if unknown := UNKNOWN & {name for name, value in spec.items() if value}:
            raise NotImplementedError(f"the stand-in knows no {', '.join(unknown)}")
        binding = {"metadata": {"name": self.name}, "target": {"kind": "Node", "name": NODE}}
        self._api.call("POST", f"{self._path}/binding", binding)
        volumes = {each["name"]: self._volume(each) for each in spec.get("volumes", [])}
        self.members = {each["name"]: Member(self, each, volumes) for each in spec["containers"]}
        for member in self.members.values():
            member.start()
        for member in self.members.values():
            member.join()
        if not self._closing.is_set():
            gone = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
            with suppress(Refused):  # whoever deletes it at once was faster
                self._api.call("DELETE", self._path, {"kind": "DeleteOptions", "apiVersion": "v1", **gone})

    def hosts(self) -> str:
        """Return the file of names of its containers."""
        return f"127.0.0.1 localhost\n{self.address} {self.name}\n{self.kubelet.hosts(self.namespace)}"

    def report(self) -> None:
        """Write the status of the pod."""
        with self._status:
            members = self.members.values()
            codes = {each.ended_for_good for each in members}
            phase = "Running" if None in codes else "Succeeded" if codes == {0} else "Failed"
            ready = str(self.is_ready)
            names = {"PodScheduled": "True", "Initialized": "True", "ContainersReady": ready, "Ready": ready}
            status = {
                "phase": phase, "podIP": self.address, "podIPs": [{"ip": self.address}], "hostIP": "127.0.0.1",
                "startTime": _now(), "containerStatuses": [each.status() for each in members],
                "conditions": [{"type": name, "status": value} for name, value in names.items()],
            }  # fmt: skip
            with suppress(Refused):  # it may be gone
                self._api.call("PATCH", f"{self._path}/status", {"status": status}, STRATEGIC)

    def variables(self, described: dict[str, Any]) -> dict[str, str]:
        """Return the variables of a container: a kubelet adds those of the API server's service."""
        found = {
            "HOSTNAME": self.name, "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self._api.port),
        }  # fmt: skip
        for source in described.get("envFrom", []):
            for kind, path in (("secretRef", "secrets"), ("configMapRef", "configmaps")):
                if kind in source:
                    found |= {name: text.decode() for name, text in self._data(path, source[kind]["name"]).items()}
        for each in described.get("env", []):
            origin = each.get("valueFrom", {})
            if "fieldRef" in origin:
                value = self._field(origin["fieldRef"]["fieldPath"])
            elif "secretKeyRef" in origin:
                reference = origin["secretKeyRef"]
                value = self._data("secrets", reference["name"])[reference["key"]].decode()
            elif origin:
                raise NotImplementedError(f"the stand-in knows no variable from {origin}")
            else:
                value = expanded(each.get("value", ""), found)
            found[each["name"]] = value
        return found

    def _field(self, path: str) -> str:
        own = {"status.podIP": self.address, "status.hostIP": "127.0.0.1", "spec.nodeName": NODE}
        if path in own:
            return own[path]
        value: Any = self.manifest
        for key in path.split("."):
            value = value[key]
        return str(value)

    def _data(self, kind: str, name: str) -> dict[str, bytes]:
        """Return the files of a configuration or a secret, once it is there."""
        while True:
            try:
                found = self._api.call("GET", f"/api/v1/namespaces/{self.namespace}/{kind}/{name}")
            except Refused as refused:
                if refused.code != 404 or self.is_ending():
                    raise
                time.sleep(LOOK_SECONDS)
                continue
            data = found.get("data") or {}
            return {key: base64.b64decode(text) if kind == "secrets" else text.encode() for key, text in data.items()}

    def _volume(self, described: dict[str, Any]) -> Path:
        folder = self.folder / "volumes" / described["name"]
        folder.mkdir(parents=True, exist_ok=True)
        (kind,) = described.keys() - {"name"}
        source = described[kind]
        if kind == "persistentVolumeClaim":
            folder = self.kubelet.folder / "claims" / source["claimName"]
            folder.mkdir(parents=True, exist_ok=True)
        elif kind in {"configMap", "secret", "projected"}:
            for each in source["sources"] if kind == "projected" else [{kind: source}]:
                for name, content in self._projected(each).items():
                    (folder / name).write_bytes(content)
        elif kind != "emptyDir":
            raise NotImplementedError(f"the stand-in knows no volume of {kind}")
        return folder

    def _projected(self, source: dict[str, Any]) -> dict[str, bytes]:
        ((kind, described),) = source.items()
        if kind == "serviceAccountToken":
            account = self.manifest["spec"]["serviceAccountName"]
            path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token"
            spec = {"expirationSeconds": described["expirationSeconds"]}
            return {described["path"]: self._api.call("POST", path, {"spec": spec})["status"]["token"].encode()}
        if kind == "downwardAPI":
            return {each["path"]: self._field(each["fieldRef"]["fieldPath"]).encode() for each in described["items"]}
        name = described.get("name") or described["secretName"]
        data = self._data("secrets" if kind == "secret" else "configmaps", name)
        if items := described.get("items"):
            return {each["path"]: data[each["key"]] for each in items}
        return data


class Member:
    """A container of a pod: started, asked by its probes, and started again by a thread of its own."""

    def __init__(self, pod: Pod, described: dict[str, Any], volumes: Mapping[str, Path]) -> None:
        self.described, self.restarts, self.is_ready = described, 0, False
        self.container: Container | None = None
        self.ended_for_good: int | None = None
        self.answered: float | None = None
        """Seconds from its start until its start probe passed, or would have without one."""
        self._pod, self._volumes = pod, volumes
        self._state: dict[str, Any] = {"waiting": {"reason": "ContainerCreating"}}
        self._thread = threading.Thread(target=self._supervised, name=f"{pod.name} {described['name']}", daemon=True)

    def start(self) -> None:
        """Start it."""
        self._thread.start()

    def join(self) -> None:
        """Wait until it has ended, and is not to be started again."""
        self._thread.join()

    @property
    def runs(self) -> bool:
        """True while its process runs."""
        return self.container is not None and self.container.ended is None

    def status(self) -> dict[str, Any]:
        """Return what a kubelet says of it."""
        return {
            "name": self.described["name"], "ready": self.is_ready, "restartCount": self.restarts, "state": self._state,
            "image": self.described["image"], "imageID": "", "started": True,
        }  # fmt: skip

    def _supervised(self) -> None:
        try:
            self._run()
        except Exception as failure:  # noqa: BLE001 - of a thread, which the test looks at
            self._pod.kubelet.failures.append(f"{self._pod.name} {self.described['name']}: {failure!r}")

    def _run(self) -> None:
        policy = self._pod.manifest["spec"]["restartPolicy"]
        while not self._pod.is_ending():
            code = self._until_end()
            if self._pod.is_ending():
                break
            if policy == "Never" or (policy == "OnFailure" and code == 0):
                self.ended_for_good = code
                self._show({"terminated": {"exitCode": code}})
                while not self._pod.is_ending():
                    time.sleep(LOOK_SECONDS)
                break
            self.restarts += 1
            self._show({"waiting": {"reason": "CrashLoopBackOff", "message": f"exit code {code}"}})
            self._pod.wait(PAUSE_SECONDS)

    def _show(self, state: dict[str, Any]) -> None:
        self._state = state
        self._pod.report()

    def _until_end(self) -> int:
        """Run the container once, and return its exit code."""
        pod, described = self._pod, self.described
        volumes = described.get("volumeMounts", [])
        mounts = {each["mountPath"]: self._volumes[each["name"]] / each.get("subPath", "") for each in volumes}
        image = pod.kubelet.image
        variables = pod.variables(described)
        words = [*described.get("command", image.entrypoint), *described.get("args", [])]
        command = [expanded(word, variables) for word in words]
        folder = pod.folder / described["name"] / pod.name
        folder.mkdir(parents=True, exist_ok=True)
        hosts = folder / "hosts"
        hosts.write_text(pod.hosts())
        self.container = Container(
            folder, image, command, variables, {**mounts, "/etc/hosts": hosts},
            is_read_only=described.get("securityContext", {}).get("readOnlyRootFilesystem", False),
            protected=frozenset(each["mountPath"] for each in volumes if each.get("readOnly")),
        )  # fmt: skip
        self.container.start()
        began, probes = time.monotonic(), Probes(described, pod.address)
        self._show({"running": {"startedAt": _now()}})
        while (code := self.container.ended) is None:
            if pod.is_ending():
                self.container.stop(pod.deleted or 0.0)
                continue
            hosts.write_text(pod.hosts())
            ready = probes.is_ready()
            if probes.is_dead:
                print(f"{pod.name} {described['name']}: a probe ends it after {time.monotonic() - began:.0f} s")
                self.container.stop(float(pod.manifest["spec"].get("terminationGracePeriodSeconds", 30)))
                continue
            if self.answered is None and probes.has_started:
                self.answered = time.monotonic() - began
            if ready != self.is_ready:
                self.is_ready = ready
                self._show({"running": {"startedAt": _now()}})
            time.sleep(LOOK_SECONDS)
        self.is_ready = False
        return code


class Probes:
    """The probes of a container, as a kubelet asks them."""

    def __init__(self, described: dict[str, Any], address: str) -> None:
        kinds = {"startup": "startupProbe", "liveness": "livenessProbe", "readiness": "readinessProbe"}
        ports = {each["name"]: each["containerPort"] for each in described.get("ports", [])}
        self._probes = {kind: Probe(described[key], address, ports) for kind, key in kinds.items() if key in described}
        self.is_dead = False

    @property
    def has_started(self) -> bool:
        """True once the start probe has passed."""
        return "startup" not in self._probes or self._probes["startup"].has_passed

    def is_ready(self) -> bool:
        """Ask those whose time has come, and return whether the container is ready."""
        startup = self._probes.get("startup")
        if startup is not None and not startup.has_passed:
            startup.ask()
            self.is_dead = startup.has_failed
            return False
        for kind in ("liveness", "readiness"):
            if kind in self._probes:
                self._probes[kind].ask()
        self.is_dead = "liveness" in self._probes and self._probes["liveness"].has_failed
        return "readiness" not in self._probes or self._probes["readiness"].is_good


class Probe:
    """One probe, by HTTP."""

    def __init__(self, described: dict[str, Any], address: str, ports: dict[str, int]) -> None:
        request = described["httpGet"]
        self._url = f"http://{address}:{ports.get(request['port'], request['port'])}{request['path']}"
        self._described = described
        self._next = time.monotonic() + described.get("initialDelaySeconds", 0)
        self._failures = 0
        self.is_good, self.has_passed, self.has_failed = False, False, False

    def ask(self) -> None:
        """Ask if its time has come."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._described["periodSeconds"]
        try:
            with urllib.request.urlopen(self._url, timeout=self._described["timeoutSeconds"]) as answer:  # noqa: S310 - HTTP
                passed = answer.status < 400
        except (urllib.error.URLError, OSError):
            passed = False
        self._failures = 0 if passed else self._failures + 1
        self.has_passed |= passed
        self.has_failed = self._failures >= self._described["failureThreshold"]
        self.is_good = passed or (self.is_good and not self.has_failed)


def expanded(text: str, variables: dict[str, str]) -> str:
    """Replace ``$(NAME)`` by a variable; what is unknown stays, and ``$$`` is one dollar."""
    return re.sub(
        r"\$\$|\$\((\w+)\)", lambda found: "$" if found[1] is None else variables.get(found[1], found[0]), text
    )


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
