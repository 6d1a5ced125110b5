"""A decision and what is there -> what to write next, and what to say; pure.

A server moves in two steps: first every backend that is wanted grows, then, once all of them
are there, the others shrink. So available replicas never fall under what both the old and
the new decision ask for. What doesn't come up in time is told, and the old keeps running:
capacity that serves is not given up for capacity that does not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from inferno_operator.controllers.actuation.decision import Wanted
from inferno_operator.controllers.actuation.ports import Write
from inferno_operator.controllers.actuation.targets import (
    Bounds,
    World,
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

ACTUATED = "Actuated"

MOVE_TIMEOUT = timedelta(minutes=10)
"""After so long a move is told to have got stuck."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to write, what to say (None: what was said before), and when to look again [s]."""

    verdict: Verdict | None
    writes: tuple[Write, ...] = ()
    again_after: float | None = None


def plan_actuation(
    reference: ModelBoosterRef, wanted: Wanted, world: World, status: Status, now: datetime
) -> Plan:
    """Decide the next step.

    Parameters
    ----------
    reference, wanted
        What the Server refers to, and what was decided for it.
    world
        What is there.
    status
        Of the Server; its condition tells since when it moves.
    now
        The time.
    """
    if not wanted.fresh:
        return Plan(None)
    if wanted.replicas is None:
        return Plan(_refusal("Held", f"what runs is kept as it is: {wanted.why}"))
    move = _Move(reference, wanted.replicas, world)
    writes = compose(reference, world, move.next())
    problem = move.problem()
    if problem is not None:
        return Plan(problem, writes)
    if not writes and not move.missing():
        return Plan(Verdict(ACTUATED, holds=True, reason="Actuated", message=move.told()))
    return _moving(move, writes, status, now)


def crd_missing(kind: Kind) -> Verdict:
    """Say that a kind is not served."""
    message = f"{kind} is not served: install the custom resource definitions of {kind.group}"
    return _refusal("CRDMissing", message)


def no_booster(reference: ModelBoosterRef) -> Verdict:
    """Say that the booster is not there, or about to go."""
    kind = dialect(reference).booster.kind
    message = f"{kind} {reference.name!r} is not there: create it, or correct modelBooster.name"
    return _refusal("NoModelBooster", message)


def conflict(problem: str, seconds: float) -> Verdict:
    """Say that somebody else sets our fields."""
    message = (
        f"{problem}; it was set already, and set back: stop that writer, or choose another"
        f" modelBooster.target; set again {seconds:g} s after the last time"
    )
    return _refusal("Conflict", message)


def taken(reference: ModelBoosterRef, other: str) -> Verdict:
    """Say that an older Server has the booster."""
    message = (
        f"Server {other!r}, which is older, refers to {reference.name!r} too:"
        f" let only one of them do so"
    )
    return _refusal("Conflict", message)


def released() -> Verdict:
    """Say that nothing is ours any more."""
    message = "the numbers of replicas stay as they were, and belong to nobody now"
    return _refusal("Released", message)


def _refusal(reason: str, message: str) -> Verdict:
    return Verdict(ACTUATED, holds=False, reason=reason, message=message)


def _moving(move: "_Move", writes: tuple[Write, ...], status: Status, now: datetime) -> Plan:
    """A move that goes on; in time, or too late."""
    before = status.condition(ACTUATED)
    began = before.last_transition_time if before and before.status == "Unknown" else now
    left = (began + MOVE_TIMEOUT - now).total_seconds()
    if left > 0:
        verdict = Verdict(ACTUATED, holds=None, reason="Moving", message=move.told())
        return Plan(verdict, writes, left)
    message = (
        f"{move.told()}; that takes longer than {MOVE_TIMEOUT.total_seconds() / 60:g} min: see why"
        f" their pods do not become ready, or correct Capacity and optimize again"
    )
    return Plan(Verdict(ACTUATED, holds=None, reason="MoveTimedOut", message=message), writes)


