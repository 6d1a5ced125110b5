"""Performance data by which replicas carry far more than in earlier plans, all at once; pure.

That is often a mistake, such as times in the wrong unit. Plans compute with the new data; but a
Plan that takes replicas away by them waits for a person (see `approval/reduction`). What was known
before stays trusted until then; smaller changes, such as those of calibration, are trusted at once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace

from inferno_operator.controllers.optimization.profiles import TIMES, effective, profile_of
from inferno_operator.controllers.optimization.replica_rates import replica_rates
from inferno_operator.resources import Model, PerformanceData
from inferno_optimizer.system import PerformanceParameters, PerformanceProfile, System

FASTER = 2.0
"""How many times as fast as before a replica may be and is still trusted."""

Place = tuple[str, str]
"""A model and an accelerator."""


def doubted(system: System, models: Iterable[Model]) -> Mapping[Place, PerformanceProfile]:
    """Return the profiles that are trusted instead of those of the system; none usually.

    A profile is doubted if by it a replica of some server carries more than if all times that were
    known were half as long.

    Parameters
    ----------
    system
        The system with the profiles as they are now.
    models
        Its Models, with the performance data that were trusted up to now.
    """
    known = {
        (model.spec.name, data.acc): profile_of(model.spec.name, data)
        for model in models
        for data in model.status.performance
    }
    changed = {
        p for profile in system.profiles if known.get(p := _place(profile), profile) != profile
    }
    if not changed:
        return {}
    models_of = {server.name: server.model for server in system.servers}
    changed_models, accelerators = ({place[side] for place in changed} for side in (0, 1))
    servers = {name for name, model in models_of.items() if model in changed_models}
    at_most = trusting(system, {place: _faster(known[place]) for place in changed})
    now, most = (replica_rates(s, servers, accelerators) for s in (system, at_most))
    beyond = {(models_of[of[0]], of[1]) for of, rate in now.items() if rate > most.get(of, 0.0)}
    return {place: known[place] for place in changed & beyond}


def trusting(system: System, trusted: Mapping[Place, PerformanceProfile]) -> System:
    """Return the system with these profiles in place of its own."""
    profiles = (trusted.get(_place(profile), profile) for profile in system.profiles)
    return replace(system, profiles=tuple(profiles))


def trusted_data(
    model: Model, in_doubt: Mapping[Place, PerformanceProfile]
) -> tuple[PerformanceData, ...]:
    """Return the data of a Model that are trusted after a plan: as before, of those in doubt."""
    before = {data.acc: data for data in model.status.performance}
    return tuple(
        before[data.acc] if (model.spec.name, data.acc) in in_doubt else data
        for data in effective(model)
    )


def warnings(model: Model, in_doubt: Mapping[Place, PerformanceProfile]) -> list[str]:
    """Return what is said on a Model of its data that are in doubt."""
    return [
        f"{acc}: a replica is to carry more than twice what it did in earlier plans; who would lose"
        f" replicas by that waits for a person"
        for name, acc in in_doubt
        if name == model.spec.name
    ]


def _place(profile: PerformanceProfile) -> Place:
    return profile.model, profile.accelerator


def _faster(profile: PerformanceProfile) -> PerformanceProfile:
    """Return the profile with all times as short as is trusted."""
    parameters: PerformanceParameters = profile.parameters
    times = {
        field.name: getattr(parameters, field.name) / FASTER
        for field in fields(parameters)
        if field.name in TIMES
    }
    return replace(profile, parameters=replace(parameters, **times))
