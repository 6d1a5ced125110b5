"""What `make demo` says before it does anything."""

import os
import subprocess
from pathlib import Path

from tests.conftest import ROOT


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