class _Move:
    """From the bounds as they are to those of a decision."""

    def __init__(
        self, reference: ModelBoosterRef, replicas: Mapping[str, int], world: World
    ) -> None:
        self._reference = reference
        self._world = world
        self._accelerators = {b.name: b.accelerator for b in reference.backends}
        self._unplaced = sorted(set(replicas) - set(self._accelerators.values()))
        self._wanted = {name: replicas.get(a, 0) for name, a in self._accelerators.items()}
        self._now = read_bounds(reference, world)
        self._final = {
            name: bounds_for(reference, world, name, now, self._wanted[name])
            for name, now in self._now.items()
        }

    def next(self) -> Mapping[str, Bounds]:
        """The bounds to have next."""
        if self.missing():
            return {name: self._now[name].joined(final) for name, final in self._final.items()}
        return self._final

    def missing(self) -> Sequence[str]:
        """Backends, and accelerators without one, that have to come up before others go."""
        return [n for n in self._wanted if not self._has_arrived(n)] + self._unplaced

    def problem(self) -> Verdict | None:
        """What only a person can put right."""
        if self._unplaced:
            names = ", ".join(map(repr, self._unplaced))
            message = f"no backend in modelBooster.backends runs on accelerator {names}: add one"
            return _refusal("NoBackend", message)
        unknown = sorted(set(self._wanted) - set(self._world.backends()))
        if unknown:
            message = (
                f"{self._reference.name!r} has no backend {', '.join(map(repr, unknown))}:"
                f" add it there, or correct modelBooster.backends"
            )
            return _refusal("NoBackend", message)
        return self._unbound()

    def _unbound(self) -> Verdict | None:
        """Backends without the binding in which their bounds are to stand."""
        unbound = sorted(set(self._wanted) - set(self._now))
        if not unbound or self._reference.target != "Binding":
            return None
        kind = dialect(self._reference).binding.kind
        message = (
            f"no {kind} scales backend {', '.join(map(repr, unbound))}:"
            f" give it an autoscalingPolicy, or choose another modelBooster.target"
        )
        return _refusal("NoBinding", message)

    def told(self) -> str:
        """How far it is."""
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
        return "; ".join(states) + (f"; until then {', '.join(kept)} stays" if kept else "")

    def _has_arrived(self, backend: str) -> bool:
        """Whether a backend has what is wanted of it, and will not lose it any more."""
        if self._wanted[backend] == 0:
            return True
        if backend not in self._now or not self._now[backend].covers(self._final[backend]):
            return False
        return self._is_passed_on() and self._available(backend) >= self._needed(backend)

    def _is_passed_on(self) -> bool:
        """Whether the booster's controller knows the newest numbers; some do not tell."""
        return self._reference.target != "ModelBooster" or _is_observed(self._world.booster)

    def _available(self, backend: str) -> int:
        """Replicas that serve and are not about to go."""
        serving = self._world.servings.get(serving_name(self._reference, backend))
        if serving is None or not _is_observed(serving):
            return 0
        available: int = serving.get("status", {}).get("availableReplicas", 0)
        asked: int = serving["spec"].get("replicas", 1)
        return min(available, asked)

    def _needed(self, backend: str) -> int:
        """Replicas without which nothing else goes; below a ceiling, as many as serve now."""
        wanted = self._wanted[backend]
        if not is_ceiling(self._reference, self._world, backend):
            return wanted
        leaving = sum(self._available(name) for name in self._shrinking() if name != backend)
        return min(wanted, max(leaving, 1))

    def _shrinking(self) -> list[str]:
        return [name for name, final in self._final.items() if not final.covers(self._now[name])]


def _is_observed(manifest: Manifest) -> bool:
    """Whether the status is about the newest spec; where it doesn't tell, it is believed."""
    generation: int = manifest["metadata"].get("generation", 0)
    observed: int = manifest.get("status", {}).get("observedGeneration", generation)
    return generation <= observed
