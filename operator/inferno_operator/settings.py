"""The settings, read once from the environment; an invalid one stops the start."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from inferno_operator.adapters.optimizers.endpoint import Endpoint
from inferno_operator.adapters.prometheus.endpoint import DEFAULT_TIMEOUT, PrometheusEndpoint
from inferno_optimizer.errors import InputError
from inferno_optimizer.suggestions import nearest

if TYPE_CHECKING:
    from inferno_operator.resources.dialects import Dialect

OFF = "off"

NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # a DNS label, as Kubernetes requires

# A host name, an IPv4 or an IPv6 address.
HOST = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9._]*[A-Za-z0-9.])?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")

MAX_PORT = 65535

# Variables with the files of an endpoint, in the order of its fields.
FILES = ("TLS_CERT", "TLS_KEY", "TLS_CA", "TOKEN_FILE")

HEALTH_PORT = 8081  # default port of probes and metrics, which is that of the original's probes


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable; `inferno operator` has an option for each, a flag or a text."""

    name: str
    help: str
    metavar: str = ""
    switch: bool = False
    default: str = ""

    @property
    def default_note(self) -> str:
        """The end of a help: what holds where the variable is not set, if anything does."""
        return f" [default: {self.default}]" if self.default else ""

    @property
    def option(self) -> str:
        """The name of the option, without the leading dashes."""
        return self.name.removeprefix("INFERNO_").lower().replace("_", "-")


VARIABLES = (
    Variable("INFERNO_HOST", "Host of the remote optimizer.", "HOST", default="localhost"),
    Variable(
        "INFERNO_LEADER_ELECTION",
        "Work only while holding the Lease.",
        switch=True,
        default="false",
    ),
    Variable(
        "INFERNO_MEASURE_INTERVAL",
        "Time between two measurements of the load.",
        "SECONDS",
        default="30",
    ),
    Variable(
        "INFERNO_MEASURE_SOURCES",
        "Sources for spec.measure, beside those that are built in (YAML).",
        "FILE",
    ),
    Variable(
        "INFERNO_METRICS_TOKEN_FILE",
        "Bearer token that readers of /metrics show; without it, everybody may read them.",
        "FILE",
    ),
    Variable(
        "INFERNO_MODEL_BOOSTER",
        "Controller of ModelBoosters: off, kthena or matrixinfer.",
        "DIALECT",
        default="off",
    ),
    Variable(
        "INFERNO_MODEL_BOOSTER_RELEASE",
        "Release of Kthena, where the fields of a ModelBooster leave it open: v0.2 to v0.4, v1.0"
        " or later.",
        "RELEASE",
    ),
    Variable(
        "INFERNO_NAMESPACE", "Namespaces to watch, separated by commas; all by default.", "NAMES"
    ),
    Variable("INFERNO_OPTIMIZER", "Where to solve: local or remote.", "PLACE", default="local"),
    Variable(
        "INFERNO_PLAN_KEY_FILE",
        "Key that signs Plans, at least 16 bytes; by default a Secret, or a random key.",
        "FILE",
    ),
    Variable("INFERNO_PORT", "Port of the remote optimizer.", "PORT", default="8080"),
    Variable("INFERNO_PROMETHEUS_CA", "CA certificate of Prometheus.", "FILE"),
    Variable("INFERNO_PROMETHEUS_CERT", "Client certificate for Prometheus.", "FILE"),
    Variable(
        "INFERNO_PROMETHEUS_HEADERS_FILE",
        "Headers for Prometheus, one per line, such as X-Scope-OrgID: team.",
        "FILE",
    ),
    Variable("INFERNO_PROMETHEUS_KEY", "Private key of the client certificate.", "FILE"),
    Variable(
        "INFERNO_PROMETHEUS_PARAMS",
        "Additional parameters of each query, such as namespace=prod&dedup=true.",
        "PARAMS",
    ),
    Variable("INFERNO_PROMETHEUS_PASSWORD_FILE", "Password for Prometheus.", "FILE"),
    Variable(
        "INFERNO_PROMETHEUS_TIMEOUT",
        "Time limit of a query, its second try included.",
        "SECONDS",
        default="10",
    ),
    Variable("INFERNO_PROMETHEUS_TOKEN_FILE", "Bearer token for Prometheus.", "FILE"),
    Variable(
        "INFERNO_PROMETHEUS_URL",
        "Prometheus to measure with, and its path prefix, such as https://mimir/prometheus.",
        "URL",
    ),
    Variable("INFERNO_PROMETHEUS_USER", "User for Prometheus.", "NAME"),
    Variable(
        "INFERNO_PUBLISH_TOKEN_FILE",
        "Bearer token that KEDA shows, or a folder with a token for each namespace, in a file of"
        " its name; without it, /v1/desired is not served.",
        "FILE",
    ),
    Variable(
        "INFERNO_SOLVER_TIME_LIMIT", "Time limit of the exact solver.", "SECONDS", default="30"
    ),
    Variable(
        "INFERNO_STATELESS",
        "Read objects on each request instead of mirroring them.",
        switch=True,
        default="true",
    ),
    Variable("INFERNO_TLS_CA", "CA certificate of the remote optimizer.", "FILE"),
    Variable("INFERNO_TLS_CERT", "Client certificate for the remote optimizer.", "FILE"),
    Variable("INFERNO_TLS_KEY", "Private key of the client certificate.", "FILE"),
    Variable("INFERNO_TOKEN_FILE", "Bearer token for the remote optimizer.", "FILE"),
    Variable(
        "INFERNO_WVA_METRICS",
        "Export decisions also as wva_* metrics, for users of llm-d and KServe.",
        switch=True,
        default="false",
    ),
)

