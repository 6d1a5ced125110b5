"""Convert a booster to the manifests of its children; pure and deterministic."""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from inferno_operator.controllers.boosters.booster import Booster, ModelBackend
from inferno_operator.controllers.boosters.convert.autoscaling import scaling
from inferno_operator.controllers.boosters.convert.context import (
    BoosterProblem,
    ChildPlace,
    Conversion,
    ConversionError,
)
from inferno_operator.controllers.boosters.convert.networking import route, server
from inferno_operator.controllers.boosters.convert.serving import serving
from inferno_operator.resources.dialects import Dialect
from inferno_operator.resources.objects import Kind

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Converted:
    """The children of a booster, and the problems of backends that have none."""

    children: tuple[Json, ...]
    problems: tuple[BoosterProblem, ...] = ()


def convert(booster: Booster, dialect: Dialect) -> tuple[Json, ...]:
    """Return the children of a booster: servings, servers, route, policies and bindings.

    Parameters
    ----------
    booster
        The booster.
    dialect
        The dialect of the booster.

    Raises
    ------
    ConversionError
        A backend cannot be converted.
    """
    converted = convert_backends(booster, booster.spec.backends, dialect)
    if converted.problems:
        raise ConversionError(converted.problems[0].path, converted.problems[0].text)
    return converted.children


def convert_backends(
    booster: Booster,
    backends: Iterable[ModelBackend],
    dialect: Dialect,
    *,
    standing: Container[str] = (),
    taken: Container[ChildPlace] = (),
) -> Converted:
    """Return the children for some backends of a booster.

    Backends that cannot be converted are left out. They, and backends of the booster that are
    not in `backends`, stay in the route and in the binding if their name is in `standing`: their
    children exist. Backends with a child name in `taken`, which is that of an object of another
    owner, are left out of the route and the bindings.
    """
    conversion = Conversion(booster, dialect)
    servings, problems = _servings(conversion, backends)
    free = partial(_free, booster, taken)
    good = [backend for backend in booster.spec.backends if backend.name in servings]
    kept = [b for b in booster.spec.backends if b.name in servings or b.name in standing]
    servers = [server(conversion, backend) for backend in good]
    routed = free(kept, dialect.serving, dialect.server)
    routes = [route(conversion, routed)] if routed else []
    scalers = scaling(conversion, free(good, dialect.serving), free(kept, dialect.serving))
    return Converted((*servings.values(), *servers, *routes, *scalers), problems)


def _free(
    booster: Booster, taken: Container[ChildPlace], among: Iterable[ModelBackend], *kinds: Kind
) -> list[ModelBackend]:
    """Return the backends without an object of another owner among their children's names."""
    names = ((backend, booster.child_name(backend)) for backend in among)
    return [b for b, name in names if not any((kind.kind, name) in taken for kind in kinds)]


def _servings(
    conversion: Conversion, backends: Iterable[ModelBackend]
) -> tuple[dict[str, Json], tuple[BoosterProblem, ...]]:
    """Return the servings by name of backend, and the problems of backends without one."""
    made: dict[str, Json] = {}
    problems: list[BoosterProblem] = []
    for backend in backends:
        try:
            made[backend.name] = serving(conversion, backend)
        except ConversionError as error:
            problems.append(BoosterProblem(error.path, error.text, backend.name))
    return made, tuple(problems)
