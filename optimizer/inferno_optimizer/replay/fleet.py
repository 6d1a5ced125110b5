"""What can run where: servers and accelerators as matrices, and what replicas carry."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from inferno_optimizer.errors import InputError
from inferno_optimizer.replay.trace import Trace, have_lengths_changed, iterate_epochs
from inferno_optimizer.sizing.candidates import Candidates
from inferno_optimizer.sizing.cases import Case, Catalogue
from inferno_optimizer.sizing.limits import TargetLimits
from inferno_optimizer.sizing.pairs import Pairs
from inferno_optimizer.sizing.queueing import FloatArray, IntArray
from inferno_optimizer.sizing.table import build_candidates
from inferno_optimizer.solution import Decision
from inferno_optimizer.suggestions import alternatives
from inferno_optimizer.system import Load, PerformanceProfile, Server, System
from inferno_optimizer.units import MS_PER_SECOND, SECONDS_PER_MINUTE

NOWHERE = -1
"""Row of a server on an accelerator on which it cannot run."""


HARDLY_ANY = 1e-6
"""A rate at which a server is not idle, and that asks for nothing [requests/s]."""

COUNTS = frozenset({"ahead", "budget", "overhead"})
"""Parameters that are no times."""


@dataclass(frozen=True, slots=True)
class ReplayFleet:
    """Servers and accelerators; matrices have the shape (servers, accelerators).

    `home` is the accelerator on which each server runs now, or would be the cheapest.
    `unit_cost` is the cost of a replica [cents/hour] and `cards` are its cards, 0 where it
    cannot run; `card_type` is the place of the type of each accelerator in `types`, and
    `capacity` are the cards by type. `least` are the fewest replicas of each server; `itl_limit`,
    `ttft_limit` and `wait_limit` are its targets [ms], infinite without one.
    """

    catalogue: Catalogue
    cases: tuple[Case, ...]
    accelerators: tuple[str, ...]
    types: tuple[str, ...]
    home: IntArray
    unit_cost: FloatArray
    cards: IntArray
    card_type: IntArray
    capacity: IntArray
    least: IntArray
    itl_limit: FloatArray
    ttft_limit: FloatArray
    wait_limit: FloatArray

    @property
    def system(self) -> System:
        """The servers, accelerators and profiles."""
        return self.catalogue.system

    @property
    def servers(self) -> tuple[Server, ...]:
        """The servers."""
        return self.system.servers

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of servers and accelerators."""
        return len(self.servers), len(self.accelerators)

    def at_home(self, replicas: IntArray, home: IntArray | None = None) -> IntArray:
        """The matrix with this many replicas of each server on one accelerator."""
        matrix = np.zeros(self.shape, dtype=np.int64)
        matrix[np.arange(len(replicas)), self.home if home is None else home] = replicas
        return matrix

    def used_cards(self, replicas: IntArray | FloatArray) -> FloatArray:
        """Cards by type that a matrix of replicas uses."""
        by_accelerator = (replicas * self.cards).sum(axis=0)
        return np.bincount(self.card_type, by_accelerator, len(self.types)).astype(np.float64)

    def cost(self, replicas: IntArray | FloatArray) -> FloatArray:
        """Cost of each server with a matrix of replicas [cents/hour]."""
        total: FloatArray = (replicas * self.unit_cost).sum(axis=1)
        return total


