"""What the guides to measuring and replays show: commands asked of replicas of their sample.

`python -m tests.measured` makes their output anew; a test tells when it differs from what a real
Prometheus answers.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.controlplane.binaries import Binaries
from tests.controlplane.processes import ROOT, Processes
from tests.engines.engine import Engine
from tests.engines.fleet import Fleet, Settings
from tests.engines.history import SCRAPE_INTERVAL_S, Change, scraped
from tests.engines.prometheus import Prometheus
from tests.engines.workload import LogNormal, Workload
from tests.reference.shown import ELIDED, Shown, find_folder, run_in, shown, with_output

NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")

PAGES = tuple(ROOT / "docs" / "guides" / name for name in ("measure.md", "replay.md"))
URL = "http://localhost:9090"
"""Where the guides have Prometheus."""

ENGINE = Engine(alpha=8.0, beta=0.1, gamma=20.0, delta=0.0008, max_batch_size=64)
LENGTHS = Workload(LogNormal(500, 0.6), LogNormal(200, 0.6))
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
SECONDS = 7500
REPLICAS = 4
RATES = (8.0, 16.0, 32.0, 48.0, 24.0, 4.0)
"""Requests/s in the past, for a sixth of it each."""

NOW, NOW_S = 17.0, 1200
"""Requests/s in the last twenty minutes, and how long they are [s]."""


def commands() -> list[Shown]:
    """The commands of the guides that ask Prometheus."""
    return [command for page in PAGES for command in shown(page) if URL in command.text]


@contextmanager
def answering(processes: Processes, programs: tuple[Path, Path]) -> Iterator[Prometheus]:
    """Yield a Prometheus that knows the replicas of the guide; see `scraped`."""
    with scraped(processes, programs, SECONDS, _populate, buckets=True, name="guide") as server:
        yield server


def printed(command: Shown, prometheus: Prometheus) -> str:
    """What a command prints about these replicas.

    Raises
    ------
    RuntimeError
        It fails; the message is what it says.
    """
    done = run_in(find_folder(command.page), command.text.replace(URL, prometheus.url))
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr}")
    return done.stdout


def words(text: str) -> str:
    """A text without its numbers, and with columns of any width."""
    return re.sub(r" +", " ", NUMBER.sub("#", text)).strip()


def shorten(output: str, shown: str) -> str:
    """The lines of an output that a page shows; what it leaves out is left out."""
    lines = iter(output.splitlines())
    return "\n".join(
        line
        if line.strip() == ELIDED
        else next((other for other in lines if words(other) == words(line)), "")
        for line in shown.splitlines()
    )


def _populate(fleet: Fleet) -> Change:
    settings = Settings(ENGINE, LENGTHS, MODEL, labels={"namespace": "prod"})
    server = fleet.add("chat", settings, REPLICAS, RATES[0])

    each_s = (SECONDS - NOW_S) / len(RATES)

    def change(now: float) -> None:
        if now % each_s < SCRAPE_INTERVAL_S:
            place = int(now // each_s)
            server.set_rate(RATES[place] if place < len(RATES) else NOW)

    return change


def main() -> int:
    """Renew the pages; the exit status."""
    binaries = Binaries(os.environ)
    programs = binaries.find("prometheus"), binaries.find("promtool")
    with Processes() as processes, answering(processes, programs) as prometheus:
        for command in commands():
            text = command.page.read_text(encoding="utf-8")
            output = shorten(printed(command, prometheus), command.output)
            anew = with_output(text, command, output)
            command.page.write_text(anew, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
