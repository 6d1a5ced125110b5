"""From a booster to the manifests of its children; pure, and the same for the same booster."""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Any

from inferno_operator.boosters.autoscaling import scaling
from inferno_operator.boosters.booster import Backend, Booster
from inferno_operator.boosters.context import Conversion, ConversionError, Problem
from inferno_operator.boosters.dialects import Dialect
from inferno_operator.boosters.networking import route, server
from inferno_operator.boosters.serving import serving

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
) -> Converted:
    """The children for some backends of a booster.

    The bad ones are left out; of them and of those that are not asked for, the ones that stand
    keep their part of the route and of the scaling.
    """
    conversion = Conversion(booster, dialect, strict)
    servings: dict[str, Json] = {}
    problems: list[Problem] = []
    for backend in backends:
        try:
            servings[backend.name] = serving(conversion, backend)
        except ConversionError as error:
            problems.append(Problem(error.path, error.text, backend.name))
    if not servings:
        return Converted((), tuple(problems))
    good = [backend for backend in booster.spec.backends if backend.name in servings]
    kept = [b for b in booster.spec.backends if b.name in servings or b.name in standing]
    servers = [server(conversion, backend) for backend in good]
    scalers = scaling(conversion, good, kept)
    children = (*servings.values(), *servers, route(conversion, kept), *scalers)
    return Converted(children, tuple(problems))
