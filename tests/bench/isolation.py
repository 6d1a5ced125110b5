"""Each measured case in a process of its own, with a limit of time.

Run as a program (`python -m tests.bench.isolation MEASURE ARGUMENTS`) it is that process.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from tests.bench import cases, cluster, console, library, measurement
from tests.controlplane.parent_death import die_with_parent

ROOT = Path(__file__).parents[2]
MEASURES: Mapping[str, Callable[..., library.Numbers]] = MappingProxyType(
    {
        "calibration": cases.calibration,
        "console": console.console,
        "measurement": measurement.measurement,
        "placement": cases.placement,
        "request": library.request,
        "program": cases.optimize_file,
        "replan": cases.replan,
        "replay": cases.replayed,
        "rest": cases.one_request,
        "clients": cases.concurrent_clients,
        "operator": cluster.operator,
        "workloads": cluster.workloads,
    }
)

Argument = str | float | bool


@dataclass(frozen=True)
class Case:
    """What to measure: a measure, its arguments, and the time after which it is given up [s]."""

    measure: str
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    limit_s: float = 120.0

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from other cases; the limit is no part of it."""
        return self.measure, json.dumps(dict(self.arguments), sort_keys=True)


@dataclass(frozen=True)
class Outcome:
    """Numbers, or why there are none."""

    numbers: Mapping[str, float] = field(default_factory=dict)
    trouble: str = ""


def measure(case: Case) -> Outcome:
    """Run a case to its end, or to its limit."""
    command = [sys.executable, "-m", "tests.bench.isolation", *case.key]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=case.limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return Outcome(trouble=f"no end within {case.limit_s:g} s")
        except KeyboardInterrupt:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        last = (errors.strip().splitlines() or [""])[-1]
        return Outcome(trouble=f"failed: {last}")
    return Outcome(json.loads(output))


def main() -> None:
    """Measure what the command line names, and print the numbers."""
    die_with_parent()
    name, arguments = sys.argv[1:]
    json.dump(MEASURES[name](**json.loads(arguments)), sys.stdout)


if __name__ == "__main__":
    main()
