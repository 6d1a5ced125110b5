"""What the day prints: a line for each hour, each decision as it is made, and what it came to."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from inferno_operator.cli.tables.table import TextTable
from tests.cluster.motion import COSTS, ITL_MS, TTFT_MS, Motion
from tests.day.account import Outcome
from tests.day.course import HOURS, Day

WIDTH = 22


@dataclass(slots=True)
class Narrator:
    """Tells what happened since it was asked last."""

    motion: Motion
    day: Day
    _told: dict[str, int] = field(default_factory=dict)

    def heading(self) -> str:
        """Names of the columns of `hour`."""
        names = "".join(f"{name:{WIDTH}}" for name in self.motion.seen)
        return f"TIME   {names}{'COST/H':>7}  WITHIN"

    def hour(self, start: float, end: float) -> str:
        """Load and replicas of each server, what they cost, and what was kept of the targets."""
        motion = self.motion
        cells, cost, good, total = "", 0.0, 0, 0
        for name, seen in motion.seen.items():
            (rate,) = motion.true_rates(name, motion.began + end, (end - start,))
            placed = seen.placements[-1][1] if seen.placements else {}
            cells += f"{f'{rate:.1f}/s {_placed(placed)}':{WIDTH}}"
            cost += sum(COSTS[accelerator] * count for accelerator, count in placed.items())
            span = (motion.began + start, motion.began + end)
            within = motion.servers[name].within_targets(*span, ttft_ms=TTFT_MS, itl_ms=ITL_MS)
            good, total = good + within[0], total + within[1]
        share = good / total if total else 1.0
        return f"{self.day.clock(end)}  {cells}{cost:7.2f}  {share:6.1%}"

    def decisions(self) -> Iterator[str]:
        """Yield a line for each decision that is new."""
        for name, seen in self.motion.seen.items():
            changes = list(pairwise(seen.placements))
            for (_, before), (time, after) in changes[self._told.get(name, 0) :]:
                what = "moves" if set(before) != set(after) else "scales"
                change = f"{_placed(before)} -> {_placed(after)}"
                yield f"{self.day.clock(time)}    {name} {what}: {change}"
            self._told[name] = len(changes)


def _placed(replicas: Mapping[str, int]) -> str:
    return " + ".join(f"{count} x {name}" for name, count in replicas.items()) or "-"


def servers_table(outcomes: list[Outcome]) -> TextTable:
    """Make a row for each server, and one for all."""
    return _table("SERVER", outcomes)


def policies_table(outcomes: list[Outcome]) -> TextTable:
    """Make a row for each policy."""
    return _table("POLICY", outcomes)


def _table(first: str, outcomes: list[Outcome]) -> TextTable:
    numbers = (">COST/H", ">WITHIN", ">REQUESTS", ">REPLICAS", ">STARTED", ">CHANGES", ">MOVES")
    return TextTable((first, *numbers), [_row(outcome) for outcome in outcomes])


def _row(outcome: Outcome) -> tuple[str, ...]:
    counts = (outcome.started, outcome.changes, outcome.moves)
    return (
        outcome.name,
        f"{outcome.cost:.2f}",
        f"{outcome.share:.2%}",
        str(outcome.requests),
        f"{outcome.replicas:.2f}",
        *map(str, counts),
    )


def verdict(run: Outcome, others: list[Outcome]) -> Iterator[str]:
    """Yield a sentence for each policy: what it costs and keeps beside what ran."""
    for other in others:
        change = other.cost / run.cost - 1
        kept = other.share - run.share
        more = "more" if change >= 0 else "less"
        yield (
            f"{other.name}: {abs(change):.0%} {more} cost, {100 * kept:+.1f} points of requests"
            " within targets"
        )


def announcement(seconds: float) -> str:
    """What will happen, and how long it takes."""
    minutes = (seconds + 50) / 60
    return (
        f"A day in minutes: {HOURS:g} hours of a recorded load in {seconds:g} seconds. It starts on"
        " loopback etcd,\nkube-apiserver, the controllers of Deployments, Prometheus and the"
        " operator; simulated engines\nstand for GPUs. That takes about"
        f" {minutes:.0f} minutes. It ends by itself and leaves nothing, also when\nCtrl-C ends it"
        " earlier. The first run builds these programs before, which takes several minutes."
    )
