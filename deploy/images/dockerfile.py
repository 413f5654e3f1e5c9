"""Dockerfiles, rendered from the list: the same stages on every base.

The stage ``VARIANT-packages`` makes a virtual environment with the locked packages, ``VARIANT-ours`` what our own
wheels add to it, and ``VARIANT`` copies both, each as a layer: the first one is the same until the lock changes.
Compilers, pip and caches are not shipped. Sources are compiled with the hash of their content in place of its time, so
that the result depends on the input alone.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deploy.images.plan import BaseImage, Images, Variant

PYTHON: Final = "/opt/isrwatch/python"
HEALTH: Final = ("python", "/opt/isrwatch/deploy/docker/health.py")
EPOCH: Final = 1580601600
"""The time of every file in a layer, whatever the commit, so that equal files are equal layers: 2020-02-02."""
PIP: Final = f"/tools/bin/pip --python {PYTHON}/bin/python"
LOCAL: Final = "--no-deps --no-index --no-compile"
COMPILED: Final = "compileall -q --invalidation-mode unchecked-hash"
PIP_CACHE: Final = "RUN --mount=type=cache,target=/root/.cache/pip"
LEFT_BY_APT: Final = (
    "/var/lib/apt/lists/*", "/var/cache/apt/*", "/var/cache/debconf/*-old", "/var/cache/ldconfig/aux-cache",
    "/var/lib/dpkg/*-old", "/var/log/*.log", "/var/log/apt",
)  # fmt: skip
INSTALL: Final = {
    "apt": ("apt-get update && apt-get install --yes --no-install-recommends {}", f"rm -rf {' '.join(LEFT_BY_APT)}"),
    "microdnf": ("microdnf install --assumeyes --nodocs --setopt=install_weak_deps=0 {}", "microdnf clean all"),
}
HEAD: Final = """\
# Written by make generated from deploy/docker/image.toml. To build, in the checkout:
#
#     make wheels
{commands}
#
# BASE may be an image of yours with the same packages. Behind a proxy with an authority of its own, SSL_CERT_FILE
# names a file of certificates that is mounted into the build.
ARG BASE={image}
"""


def dockerfile(plan: Images, base: BaseImage) -> str:
    """Return the Dockerfile of a base, with a target for each variant; the last one is the default."""
    commands = "\n".join(
        f"#     docker build --file deploy/docker/{base.file} --target {name} --tag {plan.tag(name)} ."
        for name in plan.variants
    )
    stages = [HEAD.format(commands=commands, image=base.image), _tools(plan, base)]
    for name, variant in plan.variants.items():
        stages += [_packages(name), _ours(plan, name), _shipped(plan, base, name, variant)]
    return "\n".join(stages)


def _tools(plan: Images, base: BaseImage) -> str:
    steps = [_installed(base, base.tools)] if base.tools else []
    return _stage(
        "${BASE} AS tools",
        "ARG SSL_CERT_FILE",
        *steps,
        _run(
            f"{base.python} -m venv /tools",
            f"echo '{plan.builder}' > /tools/builder.txt",
            "/tools/bin/pip install --no-cache-dir --no-deps --require-hashes --requirement /tools/builder.txt",
            f"{base.python} -m venv --without-pip {PYTHON}",
        ),
        "WORKDIR /build",
    )


def _packages(name: str) -> str:
    return _stage(
        f"tools AS {name}-packages",
        "ARG SSL_CERT_FILE",
        f"COPY requirements/{name}.txt ./",
        _run(
            f"export SOURCE_DATE_EPOCH={EPOCH}",
            "/tools/bin/pip wheel --no-deps --no-build-isolation --require-hashes "
            f"--requirement {name}.txt --wheel-dir wheels",
            f"{PIP} install {LOCAL} wheels/*.whl",
            f"(cd wheels && sha256sum *.whl) > {PYTHON}/packages.sha256",
            f"{PYTHON}/bin/python -m {COMPILED} {PYTHON}/lib",
            how=PIP_CACHE,
        ),
    )


def _ours(plan: Images, name: str) -> str:
    wheels = plan.wheels(name)
    return _stage(
        f"tools AS {name}-ours",
        f"COPY {' '.join(f'dist/{wheel}' for wheel in wheels)} ./",
        _run(
            f"{PIP} install {LOCAL} --root /ours {' '.join(wheels)}",
            f"sha256sum {' '.join(wheels)} > /ours{PYTHON}/ours.sha256",
            f"{PYTHON}/bin/python -m {COMPILED} -s /ours -p / /ours{PYTHON}/lib",
        ),
    )


def _shipped(plan: Images, base: BaseImage, name: str, variant: Variant) -> str:
    health = plan.health
    return _stage(
        f"${{BASE}} AS {name}",
        _installed(base, base.packages[name], *_account(plan)),
        f"COPY --from={name}-packages {plan.home} {plan.home}",
        f"COPY --from={name}-ours /ours{plan.home} {plan.home}",
        *(f"COPY {file} {plan.home}/{file}" for file in variant.files),
        "ARG REVISION=unknown",
        _words("LABEL", labels(plan, base, variant)),
        _words("ENV", environment()),
        f"USER {plan.uid}:0",
        f"WORKDIR {plan.data}",
        f"VOLUME {plan.data}",
        f"EXPOSE {' '.join(map(str, plan.ports))}",
        f"HEALTHCHECK --interval={health.interval}s --timeout={health.timeout}s --retries={health.retries} "
        f"--start-period={health.start_period}s CMD {json.dumps(HEALTH)}",
        f"ENTRYPOINT {json.dumps(variant.entrypoint)}",
        'CMD ["--help"]',
    )


def labels(plan: Images, base: BaseImage, variant: Variant) -> dict[str, str]:
    """Return the labels of an image, as the OCI image specification names them."""
    return {
        "org.opencontainers.image.title": variant.title,
        "org.opencontainers.image.description": plan.description,
        "org.opencontainers.image.version": plan.version,
        "org.opencontainers.image.revision": "${REVISION}",
        "org.opencontainers.image.licenses": plan.licence,
        "org.opencontainers.image.base.name": base.image,
    }


def environment() -> dict[str, str]:
    """Return the variables of every container; HOME is what can be written on a read-only root."""
    path = f"{PYTHON}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"PATH": path, "HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"}  # noqa: S108 - of the container


def ignored(plan: Images) -> str:
    """Return ``.dockerignore``: what is sent to the builder is what is copied."""
    files = sorted({file for variant in plan.variants.values() for file in variant.files})
    wheels = sorted({f"dist/{wheel}" for name in plan.variants for wheel in plan.wheels(name)})
    kept = [*wheels, *(f"requirements/{name}.txt" for name in plan.variants), *files]
    lines = ["# Written by make generated from deploy/docker/image.toml.", "*", *(f"!{path}" for path in kept)]
    return "\n".join([*lines, ""])


def _account(plan: Images) -> tuple[str, ...]:
    """Return the commands that make the user and its folder."""
    line = f"{plan.name}:x:{plan.uid}:0:{plan.name}:{plan.data}:/sbin/nologin"
    return (
        f"echo '{line}' >> /etc/passwd",
        f"mkdir {plan.data}",
        f"chown {plan.uid}:0 {plan.data}",
        f"chmod 0775 {plan.data}",
    )


def _installed(base: BaseImage, packages: Sequence[str], *more: str) -> str:
    install, clean = INSTALL[base.install]
    return _run(install.format(" ".join(packages)), clean, *more)


def _run(*commands: str, how: str = "RUN") -> str:
    return " \\\n && ".join([f"{how} {commands[0]}", *commands[1:]])


def _words(word: str, values: Mapping[str, str]) -> str:
    return " \\\n    ".join([word, *(f'{name}="{value}"' for name, value in values.items())])


def _stage(origin: str, *steps: str) -> str:
    return "\n".join([f"FROM {origin}", *steps, ""])
