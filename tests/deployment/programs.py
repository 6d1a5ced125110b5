"""Programs that have to succeed."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.conftest import ROOT


def output_of(command: Sequence[str | Path], environment: Mapping[str, str] = os.environ) -> str:
    """What a program prints that is run in the project's folder."""
    completed = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr

    return completed.stdout
