"""The account of the Servers of a namespace, step by step; pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from inferno_operator.resources import Load, Measured, Server
from inferno_operator.resources.measurement import USABLE, Quality
from inferno_operator.resources.observation import Observation
from inferno_optimizer.errors import InputError
from inferno_optimizer.replay.fleet import ReplayFleet, fleet_of
from inferno_optimizer.replay.ledger import LedgerEntry, SimulatedPolicies, counted, homes
from inferno_optimizer.replay.plant import StepLoad
from inferno_optimizer.system import Allocation, System
from inferno_optimizer.units import SECONDS_PER_HOUR, SECONDS_PER_MINUTE

CONCLUSIVE: frozenset[Quality] = frozenset({"Fresh", "Idle"})
"""Qualities of measurements that tell whether targets are kept."""

REFRESH_STEPS = 60
"""Steps after which the simulations begin anew with other prices, cards or parameters."""


@dataclass(frozen=True, slots=True)
class CountedServer:
    """A Server with its measured load as its load, how it was read, and the measurement."""

    server: Server
    observation: Observation
    measured: Measured

    @property
    def load(self) -> Load:
        """The load as it was measured: without growth and backlog."""
        return _load(self.measured)

    @property
    def is_counted(self) -> bool:
        """Whether it is known what arrives now."""
        return self.measured.quality in USABLE

    @property
    def keeps_targets(self) -> bool:
        """Whether it is known that no measured latency misses its target."""
        return self.measured.quality in CONCLUSIVE and not self.measured.misses_targets


def counted_server(observation: Observation, measured: Measured | None) -> CountedServer | None:
    """Return a Server that can be counted; None where its load or what runs is not known."""
    server = observation.resource
    if not isinstance(server, Server) or measured is None or measured.arrival_rate is None:
        return None
    spec, current = server.spec, server.spec.current_alloc
    if current is None or not (server.names_workloads or current.accelerator):
        return None
    loaded = current.model_copy(update={"load": _load(measured)})
    changed = spec.model_copy(update={"current_alloc": loaded})
    return CountedServer(server.model_copy(update={"spec": changed}), observation, measured)


def _load(measured: Measured) -> Load:
    return Load(
        arrival_rate=measured.arrival_rate or 0.0,
        avg_in_tokens=round(measured.avg_in_tokens or 0.0),
        avg_out_tokens=max(round(measured.avg_out_tokens or 0.0), 1),
    )


@dataclass(frozen=True, slots=True)
class ServerAccount:
    """The account of a Server.

    Attributes
    ----------
    uid
        Of the Server.
    since
        When it began.
    entry
        What was counted since then.
    prices
        Cost of a replica by accelerator [cents/hour].
    """

    uid: str
    since: datetime
    entry: LedgerEntry
    prices: Mapping[str, float] = field(default_factory=dict)

    @property
    def static_peak(self) -> float:
        """What the replicas of the highest load would have cost all the time [cents]."""
        price = self.prices.get(self.entry.home, 0.0)
        return self.entry.peak * price * self.entry.seconds / SECONDS_PER_HOUR


@dataclass(slots=True)
class NamespaceAccount:
    """The accounts of a namespace, by the spec.name of the Servers."""

    accounts: dict[str, ServerAccount] = field(default_factory=dict)
    _fleet: ReplayFleet | None = None
    _simulated: SimulatedPolicies | None = None
    _known: System | None = None
    _steps: int = 0

    def open(self, accounts: Iterable[ServerAccount], names: Iterable[str]) -> None:
        """Continue accounts of Servers that are new here, and close those of others."""
        opened = zip(names, accounts, strict=True)
        self.accounts = {
            name: own if (own := self.accounts.get(name)) and own.uid == new.uid else new
            for name, new in opened
        }

    def count(
        self, servers: Mapping[str, CountedServer], system: System, step_s: float, lead_s: float
    ) -> None:
        """Let a step pass.

        Parameters
        ----------
        servers
            The Servers by their spec.name; their accounts are open.
        system
            The namespace, with these Servers and their loads.
        step_s, lead_s
            Length of the step, and time until a new replica serves [s].
        """
        if self._is_outdated(system):
            self._begin(system, step_s, lead_s)
        if self._fleet is None or self._simulated is None:
            return
        fleet, self._steps = self._fleet, self._steps + 1
        steps = self._simulated.step(_step_load(fleet, system))
        for row, (server, step) in enumerate(zip(fleet.servers, steps, strict=True)):
            own = servers[server.name]
            if own.is_counted:
                prices = dict(zip(fleet.accelerators, fleet.unit_cost[row].tolist(), strict=True))
                before = self.accounts[server.name]
                entry = counted(before.entry, step, _own(own, step, prices))
                self.accounts[server.name] = replace(before, entry=entry, prices=prices)

    def _is_outdated(self, system: System) -> bool:
        before, now = self._known, _without_loads(system)
        if before is None or before.servers != now.servers:
            return True
        return self._steps >= REFRESH_STEPS and before != now

    def _begin(self, system: System, step_s: float, lead_s: float) -> None:
        """Begin the simulations anew, with replicas for the loads of now."""
        self._known, self._steps = _without_loads(system), 0
        self._fleet = self._simulated = None
        try:
            fleet, _ = fleet_of(system)
        except InputError:  # no Server can be sized: their conditions tell why
            return
        home = homes(fleet, {name: own.entry.home for name, own in self.accounts.items()})
        self._fleet = fleet
        self._simulated = SimulatedPolicies(fleet, home, _step_load(fleet, system), step_s, lead_s)


def _without_loads(system: System) -> System:
    """The system without what changes from step to step."""
    servers = tuple(replace(server, current=Allocation()) for server in system.servers)
    return replace(system, servers=servers, held={}, held_cost=0.0)


def _step_load(fleet: ReplayFleet, system: System) -> StepLoad:
    loads = {server.name: server.load for server in system.servers}
    own = [loads[server.name] for server in fleet.servers]
    return StepLoad(
        rate=np.array([load.arrival_rate for load in own]) / SECONDS_PER_MINUTE,
        lengths=np.array(
            [
                [float(load.input_tokens) for load in own],
                [float(load.output_tokens) for load in own],
            ]
        ),
    )


def _own(counted: CountedServer, step: LedgerEntry, prices: Mapping[str, float]) -> LedgerEntry:
    """What the Server itself paid, planned and kept in a step."""
    hours = step.seconds / SECONDS_PER_HOUR
    paid = sum(running_costs(counted.server, prices).values())
    desired = counted.server.spec.desired_alloc
    planned = paid if desired is None else desired.cost or 0.0
    kept = step.requests if counted.keeps_targets else 0.0
    return LedgerEntry(paid=paid * hours, planned=planned * hours, kept=kept)


def running_costs(server: Server, prices: Mapping[str, float]) -> dict[str, float]:
    """Cost of the replicas that run, by accelerator [cents/hour]."""
    current = server.spec.current_alloc
    return {
        part.accelerator: part.num_replicas * prices.get(part.accelerator, 0.0)
        for part in (current.parts if current else ())
        if part.num_replicas
    }
