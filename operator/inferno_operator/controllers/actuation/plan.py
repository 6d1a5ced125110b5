"""From a decision and the current objects to the next writes and the condition; pure.

A Server moves in two steps: first all backends that need more replicas are scaled up; when all
of these replicas are available, the other backends are scaled down. So the number of available
replicas never falls below what both the old and the new decision ask for. If replicas do not
become available in time, the condition reports it, and the old replicas keep running: replicas
that serve are not removed for replicas that do not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from inferno_operator.controllers.actuation.decision import Wanted
from inferno_operator.controllers.actuation.status import (
    ACTUATED,
    booster_in_use,
    crd_missing,
    no_booster,
    refusal,
)
from inferno_operator.controllers.actuation.targets import (
    Workload,
    Write,
    bounds_for,
    compose,
    dialect,
    is_ceiling,
    read_bounds,
    serving_name,
)
from inferno_operator.resources import ModelBoosterRef, Status
from inferno_operator.resources.conditions import Verdict
from inferno_operator.resources.objects import Kind, Manifest

MOVE_TIMEOUT = timedelta(minutes=10)
"""Time after which a move is reported as `MoveTimedOut`."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Writes, the verdict to report (None: unchanged), and the next reconcile [s]."""

    verdict: Verdict | None
    writes: tuple[Write, ...] = ()
    again_after: float | None = None


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a plan.

    Parameters
    ----------
    reference, wanted, status
        The Server's reference, the decision for it, and its status.
    workload
        The objects of the reference; None if the booster does not exist or is being deleted.
    rival
        Name of an older Server that refers to the same booster.
    unserved
        A kind that is needed and that the API server does not serve.
    """

    reference: ModelBoosterRef
    wanted: Wanted
    status: Status
    workload: Workload | None = None
    rival: str | None = None
    unserved: Kind | None = None


def decide(inputs: Inputs, now: datetime) -> Plan:
    """Decide the next writes, and the verdict to report."""
    obstacle = _obstacle(inputs)
    if obstacle is not None:
        return Plan(obstacle)
    if inputs.workload is None or not inputs.wanted.fresh:
        return Plan(None)
    if inputs.wanted.replicas is None:
        why = f"the replicas stay as they are: {inputs.wanted.why}"
        return Plan(refusal(inputs.wanted.reason, why))
    return _step(inputs, _Move(inputs.reference, inputs.wanted.replicas, inputs.workload), now)


def _obstacle(inputs: Inputs) -> Verdict | None:
    """Return the verdict if nothing can be decided, else None."""
    if inputs.rival is not None:
        return booster_in_use(inputs.reference, inputs.rival)
    if inputs.unserved is not None:
        return crd_missing(inputs.unserved)
    return no_booster(inputs.reference) if inputs.workload is None else None


def _step(inputs: Inputs, move: "_Move", now: datetime) -> Plan:
    """Return the next step of a move."""
    writes = move.writes()
    problem = move.problem()
    if problem is not None:
        return Plan(problem, writes)
    if not writes and not move.missing():
        return Plan(Verdict(ACTUATED, holds=True, reason="Actuated", message=move.progress()))
    return _moving(move, writes, inputs.status, now)


def _moving(move: "_Move", writes: tuple[Write, ...], status: Status, now: datetime) -> Plan:
    """Return the plan of a move that is not complete, in time or after the timeout."""
    before = status.condition(ACTUATED)
    began = before.last_transition_time if before and before.status == "Unknown" else now
    left = (began + MOVE_TIMEOUT - now).total_seconds()
    if left > 0:
        verdict = Verdict(ACTUATED, holds=None, reason="Moving", message=move.progress())
        return Plan(verdict, writes, left)
    message = (
        f"{move.progress()}; this takes longer than {MOVE_TIMEOUT.total_seconds() / 60:g} min:"
        f" check why the pods do not become ready, or correct Capacity and optimize again"
    )
    return Plan(Verdict(ACTUATED, holds=None, reason="MoveTimedOut", message=message), writes)


class _Move:
    """The move from the current bounds of the backends to those of a decision."""

    def __init__(
        self, reference: ModelBoosterRef, replicas: Mapping[str, int], workload: Workload
    ) -> None:
        self._reference = reference
        self._world = workload
        self._accelerators = {b.name: b.accelerator for b in reference.backends}
        self._unplaced = sorted(set(replicas) - set(self._accelerators.values()))
        self._wanted = {name: replicas.get(a, 0) for name, a in self._accelerators.items()}
        self._now = read_bounds(reference, workload)
        self._final = {
            name: bounds_for(reference, workload, name, now, self._wanted[name])
            for name, now in self._now.items()
        }

    def writes(self) -> tuple[Write, ...]:
        """Return the next writes: scale up, or scale down once nothing is missing."""
        bounds = self._final
        if self.missing():
            bounds = {n: self._now[n].joined(final) for n, final in self._final.items()}
        return compose(self._reference, self._world, bounds)

    def missing(self) -> Sequence[str]:
        """Return the backends, and accelerators without backend, that lack replicas."""
        return [n for n in self._wanted if not self._has_arrived(n)] + self._unplaced

    def problem(self) -> Verdict | None:
        """Return the verdict on a problem that only a user can solve, if there is one."""
        if self._unplaced:
            names = ", ".join(map(repr, self._unplaced))
            message = f"no backend in modelBooster.backends runs on accelerator {names}: add one"
            return refusal("NoBackend", message)
        unknown = sorted(set(self._wanted) - set(self._world.backends()))
        if unknown:
            message = (
                f"{self._reference.name!r} has no backend {', '.join(map(repr, unknown))}:"
                f" add it there, or correct modelBooster.backends"
            )
            return refusal("NoBackend", message)
        return self._unbound()

    def _unbound(self) -> Verdict | None:
        """Return the verdict on backends without the binding that would have their bounds."""
        unbound = sorted(set(self._wanted) - set(self._now))
        if not unbound or self._reference.target != "Binding":
            return None
        kind = dialect(self._reference).binding.kind
        message = (
            f"no {kind} scales backend {', '.join(map(repr, unbound))}:"
            f" give it an autoscalingPolicy, or choose another modelBooster.target"
        )
        return refusal("NoBinding", message)

    def progress(self) -> str:
        """Return a message about the progress of the move."""
        waits = [name for name in self._wanted if not self._has_arrived(name)]
        if not waits:
            runs = [f"{n} x {self._accelerators[b]}" for b, n in self._wanted.items() if n]
            return " + ".join(runs) or "no replicas"
        states = [
            f"{self._available(name)} of {self._needed(name)} replicas on"
            f" {self._accelerators[name]} (backend {name!r}) available"
            for name in waits
        ]
        kept = sorted(self._accelerators[name] for name in self._shrinking())
        until = f"; until then the replicas on {', '.join(kept)} stay" if kept else ""
        return "; ".join(states) + until

    def _has_arrived(self, backend: str) -> bool:
        """Whether a backend has all replicas that it needs, and bounds that keep them."""
        if self._wanted[backend] == 0:
            return True
        if backend not in self._now or not self._now[backend].covers(self._final[backend]):
            return False
        return self._is_passed_on() and self._available(backend) >= self._needed(backend)

    def _is_passed_on(self) -> bool:
        """Whether the booster's controller has seen the newest bounds, if it reports that."""
        return self._reference.target != "ModelBooster" or _is_observed(self._world.booster)

    def _available(self, backend: str) -> int:
        """Return the available replicas of a backend that will not be removed."""
        serving = self._world.servings.get(serving_name(self._reference, backend))
        if serving is None or not _is_observed(serving):
            return 0
        available: int = serving.get("status", {}).get("availableReplicas", 0)
        asked: int = serving["spec"].get("replicas", 1)
        return min(available, asked)

    def _needed(self, backend: str) -> int:
        """Return the replicas that must be available before others are scaled down.

        If an autoscaler may use fewer replicas than planned, those that serve now are enough.
        """
        wanted = self._wanted[backend]
        if not is_ceiling(self._reference, self._world, backend):
            return wanted
        leaving = sum(self._available(name) for name in self._shrinking() if name != backend)
        return min(wanted, max(leaving, 1))

    def _shrinking(self) -> list[str]:
        return [name for name, final in self._final.items() if not final.covers(self._now[name])]


def _is_observed(manifest: Manifest) -> bool:
    """Whether the status is about the newest spec; True if it has no observedGeneration."""
    generation: int = manifest["metadata"].get("generation", 0)
    observed: int = manifest.get("status", {}).get("observedGeneration", generation)
    return generation <= observed
