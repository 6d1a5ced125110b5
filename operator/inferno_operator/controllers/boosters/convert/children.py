"""From a booster to the manifests of its children; pure, and the same for the same booster."""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from inferno_operator.controllers.boosters.booster import Backend, Booster
from inferno_operator.controllers.boosters.convert.autoscaling import scaling
from inferno_operator.controllers.boosters.convert.context import (
    Conversion,
    ConversionError,
    Place,
    Problem,
)
from inferno_operator.controllers.boosters.convert.networking import route, server
from inferno_operator.controllers.boosters.convert.serving import serving
from inferno_operator.resources.dialects import Dialect
from inferno_operator.resources.objects import Kind

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Converted:
    """What could be made of a booster, and what is wrong with the backends left out."""

    children: tuple[Json, ...]
    problems: tuple[Problem, ...] = ()


def convert(booster: Booster, dialect: Dialect, *, strict: bool = False) -> tuple[Json, ...]:
    """The children of a booster: servings, servers, route, policies and bindings.

    Parameters
    ----------
    booster
        What a user wants.
    dialect
        In which API groups.
    strict
        Repeat what the original writes, defects included, to compare with its answers.

    Raises
    ------
    ConversionError
        Nothing can be made of a backend.
    """
    converted = convert_backends(booster, booster.spec.backends, dialect, strict=strict)
    if converted.problems:
        raise ConversionError(converted.problems[0].path, converted.problems[0].text)
    return converted.children


def convert_backends(
    booster: Booster,
    backends: Iterable[Backend],
    dialect: Dialect,
    *,
    strict: bool = False,
    standing: Container[str] = (),
    taken: Container[Place] = (),
) -> Converted:
    """The children for some backends of a booster.

    The bad ones are left out; of them and of those that are not asked for, the ones that stand
    keep their part of the route and of the scaling. What has a name that is taken by an object
    of somebody else gets no requests and is not scaled.
    """
    conversion = Conversion(booster, dialect, strict)
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
    booster: Booster, taken: Container[Place], among: Iterable[Backend], *kinds: Kind
) -> list[Backend]:
    """The backends of which nobody else has an object of these kinds."""
    names = ((backend, booster.child_name(backend)) for backend in among)
    return [b for b, name in names if not any((kind.kind, name) in taken for kind in kinds)]


def _servings(
    conversion: Conversion, backends: Iterable[Backend]
) -> tuple[dict[str, Json], tuple[Problem, ...]]:
    """The serving of each backend, by its name, and what is wrong with those that have none."""
    made: dict[str, Json] = {}
    problems: list[Problem] = []
    for backend in backends:
        try:
            made[backend.name] = serving(conversion, backend)
        except ConversionError as error:
            problems.append(Problem(error.path, error.text, backend.name))
    return made, tuple(problems)
