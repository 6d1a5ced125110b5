"""A Prometheus with the past of simulated replicas, which takes virtual time only."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.controlplane.processes import Processes
from tests.engines.fleet import Fleet
from tests.engines.prometheus import JOB, Prometheus
from tests.engines.promtool import Promtool

SCRAPE_INTERVAL_S = 15

Change = Callable[[float], None]
"""Changes loads or engines at a time of the fleet [s]."""


class VirtualClock:
    """A clock that others move.

    Attributes
    ----------
    now
        Unix time [s].
    """

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        """The time."""
        return self.now


@contextmanager
def scraped(
    processes: Processes,
    programs: tuple[Path, Path],
    seconds: float,
    populate: Callable[[Fleet], Change],
    *,
    buckets: bool,
    name: str = "past",
) -> Iterator[Prometheus]:
    """Yield a Prometheus that has scraped a fleet every 15 s, up to now.

    Parameters
    ----------
    processes
        Runs it, and has its database.
    programs
        Paths of `prometheus` and `promtool`.
    seconds
        Length of the past [s].
    populate
        Adds servers to the fleet, and returns what is called before each scrape.
    buckets
        Whether the buckets of histograms are there: they are most of the data.
    name
        Name among the processes.
    """
    prometheus, promtool = programs
    end = time.time()
    clock = VirtualClock(end - seconds)
    text, data = (processes.folder / f"{name}.{what}" for what in ("openmetrics", "data"))
    with Fleet(1, clock) as fleet:
        change = populate(fleet)
        with text.open("w") as file:
            file.writelines(_scrapes(fleet, clock, end, change, buckets=buckets))
    Promtool(promtool).create_blocks(text, data)
    with Prometheus(processes, prometheus, name=name, data=data) as server:
        yield server


def _scrapes(
    fleet: Fleet, clock: VirtualClock, end: float, change: Change, *, buckets: bool
) -> Iterator[str]:
    """The lines of all scrapes, in the OpenMetrics format."""
    while clock.now + SCRAPE_INTERVAL_S <= end:
        clock.now += SCRAPE_INTERVAL_S
        change(fleet.now)
        for target in fleet.targets():
            known = {**target.labels, "instance": target.url}
            labels = ",".join(f'{key}="{value}"' for key, value in known.items())
            page = fleet.answer(target.path)
            assert isinstance(page, bytes)
            lines = ("up 1", *page.decode().splitlines())
            yield from _with_target(lines, f'job="{JOB}",{labels}', clock.now, buckets=buckets)
    yield "# EOF\n"


def _with_target(lines: Iterable[str], target: str, now: float, *, buckets: bool) -> Iterator[str]:
    """The samples of a page with the labels of their target and their time."""
    for line in lines:
        series, _, value = line.rpartition(" ")
        name, _, labels = series.removesuffix("}").partition("{")
        if not line.startswith("#") and (buckets or not name.endswith("_bucket")):
            together = f"{target},{labels}" if labels else target
            yield f"{name}{{{together}}} {value} {now:.3f}\n"
