"""Pods of a few servers in virtual time: cold starts, ends that take time, a clumsy operator."""

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

from inferno_operator.controllers.scaling.steps import (
    ReplicaTarget,
    ServerProgress,
    ServerTargets,
    State,
    next_steps,
)
from inferno_optimizer.system import Role

CARDS = {"A": 1, "A4": 4, "B": 1, "B2": 2, "C": 1}
"""Cards of one replica on each accelerator; the first letter is their type."""


def cards_of(place: str) -> int:
    """Cards of one replica on an accelerator, of which a role may follow the name."""
    return CARDS[place.partition(" ")[0]]


ENOUGH = 1 - 1e-9
"""A load is carried but for rounding."""


WINDOW_S = 300.0
"""The window of the way down."""


@dataclass
class Pod:
    """A pod that starts, is ready since a time, or ends."""

    ready: bool = False
    since: float = -WINDOW_S
    ending: bool = False


Event = tuple[str, str, str, Pod | None]
"""What happens, to which server, on which accelerator, and to which pod."""


@dataclass
class Workload:
    """The replicas of a server on an accelerator: what is asked for, and the pods."""

    rate: float
    spec: int = 0
    wanted: int = 0
    role: Role = Role.BOTH
    ordinal: bool = False
    """Whether the newest pods are removed first, ready or not."""
    pods: list[Pod] = field(default_factory=list)

    @property
    def live(self) -> list[Pod]:
        """The pods that are not being deleted."""
        return [pod for pod in self.pods if not pod.ending]

    @property
    def ready(self) -> int:
        """The pods that serve."""
        return sum(pod.ready for pod in self.live)

    @property
    def leaving(self) -> list[Pod]:
        """The pods that the workload's controller deletes when it has its turn."""
        newest = self.live[::-1]
        in_order = newest if self.ordinal else sorted(newest, key=lambda pod: pod.ready)
        return in_order[: max(len(in_order) - self.spec, 0)]

    @property
    def staying(self) -> int:
        """The pods that serve and are not to be deleted."""
        return self.ready - sum(pod.ready for pod in self.leaving)


@dataclass
class Server:
    """A server on some accelerators."""

    priority: int
    workloads: dict[str, Workload]
    load: float = 0.0

    @property
    def carried(self) -> float:
        """What the ready pods carry that are not to be deleted; those of a role only together."""
        both, prefill, decode = (
            sum(w.rate * w.staying for w in self.workloads.values() if w.role is role)
            for role in Role
        )
        return both + min(prefill, decode)

    @property
    def is_done(self) -> bool:
        """Whether exactly the wanted pods exist, and are ready."""
        return all(w.wanted == w.spec == w.ready == len(w.pods) for w in self.workloads.values())


