"""Finds which servers can be sized, with which target and profiles; or why they cannot."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from inferno_optimizer.card_types import without_count
from inferno_optimizer.solution import Decision, Reason
from inferno_optimizer.suggestions import alternatives, cut, nearest
from inferno_optimizer.system import (
    LOWEST_PRIORITY,
    PAIR,
    Allocation,
    PerformanceProfile,
    Role,
    RoleProfile,
    Server,
    ServiceClass,
    System,
    Target,
    place_of,
    place_of_all,
)
from inferno_optimizer.validation import Problem, find_problems

NOWHERE_TO_RUN = "no workload or backend: the server names none for this accelerator"
"""Why a server cannot use an accelerator that is not among its own."""

PINNED = (
    "the server stays on another accelerator: by keepAccelerator, or until a first decision while"
    " its measured load may still grow"
)
"""Why a server cannot use an accelerator that is not the one it runs on."""


@dataclass(frozen=True, slots=True)
class Case:
    """A server that can be sized.

    `profiles` are positions in the system's profiles, sorted by name of accelerator; profiles of
    unknown accelerators and profiles with invalid numbers are left out. So are they of `apart`,
    pairs of positions in the system's roles: of a profile for prefill and of one for decode.
    """

    server: Server
    priority: int
    target: Target
    profiles: tuple[int, ...]
    apart: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Catalogue:
    """Lookup of a system's objects by name, and of their problems."""

    system: System

    @cached_property
    def all_problems(self) -> tuple[Problem, ...]:
        """What is wrong in the system."""
        return find_problems(self.system)

    @cached_property
    def problems(self) -> Mapping[tuple[str, str], list[Problem]]:
        """Problems by kind and name of object."""
        problems = defaultdict(list)
        for problem in self.all_problems:
            problems[problem.kind, problem.name].append(problem)
        return problems

    @cached_property
    def classes(self) -> Mapping[str, ServiceClass]:
        """Service classes by name."""
        return {c.name: c for c in self.system.classes}

    def priority(self, service_class: str) -> int:
        """The priority of a class, 1 is the most important; the lowest one if there is no such."""
        known_class = self.classes.get(service_class)
        return known_class.effective_priority if known_class else LOWEST_PRIORITY

    def target(self, server: Server) -> Target:
        """What the class of a server promises for its model; nothing if it has no targets."""
        service_class = self.classes.get(server.service_class)
        return service_class.targets.get(server.model, Target()) if service_class else Target()

    @cached_property
    def accelerators(self) -> Mapping[str, int]:
        """Positions of the accelerators, by name."""
        return {a.name: i for i, a in enumerate(self.system.accelerators)}

    @cached_property
    def places(self) -> Mapping[tuple[str, ...], int]:
        """A number for each accelerator, its position, and then for each pair of two roles."""
        names = [(name,) for name in self.accelerators]
        pairs = (self._names(pair) for of_model in self.apart.values() for pair in of_model)
        return {place: i for i, place in enumerate((*names, *sorted({*pairs})))}

    def place(self, allocation: Allocation) -> int:
        """The number of the accelerator, or of the pair, of an allocation; -1 if unknown."""
        parts = allocation.roles or (allocation,)
        return self.places.get(tuple(part.accelerator for part in parts), -1)

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """The numbers of all places by `Allocation.place`."""
        return {place_of_all(names): i for names, i in self.places.items()}

    @cached_property
    def apart(self) -> Mapping[str, tuple[tuple[int, int], ...]]:
        """The usable pairs of each model: positions of a profile for prefill and one for decode."""
        by_model: dict[str, dict[Role, list[int]]] = {}
        roles = self.system.roles
        for position in sorted(range(len(roles)), key=lambda i: roles[i].accelerator):
            profile = roles[position]
            if not self.role_problems(profile):
                by_model.setdefault(profile.model, {}).setdefault(profile.role, []).append(position)
        return {
            model: tuple(product(by.get(Role.PREFILL, ()), by.get(Role.DECODE, ())))
            for model, by in by_model.items()
        }

    def _names(self, pair: tuple[int, int]) -> tuple[str, ...]:
        return tuple(self.system.roles[position].accelerator for position in pair)

    @cached_property
    def profiles(self) -> Mapping[str, tuple[int, ...]]:
        """Positions of the usable profiles of each model, sorted by name of accelerator."""
        by_model: dict[str, list[int]] = {p.model: [] for p in self.system.profiles}
        order = sorted(
            range(len(self.system.profiles)), key=lambda i: self.system.profiles[i].accelerator
        )
        for position in order:
            profile = self.system.profiles[position]
            if not self.profile_problems(profile.model, profile.accelerator):
                by_model[profile.model].append(position)
        return {model: tuple(positions) for model, positions in by_model.items()}

    @cached_property
    def _profile(self) -> Mapping[tuple[str, str], PerformanceProfile]:
        return {(p.model, p.accelerator): p for p in self.system.profiles}

    def profile(
        self, model: str, accelerator: str, role: Role = Role.BOTH
    ) -> PerformanceProfile | RoleProfile | None:
        """The profile of a model on an accelerator, usable or not; None if there is none."""
        if role is Role.BOTH:
            return self._profile.get((model, accelerator))
        return self._role.get((model, accelerator, role))

    @cached_property
    def _role(self) -> Mapping[tuple[str, str, Role], RoleProfile]:
        return {(p.model, p.accelerator, p.role): p for p in self.system.roles}

    def accelerators_per_replica(self, model: str, accelerator: str, role: Role = Role.BOTH) -> int:
        """Accelerators that one replica occupies; 1 where there is no profile."""
        profile = self.profile(model, accelerator, role)
        return max(profile.accelerator_count, 1) if profile else 1

    def cards_per_replica(
        self, model: str, accelerator: str, role: Role = Role.BOTH
    ) -> tuple[str, int]:
        """Type and number of the cards of one replica.

        An unknown accelerator, for example one that was deleted, counts as a card of the type of
        its name.
        """
        count = self.accelerators_per_replica(model, accelerator, role)
        position = self.accelerators.get(accelerator)
        if position is None:
            return accelerator, count
        unit = self.system.accelerators[position]
        return unit.type, count * max(unit.multiplicity, 1)

    def label(self, model: str, accelerator: str, role: Role = Role.BOTH) -> str:
        """An accelerator with the cards of one replica, such as `8xH200`; its name if it is one."""
        count = self.accelerators_per_replica(model, accelerator, role)
        position = self.accelerators.get(accelerator)
        each = 1 if position is None else max(self.system.accelerators[position].multiplicity, 1)
        if each == 1:
            return accelerator if count == 1 else f"{count}x{accelerator}"
        if accelerator.startswith(f"{count * each}x"):
            return accelerator
        return f"{accelerator} ({count * each} cards each)"

    def placement(self, model: str, allocation: Allocation) -> str:
        """Replicas of each part with their cards, such as `2 x A100 + 1 x 8xH200`."""
        labels = (self.label(model, part.accelerator, part.role) for part in allocation.parts)
        return " + ".join(
            f"{part.replicas} x {place_of(label, part.role)}"
            for part, label in zip(allocation.parts, labels, strict=True)
        )

    def unit_cost(self, model: str, accelerator: str, role: Role = Role.BOTH) -> float:
        """Cost of one replica of a model [cents/hour]; 0 on an unknown accelerator."""
        position = self.accelerators.get(accelerator)
        if position is None:
            return 0.0
        price = self.system.accelerators[position].cost
        return price * self.accelerators_per_replica(model, accelerator, role)

    def profile_problems(self, model: str, accelerator: str) -> list[Problem]:
        """The problems that make a profile unusable: those of the profile and its accelerator."""
        own = [p for p in self.problems.get(("model", model), ()) if p.part == accelerator]
        return own + self.problems.get(("accelerator", accelerator), [])

    def role_problems(self, profile: RoleProfile) -> list[Problem]:
        """The problems that make a profile of a role unusable, as `profile_problems`."""
        part = f"{profile.accelerator}, {profile.role}"
        own = [p for p in self.problems.get(("model", profile.model), ()) if p.part == part]
        return own + self.problems.get(("accelerator", profile.accelerator), [])

    def case(self, server: Server) -> Case | Decision:
        """The case of a server; or, if the server cannot be sized, the decision that says why."""
        reason, message = self._obstacle(server)
        if reason is not None:
            return Decision(server.name, reason, message)
        service_class = self.classes[server.service_class]
        if service_class.min_replicas > server.min_replicas:
            server = replace(server, min_replicas=service_class.min_replicas)
        return Case(
            server,
            service_class.effective_priority,
            service_class.targets[server.model],
            self._allowed_profiles(server),
            self._allowed_pairs(server),
        )

    def _allowed_pairs(self, server: Server) -> tuple[tuple[int, int], ...]:
        """The usable pairs with which the server may run apart."""
        pairs = self.apart.get(server.model, ())
        return tuple(pair for pair in pairs if not self.pair_exclusion(server, pair))

    def pair_exclusion(self, server: Server, pair: tuple[int, int]) -> str:
        """Why a server cannot use a usable pair of its model; empty if it can."""
        names = self._names(pair)
        roles = zip(PAIR, names, strict=True)
        if not all(server.has_place(name, role) for role, name in roles):
            return NOWHERE_TO_RUN
        now = server.current.roles or (server.current,)
        if _pinned(server) and tuple(part.accelerator for part in now) != names:
            return PINNED
        return next(filter(None, (_beyond(server, self.system.roles[i]) for i in pair)), "")

    def _allowed_profiles(self, server: Server) -> tuple[int, ...]:
        """Positions of the usable profiles on whose accelerators the server may run."""
        positions = self.profiles.get(server.model, ())
        if not (_pinned(server) or server.named_places or self._has_memory_bounds):
            return positions
        return tuple(i for i in positions if not self.exclusion(server, self.system.profiles[i]))

    @cached_property
    def _has_memory_bounds(self) -> bool:
        return any(profile.max_tokens for profile in self.system.profiles)

    def exclusion(self, server: Server, profile: PerformanceProfile) -> str:
        """Why a server cannot use a usable profile of its model; empty if it can."""
        if not server.has_place(profile.accelerator):
            return NOWHERE_TO_RUN
        apart = bool(server.current.roles)
        if _pinned(server) and (apart or server.current.accelerator != profile.accelerator):
            return PINNED
        return _beyond(server, profile)

    def _obstacle(self, server: Server) -> tuple[Reason | None, str]:
        """Why a server cannot be sized, with a message that says what to change; None if it can."""
        for problem in self.problems.get(("server", server.name), ()):
            return Reason(problem.reason), f"{problem.field}: {problem.message}"
        service_class = self.classes[server.service_class]
        if server.model not in service_class.targets:
            return Reason.NO_TARGET, self.without_target(service_class, server.model)
        for problem in self.problems.get(("service class", service_class.name), ()):
            if problem.part == server.model:
                return Reason.INVALID_SPEC, str(problem)
        reason, message = self._mistake_where_it_runs(server)
        if reason is not None:
            return reason, f"{message}; what runs stays"
        if not (self._allowed_profiles(server) or self._allowed_pairs(server)):
            return Reason.NO_PERFORMANCE_DATA, self._missing_data(server)
        return self._without_named_cards(server)

    def without_target(self, service_class: ServiceClass, model: str) -> str:
        """What to do about a class without targets for a model.

        Of the models that it has targets for, those that do not exist may be meant otherwise.
        """
        strange = sorted(service_class.targets.keys() - self.profiles.keys())
        near = nearest(model, strange)
        return f"class {service_class.name!r} has no targets for model {model!r}; add them{near}"

    def _mistake_where_it_runs(self, server: Server) -> tuple[Reason | None, str]:
        """What is missing or wrong of the accelerators that a server runs on.

        Without it they would be no candidates, and a mistake would move or stop the server.
        """
        if self.system.options.hold_undecided:
            for part in server.current.parts:
                if not (part.accelerator and part.replicas > 0):
                    continue
                reason, message = self._mistake_of(server, part)
                if reason is not None:
                    return reason, f"it runs {self.placement(server.model, part)}, and {message}"
        return None, ""

    def _mistake_of(self, server: Server, part: Allocation) -> tuple[Reason | None, str]:
        name, position = part.accelerator, self.accelerators.get(part.accelerator)
        if position is None:
            return Reason.UNKNOWN_ACCELERATOR, self.strange_accelerators[name]
        if not server.has_place(name, part.role):
            near = alternatives(name, server.named_places.get(part.role, ()))
            return Reason.INVALID_SPEC, f"names no workload or backend for {name!r}{near}"
        card_type = self.system.accelerators[position].type
        if card_type in self._without_count:
            return Reason.UNKNOWN_CAPACITY, self._without_count[card_type]
        problems = self._problems_of_data(server.model, part)
        if problems:
            return Reason.NO_PERFORMANCE_DATA, "; ".join(map(str, problems))
        return None, ""

    def _problems_of_data(self, model: str, part: Allocation) -> list[Problem]:
        """What is wrong with the data of a model for the accelerator and the role of a part.

        If there are none, other data that name an unknown accelerator may be meant.
        """
        profile = self._role.get((model, part.accelerator, part.role))
        if profile:
            return self.role_problems(profile)
        if part.role is Role.BOTH and self.profile(model, part.accelerator):
            return self.profile_problems(model, part.accelerator)
        problems = self.problems.get(("model", model), [])
        return [p for p in problems if p.reason == Reason.UNKNOWN_ACCELERATOR]

    def _without_named_cards(self, server: Server) -> tuple[Reason | None, str]:
        """Whether every accelerator that a server may use has cards of an unnamed type."""
        if not (self.system.options.hold_undecided and self._without_count):
            return None, ""
        options = [{self.system.profiles[i].accelerator} for i in self._allowed_profiles(server)]
        options += [{*self._names(pair)} for pair in self._allowed_pairs(server)]
        types = [
            {self.system.accelerators[self.accelerators[name]].type for name in names}
            for names in options
        ]
        unnamed = [needed & self._without_count.keys() for needed in types]
        if not all(unnamed):
            return None, ""
        return Reason.UNKNOWN_CAPACITY, self._without_count[min(set.union(*unnamed))]

    @cached_property
    def _without_count(self) -> Mapping[str, str]:
        """Messages for the types that the capacity does not name."""
        return without_count(self.system)

    @cached_property
    def strange_accelerators(self) -> Mapping[str, str]:
        """Messages for the accelerators that servers run on and that the system does not have."""
        parts = (part for server in self.system.servers for part in server.current.parts)
        names = {part.accelerator for part in parts} - self.accelerators.keys()
        all_names = sorted(self.accelerators)
        return {
            name: f"no accelerator is named {cut(name)!r}{alternatives(name, all_names)}"
            for name in names
        }

    def _missing_data(self, server: Server) -> str:
        usable = [self.system.profiles[i] for i in self.profiles.get(server.model, ())]
        kept = server.current.accelerator
        if _pinned(server) and usable and all(p.accelerator != kept for p in usable):
            return (
                f"model {server.model!r} has no usable performance data for accelerator"
                f" {kept!r}, which keepAccelerator asks for; add it or"
                f" drop keepAccelerator"
            )
        problems = [
            str(problem)
            for profile in self.system.profiles
            if profile.model == server.model
            for problem in self.profile_problems(profile.model, profile.accelerator)
        ]
        problems += [f"{p.accelerator}: {self.exclusion(server, p)}" for p in usable]
        return f"model {server.model!r} has no usable performance data: {'; '.join(problems)}"


def _beyond(server: Server, profile: PerformanceProfile | RoleProfile) -> str:
    """Whether a request of a server is too long for the memory of a replica, and why."""
    tokens = server.load.tokens_kept
    if 0 < profile.max_tokens < tokens:
        return f"a request keeps {tokens} tokens, more than its maxTokens {profile.max_tokens}"
    return ""


def _pinned(server: Server) -> bool:
    """Whether a server must stay on its accelerator."""
    return server.keep_accelerator and bool(server.current.accelerator)