def build_fleet(system: System) -> tuple[ReplayFleet, list[Decision]]:
    """The servers of a system that can be sized, and why others cannot; without roles.

    Raises InputError if no server can be sized.
    """
    catalogue = Catalogue(replace(system.by_name(), roles=()))
    outcomes = [catalogue.case(server) for server in catalogue.system.servers]
    cases = [case for case in outcomes if isinstance(case, Case)]
    refused = [decision for decision in outcomes if isinstance(decision, Decision)]
    if not cases:
        raise InputError(refused[0].message if refused else "there is no server")
    catalogue = Catalogue(replace(catalogue.system, servers=tuple(case.server for case in cases)))
    system, candidates = catalogue.system, build_candidates(catalogue, cases)
    row = find_rows(candidates.pairs, (len(system.servers), len(system.accelerators)))
    possible, types = row != NOWHERE, candidates.types
    limits = TargetLimits.of([case.target for case in candidates.cases])
    cost = np.where(candidates.usable, candidates.cost, np.inf)[row]
    home = np.where(possible, cost, np.inf).argmin(axis=1)
    for server, own in enumerate(system.servers):
        place = catalogue.accelerators.get(own.current.accelerator)
        if place is not None and possible[server, place]:
            home[server] = place
    fleet = ReplayFleet(
        catalogue=catalogue,
        cases=candidates.cases,
        accelerators=tuple(a.name for a in system.accelerators),
        types=types,
        home=home,
        unit_cost=np.where(possible, candidates.unit_cost[row], 0.0),
        cards=np.where(possible, candidates.pairs.cards[row], 0),
        card_type=np.array([types.index(a.type) for a in system.accelerators], dtype=np.int64),
        capacity=np.array([system.capacity.get(t, 0) for t in types], dtype=np.int64),
        least=np.array([case.server.min_replicas for case in candidates.cases], dtype=np.int64),
        itl_limit=limits.itl,
        ttft_limit=limits.ttft,
        wait_limit=limits.wait,
    )
    return fleet, refused


def find_rows(pairs: Pairs, shape: tuple[int, int]) -> IntArray:
    """The row of each case on each accelerator, or `NOWHERE`."""
    row = np.full(shape, NOWHERE)
    row[pairs.case, pairs.accelerator] = np.arange(len(pairs.case))
    return row


def set_loads(system: System, rate: FloatArray, lengths: FloatArray) -> System:
    """The system with another load of each server; rates in requests/s."""
    columns = (rate.tolist(), *lengths.tolist())
    servers = (
        _set_load(server, build_load(server.load, *values))
        for server, *values in zip(system.servers, *columns, strict=True)
    )
    return replace(system, servers=tuple(servers))


def slow_down(system: System, factor: float) -> System:
    """The system where everything that replicas do takes longer by a factor."""
    return replace(system, profiles=tuple(scale_profile(p, factor) for p in system.profiles))


def perturb_profiles(system: System, error: float, random: np.random.Generator) -> System:
    """The system where each time of each profile is longer or shorter by a share, by chance."""
    profiles = (
        scale_profile(p, 1.0 + error * random.choice((-1.0, 1.0), len(list_times(p))))
        for p in system.profiles
    )
    return replace(system, profiles=tuple(profiles))


def set_parameters(system: System, truth: Sequence[PerformanceProfile]) -> System:
    """The system whose profiles have the parameters of others, where there are others.

    Raises InputError if the system has no profile of such a model on such an accelerator.
    """
    true = {(profile.model, profile.accelerator): profile.parameters for profile in truth}
    pairs = {(profile.model, profile.accelerator) for profile in system.profiles}
    for model, accelerator in sorted(true.keys() - pairs):
        own = sorted(place for name, place in pairs if name == model)
        hint = alternatives(accelerator, own)
        raise InputError(f"model {model!r} has no performance data for {accelerator!r}{hint}")
    changed = (
        replace(p, parameters=true.get((p.model, p.accelerator), p.parameters))
        for p in system.profiles
    )
    return replace(system, profiles=tuple(changed))


def scale_profile(profile: PerformanceProfile, factors: float | FloatArray) -> PerformanceProfile:
    """The profile with its times multiplied by a factor, or each by one of its own."""
    times = list_times(profile)
    scaled = (np.array([*times.values()]) * factors).tolist()
    parameters = replace(profile.parameters, **dict(zip(times, scaled, strict=True)))
    return replace(profile, parameters=parameters)


def list_times(profile: PerformanceProfile) -> dict[str, float]:
    """The parameters of a profile that are times [ms]."""
    return {k: v for k, v in asdict(profile.parameters).items() if k not in COUNTS}


