"""`make demo-loop`: a day passes, and nothing is left, whenever Ctrl-C comes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.processes import ROOT
from tests.controlplane.waiting import PATIENCE_S, wait_until
from tests.tiers import extended

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("day_programs")]

LONGEST_S = 360.0
INTERRUPTED = 130

LOGS = ("etcd.log", "kube-controller-manager.log", "prometheus-day.log")
"""Interrupted as soon as a program has one."""

LATER = ("kube-apiserver.log", "operator.log", "01:00 ", "Replay the load")
"""A log, or what is printed."""


@pytest.fixture(scope="session")
def day_programs() -> None:
    """The programs are built, see NEEDS."""


class Started:
    """A day that begins, in a session and with a folder for temporary files of its own."""

    def __init__(self, folder: Path) -> None:
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self._output = folder / "output"
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.day"],
                cwd=ROOT,
                env={**os.environ, "TMPDIR": str(self.temporary), "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self._output.read_text()

    def has_reached(self, moment: str) -> bool:
        """Whether it has printed this, or a program that it runs has this log."""
        assert self._process.poll() is None, self.output
        return moment in self.output or any(self.temporary.glob(f"*/{moment}"))

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.killpg(self._process.pid, signal.SIGINT)

    def status(self, patience_s: float) -> int:
        """Its exit status, once it has ended."""
        return self._process.wait(patience_s)

    def left(self) -> tuple[list[str], list[str]]:
        """Processes that it started and that run, and its files; a port goes with its process."""
        mark = f"TMPDIR={self.temporary}".encode()
        files = [str(path) for path in self.temporary.rglob("*")]
        return [name for name, variables in _running() if mark in variables], files

    def kill(self) -> None:
        """End it at once, if it runs."""
        self._process.kill()
        self._process.wait()


def _running() -> Iterator[tuple[str, bytes]]:
    """Command and environment of each process that we may look at."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            yield (process / "comm").read_text(), (process / "environ").read_bytes()
        except (FileNotFoundError, PermissionError, ProcessLookupError):  # ended, or not ours
            continue


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    day = Started(tmp_path)
    yield day
    day.kill()


def wait_until_nothing_is_left(day: Started) -> None:
    wait_until(day.left, lambda left: left == ([], []), "nothing left")


@pytest.mark.parametrize("moment", [LOGS[0], *extended(*LOGS[1:], *LATER)])
def test_nothing_is_left_when_ctrl_c_comes_at(moment: str, started: Started, soak: bool) -> None:
    if moment in LATER and not soak:
        pytest.skip("it takes minutes: make soak")
    patience_s = LONGEST_S if moment in LATER else PATIENCE_S
    wait_until(lambda: started.has_reached(moment), bool, moment, patience_s)
    processes, files = started.left()

    started.interrupt()

    assert processes
    assert files
    assert started.status(PATIENCE_S) == INTERRUPTED
    assert "Traceback" not in started.output
    wait_until_nothing_is_left(started)


@pytest.mark.timeout(2 * LONGEST_S)
@pytest.mark.soak("it takes five minutes")
def test_a_day_passes_as_announced_and_nothing_is_left(started: Started) -> None:
    began = time.monotonic()

    status = started.status(LONGEST_S + PATIENCE_S)

    assert status == 0, started.output
    assert time.monotonic() - began < LONGEST_S
    assert {"inferno", "hpa", "keda-slo", "static-peak"} <= _first_words(started.output)
    wait_until_nothing_is_left(started)


def _first_words(text: str) -> set[str]:
    return {line.split()[0] for line in text.splitlines() if line.strip()}
