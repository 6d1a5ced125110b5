"""Measurements of the command line."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.library import SEED, Numbers, median_seconds
from tests.cli.program import inferno
from tests.generate import fleet


def optimize_file(*, servers: int, accelerators: int = 20, output: str = "table") -> Numbers:
    """`inferno plan FILE` from start to end, its bare start-up set aside."""
    with TemporaryDirectory() as folder:
        system = Path(folder) / "system.json"
        system.write_text(json.dumps(fleet(servers, accelerators, SEED, demand=1.0)))
        start_up = median_seconds(lambda: _run("--version"))
        seconds = median_seconds(lambda: _run("plan", system, "--output", output))
    return {"seconds": seconds - start_up, "start_up_seconds": start_up}


def _run(*arguments: str | Path) -> None:
    inferno(*arguments).check_returncode()