KNOWN = tuple(variable.name for variable in VARIABLES)


@dataclass(frozen=True, slots=True)
class Settings:
    """How the operator runs.

    `namespaces` are the watched namespaces, empty for all; `time_limit` is that of the exact
    solver [s]; with `leader_election` the operator writes only while it holds the Lease.
    `remote` is the remote optimizer, None for the embedded one; if not `stateless`, objects are
    mirrored. `model_booster` is the dialect of the Model Booster controller, None if it is off.
    `prometheus` is where loads and latencies are measured, every `measure_interval` [s]; None if
    nothing is measured. `measure_sources` has sources beside those that are built in.
    `publish_token` is the file with the token of those who read decisions, or a folder with one for
    each namespace, None if nobody may; `metrics_token` is the file with the token of those who read
    metrics, None if everybody may. With `wva_metrics` decisions are exported as `wva_*` metrics as
    well. `plan_key` is the file with the key that signs Plans; None: a Secret beside the operator
    has it.
    """

    namespaces: tuple[str, ...] = ()
    time_limit: float = 30.0
    leader_election: bool = False
    stateless: bool = True
    remote: Endpoint | None = None
    model_booster: "Dialect | None" = None
    prometheus: PrometheusEndpoint | None = None
    measure_interval: float = 30.0
    measure_sources: Path | None = None
    publish_token: Path | None = None
    wva_metrics: bool = False
    plan_key: Path | None = None
    metrics_token: Path | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Settings":
        """Read the INFERNO_* variables; one without a value is as if it were absent, as in Go.

        Raises InputError if a value is invalid; the message names the variable.
        """
        environment = {name: value for name, value in environment.items() if value.strip()}
        place = environment.get(
            "INFERNO_OPTIMIZER", "remote" if environment.get("INFERNO_HOST") else "local"
        )
        if place not in ("local", "remote"):
            raise InputError(f"INFERNO_OPTIMIZER: {place!r} is neither local nor remote")
        defaults = cls()
        return cls(
            _namespaces(environment),
            read_seconds(environment, "INFERNO_SOLVER_TIME_LIMIT", defaults.time_limit),
            flag(environment, "INFERNO_LEADER_ELECTION", default=False),
            flag(environment, "INFERNO_STATELESS", default=True),
            _endpoint(environment) if place == "remote" else None,
            _dialect(environment),
            prometheus_endpoint(environment),
            read_seconds(environment, "INFERNO_MEASURE_INTERVAL", defaults.measure_interval),
            file(environment, "INFERNO_MEASURE_SOURCES"),
            file(environment, "INFERNO_PUBLISH_TOKEN_FILE"),
            flag(environment, "INFERNO_WVA_METRICS", default=False),
            file(environment, "INFERNO_PLAN_KEY_FILE"),
            file(environment, "INFERNO_METRICS_TOKEN_FILE"),
        )

    @property
    def summary(self) -> str:
        """Where plans are solved, and how objects are read, in one line."""
        place = "local, in this process (INFERNO_HOST names a remote one)"
        if self.remote is not None:
            place = f"remote, {self.remote.url}"
        reads = "stateless, reads objects for each request"
        if not self.stateless:
            reads = "stateful, watches and mirrors objects"
        return f"optimizer: {place}; operator: {reads}"


