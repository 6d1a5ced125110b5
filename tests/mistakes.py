"""Typical mistakes of new users, and what the program says of each.

`python -m tests.mistakes` prints them as a table.
"""

import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from inferno_operator.cli.inferno.main import main as inferno
from tests.controlplane.processes import ROOT
from tests.in_process import called

TABLE = ROOT / "tests" / "data" / "mistakes.yaml"

PROGRESS = ("optimizing ", "replaying ", "Usage: ", "Try 'inferno ")
"""Beginnings of lines on standard error that are no message."""


@dataclass(frozen=True)
class Mistake:
    """A row of the table, which says what the fields are; it is made in a copy of `sample`."""

    sample: str
    what: str
    told: Sequence[str]
    run: str = "plan . --time-limit 2"
    file: str = ""
    find: str = ""
    write: str = ""
    append: str = ""
    encoding: str = "utf-8"
    environment: Mapping[str, str] = field(default_factory=dict)
    elsewhere: str = ""

    def make(self, folder: Path) -> None:
        """Copy the sample, and make the mistake in the copy."""
        shutil.copytree(ROOT / "samples" / self.sample, folder)
        if not self.file:
            return
        file = folder / self.file
        file.parent.mkdir(exist_ok=True)
        text = file.read_text() if self.find or self.append else ""
        if self.find not in text:
            raise ValueError(f"{self.what}: {self.file} has no {self.find!r}")
        text = text.replace(self.find, self.write, 1) if self.find else text + self.write
        file.write_text(text + self.append, encoding=self.encoding)


@dataclass(frozen=True)
class Said:
    """What the program says of a mistake: lines on standard error, and its exit status."""

    lines: Sequence[str]
    status: int


def make_and_run(mistake: Mistake, folder: Path) -> Said:
    """Make a mistake in a new folder, and run its command there."""
    mistake.make(folder)
    done = called(
        inferno, shlex.split(mistake.run), folder=folder, environment=mistake.environment or None
    )
    lines = done.stderr.decode().splitlines()
    return Said([each for each in lines if each and not each.startswith(PROGRESS)], done.returncode)


def _read(sample: str, row: Mapping[str, Any]) -> Mistake:
    told = row["told"]
    return Mistake(**{**row, "sample": sample, "told": [told] if isinstance(told, str) else told})


MISTAKES = tuple(
    _read(sample, row) for sample, rows in yaml.safe_load(TABLE.read_text()).items() for row in rows
)


def main() -> int:
    """Print the table; the exit status."""
    print("| # | mistake | message |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as place:
        for number, mistake in enumerate(MISTAKES, start=1):
            lines = make_and_run(mistake, Path(place) / str(number)).lines
            shown = "<br>".join(line.replace("|", "\\|") for line in lines) or "(nothing)"
            print(f"| {number} | {mistake.what} | {shown} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
