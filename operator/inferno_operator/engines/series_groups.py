"""Groups servers that share queries: those whose series have the same names of labels.

Values of labels are quoted, never pasted; selectors have a limited size.
"""

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

from inferno_operator.engines.catalogue import MetricSource
from inferno_operator.resources import Measure
from inferno_operator.resources.measurement import LONG_SECONDS, SHORT_SECONDS
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.prometheus import is_label_name, quote_string
from inferno_optimizer.errors import InputError

Name = TypeVar("Name", str, Key)
"""What a server is called by who asks."""

PART = "inferno_part"
"""The label that says which part of an answer a series is."""

TARGET = (
    *("instance", "cluster", "namespace", "pod"),
    *("exported_instance", "exported_namespace", "exported_pod", "service_instance_id"),
    *("k8s_cluster_name", "k8s_namespace_name", "k8s_pod_name"),
)
"""Labels that name what is scraped, also where a collector or an agent stands for several pods.

The job is none of them: two jobs that scrape the same address scrape the same target.
"""

VALUES_NAMED = 50
"""If there are more values of a label, the query of a whole group selects all its values."""

LONGEST_SELECTOR = 2**13
LONGEST_SELECTOR_OF_PART = 2**17
"""Largest size of a selector [bytes]: a query has up to forty, and Prometheus takes 10 MB."""


@dataclass(frozen=True, slots=True, order=True)
class RateWindows:
    """The windows of rates [s]: `short` to see an increase at once, `long` for a steady load.

    `brief` is to see at once how large a jump is; 0: replicas are not scraped often enough.
    """

    short: int = SHORT_SECONDS
    long: int = LONG_SECONDS
    brief: int = 0


WINDOWS = RateWindows()
"""The default windows."""


def windows_of(measure: Measure | None, usual: RateWindows = WINDOWS) -> RateWindows:
    """The windows that a Server names, or the usual ones."""
    chosen = measure.windows if measure else None
    return RateWindows(chosen.short_seconds, chosen.long_seconds) if chosen else usual


GroupIdentity = tuple[str, tuple[str, ...], RateWindows]
"""The name of a source, the names of the labels of its series, and the windows of rates."""


@dataclass(frozen=True)
class SeriesGroup:
    """Servers of one source and with the same windows, whose series have the same names of labels.

    `labels` are the names in order, `values` the values of each server. The queries of a part of
    a larger group name its values, so that the answers are about nobody else.
    """

    name: str
    source: MetricSource
    labels: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    is_part: bool = False
    windows: RateWindows = WINDOWS

    @property
    def identity(self) -> GroupIdentity:
        """What the group has in common."""
        return self.name, self.labels, self.windows

    @cached_property
    def selector(self) -> str:
        """Matchers that select the series of all servers of the group, of limited size."""
        return ",".join(self._matchers.values())

    def selector_by(self, labels: Container[str]) -> str:
        """The matchers of some labels alone; "" if the group has none of them."""
        return ",".join(text for label, text in self._matchers.items() if label in labels)

    @cached_property
    def _matchers(self) -> Mapping[str, str]:
        limit = LONGEST_SELECTOR_OF_PART if self.is_part else LONGEST_SELECTOR
        matchers = {label: self._matcher(n, limit) for n, label in enumerate(self.labels)}
        for label in sorted(matchers, key=lambda label: len(matchers[label]), reverse=True):
            if len(",".join(matchers.values()).encode()) <= limit:
                break
            matchers[label] = f'{label}!=""'
        return matchers

    def _matcher(self, number: int, limit: int) -> str:
        label, values = self.labels[number], sorted({each[number] for each in self.values})
        if len(values) == 1:
            return f"{label}={quote_string(values[0])}"
        few = len(values) <= VALUES_NAMED or self.is_part
        if few and sum(map(len, values)) <= limit:
            return f"{label}=~{quote_string('|'.join(map(re.escape, values)))}"
        return f'{label}!=""'

    @property
    def by(self) -> str:
        """The clause that keeps the labels of the group."""
        return f"by ({', '.join(self.labels)})"

    @cached_property
    def of_targets(self) -> str:
        """The labels that tell targets apart, and the servers on the page of a target."""
        return ", ".join(dict.fromkeys((*TARGET, *self.labels)))

    @cached_property
    def part_labels(self) -> tuple[str, ...]:
        """The labels that tell the parts of the work of all targets apart.

        Where the target has a label of that name, that of the series is an exported one.
        """
        parts = (*self.source.parts, *self.source.replicas)
        exported = (f"exported_{label}" for label in parts)
        return tuple(dict.fromkeys((*TARGET, *self.labels, *parts, *exported, "le")))

    @cached_property
    def of_parts(self) -> str:
        """The same as a list; series that have all of them in common are copies."""
        return ", ".join(self.part_labels)


class Labelled(Protocol):
    """What has labels: a `Measure`, or a source of demand."""

    @property
    def labels(self) -> Mapping[str, str]:
        """The values by name."""


def by_values(
    labels: Sequence[str], parts: Mapping[Name, Labelled]
) -> dict[tuple[str, ...], list[Name]]:
    """Return the names, in order, by the values of the labels; several may have the same ones."""
    members: defaultdict[tuple[str, ...], list[Name]] = defaultdict(list)
    for name in sorted(parts):
        members[tuple(parts[name].labels[label] for label in labels)].append(name)
    return members


def label_names(labels: Iterable[str], field: str = "spec.measure.labels") -> tuple[str, ...]:
    """Return names of labels in order; the field is named if one is wrong.

    Raises
    ------
    InputError
        A name is not a valid name of a label.
    """
    names = tuple(sorted(labels))
    for name in names:
        if not is_label_name(name) or name == PART:
            raise InputError(f"{field}: {name!r} is not a name of a label")
    return names
