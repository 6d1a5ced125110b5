"""What `make demo` says before it does anything."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.conftest import ROOT


def test_without_go_the_demo_says_so_first_and_offers_what_needs_none(
    tmp_path: Path,
) -> None:
    for name in ("make", "sed", "ls"):
        program = shutil.which(name)
        assert program is not None
        (tmp_path / name).symlink_to(program)
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path)}

    ended = subprocess.run(
        ["make", "demo"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )

    first, *offered = ended.stdout.splitlines()[:3]
    assert ended.returncode != 0
    assert first.startswith("There is no Go (https://go.dev/dl)")
    assert [line.strip() for line in offered] == [
        ".venv/bin/inferno size Qwen3-32B --rate 7/s",
        ".venv/bin/inferno sample --fleet | .venv/bin/inferno plan -",
    ]


def test_the_demo_says_what_it_takes_before_it_sets_anything_up(tmp_path: Path) -> None:
    # No Python: what comes first ends here. Nothing of the make that runs the tests is passed on.
    environment = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    ended = subprocess.run(
        ["make", "demo", f"VENV={tmp_path / 'none'}", "PYTHON=false"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    *told, setup = ended.stdout.splitlines()[:4]
    assert ended.returncode != 0
    assert told[0].startswith("Needs .venv (once; about a minute), and etcd")
    assert told[2] == "The demo then runs for about 20 s and needs 0.7 GiB of memory."
    assert setup.startswith("Setting up ")
