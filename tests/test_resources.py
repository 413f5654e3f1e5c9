"""The reference configuration is found wherever isrwatch is imported from."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from streaming.errors import ConfigurationError
from streaming.resources import conf_path

PACKAGE = Path(__file__).parents[1] / "streaming"


def test_a_checkout_has_it_beside_the_package() -> None:
    assert conf_path("spark-defaults.conf") == PACKAGE.parent / "conf" / "spark-defaults.conf"
    assert conf_path("scenarios").is_dir()


def test_a_name_that_does_not_exist_is_told_in_words() -> None:
    with pytest.raises(ConfigurationError, match=r"no conf/nothing\.toml; reinstall isrwatch"):
        conf_path("nothing.toml")


@pytest.mark.parametrize("unpacked", [True, False])
def test_an_installed_package_has_it_inside_and_so_has_a_zip(tmp_path: Path, unpacked: bool) -> None:  # noqa: FBT001
    """spark-submit --py-files imports from a zip."""
    wheel = tmp_path / "isrwatch.zip"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("__init__.py", "errors.py", "resources.py"):
            archive.write(PACKAGE / name, f"streaming/{name}")
        archive.writestr("streaming/conf/spark-defaults.conf", "spark.master local[7]\n")
    if unpacked:
        zipfile.ZipFile(wheel).extractall(tmp_path / "site")
        (tmp_path / "site" / "conf").mkdir()
        (tmp_path / "site" / "conf" / "spark-defaults.conf").write_text("somebody else's")
    script = "from streaming.resources import conf_path; print(conf_path('spark-defaults.conf').read_text(), end='')"
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(tmp_path / "site" if unpacked else wheel)},
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert ran.stdout == "spark.master local[7]\n"
