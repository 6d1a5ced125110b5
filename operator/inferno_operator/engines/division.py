"""Divides groups of servers into queries, and names the servers that are asked alone; pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import ceil

from inferno_operator.engines.reading import Values
from inferno_operator.engines.series_groups import SeriesGroup

SERIES = 5
"""Series of a server in the largest answer that is needed."""

BYTES_OF_SERIES = 110
"""Size of a series in an answer, without the values of its labels [bytes]."""

LARGEST_ANSWER = 6 * 2**20
"""Size of an answer up to which a group is not divided [bytes]; the limit is a third larger."""

LARGEST_PART = 96 * 2**10
"""Size of the values of a part [bytes]: queries name them, with two metrics of a heartbeat."""

LEFT_OUT_FOR = 10
"""Surveys for which a server is left out that made Prometheus fail."""

Namespaces = Mapping[Values, str]
"""The namespace of the server with these values; of several, the first."""


@dataclass(slots=True)
class Suspects:
    """The servers of a group that are not asked together with the others.

    Each part of `apart` has a server that is the cause of a problem; `left_out` are each the
    cause, with the survey at which they are asked again, and the problem.
    """

    apart: list[tuple[tuple[Values, ...], str]] = field(default_factory=list)
    left_out: dict[Values, tuple[int, str]] = field(default_factory=dict)

    def accuse(self, values: Values, survey: int, problem: str) -> None:
        """Leave a server out for some surveys."""
        self.left_out[values] = survey + LEFT_OUT_FOR, problem

    def suspect(self, values: tuple[Values, ...], problem: str) -> None:
        """Ask servers apart from the others in the next survey."""
        self.apart.append((values, problem))

    def begin(self, group: SeriesGroup, survey: int) -> None:
        """Forget servers that are gone; those whose time is over are asked apart first."""
        present = set(group.values)
        for values, (until, problem) in list(self.left_out.items()):
            if values not in present or until <= survey:
                del self.left_out[values]
                self.suspect((values,), problem)
        parts = ((tuple(v for v in part if v in present), problem) for part, problem in self.apart)
        self.apart = [(part, problem) for part, problem in parts if part]

    def others(self, group: SeriesGroup) -> tuple[Values, ...]:
        """Return the servers of a group that are asked together."""
        apart = {values for part, _ in self.apart for values in part}
        return tuple(v for v in group.values if v not in apart and v not in self.left_out)


def divide_into_chunks(group: SeriesGroup, namespaces: Namespaces) -> Iterator[SeriesGroup]:
    """Yield a group as it is, or in parts if its answers would be too large."""
    values = sum(len(text.encode()) for each in group.values for text in each)
    answer = SERIES * (values + BYTES_OF_SERIES * len(group.values))
    selectors = max(len(group.source.heartbeat), 2) / 2
    count = ceil(values * selectors / LARGEST_PART) if answer > LARGEST_ANSWER else 1
    if count == 1:
        yield group
        return
    in_order = sorted(group.values, key=lambda values: (namespaces[values], values))
    size = -(-len(in_order) // count)
    for first in range(0, len(in_order), size):
        yield replace(group, values=tuple(in_order[first : first + size]), is_part=True)


def halve(group: SeriesGroup, namespaces: Namespaces) -> tuple[SeriesGroup, SeriesGroup]:
    """Return a group of several servers in two parts: whole namespaces, if there are several."""
    in_order = sorted(group.values, key=lambda values: (namespaces[values], values))
    ends = [len(list(servers)) for _, servers in groupby(in_order, key=lambda v: namespaces[v])]
    middle = len(in_order) // 2
    if len(ends) > 1:
        borders = [sum(ends[:number]) for number in range(1, len(ends))]
        middle = min(borders, key=lambda border: abs(border - middle))
    first, second = in_order[:middle], in_order[middle:]
    return (
        replace(group, values=tuple(first), is_part=True),
        replace(group, values=tuple(second), is_part=True),
    )