def build_cases(
    fleet: ReplayFleet,
    servers: IntArray,
    lengths: FloatArray,
    profiles: Sequence[Sequence[int]] = (),
) -> list[Case]:
    """The cases of some servers with requests of other lengths, of shape (2, all servers).

    Hardly any request arrives. With the places of profiles, they have no others.
    """
    prompt, answer = lengths[:, servers].tolist()
    cases = [fleet.cases[server] for server in servers]
    own = profiles or [case.profiles for case in cases]
    return [
        replace(
            case,
            server=_set_load(case.server, build_load(case.server.load, HARDLY_ANY, *columns)),
            profiles=tuple(places),
        )
        for case, places, *columns in zip(cases, own, prompt, answer, strict=True)
    ]


def _set_load(server: Server, load: Load) -> Server:
    return replace(server, current=replace(server.current, load=load))


def build_load(own: Load, rate: float, input_tokens: float, output_tokens: float) -> Load:
    """A load with rounded lengths; a load in the form of generation 1 stays in it.

    No trace tells what is in the prefix caches, so all of the prompts are computed.
    """
    prompt, answer = max(round(input_tokens), 0), max(round(output_tokens), 1)
    plain = own.tokens_per_request > 0 and not own.output_tokens
    return replace(
        own,
        arrival_rate=rate * SECONDS_PER_MINUTE,
        tokens_per_request=prompt + answer,
        input_tokens=prompt,
        output_tokens=0 if plain else answer,
        cached_tokens=0,
    )


Key = tuple[int, ...]


