"""Finds out why a server has no series: a wrong label, a wrong source, or no scrape at all."""

import difflib
from collections.abc import Mapping

from inferno_operator.engines.reading import Values, by_server
from inferno_operator.engines.series_groups import GroupIdentity, SeriesGroup
from inferno_operator.runtime.prometheus import Prometheus, quoted
from inferno_operator.runtime.texts import shortened
from inferno_optimizer.errors import InfernoError

NAMED = 3
"""How many names a hint has."""

COMPARED = 300
"""Names that are compared with what was asked for: long ones take a millisecond each."""

AT_A_TIME = 1
"""Servers that each survey looks at: the number of queries is limited."""

AGAIN_AFTER = 20
"""Surveys after which a server is looked at again."""


class Diagnosis:
    """Hints for servers without series; each is looked at once in a while."""

    def __init__(self, prometheus: Prometheus) -> None:
        self._prometheus = prometheus
        self._known: dict[tuple[GroupIdentity, Values], tuple[int, str]] = {}
        self._round = 0

    async def hints(self, group: SeriesGroup) -> Mapping[Values, str]:
        """Return what to say about each server of a group."""
        self._round += 1
        looked = 0
        by_values: dict[Values, str] = {}
        for values in group.values:
            identity = group.identity, values
            round_, hint = self._known.get(identity, (-AGAIN_AFTER, ""))
            if looked < AT_A_TIME and self._round - round_ >= AGAIN_AFTER:
                looked += 1
                hint = await self._look(group, values)
                self._known[identity] = self._round, hint
            by_values[values] = hint or _plain(group, values)
        return by_values

    async def _look(self, group: SeriesGroup, values: Values) -> str:
        """Return a hint; "" if Prometheus does not answer."""
        try:
            names = await self._prometheus.metric_names("{" + _matchers(group, values) + "}")
            if names:
                return _wrong_source(group, values, names[:COMPARED])
            metric = group.source.heartbeat[0]
            answer = await self._prometheus.query(f"group {group.by} ({metric})")
        except InfernoError:
            return ""
        return _wrong_label(group, values, list(by_server(group, answer.samples[:COMPARED])))


def _matchers(group: SeriesGroup, values: Values) -> str:
    pairs = zip(group.labels, values, strict=True)
    return ", ".join(f"{label}={quoted(value)}" for label, value in pairs)


def _plain(group: SeriesGroup, values: Values) -> str:
    return (
        f"no series of {group.source.heartbeat[0]} has {{{_matchers(group, values)}}}:"
        " correct spec.measure.labels"
    )


def _wrong_source(group: SeriesGroup, values: Values, names: tuple[str, ...]) -> str:
    metric = group.source.heartbeat[0]
    near = difflib.get_close_matches(metric, names, n=NAMED, cutoff=0.0)
    return (
        f"no series of {metric} has {{{_matchers(group, values)}}}, but there are"
        f" {', '.join(near)}: correct spec.measure.source, or name a label that all series have"
    )


def _wrong_label(group: SeriesGroup, values: Values, labels: list[Values]) -> str:
    metric = group.source.heartbeat[0]
    if not labels:
        return (
            f"Prometheus has no series of {metric}: let it scrape the replicas"
            " (a PodMonitor or ServiceMonitor), or correct spec.measure.source"
        )
    texts = {_matchers(group, each): each for each in labels}
    near = difflib.get_close_matches(_matchers(group, values), texts, n=NAMED, cutoff=0.0)
    there = " or ".join(f"{{{shortened(text)}}}" for text in near)
    return f"{_plain(group, values)}; there is {there}"
