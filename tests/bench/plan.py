"""What is measured: the figures that must be reached."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.bench.isolation import Argument, Case

Numbers = Mapping[str, float]

UNITS = {
    "seconds": " s",
    "news_seconds": " s until news",
    "mib": " MiB",
    "whole_seconds": " s in all",
    "idle_mib": " MiB",
    "more_mib": " MiB more",
    "of_fewest": " times the fewest",
    "cpu_percent": " % of a core",
    "idle_cpu_percent": " % of a core",
}
LEAST_GAP = 1e-5
"""What a proof leaves open of a value or a load that no reader would miss."""

WORDS = {
    "again_writes": "writes",
    "idle_writes": "writes",
    "undecided": "not written",
    "unscaled": "not scaled",
    "wrong": "wrong",
}


def quantity(name: str, value: float) -> str:
    """A number with its unit, as a person reads it."""
    if name == "gap":
        return f"gap {_gap(value)}"
    text = f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
    return text + UNITS.get(name, f" {WORDS.get(name, name)}")


def _gap(value: float) -> str:
    """A relative distance in percent, to two digits; the smallest ones are alike to a reader."""
    if 0 < value < LEAST_GAP:
        return f"below {100 * LEAST_GAP:g} %"
    return f"{float(f'{100 * value:.2g}'):g} %" if value else "0"


@dataclass(frozen=True)
class Limit:
    """The most that a quantity may be, and what we aim for."""

    quantity: str
    must: float
    aim: float | None = None


@dataclass(frozen=True)
class Row:
    """A figure that must be reached; `long` ones are left out of a short run."""

    key: str
    what: str
    case: Case
    limits: Sequence[Limit]
    long: bool = False

    def must(self) -> str:
        return ", ".join(quantity(limit.quantity, limit.must) for limit in self.limits)

    def aim(self) -> str:
        aims = [(limit.quantity, limit.aim) for limit in self.limits]
        return ", ".join(quantity(name, aim) for name, aim in aims if aim is not None)

    def measured(self, numbers: Numbers) -> str:
        names = [limit.quantity for limit in self.limits]
        return ", ".join(quantity(name, numbers[name]) for name in names if name in numbers)

    def met(self, numbers: Numbers) -> bool:
        """Whether every limit is kept; what is not measured is not kept."""
        return all(numbers.get(limit.quantity, float("inf")) <= limit.must for limit in self.limits)


def _request(**fixed: Argument) -> Case:
    return Case("request", {"servers": 1000, **fixed})


def _replay(policy: str) -> Case:
    fleet = {"servers": 100, "accelerators": 9, "days": 14}
    return Case("replay", {"policy": policy, **fleet}, 300)


OPERATOR = Case("operator", {"servers": 1000}, 300)

ROWS = (
    Row(
        "unlimited",
        "1,000 x 20, unlimited, JSON to JSON in one process",
        _request(solver="unlimited"),
        [Limit("seconds", 0.4, 0.15)],
    ),
    Row(
        "greedy",
        "1,000 x 20, greedy, JSON to JSON in one process",
        _request(solver="greedy"),
        [Limit("seconds", 0.4, 0.15)],
    ),
    Row(
        "rest-unlimited",
        "POST /optimizeOne, 1,000 x 20, unlimited",
        Case("rest", {"servers": 1000, "solver": "unlimited"}),
        [Limit("seconds", 0.4, 0.15)],
    ),
    Row(
        "rest-greedy",
        "POST /optimizeOne, 1,000 x 20, greedy",
        Case("rest", {"servers": 1000, "solver": "greedy"}),
        [Limit("seconds", 0.4, 0.15)],
    ),
    Row(
        "program",
        "`inferno plan FILE`, 1,000 x 20, greedy, beyond the bare start-up",
        Case("program", {"servers": 1000}),
        [Limit("seconds", 1)],
    ),
    Row(
        "milp-1000",
        "MILP, 1,000 x 20, demand 2, three priorities, time limit 7 s",
        _request(solver="milp", demand=2.0, time_limit=7.0),
        [Limit("seconds", 8, 1), Limit("gap", 1e-4)],
    ),
    Row(
        "milp-1000-ample",
        "MILP, 1,000 x 20, demand 1, three priorities",
        _request(solver="milp", demand=1.0),
        [Limit("seconds", 8, 1), Limit("gap", 1e-4)],
    ),
    Row(
        "milp-10000",
        "MILP, 10,000 x 20, demand 2, three priorities, time limit 28 s",
        Case("request", {"servers": 10_000, "solver": "milp", "demand": 2.0, "time_limit": 28.0}),
        [Limit("seconds", 30, 8), Limit("gap", 1e-3, 1e-4), Limit("mib", 2048)],
        long=True,
    ),
    Row(
        "replan",
        "a new plan (MILP, 10,000 x 20, demand 2) after a tenth of the loads changed by 1 %, time"
        " limit 2 s; moves beside those with ten times the limit",
        Case("replan", {"servers": 10_000, "time_limit": 2.0}, 300),
        [Limit("seconds", 4), Limit("moves", 200), Limit("of_fewest", 1.2)],
        long=True,
    ),
    Row(
        "mixed",
        "MILP, heterogeneous, 100 x 20, demand 2",
        Case("request", {"servers": 100, "solver": "mixed", "demand": 2.0}),
        [Limit("seconds", 2, 0.5), Limit("gap", 1e-3)],
    ),
    Row(
        "operator-1000",
        "operator, 1,000 Servers, `optimize: true` to all written",
        OPERATOR,
        [Limit("seconds", 8, 3), Limit("undecided", 0)],
    ),
    Row(
        "operator-again",
        "the same again with nothing changed, writes but the Optimizer's",
        OPERATOR,
        [Limit("again_writes", 0)],
    ),
    Row(
        "operator-idle",
        "operator idle for 60 s with 1,000 Servers; memory with that of its solver",
        OPERATOR,
        [Limit("idle_writes", 0), Limit("idle_cpu_percent", 2), Limit("idle_mib", 384)],
    ),
    Row(
        "operator-10000",
        "operator, 10,000 Servers, `optimize: true` to all written",
        Case("operator", {"servers": 10_000}, 900),
        [Limit("seconds", 90, 30), Limit("undecided", 0)],
        long=True,
    ),
    Row(
        "console",
        "console, 1,000 Servers, first page after the start; 49 open pages while nothing changes,"
        " and while something does all the time",
        Case("console", {"servers": 1000}, 300),
        [
            Limit("seconds", 1),
            Limit("news_seconds", 2),
            Limit("mib", 150),
            Limit("idle_cpu_percent", 2),
            Limit("cpu_percent", 10),
        ],
    ),
    Row(
        "console-10000",
        "the same with 10,000 Servers",
        Case("console", {"servers": 10_000}, 900),
        [Limit("seconds", 10), Limit("mib", 1024), Limit("cpu_percent", 10)],
        long=True,
    ),
    Row(
        "workloads",
        "operator, 1,000 Servers on Deployments, from the plan, all decisions written, to the last"
        " number of replicas; and from `optimize: true`",
        Case("workloads", {"servers": 1000}, 600),
        [
            Limit("seconds", 5),
            Limit("whole_seconds", 12),
            Limit("unscaled", 0),
            Limit("idle_writes", 0),
        ],
    ),
    Row(
        "calibration",
        "calibration of 1,000 models on accelerators, 240 windows each",
        Case("calibration", {"pairs": 1000, "windows": 240}),
        [Limit("seconds", 1)],
    ),
    Row(
        "replay-hpa",
        "replay of 14 days in steps of 60 s, 100 x 9, policy hpa, processor time",
        _replay("hpa"),
        [Limit("seconds", 10.0)],
    ),
    Row(
        "replay-inferno",
        "the same with policy inferno, a plan each minute",
        _replay("inferno"),
        [Limit("seconds", 60.0)],
        long=True,
    ),
    Row(
        "placement",
        "placement of 10,000 servers on 2,000 nodes",
        Case("placement", {"servers": 10_000, "nodes": 2000}),
        [Limit("seconds", 1)],
    ),
    Row(
        "measurement",
        "a measuring cycle, 10,000 Servers: queries, processor time, memory of a cycle",
        Case("measurement", {"servers": 10_000}),
        [Limit("queries", 15), Limit("seconds", 2), Limit("more_mib", 100), Limit("writes", 0)],
    ),
    Row(
        "measurement-idle",
        "measuring 1,000 Servers every 30 s, where nothing moves",
        Case("measurement", {"servers": 1000}),
        [Limit("cpu_percent", 5), Limit("writes", 0)],
    ),
    Row(
        "clients",
        "8 concurrent clients, 320 requests that all differ",
        Case("clients", {"clients": 8, "requests": 320, "servers": 20}),
        [Limit("wrong", 0)],
    ),
)


KEYS = [row.key for row in ROWS]