class ResultCache:
    """Results by key; when there are more than `most` of them, all are forgotten."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[Key, FloatArray] = {}

    def of(
        self, keys: Sequence[Key], compute: Callable[[IntArray], Iterable[FloatArray]]
    ) -> FloatArray:
        """The results of some keys; `compute` returns those of the keys at some places."""
        if len(self._known) > self._most:
            self._known.clear()
        new = np.flatnonzero([key not in self._known for key in keys])
        if new.size:
            names = [keys[place] for place in new.tolist()]
            self._known.update(zip(names, compute(new), strict=True))
        return np.stack([self._known[key] for key in keys])


def round_lengths(lengths: FloatArray) -> list[list[int]]:
    """Lengths as the integers that a load has, in the same order."""
    whole: list[list[int]] = np.rint(lengths).astype(np.int64).tolist()
    return whole


ROUNDING = 1e-9
"""Relative excess over an integer that is rounded down, as in the sizing."""

MOST_KNOWN = 100_000
"""Servers and lengths whose sizing is remembered."""


class SizedFleet:
    """The highest rates of replicas; only servers whose lengths have changed are sized anew.

    `max_rate` is the highest rate at which one replica meets the targets [requests/s], 0 if at
    none or if no request fits into its memory; `least_rate` is the rate of the server that a
    target of throughput asks for; `full_rate` is the rate of a full batch, whatever the targets
    are, 0 where no request fits; shape (servers, accelerators). What was sized is remembered,
    because loads come back to the same lengths.
    """

    def __init__(self, fleet: ReplayFleet) -> None:
        self._fleet = fleet
        self._lengths = np.zeros((2, len(fleet.servers)))
        self._known = ResultCache(MOST_KNOWN)
        self.max_rate = np.zeros(fleet.shape)
        self.least_rate = np.zeros(fleet.shape)
        self.full_rate = np.zeros(fleet.shape)

    def at(self, lengths: FloatArray) -> "SizedFleet":
        """The same fleet, sized at lengths of shape (2, servers): input and output tokens."""
        servers = np.flatnonzero(have_lengths_changed(lengths, self._lengths))
        if not servers.size:
            return self
        self._lengths[:, servers] = lengths[:, servers]
        keys = [*zip(servers.tolist(), *round_lengths(lengths[:, servers]), strict=True)]
        rates = self._known.of(keys, lambda new: self._size(servers[new]))
        known = rates.transpose(1, 0, 2)
        self.max_rate[servers], self.least_rate[servers], self.full_rate[servers] = known
        return self

    def _size(self, servers: IntArray) -> FloatArray:
        """The highest, the least and the full rates; shape (these servers, 3, accelerators)."""
        candidates = _build_candidates(self._fleet, servers, self._lengths)
        pairs = candidates.pairs
        full = np.zeros(len(pairs.case))
        for group in pairs.groups:
            order = np.argsort(-group.replicas.model.batch, kind="stable")
            model = group.replicas.take(order).model
            batch = model.batch.astype(np.float64)
            full[group.rows[order]] = 1.0 / model.intervals(slice(0, len(batch)), batch)
        memory = np.array([profile.max_tokens for profile in candidates.system.profiles])
        kept = np.array([case.server.load.tokens_kept for case in candidates.cases])
        fits = (memory[pairs.profile] <= 0) | (kept[pairs.case] <= memory[pairs.profile])
        able, full = (np.where(fits, rate, 0.0) for rate in (candidates.sizing.max_rate, full))
        row = find_rows(pairs, (len(servers), self._fleet.shape[1]))
        rates = np.stack((able, pairs.demand, full))[:, row] * MS_PER_SECOND
        return np.where(row != NOWHERE, rates, 0.0).transpose(1, 0, 2)

    def demand(self, rate: FloatArray) -> FloatArray:
        """The rate to provide for on each accelerator, from that of each server [requests/s]."""
        return np.where(rate[:, None] > 0, np.maximum(rate[:, None], self.least_rate), 0.0)

    def replicas_for(self, rate: FloatArray) -> IntArray:
        """Replicas that meet the targets at a rate of each server; -1 where none do."""
        able = self.max_rate > 0
        needed = self.demand(rate) / np.where(able, self.max_rate, 1.0)
        rounded = np.ceil(needed * (1 - ROUNDING)).astype(np.int64)
        return np.where(able, np.maximum(rounded, self._fleet.least[:, None]), -1)

    def replicas_carrying(self, rate: FloatArray) -> IntArray:
        """Replicas that meet the targets; where none do, those that carry the rate."""
        needed = self.replicas_for(rate)
        able = self.full_rate > 0
        carrying = np.ceil(self.demand(rate) / np.where(able, self.full_rate, 1.0))
        carrying = np.maximum(carrying.astype(np.int64), self._fleet.least[:, None])
        return np.where((needed < 0) & able, carrying, needed)


def count_requests_held(fleet: ReplayFleet, lengths: FloatArray) -> FloatArray:
    """Requests in a replica at the highest rate at which it meets the targets.

    Where it meets them at none, those of a full batch; shape (servers, accelerators).
    """
    servers = np.arange(len(fleet.servers))
    candidates = _build_candidates(fleet, servers, lengths)
    rate = candidates.sizing.max_rate
    requests = np.zeros(len(rate))
    for group in candidates.pairs.groups:
        able = np.flatnonzero(rate[group.rows] > 0)
        able = able[np.argsort(-group.replicas.model.batch[able], kind="stable")]
        queue = group.replicas.take(able).averages(rate[group.rows[able]])
        requests[group.rows[able]] = queue.in_service + queue.waiting
        unable = np.flatnonzero(rate[group.rows] <= 0)
        requests[group.rows[unable]] = group.replicas.model.batch[unable]
    row = find_rows(candidates.pairs, fleet.shape)
    return np.where(row != NOWHERE, requests[row], 0.0)


def size_epochs(fleet: ReplayFleet, trace: Trace) -> Iterator[tuple[slice, SizedFleet]]:
    """The sizing of a fleet in each epoch of a trace."""
    sized = SizedFleet(fleet)
    for steps in iterate_epochs(trace):
        yield steps, sized.at(trace.lengths[steps.start])


def _build_candidates(fleet: ReplayFleet, servers: IntArray, lengths: FloatArray) -> Candidates:
    return build_candidates(fleet.catalogue, build_cases(fleet, servers, lengths))