def _dialect(environment: Mapping[str, str]) -> "Dialect | None":
    # The custom resources take a while to build, and `inferno --help` needs the variables alone.
    from inferno_operator.resources.dialects import DIALECTS, KTHENA, RELEASES  # noqa: PLC0415

    name = environment.get("INFERNO_MODEL_BOOSTER") or OFF
    if name != OFF and name not in DIALECTS:
        choices = ", ".join((OFF, *DIALECTS))
        raise InputError(f"INFERNO_MODEL_BOOSTER: must be one of {choices}, not {name!r}")
    release = environment.get("INFERNO_MODEL_BOOSTER_RELEASE")
    if not release:
        return DIALECTS.get(name)
    if release not in RELEASES:
        choices = ", ".join(RELEASES)
        raise InputError(
            f"INFERNO_MODEL_BOOSTER_RELEASE: must be one of {choices}, not {release!r}"
        )
    if name != KTHENA.name:
        raise InputError(
            "INFERNO_MODEL_BOOSTER_RELEASE: has no effect without INFERNO_MODEL_BOOSTER=kthena"
        )
    return replace(KTHENA, installed=RELEASES[release])


def _endpoint(environment: Mapping[str, str]) -> Endpoint:
    """Return the endpoint of the remote optimizer; its defaults are those of the original."""
    host = environment.get("INFERNO_HOST") or Endpoint().host
    if not HOST.fullmatch(host):
        raise InputError(f"INFERNO_HOST: {host!r} is neither a host name nor an IP address")
    files = {name: file(environment, f"INFERNO_{name}") for name in FILES}
    if files["TLS_KEY"] and not files["TLS_CERT"]:
        raise InputError("INFERNO_TLS_KEY: has no effect without INFERNO_TLS_CERT: set both")
    return Endpoint(host, _port(environment), *files.values())


