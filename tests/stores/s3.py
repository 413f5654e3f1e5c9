"""Servers of S3: moto of ``make test``, versitygw on a folder of this machine, and s3proxy, which is not exclusive.

Each starts empty, with one bucket. versitygw verifies the signature of a request, so it refuses another key; moto and
s3proxy take any.
"""

from __future__ import annotations

import os
import sys
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from deploy.sandbox.waiting import wait_until
from streaming.runtime.jars import jar_paths
from streaming.runtime.java import find_java
from tests.plugins.local_http import free_port
from tests.stores import programs
from tests.stores.serving import listens, serving
from tests.stores.store import BUCKET, Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ACCESS_KEY: Final = "isrwatch-test-key"
SECRET_KEY: Final = "isrwatch-test-secret"  # noqa: S105 - of servers on 127.0.0.1 that live as long as a test
REGION: Final = "us-east-1"
JAVA: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
LOGGING: Final = """\
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%msg%n</pattern></encoder>
  </appender>
  <root level="info"><appender-ref ref="out"/></root>
</configuration>
"""


MOTO: Final = """\
import time
from threading import Lock
from moto.s3.models import S3Backend
from moto.s3.responses import S3Response
from moto.server import main

one_at_a_time, answer, write = Lock(), S3Response.put_object, S3Backend.put_object

def answered(self):
    with one_at_a_time:
        return answer(self)

def written(self, *arguments, **options):
    time.sleep({seconds})
    return write(self, *arguments, **options)

S3Response.put_object, S3Backend.put_object = answered, written
main()
"""


@contextmanager
def moto(folder: Path, seconds: float = 0.0) -> Iterator[Store]:
    """Run moto, an S3 server in memory: 0.6 seconds to start, and exclusive.

    Its threads look whether a name exists, and write it ``seconds`` later, so only one of them may put at a time.
    """
    command = [sys.executable, "-c", MOTO.format(seconds=seconds), "-H", "127.0.0.1", "-p", "0"]
    with serving(command, folder / "moto", ready=r"Running on http://127\.0\.0\.1:(\d+)") as said:
        yield _with_bucket(int(said[1]))


@contextmanager
def versitygw(folder: Path) -> Iterator[Store]:
    """Run versitygw: a bucket is a folder, an object a file of it.

    Raises:
        MissingTool: it is not here and cannot be built.
    """
    port, buckets = free_port(), folder / "versitygw" / "buckets"
    buckets.mkdir(parents=True)
    command = [programs.versitygw(), "--port", f"127.0.0.1:{port}", "--keep-alive", "posix", "--sidecar"]
    keys = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
    sidecar = folder / "versitygw" / "metadata"  # else it needs a file system with extended attributes
    sidecar.mkdir()
    with serving(
        [*command, sidecar, buckets],
        folder / "versitygw",
        ready=f"http://127.0.0.1:{port}",
        environment=os.environ | keys,
    ):
        wait_until(lambda: listens(port), f"versitygw to listen at {port}")  # it says so a moment before
        yield _with_bucket(port)


@contextmanager
def s3proxy(folder: Path) -> Iterator[Store]:
    """Run s3proxy on a folder: it takes ``If-None-Match``, but looks and writes in two steps, so several may win.

    Raises:
        MissingTool: a jar of it, or Java, is missing and cannot be fetched.
    """
    root = folder / "s3proxy"
    (root / "data").mkdir(parents=True)
    (root / "logback.xml").write_text(LOGGING, encoding="utf-8")
    properties = {
        "s3proxy.authorization": "none",
        "s3proxy.endpoint": "http://127.0.0.1:0",
        "jclouds.provider": "filesystem-nio2",
        "jclouds.filesystem.basedir": str(root / "data"),
        "jclouds.identity": "any",
        "jclouds.credential": "any",
    }
    text = "".join(f"{name}={value}\n" for name, value in properties.items())
    (root / "s3proxy.properties").write_text(text, encoding="utf-8")
    command = [
        find_java().executable, *JAVA, f"-Dlogback.configurationFile={root / 'logback.xml'}",
        "-cp", ":".join(map(str, jar_paths("test-s3proxy"))), "org.gaul.s3proxy.Main",
        "--properties", root / "s3proxy.properties",
    ]  # fmt: skip
    with serving(command, root, ready=r"(?s)127\.0\.0\.1:(\d+)\}.*Started Server@") as said:
        yield _with_bucket(int(said[1]))


def _with_bucket(port: int) -> Store:
    """Make the bucket, and return what a client needs to use it."""
    request = AWSRequest("PUT", f"http://127.0.0.1:{port}/{BUCKET}")
    S3SigV4Auth(Credentials(ACCESS_KEY, SECRET_KEY), "s3", REGION).add_auth(request)
    signed = urllib.request.Request(request.url, method="PUT", headers=dict(request.headers))  # noqa: S310 - our own
    urllib.request.urlopen(signed, timeout=30).close()  # noqa: S310
    options = {
        "aws_endpoint": f"http://127.0.0.1:{port}",
        "aws_access_key_id": ACCESS_KEY,
        "aws_secret_access_key": SECRET_KEY,
        "aws_region": REGION,
        "aws_allow_http": "true",
    }
    return Store(url=f"s3://{BUCKET}", port=port, options=options)
