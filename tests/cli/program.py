"""The program, run as its users run it."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from inferno_operator.cli.inferno.main import main
from tests.controlplane.waiting import PATIENCE_S
from tests.in_process import called

ROOT = Path(__file__).parents[2]
SMALL = ROOT / "tests/data/systems/small.json"
SAMPLE = ROOT / "samples/small"
PROGRAM = Path(sys.executable).with_name("inferno")


def write(file: Path, *manifests: Mapping[str, Any]) -> Path:
    """Write manifests into a file."""
    file.write_text(yaml.safe_dump_all(manifests))
    return file


def inferno(
    *arguments: str | Path, stdin: bytes | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run it to its end: in this process, or what is installed where it reads standard input."""
    if stdin is None:
        return called(main, arguments, folder=cwd)
    return subprocess.run(
        [PROGRAM, *arguments],
        input=stdin,
        cwd=cwd,
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
