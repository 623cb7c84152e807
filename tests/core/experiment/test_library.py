"""The library by itself: the README's cell, without the frameworks and outside a clone."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
FRAMEWORKS = ("kedro", "mlflow", "great_expectations", "ray")
MODULES = """
import sys, m2fdp
print(*sys.modules)
print(m2fdp.__file__)
"""


@pytest.fixture(scope="module")
def cell() -> str:
    """The README's cell."""
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    section = readme.partition("## One notebook cell")[2]
    return re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]


def run(code: str, library: Path, folder: Path) -> list[str]:
    """The lines that a new process in a folder prints, with the library's folder on its path."""
    environment = os.environ | {"PYTHONPATH": str(library)}
    command = [sys.executable, "-c", code + MODULES]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


def check(printed: list[str], library: Path) -> None:
    *told, modules, file = printed
    assert any("the cloud" in line for line in told)
    assert re.fullmatch(r"accuracy 0\.[5-9]\d\d at a verified ε of 2\.00", told[-1])
    assert not set(FRAMEWORKS) & set(modules.split())
    assert Path(file).is_relative_to(library)


def test_the_readmes_cell_needs_no_framework_and_writes_nothing(cell, tmp_path):
    assert len([line for line in cell.splitlines() if line]) <= 8
    check(run(cell, REPOSITORY / "src", tmp_path), REPOSITORY / "src")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
def test_the_wheel_is_the_library_outside_a_clone(cell, tmp_path):
    """Built from a copy, as setuptools writes beside what it builds."""
    source, wheels, target, empty = (tmp_path / name for name in ("a", "b", "c", "d"))
    for folder in (source, empty):
        folder.mkdir()
    shutil.copytree(
        REPOSITORY / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info", "__py*")
    )
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / file, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(wheels), "."]
    subprocess.run([*pip, *build], cwd=source, check=True, capture_output=True)
    (wheel,) = wheels.glob("m2fdp-*.whl")
    install = ["install", "--no-deps", "--no-index", "--target", str(target), str(wheel)]
    subprocess.run([*pip, *install], check=True, capture_output=True)
    shutil.rmtree(source)
    assert (target / "m2fdp/features/contrastive.npz").is_file()
    check(run(cell, target, empty), target)
    assert list(empty.iterdir()) == []
