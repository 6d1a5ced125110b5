"""Pairs each server that can be sized with the performance profiles of its model.

The pairs are a struct of arrays with one row for each, before they are sized. See `sizing.md`,
section "From rate to replicas".
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from inferno_optimizer.sizing.cases import Case, Catalogue
from inferno_optimizer.sizing.generations import model_of
from inferno_optimizer.sizing.limits import TargetLimits
from inferno_optimizer.sizing.performance import Requests
from inferno_optimizer.sizing.prompt_cache import PromptCaches
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.sizing.replicas import Replicas
from inferno_optimizer.system import Generation, PerformanceParameters, Role, System
from inferno_optimizer.units import MS_PER_MINUTE, MS_PER_SECOND

MAX_BATCH = 2**16
"""Largest batch [requests]; it bounds the number of states that are summed."""


@dataclass(frozen=True, slots=True)
class GenerationRows:
    """The rows with profiles of one generation, in ascending order, and their replicas to size.

    `parameters` are the profiles' own, of which each row has the one at `which`.
    """

    rows: IntArray
    replicas: Replicas
    parameters: tuple[PerformanceParameters, ...]
    which: IntArray

    def among(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Positions in `rows` of the group's rows, and their positions in it; by falling batch."""
        place = np.searchsorted(self.rows, rows)
        at = np.flatnonzero(self.rows[np.minimum(place, len(self.rows) - 1)] == rows)
        order = np.argsort(-self.replicas.model.batch[place[at]], kind="stable")
        return at[order], place[at][order]

    def serving(self, requests: Requests, changed: IntArray) -> Self:
        """The group with other requests at the changed positions, at least one."""
        known = self.replicas.model
        model = model_of(self.parameters, self.which[changed], requests.take(changed))
        if type(model) is type(known):
            model = known.with_rows(changed, model.columns())
        else:  # with cached prompts or without, which all rows must have alike
            model = model_of(self.parameters, self.which, requests)
        return replace(self, replicas=replace(self.replicas, model=model))


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs of server and profile, as arrays of shape (rows,).

    `case`, `profile`, `accelerator` and `type` are positions in the cases, the system's
    profiles, its accelerators and the sorted types; `cards` are the cards of one replica, and
    `batch` is its largest batch; `demand` is the rate to provide for [requests/ms], 0 for an
    idle server. `released` rows use no accelerator: the server is idle, has no minimum of
    replicas, and the profile is of generation 2, 3 or 4. `requests` have the input tokens that
    `caches` leave to be computed by some number of replicas, at first by as few as there may be.
    """

    case: IntArray
    profile: IntArray
    accelerator: IntArray
    type: IntArray
    cards: IntArray
    batch: IntArray
    demand: FloatArray
    released: npt.NDArray[np.bool_]
    requests: Requests
    caches: PromptCaches
    groups: tuple[GenerationRows, ...]

    def computing(self, tokens: IntArray) -> Self:
        """The pairs where requests compute other numbers of input tokens."""
        requests = replace(self.requests, computed_tokens=tokens)
        groups = []
        for group in self.groups:
            other = tokens[group.rows] != self.requests.computed_tokens[group.rows]
            changed = np.flatnonzero(other)
            of_group = requests.take(group.rows)
            groups.append(group.serving(of_group, changed) if changed.size else group)
        return replace(self, requests=requests, groups=tuple(groups))


def sorted_types(system: System) -> tuple[str, ...]:
    """The types of the cards."""
    return tuple(sorted({a.type for a in system.accelerators}))


def build_pairs(
    catalogue: Catalogue,
    cases: Sequence[Case],
    types: tuple[str, ...],
    roles: Sequence[Role] = (),
) -> Pairs:
    """The pairs of all cases and their profiles, before they are sized.

    `types` are the sorted types of the cards; `roles` are those of the profiles, if not both.
    """
    system = catalogue.system
    case = np.repeat(np.arange(len(cases)), [len(c.profiles) for c in cases])
    profile = np.fromiter((i for c in cases for i in c.profiles), dtype=np.int64, count=len(case))
    accelerator = integers(catalogue.accelerators.get(p.accelerator, -1) for p in system.profiles)[
        profile
    ]
    multiplicity = integers(a.multiplicity for a in system.accelerators)[accelerator]
    generation = _generation(system)[profile]
    floor = integers(c.server.min_replicas for c in cases)[case]
    role_of = [roles[i] if roles else Role.BOTH for i in profile.tolist()]
    caches = PromptCaches.of(cases, case, accelerator, catalogue.accelerators, role_of)
    requests = _requests(system, cases, case, profile, caches.computed_tokens(floor))
    limits = TargetLimits.of([c.target for c in cases]).take(case)
    demand = _demand(cases, case, requests.tokens)
    return Pairs(
        case=case,
        profile=profile,
        accelerator=accelerator,
        type=integers(types.index(a.type) for a in system.accelerators)[accelerator],
        cards=accelerators_per_replica(system)[profile] * multiplicity,
        batch=requests.batch,
        demand=demand,
        released=(generation != Generation.DECODE) & (demand == 0) & (floor == 0),
        requests=requests,
        caches=caches,
        groups=tuple(_groups(system, profile, requests, limits)),
    )


def _requests(
    system: System, cases: Sequence[Case], case: IntArray, profile: IntArray, computed: IntArray
) -> Requests:
    """The requests that a replica of each row serves, as the generation of its profile counts."""
    loads = [c.server.load for c in cases]
    generation = _generation(system)[profile]
    decoded, generated = (
        integers(load.tokens_of(vocabulary) for load in loads)[case]
        for vocabulary in (Generation.DECODE, Generation.TOKEN_BUDGET)
    )
    tokens = np.where(generation == Generation.DECODE, decoded, generated)
    idle = np.array([load.idle for load in loads], dtype=np.bool_)[case]
    return Requests(
        batch=_batch(system, cases, case, profile, np.where(idle, 0, tokens)),
        tokens=tokens,
        input_tokens=integers(load.input_tokens for load in loads)[case],
        max_queue_size=integers(c.server.max_queue_size for c in cases)[case],
        arrival_cov=_variations(load.arrival_cov for load in loads)[case],
        length_cov=_variations(load.service_cov for load in loads)[case],
        computed_tokens=computed,
        tokens_per_step=np.maximum([load.tokens_per_step for load in loads], 1.0)[case],
    )


def _variations(values: Iterable[float]) -> FloatArray:
    """Coefficients of variation; 0 means unknown: random arrivals, exponential lengths."""
    given = np.array([*values], dtype=np.float64)
    return np.where(given > 0, given, 1.0)


def _batch(
    system: System, cases: Sequence[Case], case: IntArray, profile: IntArray, tokens: IntArray
) -> IntArray:
    """Largest batch: that of the server if set, else that of the profile, scaled to the tokens.

    Both are limited to the bounds of the profile.
    """
    most = np.array([p.max_batch_size for p in system.profiles], dtype=np.float64)[profile]
    fitting = np.array([p.max_batch_size * p.at_tokens for p in system.profiles], dtype=np.float64)
    scaled = np.where(tokens > 0, fitting[profile] // np.maximum(tokens, 1), most)
    own = np.array([c.server.max_batch_size for c in cases], dtype=np.float64)[case]
    bound = _most_sequences(system, cases, case, profile)
    return np.clip(np.where(own > 0, own, scaled), 1, bound).astype(np.int64)


def _most_sequences(
    system: System, cases: Sequence[Case], case: IntArray, profile: IntArray
) -> FloatArray:
    """Largest number of requests in service: `max_sequences` and the memory limit; at least 1."""
    sequences = _bounds(p.max_sequences for p in system.profiles)[profile]
    memory = _bounds(p.max_tokens for p in system.profiles)[profile]
    length = np.array([c.server.load.tokens_kept for c in cases], dtype=np.float64)[case]
    kept = np.where(length > 0, np.floor(memory / np.maximum(length, 1)), np.inf)
    return np.clip(np.minimum(sequences, kept), 1, MAX_BATCH)


def _bounds(values: Iterable[int]) -> FloatArray:
    """Bounds as an array; 0 becomes infinity, which means no bound."""
    bounds = np.array([*values], dtype=np.float64)
    return np.where(bounds > 0, bounds, np.inf)


def _demand(cases: Sequence[Case], case: IntArray, tokens: IntArray) -> FloatArray:
    """Rate to provide for: of load, least rate and throughput target the largest [requests/ms].

    It is 0 if idle.
    """
    rates = [max(c.server.load.arrival_rate, c.server.least_rate) for c in cases]
    load = np.array(rates, dtype=np.float64)[case]
    target = np.array([c.target.tokens_per_second for c in cases], dtype=np.float64)[case]
    idle = np.array([c.server.load.idle for c in cases], dtype=np.bool_)[case]
    throughput = target / (MS_PER_SECOND * np.maximum(tokens, 1))
    return np.where(idle, 0.0, np.maximum(load / MS_PER_MINUTE, throughput))


def _groups(
    system: System, profile: IntArray, requests: Requests, limits: TargetLimits
) -> Iterator[GenerationRows]:
    generation = _generation(system)
    for kind in np.unique(generation[profile]):
        rows, of_kind = np.flatnonzero(generation[profile] == kind), generation == kind
        parameters = tuple(system.profiles[i].parameters for i in np.flatnonzero(of_kind))
        which = np.cumsum(of_kind)[profile[rows]] - 1
        model = model_of(parameters, which, requests.take(rows))
        yield GenerationRows(rows, Replicas(model, limits.take(rows)), parameters, which)


def _generation(system: System) -> IntArray:
    """Generation of each profile."""
    return integers(p.parameters.generation for p in system.profiles)


def accelerators_per_replica(system: System) -> IntArray:
    """Accelerators that one replica of each profile occupies."""
    return integers(max(p.accelerator_count, 1) for p in system.profiles)


def integers(values: Iterable[int]) -> IntArray:
    """Whole numbers as an array."""
    return np.fromiter(values, dtype=np.int64)
