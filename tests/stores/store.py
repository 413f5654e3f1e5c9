"""A bucket that a test may write to: its address, and the options of a client. Depends on no server."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from obstore.store import from_url

if TYPE_CHECKING:
    from obstore.store import ObjectStore

BUCKET: Final = "isrwatch"
CLIENT: Final = ("allow_http",)
"""Settings of the HTTP client. object_store reads them with the store's prefix, as delta-rs passes them on; obstore
wants them apart, and breaks down when one is among the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A bucket of a running server.

    Attributes:
        url: the bucket, such as ``s3://isrwatch``; for HDFS a folder, ``hdfs://127.0.0.1:PORT/isrwatch``.
        options: configuration keys of object_store, as delta-rs takes them; none for HDFS.
        port: where the server listens on 127.0.0.1; in ``options`` or ``url``, too.
    """

    url: str
    port: int
    options: dict[str, str] = field(default_factory=dict)

    @property
    def scheme(self) -> str:
        """What the URL begins with, such as ``s3``."""
        return self.url.partition("://")[0]

    def behind(self, port: int) -> Store:
        """Return the same bucket, reached through another port of this machine."""
        here, there = f"127.0.0.1:{self.port}", f"127.0.0.1:{port}"
        options = {name: value.replace(here, there) for name, value in self.options.items()}
        return replace(self, url=self.url.replace(here, there), port=port, options=options)

    def opened(self, **client: Any) -> ObjectStore:
        """Open it with obstore; ``client`` has more settings of the HTTP client, and ``retry_config``. Not for HDFS."""
        retry = {"retry_config": client.pop("retry_config")} if "retry_config" in client else {}
        client |= {name: self._of_client(name) for name in CLIENT if self._of_client(name)}
        own = {name: value for name, value in self.options.items() if not name.endswith(CLIENT)}
        return from_url(self.url, config=own, client_options=client, **retry)

    def _of_client(self, name: str) -> str:
        return next((value for key, value in self.options.items() if key.endswith(name)), "")
