"""Azurite, the server of Azure's blobs for tests, on a folder of this machine; it is exclusive.

Its only account and key are published, and the same everywhere. It verifies the signatures of requests with them.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tests.stores import programs
from tests.stores.serving import serving
from tests.stores.store import BUCKET, Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ACCOUNT: Final = "devstoreaccount1"
KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
VERSION: Final = "2021-08-06"
NO_HEADERS: Final = "\n" * 11  # of encoding, language, length, MD5, type, date, four conditions and range
READY: Final = r"Blob service successfully listens on http://127\.0\.0\.1:(\d+)"


@contextmanager
def azurite(folder: Path) -> Iterator[Store]:
    """Run Azurite with one container.

    Raises:
        MissingTool: it, or Node, is not here and cannot be installed.
    """
    data = folder / "azurite" / "data"
    data.mkdir(parents=True)
    command = [
        programs.node(), programs.azurite(), "--blobHost", "127.0.0.1", "--blobPort", "0", "--location", data,
        "--silent", "--disableTelemetry", "--skipApiVersionCheck",
    ]  # fmt: skip
    with serving(command, folder / "azurite", ready=READY) as said:
        port = int(said[1])
        _make_container(port)
        options = {
            "azure_endpoint": f"http://127.0.0.1:{port}/{ACCOUNT}",
            "azure_storage_account_name": ACCOUNT,
            "azure_storage_account_key": KEY,
            "azure_allow_http": "true",
        }
        yield Store(url=f"az://{BUCKET}", port=port, options=options)


def _make_container(port: int) -> None:
    """Make the container with a request that is signed with the key of the account (Azure's "Shared Key")."""
    date = dt.datetime.now(dt.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    named = f"x-ms-date:{date}\nx-ms-version:{VERSION}\n/{ACCOUNT}/{ACCOUNT}/{BUCKET}\nrestype:container"
    signed = hmac.digest(base64.b64decode(KEY), f"PUT\n{NO_HEADERS}{named}".encode(), hashlib.sha256)
    headers = {
        "x-ms-date": date,
        "x-ms-version": VERSION,
        "Content-Length": "0",
        "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(signed).decode()}",
    }
    url = f"http://127.0.0.1:{port}/{ACCOUNT}/{BUCKET}?restype=container"
    request = urllib.request.Request(url, method="PUT", headers=headers)
    urllib.request.urlopen(request, timeout=30).close()  # noqa: S310
