"""Options that several commands have, each declared once; limits and units that go with them."""
# ruff: noqa: PLC0415 - what takes a while to import is imported only where it is used

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inferno_operator.runtime.texts import join_names
from inferno_operator.settings import VARIABLES, Variable, file
from inferno_optimizer.errors import InputError
from inferno_optimizer.solution import Reason, Solution
from inferno_optimizer.validation import MAX_COUNT

HELP = {"help_option_names": ["-h", "--help"]}  # settings of both programs


def option(metavar: str, text: str, *flags: str, **settings: Any) -> Any:  # noqa: ANN401 - typer's
    """Return an option with a value: what stands for that, and the help."""
    return typer.Option(*flags, metavar=metavar, help=text, **settings)


def argument(metavar: str, text: str, **settings: Any) -> Any:  # noqa: ANN401 - typer's
    """Return an argument: what stands for it, and the help."""
    return typer.Argument(metavar=metavar, help=text, **settings)


def examples(*commands: str) -> str:
    """Return the end of a help: commands to paste, so each is one line, however long."""
    return "\b\nExamples:\n" + "\n".join(f"  {command}" for command in commands)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"inferno {version('inferno-operator')}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version", help="Show the version and exit.", is_eager=True, callback=_show_version
    ),
]


class Format(StrEnum):
    """Output format of a result."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"


Output = Annotated[
    Format, typer.Option("--output", "-o", help="How to print the result; csv is its main table.")
]
TimeLimit = Annotated[
    float,
    option(
        "SECONDS",
        "When the exact solver stops and gives the best plan found.",
        min=0,
        envvar="INFERNO_SOLVER_TIME_LIMIT",
    ),
]
Changes = Annotated[
    list[str],
    option(
        "CHANGE",
        "What if: show what this would change, such as capacity.A100=8; also with "
        "+=, -=, *=. Kinds: accelerator, capacity, class, model, optimizer, "
        "server; the name * is every name. A new accelerator takes its type and "
        "its cost; model.NAME.NEW=KNOWN says that the model performs on it as on a "
        "known one. Can be repeated.",
        "--set",
        show_default=False,
    ),
]
CurvePlot = Annotated[
    Path | None,
    option("FILE", "Draw how the exact solver improved the plan (SVG); -o json prints it too."),
]
LinearProgram = Annotated[
    Path | None,
    option(
        "FILE",
        "Write a program for any solver: the least cost that serves as much as the "
        "plan, with what --set changes.",
        "--write-lp",
    ),
]
Lenient = Annotated[
    bool, typer.Option("--lenient", help="Warn of unknown fields, and go on without them.")
]
Paths = Annotated[
    list[str],
    argument(
        "PATH",
        "Custom resources or SystemData: files, folders, kustomizations; - for stdin.",
        show_default=False,
    ),
]
InNamespace = Annotated[
    str,
    option(
        "NAME",
        "Read only the objects of this namespace, and those that name none.",
        "--namespace",
        "-n",
        show_default=False,
    ),
]


QUANTITY = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*(\S*)\s*")

MILLISECONDS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4, "min": 6e4}
MOST_RATE = 1e5  # of one model [requests/s]: what takes longer than seconds to size
PER_SECOND = {
    **dict.fromkeys(("/s", "/sec", "rps", "req/s"), 1.0),
    **dict.fromkeys(("/m", "/min", "rpm", "req/min"), 1 / 60),
    **dict.fromkeys(("/h", "/hour"), 1 / 3600),
}


def parse_duration_ms(text: str, option: str) -> float:
    """Return a duration [ms].

    Raises
    ------
    InputError
        It is no number above 0, or has no unit, or none that is known.
    """
    return _parse_quantity(text, option, MILLISECONDS, "a duration such as 40ms or 1.5s")


def parse_rate(text: str, option: str) -> float:
    """Return a rate [1/s].

    Raises
    ------
    InputError
        It is no number above 0, or has no unit, or none that is known.
    """
    rate = _parse_quantity(text, option, PER_SECOND, "a rate such as 7/s or 420/min")
    if rate > MOST_RATE:
        raise InputError(f"{option}: must be at most {MOST_RATE:g}/s, not {text!r}")
    return rate


def parse_tokens(text: str, option: str) -> int:
    """Return a number of tokens; raises InputError if it is none, such as a format."""
    if not text.isdecimal() or not 0 < int(text) <= MAX_COUNT:
        raise InputError(f"{option}: {text!r} is no number of tokens; formats are for --format")
    return int(text)


def _parse_quantity(text: str, option: str, units: dict[str, float], wanted: str) -> float:
    match = QUANTITY.fullmatch(text)
    unit = match[2].lower() if match else ""
    value = float(match[1]) * units.get(unit, 0.0) if match else 0.0
    if not 0 < value <= MAX_COUNT:
        raise InputError(f"{option}: {text!r} is not {wanted}")
    return value


DURATION = re.compile(r"(?P<number>[0-9]{1,5})(?P<unit>[smhd])")
TIME_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def duration_of(text: str) -> timedelta | None:
    """Return a time such as 90m, 2h or 7d; None if the text is no such time."""
    match = DURATION.fullmatch(text)
    return None if match is None else timedelta(**{TIME_UNITS[match["unit"]]: int(match["number"])})


Filter = Annotated[
    str,
    option(
        "WORDS",
        "Show only the rows of the main table that have all these words.",
        "--filter",
        show_default=False,
    ),
]
Sort = Annotated[
    str,
    option(
        "COLUMN",
        "Sort the main table by this column; with a minus before it the largest come first.",
        "--sort",
        show_default=False,
    ),
]


IN_CENTS = "cents"

LONGEST_CURRENCY = 8  # characters of a currency: a symbol, or a code

Currency = Annotated[
    str,
    option(
        "NAME",
        "Show costs in this currency, such as EUR or $ (100 cents each); JSON and "
        "YAML stay in cents.",
        "--currency",
        envvar="INFERNO_CURRENCY",
    ),
]


@dataclass(frozen=True, slots=True)
class Money:
    """A unit of costs, and how many cents it has."""

    unit: str
    cents: float

    def amount(self, cents: float) -> str:
        """An amount without the unit."""
        return f"{cents / self.cents:.2f}"

    def change(self, cents: float) -> str:
        """A difference without the unit, with its sign."""
        return f"{cents / self.cents:+.2f}"

    @property
    def rate(self) -> str:
        """The unit of what something costs."""
        return f"{self.unit}/hour"

    def named(self) -> Iterator[str]:
        """Yield the unit of a table that does not have it elsewhere, unless it is the usual one."""
        if self != CENTS:
            yield ""
            yield f"costs in {self.rate}"


CENTS = Money(IN_CENTS, 1.0)


def parse_currency(currency: str) -> Money:
    """Return the unit for a currency.

    Raises InputError if it is no symbol and no code.
    """
    name = currency.strip()
    if name == IN_CENTS:
        return CENTS
    if not name or len(name) > LONGEST_CURRENCY or any(c.isdigit() or c.isspace() for c in name):
        raise InputError(
            f"--currency: {currency!r} is no symbol or code of a currency, such as EUR"
        )
    return Money(name, 100.0)


UNMET = 3  # exit status of a command whose plan is as `--fail-on` says

# Reasons of servers without a decision because of what a person wrote.
MISTAKES = frozenset(
    {
        Reason.INVALID_SPEC,
        Reason.NO_PERFORMANCE_DATA,
        Reason.NO_TARGET,
        Reason.UNKNOWN_ACCELERATOR,
        Reason.UNKNOWN_CAPACITY,
        Reason.UNKNOWN_CLASS,
        Reason.UNKNOWN_MODEL,
    }
)

SERVERS_SHOWN = 5  # largest number of servers that a message names
CONDITION = re.compile(r"unserved|invalid|gap>(?P<most>[0-9.e-]+)")
Check = tuple[str, float]  # a condition, and the largest gap

FailOn = Annotated[
    list[str],
    option(
        "CONDITION",
        "Exit with 3 if, in the plan, a server gets less than it needs (unserved), "
        "or nothing is decided for one because of a mistake (invalid), or if a "
        "share above X of the value or of the load of a class may be missing from "
        "the best plan (gap>X). Can be repeated.",
        "--fail-on",
        show_default=False,
    ),
]


def parse_conditions(conditions: Iterable[str]) -> list[Check]:
    """Return a check for each condition. Raises InputError if one is unknown."""
    checks: list[Check] = []
    for condition in conditions:
        match = CONDITION.fullmatch(condition)
        try:
            most = float(match["most"] or 0) if match else None
        except ValueError:
            most = None
        if most is None:
            advice = "give unserved, invalid or gap>X, such as gap>0.01"
            raise InputError(f"--fail-on {condition}: {advice}")
        checks.append((condition, most))
    return checks


def refuse(solution: Solution, checks: Iterable[Check]) -> None:
    """Exit with `UNMET` if a check fails, with a line on standard error for each."""
    decisions, proof = solution.decisions, solution.certificate
    failures = []
    for condition, most in checks:
        names, what = list[str](), ""
        if condition == "unserved":
            what = "get less than they need"
            names = [d.server for d in decisions if d.reason is not Reason.ALLOCATED]
        elif condition == "invalid":
            what = "have mistakes"
            names = [d.server for d in decisions if d.reason in MISTAKES]
        elif proof.gap is None:
            failures.append(f"--fail-on {condition}: solver {proof.solver} proves no gap")
        elif proof.gap > most:
            failures.append(f"--fail-on {condition}: the gap is {proof.gap:.1e}")
        if names:
            number = f"{len(names)} of {len(decisions)} servers"
            shown = join_names(names, SERVERS_SHOWN)
            failures.append(f"--fail-on {condition}: {number} {what}: {shown}")
    for failure in failures:
        typer.echo(failure, err=True)
    if failures:
        raise typer.Exit(UNMET)


# The Service of the operator, where the manifests put it.
SERVICE = "http://inferno-operator.inferno-system.svc:8081"


class Autoscaler(StrEnum):
    """What carries out the decisions."""

    KEDA = "keda"
    HPA = "hpa"


class ScaledObjectOwner(StrEnum):
    """Who makes the ScaledObjects, and takes only their triggers."""

    KSERVE = "kserve"


@dataclass(frozen=True, slots=True)
class Access:
    """How autoscalers read decisions, and the most replicas that they may set.

    `url` is that of the operator's Service; `secret` names the Secret with the token in each
    namespace.
    """

    url: str
    secret: str
    most: int


Kind = Annotated[Autoscaler, argument("keda|hpa", "What scales.", show_default=False)]
For = Annotated[
    ScaledObjectOwner | None,
    option(
        "kserve",
        "Print the triggers alone, because KServe makes the ScaledObjects.",
        "--for",
        show_default=False,
    ),
]
Url = Annotated[str, option("URL", "The Service of the operator, for KEDA.")]
TokenSecret = Annotated[
    str, option("NAME", "Secret in the namespace of the Servers, with the key token, for KEDA.")
]
MaxReplicas = Annotated[int, option("N", "Most replicas of a workload.", min=1, max=2**31 - 1)]

SECRET = "inferno-publish-token"  # noqa: S105 - the name of a Secret
MOST = 1000  # beyond what is decided; decisions keep to the capacity


if TYPE_CHECKING:
    from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
    from inferno_operator.engines.catalogue import MetricSources

PREFIX = "INFERNO_PROMETHEUS_"
URL = f"{PREFIX}URL"
SOURCES = "INFERNO_MEASURE_SOURCES"

# The URL comes first, as nothing is asked without it.
PROMETHEUS_VARIABLES = tuple(
    sorted((v for v in VARIABLES if v.name.startswith(PREFIX)), key=lambda v: v.name != URL)
)

_OPTIONS = (*PROMETHEUS_VARIABLES, *(v for v in VARIABLES if v.name == SOURCES))


@dataclass(frozen=True, slots=True)
class PrometheusOptions:
    """Where Prometheus is, if it is known, and a file with sources beside the built-in ones."""

    endpoint: "PrometheusEndpoint | None"
    sources_file: Path | None

    @property
    def place(self) -> "PrometheusEndpoint":
        """Where Prometheus is.

        Raises InputError if nobody has said it.
        """
        if self.endpoint is None:
            raise InputError("where is Prometheus? Give --prometheus URL")
        return self.endpoint

    def read_sources(self) -> "MetricSources":
        """Read the sources, as the operator does.

        Raises InputError if the file cannot be read, or is not valid.
        """
        from inferno_operator.engines.catalogue import catalogue_with

        return catalogue_with(self.sources_file)


def prometheus_options(
    command: Callable[..., None], *, is_brief: bool = False
) -> Callable[..., None]:
    """Add the options to a command, which gets them as first argument.

    A brief help has the URL alone; the others work, and stand in the help of `inferno measure`.
    """

    @wraps(command, assigned=("__name__", "__doc__"))
    def wrapped(*arguments: Any, **options: Any) -> None:  # noqa: ANN401 - the command's
        given = {v.name: options.pop(_parameter(v)) for v in _OPTIONS}
        command(_read(given), *arguments, **options)

    own = list(signature(command).parameters.values())[1:]
    options = (
        Parameter(
            _parameter(variable),
            Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                str | None,
                typer.Option(
                    _flag(variable),
                    metavar=variable.metavar,
                    help=f"{variable.help}{variable.default_note}",
                    hidden=is_brief and variable.name != URL,
                ),
            ],
        )
        for variable in _OPTIONS
    )
    wrapped.__signature__ = Signature([*own, *options])  # type: ignore[attr-defined]  # PEP 362
    return wrapped


def _read(options: Mapping[str, str | None]) -> PrometheusOptions:
    from inferno_operator.settings import prometheus_endpoint

    given = {name: value for name, value in options.items() if value is not None}
    environment = {**os.environ, **given}
    try:
        return PrometheusOptions(prometheus_endpoint(environment), file(environment, SOURCES))
    except InputError as error:
        raise InputError(_in_options(str(error))) from error


def _in_options(message: str) -> str:
    """A message with options in place of the variables that are not set."""
    flags = {v.name: _flag(v) for v in PROMETHEUS_VARIABLES if v.name not in os.environ}
    return re.sub(rf"{PREFIX}\w+", lambda found: flags.get(found[0], found[0]), message)


def _flag(variable: Variable) -> str:
    if variable.name == SOURCES:
        return f"--{variable.option}"
    rest = variable.name.removeprefix(PREFIX).lower().replace("_", "-")
    return "--prometheus" if variable.name == URL else f"--{rest}"


def _parameter(variable: Variable) -> str:
    return _flag(variable).removeprefix("--").replace("-", "_")


MIN_STEP_S, MAX_STEP_S = 1, 86_400.0  # time between two decisions [s]

# Time until a replica serves: its mean [s], and its coefficient of variation.
MAX_LEAD_TIME_S, MAX_LEAD_TIME_COV = 86_400.0, 10

MAX_SCALE = 1e6  # factor of all rates
MIN_SLOWER = 0.1  # factor of the time that replicas take
MAX_ERROR = 0.9  # share by which parameters are wrong


class ReplayFormat(StrEnum):
    """Output format of a replay."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


