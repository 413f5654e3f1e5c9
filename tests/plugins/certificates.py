"""Certificates made by openssl, for servers and clients of a test."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_certificate(folder: Path, name: str, *, signed_by: str = "", names: str = "IP:127.0.0.1") -> None:
    """Write ``name.crt`` and ``name.key``: an authority, or a certificate that one of them signed."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", f"{name}.key", "-out", f"{name}.crt", "-days", "2", "-subj", f"/CN={name}"]
    if signed_by:
        command += ["-CA", f"{signed_by}.crt", "-CAkey", f"{signed_by}.key", "-addext", f"subjectAltName={names}"]
        command += ["-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
