"""The environment, read once into a frozen value; a bad one stops the start and is named."""

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from inferno_optimizer.errors import InputError, UnsupportedError

YES = frozenset({"true", "1", "yes", "on"})
NO = frozenset({"false", "0", "no", "off"})

NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""A DNS label, as Kubernetes asks for."""

KNOWN = (
    "INFERNO_HOST",
    "INFERNO_NAMESPACE",
    "INFERNO_OPTIMIZER",
    "INFERNO_SOLVER_TIME_LIMIT",
    "INFERNO_STATELESS",
)


@dataclass(frozen=True, slots=True)
class Settings:
    """How the operator runs.

    `namespaces` are those that it watches, empty for all; `time_limit` is the exact
    solver's [s].
    """

    namespaces: tuple[str, ...] = ()
    time_limit: float = 30.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Settings":
        """Read the INFERNO_* variables.

        Raises
        ------
        InputError
            A value that cannot be read; the text names the variable.
        UnsupportedError
            A way to run that this version does not have.
        """
        if not _flag(environment, "INFERNO_STATELESS", default=True):
            raise UnsupportedError("INFERNO_STATELESS: only true is supported yet")
        place = environment.get("INFERNO_OPTIMIZER", _default_place(environment))
        if place not in ("local", "remote"):
            raise InputError(f"INFERNO_OPTIMIZER: {place!r} is neither local nor remote")
        if place == "remote":
            raise UnsupportedError("INFERNO_OPTIMIZER: only local is supported yet")
        return cls(_namespaces(environment), _seconds(environment, "INFERNO_SOLVER_TIME_LIMIT"))


def _default_place(environment: Mapping[str, str]) -> str:
    """Who names a host wants its optimizer."""
    return "remote" if environment.get("INFERNO_HOST") else "local"


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
