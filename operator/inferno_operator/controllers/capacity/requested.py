"""Which Capacities are to be counted; pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from inferno_operator.resources import Capacity
from inferno_operator.resources.observation import Observation


@dataclass(frozen=True, slots=True)
class Requested:
    """The Capacities of the namespaces: those to count, and all others."""

    counted: Mapping[str, tuple[Observation, Capacity]]
    """The oldest Capacity with fromNodes, by namespace."""

    refused: Sequence[tuple[Observation, str]]
    """Other Capacities with fromNodes, and the name of the one that counts."""

    cleared: Sequence[Observation]
    """Capacities without fromNodes."""

    declared: Mapping[str, Mapping[str, int]]
    """Declared cards by type, by namespace."""

    def percent(self, namespace: str) -> int | None:
        """Return the share of a namespace [%]; None if it has none."""
        _, capacity = self.counted[namespace]
        return capacity.spec.share.percent if capacity.spec.share else None

    def rivals(self, namespace: str) -> Sequence[str]:
        """Return the namespaces that may hand out the same cards as this one."""
        others = self.counted.keys() - {namespace}
        unshared = {name for name in self.counted if self.percent(name) is None}
        return sorted(others if namespace in unshared else others & unshared)


def requested_counts(observations: Iterable[Observation]) -> Requested:
    """Return which Capacities are to be counted."""
    valid = [(o, o.resource) for o in observations if isinstance(o.resource, Capacity)]
    counting: dict[str, tuple[Observation, Capacity]] = {}
    refused: list[tuple[Observation, str]] = []
    declared: dict[str, Counter[str]] = {}
    for observation, capacity in sorted(valid, key=lambda item: item[1].age):
        name = capacity.metadata.namespace
        for count in capacity.spec.count:
            declared.setdefault(name, Counter())[count.type] += count.count
        if not capacity.spec.from_nodes:
            continue
        if name in counting:
            refused.append((observation, counting[name][1].metadata.name))
        else:
            counting[name] = observation, capacity
    cleared = [o for o, capacity in valid if not capacity.spec.from_nodes]
    return Requested(counting, refused, cleared, {n: declared.get(n, {}) for n in counting})
