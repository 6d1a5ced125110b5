"""The catalogue of sources: where each engine or gateway has its figures in Prometheus."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import yaml
from pydantic import BeforeValidator, Field, ValidationError

from inferno_operator.resources import CUSTOM
from inferno_operator.resources.schema import Items, Part, Rule
from inferno_operator.runtime.files import read_text
from inferno_optimizer.errors import InputError
from inferno_optimizer.suggestions import alternatives

Mean = Literal[
    "avgInTokens",
    "avgOutTokens",
    "itlAverage",
    "ttftAverage",
    "waitAverage",
    "cachedShare",
    "acceptedShare",
    "itlOfRequests",
]
Gauge = Literal["running", "waiting", "kvCacheUsage"]

TOKENS: tuple[Mean, Mean] = ("avgInTokens", "avgOutTokens")
"""The lengths of requests: of the prompt and of the answer."""

CACHED_SHARE: Mean = "cachedShare"
"""The share of the input tokens that were in prefix caches."""

ACCEPTED_SHARE: Mean = "acceptedShare"
"""The share of the output tokens that were accepted drafts of speculative decoding."""

ITL_OF_REQUESTS: Mean = "itlOfRequests"
"""The mean inter-token latency of each request, of which only percentiles are read."""

MOST_ACCEPTED = 0.99
"""Largest share of accepted tokens that is believed: steps of a hundred tokens."""


def tokens_per_step(accepted: float) -> float:
    """The output tokens of a step, where a share of them were accepted drafts.

    The first token of a step is none of its drafts, so that all others were accepted.
    """
    return 1.0 / (1.0 - min(accepted, MOST_ACCEPTED))


MetricName = Annotated[str, Field(pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*$")]
LabelName = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]
Names = Annotated[Items[MetricName], Field(min_length=1)]


class Term(Part):
    """A part of an arrival rate: the rate of a counter or the growth of a gauge."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("give rate or growth", "", lambda term: bool(term.rate) != bool(term.growth)),
    )

    rate: Items[MetricName] = ()
    growth: Items[MetricName] = ()
    where: str = ""
    parts: Items[LabelName] = ()


class Quotient(Part):
    """A mean: a histogram, or a counter divided by another."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("give metric or ratio", "", lambda mean: bool(mean.metric) != bool(mean.ratio)),
    )

    metric: MetricName | None = None
    ratio: Annotated[tuple[MetricName, MetricName], Field(strict=False)] | None = None
    where: str = ""

    @property
    def counters(self) -> tuple[str, str]:
        """The counters of the numerator and of the denominator."""
        return self.ratio or (f"{self.metric}_sum", f"{self.metric}_count")


class OfReplicas(Part):
    """A gauge over all replicas: the sum or the average."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("give sum or average", "", lambda gauge: bool(gauge.sum) != bool(gauge.average)),
    )

    sum: Items[MetricName] = ()
    average: Items[MetricName] = ()
    where: str = ""


def _quotient(value: object) -> object:
    return {"metric": value} if isinstance(value, str) else value


class MetricSource(Part):
    """Where an engine or a gateway has its figures; see `sources.yaml`."""

    without_replicas: bool = False
    parts: Items[LabelName] = ()
    replicas: Items[LabelName] = ()
    heartbeat: Names
    arrivals: Annotated[Items[Items[Term]], Field(min_length=1)]
    means: dict[Mean, Items[Annotated[Quotient, BeforeValidator(_quotient)]]] = Field(
        default_factory=dict
    )
    gauges: dict[Gauge, OfReplicas] = Field(default_factory=dict)
    since: dict[Mean, str] = Field(default_factory=dict)

    @property
    def counted(self) -> str:
        """The metric of the best arrival rate, for messages."""
        term = self.arrivals[0][0]
        return (term.rate or term.growth)[0]


MetricSources = Mapping[str, MetricSource]
"""The sources by name."""


def read_built_in_sources() -> MetricSources:
    """Return the sources that the operator knows."""
    return read_sources(files(__package__).joinpath("sources.yaml").read_text(), "sources.yaml")


def catalogue_with(file: Path | None) -> MetricSources:
    """Return the sources that are built in, and those of a file, which replace them by name.

    A source of a file that names no `parts` has those of all sources that are built in: it may be
    older than the rule that other labels tell copies.

    Raises
    ------
    InputError
        The file cannot be read, or is not valid.
    """
    if file is None:
        return read_built_in_sources()
    known = read_built_in_sources()
    parts = {label: None for source in known.values() for label in source.parts}
    replicas = {label: None for source in known.values() for label in source.replicas}
    own = {
        name: source
        if "parts" in source.model_fields_set
        else source.model_copy(update={"parts": tuple(parts), "replicas": tuple(replicas)})
        for name, source in read_sources(read_text(file), str(file)).items()
    }
    return {**known, **own}


def read_sources(text: str, name: str) -> MetricSources:
    """Read a catalogue in the form of `sources.yaml`.

    Raises
    ------
    InputError
        The text is not valid; the message has `name` and the field.
    """
    try:
        document: Any = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise InputError(f"{name}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise InputError(f"{name}: must be an object with a source for each name")
    return {str(key): _source(item, f"{name}: {key}") for key, item in document.items()}


def _source(item: object, name: str) -> MetricSource:
    try:
        return MetricSource.model_validate(item)
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(map(str, first["loc"]))
        raise InputError(f"{name}.{path}: {first['msg']}") from error


def find_source(catalogue: MetricSources, name: str) -> MetricSource:
    """Return a source.

    Raises
    ------
    InputError
        There is no such source; the message has the nearest name.
    """
    return _found(catalogue, name, "spec.measure.source")


def find_demand_source(catalogue: MetricSources, name: str) -> MetricSource:
    """Return a source that sees requests also while a server has no replica.

    Raises
    ------
    InputError
        There is no such source; the message has the nearest name.
    """
    seeing = {each: source for each, source in catalogue.items() if source.without_replicas}
    if name in catalogue and name not in seeing:
        raise InputError(
            f"spec.measure.demand.source: {name!r} has no metrics while nothing runs;"
            f" use one of {', '.join([*seeing, CUSTOM])}"
        )
    return _found(seeing, name, "spec.measure.demand.source")


def _found(catalogue: MetricSources, name: str, field: str) -> MetricSource:
    if name in catalogue:
        return catalogue[name]
    names = [*catalogue, CUSTOM]
    raise InputError(f"{field}: {name!r} is unknown{alternatives(name, names)}")
