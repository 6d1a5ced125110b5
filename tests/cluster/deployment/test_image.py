"""What is in the image, and what is not."""

import subprocess
from pathlib import Path

MEBIBYTE = 2**20
LARGEST = 550 * MEBIBYTE

SOLVE_WITH_CBC = """
import cbcbox, pulp
problem = pulp.LpProblem("small", pulp.LpMaximize)
x = pulp.LpVariable("x", upBound=7.5, cat="Integer")
problem += x
problem.solve(pulp.COIN_CMD(path=cbcbox.cbc_bin_path(), msg=False))
print(x.value())
"""


def python(image: Path, program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [image / "bin" / "python", "-c", program], capture_output=True, text=True, check=False
    )


def test_nothing_can_be_built_or_installed_in_it(image: Path) -> None:
    for name in ("hatchling", "pip", "pytest", "setuptools", "wheel"):
        assert "ModuleNotFoundError" in python(image, f"import {name}").stderr


def test_it_is_no_larger_than_what_it_does_needs(image: Path) -> None:
    size = sum(path.lstat().st_size for path in image.rglob("*") if not path.is_dir())

    assert size < LARGEST


def test_what_is_left_of_the_fallback_solver_works(image: Path) -> None:
    solved = python(image, SOLVE_WITH_CBC)

    assert (solved.stdout.strip(), solved.stderr) == ("7.0", "")
