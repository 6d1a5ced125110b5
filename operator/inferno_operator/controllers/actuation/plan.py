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
from inferno_operator.controllers.actuation.status import (
    ACTUATED,
    crd_missing,
    no_booster,
    refusal,
    taken,
)
from inferno_operator.controllers.actuation.targets import (
    World,
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
"""After so long a move is told to have got stuck."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to write, what to say (None: what was said before), and when to look again [s]."""

    verdict: Verdict | None
    writes: tuple[Write, ...] = ()
    again_after: float | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """What a decision about a Server rests on.

    Parameters
    ----------
    reference, wanted, status
        What the Server refers to, what was decided for it, and its status.
    world
        What is there of the reference; None if the booster is not there or being deleted.
    rival
        Name of an older Server that refers to the same booster.
    unserved
        A kind that is needed, and that the API server does not know.
    """

    reference: ModelBoosterRef
    wanted: Wanted
    status: Status
    world: World | None = None
    rival: str | None = None
    unserved: Kind | None = None


def decide(scene: Scene, now: datetime) -> Plan:
    """Decide the next step, and what to say."""
    obstacle = _obstacle(scene)
    if obstacle is not None:
        return Plan(obstacle)
    if scene.world is None or not scene.wanted.fresh:
        return Plan(None)
    if scene.wanted.replicas is None:
        return Plan(refusal("Held", f"what runs is kept as it is: {scene.wanted.why}"))
    return _step(scene, _Move(scene.reference, scene.wanted.replicas, scene.world), now)


def _obstacle(scene: Scene) -> Verdict | None:
    """Why nothing can be decided."""
    if scene.rival is not None:
        return taken(scene.reference, scene.rival)
    if scene.unserved is not None:
        return crd_missing(scene.unserved)
    return no_booster(scene.reference) if scene.world is None else None


def _step(scene: Scene, move: "_Move", now: datetime) -> Plan:
    """The next step of a move."""
    writes = move.writes()
    problem = move.problem()
    if problem is not None:
        return Plan(problem, writes)
    if not writes and not move.missing():
        return Plan(Verdict(ACTUATED, holds=True, reason="Actuated", message=move.told()))
    return _moving(move, writes, scene.status, now)


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

    def writes(self) -> tuple[Write, ...]:
        """What to write next: first backends grow, and once all are there others shrink."""
        bounds = self._final
        if self.missing():
            bounds = {n: self._now[n].joined(final) for n, final in self._final.items()}
        return compose(self._reference, self._world, bounds)

    def missing(self) -> Sequence[str]:
        """Backends, and accelerators without one, that have to come up before others go."""
        return [n for n in self._wanted if not self._has_arrived(n)] + self._unplaced

    def problem(self) -> Verdict | None:
        """What only a person can put right."""
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
        """Backends without the binding in which their bounds are to stand."""
        unbound = sorted(set(self._wanted) - set(self._now))
        if not unbound or self._reference.target != "Binding":
            return None
        kind = dialect(self._reference).binding.kind
        message = (
            f"no {kind} scales backend {', '.join(map(repr, unbound))}:"
            f" give it an autoscalingPolicy, or choose another modelBooster.target"
        )
        return refusal("NoBinding", message)

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
