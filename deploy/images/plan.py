"""The one list of what is in the images: ``deploy/docker/image.toml``, with the version of ``pyproject.toml``."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from deploy.release.packages import ROOT, version

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER: Final = ROOT / "deploy" / "docker"
LIST: Final = FOLDER / "image.toml"
BUILT: Final = "debian"
"""The base that ``make images`` builds on."""


@dataclass(frozen=True)
class Variant:
    """One image.

    Attributes:
        suffix: of its tag.
        extras: of ``pyproject.toml``.
        wheels: distributions that ``make release`` builds.
        files: of the checkout, copied below the home of the image.
        entrypoint: the first words of a container.
    """

    suffix: str
    title: str
    extras: tuple[str, ...]
    wheels: tuple[str, ...]
    files: tuple[str, ...]
    entrypoint: tuple[str, ...]


@dataclass(frozen=True)
class BaseImage:
    """An image to build on.

    Attributes:
        file: the name of its Dockerfile.
        image: with its tag.
        install: the package manager of the system: apt or microdnf.
        tools: packages of the system for the stages that make the content.
        packages: packages of the system that each variant has, by its name.
    """

    file: str
    image: str
    install: str
    tools: tuple[str, ...]
    packages: Mapping[str, tuple[str, ...]]

    @property
    def python(self) -> str:
        """The program that is Python there."""
        return next((name for name in self.tools if name.startswith("python3.") and "-" not in name), "python3")


@dataclass(frozen=True)
class HealthCheck:
    """The numbers of HEALTHCHECK, in seconds, and tries."""

    interval: int
    timeout: int
    retries: int
    start_period: int


@dataclass(frozen=True)
class Images:
    """Everything that the images follow from."""

    name: str
    version: str
    description: str
    licence: str
    uid: int
    home: str
    data: str
    configuration: str
    ports: tuple[int, ...]
    builder: str
    health: HealthCheck
    variants: Mapping[str, Variant]
    bases: Mapping[str, BaseImage]

    def wheels(self, variant: str) -> tuple[str, ...]:
        """Return the names of the wheels of ours in an image."""
        return tuple(f"{name}-{self.version}-py3-none-any.whl" for name in self.variants[variant].wheels)

    def file(self, variant: str) -> str:
        """Return the begin of the names of an image's files."""
        return f"{self.name}-{self.version}{self.variants[variant].suffix}"

    def tag(self, variant: str) -> str:
        """Return the name of an image, with its tag."""
        return f"{self.name}:{self.version}{self.variants[variant].suffix}"


def images() -> Images:
    """Read the list."""
    document = tomllib.loads(LIST.read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return Images(
        **_tuples(document["image"]),
        version=version(),
        description=project["description"],
        licence=project["license"],
        health=HealthCheck(**document["health"]),
        variants={name: Variant(**_tuples(table)) for name, table in document["variants"].items()},
        bases={name: _base(table, document["variants"]) for name, table in document["bases"].items()},
    )


def _base(table: dict[str, Any], variants: Mapping[str, Any]) -> BaseImage:
    values = _tuples(table)
    return BaseImage(packages={name: values.pop(name) for name in variants}, **values)


def _tuples(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}
