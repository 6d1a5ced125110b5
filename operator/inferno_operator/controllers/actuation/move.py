"""The move from the present replicas of the backends to those of a decision; pure.

A Server moves in two steps: first all backends that need more replicas are scaled up; when all
of these replicas are available, the other backends are scaled down. So the number of available
replicas never falls below what both the old and the new decision ask for. What is scaled down goes
slowly, see `way_down`, and what stays carries the measured load, where rates are known.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from inferno_operator.controllers.actuation.booster_bounds import Bounds, Write, role_problem
from inferno_operator.controllers.actuation.status import (
    booster_failed,
    no_backend,
    no_binding,
    no_booster,
    refusal,
)
from inferno_operator.controllers.actuation.targets import (
    ScaledObjects,
    asked,
    available,
    bounds_for,
    compose,
    failure,
    floor,
    holders,
    is_autoscaled,
    is_ceiling,
)
from inferno_operator.resources import ModelBoosterRef
from inferno_operator.resources.conditions import Verdict
from inferno_operator.resources.objects import Manifest
from inferno_optimizer.system import Role
from inferno_optimizer.way_down import HALF, WayDown, strengths


@dataclass(frozen=True, slots=True)
class Limits:
    """What limits how fast replicas go; mappings are by place.

    Parameters
    ----------
    way_down
        How many of the replicas that serve may go within a window.
    served
        What served, at each moment of the window at which replicas went.
    standing
        Ready replicas that have served for a whole window; the others may be here to take over.
    rates
        What one replica carries [requests/min]; None where that is not known.
    load
        What the replicas have to carry [requests/min].
    urgent
        Replicas whose cards more important servers need now.
    """

    way_down: WayDown = HALF
    served: tuple[Mapping[str, int], ...] = ()
    standing: Mapping[str, int] = field(default_factory=dict)
    rates: Mapping[str, float | None] = field(default_factory=dict)
    load: float = 0.0
    urgent: Mapping[str, int] = field(default_factory=dict)


ROUNDING = 1e-9
"""Replicas that carry less than a load by this share carry it."""

NO_LIMITS = Limits(way_down=WayDown(share=1.0))


class Move:
    """The move of a Server; backends are known by the names of their servings and roles."""

    def __init__(
        self,
        reference: ModelBoosterRef,
        replicas: Mapping[str, int],
        workload: ScaledObjects,
        limits: Limits = NO_LIMITS,
    ) -> None:
        self._reference = reference
        self._world = workload
        self._limits = limits
        self._backends = {reference.part_of(each): each for each in reference.backends}
        places = {each.place for each in reference.backends}
        self._unplaced = sorted(replicas.keys() - places)
        self._wanted = {n: replicas.get(b.place, 0) for n, b in self._backends.items()}
        by_name = holders(reference, workload)
        self._now = {name: holder.bounds for name, holder in by_name.items()}
        self._foreign = {name for name, holder in by_name.items() if not holder.is_ours}
        self._ignored = {n: self._asked(n) for n in self._foreign if self._is_ignored(n)}
        self._now |= self._ignored
        self.roles = {each.place: Role(each.role) for each in reference.backends}
        self.weights = strengths(self.roles, limits.rates)
        self._step = self._next_numbers()
        self._decided, self._final = (
            {
                name: bounds_for(reference, workload, self._backends[name], holder, numbers[name])
                for name, holder in by_name.items()
            }
            for numbers in (self._wanted, self._step)
        )

    def _next_numbers(self) -> dict[str, int]:
        """Return the replicas of the backends after the next step down."""
        numbers = dict(self._wanted)
        after = self.serving
        asked = {
            backend.place: max(self._running(name), self._replicas_of(name), self._wanted[name])
            for name, backend in self._backends.items()
        }
        for name in self._leaving():
            place = self._backends[name].place
            most = asked[place]
            for replicas in (*range(self._wanted[name], most), most):
                numbers[name] = asked[place] = replicas
                after[place] = self._kept_of(name, replicas)
                is_urgent = self._limits.urgent.get(place, 0) >= most - replicas
                if self._may_become(after, asked, is_urgent=is_urgent):
                    break
        return numbers

    def _may_become(
        self, after: Mapping[str, int], asked: Mapping[str, int], *, is_urgent: bool
    ) -> bool:
        """Whether so few replicas may serve and be asked for after the step, by place.

        Replicas that have served, and are not ready for a while, do not go any faster.
        """
        way_down, served = self._limits.way_down, self._limits.served
        if all(after[place] >= n for place, n in self.serving.items()):
            return is_urgent or way_down.permits(asked, served, self.weights)
        if not self._carries(after):
            return False
        before = [self.served_before, *served]
        return is_urgent or way_down.permits(after, before, self.weights)

    def _carries(self, after: Mapping[str, int]) -> bool:
        """Whether so many replicas carry the load, as far as their rates are known."""
        rates = self._limits.rates
        if any(not rates.get(place) for place, n in self.serving.items() if n):
            return True
        halves = [sum(w * after.get(p, 0) for p, w in half.items()) for half in self.weights]
        return min(halves) >= self._limits.load * (1 - ROUNDING)

    def _leaving(self) -> Sequence[str]:
        """Return the backends that ask for more replicas than were decided, or have more."""
        return [
            name
            for name in self._wanted
            if max(self._running(name), self._replicas_of(name)) > self._most(name)
        ]

    def _kept_of(self, name: str, replicas: int) -> int:
        """Return the available replicas that certainly remain of a backend with so many."""
        runs = self._running(name)
        gone = max(self._replicas_of(name), runs) - replicas
        return max(runs - max(gone, 0), 0)

    def _replicas_of(self, name: str) -> int:
        """Return the replicas that the serving of a backend asks for."""
        backend = self._backends[name]
        serving = self._world.servings.get(self._reference.serving_of(backend))
        return 0 if serving is None else asked(serving, backend)

    @property
    def wanted(self) -> dict[str, int]:
        """The decided replicas by place."""
        return {backend.place: self._wanted[n] for n, backend in self._backends.items()}

    @property
    def serving(self) -> dict[str, int]:
        """The available replicas by place, also those that are about to end."""
        return {backend.place: self._running(n) for n, backend in self._backends.items()}

    @property
    def served_before(self) -> dict[str, int]:
        """The replicas that count before the next step down, by place.

        Those that have just come do not, unless they go again: they may be here to take over.
        """
        leaving = {self._backends[name].place for name in self._leaving()}
        standing = self._limits.standing
        return {
            place: n if place in leaving else min(standing.get(place, 0), n)
            for place, n in self.serving.items()
        }

    @property
    def after(self) -> dict[str, int]:
        """The replicas that serve after this step, by place."""
        if self.missing():
            return self.serving
        return {
            backend.place: self._kept_of(name, max(self._step[name], self._most(name)))
            if name in self._leaving()
            else self._running(name)
            for name, backend in self._backends.items()
        }

    @property
    def slowed(self) -> Mapping[str, tuple[int, int]]:
        """The replicas that go step by step, before and after this step, by place."""
        after = self.after
        return {
            self._backends[name].place: (self._running(name), after[self._backends[name].place])
            for name in ([] if self.missing() else self._leaving())
            if self._step[name] > self._most(name)
        }

    @property
    def shrinks(self) -> bool:
        """Whether there are more replicas than were decided."""
        return bool(self._leaving())

    def writes(self) -> tuple[Write, ...]:
        """Return the next writes: scale up, or scale down once nothing is missing."""
        bounds = self._final
        if self.missing():
            bounds = {n: self._kept(n).joined(final) for n, final in self._final.items()}
        return compose(self._reference, self._world, bounds, self._ignored)

    def _is_ignored(self, name: str) -> bool:
        """Whether a serving does not follow the numbers that another manager set in its booster.

        Our controller of boosters follows those of actuation alone. It says which numbers it has
        seen; the serving of one that does not say so may still follow.
        """
        if self._reference.target != "ModelBooster" or not self._has_serving(name):
            return False
        booster = self._world.boosters[self._reference.booster_of(self._backends[name])]
        if not _is_reported(booster):
            return False
        bounds, asked_for = self._now[name], self._asked(name)
        has_range = is_autoscaled(self._reference, self._world, self._backends[name])
        if has_range:
            return not bounds.least <= asked_for.least <= bounds.most
        return bounds.least != asked_for.least

    def _has_serving(self, name: str) -> bool:
        return self._reference.serving_of(self._backends[name]) in self._world.servings

    def _asked(self, name: str) -> Bounds:
        """Return the replicas that a serving asks for, as bounds."""
        backend = self._backends[name]
        replicas = asked(self._world.servings[self._reference.serving_of(backend)], backend)
        return Bounds(replicas, replicas)

    def _kept(self, name: str) -> Bounds:
        """Return the bounds with which a backend keeps its replicas while others are missing.

        What another manager has set may be less than what runs.
        """
        if name not in self._foreign:
            return self._now[name]
        runs = self._running(name)
        backend = self._backends[name]
        least = 0 if is_ceiling(self._reference, self._world, backend) else runs
        return self._now[name].joined(Bounds(least, runs))

    def missing(self) -> Sequence[str]:
        """Return the backends, and accelerators without backend, that lack replicas."""
        return [n for n in self._wanted if not self._has_arrived(n)] + self._unplaced

    def is_complete(self) -> bool:
        """Whether the decided replicas run, or fewer where they are a ceiling."""
        return not self.missing() and not self._surplus()

    def problem(self) -> Verdict | None:
        """Return the verdict on a problem that only a user can solve, if there is one."""
        if self._unplaced:
            names = ", ".join(map(repr, self._unplaced))
            message = f"no backend in modelBooster.backends runs on accelerator {names}: add one"
            return refusal("NoBackend", message)
        return self._absent() or self._unbound() or self._unscalable() or self._failed()

    def _absent(self) -> Verdict | None:
        """Return the verdict on boosters or backends that do not exist."""
        lost = [name for name in self._reference.boosters if name not in self._world.boosters]
        if lost:
            return no_booster(self._reference, lost)
        for backend in self._reference.backends:
            if self._world.backend(self._reference, backend) is None:
                return no_backend(self._reference.booster_of(backend), backend.name)
        return None

    def _unbound(self) -> Verdict | None:
        """Return the verdict on backends without the binding that would have their bounds."""
        unbound = [b.name for n, b in self._backends.items() if n not in self._now]
        if not unbound or self._reference.target != "Binding":
            return None
        return no_binding(self._reference, unbound)

    def _unscalable(self) -> Verdict | None:
        """Return the verdict on roles whose numbers cannot be set."""
        for backend in self._reference.backends:
            holder = self._world.holder(self._reference, backend)
            if holder and backend.worker and (problem := role_problem(holder, backend.worker)):
                return refusal(*problem)
        return None

    def _failed(self) -> Verdict | None:
        """Return the verdict that replicas are missing while their booster is called failed."""
        for name in () if self.is_complete() else self._reference.boosters:
            message = failure(self._world.boosters[name])
            if message is not None:
                return booster_failed(name, message, self.progress())
        return None

    def progress(self) -> str:
        """Return a message about the progress of the move."""
        waits = [name for name in self._wanted if not self._has_arrived(name)]
        if waits:
            kept = sorted(self._backends[name].place for name in self._shrinking())
            until = f"; until then the replicas on {', '.join(kept)} stay" if kept else ""
            return "; ".join(map(self._shortage, waits)) + until
        surplus = self._surplus()
        return "; ".join([self._runs(), *map(self._excess, surplus)])

    def _runs(self) -> str:
        """Return the replicas that run, with the decided ones where they may differ."""
        names = [name for name, wanted in self._wanted.items() if wanted or self._running(name)]
        return " + ".join(map(self._count, names)) or "no replicas"

    def _count(self, name: str) -> str:
        backend = self._backends[name]
        count, wanted = f"{self._running(name)} x {backend.place}", self._wanted[name]
        if wanted and is_ceiling(self._reference, self._world, backend):
            return f"{count} ({wanted} at most)"
        if self._most(name) > wanted:
            return f"{count} ({wanted} decided; its autoscalingPolicy needs {self._most(name)})"
        return count

    def _shortage(self, name: str) -> str:
        count = f"{self._available(name)} of {self._needed(name)} replicas"
        return f"{count} on {self._title(name)} available"

    def _excess(self, name: str) -> str:
        excess = (
            f"{self._running(name)} replicas on {self._title(name)}, {self._wanted[name]} decided"
        )
        keeps = is_autoscaled(self._reference, self._world, self._backends[name])
        if keeps and self._now[name] == self._decided[name]:
            return f"{excess}: its autoscaler may keep 1, as there is no smaller maximum"
        return excess

    def _title(self, name: str) -> str:
        backend = self._backends[name]
        return f"{backend.place} (backend {backend.name!r})"

    def _has_arrived(self, name: str) -> bool:
        """Whether a backend has all replicas that it needs, and bounds that keep them."""
        if self._wanted[name] == 0:
            return True
        if name not in self._now or not self._now[name].covers(self._final[name]):
            return False
        return self._is_passed_on(name) and self._available(name) >= self._needed(name)

    def _surplus(self) -> Sequence[str]:
        """Return the backends that have more replicas than were decided."""
        return [name for name in self._wanted if self._running(name) > self._most(name)]

    def _most(self, name: str) -> int:
        """Return the replicas that a backend may have at most."""
        least = floor(self._reference, self._world, self._backends[name])
        return max(self._wanted[name], least)

    def _is_passed_on(self, name: str) -> bool:
        """Whether the booster's controller has seen the newest bounds, if it reports that."""
        booster = self._reference.booster_of(self._backends[name])
        return self._reference.target != "ModelBooster" or _is_observed(
            self._world.boosters[booster]
        )

    def _available(self, name: str) -> int:
        """Return the available replicas of a backend that will not be removed."""
        backend = self._backends[name]
        serving = self._world.servings.get(self._reference.serving_of(backend))
        if serving is None or not _is_observed(serving):
            return 0
        return min(self._running(name), asked(serving, backend))

    def _running(self, name: str) -> int:
        """Return the available replicas of a backend, also those that are about to end."""
        return available(self._reference, self._world, self._backends[name])

    def _needed(self, name: str) -> int:
        """Return the replicas that must be available before others are scaled down.

        If an autoscaler may use fewer replicas than planned, those that serve now are enough.
        """
        wanted = self._wanted[name]
        if not is_ceiling(self._reference, self._world, self._backends[name]):
            return wanted
        leaving = sum(self._available(other) for other in self._shrinking() if other != name)
        return min(wanted, max(leaving, 1))

    def _shrinking(self) -> Iterable[str]:
        return [n for n, decided in self._decided.items() if not decided.covers(self._now[n])]


def _is_observed(manifest: Manifest) -> bool:
    """Whether the status is about the newest spec; True if it has no observedGeneration."""
    return "observedGeneration" not in manifest.get("status", {}) or _is_reported(manifest)


def _is_reported(manifest: Manifest) -> bool:
    """Whether the status says that it is about the newest spec."""
    generation: int = manifest["metadata"].get("generation", 0)
    observed: int = manifest.get("status", {}).get("observedGeneration", -1)
    return generation <= observed
