"""What is measured: the figures that must be reached, and how cost grows with each dimension."""

from collections.abc import Callable, Mapping, Sequence
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
SHARES = {
    *("cheapest", "greedy_served", "greedy_load", "milp_served", "milp_load"),
    *("mean", "least", "most"),
}
BARE = {"tightness", "same", "different"}
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
    if name in SHARES:
        return f"{value:.1%}"
    text = f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
    return text if name in BARE else text + UNITS.get(name, f" {WORDS.get(name, name)}")


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
        """What must be reached."""
        return ", ".join(quantity(limit.quantity, limit.must) for limit in self.limits)

    def aim(self) -> str:
        """What we aim for."""
        aims = [(limit.quantity, limit.aim) for limit in self.limits]
        return ", ".join(quantity(name, aim) for name, aim in aims if aim is not None)

    def measured(self, numbers: Numbers) -> str:
        """What was measured."""
        names = [limit.quantity for limit in self.limits]
        return ", ".join(quantity(name, numbers[name]) for name in names if name in numbers)

    def met(self, numbers: Numbers) -> bool:
        """Whether every limit is kept; what is not measured is not kept."""
        return all(numbers.get(limit.quantity, float("inf")) <= limit.must for limit in self.limits)


@dataclass(frozen=True)
class Column:
    """A column of a table: the case of each value of the dimension, and what is shown of it."""

    heading: str
    case: Callable[[float], Case]
    show: str = "seconds"


@dataclass(frozen=True)
class Table:
    """How cost grows with a dimension; a short run measures only the `short` first values."""

    key: str
    dimension: str
    values: Sequence[float]
    columns: Sequence[Column]
    short: int


def _request(**fixed: Argument) -> Case:
    return Case("request", {"servers": 1000, **fixed})


def _varied(name: str, **fixed: Argument) -> Callable[[float], Case]:
    """Requests of which one argument is the dimension."""
    return lambda value: _request(**{**fixed, name: value})


def _replay(policy: str) -> Case:
    """A replay with a policy."""
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


def _of_servers(solver: str) -> Callable[[float], Case]:
    """A minute or two for small fleets, ten for the largest."""

    def case(servers: float) -> Case:
        arguments: dict[str, Argument] = {"servers": int(servers), "solver": solver, "demand": 2.0}
        return Case("request", arguments, 600 if servers > 10_000 else 120)

    return case


def _fleet(demand: float) -> Case:
    return Case("fleet", {"servers": 1000, "demand": demand})


def _saving(demand: float) -> Case:
    return Case("savings", {"servers": 30, "fleets_": 50, "demand": demand})


def _of_solvers(name: str, **fixed: Argument) -> list[Column]:
    """Time of each solver, and the gap of the exact one."""
    exact = _varied(name, solver="milp", **fixed)
    return [
        Column("unlimited", _varied(name, solver="unlimited", **fixed)),
        Column("greedy", _varied(name, solver="greedy", **fixed)),
        Column("MILP", exact),
        Column("gap of MILP", exact, "gap"),
    ]


def _sized(name: str, **fixed: Argument) -> list[Column]:
    """Time of requests of which sizing is most of the work; the second one shares nothing."""
    return [
        Column("unlimited", _varied(name, solver="unlimited", **fixed)),
        Column(
            "unlimited, all lengths different",
            _varied(name, solver="unlimited", different=True, **fixed),
        ),
    ]


TABLES = (
    Table(
        "servers",
        "servers",
        [100, 300, 1_000, 3_000, 10_000, 30_000, 100_000],
        [
            Column("unlimited", _of_servers("unlimited")),
            Column("memory", _of_servers("unlimited"), "mib"),
            Column("greedy", _of_servers("greedy")),
            Column("memory", _of_servers("greedy"), "mib"),
            Column("MILP", _of_servers("milp")),
            Column("memory", _of_servers("milp"), "mib"),
            Column("gap", _of_servers("milp"), "gap"),
        ],
        short=3,
    ),
    Table(
        "accelerators",
        "accelerators",
        [5, 10, 20, 40, 80],
        _of_solvers("accelerators", demand=1.0),
        short=3,
    ),
    Table("batch", "largest batch", [1, 4, 16, 64, 256], _sized("batch"), short=5),
    Table(
        "queue",
        "requests that may wait (generation 3)",
        [0, 10, 100, 1_000, 10_000],
        _sized("queue", generation=3),
        short=5,
    ),
    Table(
        "generations",
        "generation of the performance data",
        [1, 2, 3, 4],
        _sized("generation"),
        short=4,
    ),
    Table(
        "percentiles",
        "percentile of the wait (0: the mean)",
        [0, 90, 95, 99],
        _sized("percentile"),
        short=4,
    ),
    Table(
        "demand",
        "demand",
        [0.5, 1.0, 2.0, 3.0, 4.0, 8.0],
        [
            Column("cheapest cards / cards", _fleet, "cheapest"),
            Column("growth needed", _fleet, "tightness"),
            Column("served, greedy", _fleet, "greedy_served"),
            Column("load, greedy", _fleet, "greedy_load"),
            Column("served, MILP", _fleet, "milp_served"),
            Column("load, MILP", _fleet, "milp_load"),
            Column("MILP", _fleet),
            Column("gap", _fleet, "gap"),
        ],
        short=3,
    ),
    Table(
        "savings",
        "demand",
        [0.5, 1.0, 2.0, 3.0],
        [
            Column("fleets where both serve the same", _saving, "same"),
            Column("where MILP serves otherwise", _saving, "different"),
            Column("mean saving of cost", _saving, "mean"),
            Column("least", _saving, "least"),
            Column("most", _saving, "most"),
        ],
        short=4,
    ),
)

KEYS = [part.key for part in (*ROWS, *TABLES)]
