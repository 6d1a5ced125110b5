"""Options of replays."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

MIN_STEP_S, MAX_STEP_S = 1, 86_400.0
"""Time between two decisions [s]."""

MAX_LEAD_TIME_S, MAX_LEAD_TIME_COV = 86_400.0, 10
"""Time until a replica serves: its mean [s], and its coefficient of variation."""

MAX_SCALE = 1e6
"""Factor of all rates."""

MIN_SLOWER = 0.1
"""Factor of the time that replicas take."""

MAX_ERROR = 0.9
"""Share by which parameters are wrong."""


class ReplayFormat(StrEnum):
    """Output format of a replay."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


TRACE_FILE = typer.Option(
    metavar="FILE",
    show_default=False,
    help="The load: CSV, also gzip. With a step of a client on each line (client, start_s, "
    "rate_per_s, input_mean, output_mean), or a request (arrival_s, input_tokens, "
    "output_tokens).",
)
Step = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=MIN_STEP_S,
        max=MAX_STEP_S,
        help="Time between two decisions.",
    ),
]
Hours = Annotated[
    float, typer.Option(metavar="H", min=0, help="How much of the trace; 0: all of it.")
]
Scale = Annotated[
    float, typer.Option(metavar="FACTOR", min=0, max=MAX_SCALE, help="Multiplies all rates.")
]
ReplayOutput = Annotated[
    ReplayFormat, typer.Option("--output", "-o", help="How to print the result.")
]
Begin = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="TIME",
        help="Replay what Prometheus knows of the Servers with spec.measure since a time, such "
        "as 2026-11-01 or 2026-11-01T18:00+01:00, or 7d or 12h ago.",
    ),
]
End = Annotated[str, typer.Option("--to", metavar="TIME", help="The end of it; by default now.")]
Keep = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write what was read from Prometheus into a file for --trace; .gz compresses it.",
        show_default=False,
    ),
]
Policies = Annotated[
    list[str],
    typer.Option(
        "--policy",
        metavar="NAME",
        help="inferno, inferno-calibrated, inferno-exact, inferno-reactive, inferno-uncorrected, "
        "hpa, keda-slo, keda-queue, keda-queue-guard, keda-saturation, keda-token, dynamo-sla, "
        "melange, static-peak or clairvoyant; module:name of your own; with @best, on the best "
        "single accelerator of each server. Can be repeated.",
    ),
]
Truth = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Models of how replicas really perform; policies use the Models of the fleet.",
        show_default=False,
    ),
]
Slower = Annotated[
    float,
    typer.Option(
        metavar="FACTOR",
        min=MIN_SLOWER,
        help="Replicas take longer for everything than the Models say, which policies believe.",
    ),
]
Error = Annotated[
    float,
    typer.Option(
        metavar="SHARE",
        min=0,
        max=MAX_ERROR,
        help="Each parameter of the Models is too large or too small by this, by chance.",
    ),
]
LeadTimeMean = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=0,
        max=MAX_LEAD_TIME_S,
        help="Mean time until a replica serves.",
    ),
]
LeadTimeSpread = Annotated[
    float,
    typer.Option(
        metavar="SHARE", min=0, max=MAX_LEAD_TIME_COV, help="Its coefficient of variation."
    ),
]
Poisson = Annotated[
    bool,
    typer.Option(
        "--poisson",
        help="Policies see counts of random arrivals at the rates of the trace, as in a cluster, "
        "and not these rates.",
    ),
]
Seed = Annotated[
    int, typer.Option(metavar="N", min=0, help="Of random lead times, errors and counts.")
]
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs", "-j", metavar="N", min=1, help="Policies that are replayed at the same time."
    ),
]
Page = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Also write the result as a page: cost and replicas over time, targets by class, "
        "and the ten worst times of each policy with their causes.",
        show_default=False,
    ),
]
