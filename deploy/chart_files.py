"""Builds the chart of Kubernetes for a release, and derives from the configuration what its values may be.

``python -m deploy.chart_files DIST`` writes ``isrwatch-VERSION.tgz`` as ``helm package`` does, reproducibly.
``--schema`` writes the part of ``values.schema.json`` that follows from ``streaming/settings.py``.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import tarfile
import typing
from dataclasses import is_dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from dashboards.render import rendered
from streaming.alert_settings import AlertChange
from streaming.durations import DURATION, FOREVER
from streaming.settings import PLATFORMS, ClusterSettings, CollectSettings, Duration, Settings, settings_of

if TYPE_CHECKING:
    from collections.abc import Iterator

CHART: Final = Path(__file__).parent / "chart"
SCHEMA: Final = CHART / "values.schema.json"
ADDRESS: Final = "https://address-of-the-exporter"
"""Stands in the linked rules and boards for ``settings.export.url``, which is known when the chart is installed."""
ELSEWHERE: Final = frozenset({"cluster", "server"})
"""Sections of the configuration that are no settings of the chart: clusters are values of their own."""
_DURATION: Final = {"type": "string", "pattern": f"^({DURATION.pattern}|{FOREVER})$"}
_PLAIN: Final[dict[Any, dict[str, Any]]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    tuple[str, ...]: {"type": "array", "items": {"type": "string"}},
    dict[str, str]: {"type": "object", "additionalProperties": {"type": "string"}},
    dict[str, AlertChange]: {"type": "object", "additionalProperties": {"type": "object"}},
}


def table_schema(cls: type) -> dict[str, Any]:
    """Return the JSON schema of a table of ``isrwatch.toml``: every key, its type, and no other key."""
    plain, annotated = typing.get_type_hints(cls), typing.get_type_hints(cls, include_extras=True)
    keys = {
        name: _DURATION
        if annotated[name] == Duration
        else table_schema(hint)
        if is_dataclass(hint) and isinstance(hint, type)
        else _PLAIN[hint]
        for name, hint in plain.items()
    }
    return {"type": "object", "properties": keys, "additionalProperties": False}


def derived() -> dict[str, dict[str, Any]]:
    """Return the schemas of the values that are sections of the configuration."""
    sections = table_schema(Settings)
    for name in ELSEWHERE:
        del sections["properties"][name]
    cluster = table_schema(ClusterSettings)
    cluster["properties"]["collect"] = table_schema(CollectSettings)
    cluster["properties"]["platform"] = {"enum": ["", *PLATFORMS]}
    cluster["required"] = ["name", "bootstrap_servers"]
    return {"settings": sections, "clusters": {"type": "array", "items": cluster}}


def schema() -> str:
    """Return ``values.schema.json`` with the derived parts as they are now."""
    document = json.loads(SCHEMA.read_text(encoding="utf-8"))
    document["properties"] |= derived()
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


@cache
def files() -> dict[str, bytes]:
    """Return the files of the chart as it is released, by their paths in it, in order.

    Rules and boards are those of ``dashboards/generated``, and the same with links.
    """
    ignored = [line for line in (CHART / ".helmignore").read_text().splitlines() if line and not line.startswith("#")]
    contents = {str(path.relative_to(CHART)): path.read_bytes() for path in _walk(CHART)}
    linked = rendered(settings_of({"export": {"url": ADDRESS}}))
    contents |= {f"linked/{name}": text.encode() for name, text in linked.items() if f"generated/{name}" not in ignored}
    return {name: contents[name] for name in sorted(contents) if not any(fnmatch(name, each) for each in ignored)}


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, also behind links to folders."""
    for path in folder.iterdir():
        if path.is_dir():
            yield from _walk(path)
        else:
            yield path


def package(folder: Path) -> Path:
    """Write the chart as one file, and return its path."""
    described = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{described['name']}-{described['version']}.tgz"
    content = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=content, mode="wb", mtime=0, filename="") as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for name, data in files().items():
            entry = tarfile.TarInfo(f"{described['name']}/{name}")
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    target.write_bytes(content.getvalue())
    return target


def main() -> None:
    """Write the package, or the schema."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", nargs="?", type=Path, default=Path("dist"))
    options.add_argument("--schema", action="store_true")
    given = options.parse_args()
    if given.schema:
        SCHEMA.write_text(schema(), encoding="utf-8")
    else:
        package(given.folder)


if __name__ == "__main__":
    main()