class Scene:
    """Servers, their pods and the operator; `broken` has what must never be.

    The operator looks after each event and is killed after any write with the probability
    `deadly`; the one that follows knows nothing but what it sees.
    """

    def __init__(
        self,
        servers: dict[str, Server],
        capacity: Mapping[str, int],
        seed: int = 0,
        deadly: float = 0.0,
    ) -> None:
        self.servers = servers
        self.capacity = capacity
        self.progress: dict[str, ServerProgress] = {}
        self.broken: list[str] = []
        self.writes = 0
        self._random = Random(seed)  # noqa: S311 - the same events each time
        self._deadly = deadly
        self._events: list[tuple[float, int, Event]] = []
        self._time, self._count = 0.0, 0
        self._served: dict[str, list[tuple[float | None, Mapping[str, int]]]] = {}
        """What served before replicas went, and when they had gone, by server."""

    def start(self) -> None:
        """Begin with everything as it is wanted."""
        for server in self.servers.values():
            for workload in server.workloads.values():
                workload.spec = workload.wanted
                workload.pods = [Pod(ready=True) for _ in range(workload.wanted)]

    def run(self, most: int = 100_000) -> None:
        """Go on until nothing happens any more."""
        self._operate()
        while self._events and most:
            most -= 1
            self._time, _, event = heapq.heappop(self._events)
            self._happen(*event)
            if self._random.random() < 0.7 or not self._events:
                self._operate()

    def state(self, name: str) -> State:
        """What the operator says of a server."""
        return self.progress[name].state

    def _operate(self) -> None:
        """Look, and write one number after the other, or die in between."""
        while True:
            self._note_gone()
            seen = list(self._seen())
            steps = next_steps(seen, self.capacity)
            self.progress = dict(steps.progress)
            for server in seen:
                own = {a: n for (name, a), n in steps.replicas.items() if name == server.name}
                if server.loses(own):
                    self._served.setdefault(server.name, []).append(
                        (None, server.served_before(own))
                    )
            if not self._write_all(steps.replicas):
                return

    def _note_gone(self) -> None:
        """Note which replicas that were taken away do not serve any more."""
        for name, served in self._served.items():
            workloads = self.servers[name].workloads.values()
            if any(time is None for time, _ in served) and all(
                w.staying == w.ready for w in workloads
            ):
                self._served[name] = [(t if t is not None else self._time, r) for t, r in served]
                place = next(iter(self.servers[name].workloads))
                self._soon(WINDOW_S + 1, WINDOW_S + 1, "window", name, place, None)  # no rounding

    def _write_all(self, replicas: Mapping[tuple[str, str], int]) -> bool:
        """Write; returns whether the operator was killed and has to look again."""
        for (name, accelerator), count in replicas.items():
            before = {name: self.servers[name].carried}
            self.servers[name].workloads[accelerator].spec = count
            self._soon(0, 2, "sync", name, accelerator, None)
            self.writes += 1
            self._check(f"{name} on {accelerator} is set to {count}", before)
            if self._random.random() < self._deadly:
                return True
        return False

    def _happen(self, what: str, name: str, accelerator: str, pod: Pod | None) -> None:
        before = {n: s.carried for n, s in self.servers.items()}
        workload = self.servers[name].workloads[accelerator]
        if what == "sync":
            self._synchronize(name, accelerator)
        elif what == "ready" and pod is not None:
            pod.ready, pod.since = not pod.ending, self._time
        elif what == "gone":
            workload.pods = [other for other in workload.pods if other is not pod]
        self._check(f"{name} on {accelerator}: {what}", before)

    def _synchronize(self, name: str, accelerator: str) -> None:
        """The workload's controller creates or deletes pods; those that do not serve go first."""
        workload = self.servers[name].workloads[accelerator]
        for _ in range(workload.spec - len(workload.live)):
            pod = Pod()
            workload.pods.append(pod)
            self._soon(60, 300, "ready", name, accelerator, pod)
        for pod in workload.leaving:
            pod.ending, pod.ready = True, False
            self._soon(1, 90, "gone", name, accelerator, pod)

    def _soon(
        self, least: float, most: float, what: str, name: str, accelerator: str, pod: Pod | None
    ) -> None:
        self._count += 1
        when = self._time + self._random.uniform(least, most)
        heapq.heappush(self._events, (when, self._count, (what, name, accelerator, pod)))

    def _seen(self) -> Iterator[ServerTargets]:
        for name, server in self.servers.items():
            targets = tuple(
                ReplicaTarget(
                    accelerator,
                    accelerator[0],
                    cards_of(accelerator),
                    w.wanted,
                    w.spec,
                    len(w.live),
                    w.ready,
                    terminating=len(w.pods) - len(w.live),
                    rate=w.rate,
                    loses_unready_first=not w.ordinal,
                    role=w.role,
                    standing=sum(p.ready and p.since <= self._time - WINDOW_S for p in w.live),
                )
                for accelerator, w in server.workloads.items()
            )
            served = tuple(
                replicas
                for time, replicas in self._served.get(name, ())
                if time is None or self._time - time < WINDOW_S
            )
            yield ServerTargets(name, server.priority, server.load, targets, served=served)

    def _check(self, event: str, before: Mapping[str, float]) -> None:
        used: Counter[str] = Counter()
        for server in self.servers.values():
            for accelerator, w in server.workloads.items():
                pods = max(w.spec, len(w.live)) + len(w.pods) - len(w.live)
                used[accelerator[0]] += pods * cards_of(accelerator)
        over = {t: n for t, n in used.items() if n > self.capacity[t]}
        if over:
            self.broken.append(f"{event}: {over} of {self.capacity}")
        for name, carried in before.items():
            server = self.servers[name]
            if server.carried < min(carried, server.load) * ENOUGH:
                self.broken.append(f"{event}: {name} carries {server.carried} of {server.load}")
