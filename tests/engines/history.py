"""A Prometheus with the past of simulated replicas, which takes virtual time only."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.controlplane.processes import Processes
from tests.engines.fleet import Fleet, Server
from tests.engines.prometheus import JOB, Prometheus
from tests.engines.promtool import Promtool

SCRAPE_INTERVAL_S = 15

Change = Callable[[float], None]
"""Changes loads or engines at a time of the fleet [s]."""


def in_turn(server: Server, rates: Sequence[float], each_s: int) -> Change:
    """Send a server these rates [requests/s], each for so long [s], again and again."""

    def change(now: float) -> None:
        if now % each_s < SCRAPE_INTERVAL_S:
            server.set_rate(rates[int(now // each_s) % len(rates)])

    return change


class VirtualClock:
    """A clock that others move, until it shows the time of day.

    Attributes
    ----------
    now
        Unix time [s].
    is_real
        Whether it shows the time of day.
    """

    def __init__(self, now: float) -> None:
        self.now = now
        self.is_real = False

    def __call__(self) -> float:
        return time.time() if self.is_real else self.now


@dataclass(frozen=True, slots=True)
class Scraping:
    """How often Prometheus scrapes.

    Attributes
    ----------
    interval_s, step_s
        Time between two scrapes, and between two changes of the fleet [s].
    options
        Of the program.
    goes_on
        Whether the fleet goes on in real time, scraped every second.
    ahead_s
        How far the past reaches beyond now, so that it does not end before it is asked about [s];
        meanwhile all counters grow as between the last two scrapes, and nothing else changes.
    """

    interval_s: int = SCRAPE_INTERVAL_S
    step_s: int = SCRAPE_INTERVAL_S
    options: Sequence[str] = ()
    goes_on: bool = False
    ahead_s: int = 0


COUNTED = ("_total", "_sum", "_count", "_bucket")
"""Ends of the names of counters."""

EVERY_15_S = Scraping(ahead_s=600)


@contextmanager
def scraped(
    processes: Processes,
    programs: tuple[Path, Path],
    seconds: float,
    populate: Callable[[Fleet], Change],
    *,
    buckets: bool,
    name: str = "past",
    scraping: Scraping = EVERY_15_S,
) -> Iterator[Prometheus]:
    """Yield a Prometheus that has scraped a fleet regularly, up to now or beyond it.

    A series that ends has no marker that says so: it is seen for as long as Prometheus looks
    back (`--query.lookback-delta`).

    Parameters
    ----------
    processes
        Runs it, and has its database.
    programs
        Paths of `prometheus` and `promtool`.
    seconds
        Length of the past up to now [s].
    populate
        Adds servers to the fleet, and returns what is called before each scrape.
    buckets
        Whether the buckets of histograms are there: they are most of the data.
    name
        Name among the processes.
    scraping
        How often it scrapes.
    """
    clock = VirtualClock(time.time() - seconds)
    text = processes.folder / f"{name}.openmetrics"
    with Fleet(1, clock) as fleet:
        write_past(fleet, clock, seconds, populate(fleet), {text: scraping}, buckets=buckets)
        with answering(processes, programs, text, scraping) as server:
            if scraping.goes_on:
                clock.is_real = True
                server.set_targets(fleet.targets())
            yield server


def write_scrapes(text: Path, lines: Iterable[str]) -> None:
    """Write what was scraped, in the OpenMetrics format."""
    with text.open("w") as file:
        file.writelines(lines)
        file.write("# EOF\n")


@contextmanager
def answering(
    processes: Processes, programs: tuple[Path, Path], text: Path, scraping: Scraping
) -> Iterator[Prometheus]:
    """Yield a Prometheus that has what was written as its past; both have the name of the text."""
    prometheus, promtool = programs
    data = processes.folder / f"{text.stem}.data"
    Promtool(promtool).create_blocks(text, data)
    with Prometheus(
        processes, prometheus, name=text.stem, data=data, options=scraping.options
    ) as server:
        yield server


def write_past(
    fleet: Fleet,
    clock: VirtualClock,
    seconds: float,
    change: Change,
    texts: Mapping[Path, Scraping],
    *,
    buckets: bool,
) -> None:
    """Let time [s] pass, and write what is scraped meanwhile, in one way or in several.

    Parameters
    ----------
    fleet, clock
        What is scraped, and its time.
    seconds
        How long.
    change
        Called before each scrape.
    texts
        Where it is written, and how often it is scraped for that; all have the same steps.
    buckets
        Whether the buckets of histograms are there.
    """
    (step_s,) = {scraping.step_s for scraping in texts.values()}
    with ExitStack() as files:
        opened = {files.enter_context(text.open("w")): texts[text] for text in texts}
        pages = deque[list[str]](maxlen=2)
        for passed in _moments(clock, clock.now + seconds, step_s):
            change(fleet.now)
            due = [file for file, each in opened.items() if passed % each.interval_s == 0]
            if due:
                page = list(_scrape(fleet, clock.now, buckets=buckets))
                for file in due:
                    file.writelines(page)
                pages.append(page)
        for file, each in opened.items():
            for scrapes in range(1, each.ahead_s // each.interval_s + 1):
                file.writelines(map(partial(_continued, scrapes), *pages))
            file.write("# EOF\n")


def _continued(scrapes: int, before: str, last: str) -> str:
    """What a sample becomes after some scrapes, from its line in the last two."""
    (_, old, then), (series, value, now) = before.rsplit(" ", 2), last.rsplit(" ", 2)
    counts = series.partition("{")[0].endswith(COUNTED)
    growth = float(value) - float(old) if counts else 0.0
    time_s = float(now) + scrapes * (float(now) - float(then))
    return f"{series} {float(value) + scrapes * growth} {time_s:.3f}\n"


def _moments(clock: VirtualClock, end: float, step_s: int) -> Iterator[int]:
    """Move the clock in steps, and yield the time that has passed [s]."""
    passed = 0
    while clock.now + step_s <= end:
        clock.now += step_s
        passed += step_s
        yield passed


def _scrape(fleet: Fleet, now: float, *, buckets: bool) -> Iterator[str]:
    """The lines of one scrape of all targets, in the OpenMetrics format."""
    for target in fleet.targets():
        known = {**target.labels, "instance": target.url}
        labels = ",".join(f'{key}="{value}"' for key, value in known.items())
        page = fleet.answer(target.path)
        lines = ("up 1", *page.decode().splitlines()) if isinstance(page, bytes) else ("up 0",)
        yield from _with_target(lines, f'job="{JOB}",{labels}', now, buckets=buckets)


def _with_target(lines: Iterable[str], target: str, now: float, *, buckets: bool) -> Iterator[str]:
    """The samples of a page with the labels of their target and their time."""
    for line in lines:
        if line.startswith("#") or (not buckets and "_bucket{" in line):
            continue  # before it is taken apart: buckets are most lines
        series, _, value = line.rpartition(" ")
        name, _, labels = series.removesuffix("}").partition("{")
        together = f"{target},{labels}" if labels else target
        yield f"{name}{{{together}}} {value} {now:.3f}\n"
