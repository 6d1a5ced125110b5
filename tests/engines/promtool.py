"""What `promtool`, the tool of Prometheus, says of rules, metrics and histories of them."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.controlplane.errors import ProgramError
from tests.controlplane.waiting import PATIENCE_S

LINT_STATUS = 3


@dataclass(frozen=True, slots=True)
class Promtool:
    """Runs `promtool`.

    Attributes
    ----------
    program
        Its path.

    Raises
    ------
    ProgramError
        Every method: it finds something wrong; the message has its words.
    """

    program: Path

    def check_rules(self, rules: Path) -> None:
        """Check a file with groups of rules."""
        self._run("check", "rules", "--lint-fatal", str(rules))

    def run_tests(self, *tests: Path) -> str:
        """Run unit tests of rules; returns what it says of them."""
        return self._run("test", "rules", *map(str, tests))

    def check_metrics(self, page: bytes) -> list[str]:
        """Read what an exporter answers to a scrape; what its names and types should be instead."""
        return self._run("check", "metrics", page=page, accepted=LINT_STATUS).splitlines()

    def create_blocks(self, open_metrics: Path, data: Path) -> None:
        """Write a history in the OpenMetrics format into the database of a Prometheus."""
        self._run("tsdb", "create-blocks-from", "openmetrics", str(open_metrics), str(data))

    def _run(self, *arguments: str, page: bytes = b"", accepted: int = 0) -> str:
        command: Sequence[str | Path] = [self.program, *arguments]
        completed = subprocess.run(
            command, input=page, capture_output=True, check=False, timeout=PATIENCE_S
        )
        said = (completed.stdout + completed.stderr).decode(errors="replace")
        if completed.returncode not in {0, accepted}:
            raise ProgramError(f"promtool {' '.join(arguments)}:\n{said}")
        return said