def _port(environment: Mapping[str, str]) -> int:
    value = environment.get("INFERNO_PORT")
    if value is None:
        return Endpoint().port
    if value.startswith("tcp://"):
        raise InputError(
            f"INFERNO_PORT: {value!r} was set by Kubernetes for a Service named 'inferno':"
            " set enableServiceLinks: false on the pod, or INFERNO_PORT to a number"
        )
    if not (value.strip().isdecimal() and 0 < int(value) <= MAX_PORT):
        raise InputError(f"INFERNO_PORT: {value!r} is not a port number (1 to {MAX_PORT})")
    return int(value)


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Return a warning for each unknown INFERNO_* variable, except service links."""
    names = [name for name in environment if name.startswith("INFERNO_") and name not in KNOWN]
    return [
        f"{name} is unknown and ignored{nearest(name, KNOWN, most=1)}"
        for name in sorted(names)
        if not _is_service_link(name)
    ]


def _is_service_link(name: str) -> bool:
    """Whether Kubernetes sets it for a Service: X_SERVICE_HOST, X_PORT, X_PORT_80_TCP_ADDR, ..."""
    return "_SERVICE_" in name or name.endswith("_PORT") or "_PORT_" in name


def _namespaces(environment: Mapping[str, str]) -> tuple[str, ...]:
    names = (name.strip() for name in environment.get("INFERNO_NAMESPACE", "").split(","))
    given = sorted({name for name in names if name})
    for name in given:
        if not NAMESPACE.fullmatch(name):
            raise InputError(f"INFERNO_NAMESPACE: {name!r} is not a valid namespace name")
    return tuple(given)


# Where Prometheus is: the INFERNO_PROMETHEUS_* variables.

URL = "INFERNO_PROMETHEUS_URL"
TOKEN_FILE = "INFERNO_PROMETHEUS_TOKEN_FILE"  # noqa: S105 - the name of a variable
CA = "INFERNO_PROMETHEUS_CA"
CERT = "INFERNO_PROMETHEUS_CERT"
KEY = "INFERNO_PROMETHEUS_KEY"
USER = "INFERNO_PROMETHEUS_USER"
PASSWORD_FILE = "INFERNO_PROMETHEUS_PASSWORD_FILE"  # noqa: S105 - the name of a variable
HEADERS_FILE = "INFERNO_PROMETHEUS_HEADERS_FILE"
PARAMS = "INFERNO_PROMETHEUS_PARAMS"
TIMEOUT = "INFERNO_PROMETHEUS_TIMEOUT"

# Variables that have no effect without another one.
NEEDS = ((KEY, CERT), (USER, PASSWORD_FILE), (PASSWORD_FILE, USER))


def prometheus_endpoint(environment: Mapping[str, str]) -> PrometheusEndpoint | None:
    """Return where Prometheus is, None without a URL.

    Raises InputError if a value is invalid, or has no effect beside the others; the message
    names the variable.
    """
    url = environment.get(URL, "").strip()
    if not url:
        return None
    _check_url(url)
    _check_combination(environment, secure=url.startswith("https:"))
    return PrometheusEndpoint(
        url,
        token=file(environment, TOKEN_FILE),
        authority=file(environment, CA),
        certificate=file(environment, CERT),
        key=file(environment, KEY),
        user=environment.get(USER, ""),
        password=file(environment, PASSWORD_FILE),
        headers=file(environment, HEADERS_FILE),
        params=_params(environment.get(PARAMS, "")),
        timeout=read_seconds(environment, TIMEOUT, DEFAULT_TIMEOUT),
    )


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # an invalid port is found when it is read
    except ValueError as error:
        raise InputError(f"{URL}: {url!r} is not a URL: {error}") from error
    if "@" in parts.netloc:
        raise InputError(f"{URL}: it must not have credentials: set {USER} and {PASSWORD_FILE}")
    if not url.startswith(("http://", "https://")) or not host:
        raise InputError(f"{URL}: {url!r} is not a URL such as https://prometheus:9090/prefix")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise InputError(f"{URL}: {url!r} has characters that a URL cannot have: escape them")
    if parts.query or parts.fragment:
        raise InputError(f"{URL}: {url!r} has parameters: set them in {PARAMS}")


def _check_combination(environment: Mapping[str, str], *, secure: bool) -> None:
    for name, needed in NEEDS:
        if environment.get(name) and not environment.get(needed):
            raise InputError(f"{name}: has no effect without {needed}: set both")
    if environment.get(TOKEN_FILE) and environment.get(USER):
        raise InputError(f"{TOKEN_FILE}: cannot be set together with {USER}: set one of them")
    if ":" in environment.get(USER, ""):
        raise InputError(f"{USER}: {environment[USER]!r} has a colon: no user can have one")
    for name in (CA, CERT):
        if environment.get(name) and not secure:
            raise InputError(f"{name}: has no effect unless {URL} starts with https://")


def _params(text: str) -> tuple[tuple[str, str], ...]:
    """Return names and values of parameters such as `namespace=prod&dedup=true`."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text))
    except ValueError as error:
        raise InputError(f"{PARAMS}: {text!r} is not of the form name=value&name=value") from error
    if not all(name for name, _ in pairs):
        raise InputError(f"{PARAMS}: {text!r} has a value without a name")
    return tuple(pairs)


# The value of one variable: a flag, a number of seconds, a file.

YES = frozenset({"true", "t", "1", "yes", "on"})
NO = frozenset({"false", "f", "0", "no", "off"})


def flag(environment: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return whether a flag is set; an empty value is that of an absent variable, as in Go.

    Raises InputError if the value is neither true nor false.
    """
    value = environment.get(name, "").strip().lower()
    if not value:
        return default
    if value not in YES | NO:
        given = environment[name]
        raise InputError(f"{name}: {given!r} is neither true nor false (1/0, t/f, yes/no, on/off)")
    return value in YES


def read_seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    """Return a time [s].

    Raises InputError if the value is not a positive number.
    """
    value = environment.get(name)
    if value is None:
        return default
    try:
        number = float(value)
    except ValueError as error:
        raise InputError(f"{name}: {value!r} is not a number of seconds") from error
    if not 0 < number < math.inf:
        raise InputError(f"{name}: {value!r} is not a positive number of seconds")
    return number


def file(environment: Mapping[str, str], name: str) -> Path | None:
    """Return the path of a file; it is None if the variable is absent or empty."""
    value = environment.get(name)
    return Path(value) if value else None
