"""Finds out why a server has no series: a wrong label, a wrong source, or no scrape at all.

A hint tells what to do only where the cause was found, and else what was seen.
"""

import difflib
from collections.abc import Container, Iterable, Mapping, Sequence

from inferno_operator.engines.catalogue import MetricSources
from inferno_operator.engines.reading import Values
from inferno_operator.engines.series_groups import GroupIdentity, SeriesGroup
from inferno_operator.runtime.prometheus import Prometheus, quote_string
from inferno_operator.runtime.texts import shortened
from inferno_optimizer.errors import InfernoError

NAMED = 3
"""How many names a hint has."""

COMPARED = 300
"""Names that are compared with what was asked for: long ones take a millisecond each."""

AT_A_TIME = 1
"""Servers of a group that each survey looks at: the number of queries is limited."""

AGAIN_AFTER = 20
"""Surveys after which a server is looked at again."""

EXPORTED = "exported_"
"""How Prometheus names a label of a series that its target has as well."""

NAME = "__name__"

Labels = Mapping[str, str]


class Diagnosis:
    """Hints for servers without series; each is looked at once in a while.

    Parameters
    ----------
    prometheus, catalogue
        What to ask, and the sources.
    at_a_time
        Servers of a group that each survey looks at.
    """

    def __init__(
        self, prometheus: Prometheus, catalogue: MetricSources, at_a_time: int = AT_A_TIME
    ) -> None:
        self._prometheus = prometheus
        self._catalogue = catalogue
        self._at_a_time = at_a_time
        self._known: dict[tuple[GroupIdentity, Values], tuple[int, str]] = {}
        self._round = 0

    async def find_hints(
        self, group: SeriesGroup, reporting: Container[Values] = ()
    ) -> Mapping[Values, str]:
        """Return what to say about each server of a group; `reporting` are others, with series."""
        self._round += 1
        looks: list[Values] = []
        by_values: dict[Values, str] = {}
        for values in group.values:
            round_, hint = self._known.get((group.identity, values), (-AGAIN_AFTER, ""))
            if len(looks) < self._at_a_time and self._round - round_ >= AGAIN_AFTER:
                looks.append(values)
            by_values[values] = hint or _describe_plainly(group, values)
        if looks:
            for values, hint in (await self._look_for_causes(group, looks, reporting)).items():
                self._known[group.identity, values] = self._round, hint
                by_values[values] = hint or _describe_plainly(group, values)
        return by_values

    async def _look_for_causes(
        self, group: SeriesGroup, wanted: Sequence[Values], reporting: Container[Values]
    ) -> Mapping[Values, str]:
        """Return hints; "" where Prometheus does not answer."""
        hints = dict.fromkeys(wanted, "")
        try:
            answer = await self._prometheus.query(_build_engines_query(group, self._catalogue))
            look = _Look(group, self._catalogue, [s.labels for s in answer.samples], reporting)
            for values in wanted:
                names = await self._prometheus.metric_names(
                    "{" + _build_matchers(group, values) + "}"
                )
                hints[values] = look.explain_missing_series(values, names)
        except InfernoError:
            return hints
        return hints


def _build_engines_query(group: SeriesGroup, catalogue: MetricSources) -> str:
    """The query for the labels of all series that show that an engine is there."""
    sources = [s for s in catalogue.values() if not s.without_replicas]
    names = dict.fromkeys(name for s in (group.source, *sources) for name in s.heartbeat)
    labels = (NAME, *group.labels, *(EXPORTED + label for label in group.labels))
    return f"group by ({', '.join(labels)}) ({{{NAME}=~{quote_string('|'.join(names))}}})"


