"""The environment, read once into a frozen value; a bad one stops the start and is named."""

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from inferno_operator.adapters.optimizers.endpoint import Endpoint
from inferno_optimizer.errors import InputError

if TYPE_CHECKING:
    from inferno_operator.resources.dialects import Dialect

YES = frozenset({"true", "1", "yes", "on"})
NO = frozenset({"false", "0", "no", "off"})

OFF = "off"

NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""A DNS label, as Kubernetes asks for."""

HOST = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9._]*[A-Za-z0-9.])?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")
"""A name, or an address of either family."""

MAX_PORT = 65535

FILES = ("TLS_CERT", "TLS_KEY", "TLS_CA", "TOKEN_FILE")
"""Variables that name the files of an endpoint, in its order."""

HEALTH_PORT = 8081
"""Of the probes and metrics, unless told otherwise; as that of the original's probes."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable that is read; `inferno operator` has an option for each, a switch or a text."""

    name: str
    help: str
    metavar: str = ""
    switch: bool = False

    @property
    def option(self) -> str:
        """The option without its dashes."""
        return self.name.removeprefix("INFERNO_").lower().replace("_", "-")


VARIABLES = (
    Variable("INFERNO_HOST", "Host of the remote optimizer.", "HOST"),
    Variable("INFERNO_LEADER_ELECTION", "Work only while holding the Lease.", switch=True),
    Variable("INFERNO_MODEL_BOOSTER", "Its controller: off, kthena or matrixinfer.", "DIALECT"),
    Variable("INFERNO_NAMESPACE", "Namespaces to watch, with commas; all by default.", "NAMES"),
    Variable("INFERNO_OPTIMIZER", "Where to solve: local or remote.", "PLACE"),
    Variable("INFERNO_PORT", "Port of the remote optimizer.", "PORT"),
    Variable("INFERNO_SOLVER_TIME_LIMIT", "What the exact solver may take.", "SECONDS"),
    Variable("INFERNO_STATELESS", "Read objects when asked to optimize.", switch=True),
    Variable("INFERNO_TLS_CA", "Who vouches for the remote optimizer.", "FILE"),
    Variable("INFERNO_TLS_CERT", "Who we are, for the remote optimizer.", "FILE"),
    Variable("INFERNO_TLS_KEY", "The key to it.", "FILE"),
    Variable("INFERNO_TOKEN_FILE", "Bearer token for the remote optimizer.", "FILE"),
)

KNOWN = tuple(variable.name for variable in VARIABLES)


@dataclass(frozen=True, slots=True)
class Settings:
    """How the operator runs.

    `namespaces` are those that it watches, empty for all; `time_limit` is the exact
    solver's [s]; with `leader_election` it works only while it holds the Lease. `remote` is
    the optimizer, None for the embedded one; unless `stateless` objects are mirrored.
    `model_booster` is the dialect of the ModelBoosters that it looks after, if any.
    """

    namespaces: tuple[str, ...] = ()
    time_limit: float = 30.0
    leader_election: bool = False
    stateless: bool = True
    remote: Endpoint | None = None
    model_booster: "Dialect | None" = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Settings":
        """Read the INFERNO_* variables.

        Raises
        ------
        InputError
            A value that cannot be read; the text names the variable.
        """
        place = environment.get("INFERNO_OPTIMIZER", _default_place(environment))
        if place not in ("local", "remote"):
            raise InputError(f"INFERNO_OPTIMIZER: {place!r} is neither local nor remote")
        return cls(
            _namespaces(environment),
            _seconds(environment, "INFERNO_SOLVER_TIME_LIMIT"),
            _flag(environment, "INFERNO_LEADER_ELECTION", default=False),
            _flag(environment, "INFERNO_STATELESS", default=True),
            _endpoint(environment) if place == "remote" else None,
            _dialect(environment),
        )


def _dialect(environment: Mapping[str, str]) -> "Dialect | None":
    # The custom resources take a while to build, and `inferno --help` needs the variables alone.
    from inferno_operator.resources.dialects import DIALECTS  # noqa: PLC0415

    name = environment.get("INFERNO_MODEL_BOOSTER") or OFF
    if name != OFF and name not in DIALECTS:
        choices = ", ".join((OFF, *DIALECTS))
        raise InputError(f"INFERNO_MODEL_BOOSTER: {name!r} is none of {choices}")
    return DIALECTS.get(name)


def _default_place(environment: Mapping[str, str]) -> str:
    """Who names a host wants its optimizer."""
    return "remote" if environment.get("INFERNO_HOST") else "local"


def _endpoint(environment: Mapping[str, str]) -> Endpoint:
    """The remote optimizer; what is not said is as with the original."""
    host = environment.get("INFERNO_HOST") or Endpoint().host
    if not HOST.fullmatch(host):
        raise InputError(f"INFERNO_HOST: {host!r} is neither a name nor an address")
    files = {name: _file(environment, f"INFERNO_{name}") for name in FILES}
    if files["TLS_KEY"] and not files["TLS_CERT"]:
        raise InputError("INFERNO_TLS_KEY: is of no use without INFERNO_TLS_CERT")
    return Endpoint(host, _port(environment), *files.values())


def _file(environment: Mapping[str, str], name: str) -> Path | None:
    value = environment.get(name)
    return Path(value) if value else None


def _port(environment: Mapping[str, str]) -> int:
    value = environment.get("INFERNO_PORT")
    if value is None:
        return Endpoint().port
    if value.startswith("tcp://"):
        raise InputError(
            f"INFERNO_PORT: {value!r} comes from Kubernetes, for a Service called 'inferno':"
            " set enableServiceLinks: false on the pod, or INFERNO_PORT to a number"
        )
    if not (value.strip().isdecimal() and 0 < int(value) <= MAX_PORT):
        raise InputError(f"INFERNO_PORT: {value!r} is no number of a port")
    return int(value)


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """A warning for each INFERNO_* variable that nothing reads; service links are none."""
    names = [name for name in environment if name.startswith("INFERNO_") and name not in KNOWN]
    return [_warning(name) for name in sorted(names) if not _is_service_link(name)]


def _warning(name: str) -> str:
    nearest = difflib.get_close_matches(name, KNOWN, n=1)
    return f"{name} is unknown and ignored" + (f"; did you mean {nearest[0]}?" if nearest else "")


def _is_service_link(name: str) -> bool:
    """What Kubernetes injects for a Service: X_SERVICE_HOST, X_PORT, X_PORT_80_TCP_ADDR, ..."""
    return "_SERVICE_" in name or name.endswith("_PORT") or "_PORT_" in name


def _flag(environment: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = environment.get(name)
    if value is None:
        return default
    if value.strip().lower() not in YES | NO:
        raise InputError(f"{name}: {value!r} is neither true nor false (1/0, yes/no, on/off)")
    return value.strip().lower() in YES


def _namespaces(environment: Mapping[str, str]) -> tuple[str, ...]:
    names = (name.strip() for name in environment.get("INFERNO_NAMESPACE", "").split(","))
    given = sorted({name for name in names if name})
    for name in given:
        if not NAMESPACE.fullmatch(name):
            raise InputError(f"INFERNO_NAMESPACE: {name!r} is no name of a namespace")
    return tuple(given)


def _seconds(environment: Mapping[str, str], name: str) -> float:
    value = environment.get(name)
    if value is None:
        return Settings().time_limit
    try:
        seconds = float(value)
    except ValueError as error:
        raise InputError(f"{name}: {value!r} is not a number of seconds") from error
    if not 0 < seconds < math.inf:
        raise InputError(f"{name}: {value!r} is not a positive number of seconds")
    return seconds