TRACE_FILE = option(
    "FILE",
    "The load: CSV, also gzip. With a step of a client on each line (client, "
    "start_s, rate_per_s, input_mean, output_mean), or a request (arrival_s, "
    "input_tokens, output_tokens).",
    show_default=False,
)
Step = Annotated[
    float, option("SECONDS", "Time between two decisions.", min=MIN_STEP_S, max=MAX_STEP_S)
]
Hours = Annotated[float, option("H", "How much of the trace; 0: all of it.", min=0)]
Scale = Annotated[float, option("FACTOR", "Multiplies all rates.", min=0, max=MAX_SCALE)]
ReplayOutput = Annotated[
    ReplayFormat, typer.Option("--output", "-o", help="How to print the result.")
]
Begin = Annotated[
    str,
    option(
        "TIME",
        "Replay what Prometheus knows of the Servers with spec.measure since a "
        "time, such as 2026-11-01 or 2026-11-01T18:00+01:00, or 7d or 12h ago.",
        "--from",
    ),
]
End = Annotated[str, option("TIME", "The end of it; by default now.", "--to")]
Keep = Annotated[
    Path | None,
    option(
        "FILE",
        "Write what was read from Prometheus into a file for --trace; .gz compresses it.",
        show_default=False,
    ),
]
Policies = Annotated[
    list[str],
    option(
        "NAME",
        "inferno, inferno-calibrated, inferno-exact, inferno-reactive, "
        "inferno-uncorrected, hpa, keda-slo, keda-queue, keda-queue-guard, "
        "keda-saturation, keda-token, dynamo-sla, melange, static-peak or "
        "clairvoyant; module:name of your own; with @best, on the best single "
        "accelerator of each server. Can be repeated.",
        "--policy",
    ),
]
SettingsFile = Annotated[
    Path | None,
    option(
        "FILE",
        "How to replay, and how far the Models are from the truth (YAML): stepSeconds, "
        "leadTimeSeconds, leadTimeCov, slower, error, poisson, seed, truth.",
        "--settings",
        show_default=False,
    ),
]
# What a file of settings has; each goes before it.
OwnStep = Annotated[float | None, typer.Option(hidden=True, min=MIN_STEP_S, max=MAX_STEP_S)]
Truth = Annotated[str | None, typer.Option(hidden=True)]
Slower = Annotated[float | None, typer.Option(hidden=True, min=MIN_SLOWER)]
Error = Annotated[float | None, typer.Option(hidden=True, min=0, max=MAX_ERROR)]
LeadTimeMean = Annotated[float | None, typer.Option(hidden=True, min=0, max=MAX_LEAD_TIME_S)]
LeadTimeSpread = Annotated[float | None, typer.Option(hidden=True, min=0, max=MAX_LEAD_TIME_COV)]
Poisson = Annotated[bool | None, typer.Option("--poisson", hidden=True)]
Seed = Annotated[int | None, typer.Option(hidden=True, min=0)]
Jobs = Annotated[
    int, option("N", "Policies that are replayed at the same time.", "--jobs", "-j", min=1)
]
Page = Annotated[
    Path | None,
    option(
        "FILE",
        "Also write the result as a page: cost and replicas over time, targets by "
        "class, and the ten worst times of each policy with their causes.",
        show_default=False,
    ),
]
