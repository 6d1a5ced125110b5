"""The installed program, run as its users run it."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SMALL = ROOT / "tests/data/systems/small.json"
SAMPLE = ROOT / "samples/small"
PROGRAM = Path(sys.executable).with_name("inferno")


def inferno(
    *arguments: str | Path, stdin: bytes = b"", cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run it to its end."""
    return subprocess.run(
        [PROGRAM, *arguments], input=stdin, cwd=cwd, capture_output=True, check=False, timeout=60
    )
