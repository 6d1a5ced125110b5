"""Finds performance data by which a replica suddenly carries far more or far less; pure.

That is often a mistake, such as times in the wrong unit. Plans compute with the new data; but a
Plan that takes replicas away by them, or makes a Server far dearer, waits for a person (see
`approval/reduction` and `approval/inflation`). What was known before stays trusted until then;
smaller changes, such as those of calibration, are trusted at once.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import TypeVar

from inferno_operator.controllers.optimization.profiles import (
    TIMES,
    Place,
    Profile,
    effective,
    place_of_data,
    place_of_profile,
    profile_of,
)
from inferno_operator.controllers.optimization.replica_rates import replica_rates
from inferno_operator.resources import Model, PerformanceData
from inferno_optimizer.system import (
    PerformanceParameters,
    PerformanceProfile,
    RoleProfile,
    System,
    place_of,
)

Kind = TypeVar("Kind", PerformanceProfile, RoleProfile)
Parameters = TypeVar("Parameters", bound=PerformanceParameters)

FASTER = 2.0
"""How many times as fast as before a replica may be and is still trusted."""

SLOWER = 4.0
"""How many times as slow as before a replica may be and is still trusted.

It is more than `FASTER`: who waits for replicas that are needed is served worse meanwhile.
"""


@dataclass(frozen=True, slots=True)
class Doubt:
    """Performance data that are not trusted.

    Attributes
    ----------
    trusted
        The profile that is trusted instead.
    carries_more
        Whether a replica would carry far more by the new data; else it would carry far less.
    """

    trusted: Profile
    carries_more: bool


Doubts = Mapping[Place, Doubt]
"""The performance data that are not trusted; none usually."""


def doubted(system: System, models: Iterable[Model]) -> Doubts:
    """Return which profiles of the system are not trusted.

    A profile is doubted if by it a replica of some server carries more than if all times that were
    known were half as long, or less than if they were four times as long.

    Parameters
    ----------
    system
        The system with the profiles as they are now.
    models
        Its Models, with the performance data that were trusted up to now.
    """
    known = {
        place_of_data(model, data): profile_of(model, data)
        for model in models
        for data in model.status.performance
    }
    own: tuple[Profile, ...] = (*system.profiles, *system.roles)
    profiles = {place_of_profile(profile): profile for profile in own}
    changed = {p for p, profile in profiles.items() if known.get(p, profile) != profile}
    if not changed:
        return {}
    before = {place: known[place] for place in changed}
    more, less = _beyond(system, before)
    return {
        place: Doubt(trusted, carries_more=place in more)
        for place, trusted in before.items()
        if place in more | less
    }


def _beyond(system: System, before: Mapping[Place, Profile]) -> tuple[set[Place], set[Place]]:
    """Return where replicas carry far more than by other profiles, and where far less."""
    models, accelerators = ({place[side] for place in before} for side in (0, 1))
    model_of = {s.name: s.model for s in system.servers if s.model in models}
    now, most, least = (
        replica_rates(each, model_of.keys(), accelerators)
        for each in (system, _slowed(system, before, 1 / FASTER), _slowed(system, before, SLOWER))
    )
    more = {key for key, rate in now.items() if rate > most.get(key, 0.0)}
    less = {key for key, rate in least.items() if rate > now.get(key, 0.0)}
    places = {(place[0], place_of(*place[1:])): place for place in before}
    return (
        {places[of] for name, where in more if (of := (model_of[name], where)) in places},
        {places[of] for name, where in less if (of := (model_of[name], where)) in places},
    )


def trusting(system: System, in_doubt: Doubts) -> System:
    """Return the system with the profiles that are trusted in place of those in doubt."""
    return _with(system, {place: doubt.trusted for place, doubt in in_doubt.items()})


def trusted_data(model: Model, in_doubt: Doubts) -> tuple[PerformanceData, ...]:
    """Return the data of a Model that are trusted after a plan: as before, of those in doubt."""
    before = {place_of_data(model, data): data for data in model.status.performance}
    return tuple(
        before[place] if (place := place_of_data(model, data)) in in_doubt else data
        for data in effective(model)
    )


def warnings(model: Model, in_doubt: Doubts) -> list[str]:
    """Return what is said on a Model of its data that are in doubt."""
    return [
        f"{place_of(accelerator, role)}: with these data a replica carries {_told(doubt)} need"
        " approval"
        for (name, accelerator, role), doubt in in_doubt.items()
        if name == model.spec.name
    ]


def _told(doubt: Doubt) -> str:
    if doubt.carries_more:
        return (
            "more than twice what it did in earlier plans; Servers that would lose replicas by this"
        )
    return (
        "less than a quarter of what it did in earlier plans; Servers that miss no target now and"
        " would cost more than twice as much by this"
    )


def _with(system: System, profiles: Mapping[Place, Profile]) -> System:
    """Return the system with these profiles in place of its own."""
    return replace(
        system,
        profiles=tuple(_replaced(system.profiles, profiles)),
        roles=tuple(_replaced(system.roles, profiles)),
    )


def _replaced(own: Iterable[Kind], others: Mapping[Place, Profile]) -> Iterator[Kind]:
    """Yield the profiles, others of the same places instead of them where there are any."""
    for profile in own:
        other = others.get(place_of_profile(profile))
        yield other if isinstance(other, type(profile)) else profile


def _slowed(system: System, profiles: Mapping[Place, Profile], factor: float) -> System:
    """Return the system with these profiles, and all their times longer by a factor."""
    return _with(system, {place: _times(profile, factor) for place, profile in profiles.items()})


def _times(profile: Profile, factor: float) -> Profile:
    """Return the profile with all times longer by a factor."""
    if isinstance(profile, RoleProfile):
        return replace(profile, parameters=_longer(profile.parameters, factor))
    return replace(profile, parameters=_longer(profile.parameters, factor))


def _longer(parameters: Parameters, factor: float) -> Parameters:
    """Return parameters of any generation with all times longer by a factor."""
    times = {
        field.name: getattr(parameters, field.name) * factor
        for field in fields(parameters)
        if field.name in TIMES
    }
    return replace(parameters, **times)
