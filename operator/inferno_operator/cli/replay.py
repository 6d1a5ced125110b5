"""Replays of a trace with several policies: input for the library, and documents of its answer."""

import csv
import importlib
import io
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType

import numpy as np
from pydantic.alias_generators import to_camel

from inferno_operator.cli.executors import completed, processes
from inferno_operator.cli.offline.traces import place_of_client
from inferno_operator.resources import Load, Measure
from inferno_optimizer.errors import InfernoError, InputError
from inferno_optimizer.replay.account import Account, share
from inferno_optimizer.replay.fleet import fleet_of, performing_as, slower, wrong_by
from inferno_optimizer.replay.floor import FloorOfTrace
from inferno_optimizer.replay.hindsight import best_homes
from inferno_optimizer.replay.incidents import Incident, worst_incidents
from inferno_optimizer.replay.plant import DEFAULT_LEAD, LeadTime
from inferno_optimizer.replay.policies import BOUND, POLICIES
from inferno_optimizer.replay.policy import NamedPolicy, OwnWindows
from inferno_optimizer.replay.replay import Scenario, replay
from inferno_optimizer.replay.trace import Trace, for_servers
from inferno_optimizer.suggestions import alternatives
from inferno_optimizer.system import PerformanceProfile, System

BEST = "@best"
"""End of the name of a policy that runs each server on its best single accelerator."""

SECONDS_PER_HOUR = 3600.0

WORST_TOLD = 10
"""Most times at which targets were missed that are shown for each policy."""

TOLD_STEPS = 1000
"""Steps of a replay between two messages about its progress."""