class _Look:
    """What Prometheus has of engines, beside what some servers of a group ask for."""

    def __init__(
        self,
        group: SeriesGroup,
        catalogue: MetricSources,
        series: Sequence[Labels],
        reporting: Container[Values],
    ) -> None:
        self._group = group
        self._metric = group.source.heartbeat[0]
        self._reporting = reporting
        self._source_of = {
            name: source_name
            for source_name, source in reversed([*catalogue.items()])
            for name in source.heartbeat
            if source.without_replicas == group.source.without_replicas
            and name not in group.source.heartbeat
        }
        own = {*group.source.heartbeat}
        self._own = [each for each in series if each.get(NAME, self._metric) in own]
        self._others = [each for each in series if each.get(NAME) in self._source_of]

    def explain_missing_series(self, values: Values, names: Sequence[str]) -> str:
        """Return the cause why a server has no series, or what was seen.

        `names` are those of the metrics that have its labels.
        """
        wanted = dict(zip(self._group.labels, values, strict=True))
        seen = _describe_plainly(self._group, values)
        if cause := self._wrong_source(names):
            return f"{seen}, but there are {cause}"
        if cause := self._find_exported_label(wanted) or self._find_absent_label(wanted):
            return f"{seen}; {cause}"
        if names:
            return f"{seen}, but there are {', '.join(_find_nearest(self._metric, names))}"
        if self._own:
            others = filter(
                None, (self._find_other_values(wanted), self._find_engines_with(wanted))
            )
            return f"{seen}; {'; '.join(others) or self._find_near_series(wanted)}"
        return f"Prometheus has no series of {self._metric}{self._describe_other_engines(wanted)}"

    def _wrong_source(self, names: Iterable[str]) -> str:
        """Which other source the metrics are of that have the labels; "" if of none."""
        found = {self._source_of[name]: name for name in names if name in self._source_of}
        text = " and ".join(f"{name} of source {source}" for source, name in sorted(found.items()))
        return f"{text}: correct spec.measure.source to {min(found)}" if len(found) == 1 else text

    def _find_exported_label(self, wanted: Labels) -> str:
        """Which label the target has taken the name of; "" if none."""
        for label, value in wanted.items():
            if any(_is_exported(series, label, wanted) for series in self._own):
                return (
                    f"{quote_string(value)} stands in the label {EXPORTED}{label}, as the target"
                    f" has a {label} of its own: name {EXPORTED}{label} in place of {label} in"
                    " spec.measure.labels, or set honorLabels in the PodMonitor or ServiceMonitor"
                )
        return ""

    def _find_absent_label(self, wanted: Labels) -> str:
        """Which label the series lack that have all others, or that all lack; "" if none."""
        nowhere = {label for label in wanted if not any(each.get(label) for each in self._own)}
        lacks = [
            (series, absent)
            for series in self._own
            if (absent := _find_absent(series, wanted))
            and (absent == nowhere or _find_matches(series, wanted) == {*wanted} - absent != set())
        ]
        if not lacks:
            return ""
        series, absent = lacks[0]
        there = {label: series[label] for label in wanted if label not in absent}
        which = f"those with {{{_format_labels(there)}}}" if there else "its series"
        return (
            f"{which} have no label {' and '.join(sorted(absent))}:"
            " name other labels in spec.measure.labels"
        )

    def _find_other_values(self, wanted: Labels) -> str:
        """What series have in place of one label that is wrong; "" if no other label is right."""
        by_label: dict[str, set[str]] = {}
        for series in self._own:
            values = tuple(series.get(label, "") for label in self._group.labels)
            wrong = {*wanted} - _find_matches(series, wanted)
            if len(wrong) == 1 and len(wanted) > 1 and values not in self._reporting:
                (label,) = wrong
                by_label.setdefault(label, set()).add(series.get(label, ""))
        texts = []
        for label, found in sorted(by_label.items()):
            rest = _format_labels({k: v for k, v in wanted.items() if k != label})
            near = _find_nearest(wanted[label], sorted(found))
            there = _show_matchers(_format_labels({**wanted, label: value}) for value in near)
            if len(found) == 1:
                there += (
                    f", the only {label} with {{{rest}}} that no other Server has: if the replicas"
                    f" report under this name, correct spec.measure.labels.{label}"
                )
            texts.append(there)
        return "; ".join(texts)

    def _find_near_series(self, wanted: Labels) -> str:
        labels = self._group.labels
        known = {
            _format_labels({n: each.get(n, "") for n in labels}) for each in self._own[:COMPARED]
        }
        return _show_matchers(_find_nearest(_format_labels(wanted), sorted(known)))

    def _describe_other_engines(self, wanted: Labels) -> str:
        """What follows that Prometheus has no series of the source."""
        if with_labels := self._find_engines_with(wanted):
            return f"; {with_labels}"
        if self._others:
            sources = sorted({self._source_of[series[NAME]] for series in self._others})
            return f", but of {' and '.join(sources)}, with other labels"
        return " nor of another engine: let it scrape the replicas (a PodMonitor or ServiceMonitor)"

    def _find_engines_with(self, wanted: Labels) -> str:
        """The other engines that have all labels that their series have; "" without any."""
        found = {
            series[NAME]: _find_matches(series, wanted)
            for series in self._others
            if _find_matches(series, wanted) == {*wanted} - _find_absent(series, wanted)
        }
        texts = [
            f"{name} of source {self._source_of[name]} has"
            f" {{{_format_labels({label: wanted[label] for label in sorted(labels)})}}}"
            for name, labels in sorted(found.items())
            if labels
        ]
        return "; ".join(texts)


def _find_nearest(text: str, texts: Sequence[str]) -> list[str]:
    """The texts that are most like one, of the first ones: each takes its time."""
    return difflib.get_close_matches(text, texts[:COMPARED], n=NAMED, cutoff=0.0)


def _show_matchers(matchers: Iterable[str]) -> str:
    return "there is " + " or ".join(f"{{{shortened(text)}}}" for text in matchers)


def _find_matches(series: Labels, wanted: Labels) -> set[str]:
    """The labels whose values are the wanted ones."""
    return {label for label, value in wanted.items() if series.get(label) == value}


def _find_absent(series: Labels, wanted: Iterable[str]) -> set[str]:
    return {label for label in wanted if not series.get(label)}


def _is_exported(series: Labels, label: str, wanted: Labels) -> bool:
    """Whether a series has all wanted values, and that of a label under its exported name."""
    if series.get(label) == wanted[label] or series.get(EXPORTED + label) != wanted[label]:
        return False
    return all(value in (series.get(k), series.get(EXPORTED + k)) for k, value in wanted.items())


def _build_matchers(group: SeriesGroup, values: Values) -> str:
    return _format_labels(dict(zip(group.labels, values, strict=True)))


def _format_labels(labels: Labels) -> str:
    return ", ".join(f"{label}={quote_string(value)}" for label, value in labels.items())


def _describe_plainly(group: SeriesGroup, values: Values) -> str:
    return f"no series of {group.source.heartbeat[0]} has {{{_build_matchers(group, values)}}}"
