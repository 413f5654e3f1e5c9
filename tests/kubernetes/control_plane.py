"""A real Kubernetes without machines: etcd, kube-apiserver, and the controllers of the workloads in ``deploy``.

Each is a process of this machine at 127.0.0.1; nothing runs a pod (``kubelet.py`` stands in for that). Whoever asks has
a token, and may do what the rules of its account (RBAC) say; the token of ``ADMIN`` is in ``system:masters``.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.kubernetes.programs import program
from tests.plugins.local_http import free_port, wait_until
from tests.stores.serving import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

ADMIN: Final = "token-of-the-tests"
SERVICE_ADDRESSES: Final = "10.0.0.0/24"
CONTROLLERS: Final = (
    "deployment-controller", "replicaset-controller", "statefulset-controller", "garbage-collector-controller",
    "namespace-controller", "persistentvolumeclaim-protection-controller", "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
)  # fmt: skip
KUBECONFIG: Final = """\
apiVersion: v1
kind: Config
clusters: [{{name: tests, cluster: {{server: "{url}", certificate-authority: "{authority}"}}}}]
users: [{{name: tests, user: {{token: {token}}}}}]
contexts: [{{name: tests, context: {{cluster: tests, user: tests}}}}]
current-context: tests
"""


class Refused(Exception):
    """The API server has said no: ``code`` is that of HTTP."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Api:
    """The API server, as one of its users sees it.

    Attributes:
        port: at 127.0.0.1.
        authority: the file of the certificate that it is trusted by.
        folder: of the files of its user.
        token: of the user.
    """

    port: int
    authority: Path
    folder: Path
    token: str = ADMIN

    @property
    def url(self) -> str:
        """Its address."""
        return f"https://127.0.0.1:{self.port}"

    def kubeconfig(self, file: Path) -> Path:
        """Write the file by which kubectl and Spark find it."""
        file.write_text(KUBECONFIG.format(url=self.url, authority=self.authority, token=self.token))
        return file

    def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """Make a request, and return what was answered.

        Raises:
            Refused: with the server's message.
        """
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, method=method, data=data, headers=headers)  # noqa: S310 - HTTPS
        try:
            with urllib.request.urlopen(  # noqa: S310 - HTTPS
                request, timeout=30, context=ssl.create_default_context(cafile=self.authority)
            ) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            message = json.loads(text)["message"] if text.startswith("{") else text
            raise Refused(error.code, message) from None

    def objects(self, path: str) -> list[dict[str, Any]]:
        """Return the objects of a list."""
        return list(self.call("GET", path)["items"])

    def kubectl(self, *arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl."""
        return subprocess.run(
            [program("kubectl"), "--kubeconfig", self.folder / "kubeconfig", *arguments], input=given,
            capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip


@contextmanager
def control_plane(folder: Path) -> Iterator[Api]:
    """Run Kubernetes without nodes.

    Raises:
        MissingTool: a program of it is not here and cannot be built.
    """
    folder.mkdir(parents=True, exist_ok=True)
    keys = _keys(folder)
    with ExitStack() as stack:
        etcd = _etcd(stack, folder)
        port = free_port()
        stack.enter_context(_api_server(folder, etcd, port, keys))
        api = Api(port, folder / "certificates" / "apiserver.crt", folder)
        api.kubeconfig(folder / "kubeconfig")
        wait_until(lambda: _is_ready(api), what="the API server is ready")
        stack.enter_context(_controllers(folder, api, keys))
        wait_until(
            lambda: any(each["metadata"]["name"] == "default" for each in api.objects("/api/v1/serviceaccounts")),
            what="the controllers work",
        )
        yield api


def _keys(folder: Path) -> Path:
    """Make the key that signs the tokens of service accounts, and the file of the tokens of people."""
    key = folder / "accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    (folder / "tokens.csv").write_text(f'{ADMIN},tests,tests,"system:masters"\n')
    return key


def _etcd(stack: ExitStack, folder: Path) -> str:
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    command = [
        program("etcd"), "--data-dir", folder / "etcd" / "data", "--listen-client-urls", client,
        "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
        "--initial-cluster", f"default={peer}", "--unsafe-no-fsync",
    ]  # fmt: skip
    stack.enter_context(serving(command, folder / "etcd", ready="ready to serve client requests"))
    return client


def _api_server(folder: Path, etcd: str, port: int, key: Path) -> Any:
    command = [
        program("kube-apiserver"), "--etcd-servers", etcd, "--bind-address", "127.0.0.1", "--secure-port", f"{port}",
        "--cert-dir", folder / "certificates", "--authorization-mode", "RBAC", "--token-auth-file",
        folder / "tokens.csv", "--service-cluster-ip-range", SERVICE_ADDRESSES, "--service-account-issuer",
        "https://tests", "--service-account-key-file", key, "--service-account-signing-key-file", key,
        "--endpoint-reconciler-type", "none", "--external-hostname", "127.0.0.1",
    ]  # fmt: skip
    return serving([*command], folder / "apiserver", ready="Serving securely")


def _controllers(folder: Path, api: Api, key: Path) -> Any:
    command = [
        program("kube-controller-manager"), "--kubeconfig", api.folder / "kubeconfig", "--leader-elect=false",
        "--bind-address", "127.0.0.1", "--secure-port", f"{free_port()}", "--cert-dir", folder / "controllers",
        "--controllers", ",".join(CONTROLLERS), "--service-account-private-key-file", key,
        "--root-ca-file", api.authority,
    ]  # fmt: skip
    return serving([*command], folder / "controllers", ready="Serving securely")


def _is_ready(api: Api) -> bool:
    try:
        api.call("GET", "/apis/apps/v1")
        return bool(api.objects("/api/v1/namespaces"))
    except (Refused, OSError):
        return False