Warn = Callable[[Iterable[str]], None]


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """What the options of the command say; times in seconds.

    Replicas perform as `truth` says, which was read from `truth_file`, and as the Models say where
    it says nothing; they are slower than that by the factor `slower`, and each parameter is wrong
    by the share `error`. `measures` is where each Server is measured, by spec.name, if it is.
    With `poisson`, policies see counts of random arrivals.
    """

    step_s: float = 60.0
    hours: float = 0.0
    scale: float = 1.0
    slower: float = 1.0
    error: float = 0.0
    lead: LeadTime = DEFAULT_LEAD
    seed: int = 0
    truth: tuple[PerformanceProfile, ...] = ()
    truth_file: str = ""
    measures: Mapping[str, Measure] = field(default_factory=lambda: MappingProxyType({}))
    poisson: bool = False


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a policy came to, beside the bound of hindsight."""

    policy: str
    account: Account
    bound: Account

    @property
    def regret(self) -> float:
        """Cost above that of the bound [cents]."""
        return self.account.total_cost - self.bound.total_cost

    @property
    def share_of_optimum(self) -> float:
        """Cost of the bound divided by the cost."""
        return share_of(self.bound.total_cost, self.account.total_cost)


def share_of(part: float, whole: float) -> float:
    """A quotient; 1 of nothing."""
    return part / whole if whole > 0 else 1.0


@dataclass(frozen=True, slots=True)
class ReplayedLoad:
    """A trace, and what it is called in messages: its file, or a Prometheus."""

    trace: Trace
    origin: str

    @property
    def means(self) -> dict[str, Load]:
        """The mean load of each client."""
        trace, loads = self.trace, {}
        for column, client in enumerate(trace.clients):
            rate = trace.rate[:, column]
            weights = rate if rate.any() else None
            given, generated = (
                round(float(np.average(lengths[:, column], weights=weights)))
                for lengths in (trace.input_tokens, trace.output_tokens)
            )
            loads[client] = Load(
                arrival_rate=60.0 * float(rate.mean()),
                avg_in_tokens=given,
                avg_out_tokens=max(generated, 1),
            )
        return loads


def scenario_of(system: System, load: ReplayedLoad, options: ReplayOptions, warn: Warn) -> Scenario:
    """What is to be replayed; tells which servers are left out and how clients are dealt."""
    fleet, refused = fleet_of(system)
    warn(f"server {d.server!r} is left out: {d.message}" for d in refused)
    trace, origin = load.trace, load.origin
    names = [server.name for server in fleet.servers]
    _refuse_unknown_clients(trace, names, [d.server for d in refused], origin)
    if not set(names) & set(trace.clients):
        dealt = f"its {len(trace.clients)} clients are dealt to {len(names)} servers in turn"
        warn([f"{origin}: no client is named as a server: {dealt}, scaled to their loads"])
    whole = for_servers(trace, fleet.servers).scaled(options.scale)
    part = whole.between(0.0, options.hours * SECONDS_PER_HOUR) if options.hours else whole
    return Scenario(
        fleet=fleet_of(_as_it_is(fleet.system, options))[0],
        believed=fleet,
        trace=part.every(options.step_s),
        lead=options.lead,
        seed=options.seed,
        windows=_own_windows(names, options.measures),
        poisson=options.poisson,
    )


def _own_windows(servers: Sequence[str], measures: Mapping[str, Measure]) -> OwnWindows:
    """The windows of the servers that name some."""
    named = [measures[name].windows if name in measures else None for name in servers]
    short, long = (
        np.array([getattr(own, length) if own else np.nan for own in named], dtype=np.float64)
        for length in ("short_seconds", "long_seconds")
    )
    return OwnWindows(short, long)


def _as_it_is(system: System, options: ReplayOptions) -> System:
    """The system with the performance that replicas really have."""
    try:
        true = performing_as(system, options.truth)
    except InputError as error:
        raise InputError(f"{options.truth_file}: {error}") from error
    return wrong_by(
        slower(true, options.slower), options.error, np.random.default_rng(options.seed)
    )


def _refuse_unknown_clients(
    trace: Trace, servers: Sequence[str], left_out: Sequence[str], origin: str
) -> None:
    """Where some clients are named as servers, all have to be."""
    unknown = [c for c in trace.clients if c not in servers and c not in left_out]
    if unknown and len(unknown) < len(trace.clients):
        near = alternatives(unknown[0], sorted(servers))
        place = place_of_client(origin, unknown[0])
        raise InputError(f"{place}: client {unknown[0]!r} is no server of the fleet{near}")


def find_policy(name: str) -> NamedPolicy:
    """The policy of a name, or of `module:name`, with the folder of the command to look in.

    Raises
    ------
    InputError
        There is none, or its module cannot be imported.
    """
    if name in POLICIES:
        return POLICIES[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise InputError(f"no policy is named {name!r}{alternatives(name, sorted(POLICIES))}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        policy = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(f"policy {name!r}: {error}") from error
    finally:
        sys.path.pop(0)
    return NamedPolicy(name, policy)


def policy_of(name: str) -> NamedPolicy:
    """The policy of a name that may end in `@best`; see `find_policy`."""
    return find_policy(name.removesuffix(BEST))


def replays(
    scenario: Scenario, names: Sequence[str], tell: Callable[[str], None], jobs: int = 1
) -> list[Replayed]:
    """Replay with each policy, and with the bound of hindsight; so many at the same time."""
    wanted = list(dict.fromkeys((BOUND.name, *names)))
    for name in wanted:
        policy_of(name)  # an unknown one is refused before the first replay
    accounts = dict(_accounts(scenario, wanted, tell, jobs))
    bound = accounts[BOUND.name]
    return [Replayed(name, accounts[name], bound) for name in names]


def _accounts(
    scenario: Scenario, names: Sequence[str], tell: Callable[[str], None], jobs: int
) -> Iterator[tuple[str, Account]]:
    """Yield the account of each policy, as soon as there is one."""
    if jobs == 1:
        yield from ((name, run(scenario, name, tell)) for name in names)
        return
    calls = {name: (scenario, name) for name in names}
    with processes(jobs) as executor:
        for name, account in completed(executor, run, calls):
            yield name, account
            tell(f"replayed {name}")


def _silent(_: str) -> None:
    """Tell nothing."""


def run(scenario: Scenario, name: str, tell: Callable[[str], None] = _silent) -> Account:
    """Replay with the policy of a name, and tell how far it is.

    Raises
    ------
    InputError
        A policy of the user fails.
    """
    steps = scenario.trace.steps
    policy = policy_of(name)
    home = (
        best_homes(scenario.believed, scenario.trace)
        if name.endswith(BEST)
        else scenario.fleet.home
    )
    tell(f"replaying {name}")

    def progress(step: int) -> None:
        if step and step % TOLD_STEPS == 0:
            tell(f"replaying {name}: {step / steps:.0%}")

    try:
        return replay(scenario, policy, home, tell=progress)
    except Exception as error:  # the code of a policy of the user may raise anything
        if policy.name in POLICIES or isinstance(error, InfernoError):
            raise
        raise InputError(_failure(name, error)) from error


def _failure(name: str, error: Exception) -> str:
    """What went wrong in a policy of the user, and where."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    what = traceback.format_exception_only(error)[-1].strip()
    return f"policy {name!r} failed: {what} ({Path(place.filename).name}:{place.lineno})"


def replay_document(scenario: Scenario, found: Sequence[Replayed]) -> Mapping[str, object]:
    """The result as JSON; costs in cents, with all servers and each of them."""
    trace = scenario.trace
    return {
        "hours": trace.seconds / SECONDS_PER_HOUR,
        "stepSeconds": trace.step_s,
        "policies": [_policy_document(scenario, one) for one in found],
    }


def _policy_document(scenario: Scenario, one: Replayed) -> Mapping[str, object]:
    account = one.account
    everything = Row.of(one, "", slice(None))
    return {
        **everything.document(),
        "regret": one.regret,
        "shareOfOptimum": one.share_of_optimum,
        "cardHours": account.card_hours,
        "classes": [row.of_class() for row in class_rows(one)],
        "servers": [row.document() for row in server_rows(one)],
        "worst": [
            incident_document(incident, scenario.trace.step_s)
            for incident in worst_incidents(
                account, scenario.trace, scenario.fleet.accelerators, WORST_TOLD
            )
        ],
    }


def incident_document(incident: Incident, step_s: float) -> Mapping[str, object]:
    """A time at which targets were missed as JSON; times in seconds from the start of the trace."""
    return {
        "server": incident.server,
        "class": incident.service_class,
        "accelerator": incident.accelerator,
        "startSeconds": incident.first * step_s,
        "endSeconds": (incident.last + 1) * step_s,
        "worstSeconds": incident.worst * step_s,
        "outside": incident.outside,
        "within": incident.within,
        "rate": incident.rate,
        "able": incident.able,
        "waiting": incident.waiting,
        "replicas": incident.replicas,
        "ready": incident.ready,
        "refused": incident.refused,
        "before": incident.before,
        "changedSeconds": incident.changed * step_s,
        "cause": incident.cause.value,
    }


@dataclass(frozen=True, slots=True)
class Row:
    """What a policy came to with one server, or with all of them."""

    policy: str
    server: str
    cost: float
    requests: float
    within: float
    delay_within: float
    itl_within: float
    missed_minutes: float
    replicas: float
    started: int
    moves: int

    @classmethod
    def of(
        cls, one: Replayed, server: str, which: slice | np.ndarray[tuple[int], np.dtype[np.bool_]]
    ) -> "Row":
        """The sums over some servers."""
        account = one.account
        requests = account.requests[which]
        return cls(
            policy=one.policy,
            server=server,
            cost=float(account.cost[which].sum()),
            requests=float(requests.sum()),
            within=share(account.within[which], requests),
            delay_within=share(account.delay_within[which], requests),
            itl_within=share(account.itl_within[which], requests),
            missed_minutes=float(account.missed_minutes[which].sum()),
            replicas=float(account.replicas[which].sum()),
            started=int(account.started[which].sum()),
            moves=int(account.moves[which].sum()),
        )

    def document(self) -> dict[str, object]:
        """The row as JSON."""
        names = ("policy", *(["server"] if self.server else []), *COLUMNS)
        return {to_camel(name): getattr(self, name) for name in names}

    def of_class(self) -> dict[str, object]:
        """The row of a class as JSON."""
        return {"class": self.server} | {to_camel(n): getattr(self, n) for n in COLUMNS}


COLUMNS = tuple(column.name for column in fields(Row) if column.name not in ("policy", "server"))


def server_rows(one: Replayed) -> list[Row]:
    """A row for each server."""
    names = enumerate(one.account.servers)
    return [Row.of(one, name, slice(place, place + 1)) for place, name in names]


def class_rows(one: Replayed) -> list[Row]:
    """A row for the servers of each class, by its name."""
    classes = np.array(one.account.classes)
    return [Row.of(one, name, classes == name) for name in sorted(set(one.account.classes))]


def replay_csv(found: Sequence[Replayed]) -> str:
    """A line for each policy and server, and one for all servers of a policy."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = ("policy", "server", *COLUMNS)
    writer.writerow(to_camel(name) for name in names)
    for one in found:
        for row in (Row.of(one, "", slice(None)), *server_rows(one)):
            writer.writerow(getattr(row, name) for name in names)
    return text.getvalue().rstrip("\n")


def floor_document(floor: FloorOfTrace) -> Mapping[str, object]:
    """The floor as JSON; costs in cents."""
    servers = zip(
        floor.servers,
        floor.cost,
        floor.replicas,
        floor.most_replicas,
        floor.accelerators,
        strict=True,
    )
    cards = zip(floor.types, floor.cards, floor.most_cards, floor.capacity, strict=True)
    return {
        "hours": floor.hours,
        "cost": float(floor.cost.sum()),
        "servers": [
            {
                "server": name,
                "cost": float(cost),
                "replicas": float(replicas),
                "mostReplicas": int(most),
                "accelerators": dict(accelerators),
            }
            for name, cost, replicas, most, accelerators in servers
        ],
        "cards": {
            name: {"mean": float(mean), "most": int(most), "available": int(available)}
            for name, mean, most, available in cards
        },
    }
